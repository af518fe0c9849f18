/* Metrics are stored by series and step, thinned, and removed with their job. A damaged file of metrics stops
 * nothing. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <sqlite3.h>

#include "base/file.h"
#include "base/mem.h"
#include "store/metrics.h"
#include "store_test.h"

static int metrics_setup(void **state)
{
    *state = make_dir();
    return 0;
}

static int metrics_teardown(void **state)
{
    remove_dir(*state);
    return 0;
}

static struct metrics *must_open_metrics(const char *dir)
{
    struct err e = {0};
    struct metrics *m = NULL;
    if (metrics_open(&m, dir, &e) != ERR_OK)
        fail_msg("%s", e.msg);
    return m;
}

static void add_point(struct metrics *m, int64_t job, const char *name, int rank, int64_t step, double value)
{
    struct err e = {0};
    struct metric_point p = {
        .job = job, .rank = rank, .step = step, .time_ms = step, .metric = {.value = value}};
    snprintf(p.metric.name, sizeof p.metric.name, "%s", name);
    if (metrics_append(m, &p, 1, &e) != ERR_OK)
        fail_msg("%s", e.msg);
}

static size_t read_all(struct metrics *m, int64_t job, const char *name, size_t limit,
                       struct metric_point **out)
{
    struct err e = {0};
    size_t count;
    const struct metrics_query query = {.job = job, .name = name, .limit = limit};
    if (metrics_read(m, &query, out, &count, NULL, &e) != ERR_OK)
        fail_msg("%s", e.msg);
    return count;
}

static void points_are_read_in_order(void **state)
{
    struct metrics *m = must_open_metrics(*state);
    add_point(m, 1, "loss", 1, 20, 0.5);
    add_point(m, 1, "loss", 0, 20, 0.25);
    add_point(m, 1, "loss", 0, 10, NAN);
    add_point(m, 1, "lr", 0, 10, 1e-3);
    add_point(m, 2, "loss", 0, 10, 9);
    metrics_close(m);
    m = must_open_metrics(*state);
    struct metric_point *p;
    size_t n = read_all(m, 1, NULL, 0, &p);
    assert_int_equal(n, 4);
    assert_int_equal(p[0].step, 10);
    assert_true(isnan(p[0].metric.value));
    assert_true(p[1].metric.value == 0.25 && p[2].rank == 1);
    assert_string_equal(p[3].metric.name, "lr");
    free(p);
    n = read_all(m, 1, "loss", 1, &p);
    assert_int_equal(n, 2); /* the newest of each rank */
    assert_int_equal(p[0].step, 20);
    free(p);
    struct err e = {0};
    struct metrics_query query = {.job = 1, .by_rank = true, .rank = 1};
    assert_int_equal(metrics_read(m, &query, &p, &n, NULL, &e), ERR_OK);
    assert_true(n == 1 && p[0].rank == 1);
    free(p);
    query = (struct metrics_query){.job = 1, .since_ms = 20}; /* add_point uses the step as the time */
    assert_int_equal(metrics_read(m, &query, &p, &n, NULL, &e), ERR_OK);
    assert_true(n == 2 && p[0].step == 20 && p[1].step == 20);
    free(p);
    metrics_close(m);
}

/* Each series has its own newest points; those that the query leaves out do not count. */
static void a_limit_counts_in_each_series(void **state)
{
    struct metrics *m = must_open_metrics(*state);
    struct err e = {0};
    struct metric_point *p;
    size_t n;
    for (int step = 1; step <= 50; step++)
        add_point(m, 1, "loss", 0, step, 1);
    for (int step = 1000; step <= 1002; step++)
        add_point(m, 1, "acc", 1, step, 1);
    n = read_all(m, 1, NULL, 4, &p);
    assert_int_equal(n, 7); /* of one series there are three only */
    assert_true(p[0].step == 1000 && p[3].step == 47 && p[6].step == 50);
    free(p);
    const struct metrics_query since = {.job = 1, .limit = 2, .since_ms = 50};
    assert_int_equal(metrics_read(m, &since, &p, &n, NULL, &e), ERR_OK);
    assert_true(n == 3 && p[0].step == 1001 && p[2].step == 50);
    free(p);
    metrics_close(m);
}

static size_t read_between(struct metrics *m, int64_t after, int64_t until, struct metric_point *first)
{
    struct err e = {0};
    struct metric_point *p;
    size_t n;
    const struct metrics_query query = {.job = 1, .after = after, .until = until};
    if (metrics_read(m, &query, &p, &n, NULL, &e) != ERR_OK)
        fail_msg("%s", e.msg);
    if (n)
        *first = p[0];
    free(p);
    return n;
}

