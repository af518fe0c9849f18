#include "tests/unit/base/check.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "daemon/supervisor/protocol/record.h"
#include "daemon/supervisor/protocol/socket.h"
#include "tests/unit/base/failing_readdir.h"

static char *encode_message(const struct control_message *m)
{
    struct buf text = {0};

    control_encode(m, &text);
    return buf_steal(&text);
}

/* Encodes, decodes and encodes again: the texts must be equal. */
static void check_round_trip(const struct control_message *m, struct control_message *back)
{
    CLEANUP(free_text) char *text = encode_message(m);
    CLEANUP(free_text) char *again = NULL;
    struct err e;

    assert_ok(control_decode(back, text, strlen(text), &e), &e);
    again = encode_message(back);
    assert_string_equal(text, again);
}

static void orders_are_decoded_as_they_were_encoded(void **state)
{
    char *argv[] = {(char *)"sh", (char *)"-c", (char *)"echo \"x\"", NULL};
    char *env[] = {(char *)"A=1\n2", (char *)"B=", NULL};
    char *modules[] = {(char *)"torch", (char *)"numpy", NULL};
    struct control_message m = {.op = CONTROL_START}, back;

    (void)state;
    m.order = (struct spawn_order){.spawn = 3,
                                   .first_generation = 2,
                                   .first_local_rank = 1,
                                   .id = (char *)"7.b.3",
                                   .owner = (char *)"o",
                                   .argv = argv,
                                   .env = env,
                                   .log_dir = (char *)"/l",
                                   .token = (char *)"00ff",
                                   .master_port = 29700,
                                   .store = true,
                                   .native = true,
                                   .foreground = true,
                                   .preload = modules,
                                   .lease_sent = 10,
                                   .lease_ms = 20,
                                   .grace_ms = 30};
    check_round_trip(&m, &back);
    assert_string_equal(back.order.argv[2], "echo \"x\"");
    assert_string_equal(back.order.env[0], "A=1\n2");
    assert_null(back.order.env[2]);
    assert_null(back.order.workdir);
    assert_int_equal(back.order.lease_ms, 20);
    assert_true(back.order.store);
    assert_true(back.order.native);
    assert_true(back.order.foreground);
    assert_string_equal(back.order.preload[1], "numpy");
    control_message_release(&back);
}

static void facts_and_reports_are_decoded_as_they_were_encoded(void **state)
{
    struct control_message m = {.op = CONTROL_FACT}, back;

    (void)state;
    m.fact = (struct spawn_fact){.spawn = 1,
                                 .state = SPAWN_EXITED,
                                 .signal = 9,
                                 .out_of_memory = true,
                                 .lease_expired = true,
                                 .interrupted = true,
                                 .asks = {.commit = 2, .step = 5, .path = "/a", .heeds = true, .promise = 9},
                                 .message = (char *)"why",
                                 .stderr_tail = (char *)"a\nb"};
    check_round_trip(&m, &back);
    assert_int_equal(back.fact.state, SPAWN_EXITED);
    assert_int_equal(back.fact.signal, 9);
    assert_string_equal(back.fact.stderr_tail, "a\nb");
    assert_true(back.fact.out_of_memory && back.fact.lease_expired && !back.fact.lost);
    assert_true(back.fact.interrupted);
    assert_true(back.fact.asks.commit == 2 && back.fact.asks.step == 5 && back.fact.asks.heeds);
    assert_true(back.fact.asks.promise == 9 && !strcmp(back.fact.asks.path, "/a"));
    control_message_release(&back);
    m = (struct control_message){.op = CONTROL_REPORT};
    m.report =
        (struct metric_report){.spawn = 1, .time_ms = 4, .text = "{\"loss\": NaN, \"x\": \"\\u0001\x7f\"}"};
    check_round_trip(&m, &back);
    assert_int_equal(back.report.time_ms, 4);
    assert_string_equal(back.report.text, m.report.text);
    control_message_release(&back);
}

static void answers_are_decoded_as_they_were_encoded(void **state)
{
    struct control_message m = {.op = CONTROL_ANSWER, .spawn = 3}, back;

    (void)state;
    m.answer = (struct spawn_answer){
        .commit = 2, .stale = true, .agrees = true, .allowed = 9, .stop_step = 12, .error = "no"};
    check_round_trip(&m, &back);
    assert_int_equal(back.spawn, 3);
    assert_true(spawn_answer_equal(&back.answer, &m.answer));
    control_message_release(&back);
    m.answer.error = NULL;
    check_round_trip(&m, &back);
    assert_true(spawn_answer_equal(&back.answer, &m.answer));
    control_message_release(&back);
}

