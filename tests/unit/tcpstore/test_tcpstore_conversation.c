#include "tests/unit/base/check.h"

#include "base/mem.h"
#include "daemon/tcpstore/conversation.h"
#include "tests/unit/tcpstore/request_bytes.h"

static struct tcpstore_table *table_make(void)
{
    return tcpstore_table_create(1 << 20, tcpstore_conversation_woken, NULL);
}

static void say_bytes(struct tcpstore_conversation *c, struct tcpstore_table *t, const struct buf *b)
{
    struct err e;

    buf_append(&c->in, b->data, b->len);
    assert_ok(tcpstore_converse(c, t, SIZE_MAX, &e), &e);
    assert_int_equal(c->in.len, 0);
}

static void say_request(struct tcpstore_conversation *c, struct tcpstore_table *t, int command,
                        const char *const *texts)
{
    CLEANUP(buf_release) struct buf b = {0};

    put_request(&b, command, texts);
    say_bytes(c, t, &b);
}

/* A request with a list of keys. */
static void say_keys(struct tcpstore_conversation *c, struct tcpstore_table *t, int command,
                     const char *const *texts)
{
    CLEANUP(buf_release) struct buf b = {0};
    uint64_t count = 0;

    while (texts[count])
        count++;
    buf_putc(&b, (char)command);
    put_u64(&b, count);
    for (; *texts; texts++)
        put_piece(&b, *texts);
    say_bytes(c, t, &b);
}

static void hear_bytes(struct tcpstore_conversation *c, const void *bytes, size_t size)
{
    assert_int_equal(c->out.len, size);
    if (size)
        assert_memory_equal(c->out.data, bytes, size);
    buf_clear(&c->out);
}

static void hear_number(struct tcpstore_conversation *c, int64_t number)
{
    hear_bytes(c, &number, sizeof(number));
}

static void hear_pieces(struct tcpstore_conversation *c, const char *const *texts)
{
    CLEANUP(buf_release) struct buf b = {0};

    for (; *texts; texts++)
        put_piece(&b, *texts);
    hear_bytes(c, b.data, b.len);
}

/* The conversation of a PyTorch 1.13 client, as it was recorded. */
static void an_old_client_is_served(void **state)
{
    struct tcpstore_table *t = table_make();
    struct tcpstore_conversation c = {0};

    (void)state;
    say_request(&c, t, 0, TEXTS("/k", "v"));
    hear_bytes(&c, "", 0);
    say_keys(&c, t, 5, TEXTS("/k"));
    hear_bytes(&c, "\0", 1);
    say_request(&c, t, 2, TEXTS("/k"));
    hear_pieces(&c, TEXTS("v"));
    CLEANUP(buf_release) struct buf add = {0};
    put_request(&add, 3, TEXTS("/n"));
    put_u64(&add, 5);
    say_bytes(&c, t, &add);
    hear_number(&c, 5);
    say_request(&c, t, 1, TEXTS("/z", "", "one"));
    hear_pieces(&c, TEXTS("one"));
    say_request(&c, t, 1, TEXTS("/zz", "exp", "one"));
    hear_pieces(&c, TEXTS("exp"));
    say_request(&c, t, 6, TEXTS(NULL));
    hear_number(&c, 3);
    say_request(&c, t, 8, TEXTS("/k"));
    hear_number(&c, 1);
    say_keys(&c, t, 4, TEXTS("/n", "/k"));
    hear_bytes(&c, "\1", 1);
    assert_int_equal(c.parser.dialect, TCPSTORE_PLAIN);
    tcpstore_conversation_release(&c, t);
    tcpstore_table_free(t);
}

static void a_new_client_is_served(void **state)
{
    struct tcpstore_table *t = table_make();
    struct tcpstore_conversation c = {0};
    CLEANUP(buf_release) struct buf b = {0};

    (void)state;
    buf_append(&b, VALIDATE_BYTES "\x0d\xaa\xbb\xcc\xdd", 10);
    say_bytes(&c, t, &b);
    hear_bytes(&c, "\xaa\xbb\xcc\xdd", 4);
    say_request(&c, t, 9, TEXTS("a", "x"));
    say_request(&c, t, 9, TEXTS("a", "y"));
    buf_clear(&b);
    buf_putc(&b, 11);
    put_u64(&b, 2);
    put_piece(&b, "b");
    put_piece(&b, "1");
    put_piece(&b, "c");
    put_piece(&b, "2");
    say_bytes(&c, t, &b);
    say_keys(&c, t, 10, TEXTS("c", "a", "missing"));
    hear_pieces(&c, TEXTS("2", "xy", ""));
    say_request(&c, t, 14, TEXTS("q", "job"));
    say_request(&c, t, 16, TEXTS("q"));
    hear_number(&c, 1);
    say_request(&c, t, 15, TEXTS("q"));
    hear_bytes(&c, "\1\0\0\0\0\0\0\0\3\0\0\0\0\0\0\0job", 19);
    say_request(&c, t, 15, TEXTS("q"));
    hear_number(&c, 0);
    tcpstore_conversation_release(&c, t);
    tcpstore_table_free(t);
}

