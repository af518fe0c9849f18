/* The step of a report that has none: the last step of its worker, until its job is forgotten. A damaged file is replaced. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <sqlite3.h>
#include <uv.h>

#include "base/file.h"
#include "base/mem.h"
#include "daemon/coordinator/service/metrics/metrics_recorder.h"

struct fixture {
    char dir[64];
    uv_loop_t loop;
    struct metrics_recorder *recorder;
};

static int open_recorder(void **state)
{
    struct fixture *f = xcalloc(1, sizeof *f);
    struct err e;
    strcpy(f->dir, "/tmp/ddp-test-recorder-XXXXXX");
    *state = f;
    return mkdtemp(f->dir) && uv_loop_init(&f->loop) == 0 &&
                   metrics_recorder_open(&f->recorder, &f->loop, f->dir, &e) == ERR_OK
               ? 0
               : -1;
}

static int close_recorder(void **state)
{
    struct fixture *f = *state;
    struct err e;
    assert_int_equal(file_remove_tree(f->dir, &e), ERR_OK);
    free(f);
    return 0;
}

static void add_line(const struct fixture *f, int64_t job, int64_t spawn, int64_t step, const char *name)
{
    struct metric_line line = {.has_step = step >= 0, .step = step};
    const struct metric_report report = {.job = job, .spawn = spawn, .time_ms = 1, .line = &line};
    assert_true(metric_line_add(&line, name, 1));
    metrics_recorder_add(f->recorder, &report, 0, 7);
}

/* Closes the recorder, which writes what is pending. */
static void write_all(struct fixture *f)
{
    metrics_recorder_close(f->recorder);
    uv_run(&f->loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&f->loop), 0);
}

/* Closes the database again. Returns the number of points; *step: that of the first. */
static size_t points_of(const struct fixture *f, int64_t job, const char *name, int64_t *step)
{
    const struct metrics_query query = {.job = job, .name = name};
    struct metrics *metrics;
    struct metric_point *points;
    struct err e;
    size_t count;
    assert_int_equal(metrics_open(&metrics, f->dir, &e), ERR_OK);
    assert_int_equal(metrics_read(metrics, &query, &points, &count, NULL, &e), ERR_OK);
    *step = count ? points[0].step : -1;
    free(points);
    metrics_close(metrics);
    return count;
}

static int64_t step_of(const struct fixture *f, int64_t job, const char *name)
{
    int64_t step;
    assert_int_equal(points_of(f, job, name, &step), 1);
    return step;
}

static void a_report_without_a_step_belongs_to_the_last_one(void **state)
{
    struct fixture *f = *state;
    add_line(f, 1, 1, 40, "loss");
    add_line(f, 1, 2, 50, "loss");
    add_line(f, 1, 1, -1, "accuracy");
    add_line(f, 1, 3, -1, "speed"); /* the job's step */
    write_all(f);
    assert_int_equal(step_of(f, 1, "accuracy"), 40);
    assert_int_equal(step_of(f, 1, "speed"), 7);
}

static void on_later(uv_timer_t *timer)
{
    uv_close((uv_handle_t *)timer, NULL);
}

/* The recorder's own timer ends first, but does not keep the loop alive. */
static void run_later_than_the_next_write(struct fixture *f)
{
    uv_timer_t later;
    uv_timer_init(&f->loop, &later);
    uv_timer_start(&later, on_later, 1000, 0);
    uv_run(&f->loop, UV_RUN_DEFAULT);
}

static void a_forgotten_job_leaves_no_steps(void **state)
{
    struct fixture *f = *state;
    add_line(f, 1, 1, 40, "loss");
    add_line(f, 2, 1, 50, "loss");
    add_line(f, 3, 1, 60, "loss");
    metrics_recorder_forget(f->recorder, 3);
    metrics_recorder_forget(f->recorder, 1);
    run_later_than_the_next_write(f);
    for (int64_t job = 1; job <= 3; job++)
        add_line(f, job, 1, -1, "accuracy");
    write_all(f);
    assert_int_equal(step_of(f, 1, "accuracy"), 7);
    assert_int_equal(step_of(f, 2, "accuracy"), 50);
    assert_int_equal(step_of(f, 3, "accuracy"), 7);
}

