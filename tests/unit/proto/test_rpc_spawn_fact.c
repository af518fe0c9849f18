#include "tests/unit/base/check.h"

#include "base/mem.h"
#include "proto/rpc_spawn_fact.h"

static const struct spawn_fact whole = {
    .job = 7,
    .spawn = 3,
    .state = SPAWN_EXITED,
    .pid = 123,
    .started_ms = 10,
    .ended_ms = 20,
    .code = 1,
    .signal = 9,
    .out_of_memory = true,
    .lost = true,
    .not_started = true,
    .port_busy = true,
    .lease_expired = true,
    .node_trouble = true,
    .no_account = true,
    .stopped = true,
    .interrupted = true,
    .asks = {.commit = 2, .step = 500, .bytes = 10, .path = "/data/a", .heeds = true, .promise = 510},
    .message = "no account ana on box3",
    .stderr_tail = "first\n\nlast"};

static void a_fact_survives_a_round_trip(void **state)
{
    CLEANUP(spawn_fact_release) struct spawn_fact back = {0};
    Ddp__V1__SpawnFact message;

    (void)state;
    rpc_spawn_fact_pack(&whole, true, &message);
    assert_int_equal(message.n_stderr_tail, 3);
    rpc_spawn_fact_unpack(&message, &back);
    rpc_spawn_fact_release(&message);
    assert_int_equal(back.job, 7);
    assert_int_equal(back.spawn, 3);
    assert_int_equal(back.state, SPAWN_EXITED);
    assert_int_equal(back.pid, 123);
    assert_int_equal(back.started_ms, 10);
    assert_int_equal(back.ended_ms, 20);
    assert_int_equal(back.code, 1);
    assert_int_equal(back.signal, 9);
    assert_true(back.out_of_memory && back.lost && back.not_started && back.port_busy && back.lease_expired);
    assert_true(back.node_trouble && back.no_account && back.stopped && back.interrupted);
    assert_true(back.asks.commit == 2 && back.asks.step == 500 && back.asks.bytes == 10);
    assert_true(back.asks.heeds && back.asks.promise == 510);
    assert_string_equal(back.asks.path, "/data/a");
    assert_string_equal(back.message, whole.message);
    assert_string_equal(back.stderr_tail, whole.stderr_tail);
}

static void the_last_output_can_be_left_out(void **state)
{
    Ddp__V1__SpawnFact message;

    (void)state;
    rpc_spawn_fact_pack(&whole, false, &message);
    assert_int_equal(message.n_stderr_tail, 0);
    rpc_spawn_fact_release(&message);
}

static void an_unknown_state_counts_as_starting(void **state)
{
    CLEANUP(spawn_fact_release) struct spawn_fact back = {0};
    Ddp__V1__SpawnFact message = DDP__V1__SPAWN_FACT__INIT;

    (void)state;
    message.state = (char *)"hibernating";
    rpc_spawn_fact_unpack(&message, &back);
    assert_int_equal(back.state, SPAWN_STARTING);
    assert_null(back.message);
    assert_null(back.stderr_tail);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_fact_survives_a_round_trip),
        cmocka_unit_test(the_last_output_can_be_left_out),
        cmocka_unit_test(an_unknown_state_counts_as_starting),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
