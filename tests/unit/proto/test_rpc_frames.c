#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/mem.h"
#include "proto/rpc_frames.h"

/* What a connection may send before and after it is admitted. */

#define PREFACE "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
enum { DATA = 0, HEADERS = 1, RST = 3, SETTINGS = 4, PING = 6, CONTINUATION = 9 };

static void put(struct buf *b, int type, size_t len)
{
    const uint8_t head[9] = {(uint8_t)(len >> 16), (uint8_t)(len >> 8), (uint8_t)len, (uint8_t)type};

    buf_append(b, head, sizeof(head));
    for (size_t i = 0; i < len; i++)
        buf_putc(b, 'x');
}

static void begin(struct rpc_frames *f, struct buf *b)
{
    rpc_frames_init(f, false, 1000);
    buf_puts(b, PREFACE);
    put(b, SETTINGS, 6);
    put(b, SETTINGS, 0);
}

static enum rpc_frames_action feed(struct rpc_frames *f, const struct buf *b, bool admitted, int64_t now,
                                   size_t *passed)
{
    const char *why = NULL;

    return rpc_frames_feed(f, (const uint8_t *)b->data, b->len, admitted, now, passed, &why);
}

static void a_call_passes_however_it_is_cut(void **state)
{
    CLEANUP(buf_release) struct buf b = {0};
    struct rpc_frames f;

    (void)state;
    begin(&f, &b);
    for (int i = 0; i < 3; i++) {
        put(&b, HEADERS, 300);
        put(&b, DATA, 9000);
        put(&b, PING, 8);
        put(&b, RST, 4);
    }
    for (size_t piece = 1; piece < 40; piece++) {
        const char *why;

        rpc_frames_init(&f, false, 1000);
        for (size_t at = 0; at < b.len; at += piece) {
            const size_t len = b.len - at < piece ? b.len - at : piece;
            size_t passed;

            assert_int_equal(
                rpc_frames_feed(&f, (const uint8_t *)b.data + at, len, false, 1000, &passed, &why),
                RPC_FRAMES_PASS);
            assert_int_equal(passed, len);
        }
        assert_int_equal(f.payload, 0);
        assert_int_equal(f.head_len, 0);
    }
}

static void many_calls_at_once_wait_then_all_pass(void **state)
{
    CLEANUP(buf_release) struct buf b = {0};
    struct rpc_frames f;
    size_t passed, total;

    (void)state;
    begin(&f, &b);
    for (int i = 0; i < 1000; i++)
        put(&b, HEADERS, 100);
    total = b.len;
    assert_int_equal(feed(&f, &b, false, 1000, &passed), RPC_FRAMES_WAIT);
    assert_true(passed > 20 * 109 && passed < 200 * 109);
    buf_consume(&b, passed);
    assert_int_equal(feed(&f, &b, false, 1010, &passed), RPC_FRAMES_WAIT);
    assert_int_equal(passed, 0);
    assert_int_equal(feed(&f, &b, false, 2000, &passed), RPC_FRAMES_WAIT);
    assert_true(passed > 0);
    buf_consume(&b, passed);
    assert_int_equal(feed(&f, &b, true, 2001, &passed), RPC_FRAMES_PASS); /* now admitted */
    assert_int_equal(passed, b.len);
    assert_true(b.len < total);
}

static void a_large_first_message_waits_for_the_answer(void **state)
{
    CLEANUP(buf_release) struct buf b = {0};
    struct rpc_frames f;
    size_t passed;

    (void)state;
    begin(&f, &b);
    put(&b, HEADERS, 200);
    for (int i = 0; i < 200; i++)
        put(&b, DATA, 16384);
    assert_int_equal(feed(&f, &b, false, 1000, &passed), RPC_FRAMES_WAIT);
    assert_true(passed >= 100000 && passed < 1000000);
    buf_consume(&b, passed);
    assert_int_equal(feed(&f, &b, true, 1001, &passed), RPC_FRAMES_PASS);
}

static void abuse(int type, size_t len, bool with_headers)
{
    CLEANUP(buf_release) struct buf b = {0};
    struct rpc_frames f;
    size_t passed;
    enum rpc_frames_action action = RPC_FRAMES_PASS;

    begin(&f, &b);
    for (int i = 0; i < 2000; i++) {
        if (with_headers)
            put(&b, HEADERS, 20);
        put(&b, type, len);
    }
    for (int64_t now = 1000; b.len && action != RPC_FRAMES_ABUSE && now < 60000; now += 100) {
        action = feed(&f, &b, false, now, &passed);
        buf_consume(&b, passed);
    }
    assert_int_equal(action, RPC_FRAMES_ABUSE);
    assert_true(b.len > 1000); /* long before all of it has passed */
}

