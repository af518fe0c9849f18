#include "tests/unit/base/check.h"

#include "base/mem.h"
#include "tests/unit/tcpstore/request_bytes.h"

struct parsed {
    struct tcpstore_parser parser;
    struct tcpstore_request r;
    size_t used;
    struct err e;
};

static enum err_code parse_bytes(struct parsed *p, const struct buf *b)
{
    /* a copy of the exact size: AddressSanitizer sees a read past the end */
    CLEANUP(free_text) char *copy = xmemdup(b->len ? b->data : "", b->len);

    return tcpstore_request_parse(&p->parser, copy, b->len, &p->r, &p->used, &p->e);
}

/* The numbers of the commands were recorded from PyTorch 1.13. */
static void old_clients_are_understood(void **state)
{
    static const struct {
        int byte;
        enum tcpstore_command command;
    } keyed[] = {{2, TCPSTORE_GET}, {8, TCPSTORE_DELETE_KEY}};
    struct parsed p = {0};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(keyed); i++) {
        CLEANUP(buf_release) struct buf b = {0};

        put_request(&b, keyed[i].byte, TEXTS("/key"));
        assert_int_equal(parse_bytes(&p, &b), ERR_OK);
        assert_int_equal(p.parser.dialect, TCPSTORE_PLAIN);
        assert_int_equal(p.r.command, keyed[i].command);
        assert_int_equal(p.r.key.size, 4);
        assert_int_equal(p.used, b.len);
    }
    CLEANUP(buf_release) struct buf b = {0};
    buf_putc(&b, 6); /* GETNUMKEYS is one byte */
    assert_int_equal(parse_bytes(&p, &b), ERR_OK);
    assert_int_equal(p.r.command, TCPSTORE_GETNUMKEYS);
    assert_int_equal(p.used, 1);
}

static void the_first_five_bytes_tell_the_dialects_apart(void **state)
{
    CLEANUP(buf_release) struct buf fresh = {0}, old = {0};

    (void)state;
    buf_append(&fresh, VALIDATE_BYTES, 5);
    put_request(&old, 0, TEXTS("k", "v"));
    for (size_t n = 0; n < 5; n++) { /* a zero may be either */
        struct parsed p = {0};
        struct buf part = {fresh.data, n, 0};

        assert_int_equal(parse_bytes(&p, &part), ERR_OK);
        assert_int_equal(p.used, 0);
        assert_int_equal(p.parser.dialect, TCPSTORE_UNKNOWN);
        assert_true(p.parser.want > n && p.parser.want <= 5);
    }
    struct parsed p = {0};
    assert_int_equal(parse_bytes(&p, &fresh), ERR_OK);
    assert_int_equal(p.parser.dialect, TCPSTORE_VALIDATED);
    assert_int_equal(p.used, 5);
    p = (struct parsed){0};
    assert_int_equal(parse_bytes(&p, &old), ERR_OK);
    assert_int_equal(p.parser.dialect, TCPSTORE_PLAIN);
    assert_int_equal(p.r.command, TCPSTORE_SET);
    assert_int_equal(p.used, old.len);
}

static void new_clients_number_the_commands_differently(void **state)
{
    CLEANUP(buf_release) struct buf b = {0};
    struct parsed p = {.parser.dialect = TCPSTORE_VALIDATED};

    (void)state;
    put_request(&b, 2, TEXTS("k", "old", "new"));
    assert_int_equal(parse_bytes(&p, &b), ERR_OK);
    assert_int_equal(p.r.command, TCPSTORE_COMPARE_SET);
    assert_int_equal(p.r.expected.size, 3);
    assert_int_equal(p.used, b.len);
    buf_clear(&b);
    buf_append(&b, "\x0d\x01\x02\x03\x04", 5);
    assert_int_equal(parse_bytes(&p, &b), ERR_OK);
    assert_int_equal(p.r.command, TCPSTORE_PING);
    assert_memory_equal(&p.r.number, "\x01\x02\x03\x04", 4);
    buf_clear(&b);
    put_request(&b, 16, TEXTS("q"));
    assert_int_equal(parse_bytes(&p, &b), ERR_OK);
    assert_int_equal(p.r.command, TCPSTORE_QUEUE_LEN);
}

/* Every beginning of a request is incomplete, and says how many bytes it needs at least. */
static void a_request_may_come_in_parts(void **state)
{
    CLEANUP(buf_release) struct buf b = {0};
    struct parsed p = {.parser.dialect = TCPSTORE_VALIDATED};

    (void)state;
    buf_putc(&b, 11); /* MULTI_SET */
    put_u64(&b, 2);
    put_piece(&b, "a");
    put_piece(&b, "1");
    put_piece(&b, "b");
    put_piece(&b, "");
    for (size_t n = 0; n < b.len; n++) {
        struct buf part = {b.data, n, 0};

        assert_int_equal(parse_bytes(&p, &part), ERR_OK);
        assert_int_equal(p.used, 0);
        assert_true(p.parser.want > n && p.parser.want <= b.len);
    }
    assert_int_equal(tcpstore_request_parse(&p.parser, b.data, b.len, &p.r, &p.used, &p.e), ERR_OK);
    assert_int_equal(p.used, b.len);
    assert_int_equal(p.r.count, 2);
    check_piece(tcpstore_list_take(&p.r.list), "a");
    check_piece(tcpstore_list_take(&p.r.list), "1");
    check_piece(tcpstore_list_take(&p.r.list), "b");
    check_piece(tcpstore_list_take(&p.r.list), "");
    assert_int_equal(p.r.list.size, 0);
}

