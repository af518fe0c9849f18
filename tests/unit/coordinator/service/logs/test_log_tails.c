#include "tests/unit/base/check.h"

#include <stdbool.h>
#include <string.h>

#include "base/mem.h"
#include "daemon/coordinator/service/logs/log_tails.h"

static int tails_create(void **state)
{
    *state = log_tails_create();
    return 0;
}

static int tails_free(void **state)
{
    log_tails_free(*state);
    return 0;
}

static void tail_comes(struct log_tails *t, int64_t job, int64_t spawn, int64_t offset, const char *text,
                       int64_t us)
{
    const int64_t bytes = (int64_t)strlen(text);
    const struct log_tail_part part = {.job = job,
                                       .spawn = spawn,
                                       .node = "box2",
                                       .offset = offset,
                                       .data = text,
                                       .size = strlen(text),
                                       .run_bytes = &bytes,
                                       .run_us = &us,
                                       .run_count = us > 0};

    log_tails_put(t, &part, 1000);
}

static void expect_copy(struct log_tails *t, int64_t job, int64_t spawn, int64_t offset, const char *text)
{
    const struct log_tail *x = log_tails_find(t, job, spawn, false);
    int64_t covered = 0;

    assert_non_null(x);
    assert_int_equal(x->offset, offset);
    assert_int_equal(x->data.len, strlen(text));
    assert_memory_equal(x->data.data, text, strlen(text));
    for (size_t i = 0; i < x->run_count; i++)
        covered += x->run_bytes[i];
    assert_int_equal(covered, x->data.len);
}

static void parts_are_joined(void **state)
{
    struct log_tails *t = *state;

    tail_comes(t, 1, 4, 0, "one ", 10);
    tail_comes(t, 1, 4, 4, "two", 20);
    tail_comes(t, 1, 5, 0, "other", 0);
    expect_copy(t, 1, 4, 0, "one two");
    expect_copy(t, 1, 5, 0, "other");
    assert_int_equal(log_tails_find(t, 1, 4, false)->run_count, 2);
    tail_comes(t, 1, 4, 100, "after a gap", 30);
    expect_copy(t, 1, 4, 100, "after a gap");
    tail_comes(t, 1, 4, 0, "a shorter file", 40);
    expect_copy(t, 1, 4, 0, "a shorter file");
    assert_null(log_tails_find(t, 1, 4, true));
    assert_null(log_tails_find(t, 2, 4, false));
}

static void a_copy_keeps_the_newest_bytes(void **state)
{
    struct log_tails *t = *state;
    CLEANUP(free_text) char *text = xmalloc(40001);

    for (int i = 0; i < 5; i++) {
        memset(text, 'a' + i, 40000);
        text[40000] = '\0';
        tail_comes(t, 1, 4, 40000 * i, text, 10 + i);
    }
    const struct log_tail *x = log_tails_find(t, 1, 4, false);
    assert_int_equal(x->data.len, LOG_TAIL_BYTES);
    assert_int_equal(x->offset, 200000 - LOG_TAIL_BYTES);
    assert_int_equal(x->data.data[0], 'd');
    assert_int_equal(x->run_count, 2);
    assert_int_equal(x->run_bytes[0], LOG_TAIL_BYTES - 40000);
    assert_int_equal(x->run_us[0], 13);
}

/* An agent that is not ours may send any numbers. */
static void runs_always_cover_the_bytes(void **state)
{
    struct log_tails *t = *state;
    const int64_t bytes[] = {-5, INT64_MAX, 3, 3}, us[] = {1, -7, 3, 4};
    struct log_tail_part part = {.job = 1,
                                 .spawn = 4,
                                 .node = "box2",
                                 .data = "0123456789",
                                 .size = 10,
                                 .run_bytes = bytes,
                                 .run_us = us,
                                 .run_count = 4};

    log_tails_put(t, &part, 0);
    expect_copy(t, 1, 4, 0, "0123456789");
    for (int i = 0; i < 5000; i++)
        tail_comes(t, 1, 4, 10 + i, "x", 100 + i);
    const struct log_tail *x = log_tails_find(t, 1, 4, false);
    int64_t covered = 0;
    for (size_t i = 0; i < x->run_count; i++)
        covered += x->run_bytes[i];
    assert_int_equal(covered, 5010);
    assert_in_range(x->run_count, LOG_TAIL_RUNS / 2, LOG_TAIL_RUNS);
    assert_int_equal(x->run_us[x->run_count - 1], 5099);
}

/* The job has more streams than LOG_TAIL_BYTES of each fit into its part. */
static void a_job_has_a_limit_that_its_streams_share(void **state)
{
    struct log_tails *t = *state;
    CLEANUP(free_text) char *text = xmalloc(LOG_TAIL_BYTES + 1);
    const int streams = 1000;

    memset(text, 'a', LOG_TAIL_BYTES);
    text[LOG_TAIL_BYTES] = '\0';
    for (int i = 0; i < streams; i++) {
        tail_comes(t, 1, i, 0, text, 1);
        assert_in_range(log_tails_bytes(t), 1, LOG_TAILS_JOB_BYTES + LOG_TAIL_BYTES);
    }
    for (int i = 0; i < streams; i++) {
        const struct log_tail *x = log_tails_find(t, 1, i, false);
        assert_non_null(x);
        assert_in_range(x->data.len, LOG_TAIL_LEAST, LOG_TAIL_BYTES);
        assert_int_equal(x->offset + (int64_t)x->data.len, LOG_TAIL_BYTES);
    }
}

