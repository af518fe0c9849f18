/* The mark, a file beside the database: with it a start notices lost commits, and refuses to go on unless the
 * loss is accepted. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/file.h"
#include "base/mem.h"
#include "store/mark.h"
#include "store_test.h"

#define JOBS 40

static int mark_setup(void **state)
{
    *state = make_dir();
    return 0;
}

static int mark_teardown(void **state)
{
    remove_dir(*state);
    return 0;
}

static char *file_of(const char *dir, const char *name)
{
    return xasprintf("%s/%s", dir, name);
}

static void copy_file(const char *from, const char *to)
{
    struct err e = {0};
    CLEANUP(buf_release) struct buf bytes = {0};
    assert_int_equal(file_read(from, 1 << 26, &bytes, &e), ERR_OK);
    assert_int_equal(file_write_atomic(to, bytes.data, bytes.len, 0600, &e), ERR_OK);
}

/* A state directory as a killed coordinator leaves it: the log holds the last commits. */
static char *killed_state(const char *dir, int jobs)
{
    CLEANUP(free_text) char *live = file_of(dir, "live");
    char *left = file_of(dir, "left");
    struct store *s = must_open(live);
    static const char *const names[] = {"ddp.db", "ddp.db-wal", "ddp.mark"};
    for (int id = 1; id <= jobs; id++)
        insert_job(s, id);
    assert_int_equal(mkdir(left, 0700), 0);
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        CLEANUP(free_text) char *from = file_of(live, names[i]);
        CLEANUP(free_text) char *to = file_of(left, names[i]);
        copy_file(from, to);
    }
    store_close(s);
    return left;
}

static void flip_bit(const char *path, double at)
{
    struct stat st;
    char byte;
    CLEANUP(close_fd) int fd = open(path, O_RDWR);
    assert_int_equal(fstat(fd, &st), 0);
    const off_t offset = (off_t)((double)st.st_size * at);
    assert_int_equal(pread(fd, &byte, 1, offset), 1);
    byte ^= 1;
    assert_int_equal(pwrite(fd, &byte, 1, offset), 1);
}

static size_t jobs_in(struct store *s)
{
    struct err e = {0};
    CLEANUP(records_release) struct records got;
    assert_int_equal(store_load(s, &got, &e), ERR_OK);
    return got.job_count;
}

static bool has_event(struct store *s, const char *what)
{
    struct err e = {0};
    struct event_record *events;
    size_t count;
    bool found = false;
    assert_int_equal(store_events(s, 0, 0, 100, &events, &count, &e), ERR_OK);
    for (size_t i = 0; i < count; i++)
        found = found || strcmp(events[i].what, what) == 0;
    store_events_free(events, count);
    return found;
}

static void must_refuse(const char *dir, const char *words)
{
    struct err e = {0};
    struct store *s = NULL;
    assert_int_equal(store_open(&s, dir, &e), ERR_DATA_LOSS);
    if (!strstr(e.msg, words))
        fail_msg("\"%s\" lacks \"%s\"", e.msg, words);
}

static struct store *must_accept(const char *dir)
{
    struct err e = {0};
    struct store *s = NULL;
    if (store_open_accepting(&s, dir, &e) != ERR_OK)
        fail_msg("%s", e.msg);
    return s;
}

static void a_complete_log_is_accepted(void **state)
{
    CLEANUP(free_text) char *dir = killed_state(*state, JOBS);
    struct store *s = must_open(dir);
    assert_int_equal(jobs_in(s), JOBS);
    assert_int_equal(store_loss(s).epoch, 0);
    assert_false(has_event(s, "mark_missing"));
    store_close(s);
}

static void a_flipped_byte_in_the_log_is_refused(void **state)
{
    CLEANUP(free_text) char *dir = killed_state(*state, JOBS);
    CLEANUP(free_text) char *log = file_of(dir, "ddp.db-wal");
    flip_bit(log, 0.5);
    must_refuse(dir, "to 40 are missing");
    must_refuse(dir, "to 40 are missing"); /* a refusal changes no file, so the files can be examined ... */
    flip_bit(log, 0.5);                    /* ... and repaired */
    struct store *s = must_open(dir);
    assert_int_equal(jobs_in(s), JOBS);
    store_close(s);
}

static void an_accepted_loss_is_recorded(void **state)
{
    CLEANUP(free_text) char *dir = killed_state(*state, JOBS);
    CLEANUP(free_text) char *log = file_of(dir, "ddp.db-wal");
    flip_bit(log, 0.5);
    struct store *s = must_accept(dir);
    const size_t left = jobs_in(s);
    assert_true(left > 0 && left < JOBS);
    assert_true(has_event(s, "loss_accepted"));
    assert_int_equal(store_epoch(s), 2);
    assert_int_equal(store_loss(s).epoch, 2);
    assert_int_equal(store_loss(s).first_job, (int64_t)left + 1);
    assert_int_equal(store_loss(s).last_job, JOBS);
    store_close(s);
    s = must_open(dir); /* once accepted, the loss does not stop a start, and lost numbers are not reused */
    struct err e = {0};
    CLEANUP(records_release) struct records got;
    assert_int_equal(store_load(s, &got, &e), ERR_OK);
    assert_int_equal(got.next_job, JOBS + 1);
    assert_int_equal(store_loss(s).epoch, 2);
    store_close(s);
}

