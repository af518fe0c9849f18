#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/conf/conf.h"
#include "base/mem.h"
#include "daemon/coordinator/hook_config.h"
#include "daemon/coordinator/service/tell/hook.h"

/* The keys `hooks` and `tell` of coordinator.yaml. */

static const struct conf_field fields[] = {{.key = "hooks", .type = CONF_CUSTOM, .fn = hook_config_read},
                                           {.key = "tell", .type = CONF_CUSTOM, .fn = hook_config_read_tell},
                                           {.key = NULL}};

static enum err_code read_hooks(const char *text, struct hook_list *list, struct err *e)
{
    struct conf_doc *doc = NULL;
    *list = (struct hook_list){0};
    if (conf_open(&doc, text, strlen(text), "c.yaml", e) != ERR_OK)
        return e->code;
    const enum err_code code = conf_read(doc, fields, list, e);
    conf_close(doc);
    return code;
}

static void hooks_are_read(void **state)
{
    struct hook_list list;
    struct err e = {0};
    (void)state;
    if (read_hooks("hooks:\n"
                   "  - {on: [failed, node_lost], post: 'https://hooks.slack.com/services/x'}\n"
                   "  - {on: failed, post: 'https://hooks.slack.com/services/y', as: json, timeout: 3s}\n"
                   "  - {name: pager, on: [gpu_sick], user: ana, job: ['a*', 'b'], run: [/bin/page, -x]}\n"
                   "tell: {allow: 'https://ntfy.sh/', ca: /ca.pem}\n",
                   &list, &e) != ERR_OK)
        fail_msg("%s", e.msg);
    assert_int_equal(list.count, 3);
    assert_string_equal(list.rules[0].name, "hooks.slack.com");
    assert_int_equal(list.rules[0].on, 1u << NOTICE_FAILED | 1u << NOTICE_NODE_LOST);
    assert_int_equal(list.hooks[0].shape, TELL_SLACK);
    assert_int_equal(list.hooks[0].timeout_ms, 10000);
    assert_string_equal(list.rules[1].name, "hooks.slack.com-2");
    assert_int_equal(list.hooks[1].shape, TELL_JSON);
    assert_int_equal(list.hooks[1].timeout_ms, 3000);
    assert_string_equal(list.rules[2].name, "pager");
    assert_string_equal(list.rules[2].users[0], "ana");
    assert_int_equal(strv_len(list.rules[2].jobs), 2);
    assert_string_equal(list.hooks[2].run[1], "-x");
    assert_int_equal(list.hooks[2].timeout_ms, 30000);
    assert_string_equal(list.tell_allow[0], "https://ntfy.sh/");
    assert_string_equal(list.tell_ca, "/ca.pem");
    hook_list_release(&list);
}

static void an_empty_list_allows_nothing(void **state)
{
    struct hook_list list;
    struct err e = {0};
    (void)state;
    assert_int_equal(read_hooks("tell: {allow: []}\n", &list, &e), ERR_OK);
    assert_string_equal(list.tell_allow[0], "none");
    hook_list_release(&list);
}

static void a_made_name_is_not_that_of_jobs(void **state)
{
    struct hook_list list;
    struct err e = {0};
    (void)state;
    assert_int_equal(read_hooks("hooks:\n  - {on: [failed], run: [/bin/jobs]}\n"
                                "  - {on: [failed], post: 'https://jobs/'}\n",
                                &list, &e),
                     ERR_OK);
    assert_string_equal(list.rules[0].name, "hook");
    assert_string_not_equal(list.rules[1].name, "hook");
    assert_string_not_equal(list.rules[1].name, "jobs");
    hook_list_release(&list);
}

static void mistakes_are_named(void **state)
{
    static const struct {
        const char *text, *why;
    } cases[] = {
        {"hooks: {on: [failed]}\n", "expected a list of hooks"},
        {"hooks: [failed]\n", "expected a hook"},
        {"hooks:\n  - {on: [failed]}\n", "c.yaml:2:5: a hook needs one of the keys 'post' and 'run'"},
        {"hooks:\n  - {post: 'https://x/'}\n", "on"},
        {"hooks:\n  - {on: [], post: 'https://x/'}\n", "'on' is empty"},
        {"hooks:\n  - {on: [fialed], post: 'https://x/'}\n",
         "unknown event 'fialed', expected one of started,"},
        {"hooks:\n  - {on: [failed], post: 'https://me:SECRET@x/'}\n",
         "the URL may not have a user or password"},
        {"hooks:\n  - {on: [failed], run: [page]}\n", "absolute path"},
        {"hooks:\n  - {on: [failed], run: [/bin/page], as: slack}\n", "'as' applies to 'post' only"},
        {"hooks:\n  - {on: [failed], run: [/bin/page], post: 'https://x/'}\n", "one of the keys"},
        {"hooks:\n  - {name: '#1', on: [failed], run: [/bin/page]}\n", "invalid name of a hook"},
        {"hooks:\n  - {name: a, on: [failed], run: [/a]}\n  - {name: a, on: [failed], run: [/a]}\n",
         "two hooks have the name 'a'"},
        {"hooks:\n  - {name: jobs, on: [failed], run: [/a]}\n",
         "the name 'jobs' stands for the `tell` of jobs"},
        {"tell: {allow: [ntfy.sh]}\n", "beginnings of URLs"},
        {"tell: {allow: ['https://x/', none]}\n", "beginnings of URLs"},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct hook_list list;
        struct err e = {0};
        assert_int_equal(read_hooks(cases[i].text, &list, &e), ERR_INVALID_ARGUMENT);
        if (!strstr(e.msg, cases[i].why) || strstr(e.msg, "SECRET"))
            fail_msg("'%s', not '%s'", e.msg, cases[i].why);
        hook_list_release(&list);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hooks_are_read),
        cmocka_unit_test(an_empty_list_allows_nothing),
        cmocka_unit_test(a_made_name_is_not_that_of_jobs),
        cmocka_unit_test(mistakes_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