static void messages_of_another_protocol_are_refused(void **state)
{
    static const char *const texts[] = {"",
                                        "{}",
                                        "[]",
                                        "{\"op\":\"x\"}",
                                        "{\"op\":\"start\",\"spawn\":1}",
                                        "{\"op\":\"fact\",\"spawn\":1,\"state\":\"x\"}",
                                        "{\"op\":\"stop\",\"mode\":9}",
                                        "{\"op\":\"stop\",\"mode\":-1}",
                                        "{\"op\":\"report\"}",
                                        "{\"op\":\"report\",\"spawn\":1}",
                                        "{\"op\":\"report\",\"spawn\":1,\"line\":2}",
                                        "{\"op\":\"fact\"}"};
    struct control_message m;
    struct err e;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
        assert_int_equal(control_decode(&m, texts[i], strlen(texts[i]), &e), ERR_INVALID_ARGUMENT);
        control_message_release(&m);
    }
}

static void records_are_listed_in_order(void **state)
{
    char dir[] = "/tmp/ddp-test-record-XXXXXX";
    CLEANUP(record_list_release) struct record_list list = {0};
    CLEANUP(free_text) char *broken = NULL;
    struct err e;

    (void)state;
    assert_non_null(mkdtemp(dir));
    for (int64_t spawn = 12; spawn > 8; spawn--) {
        struct spawn_fact fact = {.spawn = spawn, .state = SPAWN_EXITED, .code = (int)spawn};

        assert_ok(record_write(dir, &fact, true, &e), &e);
    }
    broken = xasprintf("%s/10.json", dir);
    assert_ok(file_write_atomic(broken, "{", 1, 0600, &e), &e);
    assert_ok(record_remove(dir, 11, &e), &e);
    assert_ok(record_remove(dir, 11, &e), &e); /* a missing record is fine */
    for (int entries = 0; entries < 5; entries++) {
        entries_until_error = entries;
        const enum err_code code = record_list(dir, &list, &e);
        entries_until_error = -1;
        assert_int_equal(code, ERR_INTERNAL); /* not: fewer records */
        assert_int_equal(list.count, 0);
    }
    assert_ok(record_list(dir, &list, &e), &e);
    assert_int_equal(list.count, 3);
    assert_int_equal(list.items[0].code, 9);
    assert_int_equal(list.items[1].spawn, 10);
    assert_true(list.items[1].lost && list.items[1].state == SPAWN_EXITED);
    assert_int_equal(list.items[2].code, 12);
    assert_ok(file_remove_tree(dir, &e), &e);
    record_list_release(&list);
    assert_ok(record_list(dir, &list, &e), &e); /* a missing directory has no records */
    assert_int_equal(list.count, 0);
}

static void a_socket_tells_full_from_empty_and_closed(void **state)
{
    struct control_message m = {.op = CONTROL_SYNCED}, got;
    struct err e;
    CLEANUP(free_text) char *big = NULL;
    int fds[2], sent = 0;

    (void)state;
    assert_ok(control_pair(fds, &e), &e);
    assert_int_equal(control_receive(fds[1], &got, &e), ERR_UNAVAILABLE);
    while (!control_send(fds[0], &m, &e))
        sent++;
    assert_int_equal(e.code, ERR_UNAVAILABLE);
    assert_ok(control_receive(fds[1], &got, &e), &e);
    assert_int_equal(got.op, CONTROL_SYNCED);
    assert_true(sent > 1);
    while (!control_receive(fds[1], &got, &e))
        sent--;
    assert_int_equal(sent, 1);
    big = xcalloc(1, CONTROL_MESSAGE_MAX + 1);
    assert_int_equal(control_send_text(fds[0], big, CONTROL_MESSAGE_MAX + 1, &e), ERR_RESOURCE_EXHAUSTED);
    close(fds[1]);
    assert_int_equal(control_send(fds[0], &m, &e), ERR_ABORTED);
    assert_int_equal(control_receive(fds[0], &got, &e), ERR_ABORTED);
    close(fds[0]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(orders_are_decoded_as_they_were_encoded),
        cmocka_unit_test(facts_and_reports_are_decoded_as_they_were_encoded),
        cmocka_unit_test(answers_are_decoded_as_they_were_encoded),
        cmocka_unit_test(messages_of_another_protocol_are_refused),
        cmocka_unit_test(records_are_listed_in_order),
        cmocka_unit_test(a_socket_tells_full_from_empty_and_closed),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
