/* The queue of changes and effects while commits fail. */
#include "tests/unit/base/check.h"

#include <string.h>

#include "base/mem.h"
#include "daemon/coordinator/service/commit_queue.h"
#include "daemon/coordinator/service/service_state.h"

static struct service service;
static struct service_options options = {.state = "/state"};
static enum err_code commit_code; /* of each attempt */
static const char *commit_text;
static int64_t room;
static int attempts;

int64_t __wrap_store_room(const struct store *s);
int64_t __wrap_store_room(const struct store *s)
{
    (void)s;
    return room;
}

bool __wrap_store_deferred(const struct store *s);
bool __wrap_store_deferred(const struct store *s)
{
    (void)s;
    return false;
}

enum err_code __wrap_store_commit(struct store *s, const struct change *changes, size_t count, struct err *e);
enum err_code __wrap_store_commit(struct store *s, const struct change *changes, size_t count, struct err *e)
{
    (void)s, (void)changes, (void)count;
    attempts++;
    return commit_code ? err_set(e, commit_code, "%s", commit_text) : ERR_OK;
}

static int queue_setup(void **state)
{
    (void)state;
    service = (struct service){.options = &options};
    uv_loop_init(&service.loop);
    uv_timer_init(&service.loop, &service.retry);
    service.retry.data = &service;
    commit_code = ERR_OK;
    commit_text = "begin: database is locked (5)";
    room = 1 << 30;
    attempts = 0;
    return 0;
}

static int queue_teardown(void **state)
{
    (void)state;
    uv_close((uv_handle_t *)&service.retry, NULL);
    uv_run(&service.loop, UV_RUN_DEFAULT);
    core_out_release(&service.out);
    core_out_release(&service.spare);
    return uv_loop_close(&service.loop);
}

/* A commit of a change fails. */
static void queue_block(enum err_code code)
{
    commit_queue_cluster_event(&service, "test", "a change");
    commit_code = code;
    commit_queue_flush(&service);
    assert_true(service.commit_blocked);
}

static void only_the_timer_repeats_a_failed_commit(void **state)
{
    (void)state;
    queue_block(ERR_UNAVAILABLE);
    for (int i = 0; i < 100; i++)
        commit_queue_flush(&service); /* as calls that read do */
    assert_int_equal(attempts, 1);
    uv_run(&service.loop, UV_RUN_ONCE);
    assert_int_equal(attempts, 2);
    commit_code = ERR_OK;
    uv_run(&service.loop, UV_RUN_ONCE);
    assert_int_equal(attempts, 3);
    assert_false(service.commit_blocked);
    assert_int_equal(service.out.change_count, 0);
    commit_queue_cluster_event(&service, "test", "a change");
    commit_queue_flush(&service);
    assert_int_equal(attempts, 4);
}

static void expect_refusal(const char *wanted)
{
    struct err e = {0};
    assert_int_equal(commit_queue_accepts(&service, &e), ERR_RESOURCE_EXHAUSTED);
    assert_string_equal(e.msg, wanted);
}

static void a_refusal_names_the_cause_of_the_last_failure(void **state)
{
    (void)state;
    queue_block(ERR_UNAVAILABLE);
    expect_refusal("another process has locked the coordinator's database (/state): try again later");
    commit_code = ERR_RESOURCE_EXHAUSTED;
    commit_text = "commit: attempt to write a readonly database (8)";
    commit_queue_try(&service);
    expect_refusal("the coordinator cannot write its database (/state: commit: attempt to write a readonly "
                   "database (8)): try again later");
    room = 4096;
    commit_queue_try(&service);
    expect_refusal("the coordinator's disk is full (/state): free some space and try again");
    commit_code = ERR_OK;
    commit_queue_try(&service);
    assert_false(service.commit_blocked);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, queue_setup, queue_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(only_the_timer_repeats_a_failed_commit),
        TEST(a_refusal_names_the_cause_of_the_last_failure),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
