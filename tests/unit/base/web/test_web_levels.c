/* What a viewer of the live events gets: the newest frame of each topic, once, and no backlog. */
#include "tests/unit/base/check.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/web/web_levels.h"

static uint64_t level_put(struct web_levels *l, enum web_topic topic, int64_t number, const char *json)
{
    CLEANUP(buf_release) struct buf data = {0};
    buf_puts(&data, json);
    return web_levels_put(l, topic, number, "", "job", &data, true);
}

/* Takes all frames that the viewer can have, and joins their data: "A B". */
static void assert_sees(struct web_levels *l, struct web_viewer *v, const char *expected)
{
    CLEANUP(buf_release) struct buf seen = {0};
    struct web_frame *frame;
    buf_puts(&seen, "");
    while ((frame = web_levels_next(l, v, NULL))) {
        CLEANUP(free_text) char *text = xasprintf("%.*s", (int)frame->size, frame->data);
        const char *data = strstr(text, "\ndata: ") + strlen("\ndata: ");
        buf_printf(&seen, "%s%.*s", seen.len ? " " : "", (int)strcspn(data, "\n"), data);
        assert_non_null(strstr(data, "\n\n"));
        web_levels_return(l, frame);
    }
    assert_string_equal(seen.data, expected);
}

static void a_viewer_gets_the_newest_level_only(void **state)
{
    struct web_levels *l = web_levels_create();
    struct web_viewer v = {0};
    (void)state;
    level_put(l, TOPIC_JOB, 1, "A");
    level_put(l, TOPIC_JOB, 2, "B");
    web_levels_enter(l, &v, NULL);
    assert_sees(l, &v, "A B");
    assert_sees(l, &v, "");
    for (int i = 0; i < 1000; i++)
        level_put(l, TOPIC_JOB, 1, i % 2 ? "C" : "D");
    level_put(l, TOPIC_JOB, 2, "B"); /* unchanged */
    assert_sees(l, &v, "C");
    web_levels_leave(l, &v);
    web_levels_free(l);
}

static void a_viewer_gets_what_it_names(void **state)
{
    struct web_levels *l = web_levels_create();
    struct web_viewer some = {.jobs = {1, 7}, .job_count = 2, .logs = {2}, .log_count = 1}, none = {0};
    int64_t *wanted = NULL;
    size_t count = 0;
    (void)state;
    web_levels_enter(l, &some, NULL);
    web_levels_enter(l, &none, NULL);
    level_put(l, TOPIC_JOB, 1, "j1");
    level_put(l, TOPIC_JOB, 2, "j2");
    level_put(l, TOPIC_JOB_DETAIL, 1, "d1");
    level_put(l, TOPIC_JOB, 7, "j7"); /* is not followed: too many jobs are named */
    level_put(l, TOPIC_POINTS, 1, "p1");
    level_put(l, TOPIC_POINTS, 2, "p2");
    level_put(l, TOPIC_LOG, 1, "l1");
    level_put(l, TOPIC_LOG, 2, "l2");
    assert_sees(l, &some, "j2 d1 j7 p1 l2");
    assert_sees(l, &none, "j1 j2 j7");
    web_levels_wanted(l, true, 9, &wanted, &count);
    assert_int_equal(count, 1);
    assert_int_equal(wanted[0], 2);
    free(wanted);
    web_levels_leave(l, &some);
    web_levels_leave(l, &none);
    web_levels_free(l);
}

/* One user cannot make the server ask for everything. */
static void the_jobs_of_the_newest_viewers_come_first(void **state)
{
    struct web_levels *l = web_levels_create();
    struct web_viewer old = {.logs = {1, 2}, .log_count = 2}, new = {.logs = {2, 3, 4}, .log_count = 3};
    int64_t *wanted;
    size_t count;
    (void)state;
    web_levels_enter(l, &old, NULL);
    web_levels_enter(l, &new, NULL);
    web_levels_wanted(l, true, 3, &wanted, &count);
    assert_int_equal(count, 3);
    for (int i = 0; i < 3; i++)
        assert_int_equal(wanted[i], 2 + i);
    free(wanted);
    web_levels_wanted(l, true, 9, &wanted, &count);
    assert_int_equal(count, 4);
    free(wanted);
    web_levels_leave(l, &old);
    web_levels_leave(l, &new);
    web_levels_free(l);
}

