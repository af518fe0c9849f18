/* A commit that fails may still be found in the database by the next start. The store says so, because the job of a submit that was
 * refused must never run. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/mem.h"
#include "failing_disk.h"
#include "store/db.h"
#include "store/mark.h"
#include "store_test.h"

static bool mark_fails;

enum err_code __real_mark_write(struct mark_file *f, const struct mark *mark, struct err *e);
enum err_code __wrap_mark_write(struct mark_file *f, const struct mark *mark, struct err *e);
enum err_code __wrap_mark_write(struct mark_file *f, const struct mark *mark, struct err *e)
{
    return mark_fails ? err_set(e, ERR_RESOURCE_EXHAUSTED, "ddp.mark: no space left")
                      : __real_mark_write(f, mark, e);
}

static int doubt_setup(void **state)
{
    *state = make_dir();
    failing_disk_install();
    return 0;
}

static int doubt_teardown(void **state)
{
    remove_dir(*state);
    failing_disk_remove();
    mark_fails = false;
    return 0;
}

static enum err_code try_insert(struct store *s, int64_t id)
{
    char request[32];
    struct err e = {0};
    struct job_record job = numbered_job(id, request);
    return store_commit(s, &(struct change){.kind = CHANGE_JOB_INSERT, .job = &job}, 1, &e);
}

static size_t stored_jobs(const char *dir)
{
    struct err e = {0};
    struct store *s = must_open(dir);
    CLEANUP(records_release) struct records got;
    assert_int_equal(store_load(s, &got, &e), ERR_OK);
    store_close(s);
    return got.job_count;
}

static void a_list_without_its_mark_is_in_doubt(void **state)
{
    struct store *s = must_open(*state);
    assert_false(store_in_doubt(s));
    mark_fails = true;
    for (int i = 0; i < 2; i++) {
        assert_int_equal(try_insert(s, 1), ERR_RESOURCE_EXHAUSTED);
        assert_true(store_in_doubt(s));
    }
    mark_fails = false;
    assert_int_equal(try_insert(s, 1), ERR_OK);
    assert_false(store_in_doubt(s));
    mark_fails = true;
    assert_int_equal(try_insert(s, 2), ERR_RESOURCE_EXHAUSTED);
    assert_true(store_in_doubt(s));
    store_close(s);
    mark_fails = false;
    assert_int_equal(stored_jobs(*state), 2);
}

static void a_list_that_waits_for_a_lock_is_not_in_doubt(void **state)
{
    struct store *s = must_open(*state);
    CLEANUP(free_text) char *path = xasprintf("%s/ddp.db", (char *)*state);
    CLEANUP(db_close) sqlite3 *other = NULL;
    struct err e = {0};
    assert_int_equal(db_open(&other, path, DB_SYNC_FULL, &e), ERR_OK);
    assert_int_equal(db_exec(other, "BEGIN IMMEDIATE", &e), ERR_OK);
    assert_int_equal(try_insert(s, 1), ERR_UNAVAILABLE);
    assert_false(store_in_doubt(s));
    store_close(s);
}

/* A process commits a job on a failing disk and ends at once. Checks whether the store says that it is in doubt, and whether the next
 * start finds the job. */
static void check_end_after(const char *dir, struct failing_disk fault, bool in_doubt)
{
    int status;
    store_close(must_open(dir));
    const pid_t pid = fork();
    if (pid == 0) {
        struct err e = {0};
        struct store *s = NULL;
        if (store_open(&s, dir, &e) != ERR_OK)
            _exit(2);
        failing_disk = fault;
        _exit(try_insert(s, 1) == ERR_RESOURCE_EXHAUSTED && store_in_doubt(s) == in_doubt ? 0 : 1);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    assert_int_equal(stored_jobs(dir), in_doubt);
}

static void a_list_whose_sync_failed_is_in_doubt(void **state)
{
    check_end_after(*state, (struct failing_disk){.log_sync = SQLITE_IOERR_FSYNC}, true);
}

static void a_list_whose_write_failed_is_not_in_doubt(void **state)
{
    CLEANUP(free_text) char *full = xasprintf("%s/full", (char *)*state);
    check_end_after(*state, (struct failing_disk){.log_write = SQLITE_IOERR_WRITE}, false);
    check_end_after(full, (struct failing_disk){.log_write = SQLITE_FULL}, false);
}

static void the_doubt_ends_with_the_next_commit(void **state)
{
    struct store *s = must_open(*state);
    failing_disk.log_sync = SQLITE_IOERR_FSYNC;
    assert_int_equal(try_insert(s, 1), ERR_RESOURCE_EXHAUSTED);
    failing_disk.log_sync = SQLITE_OK;
    assert_true(store_in_doubt(s));
    assert_int_equal(try_insert(s, 1), ERR_OK);
    assert_false(store_in_doubt(s));
    store_close(s);
    assert_int_equal(stored_jobs(*state), 1);
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, doubt_setup, doubt_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_list_without_its_mark_is_in_doubt),  TEST(a_list_that_waits_for_a_lock_is_not_in_doubt),
        TEST(a_list_whose_sync_failed_is_in_doubt), TEST(a_list_whose_write_failed_is_not_in_doubt),
        TEST(the_doubt_ends_with_the_next_commit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
