/* The files of the store hold tokens, so only their owner can read them, whatever the umask. The store must not change the umask, which
 * belongs to all threads of the process: another thread would make its files by it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/mem.h"
#include "store/backup.h"
#include "store/db.h"
#include "store/metrics.h"
#include "store/schema.h"
#include "store_test.h"

static int umask_calls;

mode_t __real_umask(mode_t mask);
mode_t __wrap_umask(mode_t mask);
mode_t __wrap_umask(mode_t mask)
{
    umask_calls++;
    return __real_umask(mask);
}

static mode_t former_mask;

static int modes_setup(void **state)
{
    umask_calls = 0;
    *state = make_dir();
    former_mask = __real_umask(0);
    return 0;
}

static int modes_teardown(void **state)
{
    __real_umask(former_mask);
    remove_dir(*state);
    return 0;
}

static void check_private(const char *dir, const char *name)
{
    CLEANUP(free_text) char *path = xasprintf("%s/%s", dir, name);
    struct stat st;
    if (stat(path, &st) != 0)
        fail_msg("%s is missing", path);
    if ((st.st_mode & 0777) != 0600)
        fail_msg("%s has mode %o", path, st.st_mode & 0777);
}

static void the_database_and_its_backup_are_private(void **state)
{
    CLEANUP(free_text) char *copy = xasprintf("%s/copy.db", (char *)*state);
    struct err e = {0};
    struct store *s = must_open(*state);
    insert_job(s, 1);
    check_private(*state, "ddp.db");
    check_private(*state, "ddp.db-wal");
    check_private(*state, "ddp.db-shm");
    check_private(*state, "ddp.mark");
    assert_int_equal(backup_make(*state, copy, NULL, &e), ERR_OK);
    check_private(*state, "copy.db");
    store_close(s);
    assert_int_equal(umask_calls, 0);
}

static void the_metrics_are_private(void **state)
{
    struct err e = {0};
    struct metrics *m = NULL;
    assert_int_equal(metrics_open(&m, *state, &e), ERR_OK);
    check_private(*state, "metrics.db");
    check_private(*state, "metrics.db-wal");
    metrics_close(m);
    assert_int_equal(umask_calls, 0);
}

static void the_copy_before_a_migration_is_private(void **state)
{
    static const char *const steps[] = {"CREATE TABLE a(x INTEGER) STRICT;", "INSERT INTO a VALUES(1);"};
    CLEANUP(free_text) char *path = xasprintf("%s/t.db", (char *)*state);
    CLEANUP(db_close) sqlite3 *db = NULL;
    struct err e = {0};
    assert_int_equal(db_open(&db, path, DB_SYNC_FULL, &e), ERR_OK);
    assert_int_equal(schema_migrate(db, steps, 1, path, &e), ERR_OK);
    assert_int_equal(schema_migrate(db, steps, 2, path, &e), ERR_OK);
    check_private(*state, "t.db.v1.bak");
    assert_int_equal(umask_calls, 0);
}

static void a_file_that_exists_keeps_its_content(void **state)
{
    CLEANUP(free_text) char *path = xasprintf("%s/t.db", (char *)*state);
    CLEANUP(free_text) char *below = xasprintf("%s/none/t.db", (char *)*state);
    struct err e = {0};
    struct stat st;
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs("content", f);
    fclose(f);
    assert_int_equal(db_make_file(path, &e), ERR_OK);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_size, 7);
    assert_int_equal(db_make_file(below, &e), ERR_RESOURCE_EXHAUSTED);
}

static void the_target_of_a_link_is_made(void **state)
{
    CLEANUP(free_text) char *path = xasprintf("%s/t.db", (char *)*state);
    CLEANUP(db_close) sqlite3 *db = NULL;
    struct err e = {0};
    assert_int_equal(symlink("target.db", path), 0);
    assert_int_equal(db_open(&db, path, DB_SYNC_FULL, &e), ERR_OK);
    check_private(*state, "target.db");
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, modes_setup, modes_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(the_database_and_its_backup_are_private),
        TEST(the_metrics_are_private),
        TEST(the_copy_before_a_migration_is_private),
        TEST(a_file_that_exists_keeps_its_content),
        TEST(the_target_of_a_link_is_made),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
