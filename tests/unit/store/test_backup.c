/* Backups of the database: making, restoring and removing them. */
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/file.h"
#include "base/mem.h"
#include "failing_disk.h"
#include "store/backup.h"
#include "store_test.h"

static int backup_setup(void **state)
{
    *state = make_dir();
    return 0;
}

static int backup_teardown(void **state)
{
    remove_dir(*state);
    return 0;
}

static void must_back_up(const char *state, const char *to)
{
    struct err e = {0};
    if (backup_make(state, to, NULL, &e) != ERR_OK)
        fail_msg("%s", e.msg);
}

static void must_restore(const char *state, const char *file, bool replaces)
{
    struct err e = {0};
    CLEANUP(buf_release) struct buf said = {0};
    if (backup_restore(state, file, &said, &e) != ERR_OK)
        fail_msg("%s", e.msg);
    assert_non_null(strstr(said.data, file));
    assert_int_equal(strstr(said.data, "ddp.db.replaced") != NULL, replaces);
}

static void must_not_restore(const char *state, const char *file, enum err_code code)
{
    struct err e = {0};
    CLEANUP(buf_release) struct buf said = {0};
    if (backup_restore(state, file, &said, &e) != code)
        fail_msg("%s", e.msg);
}

static struct records load_records(struct store *s)
{
    struct err e = {0};
    struct records got;
    assert_int_equal(store_load(s, &got, &e), ERR_OK);
    return got;
}

static size_t jobs_in(struct store *s)
{
    CLEANUP(records_release) struct records got = load_records(s);
    return got.job_count;
}

