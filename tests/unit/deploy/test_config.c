#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "daemon/coordinator/config.h"

/* The config files in deploy/ are read as they are, and with every key that they show taken out of its
 * comment. */

static char *uncommented(const char *name)
{
    CLEANUP(free_text) char *path = xasprintf("%s/%s", DDP_DEPLOY, name);
    CLEANUP(buf_release) struct buf in = {0}, out = {0};
    char *out_path = xasprintf("/tmp/ddp-config-%d.yaml", (int)getpid());
    struct err e = {0};
    char *line, *rest;

    if (file_read(path, 1 << 16, &in, &e))
        fail_msg("%s", e.msg);
    rest = in.data;
    while ((line = strsep(&rest, "\n")))
        buf_printf(&out, "%s\n",
                   line[0] == '#' && line[1] && strncmp(line, "# ", 2) ? line + 1
                   : !strncmp(line, "#  ", 3)                          ? line + 1
                                                                       : line);
    if (file_write_atomic(out_path, out.data, out.len, 0600, &e))
        fail_msg("%s", e.msg);
    return out_path;
}

static void read_coordinator(const char *path, int64_t *retain_jobs, char **key)
{
    CLEANUP(config_release) struct config c = {0};
    struct err e = {0};

    config_defaults(&c);
    if (config_read(&c, path, &e) || config_check(&c, &e))
        fail_msg("%s", e.msg);
    *retain_jobs = c.retain_jobs;
    *key = xstrdup(c.tls.key);
}

static void coordinator(void **state)
{
    CLEANUP(free_text) char *path = uncommented("coordinator.yaml");
    CLEANUP(free_text) char *key = NULL;
    CLEANUP(free_text) char *none = NULL;
    int64_t retain_jobs;

    (void)state;
    read_coordinator(path, &retain_jobs, &key);
    unlink(path);
    assert_int_equal(retain_jobs, 1000); /* the keys were read, not left in their comments */
    assert_string_equal(key, "/etc/ddp/coordinator.key");
    read_coordinator(DDP_DEPLOY "/coordinator.yaml", &retain_jobs, &none);
    assert_int_equal(retain_jobs, 0);
    assert_null(none);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(coordinator)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