static void a_deleted_database_is_refused(void **state)
{
    CLEANUP(free_text) char *dir = killed_state(*state, JOBS);
    CLEANUP(free_text) char *db = file_of(dir, "ddp.db");
    CLEANUP(free_text) char *log = file_of(dir, "ddp.db-wal");
    struct store *s = must_open(dir);
    CLEANUP(free_text) char *id = xstrdup(store_cluster_id(s));
    store_close(s);
    unlink(db);
    unlink(log);
    must_refuse(dir, "40 jobs up to number 40 are missing");
    assert_false(file_exists(db));
    s = must_accept(dir);
    assert_int_equal(jobs_in(s), 0);
    assert_string_equal(store_cluster_id(s), id); /* the same cluster, so its nodes can connect */
    assert_int_equal(store_epoch(s), 3);
    insert_job(s, JOBS + 1);
    store_close(s);
}

static void an_older_copy_is_refused(void **state)
{
    CLEANUP(free_text) char *dir = killed_state(*state, 5);
    CLEANUP(free_text) char *db = file_of(dir, "ddp.db");
    CLEANUP(free_text) char *old = file_of(dir, "old.db");
    store_close(must_open(dir)); /* close moves the log into the file */
    copy_file(db, old);
    struct store *s = must_open(dir);
    insert_job(s, 6);
    insert_job(s, 7);
    store_close(s);
    copy_file(old, db);
    must_refuse(dir, "jobs 6 to 7 are missing");
}

static void another_clusters_database_is_refused(void **state)
{
    CLEANUP(free_text) char *dir = killed_state(*state, 2);
    CLEANUP(free_text) char *other = file_of(*state, "other");
    CLEANUP(free_text) char *db = file_of(dir, "ddp.db");
    CLEANUP(free_text) char *log = file_of(dir, "ddp.db-wal");
    CLEANUP(free_text) char *from = file_of(other, "ddp.db");
    store_close(must_open(other));
    unlink(log);
    copy_file(from, db);
    must_refuse(dir, "belongs to cluster");
}

static void a_damaged_page_is_refused(void **state)
{
    CLEANUP(free_text) char *dir = killed_state(*state, JOBS);
    CLEANUP(free_text) char *db = file_of(dir, "ddp.db");
    char junk[4096];
    store_close(must_open(dir));
    memset(junk, 0xa5, sizeof junk);
    struct stat st;
    CLEANUP(close_fd) int fd = open(db, O_RDWR);
    assert_int_equal(fstat(fd, &st), 0);
    for (off_t at = 4096; at < st.st_size; at += 3 * 4096)
        assert_int_equal(pwrite(fd, junk, sizeof junk, at), sizeof junk);
    must_refuse(dir, "ddp.db");
    struct store *s =
        must_accept(dir); /* begins with an empty database and keeps the damaged one under another name */
    assert_int_equal(jobs_in(s), 0);
    assert_int_equal(store_loss(s).first_job, 1);
    assert_int_equal(store_loss(s).last_job, JOBS);
    store_close(s);
}

static void a_missing_or_damaged_mark_is_reported(void **state)
{
    CLEANUP(free_text) char *dir = killed_state(*state, 3);
    CLEANUP(free_text) char *mark = file_of(dir, "ddp.mark");
    unlink(mark);
    struct store *s = must_open(dir);
    assert_int_equal(jobs_in(s), 3);
    assert_true(has_event(s, "mark_missing"));
    store_close(s);
    struct err e = {0};
    assert_int_equal(file_write_atomic(mark, "junk", 4, 0600, &e), ERR_OK);
    s = must_open(dir);
    assert_true(has_event(s, "mark_damaged"));
    store_close(s);
}

/* The mark has two slots with the two newest marks. Whichever byte is damaged, one slot can still be read. */
static void one_torn_slot_leaves_the_other_valid(void **state)
{
    CLEANUP(free_text) char *path = file_of(*state, "ddp.mark");
    struct err e = {0};
    struct mark_file file = {.fd = -1};
    struct mark mark = {.cluster_id = "0123456789abcdef0123456789abcdef", .epoch = 1, .sequence = 1}, got;
    enum mark_state found;
    assert_int_equal(mark_read(*state, &got, &found, &e), ERR_OK);
    assert_int_equal(found, MARK_NONE);
    assert_int_equal(mark_create(&file, *state, &mark, &e), ERR_OK);
    for (mark.sequence = 2; mark.sequence < 12; mark.sequence++) {
        mark.jobs = mark.last_job = mark.sequence;
        assert_int_equal(mark_write(&file, &mark, &e), ERR_OK);
        assert_int_equal(mark_read(*state, &got, &found, &e), ERR_OK);
        assert_int_equal(found, MARK_GOOD);
        assert_memory_equal(&got, &mark, sizeof got);
    }
    mark_close(&file);
    for (int slot = 0; slot < 2; slot++)
        for (int byte = 0; byte < 512; byte += 7) {
            const double at = (slot * 4096 + byte + 0.5) / 8192;
            flip_bit(path, at);
            assert_int_equal(mark_read(*state, &got, &found, &e), ERR_OK);
            assert_int_equal(found, MARK_GOOD);
            assert_in_range(got.sequence, 10, 11);
            flip_bit(path, at);
        }
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, mark_setup, mark_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_complete_log_is_accepted),
        TEST(a_flipped_byte_in_the_log_is_refused),
        TEST(an_accepted_loss_is_recorded),
        TEST(a_deleted_database_is_refused),
        TEST(an_older_copy_is_refused),
        TEST(another_clusters_database_is_refused),
        TEST(a_damaged_page_is_refused),
        TEST(a_missing_or_damaged_mark_is_reported),
        TEST(one_torn_slot_leaves_the_other_valid),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
