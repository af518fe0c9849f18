#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "daemon/agent/settings.h"
#include "daemon/coordinator/config.h"

/* The configuration files in deploy/ are valid as they are, and with all commented keys enabled. */

static char dir[] = "/tmp/ddp-deploy-XXXXXX";

/* "#key: value" and "#  key: value" are commented keys; "# words" is a comment. `user` is left commented,
 * since that account does not exist here. */
static const char *line_uncomment(const char *line)
{
    bool words = (!strncmp(line, "# ", 2) && strncmp(line, "#  ", 3) != 0) || !strncmp(line, "#user:", 6);

    return line[0] == '#' && line[1] && !words ? line + 1 : line;
}

static char *config_make(const char *name, const char *from, const char *to)
{
    CLEANUP(free_text) char *path = xasprintf("%s/%s", DDP_DEPLOY, name);
    CLEANUP(buf_release) struct buf in = {0}, out = {0};
    char *made = xasprintf("%s/%s", dir, name), *line, *rest, *at;
    struct err e = {0};

    if (file_read(path, 1 << 16, &in, &e))
        fail_msg("%s", e.msg);
    for (rest = in.data; (line = strsep(&rest, "\n"));) {
        line = (char *)line_uncomment(line);
        at = strstr(line, from);
        if (at)
            buf_printf(&out, "%.*s%s%s\n", (int)(at - line), line, to, at + strlen(from));
        else
            buf_printf(&out, "%s\n", line);
    }
    if (file_write_atomic(made, out.data, out.len, 0600, &e))
        fail_msg("%s", e.msg);
    return made;
}

static void read_coordinator(struct config *c, const char *path)
{
    struct err e = {0};

    config_defaults(c);
    if (config_read(c, path, &e) || config_check(c, &e))
        fail_msg("%s", e.msg);
}

static void coordinator_yaml_is_valid(void **state)
{
    CLEANUP(config_release) struct config shown = {0}, plain = {0};
    CLEANUP(free_text) char *path = config_make("coordinator.yaml", "nothing to replace", "");

    (void)state;
    read_coordinator(&shown, path);
    assert_int_equal(shown.retain_jobs, 1000);
    assert_int_equal(shown.hooks.count, 2);
    assert_string_equal(shown.hooks.tell_allow[0], "https://ntfy.sh/");
    assert_string_equal(shown.tls.key, "/etc/ddp/coordinator.key");
    assert_string_equal(shown.web, "[::]:29602");
    read_coordinator(&plain, DDP_DEPLOY "/coordinator.yaml");
    assert_int_equal(plain.retain_jobs, 0);
    assert_null(plain.tls.key);
    assert_null(plain.web);
}

static void read_agent(struct settings *s, const char *path)
{
    char *argv[] = {(char *)"ddp-agent", (char *)"--config", (char *)path,
                    (char *)"--user",    (char *)"root",     NULL};
    struct err e = {0};

    if (settings_read(s, geteuid() == 0 ? 5 : 3, argv, &e))
        fail_msg("%s", e.msg);
}

static void agent_yaml_is_valid(void **state)
{
    CLEANUP(settings_release) struct settings shown = {0}, plain = {0};
    CLEANUP(free_text) char *token = xasprintf("%s/token", dir);
    CLEANUP(free_text) char *path = config_make("agent.yaml", "/etc/ddp/token", token);
    struct err e = {0};

    (void)state;
    if (file_write_atomic(token, "secret\n", 7, 0600, &e))
        fail_msg("%s", e.msg);
    read_agent(&shown, path);
    assert_string_equal(shown.token, "secret");
    assert_int_equal(shown.slots, 8);
    assert_string_equal(shown.tls.key, "/etc/ddp/agent.key");
    read_agent(&plain, DDP_DEPLOY "/agent.yaml");
    assert_int_equal(plain.slots, 0);
}

/* The agent of a `ddpctl run` writes to a directory of the user, where it must not delete old logs. */
static void the_agent_of_a_run_keeps_all_logs(void **state)
{
    CLEANUP(settings_release) struct settings s = {0}, plain = {0};
    char *argv[] = {(char *)"ddp-agent",
                    (char *)"--config",
                    (char *)"/dev/null",
                    (char *)"--coordinator",
                    (char *)"unix:/x.sock",
                    (char *)"--lifeline",
                    (char *)"3",
                    (char *)"--user",
                    (char *)"root",
                    NULL};
    struct err e = {0};

    (void)state;
    if (settings_read(&s, geteuid() == 0 ? 9 : 7, argv, &e))
        fail_msg("%s", e.msg);
    assert_int_equal(s.log_keep_ms, 0);
    read_agent(&plain, DDP_DEPLOY "/agent.yaml");
    assert_true(plain.log_keep_ms > 0);
}

static int open_dir(void **state)
{
    (void)state;
    unsetenv("DDP_COORDINATOR");
    if (!mkdtemp(dir))
        return -1;
    return setenv("HOME", dir, 1);
}

static int remove_dir(void **state)
{
    struct err e;

    (void)state;
    return file_remove_tree(dir, &e) ? -1 : 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(coordinator_yaml_is_valid),
                                       cmocka_unit_test(agent_yaml_is_valid),
                                       cmocka_unit_test(the_agent_of_a_run_keeps_all_logs)};

    return cmocka_run_group_tests(tests, open_dir, remove_dir);
}
