/* The fault points around a commit, each at its first hits: the process is killed before the commit, or
 * between the commit and its acknowledgement; or the commit is refused and tried again. Needs a build with
 * DDP_FAULTS (presets debug, asan, tsan). */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/mem.h"
#include "store_test.h"

enum { COMMITS = 8 };

/* The child commits COMMITS jobs and acknowledges each on stdout. It repeats a refused commit unchanged. */
static int commit_jobs(const char *dir)
{
    struct err e = {0};
    struct store *s = NULL;
    if (store_open(&s, dir, &e) != ERR_OK)
        return 1;
    for (int64_t id = 1; id <= COMMITS; id++) {
        char request[32];
        struct job_record job = numbered_job(id, request);
        struct event_record event = sample_event(id, "queued");
        const struct change changes[] = {{.kind = CHANGE_JOB_INSERT, .job = &job},
                                         {.kind = CHANGE_EVENT, .event = &event}};
        enum err_code code = store_commit(s, changes, 2, &e);
        if (code == ERR_RESOURCE_EXHAUSTED)
            code = store_commit(s, changes, 2, &e);
        if (code != ERR_OK || write(STDOUT_FILENO, &id, sizeof id) != (ssize_t)sizeof id)
            return 1;
    }
    store_close(s);
    return 0;
}

/* Runs this program again as the child; returns the last acknowledged id. */
static int64_t run_child(const char *dir, const char *fault, int *status)
{
    int fds[2];
    assert_int_equal(pipe(fds), 0);
    const pid_t pid = fork();
    if (pid == 0) {
        dup2(fds[1], STDOUT_FILENO);
        setenv("DDP_FAULT", fault, 1);
        execl("/proc/self/exe", "test_store_faults", dir, (char *)NULL);
        _exit(127);
    }
    close(fds[1]);
    int64_t id = 0, last = 0;
    while (read(fds[0], &id, sizeof id) == (ssize_t)sizeof id)
        last = id;
    close(fds[0]);
    assert_int_equal(waitpid(pid, status, 0), pid);
    return last;
}

static void check_stored(const char *dir, size_t want)
{
    struct err e = {0};
    struct store *s = must_open(dir);
    CLEANUP(records_release) struct records got;
    assert_int_equal(store_load(s, &got, &e), ERR_OK);
    assert_int_equal(got.job_count, want);
    for (size_t i = 0; i < got.job_count; i++) {
        struct event_record *events;
        size_t count;
        assert_int_equal(store_events(s, got.jobs[i].id, 0, 9, &events, &count, &e), ERR_OK);
        assert_int_equal(count, 1);
        store_events_free(events, count);
    }
    store_close(s);
}

/* extra: the number of commits that are in the store but not acknowledged after a kill at this point. */
static void sweep_kill(const char *point, size_t extra)
{
#ifndef DDP_FAULTS
    skip();
#endif
    for (int hit = 1; hit <= COMMITS; hit++) {
        char *dir = make_dir();
        CLEANUP(free_text) char *fault = xasprintf("%s:%d=kill", point, hit);
        int status;
        const int64_t last = run_child(dir, fault, &status);
        assert_true(WIFSIGNALED(status));
        assert_int_equal(last, hit - 1);
        check_stored(dir, (size_t)last + extra);
        remove_dir(dir);
    }
}

static void killed_before_a_commit(void **state)
{
    (void)state;
    sweep_kill("store.commit", 0);
}

static void killed_before_the_acknowledgement(void **state)
{
    (void)state;
    sweep_kill("store.committed", 1);
}

static void a_refused_commit_passes_the_second_time(void **state)
{
    (void)state;
#ifndef DDP_FAULTS
    skip();
#endif
    for (int hit = 1; hit <= COMMITS; hit++) {
        char *dir = make_dir();
        CLEANUP(free_text) char *fault = xasprintf("store.commit:%d", hit);
        int status;
        assert_int_equal(run_child(dir, fault, &status), COMMITS);
        assert_int_equal(status, 0);
        check_stored(dir, COMMITS);
        remove_dir(dir);
    }
}

/* The commit is in the database, but its mark is not on disk, so the commit is not acknowledged. The second
 * try must not apply it twice. */
static void a_refused_mark_passes_the_second_time(void **state)
{
    (void)state;
#ifndef DDP_FAULTS
    skip();
#endif
    for (int hit = 1; hit <= COMMITS; hit++) {
        char *dir = make_dir();
        CLEANUP(free_text) char *fault = xasprintf("store.mark:%d", hit);
        int status;
        assert_int_equal(run_child(dir, fault, &status), COMMITS);
        assert_int_equal(status, 0);
        check_stored(dir, COMMITS);
        remove_dir(dir);
    }
}

static void killed_before_the_mark(void **state)
{
    (void)state;
    sweep_kill("store.mark", 1);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(killed_before_a_commit),
        cmocka_unit_test(killed_before_the_acknowledgement),
        cmocka_unit_test(a_refused_commit_passes_the_second_time),
        cmocka_unit_test(a_refused_mark_passes_the_second_time),
        cmocka_unit_test(killed_before_the_mark),
    };
    if (argc == 2)
        return commit_jobs(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
