#include "tests/unit/base/check.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "daemon/agent/logs/log_limit_pass.h"

#define MIB ((int64_t)1 << 20)
#define NOW_MS (1800000000LL * 1000)
#define MINUTE_MS (60 * 1000)

struct room {
    char dir[64];
    struct log_limit_pass round;
    int64_t live[4];
};

static int open_room(void **state)
{
    struct room *m = xcalloc(1, sizeof(*m));

    strcpy(m->dir, "/tmp/ddp-test-room-XXXXXX");
    m->round = (struct log_limit_pass){.log_dir = m->dir, .node = "box1", .now_ms = NOW_MS, .live = m->live};
    *state = m;
    return mkdtemp(m->dir) ? 0 : -1;
}

static int close_room(void **state)
{
    struct room *m = *state;
    struct err e;
    enum err_code code = file_remove_tree(m->dir, &e);

    log_limit_pass_release(&m->round);
    free(m);
    return code ? -1 : 0;
}

static char *path_of(struct room *m, int job, int generation, int rank, const char *name)
{
    return xasprintf("%s/%d/generation_%d/box1/%d%s%s", m->dir, job, generation, rank, name ? "/" : "",
                     name ? name : "");
}

/* Makes a log of that many MiB, last written that many minutes ago. */
static void put_log(struct room *m, int job, int generation, int rank, int mib, int age)
{
    CLEANUP(free_text) char *dir = path_of(m, job, generation, rank, NULL);
    CLEANUP(free_text) char *path = path_of(m, job, generation, rank, "stdout.log");
    struct timespec at = {(NOW_MS - age * MINUTE_MS) / 1000, 0}, both[2] = {at, at};
    struct err e;
    FILE *f;

    assert_ok(file_mkdirs(dir, 0755, &e), &e);
    f = fopen(path, "w");
    assert_non_null(f);
    for (int i = 0; i < mib * 1024 * 16; i++)
        fprintf(f, "%063d\n", i);
    fclose(f);
    assert_int_equal(utimensat(AT_FDCWD, path, both, 0), 0);
}

static struct stat stat_of(struct room *m, int job, int generation, int rank)
{
    CLEANUP(free_text) char *path = path_of(m, job, generation, rank, "stdout.log");
    struct stat st;

    assert_int_equal(stat(path, &st), 0);
    return st;
}

static int64_t room_of(struct room *m, int job, int generation, int rank)
{
    return (int64_t)stat_of(m, job, generation, rank).st_blocks * 512;
}

static bool has_job(struct room *m, int job)
{
    CLEANUP(free_text) char *path = xasprintf("%s/%d", m->dir, job);

    return file_exists(path);
}

static void run_round(struct room *m)
{
    log_limit_pass_run(&m->round);
    if (m->round.problem.code == ERR_UNIMPLEMENTED)
        skip(); /* this file system cannot make holes in files */
    if (m->round.problem.code)
        fail_msg("%s", m->round.problem.msg);
}

static void a_jobs_largest_logs_are_cut_to_its_limit(void **state)
{
    struct room *m = *state;

    put_log(m, 7, 1, 0, 1, 60);
    put_log(m, 7, 1, 1, 6, 60);
    put_log(m, 7, 2, 0, 4, 0);
    put_log(m, 8, 1, 0, 5, 0);
    m->round.per_job = 6 * MIB;
    m->live[0] = 7;
    m->live[1] = 8;
    m->round.live_count = 2;
    run_round(m);
    assert_int_equal(m->round.files_cut, 2);
    assert_in_range(room_of(m, 7, 1, 0), 1 * MIB, 1 * MIB + MIB / 8);
    assert_in_range(room_of(m, 7, 1, 1), 1 * MIB, 2 * MIB);
    assert_in_range(room_of(m, 7, 2, 0), 1 * MIB, 2 * MIB);
    assert_in_range(room_of(m, 8, 1, 0), 5 * MIB, 6 * MIB);
    assert_int_equal(stat_of(m, 7, 1, 1).st_size, 6 * MIB);
    assert_int_equal(stat_of(m, 7, 1, 1).st_mtim.tv_sec, (NOW_MS - 60 * MINUTE_MS) / 1000);
    run_round(m);
    assert_int_equal(m->round.files_cut, 0); /* the cut has left slack */
}

static void the_oldest_ended_jobs_are_removed_first(void **state)
{
    struct room *m = *state;

    put_log(m, 1, 1, 0, 2, 30);
    put_log(m, 2, 1, 0, 2, 40);
    put_log(m, 3, 1, 0, 2, 50); /* runs, without output */
    put_log(m, 4, 1, 0, 2, 1);  /* has just ended */
    m->round.total = 7 * MIB;
    m->live[0] = 3;
    m->round.live_count = 1;
    run_round(m);
    assert_int_equal(m->round.jobs_removed, 1);
    assert_true(has_job(m, 1) && !has_job(m, 2) && has_job(m, 3) && has_job(m, 4));
    m->round.total = 3 * MIB;
    run_round(m);
    assert_true(!has_job(m, 1) && has_job(m, 3) && has_job(m, 4));
    assert_in_range(room_of(m, 3, 1, 0) + room_of(m, 4, 1, 0), MIB, 3 * MIB); /* both were cut */
}

static void without_limits_nothing_is_removed(void **state)
{
    struct room *m = *state;

    put_log(m, 1, 1, 0, 3, 99);
    run_round(m);
    assert_int_equal(m->round.files_cut + m->round.jobs_removed, 0);
    assert_in_range(room_of(m, 1, 1, 0), 3 * MIB, 4 * MIB);
}

/* The directory belongs to the job's user, and the agent may be root. */
static void files_of_a_user_are_not_cut(void **state)
{
    struct room *m = *state;
    CLEANUP(free_text) char *path = path_of(m, 7, 1, 0, "stdout.log");
    CLEANUP(free_text) char *other = xasprintf("%s/other", m->dir);
    struct stat st;

    put_log(m, 7, 1, 0, 4, 0);
    put_log(m, 7, 1, 1, 4, 0);
    assert_int_equal(rename(path, other), 0);
    assert_int_equal(symlink(other, path), 0);
    m->round.per_job = 2 * MIB;
    run_round(m);
    assert_int_equal(m->round.files_cut, 1);
    assert_int_equal(stat(other, &st), 0);
    assert_in_range((int64_t)st.st_blocks * 512, 4 * MIB, 5 * MIB);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, open_room, close_room)
    const struct CMUnitTest tests[] = {
        TEST(a_jobs_largest_logs_are_cut_to_its_limit),
        TEST(the_oldest_ended_jobs_are_removed_first),
        TEST(without_limits_nothing_is_removed),
        TEST(files_of_a_user_are_not_cut),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
