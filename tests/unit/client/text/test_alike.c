#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "client/text/alike.h"
#include "client/text/rank_list.h"

static const struct line_owner first = {.node = "box1", .rank = 3, .local_rank = 1, .pid = 4121},
                               second = {.node = "box2", .rank = 12, .local_rank = 0, .pid = 990};

static void test_what_may_differ(void **state)
{
    static const char *const pairs[][2] = {
        {"ValueError: boom", "ValueError: boom"},
        {"[rank3]: ValueError: boom", "[rank12]: ValueError: boom"},
        {"pid 4121 on cuda:1: out of memory", "pid 990 on cuda:0: out of memory"},
        {"box1 (rank 3) cannot reach box0", "box2 (rank 12) cannot reach box0"},
        {"box1:29700 refused", "box2:29733 refused"},
        {"<Queue object at 0x7f3a10>", "<Queue object at 0x55ac>"},
        {"Connection closed by peer [10.0.0.1]:41234", "Connection closed by peer [10.0.0.12]:5"},
        {"10.0.0.1:29700: timed out", "10.0.0.2:29701: timed out"},
        {"bind to port 4123", "bind to port 4124"},
        {"E1123 14:03:07.214 9917 socket.c:61] closed", "E1123 14:03:07.219 9920 socket.c:61] closed"},
        {"2026-11-30T14:03:07 failed", "2026-12-01T14:03:08 failed"},
        {"ran for 600012 milliseconds", "ran for 600033 milliseconds"},
        {"timed out after 30.2s", "timed out after 1.5s"},
        {"", ""},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(pairs); i++) {
        if (!lines_are_alike(&first, pairs[i][0], &second, pairs[i][1]))
            fail_msg("'%s' and '%s' are alike", pairs[i][0], pairs[i][1]);
        if (!lines_are_alike(&second, pairs[i][1], &first, pairs[i][0]))
            fail_msg("'%s' and '%s' are alike", pairs[i][1], pairs[i][0]);
    }
}

static void test_what_may_not_differ(void **state)
{
    static const char *const pairs[][2] = {
        {"ValueError: boom", "ValueError: bang"},
        {"ValueError: boom", "ValueError: boom!"},
        {"ValueError: boom", ""},
        {"  File \"train.py\", line 40, in step", "  File \"train.py\", line 41, in step"},
        {"socket.c:61] closed", "socket.c:62] closed"},
        {"index 5 is out of range", "index 9 is out of range"},
        {"[rank3]: boom", "[rank4]: boom"}, /* not its own number */
        {"exit 3", "exit 1"},
        {"no such file: part-00003", "no such file: part-00004"},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(pairs); i++)
        if (lines_are_alike(&first, pairs[i][0], &second, pairs[i][1]))
            fail_msg("'%s' and '%s' are not alike", pairs[i][0], pairs[i][1]);
}

static void test_lists_of_ranks(void **state)
{
    static const struct {
        int ranks[8];
        size_t count;
        const char *text;
    } rows[] = {{{3}, 1, "rank 3"},
                {{0, 1}, 2, "ranks 0, 1"},
                {{0, 1, 2, 3, 4, 5, 6, 7}, 8, "ranks 0-7"},
                {{0, 2, 3, 4, 6, 7}, 6, "ranks 0, 2-4, 6, 7"}};
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        CLEANUP(buf_release) struct buf out = {0};
        rank_list_put(&out, rows[i].ranks, rows[i].count);
        assert_string_equal(out.data, rows[i].text);
    }
}

/* A line of JSON may be one word. The time must not grow with the square of its length: this one would take minutes. */
static void test_long_word(void **state)
{
    (void)state;
    enum { LENGTH = 2000000 };
    CLEANUP(free_text) char *x = xcalloc(LENGTH + 1, 1);
    CLEANUP(free_text) char *y = xcalloc(LENGTH + 1, 1);
    for (size_t i = 0; i < LENGTH; i += 2) {
        memcpy(x + i, "3x", 2);
        memcpy(y + i, "3x", 2);
    }
    memcpy(x, "1x", 2); /* the local ranks */
    memcpy(y, "0x", 2);
    assert_true(lines_are_alike(&first, x, &second, y));
    y[LENGTH - 1] = 'y';
    assert_false(lines_are_alike(&first, x, &second, y));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_may_differ),
        cmocka_unit_test(test_what_may_not_differ),
        cmocka_unit_test(test_lists_of_ranks),
        cmocka_unit_test(test_long_word),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
