/* The queue of changes and effects while commits fail. */
#include "tests/unit/base/check.h"

#include <string.h>

#include "base/buf.h"
#include "base/mem.h"
#include "daemon/coordinator/service/calls.h"
#include "daemon/coordinator/service/commit_queue.h"
#include "daemon/coordinator/service/effects.h"
#include "daemon/coordinator/service/service_state.h"

static struct service service;
static struct service_options options = {.state = "/state"};
static enum err_code commit_code; /* of each attempt */
static const char *commit_text;
static bool in_doubt;
static int64_t room;
static int attempts;
static size_t committed; /* changes of the last commit that succeeded */

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

bool __wrap_store_in_doubt(const struct store *s);
bool __wrap_store_in_doubt(const struct store *s)
{
    (void)s;
    return in_doubt;
}

enum err_code __wrap_store_commit(struct store *s, const struct change *changes, size_t count, struct err *e);
enum err_code __wrap_store_commit(struct store *s, const struct change *changes, size_t count, struct err *e)
{
    (void)s, (void)changes;
    attempts++;
    if (!commit_code)
        committed = count;
    return commit_code ? err_set(e, commit_code, "%s", commit_text) : ERR_OK;
}

/* The handles of two open calls and a session, and of a call and a session that are gone. */
enum { CALL_SUBMITTED = 1, CALL_WATCHING, CALL_GONE, SESSION, SESSION_GONE };

static void add_effect(struct core_out *out, struct core_effect effect)
{
    out->effects = array_grow(out->effects, out->effect_count, &out->effect_cap, sizeof *out->effects);
    out->effects[out->effect_count++] = effect;
}

static int64_t cancelled;

/* As of the core: a change and a reply. */
static void add_cancel(const struct core_event *event, struct core_out *out)
{
    struct event_record *said = xcalloc(1, sizeof *said);

    cancelled = event->cancel.job;
    out->changes = array_grow(out->changes, out->change_count, &out->change_cap, sizeof *out->changes);
    out->changes[out->change_count++] = (struct change){.kind = CHANGE_EVENT, .event = said};
    add_effect(out, (struct core_effect){.kind = EFFECT_REPLY, .call = event->call});
}

/* The number of the event is in sequence. */
void __wrap_core_event(struct core *core, const struct core_event *event, struct core_now now,
                       struct core_out *out);
void __wrap_core_event(struct core *core, const struct core_event *event, struct core_now now,
                       struct core_out *out)
{
    const int64_t i = event->heartbeat.sequence;
    (void)core, (void)now;
    if (event->kind == CORE_CANCEL) {
        add_cancel(event, out);
        return;
    }
    if (i == 0)
        add_effect(out, (struct core_effect){.kind = EFFECT_REPLY, .call = CALL_SUBMITTED});
    add_effect(out, (struct core_effect){.kind = EFFECT_JOB_CHANGED, .job = i % 2});
    add_effect(out, (struct core_effect){.kind = EFFECT_NODE_CHANGED, .node = xstrdup(i % 3 ? "n1" : "n2")});
    add_effect(out, (struct core_effect){.kind = EFFECT_ACK, .session = SESSION, .sequence = i});
    add_effect(out, (struct core_effect){.kind = EFFECT_WATCH, .call = CALL_WATCHING, .generation = i});
    add_effect(out, (struct core_effect){.kind = EFFECT_WATCH, .call = CALL_GONE, .generation = i});
    add_effect(out, (struct core_effect){.kind = EFFECT_WISH, .session = SESSION, .node = xstrdup("n1")});
    add_effect(out,
               (struct core_effect){.kind = EFFECT_WISH, .session = SESSION_GONE, .node = xstrdup("n2")});
}

static int refused;

void __wrap_rpc_call_fail(struct rpc_call *call, const struct err *status);
void __wrap_rpc_call_fail(struct rpc_call *call, const struct err *status)
{
    (void)call;
    assert_int_equal(status->code, ERR_RESOURCE_EXHAUSTED);
    refused++;
}

static struct buf done; /* the effects that were carried out, but for acknowledgements, which are counted */
static int acknowledged;

void __wrap_effects_run(struct service *s, const struct core_out *out);
void __wrap_effects_run(struct service *s, const struct core_out *out)
{
    (void)s;
    for (size_t i = 0; i < out->effect_count; i++) {
        const struct core_effect *f = &out->effects[i];
        if (f->kind == EFFECT_ACK)
            acknowledged++;
        else
            buf_printf(&done, "%d/%d/%d/%d%s ", (int)f->kind, (int)(f->call + f->session), (int)f->job,
                       (int)f->generation, f->node ? f->node : "");
    }
}