/* A list that comes in small segments costs no more than one that comes at once. The test overwrites the keys that the parser
 * has read, which it would refuse if it read them again. */
static void the_keys_of_a_list_are_read_once(void **state)
{
    enum { KEYS = 1000, HEAD = 1 + 8, EACH = 8 + 4 };
    CLEANUP(buf_release) struct buf b = {0};
    struct parsed p = {.parser.dialect = TCPSTORE_VALIDATED};

    (void)state;
    buf_putc(&b, TCPSTORE_WAIT);
    put_u64(&b, KEYS);
    for (int i = 0; i < KEYS; i++)
        put_piece(&b, "/key");
    for (size_t n = HEAD; n < b.len; n += 8) {
        struct buf part = {b.data, n, 0};
        const size_t whole = (n - HEAD) / EACH;

        assert_int_equal(parse_bytes(&p, &part), ERR_OK);
        assert_int_equal(p.used, 0);
        assert_int_equal(p.parser.list_count, whole);
        memset(b.data + HEAD, 0xff, whole * EACH);
    }
    assert_int_equal(parse_bytes(&p, &b), ERR_OK);
    assert_int_equal(p.used, b.len);
    assert_int_equal(p.r.count, KEYS);
    assert_int_equal(p.r.list.size, KEYS * EACH);
    b.len = HEAD + EACH; /* the next list begins at its first key */
    assert_int_equal(parse_bytes(&p, &b), ERR_INVALID_ARGUMENT);
}

static void refuse_request(enum tcpstore_dialect dialect, const struct buf *b, const char *text)
{
    struct parsed p = {.parser.dialect = dialect};

    assert_int_equal(parse_bytes(&p, b), ERR_INVALID_ARGUMENT);
    assert_string_equal(p.e.msg, text);
}

static void hostile_bytes_are_refused(void **state)
{
    CLEANUP(buf_release) struct buf b = {0};

    (void)state;
    buf_puts(&b, "GET / HTTP/1.1\r\n");
    refuse_request(TCPSTORE_UNKNOWN, &b, "not a request of PyTorch's TCPStore (first byte 71)");
    buf_clear(&b);
    buf_putc(&b, 7); /* WATCH_KEY of old clients */
    refuse_request(TCPSTORE_UNKNOWN, &b, "not a request of PyTorch's TCPStore (first byte 7)");
    buf_clear(&b);
    buf_append(&b, VALIDATE_BYTES, 5); /* a second one */
    refuse_request(TCPSTORE_VALIDATED, &b, "not a request of PyTorch's TCPStore (first byte 0)");
    buf_clear(&b);
    buf_putc(&b, 19);
    refuse_request(TCPSTORE_VALIDATED, &b, "not a request of PyTorch's TCPStore (first byte 19)");
    buf_clear(&b);
    buf_putc(&b, 0);
    put_u64(&b, UINT64_MAX);
    refuse_request(TCPSTORE_UNKNOWN, &b, "expected a key of at most 8192 bytes, got 18446744073709551615");
    buf_clear(&b);
    buf_putc(&b, 1);
    put_piece(&b, "k");
    put_u64(&b, TCPSTORE_VALUE_MAX + 1);
    refuse_request(TCPSTORE_VALIDATED, &b, "expected a value of at most 8388608 bytes, got 8388609");
    buf_clear(&b);
    buf_putc(&b, 6);
    put_u64(&b, TCPSTORE_KEYS_MAX + 1);
    refuse_request(TCPSTORE_VALIDATED, &b, "expected at most 131072 keys, got 131073");
}

/* Lists of allowed pieces have a limit of their own, which is seen before the bytes come. */
static void a_whole_request_has_a_limit(void **state)
{
    CLEANUP(buf_release) struct buf b = {0};
    CLEANUP(free_text) char *value = xcalloc(1, TCPSTORE_VALUE_MAX);

    (void)state;
    buf_putc(&b, 11);
    put_u64(&b, 4);
    for (int i = 0; i < 3; i++) {
        put_piece(&b, "k");
        put_u64(&b, TCPSTORE_VALUE_MAX);
        buf_append(&b, value, TCPSTORE_VALUE_MAX);
    }
    put_piece(&b, "k");
    put_u64(&b, TCPSTORE_VALUE_MAX);
    refuse_request(TCPSTORE_VALIDATED, &b, "expected a request of at most 33554432 bytes, got 33554509");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(old_clients_are_understood),
        cmocka_unit_test(the_first_five_bytes_tell_the_dialects_apart),
        cmocka_unit_test(new_clients_number_the_commands_differently),
        cmocka_unit_test(a_request_may_come_in_parts),
        cmocka_unit_test(the_keys_of_a_list_are_read_once),
        cmocka_unit_test(hostile_bytes_are_refused),
        cmocka_unit_test(a_whole_request_has_a_limit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