/* A reader gets each point once, although a node that was cut off sends points with an old time and a small step. */
static void late_points_are_found_by_their_append(void **state)
{
    struct metrics *m = must_open_metrics(*state);
    struct metric_point p = {0};
    add_point(m, 1, "loss", 0, 100, 1);
    const int64_t first = metrics_newest(m);
    assert_true(first > 0);
    assert_int_equal(read_between(m, first, 0, &p), 0);
    add_point(m, 1, "loss", 1, 5, 2);
    metrics_close(m);
    m = must_open_metrics(*state); /* the numbers go on */
    const int64_t second = metrics_newest(m);
    assert_true(second > first);
    assert_int_equal(read_between(m, first, 0, &p), 1);
    assert_true(p.rank == 1 && p.step == 5);
    add_point(m, 1, "loss", 0, 100, 3); /* a restart repeats the step */
    assert_int_equal(read_between(m, second, 0, &p), 1);
    assert_true(p.metric.value == 3);
    assert_int_equal(read_between(m, first, second, &p), 1);
    assert_int_equal(p.rank, 1);
    metrics_close(m);
}

static void add_captured(struct metrics *m, int64_t step, double value)
{
    struct err e = {0};
    const struct metric_point p = {
        .job = 1, .step = step, .time_ms = step, .captured = true, .metric = {"loss", value}};
    if (metrics_append(m, &p, 1, &e) != ERR_OK)
        fail_msg("%s", e.msg);
}

static void a_reported_metric_takes_the_place_of_the_captured_one(void **state)
{
    struct metrics *m = must_open_metrics(*state);
    struct metric_point *p;
    for (int step = 1; step <= 40; step++)
        add_captured(m, step, 9);
    assert_true(read_all(m, 1, "loss", 0, &p) == 40 && p[0].captured);
    free(p);
    add_point(m, 1, "loss", 0, 10, 1);
    add_captured(m, 41, 9); /* the next generation prints before it reports */
    metrics_close(m);
    m = must_open_metrics(*state);
    add_captured(m, 42, 9);
    add_point(m, 1, "loss", 0, 20, 2);
    size_t n = read_all(m, 1, "loss", 0, &p);
    assert_int_equal(n, 11); /* 1 to 9 were captured */
    assert_true(p[8].step == 9 && p[8].metric.value == 9 && !p[8].captured);
    assert_true(p[9].step == 10 && p[9].metric.value == 1 && p[10].step == 20);
    free(p);
    add_point(m, 1, "acc", 1, 10, 1); /* rank 1 reports what rank 0 prints */
    struct metric_point printed = {.job = 1, .step = 11, .captured = true, .metric = {"acc", 5}};
    struct err e = {0};
    assert_int_equal(metrics_append(m, &printed, 1, &e), ERR_OK);
    n = read_all(m, 1, "acc", 0, &p);
    assert_true(n == 1 && p[0].rank == 1);
    free(p);
    metrics_close(m);
}

static void a_file_of_version_1_is_extended(void **state)
{
    CLEANUP(free_text) char *path = xasprintf("%s/metrics.db", (char *)*state);
    sqlite3 *db;
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    assert_int_equal(
        sqlite3_exec(db,
                     "CREATE TABLE series(id INTEGER PRIMARY KEY, job INTEGER NOT NULL, name TEXT NOT NULL,"
                     " rank INTEGER NOT NULL, points INTEGER NOT NULL, UNIQUE(job, name, rank)) STRICT;"
                     "CREATE TABLE point(series INTEGER NOT NULL REFERENCES series(id) ON DELETE CASCADE,"
                     " step INTEGER NOT NULL, time_ms INTEGER NOT NULL, value REAL,"
                     " PRIMARY KEY(series, step)) STRICT, WITHOUT ROWID;"
                     "INSERT INTO series VALUES(1,1,'loss',0,1); INSERT INTO point VALUES(1,10,1000,0.5);"
                     "PRAGMA user_version=1;",
                     NULL, NULL, NULL),
        SQLITE_OK);
    sqlite3_close(db);
    struct metrics *m = must_open_metrics(*state);
    struct metric_point *p;
    add_point(m, 1, "loss", 0, 20, 0.25);
    size_t n = read_all(m, 1, "loss", 0, &p);
    assert_true(n == 2 && p[0].metric.value == 0.5);
    free(p);
    metrics_close(m);
}

