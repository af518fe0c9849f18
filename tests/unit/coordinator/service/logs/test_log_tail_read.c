#include "tests/unit/base/check.h"

#include <stdbool.h>
#include <string.h>

#include "base/mem.h"
#include "daemon/coordinator/service/logs/log_tail_read.h"

/* "old\none\ntwo\nthree\n", of which the copy has what follows "ol"; each line was written 1 s after the one before. */
#define LINES "d\none\ntwo\nthree\n"

struct fixture {
    struct log_tails *tails;
    const struct log_tail *tail;
};

static int fixture_open(void **state)
{
    static const int64_t bytes[] = {2, 4, 4, 6}, us[] = {1000000, 2000000, 3000000, 4000000};
    struct fixture *d = xcalloc(1, sizeof(*d));
    const struct log_tail_part part = {.job = 1,
                                       .spawn = 4,
                                       .node = "box2",
                                       .offset = 2,
                                       .data = LINES,
                                       .size = strlen(LINES),
                                       .run_bytes = bytes,
                                       .run_us = us,
                                       .run_count = 4};

    d->tails = log_tails_create();
    log_tails_put(d->tails, &part, 0);
    d->tail = log_tails_find(d->tails, 1, 4, false);
    *state = d;
    return 0;
}

static int fixture_close(void **state)
{
    struct fixture *d = *state;

    log_tails_free(d->tails);
    free(d);
    return 0;
}

static void expect_whole(struct fixture *d, struct log_tail_choice choice, const char *grep, bool expected)
{
    struct log_piece piece = {0};
    int64_t left_ns = INT64_MAX;
    bool whole;
    struct err e;

    if (grep)
        assert_ok(pattern_compile(grep, &choice.pattern, &e), &e);
    assert_true(log_tail_read(d->tail, &choice, &piece, &whole, &left_ns));
    assert_int_equal(whole, expected);
    log_piece_release(&piece);
    pattern_free(choice.pattern);
}

static void expect_lines(struct fixture *d, struct log_tail_choice choice, const char *grep, const char *text,
                         int64_t first_us)
{
    struct log_piece piece = {0};
    int64_t left_ns = INT64_MAX;
    bool whole;
    struct err e;

    if (grep)
        assert_ok(pattern_compile(grep, &choice.pattern, &e), &e);
    assert_true(log_tail_read(d->tail, &choice, &piece, &whole, &left_ns));
    assert_int_equal(log_piece_left(&piece), strlen(text));
    if (*text) {
        assert_memory_equal(log_piece_bytes(&piece), text, strlen(text));
        assert_int_equal(log_piece_date(&piece), first_us);
    }
    log_piece_release(&piece);
    pattern_free(choice.pattern);
}

static void a_copy_is_read_as_a_log_is(void **state)
{
    struct fixture *d = *state;

    expect_lines(d, (struct log_tail_choice){0}, NULL, "one\ntwo\nthree\n", 2000000); /* not the half line */
    expect_lines(d, (struct log_tail_choice){.offset = 3}, NULL, &LINES[1],
                 1000000); /* its first half was sent */
    expect_lines(d, (struct log_tail_choice){.offset = 10}, NULL, "o\nthree\n", 3000000);
    expect_lines(d, (struct log_tail_choice){.offset = 100}, NULL, "", 0);
    expect_lines(d, (struct log_tail_choice){.tail_bytes = 4}, NULL, "ree\n", 4000000);
    expect_lines(d, (struct log_tail_choice){.tail_bytes = 1000}, NULL, "one\ntwo\nthree\n", 2000000);
    expect_lines(d, (struct log_tail_choice){.tail_lines = 1}, NULL, "three\n", 4000000);
    expect_lines(d, (struct log_tail_choice){.tail_lines = 2}, NULL, "two\nthree\n", 3000000);
    expect_lines(d, (struct log_tail_choice){.tail_lines = 9}, NULL, "one\ntwo\nthree\n", 2000000);
    expect_lines(d, (struct log_tail_choice){.since_ms = 3000}, NULL, "two\nthree\n", 3000000);
    expect_lines(d, (struct log_tail_choice){.since_ms = 5000}, NULL, "", 0);
    expect_lines(d, (struct log_tail_choice){0}, "t", "two\nthree\n", 3000000);
    expect_lines(d, (struct log_tail_choice){.tail_lines = 1}, "o", "two\n", 3000000);
    expect_lines(d, (struct log_tail_choice){.since_ms = 3000}, "^o", "", 0);
}

