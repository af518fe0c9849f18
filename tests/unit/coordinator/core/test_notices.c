/* Which hooks hear of what: notices are changes of the same call as their event. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "daemon/coordinator/core/notices.h"
#include "tests/unit/coordinator/core/core_fixture.h"

#define ALL ((1u << (NOTICE_GPUS_IDLE + 1)) - 1)

static char *for_bob[] = {(char[]){"bo?"}, NULL};
static char *for_gpt[] = {(char[]){"gpt-*"}, NULL};
static const struct core_hook hooks[] = {
    {.name = (char[]){"all"}, .on = ALL},
    {.name = (char[]){"gpt"}, .on = ALL, .jobs = for_gpt},
    {.name = (char[]){"bob"}, .on = ALL, .users = for_bob},
    {.name = (char[]){"ends"}, .on = 1u << NOTICE_SUCCEEDED | 1u << NOTICE_NODE_LOST},
};

static int notices_setup(void **state)
{
    fixture_setup(state);
    struct core_fixture *f = *state;
    f->config.hooks = hooks;
    f->config.hook_count = ARRAY_LEN(hooks);
    fixture_restart(f);
    return 0;
}

static const struct notice_record *find_notice(const struct core_fixture *f, const char *hook,
                                               const char *what)
{
    for (size_t i = 0; i < f->out.change_count; i++) {
        const struct change *c = &f->out.changes[i];
        if (c->kind == CHANGE_NOTICE && !strcmp(c->notice->hook, hook) && !strcmp(c->notice->what, what))
            return c->notice;
    }
    return NULL;
}

static size_t count_notices(const struct core_fixture *f, const char *what)
{
    size_t count = 0;

    for (size_t i = 0; i < f->out.change_count; i++)
        count += f->out.changes[i].kind == CHANGE_NOTICE && !strcmp(f->out.changes[i].notice->what, what);
    return count;
}

/* The agent reports what rank 0 of the job does. */
static void report_activity(struct core_fixture *f, uint64_t session, struct core_activity activity)
{
    struct core_event event = {.kind = CORE_ACTIVITY, .session = session};

    activity.spawn = fixture_spawn(f, activity.job, 0);
    event.activity.spawns = &activity;
    event.activity.count = 1;
    core_event(f->core, &event, f->now, &f->out);
}

/* The agent reports that all ranks work. */
static void report_work(struct core_fixture *f, uint64_t session)
{
    struct core_event event = {.kind = CORE_ACTIVITY, .session = session};

    core_event(f->core, &event, f->now, &f->out);
}

static void a_job_is_told_to_the_hooks_that_match(void **state)
{
    struct core_fixture *f = *state;

    fixture_node(f, "box1", 4);
    int64_t job = fixture_submit(f, "name: gpt-small\n" COMMAND);
    fixture_all_run(f, "box1");
    assert_int_equal(count_notices(f, "started"), 2); /* the job is of ana */
    assert_non_null(find_notice(f, "gpt", "started"));
    fixture_exit(f, job, 0, 0, 0);
    assert_int_equal(count_notices(f, "succeeded"), 3);
    const struct notice_record *end = find_notice(f, "ends", "succeeded");
    assert_non_null(end);
    assert_int_equal(end->job, job);
    assert_int_equal(end->generation, 1);
    assert_string_equal(end->name, "gpt-small");
    assert_null(end->url);
    assert_null(find_notice(f, "bob", "succeeded"));
}

static void a_failure_is_a_restart_and_then_the_end(void **state)
{
    struct core_fixture *f = *state;

    fixture_node(f, "box1", 4);
    int64_t job = fixture_submit(f, "max_restarts: 1\n" COMMAND);
    fixture_all_run(f, "box1");
    fixture_exit(f, job, 0, 0, 9);
    assert_non_null(strstr(find_notice(f, "all", "restarted")->text, "signal 9"));
    assert_non_null(strstr(find_notice(f, "all", "restarted")->text, ": restart 1 of 1"));
    assert_null(find_notice(f, "all", "failed"));
    fixture_all_run(f, "box1");
    fixture_exit(f, job, 0, 0, 9);
    assert_non_null(find_notice(f, "all", "failed"));
    assert_int_equal(count_notices(f, "restarted"), 1);
    assert_int_equal(count_notices(f, "started"), 1); /* its restart is no second start */
}

static void a_cancelled_job_is_told(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = fixture_submit(f, "name: gpt-x\n" COMMAND);

    fixture_cancel(f, job, false);
    assert_non_null(find_notice(f, "gpt", "cancelled"));
}

static void nodes_are_told_to_hooks_without_a_filter(void **state)
{
    struct core_fixture *f = *state;

    fixture_node(f, "box1", 4);
    fixture_node(f, "box2", 4);
    fixture_operator(f, CORE_DRAIN, "box2");
    assert_int_equal(count_notices(f, "drained"), 1);
    assert_string_equal(find_notice(f, "all", "drained")->node, "box2");
    fixture_pass(f, 60000);
    assert_int_equal(count_notices(f, "node_lost"), 4); /* two hooks, two nodes */
    assert_non_null(strstr(find_notice(f, "ends", "node_lost")->text, "is lost: no message for "));
}