static void a_repeated_step_replaces_its_point(void **state)
{
    struct metrics *m = must_open_metrics(*state);
    add_point(m, 1, "loss", 0, 10, 1);
    add_point(m, 1, "loss", 0, 10, 2);
    struct metric_point *p;
    size_t n = read_all(m, 1, "loss", 0, &p);
    assert_int_equal(n, 1);
    assert_true(p[0].metric.value == 2);
    free(p);
    metrics_close(m);
}

static void a_long_series_is_thinned(void **state)
{
    enum { POINTS = 3 * METRICS_SERIES_MAX };
    struct err e = {0};
    struct metrics *m = must_open_metrics(*state);
    struct metric_point *points = xcalloc(POINTS, sizeof *points);
    for (int i = 0; i < POINTS; i++)
        points[i] = (struct metric_point){.job = 1, .step = i, .metric = {"loss", i}};
    for (int i = 0; i < POINTS; i += 1024)
        assert_int_equal(metrics_append(m, points + i, 1024, &e), ERR_OK);
    free(points);
    struct metric_point *p;
    size_t n = read_all(m, 1, "loss", 0, &p);
    assert_true(n <= METRICS_SERIES_MAX + 1 && n > METRICS_SERIES_MAX / 4);
    assert_true(p[0].step < 16); /* the points still cover the series from its start to its end */
    assert_int_equal(p[n - 1].step, POINTS - 1);
    for (size_t i = 1; i < n; i++)
        assert_true(p[i].step - p[i - 1].step <= 16);
    free(p);
    metrics_close(m);
}

/* A point each 5 seconds for a day, a pause of a month, and another day. */
static void a_long_run_is_thinned_evenly(void **state)
{
    enum { DAY = 24 * 3600 / 5, PAUSE = 30 * 24 * 3600, POINTS = 2 * DAY };
    struct err e = {0};
    struct metrics *m = must_open_metrics(*state);
    struct metric_point *points = xcalloc(2 * POINTS, sizeof *points), *p;
    const struct metrics_query usage = {.job = 1, .usage = true};
    size_t n, cpu = 0, first_day = 0;
    bool found = false;
    for (int i = 0; i < 2 * POINTS; i++) {
        const int at = i / 2;
        points[i] = (struct metric_point){.job = 1, .step = 5 * at + (at >= DAY ? PAUSE : 0)};
        snprintf(points[i].metric.name, sizeof points[i].metric.name, "%s",
                 i % 2 ? "sys.memory_bytes" : "sys.cpu");
        points[i].metric.value = at == 777 ? 9e9 : at % 7; /* the peak is old */
    }
    for (int i = 0; i < 2 * POINTS; i += DAY / 10)
        assert_int_equal(metrics_append(m, points + i, DAY / 10, &e), ERR_OK);
    free(points);
    assert_int_equal(metrics_read(m, &usage, &p, &n, NULL, &e), ERR_OK);
    while (cpu < n && strcmp(p[cpu].metric.name, "sys.cpu") == 0)
        cpu++;
    assert_in_range(cpu, METRICS_USAGE_MAX / 4, METRICS_USAGE_MAX + 1);
    assert_int_equal(p[0].step, 0);
    assert_int_equal(p[cpu - 1].step, 5 * (POINTS - 1) + PAUSE);
    for (size_t i = 1; i < cpu; i++)
        if (p[i].step < PAUSE || p[i - 1].step >= PAUSE) { /* the gap is not the pause */
            first_day += p[i].step < PAUSE;
            assert_in_range(p[i].step - p[i - 1].step, 1, 2 * 5 * POINTS / (METRICS_USAGE_MAX / 4));
        }
    assert_true(first_day > METRICS_USAGE_MAX / 8);
    for (size_t i = cpu; i < n; i++)
        found = found || p[i].metric.value == 9e9;
    assert_true(found);
    free(p);
    metrics_close(m);
}

/* Adds points 1 to `steps` of the metric to rank 0 to `ranks` - 1. No end is an extreme, and a spike is in the middle. */
static void add_curves(struct metrics *m, const char *name, int ranks, int steps)
{
    struct err e = {0};
    struct metric_point *points = xcalloc((size_t)steps, sizeof *points);
    for (int rank = 0; rank < ranks; rank++) {
        for (int i = 0; i < steps; i++) {
            points[i] = (struct metric_point){.job = 1, .rank = rank, .step = i + 1, .time_ms = 1};
            snprintf(points[i].metric.name, sizeof points[i].metric.name, "%s", name);
            points[i].metric.value = i == steps / 2 ? 1e9 : (i + 3) % 7;
        }
        assert_int_equal(metrics_append(m, points, (size_t)steps, &e), ERR_OK);
    }
    free(points);
}