static void floods_end_an_unauthenticated_connection(void **state)
{
    (void)state;
    abuse(RST, 4, true);
    abuse(RST, 4, false);
    abuse(PING, 8, false);
    abuse(SETTINGS, 6, false);
    abuse(SETTINGS, 0, false);
    abuse(DATA, 0, false);
    abuse(CONTINUATION, 100, false);
    abuse(2, 5, false);    /* PRIORITY */
    abuse(8, 4, false);    /* WINDOW_UPDATE */
    abuse(0x55, 0, false); /* unknown */
}

static void resets_of_an_admitted_connection_are_slowed_down(void **state)
{
    CLEANUP(buf_release) struct buf b = {0};
    struct rpc_frames f;
    size_t passed;
    int64_t now = 1000;

    (void)state;
    begin(&f, &b);
    for (int i = 0; i < 5000; i++)
        put(&b, RST, 4);
    assert_int_equal(feed(&f, &b, true, now, &passed), RPC_FRAMES_WAIT);
    while (b.len > passed) {
        buf_consume(&b, passed);
        now += 100;
        assert_int_not_equal(feed(&f, &b, true, now, &passed), RPC_FRAMES_ABUSE);
    }
    assert_true(now >= 11000);
}

static void other_protocols_are_recognised_by_their_first_bytes(void **state)
{
    CLEANUP(buf_release) struct buf b = {0};
    struct rpc_frames f;
    size_t passed;
    bool enough;

    (void)state;
    assert_true(rpc_frames_begins((const uint8_t *)"PRI", 3, false, &enough));
    assert_false(enough);
    assert_true(rpc_frames_begins((const uint8_t *)PREFACE "...", 27, false, &enough));
    assert_true(enough);
    assert_false(rpc_frames_begins((const uint8_t *)"GET / HTTP", 10, false, &enough));
    assert_false(rpc_frames_begins((const uint8_t *)"\x16\x03\x01", 3, false, &enough));
    assert_true(rpc_frames_begins((const uint8_t *)"\x16", 1, true, &enough));
    assert_false(enough);
    assert_true(rpc_frames_begins((const uint8_t *)"\x16\x03\x01", 3, true, &enough));
    assert_true(enough);
    assert_false(rpc_frames_begins((const uint8_t *)PREFACE, 24, true, &enough));
    rpc_frames_init(&f, false, 0);
    buf_puts(&b, "PRI * HTTP/1.1\r\n");
    assert_int_equal(feed(&f, &b, false, 0, &passed), RPC_FRAMES_FOREIGN);
}

static void a_client_without_a_call_is_not_handed_to_grpc(void **state)
{
    CLEANUP(buf_release) struct buf b = {0};
    struct rpc_frames f;

    (void)state;
    begin(&f, &b); /* puts SETTINGS and its acknowledgement */
    put(&b, 8, 4);
    assert_false(rpc_frames_asks((const uint8_t *)b.data, b.len));
    put(&b, HEADERS, 100);
    assert_false(rpc_frames_asks((const uint8_t *)b.data, b.len - 101)); /* the frame's head is incomplete */
    assert_true(rpc_frames_asks((const uint8_t *)b.data, b.len - 100));
    buf_clear(&b);
    begin(&f, &b);
    put(&b, PING, 8);
    assert_true(rpc_frames_asks((const uint8_t *)b.data, b.len));
    assert_false(rpc_frames_asks((const uint8_t *)PREFACE, 10));
}

static void tls_is_limited_in_bytes(void **state)
{
    CLEANUP(buf_release) struct buf b = {0};
    struct rpc_frames f;
    size_t passed;

    (void)state;
    rpc_frames_init(&f, true, 1000);
    for (int i = 0; i < 1 << 20; i++)
        buf_putc(&b, 'x');
    assert_int_equal(feed(&f, &b, false, 1000, &passed), RPC_FRAMES_WAIT);
    assert_true(passed > 0 && passed < b.len);
    buf_consume(&b, passed);
    assert_int_equal(feed(&f, &b, true, 1000, &passed), RPC_FRAMES_PASS);
    assert_int_equal(passed, b.len);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_call_passes_however_it_is_cut),
        cmocka_unit_test(many_calls_at_once_wait_then_all_pass),
        cmocka_unit_test(a_large_first_message_waits_for_the_answer),
        cmocka_unit_test(floods_end_an_unauthenticated_connection),
        cmocka_unit_test(resets_of_an_admitted_connection_are_slowed_down),
        cmocka_unit_test(other_protocols_are_recognised_by_their_first_bytes),
        cmocka_unit_test(a_client_without_a_call_is_not_handed_to_grpc),
        cmocka_unit_test(tls_is_limited_in_bytes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
