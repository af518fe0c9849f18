/* Tests the message about a plugin that cannot be used: one line, which names the plugin. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/paths.h"
#include "trainer/device/plugin.h"

/* name: a file in this program's directory, unless it begins with a slash. */
static void plugin_refused(const char *name, const char *says)
{
    const struct plugin *p = NULL;
    struct device *d = NULL;
    struct err e = {0}, why;
    CLEANUP(free_text) char *path = NULL;
    if (name[0] == '/')
        path = xstrdup(name);
    else
        assert_int_equal(paths_program(name, &path, &e), ERR_OK);
    assert_int_equal(setenv("DDP_CUDA_PLUGIN", path, 1), 0);
    assert_int_equal(plugin_load(&p, &e), ERR_UNAVAILABLE);
    assert_null(p);
    assert_non_null(strstr(e.msg, path));
    assert_non_null(strstr(e.msg, says));
    assert_null(strchr(e.msg, '\n'));
    why = e;
    assert_int_equal(device_open(&d, DEVICE_CUDA, 0, 1, 0, &e), ERR_UNAVAILABLE);
    assert_string_equal(e.msg, why.msg);
}

static void a_plugin_of_another_version(void **state)
{
    (void)state;
    plugin_refused("plugin_old.so", "has another version than this program");
    plugin_refused("plugin_small.so", "has another version than this program");
}

static void a_library_that_is_not_a_plugin(void **state)
{
    (void)state;
    plugin_refused("plugin_empty.so", "is not a plugin: it has no ddp_plugin");
}

static void a_file_that_is_not_a_library(void **state)
{
    char text[] = "/tmp/ddp-plugin-XXXXXX";
    int fd = mkstemp(text);
    (void)state;
    assert_true(fd >= 0 && dprintf(fd, "no library\n") > 0);
    plugin_refused(text, "the plugin cannot be loaded: ");
    close_fd(&fd);
    remove(text);
}

static void a_missing_file(void **state)
{
    const struct plugin *p = NULL;
    struct err e = {0};
    (void)state;
    plugin_refused("/nonexistent/plugin.so", "does not exist");
    /* dlopen would search a bare name in the system's directories */
    assert_int_equal(setenv("DDP_CUDA_PLUGIN", "libm.so.6", 1), 0);
    assert_int_equal(plugin_load(&p, &e), ERR_UNAVAILABLE);
    assert_string_equal(e.msg, "no plugin: libm.so.6 does not exist");
}

/* There is no plugin in this program's directory, and none in ../lib/ddp. */
static void no_plugin_anywhere(void **state)
{
    const struct plugin *p = NULL;
    struct err e = {0};
    (void)state;
    assert_int_equal(unsetenv("DDP_CUDA_PLUGIN"), 0);
    assert_int_equal(plugin_load(&p, &e), ERR_UNAVAILABLE);
    assert_non_null(strstr(e.msg, "no plugin: neither "));
    assert_non_null(strstr(e.msg, "tests/libddp_cuda.so nor "));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_plugin_of_another_version),  cmocka_unit_test(a_library_that_is_not_a_plugin),
        cmocka_unit_test(a_file_that_is_not_a_library), cmocka_unit_test(a_missing_file),
        cmocka_unit_test(no_plugin_anywhere),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
