#include "tests/unit/base/check.h"

#include <stdlib.h>

#include "base/mem.h"
#include "daemon/tcpstore/table.h"
#include "tests/unit/tcpstore/request_bytes.h"

struct woken_list {
    struct tcpstore_waiter *who[8];
    size_t count;
};

static void note_woken(void *ctx, struct tcpstore_waiter *w)
{
    struct woken_list *list = ctx;

    list->who[list->count++] = w;
}

static void wait_keys(struct tcpstore_table *t, struct tcpstore_waiter *w, const char *const *keys)
{
    CLEANUP(buf_release) struct buf b = {0};
    uint64_t count = 0;
    struct err e;

    for (; keys[count]; count++)
        put_piece(&b, keys[count]);
    assert_int_equal(tcpstore_wait(t, w, (struct tcpstore_piece){b.data, b.len}, count, &e), ERR_OK);
}

static void set_text(struct tcpstore_table *t, const char *key, const char *value)
{
    struct err e;

    assert_int_equal(tcpstore_set(t, piece_of(key), piece_of(value), &e), ERR_OK);
}

static void values_are_kept_and_forgotten(void **state)
{
    struct tcpstore_table *t = tcpstore_table_create(1 << 20, note_woken, NULL);
    struct tcpstore_piece told;
    int64_t sum;
    struct err e;

    (void)state;
    set_text(t, "k", "one");
    set_text(t, "k", "");
    check_piece(tcpstore_get(t, piece_of("k")), "");
    assert_int_equal(tcpstore_key_count(t), 1); /* an empty value is a value */
    assert_int_equal(tcpstore_append(t, piece_of("k"), piece_of("ab"), &e), ERR_OK);
    assert_int_equal(tcpstore_append(t, piece_of("k"), piece_of("c"), &e), ERR_OK);
    check_piece(tcpstore_get(t, piece_of("k")), "abc");
    assert_int_equal(tcpstore_add(t, piece_of("n"), 5, &sum, &e), ERR_OK);
    assert_int_equal(tcpstore_add(t, piece_of("n"), -7, &sum, &e), ERR_OK);
    assert_int_equal(sum, -2);
    check_piece(tcpstore_get(t, piece_of("n")), "-2");
    assert_int_equal(tcpstore_add(t, piece_of("k"), 1, &sum, &e), ERR_INVALID_ARGUMENT);
    assert_string_equal(e.msg, "ADD to a value that is not a number: 'abc'");
    set_text(t, "n", "9223372036854775807");
    assert_int_equal(tcpstore_add(t, piece_of("n"), 1, &sum, &e), ERR_INVALID_ARGUMENT);
    /* compare-set: replaced, kept, created, and PyTorch's answer for a missing key */
    assert_int_equal(tcpstore_compare_set(t, piece_of("k"), piece_of("abc"), piece_of("d"), &told, &e),
                     ERR_OK);
    check_piece(told, "d");
    assert_int_equal(tcpstore_compare_set(t, piece_of("k"), piece_of("abc"), piece_of("x"), &told, &e),
                     ERR_OK);
    check_piece(told, "d");
    assert_int_equal(tcpstore_compare_set(t, piece_of("c"), piece_of(""), piece_of("y"), &told, &e), ERR_OK);
    check_piece(told, "y");
    assert_int_equal(tcpstore_compare_set(t, piece_of("m"), piece_of("was"), piece_of("z"), &told, &e),
                     ERR_OK);
    check_piece(told, "was");
    assert_int_equal(tcpstore_key_count(t), 3);
    assert_true(tcpstore_delete(t, piece_of("k")));
    assert_false(tcpstore_delete(t, piece_of("k")));
    assert_true(tcpstore_delete(t, piece_of("n")) && tcpstore_delete(t, piece_of("c")));
    assert_int_equal(tcpstore_table_bytes(t), 0); /* nothing is left behind */
    tcpstore_table_free(t);
}