static void backup_copies_a_running_store(void **state)
{
    CLEANUP(free_text) char *dir = xasprintf("%s/state", (char *)*state);
    CLEANUP(free_text) char *copies = xasprintf("%s/copies", (char *)*state);
    CLEANUP(free_text) char *to = backup_name(copies);
    CLEANUP(free_text) char *log = xasprintf("%s-wal", to);
    struct store *s = must_open(dir);
    for (int id = 1; id <= 5; id++)
        insert_job(s, id);
    must_back_up(dir, to);
    insert_job(s, 6); /* the store can still commit */
    struct backup *list;
    size_t count;
    struct err e = {0};
    assert_int_equal(backup_list(copies, dir, &list, &count, &e), ERR_OK);
    assert_int_equal(count, 1);
    assert_string_equal(list[0].path, to);
    assert_int_equal(list[0].jobs, 5);
    assert_int_equal(list[0].last_job, 5);
    assert_int_equal(list[0].sequence, 6); /* one commit for each job, and one at the start */
    backups_free(list, count);
    assert_false(file_exists(log));
    struct stat st;
    assert_int_equal(stat(to, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600); /* it holds tokens */
    store_close(s);
}

static void restore_goes_back_to_the_backup(void **state)
{
    CLEANUP(free_text) char *dir = xasprintf("%s/state", (char *)*state);
    CLEANUP(free_text) char *copy = xasprintf("%s/copy.db", (char *)*state);
    struct store *s = must_open(dir);
    CLEANUP(free_text) char *id = xstrdup(store_cluster_id(s));
    insert_job(s, 1);
    insert_job(s, 2);
    must_back_up(dir, copy);
    insert_job(s, 3);
    must_not_restore(dir, copy, ERR_FAILED_PRECONDITION); /* the store is open */
    store_close(s);
    store_close(must_open(dir)); /* an epoch that the copy does not know */
    must_restore(dir, copy, true);

    s = must_open(dir);
    CLEANUP(records_release) struct records got = load_records(s);
    assert_int_equal(got.job_count, 2);
    assert_int_equal(got.next_job, 4); /* the lost job 3 keeps its number */
    assert_string_equal(store_cluster_id(s), id);
    assert_int_equal(store_epoch(s), 3);
    assert_int_equal(store_loss(s).epoch, 3); /* the loss belongs to this start */
    assert_int_equal(store_loss(s).first_job, 3);
    assert_int_equal(store_loss(s).last_job, 3);
    store_close(s);
}

static void restore_needs_no_intact_database(void **state)
{
    CLEANUP(free_text) char *dir = xasprintf("%s/state", (char *)*state);
    CLEANUP(free_text) char *fresh = xasprintf("%s/fresh", (char *)*state);
    CLEANUP(free_text) char *copy = xasprintf("%s/copy.db", (char *)*state);
    CLEANUP(free_text) char *db = xasprintf("%s/ddp.db", dir);
    struct store *s = must_open(dir);
    insert_job(s, 1);
    must_back_up(dir, copy);
    store_close(s);
    struct err e = {0};
    assert_int_equal(file_write_atomic(db, "junk", 4, 0600, &e), ERR_OK);
    must_restore(dir, copy, true);
    s = must_open(dir);
    assert_int_equal(jobs_in(s), 1);
    store_close(s);
    must_restore(fresh, copy, false); /* on another machine */
    s = must_open(fresh);
    assert_int_equal(jobs_in(s), 1);
    store_close(s);
}

static void restore_refuses_files_that_are_not_backups(void **state)
{
    CLEANUP(free_text) char *dir = xasprintf("%s/state", (char *)*state);
    CLEANUP(free_text) char *other = xasprintf("%s/other", (char *)*state);
    CLEANUP(free_text) char *foreign = xasprintf("%s/foreign.db", (char *)*state);
    CLEANUP(free_text) char *junk = xasprintf("%s/junk.db", (char *)*state);
    CLEANUP(free_text) char *missing = xasprintf("%s/missing.db", (char *)*state);
    struct store *s = must_open(dir);
    insert_job(s, 1);
    store_close(s);
    s = must_open(other);
    must_back_up(other, foreign);
    store_close(s);
    char bytes[8192];
    memset(bytes, 'x', sizeof bytes);
    struct err e = {0};
    assert_int_equal(file_write_atomic(junk, bytes, sizeof bytes, 0600, &e), ERR_OK);
    must_not_restore(dir, foreign, ERR_FAILED_PRECONDITION);
    must_not_restore(dir, junk, ERR_DATA_LOSS);
    must_not_restore(dir, missing, ERR_RESOURCE_EXHAUSTED); /* the code of SQLITE_CANTOPEN */
    s = must_open(dir);                                     /* nothing has changed */
    assert_int_equal(jobs_in(s), 1);
    store_close(s);
}

/* The log of the copy cannot be moved into its file, and a rename moves only the file. */
static void restore_fails_without_a_whole_copy(void **state)
{
    static const char *const suffixes[] = {"", "-journal", "-wal", "-shm"};
    CLEANUP(free_text) char *dir = xasprintf("%s/state", (char *)*state);
    CLEANUP(free_text) char *copy = xasprintf("%s/copy.db", (char *)*state);
    struct store *s = must_open(dir);
    insert_job(s, 1);
    must_back_up(dir, copy);
    insert_job(s, 2);
    store_close(s);
    failing_disk_install();
    failing_disk = (struct failing_disk){.checkpoint = SQLITE_IOERR_WRITE};
    must_not_restore(dir, copy, ERR_RESOURCE_EXHAUSTED);
    failing_disk_remove();
    for (size_t i = 0; i < ARRAY_LEN(suffixes); i++) {
        CLEANUP(free_text) char *path = xasprintf("%s/ddp.db.restore%s", dir, suffixes[i]);
        assert_false(file_exists(path));
    }
    s = must_open(dir); /* nothing has changed */
    assert_int_equal(jobs_in(s), 2);
    store_close(s);
    must_restore(dir, copy, true);
    s = must_open(dir);
    assert_int_equal(jobs_in(s), 1);
    store_close(s);
}

static void backup_refuses_a_database_that_lost_commits(void **state)
{
    CLEANUP(free_text) char *dir = xasprintf("%s/state", (char *)*state);
    CLEANUP(free_text) char *old = xasprintf("%s/old.db", (char *)*state);
    CLEANUP(free_text) char *db = xasprintf("%s/ddp.db", dir);
    CLEANUP(free_text) char *to = xasprintf("%s/copy.db", (char *)*state);
    struct store *s = must_open(dir);
    must_back_up(dir, old);
    insert_job(s, 1);
    store_close(s);
    assert_int_equal(rename(old, db), 0);
    struct err e = {0};
    assert_int_equal(backup_make(dir, to, NULL, &e), ERR_DATA_LOSS);
    assert_false(file_exists(to));
}

static void prune_keeps_the_newest_backups(void **state)
{
    struct store *s = must_open(*state);
    struct err e = {0};
    for (int i = 0; i < 5; i++) {
        CLEANUP(free_text) char *to = xasprintf("%s/b/ddp-2026010%dT000000Z.db", (char *)*state, i + 1);
        insert_job(s, i + 1);
        must_back_up(*state, to);
        const struct timespec times[2] = {{1000 + i, 0}, {1000 + i, 0}};
        assert_int_equal(utimensat(AT_FDCWD, to, times, 0), 0);
    }
    CLEANUP(free_text) char *dir = xasprintf("%s/b", (char *)*state);
    CLEANUP(free_text) char *mine = xasprintf("%s/b/notes", (char *)*state);
    CLEANUP(free_text) char *named = xasprintf("%s/b/monday.db", (char *)*state);
    assert_int_equal(file_write_atomic(mine, "x", 1, 0600, &e), ERR_OK);
    must_back_up(*state, named);
    CLEANUP(free_text) char *made = xasprintf("%s/ddp-20260105T000000Z.db", dir);
    assert_int_equal(backup_prune(dir, 2, made, &e), ERR_OK);
    struct backup *list;
    size_t count;
    assert_int_equal(backup_list(dir, *state, &list, &count, &e), ERR_OK);
    assert_int_equal(count, 2);
    assert_int_equal(list[0].jobs, 5);
    assert_int_equal(list[1].jobs, 4);
    assert_true(file_exists(mine));
    backups_free(list, count);
    /* A user's own backup is listed, and retention does not remove it. */
    assert_int_equal(backup_list_all(dir, *state, &list, &count, &e), ERR_OK);
    assert_int_equal(count, 3);
    assert_string_equal(list[0].path, named);
    assert_false(list[0].automatic);
    assert_true(list[1].automatic);
    backups_free(list, count);
    store_close(s);
}

static void set_file_time(const char *path, time_t second)
{
    const struct timespec times[2] = {{second, 0}, {second, 0}};
    assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
}

/* The clock was ahead while the first backups were made. */
static void a_new_backup_outlives_those_from_the_future(void **state)
{
    CLEANUP(free_text) char *dir = xasprintf("%s/b", (char *)*state);
    struct store *s = must_open(*state);
    struct err e = {0};
    struct backup *list;
    size_t count;
    for (int i = 0; i < 3; i++) {
        CLEANUP(free_text) char *to = xasprintf("%s/ddp-2099010%dT000000Z.db", dir, i + 1);
        insert_job(s, i + 1);
        must_back_up(*state, to);
        set_file_time(to, 4000000000 + i);
    }
    for (int i = 3; i < 5; i++) {
        CLEANUP(free_text) char *to = xasprintf("%s/ddp-2026010%dT000000Z.db", dir, i + 1);
        insert_job(s, i + 1);
        must_back_up(*state, to);
        set_file_time(to, 1700000000 + i);
        assert_int_equal(backup_prune(dir, 3, to, &e), ERR_OK);
        assert_int_equal(backup_list(dir, *state, &list, &count, &e), ERR_OK);
        assert_int_equal(count, 3);
        assert_string_equal(list[0].path, to);
        assert_int_equal(list[0].jobs, i + 1);
        assert_int_equal(list[1].jobs, i);
        backups_free(list, count);
    }
    store_close(s);
}

/* A new cluster begins with few commits. It may use the directory of an older one, or have lost commits unnoticed. */
static void a_new_backup_outlives_those_with_more_commits(void **state)
{
    CLEANUP(free_text) char *dir = xasprintf("%s/b", (char *)*state);
    CLEANUP(free_text) char *former = xasprintf("%s/former", (char *)*state);
    CLEANUP(free_text) char *own = xasprintf("%s/own", (char *)*state);
    CLEANUP(free_text) char *first = xasprintf("%s/ddp-20260101T000000Z.db", dir);
    CLEANUP(free_text) char *second = xasprintf("%s/ddp-20260102T000000Z.db", dir);
    CLEANUP(free_text) char *third = xasprintf("%s/ddp-20260103T000000Z.db", dir);
    struct store *s = must_open(former), *t = must_open(own);
    struct err e = {0};
    struct backup *list;
    size_t count;
    for (int i = 0; i < 9; i++)
        insert_job(s, i + 1);
    must_back_up(former, first);
    must_back_up(own, second);
    insert_job(t, 1);
    must_back_up(own, third);
    assert_int_equal(backup_list(dir, own, &list, &count, &e), ERR_OK);
    assert_int_equal(count, 3);
    assert_string_equal(list[0].path, third);
    assert_string_equal(list[2].path, first);
    backups_free(list, count);
    assert_int_equal(backup_prune(dir, 2, third, &e), ERR_OK);
    assert_false(file_exists(first));
    assert_true(file_exists(second));
    assert_int_equal(backup_prune(dir, 1, second, &e), ERR_OK); /* as if the job had been lost */
    assert_true(file_exists(second));
    assert_false(file_exists(third));
    store_close(s);
    store_close(t);
}

static char *write_beside(const char *dir, const char *name, time_t second)
{
    char *path = xasprintf("%s/%s", dir, name);
    struct err e = {0};
    assert_int_equal(file_write_atomic(path, "x", 1, 0600, &e), ERR_OK);
    if (second)
        set_file_time(path, second);
    return path;
}

static void a_backup_can_be_stopped(void **state)
{
    CLEANUP(free_text) char *dir = xasprintf("%s/state", (char *)*state);
    CLEANUP(free_text) char *to = xasprintf("%s/copy.db", (char *)*state);
    CLEANUP(free_text) char *tmp = xasprintf("%s.tmp", to);
    atomic_bool stop = true;
    struct err e = {0};
    struct store *s = must_open(dir);
    insert_job(s, 1);
    assert_int_equal(backup_make(dir, to, &stop, &e), ERR_CANCELLED);
    assert_false(file_exists(to) || file_exists(tmp));
    stop = false;
    assert_int_equal(backup_make(dir, to, &stop, &e), ERR_OK);
    assert_true(file_exists(to));
    store_close(s);
}

struct committer {
    struct store *store;
    atomic_bool stop;
    atomic_int commits;
};

static void *commit_events(void *user)
{
    struct committer *c = user;
    struct event_record event = sample_event(1, "busy");
    for (; !c->stop; c->commits++)
        must_commit(c->store, &(struct change){.kind = CHANGE_EVENT, .event = &event}, 1);
    return NULL;
}

/* A copy that can be stopped is made in steps. Commits between them must neither get into it in part nor restart it for ever. */
static void a_backup_in_steps_is_of_one_moment(void **state)
{
    enum { SIZE = 16 << 20 };
    CLEANUP(free_text) char *dir = xasprintf("%s/state", (char *)*state);
    CLEANUP(free_text) char *copies = xasprintf("%s/copies", (char *)*state);
    CLEANUP(free_text) char *large = xmalloc(SIZE + 1);
    struct committer c = {0};
    struct job_record job = sample_job(1);
    atomic_bool stop = false;
    struct backup *list;
    size_t count;
    struct err e = {0};
    pthread_t thread;
    assert_int_equal(store_open_temporary(&c.store, dir, &e),
                     ERR_OK); /* it does not sync, so it commits often */
    memset(large, 'x', SIZE);
    large[SIZE] = '\0';
    job.job_file = large;
    must_commit(c.store, &(struct change){.kind = CHANGE_JOB_INSERT, .job = &job}, 1);
    assert_int_equal(pthread_create(&thread, NULL, commit_events, &c), 0);
    for (int i = 0; i < 3; i++) {
        CLEANUP(free_text) char *to = xasprintf("%s/ddp-2026010%dT000000Z.db", copies, i + 1);
        const int before = c.commits;
        if (backup_make(dir, to, &stop, &e) != ERR_OK) /* it checks the copy */
            fail_msg("%s", e.msg);
        const int after = c.commits;
        assert_int_equal(backup_list(copies, dir, &list, &count, &e), ERR_OK);
        assert_string_equal(list[0].path, to);
        assert_true(list[0].sequence >= before + 2 && list[0].sequence <= after + 3);
        assert_int_equal(list[0].jobs, 1);
        backups_free(list, count);
    }
    c.stop = true;
    pthread_join(thread, NULL);
    store_close(c.store);
}

/* Each would be as large as the database. */
static void interrupted_backups_are_removed(void **state)
{
    CLEANUP(free_text) char *old = write_beside(*state, "ddp-20260101T000000Z.db.tmp", 1700000000);
    CLEANUP(free_text) char *log = write_beside(*state, "ddp-20260101T000000Z.db.tmp-journal", 1700000000);
    CLEANUP(free_text) char *ahead = write_beside(*state, "ddp-20990101T000000Z.db.tmp", 4070908800);
    CLEANUP(free_text) char *now = write_beside(*state, "ddp-20260102T000000Z.db.tmp", 0); /* in progress */
    CLEANUP(free_text) char *mine = write_beside(*state, "monday.db.tmp", 1700000000);
    CLEANUP(free_text) char *whole = write_beside(*state, "ddp-20260101T000000Z.db", 1700000000);
    CLEANUP(free_text) char *missing = xasprintf("%s/none", (char *)*state);
    struct err e = {0};
    assert_int_equal(backup_remove_unfinished(*state, &e), ERR_OK);
    assert_int_equal(backup_remove_unfinished(missing, &e), ERR_OK);
    assert_false(file_exists(old) || file_exists(log) || file_exists(ahead));
    assert_true(file_exists(now) && file_exists(mine) && file_exists(whole));
}

static void a_directory_that_cannot_be_read_has_no_list(void **state)
{
    CLEANUP(free_text) char *missing = xasprintf("%s/none", (char *)*state);
    CLEANUP(free_text) char *file = xasprintf("%s/file", (char *)*state);
    struct err e = {0};
    struct backup *list;
    size_t count;
    assert_int_equal(file_write_atomic(file, "x", 1, 0600, &e), ERR_OK);
    assert_int_equal(backup_list(missing, *state, &list, &count, &e), ERR_OK);
    assert_int_equal(count, 0);
    assert_true(backup_list(file, *state, &list, &count, &e) != ERR_OK);
    assert_non_null(strstr(e.msg, file));
}

/* A copy may have any name, also that of the database. Only the state's own database is not a copy. */
static void backups_with_any_name_are_listed(void **state)
{
    CLEANUP(free_text) char *dir = xasprintf("%s/b", (char *)*state);
    CLEANUP(free_text) char *same = xasprintf("%s/b/ddp.db", (char *)*state);
    CLEANUP(free_text) char *plain = xasprintf("%s/b/before-upgrade", (char *)*state);
    CLEANUP(free_text) char *half = xasprintf("%s/b/monday.db.tmp", (char *)*state);
    CLEANUP(free_text) char *aside = xasprintf("%s/b/ddp.db.replaced-20260101T000000Z", (char *)*state);
    CLEANUP(free_text) char *pipe = xasprintf("%s/b/pipe.db", (char *)*state); /* opening it would block */
    CLEANUP(free_text) char *beside = xasprintf("%s/copy", (char *)*state);
    struct store *s = must_open(*state);
    struct backup *list;
    size_t count;
    struct err e = {0};
    must_back_up(*state, same);
    must_back_up(*state, plain);
    must_back_up(*state, half);
    must_back_up(*state, aside);
    must_back_up(*state, beside);
    assert_int_equal(mkfifo(pipe, 0600), 0);
    assert_int_equal(backup_list_all(dir, *state, &list, &count, &e), ERR_OK);
    assert_int_equal(count, 2);
    assert_true(strcmp(list[0].path, same) == 0 || strcmp(list[1].path, same) == 0);
    assert_true(strcmp(list[0].path, plain) == 0 || strcmp(list[1].path, plain) == 0);
    backups_free(list, count);
    assert_int_equal(backup_list_all(*state, *state, &list, &count, &e),
                     ERR_OK); /* the directory of the state */
    assert_int_equal(count, 1);
    assert_string_equal(list[0].path, beside);
    backups_free(list, count);
    store_close(s);
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, backup_setup, backup_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(backup_copies_a_running_store),
        TEST(restore_goes_back_to_the_backup),
        TEST(restore_needs_no_intact_database),
        TEST(restore_refuses_files_that_are_not_backups),
        TEST(restore_fails_without_a_whole_copy),
        TEST(backup_refuses_a_database_that_lost_commits),
        TEST(prune_keeps_the_newest_backups),
        TEST(a_new_backup_outlives_those_from_the_future),
        TEST(a_new_backup_outlives_those_with_more_commits),
        TEST(a_backup_can_be_stopped),
        TEST(a_backup_in_steps_is_of_one_moment),
        TEST(interrupted_backups_are_removed),
        TEST(a_directory_that_cannot_be_read_has_no_list),
        TEST(backups_with_any_name_are_listed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
