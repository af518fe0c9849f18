/* What the core hears when the connection of a call is lost. */
#include "tests/unit/base/check.h"

#include "daemon/coordinator/service/access/identity.h"
#include "daemon/coordinator/service/calls.h"
#include "daemon/coordinator/service/commit_queue.h"
#include "daemon/coordinator/service/handles.h"
#include "daemon/coordinator/service/service_state.h"

static struct core_event told;
static int told_count;
static struct identity caller;
static void *call_user;

void __wrap_commit_queue_event(struct service *s, const struct core_event *event);
void *__wrap_rpc_call_identity(const struct rpc_call *call);
void *__wrap_rpc_call_user(const struct rpc_call *call);
void __wrap_rpc_call_set_user(struct rpc_call *call, void *user);

void __wrap_commit_queue_event(struct service *s, const struct core_event *event)
{
    (void)s;
    told = *event;
    told_count++;
}

void *__wrap_rpc_call_identity(const struct rpc_call *call)
{
    (void)call;
    return &caller;
}

void *__wrap_rpc_call_user(const struct rpc_call *call)
{
    (void)call;
    return call_user;
}

void __wrap_rpc_call_set_user(struct rpc_call *call, void *user)
{
    (void)call;
    call_user = user;
}

static void the_core_hears_whose_call_is_gone(void **state)
{
    static struct service s;

    (void)state;
    caller = (struct identity){.kind = IDENTITY_WORKER, .job = 3, .spawn = 4};
    uint64_t handle = call_open(&s, NULL, CALL_JOIN, true)->handle;
    call_on_end(NULL, true);
    assert_int_equal(told_count, 1);
    assert_int_equal(told.kind, CORE_CALL_GONE);
    assert_int_equal(told.call, handle);
    assert_int_equal(told.member.job, 3);
    assert_int_equal(told.member.spawn, 4);

    caller = (struct identity){.kind = IDENTITY_USER};
    call_open(&s, NULL, CALL_SUBMIT, true);
    call_on_end(NULL, true);
    assert_int_equal(told_count, 2);
    assert_int_equal(told.member.job, 0);

    handle = call_open(&s, NULL, CALL_JOIN, true)->handle;
    assert_non_null(call_take(&s, handle)); /* it was answered */
    call_on_end(NULL, false);
    assert_int_equal(told_count, 2);
    handles_release(&s.calls);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_core_hears_whose_call_is_gone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