static void a_waiter_hears_when_its_last_key_comes(void **state)
{
    struct woken_list woken = {0};
    struct tcpstore_table *t = tcpstore_table_create(1 << 20, note_woken, &woken);
    struct tcpstore_waiter both = {0}, one = {0}, gone = {0};
    int64_t sum;
    struct err e;

    (void)state;
    set_text(t, "there", "");
    wait_keys(t, &both, TEXTS("a", "there", "b", "b"));
    wait_keys(t, &one, TEXTS("b"));
    wait_keys(t, &gone, TEXTS("a", "b", "c"));
    assert_int_equal(tcpstore_key_count(t), 1); /* keys that are waited for are not there */
    set_text(t, "a", "1");
    assert_int_equal(woken.count, 0);
    assert_true(tcpstore_delete(t, piece_of("a"))); /* it has come once, which is enough */
    tcpstore_unwait(t, &gone);
    assert_int_equal(tcpstore_add(t, piece_of("b"), 1, &sum, &e), ERR_OK);
    assert_int_equal(woken.count, 2);
    assert_ptr_equal(woken.who[0], &both);
    assert_ptr_equal(woken.who[1], &one);
    tcpstore_unwait(t, &one); /* harmless */
    assert_true(tcpstore_delete(t, piece_of("b")) && tcpstore_delete(t, piece_of("there")));
    assert_int_equal(tcpstore_table_bytes(t), 0);
    tcpstore_table_free(t);
}

static void a_queued_value_is_for_one_waiter(void **state)
{
    struct woken_list woken = {0};
    struct tcpstore_table *t = tcpstore_table_create(1 << 20, note_woken, &woken);
    struct tcpstore_waiter first = {0}, second = {0};
    struct err e;
    size_t size;

    (void)state;
    wait_keys(t, &first, TEXTS("q"));
    wait_keys(t, &second, TEXTS("q"));
    assert_int_equal(tcpstore_push(t, piece_of("q"), piece_of("v1"), &e), ERR_OK);
    assert_int_equal(woken.count, 1);
    assert_ptr_equal(woken.who[0], &first);
    assert_int_equal(tcpstore_push(t, piece_of("q"), piece_of(""), &e), ERR_OK);
    assert_int_equal(woken.count, 2);
    assert_int_equal(tcpstore_queue_length(t, piece_of("q")), 2);
    assert_int_equal(tcpstore_key_count(t), 0);
    CLEANUP(free_text) char *value = tcpstore_pop(t, piece_of("q"), &size);
    assert_int_equal(size, 2);
    assert_memory_equal(value, "v1", 2);
    CLEANUP(free_text) char *empty = tcpstore_pop(t, piece_of("q"), &size);
    assert_non_null(empty); /* an empty value, not an empty queue */
    assert_int_equal(size, 0);
    assert_null(tcpstore_pop(t, piece_of("q"), &size));
    assert_int_equal(tcpstore_table_bytes(t), 0);
    tcpstore_table_free(t);
}

static void the_limit_covers_all_that_is_kept(void **state)
{
    struct tcpstore_table *t = tcpstore_table_create(4000, note_woken, NULL);
    CLEANUP(free_text) char *large = xcalloc(1, 3000);
    struct tcpstore_piece value = {large, 3000}, told;
    struct tcpstore_waiter w = {0};
    CLEANUP(buf_release) struct buf keys = {0};
    int64_t sum;
    struct err e;

    (void)state;
    for (int i = 0; i < 20; i++)
        put_piece(&keys, (char[]){(char)('a' + i), 0});
    assert_int_equal(tcpstore_wait(t, &w, (struct tcpstore_piece){keys.data, keys.len}, 20, &e),
                     ERR_RESOURCE_EXHAUSTED);
    assert_int_equal(tcpstore_table_bytes(t), 0);
    assert_int_equal(tcpstore_set(t, piece_of("k"), value, &e), ERR_OK);
    assert_int_equal(tcpstore_set(t, piece_of("l"), value, &e), ERR_RESOURCE_EXHAUSTED);
    assert_int_equal(tcpstore_append(t, piece_of("k"), value, &e), ERR_RESOURCE_EXHAUSTED);
    assert_int_equal(tcpstore_push(t, piece_of("q"), value, &e), ERR_RESOURCE_EXHAUSTED);
    assert_int_equal(tcpstore_compare_set(t, piece_of("l"), piece_of(""), value, &told, &e),
                     ERR_RESOURCE_EXHAUSTED);
    for (int i = 0; i < 100; i++) /* keys cost, too */
        if (tcpstore_add(t, (struct tcpstore_piece){&i, sizeof(i)}, 1, &sum, &e))
            break;
    assert_int_equal(e.code, ERR_RESOURCE_EXHAUSTED);
    assert_true(tcpstore_table_bytes(t) <= 4000);
    assert_int_equal(tcpstore_get(t, piece_of("k")).size, 3000);
    tcpstore_table_free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_are_kept_and_forgotten),
        cmocka_unit_test(a_waiter_hears_when_its_last_key_comes),
        cmocka_unit_test(a_queued_value_is_for_one_waiter),
        cmocka_unit_test(the_limit_covers_all_that_is_kept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