static void say_barrier(struct tcpstore_conversation *c, struct tcpstore_table *t, const char *key,
                        int64_t wanted)
{
    CLEANUP(buf_release) struct buf b = {0};

    put_request(&b, 18, TEXTS(key));
    buf_append(&b, &wanted, sizeof(wanted));
    say_bytes(c, t, &b);
}

/* The conversation of two PyTorch 2.15 clients, as it was recorded. */
static void a_barrier_counts_its_callers(void **state)
{
    struct tcpstore_table *t = table_make();
    struct tcpstore_conversation a = {.parser.dialect = TCPSTORE_VALIDATED},
                                 b = {.parser.dialect = TCPSTORE_VALIDATED};

    (void)state;
    say_barrier(&a, t, "/bk", 2);
    hear_bytes(&a, "", 0);
    say_barrier(&b, t, "/bk", 2);
    hear_bytes(&a, "\0", 1);
    hear_bytes(&b, "\0", 1);
    say_barrier(&a, t, "/bk", 2); /* the count goes on */
    hear_bytes(&a, "\0", 1);
    say_barrier(&a, t, "/alone", 2);
    say_request(&a, t, 12, TEXTS(NULL));
    hear_bytes(&a, "\1", 1);
    say_request(&b, t, 14, TEXTS("/queue", "x")); /* a queue is no key */
    say_request(&b, t, 17, TEXTS(NULL));
    hear_bytes(&b, "\2\0\0\0\0\0\0\0\3\0\0\0\0\0\0\0/bk\6\0\0\0\0\0\0\0/alone", 33);
    tcpstore_conversation_release(&a, t);
    tcpstore_conversation_release(&b, t);
    tcpstore_table_free(t);
}

static void clients_of_both_dialects_share_the_store(void **state)
{
    struct tcpstore_table *t = table_make();
    struct tcpstore_conversation old = {0}, fresh = {0};
    CLEANUP(buf_release) struct buf b = {0};

    (void)state;
    buf_append(&b, VALIDATE_BYTES, 5);
    say_bytes(&fresh, t, &b);
    say_keys(&fresh, t, 6, TEXTS("x"));
    hear_bytes(&fresh, "", 0);
    say_request(&old, t, 0, TEXTS("x", "1"));
    hear_bytes(&fresh, "\0", 1);
    tcpstore_conversation_release(&old, t);
    tcpstore_conversation_release(&fresh, t);
    tcpstore_table_free(t);
}

static void a_wait_that_was_given_up_is_not_answered(void **state)
{
    struct tcpstore_table *t = table_make();
    struct tcpstore_conversation old = {0}, fresh = {.parser.dialect = TCPSTORE_VALIDATED};

    (void)state;
    say_keys(&fresh, t, 6, TEXTS("x"));
    say_request(&fresh, t, 12, TEXTS(NULL));
    hear_bytes(&fresh, "\1", 1);
    say_keys(&old, t, 5, TEXTS("x")); /* times out; old clients do not say so */
    say_request(&old, t, 6, TEXTS(NULL));
    hear_number(&old, 0);
    say_request(&old, t, 0, TEXTS("x", "1"));
    hear_bytes(&old, "", 0);
    hear_bytes(&fresh, "", 0);
    tcpstore_conversation_release(&old, t);
    tcpstore_conversation_release(&fresh, t);
    tcpstore_table_free(t);
}

/* The same bytes, one at a time and in pairs of requests, have the same answers. */
static void the_cuts_between_bytes_do_not_matter(void **state)
{
    struct tcpstore_table *t = table_make();
    struct tcpstore_conversation c = {0};
    CLEANUP(buf_release) struct buf b = {0};
    struct err e;

    (void)state;
    buf_append(&b, VALIDATE_BYTES, 5);
    put_request(&b, 1, TEXTS("key", "value"));
    put_request(&b, 3, TEXTS("key"));
    for (size_t i = 0; i < b.len; i++) {
        buf_putc(&c.in, b.data[i]);
        assert_ok(tcpstore_converse(&c, t, SIZE_MAX, &e), &e);
    }
    hear_pieces(&c, TEXTS("value"));
    tcpstore_conversation_release(&c, t);
    c = (struct tcpstore_conversation){0};
    say_bytes(&c, t, &b);
    hear_pieces(&c, TEXTS("value"));
    tcpstore_conversation_release(&c, t);
    tcpstore_table_free(t);
}

