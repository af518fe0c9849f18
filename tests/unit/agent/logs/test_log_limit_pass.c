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

struct fixture {
    char dir[64];
    struct log_limit_pass pass;
    int64_t live[4];
};

static int fixture_open(void **state)
{
    struct fixture *f = xcalloc(1, sizeof(*f));

    strcpy(f->dir, "/tmp/ddp-test-room-XXXXXX");
    f->pass = (struct log_limit_pass){.log_dir = f->dir, .node = "box1", .now_ms = NOW_MS, .live = f->live};
    *state = f;
    return mkdtemp(f->dir) ? 0 : -1;
}

static int fixture_close(void **state)
{
    struct fixture *f = *state;
    struct err e;
    enum err_code code = file_remove_tree(f->dir, &e);

    log_limit_pass_release(&f->pass);
    free(f);
    return code ? -1 : 0;
}

static char *path_of(struct fixture *f, int job, int generation, int rank, const char *name)
{
    return xasprintf("%s/%d/generation_%d/box1/%d%s%s", f->dir, job, generation, rank, name ? "/" : "",
                     name ? name : "");
}

/* Makes a log of `mib` MiB that was last written `age` minutes ago. */
static void put_log(struct fixture *f, int job, int generation, int rank, int mib, int age)
{
    CLEANUP(free_text) char *dir = path_of(f, job, generation, rank, NULL);
    CLEANUP(free_text) char *path = path_of(f, job, generation, rank, "stdout.log");
    struct timespec at = {(NOW_MS - age * MINUTE_MS) / 1000, 0}, both[2] = {at, at};
    struct err e;
    FILE *file;

    assert_ok(file_mkdirs(dir, 0755, &e), &e);
    file = fopen(path, "w");
    assert_non_null(file);
    for (int i = 0; i < mib * 1024 * 16; i++)
        fprintf(file, "%063d\n", i);
    fclose(file);
    assert_int_equal(utimensat(AT_FDCWD, path, both, 0), 0);
}

static struct stat stat_of(struct fixture *f, int job, int generation, int rank)
{
    CLEANUP(free_text) char *path = path_of(f, job, generation, rank, "stdout.log");
    struct stat st;

    assert_int_equal(stat(path, &st), 0);
    return st;
}

static int64_t disk_bytes(struct fixture *f, int job, int generation, int rank)
{
    return (int64_t)stat_of(f, job, generation, rank).st_blocks * 512;
}

static bool has_job(struct fixture *f, int job)
{
    CLEANUP(free_text) char *path = xasprintf("%s/%d", f->dir, job);

    return file_exists(path);
}

static void run_pass(struct fixture *f)
{
    log_limit_pass_run(&f->pass);
    if (f->pass.problem.code == ERR_UNIMPLEMENTED)
        skip(); /* this file system cannot make holes in files */
    if (f->pass.problem.code)
        fail_msg("%s", f->pass.problem.msg);
}

static void a_jobs_largest_logs_are_cut_to_its_limit(void **state)
{
    struct fixture *f = *state;

    put_log(f, 7, 1, 0, 1, 60);
    put_log(f, 7, 1, 1, 6, 60);
    put_log(f, 7, 2, 0, 4, 0);
    put_log(f, 8, 1, 0, 5, 0);
    f->pass.per_job = 6 * MIB;
    f->live[0] = 7;
    f->live[1] = 8;
    f->pass.live_count = 2;
    run_pass(f);
    assert_int_equal(f->pass.files_cut, 2);
    assert_in_range(disk_bytes(f, 7, 1, 0), 1 * MIB, 1 * MIB + MIB / 8);
    assert_in_range(disk_bytes(f, 7, 1, 1), 1 * MIB, 2 * MIB);
    assert_in_range(disk_bytes(f, 7, 2, 0), 1 * MIB, 2 * MIB);
    assert_in_range(disk_bytes(f, 8, 1, 0), 5 * MIB, 6 * MIB);
    assert_int_equal(stat_of(f, 7, 1, 1).st_size, 6 * MIB);
    assert_int_equal(stat_of(f, 7, 1, 1).st_mtim.tv_sec, (NOW_MS - 60 * MINUTE_MS) / 1000);
    run_pass(f);
    /* The first pass cut more than was needed, so that not every pass cuts. */
    assert_int_equal(f->pass.files_cut, 0);
}

