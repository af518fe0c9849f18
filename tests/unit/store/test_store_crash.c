/* A process that is killed while it commits loses nothing that it has acknowledged. A full disk loses
 * nothing, and commits succeed again when there is space. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/mem.h"
#include "store_test.h"

static int crash_setup(void **state)
{
    *state = make_dir();
    return 0;
}

static int crash_teardown(void **state)
{
    remove_dir(*state);
    return 0;
}

/* Commits a job and its event in one list, then acknowledges: writes the job's id to the parent. For ever. */
static _Noreturn void commit_for_ever(const char *dir, int ack)
{
    struct err e = {0};
    struct store *s = NULL;
    struct records records;
    if (store_open(&s, dir, &e) != ERR_OK || store_load(s, &records, &e) != ERR_OK)
        _exit(1);
    for (int64_t id = records.next_job;; id++) {
        char request[32];
        struct job_record job = numbered_job(id, request);
        struct event_record event = sample_event(id, "queued");
        const struct change changes[] = {{.kind = CHANGE_JOB_INSERT, .job = &job},
                                         {.kind = CHANGE_EVENT, .event = &event}};
        if (store_commit(s, changes, 2, &e) != ERR_OK || write(ack, &id, sizeof id) != (ssize_t)sizeof id)
            _exit(1);
    }
}

static int64_t read_acks(int fd, int count)
{
    int64_t id = 0, last = 0;
    for (int i = 0; (count == 0 || i < count) && read(fd, &id, sizeof id) == (ssize_t)sizeof id; i++)
        last = id;
    return last;
}

/* Kills a committing child after `acks` acknowledgements, and returns the last id that it acknowledged. */
static int64_t crash_after(const char *dir, int acks)
{
    int fds[2];
    assert_int_equal(pipe(fds), 0);
    const pid_t pid = fork();
    if (pid == 0) {
        close(fds[0]);
        commit_for_ever(dir, fds[1]);
    }
    close(fds[1]);
    int64_t last = read_acks(fds[0], acks);
    assert_int_equal(kill(pid, SIGKILL), 0);
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status));
    const int64_t rest = read_acks(fds[0], 0); /* acknowledgements that were still in the pipe */
    close(fds[0]);
    return rest > last ? rest : last;
}

static void acknowledged_jobs_survive_sigkill(void **state)
{
    for (int round = 0; round < 8; round++) {
        const int64_t last = crash_after(*state, 3 + 7 * round);
        struct store *s = must_open(*state);
        struct err e = {0};
        CLEANUP(records_release) struct records got;
        assert_int_equal(store_load(s, &got, &e), ERR_OK);
        /* Ids count from 1. All acknowledged jobs are there, and at most one that was committed but not yet
         * acknowledged. */
        assert_true((int64_t)got.job_count == last || (int64_t)got.job_count == last + 1);
        for (size_t i = 0; i < got.job_count; i++) {
            assert_int_equal(got.jobs[i].id, i + 1);
            struct event_record *events;
            size_t count;
            assert_int_equal(store_events(s, got.jobs[i].id, 0, 9, &events, &count, &e), ERR_OK);
            assert_int_equal(count, 1); /* job and event were committed together */
            store_events_free(events, count);
        }
        store_close(s);
    }
}

/* Inserts big jobs until the store refuses one; returns the id of the refused job. */
static int64_t fill_disk(struct store *s, int64_t id, char *big, int64_t limit)
{
    for (; id < limit; id++) {
        struct err e = {0};
        char request[32];
        struct job_record job = numbered_job(id, request);
        job.job_file = big;
        const struct change change = {.kind = CHANGE_JOB_INSERT, .job = &job};
        const enum err_code code = store_commit(s, &change, 1, &e);
        if (code == ERR_OK)
            continue;
        assert_int_equal(code, ERR_RESOURCE_EXHAUSTED);
        return id;
    }
    fail_msg("the disk never got full");
    return 0;
}

static void check_count(struct store *s, int64_t want)
{
    struct err e = {0};
    CLEANUP(records_release) struct records got;
    assert_int_equal(store_load(s, &got, &e), ERR_OK);
    assert_int_equal(got.job_count, want);
}

static char *big_text(size_t size)
{
    char *text = xmalloc(size + 1);
    memset(text, 'x', size);
    text[size] = '\0';
    return text;
}

static void a_commit_refused_by_a_file_size_limit_passes_later(void **state)
{
    CLEANUP(free_text) char *big = big_text(50000);
    struct store *s = must_open(*state);
    struct rlimit old, small = {.rlim_cur = 1 << 20};
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    small.rlim_max = old.rlim_max;
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    const int64_t refused = fill_disk(s, 1, big, 1000);
    assert_true(refused > 1);
    check_count(s, refused - 1); /* still readable, without the refused job */
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
    insert_job(s, refused); /* the same change now passes, on the same store */
    check_count(s, refused);
    store_close(s);
}

static void a_commit_refused_by_a_full_disk_passes_later(void **state)
{
    if (mount("tmpfs", *state, "tmpfs", 0, "size=3m") != 0)
        skip(); /* not root: the test with the file size limit covers the same */
    CLEANUP(free_text) char *big = big_text(50000);
    CLEANUP(free_text) char *ballast = xasprintf("%s/ballast", (char *)*state);
    FILE *file = fopen(ballast, "w");
    assert_non_null(file);
    assert_int_equal(fwrite(big, 50000, 1, file), 1);
    assert_int_equal(fwrite(big, 50000, 1, file), 1);
    assert_int_equal(fclose(file), 0);
    struct store *s = must_open(*state);
    const int64_t refused = fill_disk(s, 1, big, 1000);
    assert_true(refused > 1);
    check_count(s, refused - 1);
    assert_int_equal(unlink(ballast), 0);
    insert_job(s, refused);
    check_count(s, refused);
    store_close(s);
    assert_int_equal(umount(*state), 0);
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, crash_setup, crash_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(acknowledged_jobs_survive_sigkill),
        TEST(a_commit_refused_by_a_file_size_limit_passes_later),
        TEST(a_commit_refused_by_a_full_disk_passes_later),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