static size_t losses_of(const struct fixture *f, int64_t job)
{
    int64_t step;
    return points_of(f, job, "loss", &step);
}

/* The coordinator's own database has room, so the job is gone there. */
static void a_job_is_forgotten_after_a_write_that_failed(void **state)
{
    struct fixture *f = *state;
    CLEANUP(free_text) char *path = xasprintf("%s/metrics.db", f->dir);
    sqlite3 *other;
    add_line(f, 1, 1, 40, "loss");
    add_line(f, 2, 1, 40, "loss");
    run_later_than_the_next_write(f);
    assert_int_equal(losses_of(f, 1), 1);
    assert_int_equal(sqlite3_open(path, &other), SQLITE_OK);
    assert_int_equal(sqlite3_exec(other, "BEGIN IMMEDIATE", NULL, NULL, NULL), SQLITE_OK);
    metrics_recorder_forget(f->recorder, 1);
    add_line(f, 2, 1, 41, "loss");
    while (!metrics_recorder_dropped(f->recorder))
        run_later_than_the_next_write(f);
    assert_int_equal(sqlite3_exec(other, "ROLLBACK", NULL, NULL, NULL), SQLITE_OK);
    sqlite3_close(other);
    write_all(f);
    assert_int_equal(losses_of(f, 1), 0);
    assert_int_equal(losses_of(f, 2), 1);
}

/* The first pages are well, so that the file can be opened. */
static void damage_points(const char *dir)
{
    CLEANUP(free_text) char *path = xasprintf("%s/metrics.db", dir);
    CLEANUP(buf_release) struct buf file = {0};
    struct err e;
    assert_int_equal(file_read(path, 64 << 20, &file, &e), ERR_OK);
    assert_true(file.len > 10 * 4096);
    memset(file.data + 5 * 4096, 0xa5, file.len - 5 * 4096);
    assert_int_equal(file_write_atomic(path, file.data, file.len, 0600, &e), ERR_OK);
}

static void count_damage(void *user, const char *why)
{
    assert_non_null(strstr(why, "malformed"));
    ++*(int *)user;
}

/* Otherwise nothing would be recorded again, of any job. */
static void points_are_recorded_after_damage(void **state)
{
    struct fixture *f = *state;
    struct err e;
    int told = 0;
    CLEANUP(free_text) char *bad = xasprintf("%s/metrics.db.bad", f->dir);
    for (int step = 0; step < 2000; step++)
        add_line(f, 1, 1, step, "loss");
    write_all(f);
    damage_points(f->dir);
    assert_int_equal(uv_loop_init(&f->loop), 0);
    assert_int_equal(metrics_recorder_open(&f->recorder, &f->loop, f->dir, &e), ERR_OK);
    metrics_recorder_on_damage(f->recorder, count_damage, &told);
    assert_false(file_exists(bad));
    add_line(f, 1, 1, 2000, "loss");
    run_later_than_the_next_write(f);
    assert_int_equal(told, 1);
    assert_int_equal(metrics_recorder_dropped(f->recorder), 0);
    assert_true(file_exists(bad));
    add_line(f, 2, 1, 5, "loss");
    write_all(f);
    assert_int_equal(told, 1);
    assert_int_equal(step_of(f, 1, "loss"), 2000);
    assert_int_equal(step_of(f, 2, "loss"), 5);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, open_recorder, close_recorder)
    const struct CMUnitTest tests[] = {
        CASE(a_report_without_a_step_belongs_to_the_last_one),
        CASE(a_forgotten_job_leaves_no_steps),
        CASE(a_job_is_forgotten_after_a_write_that_failed),
        CASE(points_are_recorded_after_damage),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
