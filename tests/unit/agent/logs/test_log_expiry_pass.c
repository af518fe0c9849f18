#include "tests/unit/base/check.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/file.h"
#include "base/mem.h"
#include "daemon/agent/logs/log_expiry_pass.h"

#define DAY_MS (24LL * 3600 * 1000)
#define NOW_MS (1800000000LL * 1000)

static void make_file(const char *dir, const char *below, int age_days)
{
    CLEANUP(free_text) char *path = xasprintf("%s/%s", dir, below);
    CLEANUP(free_text) char *file = xasprintf("%s/stdout.log", path);
    struct timespec at = {(NOW_MS - age_days * DAY_MS) / 1000, 0}, both[2] = {at, at};
    struct err e;

    assert_ok(file_mkdirs(path, 0755, &e), &e);
    assert_ok(file_write_atomic(file, "x", 1, 0644, &e), &e);
    assert_int_equal(utimensat(AT_FDCWD, file, both, 0), 0);
    for (char *slash; strlen(path) > strlen(dir); *slash = '\0') {
        assert_int_equal(utimensat(AT_FDCWD, path, both, 0), 0);
        slash = strrchr(path, '/');
    }
}

/* Every job's directory has a log of its supervisor. */
static void make_supervisor_log(const char *dir, const char *name)
{
    CLEANUP(free_text) char *file = xasprintf("%s/%s", dir, name);
    struct timespec at = {(NOW_MS - 15 * DAY_MS) / 1000, 0}, both[2] = {at, at};
    struct err e;

    assert_ok(file_write_atomic(file, "x", 1, 0644, &e), &e);
    assert_int_equal(utimensat(AT_FDCWD, file, both, 0), 0);
    *strrchr(file, '/') = '\0';
    assert_int_equal(utimensat(AT_FDCWD, file, both, 0), 0);
}

static enum log_fate fate_of(void *ctx, int64_t job)
{
    (void)ctx;
    return job == 9 ? LOGS_STAY : job == 11 ? LOGS_DELETE : LOGS_EXPIRE;
}

static bool log_exists(const char *dir, const char *name)
{
    CLEANUP(free_text) char *path = xasprintf("%s/%s", dir, name);

    return file_exists(path);
}

static void old_logs_of_finished_jobs_are_removed(void **state)
{
    char dir[] = "/tmp/ddp-test-retain-XXXXXX";
    struct err e;
    int removed;

    (void)state;
    assert_non_null(mkdtemp(dir));
    make_file(dir, "7/generation_1/box1/0", 15);
    make_supervisor_log(dir, "7/supervisor.box1.log");
    make_file(dir, "8/generation_1/box1/0", 15);
    make_file(dir, "8/generation_2/box1/0", 13);                 /* the newest file counts */
    make_file(dir, "9/generation_1/box1/0", 15);                 /* the job still runs */
    make_file(dir, "11/generation_1/box1/0", 1);                 /* the job was deleted */
    make_file(dir, "former_1f2e3d4c/9/generation_1/box1/0", 15); /* of a former cluster's job 9 */
    make_file(dir, "former_5a6b7c8d/11/generation_1/box1/0", 1);
    make_file(dir, "others", 99); /* not a job */
    make_file(dir, "10x", 99);
    make_file(dir, "2024", 99); /* a user's directory that is named like a job */
    make_file(dir, "2025/notes", 99);
    make_file(dir, "2025/generation_1", 99);
    assert_ok(log_expiry_pass(dir, "box1", 14 * DAY_MS, NOW_MS, fate_of, NULL, &removed, &e), &e);
    assert_int_equal(removed, 3);
    assert_true(!log_exists(dir, "former_1f2e3d4c") &&
                log_exists(dir, "former_5a6b7c8d/11/generation_1/box1/0/stdout.log"));
    assert_true(!log_exists(dir, "7") && !log_exists(dir, "11") && log_exists(dir, "8") &&
                log_exists(dir, "9") && log_exists(dir, "others") && log_exists(dir, "10x") &&
                log_exists(dir, "2024") && log_exists(dir, "2025"));
    assert_ok(file_remove_tree(dir, &e), &e);
    assert_ok(log_expiry_pass(dir, "box1", 14 * DAY_MS, NOW_MS, fate_of, NULL, &removed, &e), &e);
    assert_int_equal(removed, 0);
}

/* Two agents share the directory: this one does not know whether a job still runs on the other node. */
static void other_nodes_logs_stay(void **state)
{
    char dir[] = "/tmp/ddp-test-retain-XXXXXX";
    struct err e;
    int removed;

    (void)state;
    assert_non_null(mkdtemp(dir));
    make_file(dir, "7/generation_1/box1/0", 15);
    make_file(dir, "7/generation_1/box2/0", 15);
    make_file(dir, "7/generation_2/box1/0", 15);
    make_supervisor_log(dir, "7/supervisor.box1.log");
    make_supervisor_log(dir, "7/supervisor.box2.log");
    make_file(dir, "8/generation_1/box2/0", 15);
    make_file(dir, "11/generation_1/box1/0", 1); /* deleted */
    make_file(dir, "11/generation_1/box2/0", 1);
    make_file(dir, "12/generation_1/box1/0", 15);
    make_file(dir, "12/generation_1/box2/0", 1);
    assert_ok(log_expiry_pass(dir, "box1", 14 * DAY_MS, NOW_MS, fate_of, NULL, &removed, &e), &e);
    assert_int_equal(removed, 3);
    assert_true(!log_exists(dir, "7/generation_1/box1") && !log_exists(dir, "7/generation_2") &&
                !log_exists(dir, "7/supervisor.box1.log") && !log_exists(dir, "11/generation_1/box1") &&
                !log_exists(dir, "12/generation_1/box1"));
    assert_true(log_exists(dir, "7/generation_1/box2/0/stdout.log") &&
                log_exists(dir, "7/supervisor.box2.log") &&
                log_exists(dir, "8/generation_1/box2/0/stdout.log") &&
                log_exists(dir, "11/generation_1/box2/0/stdout.log") &&
                log_exists(dir, "12/generation_1/box2/0/stdout.log"));
    assert_false(log_expiry_finds(dir, "box1", 11));
    assert_true(log_expiry_finds(dir, "box2", 11));
    assert_ok(log_expiry_pass(dir, "box2", 14 * DAY_MS, NOW_MS, fate_of, NULL, &removed, &e), &e);
    assert_int_equal(removed, 3);
    assert_true(!log_exists(dir, "7") && !log_exists(dir, "8") && !log_exists(dir, "11"));
    assert_ok(file_remove_tree(dir, &e), &e);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(old_logs_of_finished_jobs_are_removed),
                                       cmocka_unit_test(other_nodes_logs_stay)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