static void a_viewer_that_comes_back_goes_on(void **state)
{
    static const char *const strange[] = {"5", "x", "", "99999999999999999", "99999999999999999999999", "-1"};
    struct web_levels *l = web_levels_create();
    struct web_viewer v = {0};
    char id[32];
    (void)state;
    level_put(l, TOPIC_JOB, 1, "A");
    snprintf(id, sizeof(id), "%llu", (unsigned long long)level_put(l, TOPIC_JOB, 2, "B"));
    level_put(l, TOPIC_JOB, 3, "C");
    web_levels_enter(l, &v, id);
    assert_sees(l, &v, "C");
    web_levels_leave(l, &v);
    for (size_t i = 0; i < ARRAY_LEN(strange); i++) {
        v = (struct web_viewer){0};
        web_levels_enter(l, &v, strange[i]);
        assert_sees(l, &v, "{} A B C"); /* reset comes first */
        web_levels_leave(l, &v);
    }
    web_levels_free(l);
}

static void what_is_gone_is_told_once(void **state)
{
    struct web_levels *l = web_levels_create();
    struct web_viewer v = {0}, late = {0};
    (void)state;
    level_put(l, TOPIC_JOB, 1, "A");
    level_put(l, TOPIC_JOB, 2, "B");
    web_levels_enter(l, &v, NULL);
    assert_sees(l, &v, "A B");
    web_levels_mark(l, TOPIC_JOB);
    level_put(l, TOPIC_JOB, 2, "B");
    web_levels_sweep(l, TOPIC_JOB);
    assert_sees(l, &v, "{\"job\":1}");
    web_levels_enter(l, &late, NULL);
    assert_sees(l, &late, "B");
    web_levels_leave(l, &v);
    web_levels_leave(l, &late);
    web_levels_free(l);
}

static void topics_are_marked_and_swept_on_their_own(void **state)
{
    static const enum web_topic topics[] = {TOPIC_JOB_DETAIL, TOPIC_POINTS, TOPIC_USAGE, TOPIC_EVENTS,
                                            TOPIC_LOG};
    struct web_levels *l = web_levels_create();
    (void)state;
    for (size_t t = 0; t < ARRAY_LEN(topics); t++) {
        level_put(l, topics[t], 1, "A");
        level_put(l, topics[t], 2, "B");
    }
    level_put(l, TOPIC_JOB, 1, "J");
    for (size_t t = 0; t < ARRAY_LEN(topics); t++)
        web_levels_mark(l, topics[t]);
    for (size_t t = 0; t < ARRAY_LEN(topics); t++)
        web_levels_keep(l, topics[t], 2);
    for (size_t t = 0; t < ARRAY_LEN(topics); t++)
        web_levels_sweep(l, topics[t]);
    for (size_t t = 0; t < ARRAY_LEN(topics); t++) {
        assert_int_equal(web_levels_revision(l, topics[t], 1, ""), 0);
        assert_int_not_equal(web_levels_revision(l, topics[t], 2, ""), 0);
    }
    assert_int_not_equal(web_levels_revision(l, TOPIC_JOB, 1, ""), 0);
    web_levels_free(l);
}

static void a_viewer_that_missed_a_removal_begins_again(void **state)
{
    struct web_levels *l = web_levels_create();
    struct web_viewer v = {0};
    char id[32];
    (void)state;
    for (int job = 0; job < 1000; job++)
        snprintf(id, sizeof(id), "%llu", (unsigned long long)level_put(l, TOPIC_JOB, job, "A"));
    web_levels_mark(l, TOPIC_JOB);
    level_put(l, TOPIC_JOB, 5, "B");
    web_levels_sweep(l, TOPIC_JOB);
    web_levels_enter(l, &v, id);
    assert_sees(l, &v, "{} B");
    web_levels_leave(l, &v);
    web_levels_free(l);
}

static int woken;
static void count_wake(struct web_viewer *v)
{
    (void)v;
    woken++;
}
static void begin_wait(struct web_viewer *v)
{
    v->wake = count_wake;
}

static void a_waiting_viewer_is_woken_once(void **state)
{
    struct web_levels *l = web_levels_create();
    struct web_viewer v = {0};
    (void)state;
    web_levels_enter(l, &v, NULL);
    assert_null(web_levels_next(l, &v, begin_wait));
    level_put(l, TOPIC_JOB, 1, "A");
    level_put(l, TOPIC_JOB, 1, "B");
    assert_int_equal(woken, 1);
    assert_sees(l, &v, "B");
    web_levels_leave(l, &v);
    web_levels_free(l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_viewer_gets_the_newest_level_only),
        cmocka_unit_test(a_viewer_gets_what_it_names),
        cmocka_unit_test(the_jobs_of_the_newest_viewers_come_first),
        cmocka_unit_test(a_viewer_that_comes_back_goes_on),
        cmocka_unit_test(what_is_gone_is_told_once),
        cmocka_unit_test(topics_are_marked_and_swept_on_their_own),
        cmocka_unit_test(a_viewer_that_missed_a_removal_begins_again),
        cmocka_unit_test(a_waiting_viewer_is_woken_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