/* Checks one curve of a read: its first and last point, its spike, and that it has no gap larger than this. */
static size_t check_curve(const struct metric_point *p, size_t count, int steps, int gap)
{
    size_t n = 1;
    double most = p[0].metric.value;
    assert_int_equal(p[0].step, 1);
    for (; n < count && p[n].rank == p[0].rank && !strcmp(p[n].metric.name, p[0].metric.name); n++) {
        assert_in_range(p[n].step - p[n - 1].step, 1, gap);
        most = p[n].metric.value > most ? p[n].metric.value : most;
    }
    assert_int_equal(p[n - 1].step, steps);
    assert_true(most == 1e9);
    return n;
}

static void a_read_loads_a_limited_number_of_points(void **state)
{
    struct err e = {0};
    struct metrics *m = must_open_metrics(*state);
    struct metric_point *p;
    struct metrics_query query = {.job = 1, .most = 2000};
    size_t n, at = 0;
    bool thinned;
    add_curves(m, "loss", 8, 1000);
    add_curves(m, "acc", 4, 500);
    assert_int_equal(metrics_read(m, &query, &p, &n, &thinned, &e), ERR_OK);
    assert_true(thinned);
    assert_in_range(n, 2000 / 4, 2000 + 12 * 5); /* a few of each curve stay in any case */
    for (int curve = 0; curve < 12; curve++)
        at += check_curve(p + at, n - at, curve < 4 ? 500 : 1000, 45);
    assert_int_equal(at, n);
    free(p);

    query.limit = 100; /* 1,200 points in all, although the curves are longer */
    assert_int_equal(metrics_read(m, &query, &p, &n, &thinned, &e), ERR_OK);
    assert_true(n == 1200 && !thinned);
    free(p);
    query = (struct metrics_query){.job = 1, .most = 2000, .name = "loss", .by_rank = true, .rank = 7};
    assert_int_equal(metrics_read(m, &query, &p, &n, &thinned, &e), ERR_OK);
    assert_true(n == 1000 && !thinned);
    free(p);
    query = (struct metrics_query){.job = 1, .most = 2000, .after = metrics_newest(m) - 1};
    assert_int_equal(metrics_read(m, &query, &p, &n, &thinned, &e), ERR_OK);
    assert_true(n == 500 && !thinned); /* the last append */
    free(p);
    query = (struct metrics_query){.job = 1, .most = 5}; /* too many curves */
    assert_int_equal(metrics_read(m, &query, &p, &n, &thinned, &e), ERR_RESOURCE_EXHAUSTED);
    metrics_close(m);
}

static void points_of_a_job_are_removed(void **state)
{
    struct err e = {0};
    struct metrics *m = must_open_metrics(*state);
    add_point(m, 1, "loss", 0, 1, 1);
    add_point(m, 2, "loss", 0, 1, 1);
    assert_int_equal(metrics_forget(m, 1, &e), ERR_OK);
    struct metric_point *p;
    size_t n = read_all(m, 1, NULL, 0, &p);
    assert_int_equal(n, 0);
    free(p);
    n = read_all(m, 2, NULL, 0, &p);
    assert_int_equal(n, 1);
    free(p);
    metrics_close(m);
}

static void trimming_removes_the_oldest_jobs(void **state)
{
    struct err e = {0};
    struct metrics *m = must_open_metrics(*state);
    for (int64_t job = 1; job <= 20; job++)
        for (int64_t step = 0; step < 500; step++)
            add_point(m, job, "loss", 0, step, 1);
    assert_int_equal(metrics_trim(m, 1 << 30, &e), ERR_OK);
    struct metric_point *p;
    size_t n = read_all(m, 1, NULL, 0, &p);
    assert_int_equal(n, 500); /* below the limit nothing is removed */
    free(p);
    assert_int_equal(metrics_trim(m, 100 << 10, &e), ERR_OK);
    n = read_all(m, 1, NULL, 0, &p);
    assert_int_equal(n, 0);
    free(p);
    n = read_all(m, 20, NULL, 0, &p);
    assert_int_equal(n, 500);
    free(p);
    assert_int_equal(metrics_trim(m, 0, &e), ERR_OK); /* returns, although an empty file is larger */
    metrics_close(m);
}

