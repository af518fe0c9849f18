#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/paths.h"

static void test_join(void **state)
{
    (void)state;
    CLEANUP(free_text) char *plain = paths_join("/a", "b");
    CLEANUP(free_text) char *slash = paths_join("/a/", "b");
    CLEANUP(free_text) char *absolute = paths_join("/a", "/b");
    assert_string_equal(plain, "/a/b");
    assert_string_equal(slash, "/a/b");
    assert_string_equal(absolute, "/b");
}

static void test_defaults_by_user(void **state)
{
    (void)state;
    setenv("XDG_STATE_HOME", "/s", 1);
    setenv("HOME", "/h", 1);
    unsetenv("XDG_CONFIG_HOME");
    CLEANUP(free_text) char *dir = paths_state();
    CLEANUP(free_text) char *log = paths_log();
    CLEANUP(free_text) char *config = paths_config("agent.yaml");
    CLEANUP(free_text) char *own = paths_user_config("token");
    int root = geteuid() == 0;
    assert_string_equal(own, "/h/.config/ddp/token");
    assert_string_equal(dir, root ? "/var/lib/ddp" : "/s/ddp");
    assert_string_equal(log, root ? "/var/log/ddp" : "/s/ddp/log");
    assert_string_equal(config, root ? "/etc/ddp/agent.yaml" : "/h/.config/ddp/agent.yaml");
}

static void test_program_beside(void **state)
{
    (void)state;
    struct err e;
    char *path = NULL;
    assert_int_equal(paths_program("test_paths", &path, &e), ERR_OK);
    assert_int_equal(access(path, X_OK), 0);
    free(path);
    assert_int_equal(paths_program("no-such-program", &path, &e), ERR_NOT_FOUND);
    assert_non_null(strstr(e.msg, "no-such-program"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_join),
        cmocka_unit_test(test_defaults_by_user),
        cmocka_unit_test(test_program_beside),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