static void the_oldest_ended_jobs_are_removed_first(void **state)
{
    struct fixture *f = *state;

    put_log(f, 1, 1, 0, 2, 30);
    put_log(f, 2, 1, 0, 2, 40);
    put_log(f, 3, 1, 0, 2, 50); /* the job runs, but writes nothing */
    put_log(f, 4, 1, 0, 2, 1);  /* the job ended a minute ago */
    f->pass.total = 7 * MIB;
    f->live[0] = 3;
    f->pass.live_count = 1;
    run_pass(f);
    assert_int_equal(f->pass.jobs_removed, 1);
    assert_true(has_job(f, 1) && !has_job(f, 2) && has_job(f, 3) && has_job(f, 4));
    f->pass.total = 3 * MIB;
    run_pass(f);
    assert_true(!has_job(f, 1) && has_job(f, 3) && has_job(f, 4));
    assert_in_range(disk_bytes(f, 3, 1, 0) + disk_bytes(f, 4, 1, 0), MIB, 3 * MIB); /* both were cut */
}

/* Two agents share the directory: job 1 has ended on this node, but it runs on the other. */
static void other_nodes_logs_are_not_removed(void **state)
{
    struct fixture *f = *state;
    CLEANUP(free_text) char *generation = xasprintf("%s/1/generation_1", f->dir);
    CLEANUP(free_text) char *mine = xasprintf("%s/box1", generation);
    CLEANUP(free_text) char *theirs = xasprintf("%s/box2", generation);

    put_log(f, 1, 1, 0, 2, 99);
    assert_int_equal(rename(mine, theirs), 0);
    put_log(f, 1, 1, 0, 2, 99);
    f->pass.total = MIB;
    run_pass(f);
    assert_int_equal(f->pass.jobs_removed, 1);
    assert_true(!file_exists(mine) && file_exists(theirs));
    run_pass(f);
    assert_int_equal(f->pass.jobs_removed, 0);
    assert_true(file_exists(theirs));
}

static void logs_of_former_clusters_count(void **state)
{
    struct fixture *f = *state;
    CLEANUP(free_text) char *job = xasprintf("%s/1", f->dir);
    CLEANUP(free_text) char *former = xasprintf("%s/former_1f2e3d4c", f->dir);
    CLEANUP(free_text) char *moved = xasprintf("%s/1", former);
    struct err e;

    put_log(f, 1, 1, 0, 2, 99);
    assert_ok(file_mkdirs(former, 0755, &e), &e);
    assert_int_equal(rename(job, moved), 0);
    put_log(f, 1, 1, 0, 2, 30);
    f->live[0] = 1; /* the number of a live job of this cluster */
    f->pass.live_count = 1;
    f->pass.total = 3 * MIB;
    run_pass(f);
    assert_int_equal(f->pass.jobs_removed, 1);
    assert_true(!file_exists(moved) && has_job(f, 1));
    assert_in_range(disk_bytes(f, 1, 1, 0), 2 * MIB, 3 * MIB);
}

static void without_limits_nothing_is_removed(void **state)
{
    struct fixture *f = *state;

    put_log(f, 1, 1, 0, 3, 99);
    run_pass(f);
    assert_int_equal(f->pass.files_cut + f->pass.jobs_removed, 0);
    assert_in_range(disk_bytes(f, 1, 1, 0), 3 * MIB, 4 * MIB);
}

/* The log directory belongs to the job's user, who can place a link there, and the agent may be root. */
static void files_of_a_user_are_not_cut(void **state)
{
    struct fixture *f = *state;
    CLEANUP(free_text) char *path = path_of(f, 7, 1, 0, "stdout.log");
    CLEANUP(free_text) char *other = xasprintf("%s/other", f->dir);
    struct stat st;

    put_log(f, 7, 1, 0, 4, 0);
    put_log(f, 7, 1, 1, 4, 0);
    assert_int_equal(rename(path, other), 0);
    assert_int_equal(symlink(other, path), 0);
    f->pass.per_job = 2 * MIB;
    run_pass(f);
    assert_int_equal(f->pass.files_cut, 1);
    assert_int_equal(stat(other, &st), 0);
    assert_in_range((int64_t)st.st_blocks * 512, 4 * MIB, 5 * MIB);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, fixture_open, fixture_close)
    const struct CMUnitTest tests[] = {
        TEST(a_jobs_largest_logs_are_cut_to_its_limit), TEST(the_oldest_ended_jobs_are_removed_first),
        TEST(other_nodes_logs_are_not_removed),         TEST(logs_of_former_clusters_count),
        TEST(without_limits_nothing_is_removed),        TEST(files_of_a_user_are_not_cut),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