/* What nodes measure must not push out what programs report. */
static void usage_stays_apart_and_is_removed_first(void **state)
{
    enum { POINTS = 2 * METRICS_USAGE_MAX };
    struct err e = {0};
    struct metrics *m = must_open_metrics(*state);
    struct metric_point *points = xcalloc(POINTS, sizeof *points), *p;
    const struct metrics_query usage = {.job = 2, .usage = true};
    size_t n;
    for (int64_t step = 0; step < 500; step++)
        add_point(m, 1, "loss", 0, step, 1);
    for (int i = 0; i < POINTS; i++)
        points[i] = (struct metric_point){.job = 2, .step = i, .metric = {"sys.cpu", i}};
    for (int rank = 0; rank < 8; rank++)
        for (int i = 0; i < POINTS; i += 1024) {
            for (int k = 0; k < 1024; k++)
                points[i + k].rank = rank;
            assert_int_equal(metrics_append(m, points + i, 1024, &e), ERR_OK);
        }
    free(points);
    n = read_all(m, 2, NULL, 0, &p); /* no name means what the program reported */
    assert_int_equal(n, 0);
    free(p);
    assert_int_equal(metrics_read(m, &usage, &p, &n, NULL, &e), ERR_OK);
    assert_true(n > 8 * METRICS_USAGE_MAX / 4 && n <= 8 * (METRICS_USAGE_MAX + 1));
    assert_int_equal(p[n - 1].step, POINTS - 1);
    free(p);
    assert_int_equal(metrics_trim(m, 64 << 10, &e), ERR_OK);
    assert_int_equal(metrics_read(m, &usage, &p, &n, NULL, &e), ERR_OK);
    assert_true(n < 3 * METRICS_USAGE_MAX);
    free(p);
    n = read_all(m, 1, "loss", 0, &p); /* of an older job */
    assert_int_equal(n, 500);
    free(p);
    metrics_close(m);
}

static void a_damaged_file_is_moved_aside(void **state)
{
    CLEANUP(free_text) char *path = xasprintf("%s/metrics.db", (char *)*state);
    CLEANUP(free_text) char *bad = xasprintf("%s.bad", path);
    char junk[8192];
    memset(junk, 'x', sizeof junk);
    struct err e = {0};
    assert_int_equal(file_write_atomic(path, junk, sizeof junk, 0600, &e), ERR_OK);
    struct metrics *m = must_open_metrics(*state);
    add_point(m, 1, "loss", 0, 1, 1);
    metrics_close(m);
    assert_true(file_exists(bad));
}

/* A power cut may leave pages that hold something else, while the first pages are well. */
static void damage_middle_pages(const char *dir)
{
    CLEANUP(free_text) char *path = xasprintf("%s/metrics.db", dir);
    CLEANUP(buf_release) struct buf file = {0};
    struct err e = {0};
    assert_int_equal(file_read(path, 64 << 20, &file, &e), ERR_OK);
    assert_true(file.len > 20 * 4096);
    memset(file.data + 5 * 4096, 0xa5, file.len - 5 * 4096); /* after the roots of the four trees */
    assert_int_equal(file_write_atomic(path, file.data, file.len, 0600, &e), ERR_OK);
}

static void a_file_that_is_damaged_further_in_is_replaced(void **state)
{
    CLEANUP(free_text) char *bad = xasprintf("%s/metrics.db.bad", (char *)*state);
    struct err e = {0};
    struct metric_point *p;
    struct metrics *m = must_open_metrics(*state);
    add_curves(m, "loss", 8, 1000);
    metrics_close(m);
    damage_middle_pages(*state);
    m = must_open_metrics(*state); /* reads none of these pages */
    assert_false(file_exists(bad));
    const struct metric_point next = {.job = 1, .step = 1000, .metric = {"loss", 1}};
    assert_int_equal(metrics_append(m, &next, 1, &e), ERR_DATA_LOSS);
    const int64_t number = metrics_newest(m);
    assert_int_equal(metrics_replace(&m, *state, e.msg, &e), ERR_OK);
    assert_true(file_exists(bad));
    assert_true(metrics_newest(m) >= number); /* which readers know */
    add_point(m, 1, "loss", 0, 1001, 1);
    assert_int_equal(read_all(m, 1, "loss", 0, &p), 1);
    free(p);
    metrics_close(m);
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, metrics_setup, metrics_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(points_are_read_in_order),
        TEST(a_repeated_step_replaces_its_point),
        TEST(a_long_series_is_thinned),
        TEST(a_long_run_is_thinned_evenly),
        TEST(a_read_loads_a_limited_number_of_points),
        TEST(points_of_a_job_are_removed),
        TEST(trimming_removes_the_oldest_jobs),
        TEST(usage_stays_apart_and_is_removed_first),
        TEST(a_damaged_file_is_moved_aside),
        TEST(a_file_that_is_damaged_further_in_is_replaced),
        TEST(a_limit_counts_in_each_series),
        TEST(late_points_are_found_by_their_append),
        TEST(a_reported_metric_takes_the_place_of_the_captured_one),
        TEST(a_file_of_version_1_is_extended),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
