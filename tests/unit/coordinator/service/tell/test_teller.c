/* What the teller does after a commit. */
#include "tests/unit/base/check.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "daemon/coordinator/service/commit_queue.h"
#include "daemon/coordinator/service/service_state.h"
#include "daemon/coordinator/service/tell/hook.h"
#include "daemon/coordinator/service/tell/teller.h"
#include "tests/unit/store/store_test.h"

#define JOB_KEEPS 100 /* as in teller.c; a tenth more is tolerated */

static struct service service;
static const struct hook_list no_hooks;
static const struct service_options options = {.hooks = &no_hooks};

static void random_bytes(void *ctx, void *out, size_t size)
{
    (void)ctx;
    memset(out, 1, size);
}

static int teller_setup(void **state)
{
    const struct core_env env = {random_bytes, NULL};
    struct core_config config;
    struct err e = {0};
    *state = make_dir();
    service = (struct service){.options = &options};
    core_config_defaults(&config);
    service.core = core_create(&config, &env);
    uv_loop_init(&service.loop);
    assert_ok(store_open_temporary(&service.store, *state, &e), &e);
    service.teller = teller_open(&service);
    uv_run(&service.loop, UV_RUN_NOWAIT); /* the first pass loads the queues */
    return 0;
}

static void close_handle(uv_handle_t *handle, void *user)
{
    (void)user;
    uv_close(handle, NULL);
}

static int teller_teardown(void **state)
{
    teller_stop(service.teller);
    uv_walk(&service.loop, close_handle, NULL);
    uv_run(&service.loop, UV_RUN_DEFAULT);
    teller_free(service.teller);
    core_out_release(&service.out);
    core_out_release(&service.spare);
    core_free(service.core);
    store_close(service.store);
    remove_dir(*state);
    return uv_loop_close(&service.loop);
}

static void add_notices(int64_t job, int count)
{
    char hook[24];
    snprintf(hook, sizeof hook, "#%lld", (long long)job);
    for (int i = 0; i < count; i++) {
        struct notice_record *n = xcalloc(1, sizeof *n);
        *n = (struct notice_record){.time_ms = clock_wall_ms(),
                                    .job = job,
                                    .hook = xstrdup(hook),
                                    .what = xstrdup("restarted"),
                                    .text = xstrdup("text"),
                                    .name = xstrdup("name"),
                                    .user = xstrdup("user"),
                                    .node = xstrdup(""),
                                    .url = xstrdup("http://127.0.0.1:9/")};
        commit_queue_change(&service, CHANGE_NOTICE)->notice = n;
    }
}

static int64_t count_waiting(void)
{
    struct teller_state state;
    teller_describe(service.teller, 0, &state); /* of all jobs */
    return state.waiting;
}

/* The event is made after a commit, for the next one. */
static void a_queue_that_drops_messages_leaves_an_event(void **state)
{
    struct event_record *events;
    size_t count;
    struct err e = {0};
    (void)state;
    add_notices(7, JOB_KEEPS + JOB_KEEPS / 10);
    commit_queue_flush(&service);
    assert_int_equal(service.out.change_count, 0);
    assert_int_equal(count_waiting(), JOB_KEEPS + JOB_KEEPS / 10);
    add_notices(7, 5);
    commit_queue_flush(&service);
    assert_int_equal(count_waiting(), JOB_KEEPS);
    assert_int_equal(service.out.change_count, 1);
    commit_queue_flush(&service);
    assert_ok(store_events(service.store, 0, 0, 10, &events, &count, &e), &e);
    assert_int_equal(count, 1);
    assert_string_equal(events[0].what, "hook_dropped");
    assert_non_null(strstr(events[0].text, "`tell` of job 7: 15 messages were dropped"));
    store_events_free(events, count);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, teller_setup, teller_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_queue_that_drops_messages_leaves_an_event),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
