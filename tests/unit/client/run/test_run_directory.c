#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/paths.h"
#include "client/run/run_directory.h"

static char tmp[64];
static void (*before_lock)(int fd); /* what happens before the next flock */

int __real_flock(int fd, int operation);
int __wrap_flock(int fd, int operation);

int __wrap_flock(int fd, int operation)
{
    void (*hook)(int) = before_lock;
    before_lock = NULL;
    if (hook)
        hook(fd);
    return __real_flock(fd, operation);
}

static int make_tmp(void **state)
{
    (void)state;
    strcpy(tmp, "/tmp/ddp-test-XXXXXX");
    return !mkdtemp(tmp);
}

static int remove_tmp(void **state)
{
    (void)state;
    struct err e;
    return file_remove_tree(tmp, &e) != ERR_OK;
}

/* Makes a run's directory, which must be a private one that another run's sweep leaves alone. */
static void make_a_directory_that_stays(void)
{
    CLEANUP(free_text) char *dir = NULL;
    CLEANUP(free_text) char *other = NULL;
    CLEANUP(close_fd) int lock = -1;
    CLEANUP(close_fd) int other_lock = -1;
    struct stat st;
    struct err e;
    assert_int_equal(run_directory_make(tmp, &dir, &lock, &e), ERR_OK);
    assert_int_equal(run_directory_make(tmp, &other, &other_lock, &e), ERR_OK);
    assert_string_not_equal(dir, other);
    assert_int_equal(stat(dir, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0700);
    CLEANUP(free_text) char *path = paths_join(dir, "lock");
    assert_int_equal(stat(path, &st), 0);
}

static void test_directory_of_a_killed_run_is_removed(void **state)
{
    (void)state;
    CLEANUP(free_text) char *killed = NULL;
    int lock;
    struct err e;
    assert_int_equal(run_directory_make(tmp, &killed, &lock, &e), ERR_OK);
    close(lock);
    make_a_directory_that_stays();
    assert_false(file_exists(killed));
}

static char *lock_path(int fd)
{
    char path[256];
    CLEANUP(free_text) char *link = xasprintf("/proc/self/fd/%d", fd);
    const ssize_t n = readlink(link, path, sizeof(path) - 1);
    assert_true(n > 0);
    path[n] = 0;
    return xstrdup(path);
}

static void another_run_starts(int fd)
{
    CLEANUP(free_text) char *path = lock_path(fd);
    CLEANUP(free_text) char *dir = NULL;
    CLEANUP(close_fd) int lock = -1;
    struct err e;
    assert_int_equal(run_directory_make(tmp, &dir, &lock, &e), ERR_OK);
    assert_false(file_exists(path));
}

/* The other run's sweep comes between the creation of the lock file and its lock, and ends. */
static void test_directory_that_a_sweep_removed_is_made_again(void **state)
{
    (void)state;
    before_lock = another_run_starts;
    make_a_directory_that_stays();
    assert_null(before_lock);
}

static int held = -1;

static void another_run_holds_the_lock(int fd)
{
    CLEANUP(free_text) char *path = lock_path(fd);
    held = open(path, O_RDWR | O_CLOEXEC);
    assert_true(held >= 0);
    assert_int_equal(__real_flock(held, LOCK_EX), 0);
}

/* The same, and the sweep goes on meanwhile. */
static void test_directory_that_a_sweep_is_removing_is_left_to_it(void **state)
{
    (void)state;
    before_lock = another_run_holds_the_lock;
    make_a_directory_that_stays();
    close_fd(&held);
}

static void the_run_ends_and_keeps_its_logs(int fd)
{
    CLEANUP(free_text) char *path = lock_path(fd);
    assert_int_equal(unlink(path), 0);
}

/* The run ends after the sweep has opened its lock file, and before the sweep locks the file. */
static void test_sweep_leaves_kept_logs(void **state)
{
    (void)state;
    CLEANUP(free_text) char *dir = NULL;
    int lock;
    struct err e;
    assert_int_equal(run_directory_make(tmp, &dir, &lock, &e), ERR_OK);
    close(lock);
    before_lock = the_run_ends_and_keeps_its_logs;
    make_a_directory_that_stays();
    assert_true(file_exists(dir));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_directory_of_a_killed_run_is_removed, make_tmp, remove_tmp),
        cmocka_unit_test_setup_teardown(test_directory_that_a_sweep_removed_is_made_again, make_tmp,
                                        remove_tmp),
        cmocka_unit_test_setup_teardown(test_directory_that_a_sweep_is_removing_is_left_to_it, make_tmp,
                                        remove_tmp),
        cmocka_unit_test_setup_teardown(test_sweep_leaves_kept_logs, make_tmp, remove_tmp),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