/* A client that sends requests and reads no answers makes the store keep little. */
static void answers_wait_in_bounds(void **state)
{
    struct tcpstore_table *t = table_make();
    struct tcpstore_conversation c = {0};
    CLEANUP(free_text) char *value = xcalloc(1, 50001);
    struct err e;

    (void)state;
    memset(value, 'x', 50000);
    say_request(&c, t, 0, TEXTS("k", value));
    for (int i = 0; i < 10; i++)
        put_request(&c.in, 2, TEXTS("k"));
    assert_ok(tcpstore_converse(&c, t, SIZE_MAX, &e), &e);
    assert_true(c.out.len <= TCPSTORE_OUT_PAUSE + 50008);
    assert_true(c.in.len > 0);
    for (int answers = 0; answers < 10;) {
        answers += (int)(c.out.len / 50008);
        buf_clear(&c.out);
        assert_ok(tcpstore_converse(&c, t, SIZE_MAX, &e), &e);
        assert_true(c.out.len || answers == 10);
    }
    assert_int_equal(c.in.len, 0);
    tcpstore_conversation_release(&c, t);
    tcpstore_table_free(t);
}

static void a_short_request_cannot_ask_for_a_huge_answer(void **state)
{
    struct tcpstore_table *t = table_make();
    struct tcpstore_conversation c = {.parser.dialect = TCPSTORE_VALIDATED};
    CLEANUP(free_text) char *value = xcalloc(1, 500001);
    struct err e;

    (void)state;
    memset(value, 'x', 500000);
    say_request(&c, t, 1, TEXTS("k", value));
    buf_putc(&c.in, 10);
    put_u64(&c.in, 1000);
    for (int i = 0; i < 1000; i++)
        put_piece(&c.in, "k");
    assert_int_equal(tcpstore_converse(&c, t, SIZE_MAX, &e), ERR_INVALID_ARGUMENT);
    assert_string_equal(e.msg, "MULTI_GET: the values have more than 33554432 bytes in all");
    tcpstore_conversation_release(&c, t);
    tcpstore_table_free(t);
}

/* Each request whose reply is large stays unobeyed until there is room; a small reply needs none. */
static void large_replies_wait_for_room(void **state)
{
    struct tcpstore_table *t = table_make();
    struct tcpstore_conversation c = {.parser.dialect = TCPSTORE_VALIDATED};
    CLEANUP(free_text) char *value = xcalloc(1, 100001);
    struct err e;

    (void)state;
    memset(value, 'x', 100000);
    say_request(&c, t, TCPSTORE_SET, TEXTS("k", value));
    say_request(&c, t, TCPSTORE_QUEUE_PUSH, TEXTS("q", value));
    put_request(&c.in, TCPSTORE_GET, TEXTS("k"));
    buf_putc(&c.in, TCPSTORE_MULTI_GET);
    put_u64(&c.in, 1);
    put_piece(&c.in, "k");
    put_request(&c.in, TCPSTORE_COMPARE_SET, TEXTS("k", "old", "new"));
    put_request(&c.in, TCPSTORE_QUEUE_POP, TEXTS("q"));
    for (int i = 0; i < 4; i++) {
        const size_t before = c.in.len;

        assert_ok(tcpstore_converse(&c, t, 90000, &e), &e);
        assert_true(c.held && c.in.len == before && !c.out.len);
        assert_ok(tcpstore_converse(&c, t, 200000, &e), &e);
        assert_true(c.in.len < before && c.out.len >= 100008 && c.out.len <= 100016);
        buf_clear(&c.out);
    }
    assert_false(c.held);
    assert_int_equal(tcpstore_queue_length(t, piece_of("q")), 0);
    put_request(&c.in, TCPSTORE_GETNUMKEYS, TEXTS(NULL));
    assert_ok(tcpstore_converse(&c, t, 0, &e), &e);
    assert_int_equal(c.out.len, 8);
    tcpstore_conversation_release(&c, t);
    tcpstore_table_free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_old_client_is_served),
        cmocka_unit_test(a_new_client_is_served),
        cmocka_unit_test(a_barrier_counts_its_callers),
        cmocka_unit_test(clients_of_both_dialects_share_the_store),
        cmocka_unit_test(a_wait_that_was_given_up_is_not_answered),
        cmocka_unit_test(the_cuts_between_bytes_do_not_matter),
        cmocka_unit_test(answers_wait_in_bounds),
        cmocka_unit_test(large_replies_wait_for_room),
        cmocka_unit_test(a_short_request_cannot_ask_for_a_huge_answer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