static void a_copy_says_whether_older_output_is_missing(void **state)
{
    struct fixture *d = *state;

    expect_whole(d, (struct log_tail_choice){0}, NULL, false);
    expect_whole(d, (struct log_tail_choice){.offset = 1}, NULL, false);
    expect_whole(d, (struct log_tail_choice){.offset = 2}, NULL, true);
    expect_whole(d, (struct log_tail_choice){.tail_bytes = 4}, NULL, true);
    expect_whole(d, (struct log_tail_choice){.tail_bytes = 1000}, NULL, false);
    expect_whole(d, (struct log_tail_choice){.tail_lines = 2}, NULL, true);
    expect_whole(d, (struct log_tail_choice){.tail_lines = 9}, NULL, false);
    expect_whole(d, (struct log_tail_choice){.since_ms = 3000}, NULL, true);
    expect_whole(d, (struct log_tail_choice){.since_ms = 1000}, NULL, false);
    expect_whole(d, (struct log_tail_choice){.since_ms = 5000}, NULL, true);
    expect_whole(d, (struct log_tail_choice){0}, "t", false);
    expect_whole(d, (struct log_tail_choice){.tail_lines = 1}, "o", true);
    expect_whole(d, (struct log_tail_choice){.tail_lines = 9}, "o", false);
}

static void a_search_has_a_limit(void **state)
{
    struct fixture *d = *state;
    struct log_tail_choice choice = {0};
    struct log_piece piece = {0};
    int64_t left_ns = 1;
    bool whole;
    struct err e;

    assert_ok(pattern_compile("e$", &choice.pattern, &e), &e);
    assert_false(log_tail_read(d->tail, &choice, &piece, &whole, &left_ns));
    log_piece_release(&piece);
    pattern_free(choice.pattern);
}

static void a_note_tells_what_there_is(void **state)
{
    struct fixture *d = *state;
    struct log_absence a = {0};
    CLEANUP(free_text) char *none = NULL;
    CLEANUP(free_text) char *cut = NULL;
    CLEANUP(free_text) char *several = NULL;

    log_absence_add(&a, NULL, 0);
    none = log_absence_note(&a, "box2", "is lost");
    assert_string_equal(
        none, "node box2 is lost: its part of the logs is missing, and the coordinator has no copy of it");
    log_absence_add(&a, d->tail, 2000);
    cut = log_absence_note(&a, "box2", "is lost");
    assert_string_equal(
        cut,
        "node box2 is lost: the last 16 bytes of its log come from the coordinator's copy, made 2.0 s before the node's last message");
    struct log_tail large = {.data = {.len = 65536}};
    log_absence_add(&a, &large, 12000);
    several = log_absence_note(&a, "box2", "is lost");
    assert_string_equal(
        several,
        "node box2 is lost: the last 64 KiB of each of its logs come from the coordinator's copy, made 12 s before the node's last message");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_copy_is_read_as_a_log_is, fixture_open, fixture_close),
        cmocka_unit_test_setup_teardown(a_copy_says_whether_older_output_is_missing, fixture_open,
                                        fixture_close),
        cmocka_unit_test_setup_teardown(a_search_has_a_limit, fixture_open, fixture_close),
        cmocka_unit_test_setup_teardown(a_note_tells_what_there_is, fixture_open, fixture_close),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