static int queue_setup(void **state)
{
    (void)state;
    in_doubt = false;
    refused = 0;
    cancelled = 0;
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
    buf_release(&done);
    handles_release(&service.calls);
    handles_release(&service.sessions);
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

static void what_waits_for_a_commit_stays_bounded(void **state)
{
    enum { EVENTS = 50000 };
    static char peer;
    (void)state;
    handles_put(&service.calls, CALL_SUBMITTED, &peer);
    handles_put(&service.calls, CALL_WATCHING, &peer);
    handles_put(&service.sessions, SESSION, &peer);
    queue_block(ERR_UNAVAILABLE);
    for (int64_t i = 0; i < EVENTS; i++) {
        commit_queue_event(&service, &(struct core_event){.heartbeat.sequence = i});
        assert_int_equal(acknowledged, i + 1);
        assert_in_range(service.out.effect_count, 1, 2000);
    }
    assert_int_equal(done.len, 0);
    commit_code = ERR_OK;
    commit_queue_try(&service);
    CLEANUP(free_text)
    char *wanted = xasprintf("%d/1/0/0 %d/0/0/0 %d/0/0/0n2 %d/0/1/0 %d/0/0/0n1 %d/2/0/49999 %d/4/0/0n1 ",
                             EFFECT_REPLY, EFFECT_JOB_CHANGED, EFFECT_NODE_CHANGED, EFFECT_JOB_CHANGED,
                             EFFECT_NODE_CHANGED, EFFECT_WATCH, EFFECT_WISH);
    assert_string_equal(done.data, wanted);
}

/* If they were two commits, a coordinator that ends between them would run the job after its next start. */
static void a_refused_job_is_cancelled_in_the_commit_that_adds_it(void **state)
{
    struct call submit = {.service = &service, .kind = CALL_SUBMIT, .handle = CALL_SUBMITTED};
    struct call again = {.service = &service, .kind = CALL_SUBMIT, .handle = CALL_WATCHING};

    (void)state;
    handles_put(&service.calls, CALL_SUBMITTED, &submit);
    /* the client has sent it twice */
    handles_put(&service.calls, CALL_WATCHING, &again);
    add_effect(&service.out, (struct core_effect){.kind = EFFECT_REPLY, .call = CALL_SUBMITTED, .job = 7});
    add_effect(&service.out,
               (struct core_effect){.kind = EFFECT_REPLY, .call = CALL_WATCHING, .job = 7, .existed = true});
    queue_block(ERR_UNAVAILABLE);
    assert_int_equal(refused, 2);
    commit_code = ERR_OK;
    commit_queue_try(&service);
    assert_int_equal(cancelled, 7);
    assert_int_equal(committed, 2); /* that of queue_block, and the cancellation */
    assert_int_equal(service.out.change_count, 0);
}

/* The next start may find the job in the database, without its cancellation. */
static void the_reply_to_a_submit_in_doubt_waits(void **state)
{
    struct call submit = {.service = &service, .kind = CALL_SUBMIT, .handle = CALL_SUBMITTED};

    (void)state;
    handles_put(&service.calls, CALL_SUBMITTED, &submit);
    add_effect(&service.out, (struct core_effect){.kind = EFFECT_REPLY, .call = CALL_SUBMITTED, .job = 7});
    in_doubt = true;
    commit_text = "ddp.mark: No space left on device";
    queue_block(ERR_RESOURCE_EXHAUSTED);
    commit_queue_try(&service);
    assert_int_equal(refused, 0);
    assert_int_equal(cancelled, 0);
    assert_int_equal(done.len, 0);
    commit_code = ERR_OK;
    commit_queue_try(&service);
    CLEANUP(free_text) char *wanted = xasprintf("%d/%d/7/0 ", EFFECT_REPLY, CALL_SUBMITTED);
    assert_string_equal(done.data, wanted);
    assert_int_equal(committed, 1);
    assert_int_equal(refused, 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, queue_setup, queue_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(only_the_timer_repeats_a_failed_commit),
        TEST(a_refusal_names_the_cause_of_the_last_failure),
        TEST(what_waits_for_a_commit_stays_bounded),
        TEST(a_refused_job_is_cancelled_in_the_commit_that_adds_it),
        TEST(the_reply_to_a_submit_in_doubt_waits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