/* Each part that comes must not cost a pass over all copies: with that, this test takes minutes. */
static void a_job_at_its_limit_takes_parts_quickly(void **state)
{
    enum { STREAMS = 40000, ROUNDS = 4, PART = 400 };
    struct log_tails *t = *state;
    CLEANUP(free_text) char *text = xmalloc(PART + 1);

    memset(text, 'a', PART);
    text[PART] = '\0';
    for (int round = 0; round < ROUNDS; round++)
        for (int64_t spawn = 1; spawn <= STREAMS; spawn++)
            tail_comes(t, 1, spawn, round * PART, text, 1000 + round);
    assert_in_range(log_tails_bytes(t), LOG_TAILS_JOB_BYTES / 4 * 3, LOG_TAILS_JOB_BYTES);
    assert_non_null(log_tails_find(t, 1, STREAMS, false));
    assert_null(log_tails_find(t, 1, 1, false));
}

static void the_job_that_was_silent_longest_goes_first(void **state)
{
    struct log_tails *t = *state;
    CLEANUP(free_text) char *text = xmalloc(LOG_TAIL_BYTES + 1);

    memset(text, 'a', LOG_TAIL_BYTES);
    text[LOG_TAIL_BYTES] = '\0';
    for (int job = 1; job <= 40; job++) {
        for (int spawn = 0; spawn < 200; spawn++)
            tail_comes(t, job, spawn, 0, text, 1);
        tail_comes(t, 1, 0, LOG_TAIL_BYTES, "more", 2); /* job 1 goes on writing */
        assert_in_range(log_tails_bytes(t), 1, LOG_TAILS_BYTES);
    }
    assert_non_null(log_tails_find(t, 1, 0, false));
    assert_null(log_tails_find(t, 2, 0, false));
    assert_non_null(log_tails_find(t, 40, 0, false));
}

static void copies_go_with_their_job(void **state)
{
    struct log_tails *t = *state;

    for (int job = 1; job <= 2; job++)
        tail_comes(t, job, 1, 0, "text", 1);
    log_tails_drop_job(t, 1);
    assert_null(log_tails_find(t, 1, 1, false));
    expect_copy(t, 2, 1, 0, "text");
    log_tails_drop_job(t, 2);
    assert_int_equal(log_tails_bytes(t), 0);
}

static void the_age_is_that_at_the_last_message(void **state)
{
    struct log_tails *t = *state;

    tail_comes(t, 1, 4, 0, "text", 1); /* at 1000 */
    const struct log_tail *x = log_tails_find(t, 1, 4, false);
    log_tails_heard(t, "box1", 90000, 100000);
    assert_int_equal(log_tails_age(t, x), 0);
    log_tails_heard(t, "box2", 0, 6000);
    assert_int_equal(log_tails_age(t, x), 5000);
    log_tails_heard(t, "box2", 7500, 9000); /* nothing new until then */
    assert_int_equal(log_tails_age(t, x), 1500);
    log_tails_heard(t, "box2", 20000, 9500); /* no agent of ours: in the future */
    assert_int_equal(log_tails_age(t, x), 2000);
}

static void the_age_is_that_of_the_own_node(void **state)
{
    struct log_tails *t = *state;

    tail_comes(t, 1, 4, 0, "text", 1); /* of box2, at 1000 */
    const struct log_tail *x = log_tails_find(t, 1, 4, false);
    log_tails_heard(t, "box9", 0, 2000);
    log_tails_heard(t, "box2", 0, 3000);
    log_tails_heard(t, "box1", 0, 4000);
    log_tails_heard(t, "box3", 0, 5000);
    assert_int_equal(log_tails_age(t, x), 2000);
    log_tails_heard(t, "box2", 0, 6000);
    assert_int_equal(log_tails_age(t, x), 5000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(parts_are_joined, tails_create, tails_free),
        cmocka_unit_test_setup_teardown(the_age_is_that_of_the_own_node, tails_create, tails_free),
        cmocka_unit_test_setup_teardown(a_copy_keeps_the_newest_bytes, tails_create, tails_free),
        cmocka_unit_test_setup_teardown(runs_always_cover_the_bytes, tails_create, tails_free),
        cmocka_unit_test_setup_teardown(a_job_has_a_limit_that_its_streams_share, tails_create, tails_free),
        cmocka_unit_test_setup_teardown(a_job_at_its_limit_takes_parts_quickly, tails_create, tails_free),
        cmocka_unit_test_setup_teardown(the_job_that_was_silent_longest_goes_first, tails_create, tails_free),
        cmocka_unit_test_setup_teardown(copies_go_with_their_job, tails_create, tails_free),
        cmocka_unit_test_setup_teardown(the_age_is_that_at_the_last_message, tails_create, tails_free),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