static void a_standstill_is_told_once_without_a_timeout(void **state)
{
    struct core_fixture *f = *state;
    const uint64_t session = fixture_node(f, "box1", 4);
    int64_t job = fixture_submit(f, COMMAND);
    const struct core_activity quiet = {.job = job, .idle_ms = 1000, .silent_ms = 1000, .state = 'T'};

    fixture_all_run(f, "box1");
    report_activity(f, session, quiet);
    fixture_pass_beating(f, 590000, "box1");
    assert_int_equal(count_notices(f, "stalled"), 0);
    fixture_pass_beating(f, 600000, "box1");
    assert_non_null(strstr(find_notice(f, "all", "stalled")->text, "is stopped by a signal for 10m"));
    assert_int_equal(count_notices(f, "stalled"), 1);
    report_work(f, session);
    fixture_pass_beating(f, 1000, "box1");
    report_activity(f, session, quiet); /* the second standstill */
    fixture_pass_beating(f, 700000, "box1");
    assert_int_equal(count_notices(f, "stalled"), 2);
}

static void a_standstill_with_a_timeout_is_told_before_the_restart(void **state)
{
    struct core_fixture *f = *state;
    const uint64_t session = fixture_node(f, "box1", 4);
    int64_t job = fixture_submit(f, "stall_timeout: 10s\nmax_restarts: 1\n" COMMAND);

    fixture_all_run(f, "box1");
    report_activity(f, session, (struct core_activity){.job = job, .idle_ms = 11000, .silent_ms = 11000});
    fixture_pass_beating(f, 1, "box1");
    assert_int_equal(count_notices(f, "stalled"), 1);
    assert_true(find_notice(f, "all", "stalled") < find_notice(f, "all", "restarted") ||
                count_notices(f, "restarted") == 1);
}

/* The node reports every 5 s that the only GPU of the job is used so much. */
static void gpu_is_used(struct core_fixture *f, uint64_t session, int64_t job, int64_t ms, double utilisation)
{
    struct core_spawn_usage used = {.job = job, .spawn = fixture_spawn(f, job, 0)};
    struct core_event event = {.kind = CORE_USAGE, .session = session};

    usage_init(&used.usage);
    usage_add_gpu(&used.usage, utilisation, 1 << 30, 100, 40);
    event.usage.spawns = &used;
    event.usage.count = 1;
    for (int64_t passed = 0; passed < ms; passed += 5000) {
        core_event(f->core, &event, f->now, &f->out);
        fixture_pass_beating(f, 5000, "box1");
    }
}

static void idle_gpus_are_told_once_a_generation(void **state)
{
    struct core_fixture *f = *state;
    const uint64_t session = fixture_hello(f, "box1", "box1", 4, 1);
    fixture_facts(f, "box1", NULL, 0);
    int64_t job =
        fixture_submit(f, "device: cuda\nmax_restarts: 1\ntell: https://ntfy.sh/x\nname: gpt-x\n" COMMAND);

    fixture_all_run(f, "box1");
    gpu_is_used(f, session, job, 595000, 0.01);
    assert_int_equal(count_notices(f, "gpus_idle"), 0);
    gpu_is_used(f, session, job, 10000, 0.01);
    assert_int_equal(count_notices(f, "gpus_idle"), 3); /* the job's own, and two hooks */
    assert_non_null(strstr(find_notice(f, "gpt", "gpus_idle")->text, "the GPU of rank 0 on box1 is idle"));
    gpu_is_used(f, session, job, 10000, 0.9);
    gpu_is_used(f, session, job, 700000, 0.01);
    assert_int_equal(count_notices(f, "gpus_idle"), 3);
    fixture_exit(f, job, 0, 0, 9);
    fixture_all_run(f, "box1");
    gpu_is_used(f, session, job, 700000, 0.01);
    assert_int_equal(count_notices(f, "gpus_idle"), 6);
}

static void a_job_hears_of_itself(void **state)
{
    struct core_fixture *f = *state;

    fixture_node(f, "box1", 4);
    int64_t job = fixture_submit(f, "tell: https://ntfy.sh/SECRET\ntell_as: json\n" COMMAND);
    CLEANUP(free_text) char *own = xasprintf("#%d", (int)job);
    fixture_all_run(f, "box1");
    assert_null(find_notice(f, own, "started"));
    fixture_exit(f, job, 0, 0, 0);
    const struct notice_record *end = find_notice(f, own, "succeeded");
    assert_non_null(end);
    assert_string_equal(end->url, "https://ntfy.sh/SECRET");
    assert_int_equal(end->shape, 1);
    assert_false(fixture_said(f, "SECRET"));
}

static void a_url_that_is_not_allowed_is_refused_at_submit(void **state)
{
    char *const allow[] = {(char[]){"https://ntfy.sh/"}, NULL};
    struct core_fixture *f = *state;

    f->config.tell_allow = allow;
    fixture_restart(f);
    struct core_event event = {.kind = CORE_SUBMIT, .call = 4711};
    event.submit.request_id = "r1";
    event.submit.user = "bob";
    event.submit.job_file = "tell: https://example.org/x\n" COMMAND;
    core_event(f->core, &event, f->now, &f->out);
    const struct core_effect *reply = fixture_reply(f, 4711);
    assert_non_null(reply);
    assert_int_equal(reply->err.code, ERR_PERMISSION_DENIED);
    assert_non_null(strstr(reply->err.msg, "this coordinator allows https://ntfy.sh"));
}

int main(void)
{
#define TEST(test) cmocka_unit_test_setup_teardown(test, notices_setup, fixture_teardown)
    const struct CMUnitTest tests[] = {
        TEST(idle_gpus_are_told_once_a_generation),
        TEST(a_job_is_told_to_the_hooks_that_match),
        TEST(a_failure_is_a_restart_and_then_the_end),
        TEST(a_cancelled_job_is_told),
        TEST(nodes_are_told_to_hooks_without_a_filter),
        TEST(a_standstill_is_told_once_without_a_timeout),
        TEST(a_standstill_with_a_timeout_is_told_before_the_restart),
        TEST(a_job_hears_of_itself),
        TEST(a_url_that_is_not_allowed_is_refused_at_submit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
