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

static void put_frame(struct buf *b, int type, size_t len)
{
    const uint8_t head[9] = {(uint8_t)(len >> 16), (uint8_t)(len >> 8), (uint8_t)len, (uint8_t)type};

    buf_append(b, head, sizeof(head));
    for (size_t i = 0; i < len; i++)
        buf_putc(b, 'x');
}

static void begin_frames(struct rpc_frames *f, struct buf *b)
{
    rpc_frames_init(f, false, 1000);
    buf_puts(b, PREFACE);
    put_frame(b, SETTINGS, 6);
    put_frame(b, SETTINGS, 0);
}

static enum rpc_frames_action feed_frames(struct rpc_frames *f, const struct buf *b, bool admitted,
                                          int64_t now, size_t *passed)
{
    const char *why = NULL;

    return rpc_frames_feed(f, (const uint8_t *)b->data, b->len, admitted, now, passed, &why);
}

static void a_call_passes_however_it_is_cut(void **state)
{
    CLEANUP(buf_release) struct buf b = {0};
    struct rpc_frames f;

    (void)state;
    begin_frames(&f, &b);
    for (int i = 0; i < 3; i++) {
        put_frame(&b, HEADERS, 300);
        put_frame(&b, DATA, 9000);
        put_frame(&b, PING, 8);
        put_frame(&b, RST, 4);
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
    begin_frames(&f, &b);
    for (int i = 0; i < 1000; i++)
        put_frame(&b, HEADERS, 100);
    total = b.len;
    assert_int_equal(feed_frames(&f, &b, false, 1000, &passed), RPC_FRAMES_WAIT);
    assert_true(passed > 20 * 109 && passed < 200 * 109);
    buf_consume(&b, passed);
    assert_int_equal(feed_frames(&f, &b, false, 1010, &passed), RPC_FRAMES_WAIT);
    assert_int_equal(passed, 0);
    assert_int_equal(feed_frames(&f, &b, false, 2000, &passed), RPC_FRAMES_WAIT);
    assert_true(passed > 0);
    buf_consume(&b, passed);
    assert_int_equal(feed_frames(&f, &b, true, 2001, &passed), RPC_FRAMES_PASS); /* now admitted */
    assert_int_equal(passed, b.len);
    assert_true(b.len < total);
}

static void a_large_first_message_waits_for_the_answer(void **state)
{
    CLEANUP(buf_release) struct buf b = {0};
    struct rpc_frames f;
    size_t passed;

    (void)state;
    begin_frames(&f, &b);
    put_frame(&b, HEADERS, 200);
    for (int i = 0; i < 200; i++)
        put_frame(&b, DATA, 16384);
    assert_int_equal(feed_frames(&f, &b, false, 1000, &passed), RPC_FRAMES_WAIT);
    assert_true(passed >= 100000 && passed < 1000000);
    buf_consume(&b, passed);
    assert_int_equal(feed_frames(&f, &b, true, 1001, &passed), RPC_FRAMES_PASS);
}

static void check_abuse(int type, size_t len, bool with_headers)
{
    CLEANUP(buf_release) struct buf b = {0};
    struct rpc_frames f;
    size_t passed;
    enum rpc_frames_action action = RPC_FRAMES_PASS;

    begin_frames(&f, &b);
    for (int i = 0; i < 2000; i++) {
        if (with_headers)
            put_frame(&b, HEADERS, 20);
        put_frame(&b, type, len);
    }
    for (int64_t now = 1000; b.len && action != RPC_FRAMES_ABUSE && now < 60000; now += 100) {
        action = feed_frames(&f, &b, false, now, &passed);
        buf_consume(&b, passed);
    }
    assert_int_equal(action, RPC_FRAMES_ABUSE);
    assert_true(b.len > 1000); /* long before all of it has passed */
}

static void floods_end_an_unauthenticated_connection(void **state)
{
    (void)state;
    check_abuse(RST, 4, true);
    check_abuse(RST, 4, false);
    check_abuse(PING, 8, false);
    check_abuse(SETTINGS, 6, false);
    check_abuse(SETTINGS, 0, false);
    check_abuse(DATA, 0, false);
    check_abuse(CONTINUATION, 100, false);
    check_abuse(2, 5, false);    /* PRIORITY */
    check_abuse(8, 4, false);    /* WINDOW_UPDATE */
    check_abuse(0x55, 0, false); /* unknown */
}

static void resets_of_an_admitted_connection_are_slowed_down(void **state)
{
    CLEANUP(buf_release) struct buf b = {0};
    struct rpc_frames f;
    size_t passed;
    int64_t now = 1000;

    (void)state;
    begin_frames(&f, &b);
    for (int i = 0; i < 5000; i++)
        put_frame(&b, RST, 4);
    assert_int_equal(feed_frames(&f, &b, true, now, &passed), RPC_FRAMES_WAIT);
    while (b.len > passed) {
        buf_consume(&b, passed);
        now += 100;
        assert_int_not_equal(feed_frames(&f, &b, true, now, &passed), RPC_FRAMES_ABUSE);
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
    assert_int_equal(feed_frames(&f, &b, false, 0, &passed), RPC_FRAMES_FOREIGN);
}

static void a_client_without_a_call_is_not_handed_to_grpc(void **state)
{
    CLEANUP(buf_release) struct buf b = {0};
    struct rpc_frames f;

    (void)state;
    begin_frames(&f, &b); /* puts SETTINGS and its acknowledgement */
    put_frame(&b, 8, 4);
    assert_false(rpc_frames_asks((const uint8_t *)b.data, b.len));
    put_frame(&b, HEADERS, 100);
    assert_false(rpc_frames_asks((const uint8_t *)b.data, b.len - 101)); /* the frame's head is incomplete */
    assert_true(rpc_frames_asks((const uint8_t *)b.data, b.len - 100));
    buf_clear(&b);
    begin_frames(&f, &b);
    put_frame(&b, PING, 8);
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
    assert_int_equal(feed_frames(&f, &b, false, 1000, &passed), RPC_FRAMES_WAIT);
    assert_true(passed > 0 && passed < b.len);
    buf_consume(&b, passed);
    assert_int_equal(feed_frames(&f, &b, true, 1000, &passed), RPC_FRAMES_PASS);
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
