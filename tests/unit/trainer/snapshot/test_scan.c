/* Tests which snapshots of a directory are offered, removed and set aside: only committed ones count, and a damaged
 * one is never offered. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "tests/unit/base/failing_readdir.h"
#include "tests/unit/trainer/snapshot/snapshot_fixture.h"
#include "trainer/snapshot/examine.h"

static void scan_finds_which_snapshots_are_committed(void **state)
{
    struct snapshot_files a = {0}, b = {0}, c = {0};
    struct snapshot_place first = fixture_place_at(10, 1), second = fixture_place_at(20, 1),
                          third = fixture_place_at(15, 2);
    struct snapshot_list list = {0};
    struct err e = {0};
    (void)state;
    fixture_write(&first, true, &a);
    fixture_write(&second, false, &b);
    fixture_write(&third, true, &c);
    assert_int_equal(snapshot_scan(fixture_dir, &list, &e), ERR_OK);
    assert_int_equal(list.count, 2); /* nobody would choose the first snapshot */
    assert_int_equal(list.items[0].step, 20);
    assert_false(list.items[0].committed);
    assert_string_equal(list.items[0].digest, b.digest);
    assert_int_equal(list.items[1].step, 15);
    assert_true(list.items[1].committed);
    assert_string_equal(list.items[1].cluster, "here");
    assert_int_equal(list.items[1].job, 7);
    snapshot_list_release(&list);
    assert_int_equal(snapshot_scan("/nonexistent/directory", &list, &e), ERR_OK);
    assert_int_equal(list.count, 0);
    snapshot_files_release(&a);
    snapshot_files_release(&b);
    snapshot_files_release(&c);
}

static void write_of_job(const char *cluster, int64_t job, int64_t step, int64_t generation)
{
    struct snapshot_files files = {0};
    struct snapshot_place place = fixture_place_at(step, generation);
    place.job = job;
    snprintf(place.cluster, sizeof(place.cluster), "%s", cluster);
    fixture_write(&place, true, &files);
    snapshot_files_release(&files);
}

/* The newest snapshots of each job, by step and by generation, are read; if they are damaged, the next
 * ones. */
static void scan_reads_only_snapshots_that_could_be_chosen(void **state)
{
    static const int64_t steps[2][4] = {{50, 40, 35, 30}, {49, 40, 35, 30}};
    CLEANUP(free_text) char *newest = xasprintf("%s/step-50-g3/model.safetensors", fixture_dir);
    struct snapshot_list list = {0};
    struct err e = {0};
    struct stat st;
    (void)state;
    write_of_job("here", 7, 10, 2);
    write_of_job("here", 7, 20, 4);
    write_of_job("here", 7, 40, 4);
    write_of_job("here", 7, 49, 3);
    write_of_job("here", 7, 50, 3);
    write_of_job("here", 8, 30, 2); /* another job */
    write_of_job("there", 7, 35, 1);
    for (int damaged = 0; damaged < 2; damaged++) {
        assert_int_equal(snapshot_scan(fixture_dir, &list, &e), ERR_OK);
        assert_int_equal(list.count, 4);
        for (size_t i = 0; i < list.count; i++)
            assert_int_equal(list.items[i].step, steps[damaged][i]);
        snapshot_list_release(&list);
        CLEANUP(close_fd) int fd = open(newest, O_WRONLY | O_CLOEXEC);
        assert_int_equal(fstat(fd, &st), 0);
        assert_int_equal(pwrite(fd, "\x55", 1, st.st_size - 1), 1);
    }
}

/* A file that changed after it was written is not the committed file. */
static void committed_json_names_the_written_bytes(void **state)
{
    struct snapshot_files files = {0};
    struct snapshot_place place = fixture_place_at(10, 1);
    struct snapshot_list list = {0};
    struct err e = {0};
    struct stat st;
    (void)state;
    fixture_write(&place, false, &files);
    CLEANUP(free_text) char *path = xasprintf("%s/model.safetensors", files.path);
    CLEANUP(close_fd) int fd = open(path, O_WRONLY | O_CLOEXEC);
    assert_int_equal(fstat(fd, &st), 0);
    assert_int_equal(pwrite(fd, "\x55", 1, st.st_size - 1), 1);
    assert_int_equal(snapshot_mark_committed(&files, &place, &e), ERR_OK);
    assert_int_equal(snapshot_scan(fixture_dir, &list, &e), ERR_OK);
    assert_int_equal(list.count, 0);
    snapshot_list_release(&list);
    snapshot_files_release(&files);
}

/* Flips each bit of each file. The committed snapshot is then no longer offered. A direct read is an error
 * or, if the bit is in the data, gives another value. */
static void every_flipped_bit_is_noticed(void **state)
{
    struct snapshot_files files = {0};
    struct snapshot_place place = fixture_place_at(10, 1);
    struct snapshot_list list = {0};
    struct stat st;
    struct err e = {0};
    float got[FLOATS];
    (void)state;
    fixture_write(&place, true, &files);
    CLEANUP(free_text) char *path = xasprintf("%s/model.safetensors", files.path);
    CLEANUP(buf_release) struct buf whole = {0};
    assert_int_equal(file_read(path, 1 << 20, &whole, &e), ERR_OK);
    assert_int_equal(stat(path, &st), 0);
    CLEANUP(close_fd) int fd = open(path, O_WRONLY | O_CLOEXEC);
    for (size_t at = 0; at < whole.len; at++) {
        char flipped = (char)(whole.data[at] ^ (1 << at % 8));
        assert_int_equal(pwrite(fd, &flipped, 1, (off_t)at), 1);
        assert_int_equal(snapshot_scan(fixture_dir, &list, &e), ERR_OK);
        assert_int_equal(list.count, 0);
        snapshot_list_release(&list);
        if (snapshot_read(files.path, &fixture_layout, got, &e))
            assert_non_null(strstr(e.msg, path));
        assert_int_equal(pwrite(fd, &whole.data[at], 1, (off_t)at), 1);
    }
    snapshot_files_release(&files);
}

static void prune_counts_committed_ones_of_this_job(void **state)
{
    struct snapshot_files f = {0};
    struct err e = {0};
    (void)state;
    for (int64_t step = 10; step <= 50; step += 10) {
        struct snapshot_place place = fixture_place_at(step, 1);
        fixture_write(&place, step != 40, &f);
        snapshot_files_release(&f);
    }
    struct snapshot_place other = fixture_place_at(5, 1), newer = fixture_place_at(30, 2);
    other.job = 6;
    fixture_write(&other, true, &f);
    snapshot_files_release(&f);
    other = fixture_place_at(6, 1);
    strcpy(other.cluster, "elsewhere");
    fixture_write(&other, true, &f);
    snapshot_files_release(&f);
    fixture_write(&newer, true, &f);
    snapshot_files_release(&f);
    CLEANUP(free_text) char *half = xasprintf("%s/.tmp-step-44-g1-j7", fixture_dir);
    CLEANUP(free_text) char *busy = xasprintf("%s/.tmp-step-44-g2-j7", fixture_dir);
    assert_int_equal(file_mkdirs(half, 0700, &e), ERR_OK);
    assert_int_equal(file_mkdirs(busy, 0700, &e), ERR_OK);
    assert_int_equal(snapshot_prune(fixture_dir, &newer, 0, 2, 0, &e), ERR_OK);
    assert_true(fixture_file_exists("step-30-g2") && fixture_file_exists("step-50-g1")); /* the two newest */
    assert_false(fixture_file_exists("step-10-g1") || fixture_file_exists("step-20-g1") ||
                 fixture_file_exists("step-30-g1"));
    assert_false(fixture_file_exists("step-40-g1")); /* never committed, of a generation that is over */
    assert_true(fixture_file_exists("step-5-g1"));   /* of another job */
    assert_true(fixture_file_exists("step-6-g1"));   /* of job 7 of another cluster */
    assert_false(fixture_file_exists(".tmp-step-44-g1-j7"));
    assert_true(fixture_file_exists(".tmp-step-44-g2-j7")); /* of this generation: it may still be written */
}

/* ---- a removal that ends in the middle, as if the process had died there */

static bool removal_dies;
enum err_code __real_file_remove_tree(const char *dir, struct err *e);
enum err_code __wrap_file_remove_tree(const char *dir, struct err *e);

enum err_code __wrap_file_remove_tree(const char *dir, struct err *e)
{
    static const char *const first[] = {"model.safetensors", "run.json", "COMMITTED.json"};
    CLEANUP(free_text) char *largest = xasprintf("%s/optimizer.safetensors", dir);
    if (!removal_dies || !file_exists(largest))
        return __real_file_remove_tree(dir, e);
    removal_dies = false;
    for (size_t i = 0; i < ARRAY_LEN(first); i++) {
        CLEANUP(free_text) char *file = xasprintf("%s/%s", dir, first[i]);
        assert_int_equal(unlink(file), 0);
    }
    return err_set(e, ERR_INTERNAL, "the process died");
}

/* The first prune dies within the removal of the snapshot of step 10, or the replacement of the snapshot of step 20 does. */
static void the_next_prune_completes_a_removal(void **state)
{
    (void)state;
    for (int replaced = 0; replaced < 2; replaced++) {
        struct snapshot_place old = fixture_place_at(10, 1), own = fixture_place_at(20, 1);
        struct snapshot_files f = {0};
        struct snapshot_list list = {0};
        struct err e = {0};
        float values[FLOATS];
        char **left = NULL;
        fixture_write(&old, true, &f);
        snapshot_files_release(&f);
        fixture_write(&own, true, &f);
        snapshot_files_release(&f);
        fixture_fill(values, 1.0f);
        removal_dies = true;
        assert_int_equal(replaced
                             ? snapshot_write(fixture_dir, &fixture_layout, &own, values, NULL, NULL, &f, &e)
                             : snapshot_prune(fixture_dir, &own, 0, 1, 0, &e),
                         ERR_INTERNAL);
        assert_false(removal_dies);
        assert_int_equal(snapshot_scan(fixture_dir, &list, &e), ERR_OK);
        assert_int_equal(list.count, 1);
        assert_null(list.unusable);
        snapshot_list_release(&list);
        own.job = 8; /* the directory may be another job's now */
        assert_int_equal(snapshot_prune(fixture_dir, &own, 0, 1, 0, &e), ERR_OK);
        assert_int_equal(snapshot_list_names(fixture_dir, NULL, NULL, &left, &e), ERR_OK);
        assert_int_equal(strv_len(left), 3); /* with . and .. */
        strv_free(left);
        assert_true(fixture_file_exists(replaced ? "step-10-g1" : "step-20-g1"));
        assert_int_equal(file_remove_tree(fixture_dir, &e), ERR_OK);
        assert_int_equal(file_mkdirs(fixture_dir, 0755, &e), ERR_OK);
    }
}

static void fixture_rename(const char *name, const char *to)
{
    CLEANUP(free_text) char *path = xasprintf("%s/%s", fixture_dir, name);
    CLEANUP(free_text) char *other = xasprintf("%s/%s", fixture_dir, to);
    assert_int_equal(rename(path, other), 0);
}

/* The copies are older than the original, or have the name of another snapshot. */
static void a_users_copy_is_neither_offered_nor_removed(void **state)
{
    static const char *const copies[] = {"step-20-g1.bak", "step-20-g1-old", "step-020-g1", "step-30-g1"};
    struct snapshot_place place = fixture_place_of_parts(20, 1, false), own = fixture_place_at(20, 2);
    struct snapshot_files f = {0};
    struct snapshot_list list = {0};
    struct err e = {0};
    (void)state;
    for (size_t i = 0; i <= ARRAY_LEN(copies); i++) {
        fixture_write_with_parts(&place, 0, &f);
        snapshot_files_release(&f);
        if (i < ARRAY_LEN(copies))
            fixture_rename("step-20-g1", copies[i]);
    }
    fixture_rename("parts-step-20-g1-j7", "parts-step-10-g1-j7.bak");
    fixture_write_with_parts(&place, 0, &f);
    snapshot_files_release(&f);
    for (int pruned = 0; pruned < 2; pruned++) {
        assert_int_equal(snapshot_scan(fixture_dir, &list, &e), ERR_OK);
        assert_int_equal(list.count, 1);
        assert_null(list.items[0].elsewhere);
        CLEANUP(free_text) char *path = xasprintf("%s/step-20-g1", fixture_dir);
        assert_string_equal(list.items[0].path, path);
        assert_int_equal(strv_len(list.unusable), 1);
        assert_non_null(
            strstr(list.unusable[0], "step-30-g1: holds the snapshot step-20-g1 under a wrong name"));
        snapshot_list_release(&list);
        assert_int_equal(snapshot_prune(fixture_dir, &own, 0, 1, 0, &e), ERR_OK);
    }
    for (size_t i = 0; i < ARRAY_LEN(copies); i++)
        assert_true(fixture_file_exists(copies[i]));
    assert_true(fixture_file_exists("parts-step-10-g1-j7.bak"));
}

static void prune_keeps_the_best(void **state)
{
    static const double losses[] = {3.0, 1.5, 1.5, 1.0, 2.0, 4.0, 5.0};
    struct snapshot_files f = {0};
    struct err e = {0};
    struct snapshot_place place = {0};
    (void)state;
    for (int64_t i = 0; i < 7; i++) {
        place = fixture_place_at(10 * (i + 1), 1);
        place.judged = i != 3; /* the lowest loss was not measured at this snapshot */
        place.val_loss = losses[i];
        fixture_write(&place, true, &f);
        snapshot_files_release(&f);
    }
    assert_int_equal(snapshot_prune(fixture_dir, &place, 0, 1, 2, &e), ERR_OK);
    assert_true(fixture_file_exists("step-70-g1"));                                      /* the newest */
    assert_true(fixture_file_exists("step-20-g1") && fixture_file_exists("step-30-g1")); /* the best */
    assert_false(fixture_file_exists("step-10-g1") || fixture_file_exists("step-40-g1") ||
                 fixture_file_exists("step-50-g1"));
    assert_int_equal(snapshot_prune(fixture_dir, &place, 0, 1, 1, &e), ERR_OK);
    assert_true(fixture_file_exists("step-30-g1")); /* of equal losses, the newer snapshot stays */
    assert_false(fixture_file_exists("step-20-g1"));
}

/* For a run that starts from scratch after generation 2. */
static void snapshots_from_before_a_start_from_scratch_are_set_aside(void **state)
{
    struct snapshot_files f = {0};
    struct err e = {0};
    struct snapshot_place own = fixture_place_at(10, 3), other = fixture_place_at(30, 3);
    (void)state;
    for (int64_t generation = 1; generation <= 3; generation++) {
        struct snapshot_place place = fixture_place_at(10 * generation, generation);
        fixture_write(&place, true, &f);
        snapshot_files_release(&f);
    }
    assert_int_equal(snapshot_prune(fixture_dir, &own, 2, 1, 0, &e), ERR_OK);
    /* Prune must not remove these. */
    assert_true(fixture_file_exists("step-10-g1") && fixture_file_exists("step-20-g2") &&
                fixture_file_exists("step-30-g3"));
    other.step = 7;
    other.job = 6;
    fixture_write(&other, true, &f);
    snapshot_files_release(&f);
    assert_int_equal(snapshot_set_aside(fixture_dir, &own, 2, &e), ERR_OK);
    assert_true(fixture_file_exists("step-30-g3"));
    assert_false(fixture_file_exists("step-10-g1") || fixture_file_exists("step-20-g2") ||
                 fixture_file_exists("step-7-g3"));
    assert_true(fixture_file_exists("set-aside-g2/step-10-g1/COMMITTED.json") &&
                fixture_file_exists("set-aside-g2/step-20-g2"));
    /* The snapshots that it continued do not count any more, either. */
    assert_true(fixture_file_exists("set-aside-g2/step-7-g3"));
    assert_int_equal(snapshot_set_aside(fixture_dir, &own, 2, &e), ERR_OK);
    assert_int_equal(snapshot_set_aside("/nonexistent/directory", &own, 2, &e), ERR_OK);
}

/* Makes reading the file fail, as an I/O error does: replaces it by a link to itself, for which access() fails with
 * ELOOP, even for root. */
static void file_make_unreadable(const char *name)
{
    CLEANUP(free_text) char *path = xasprintf("%s/%s", fixture_dir, name);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(symlink(path, path), 0);
}

static void what_cannot_be_read_is_not_taken_for_missing(void **state)
{
    struct snapshot_files f = {0};
    struct snapshot_list list = {0};
    struct err e = {0};
    (void)state;
    for (int64_t generation = 1; generation <= 3; generation++) {
        struct snapshot_place place = fixture_place_at(10, generation);
        fixture_write(&place, generation != 2, &f);
        snapshot_files_release(&f);
    }
    file_make_unreadable("step-10-g1/COMMITTED.json");
    struct snapshot_place own = fixture_place_at(10, 3);
    assert_int_equal(snapshot_prune(fixture_dir, &own, 0, 1, 0, &e), ERR_OK);
    assert_true(fixture_file_exists("step-10-g1"));
    assert_false(fixture_file_exists("step-10-g2")); /* never committed */
    file_make_unreadable("step-10-g3/COMMITTED.json");
    assert_int_equal(snapshot_scan(fixture_dir, &list, &e), ERR_OK);
    assert_int_equal(list.count, 0); /* not: uncommitted ones */
    assert_int_equal(strv_len(list.unusable), 2);
    snapshot_list_release(&list);
    CLEANUP(free_text) char *loop = xasprintf("%s/loop", fixture_dir);
    assert_int_equal(symlink(loop, loop), 0);
    assert_int_not_equal(snapshot_scan(loop, &list, &e), ERR_OK);
}

/* A list of fewer snapshots would let a run begin before the newest one, and a digest of fewer files is another digest. */
static void a_directory_that_cannot_be_read_to_its_end_is_an_error(void **state)
{
    struct snapshot_place place = fixture_place_at(10, 1);
    struct snapshot_files f = {0}, again = {0};
    struct snapshot_list list = {0};
    struct err e = {0};
    (void)state;
    fixture_write(&place, true, &f);
    for (int entries = 0; entries < 3; entries++) {
        entries_until_error = entries;
        assert_int_equal(snapshot_scan(fixture_dir, &list, &e), ERR_INTERNAL);
        assert_non_null(strstr(e.msg, "Input/output error"));
        assert_int_equal(list.count, 0);
        assert_int_equal(snapshot_sum(f.path, &again, &e), ERR_INTERNAL);
        assert_int_equal(snapshot_prune(fixture_dir, &place, 0, 1, 0, &e), ERR_INTERNAL);
    }
    entries_until_error = -1;
    assert_int_equal(snapshot_sum(f.path, &again, &e), ERR_OK);
    assert_string_equal(again.digest, f.digest);
    snapshot_files_release(&again);
    snapshot_files_release(&f);
}

/* Job 7 of another cluster has a snapshot of the same step and generation, which could not be loaded. */
static void another_runs_snapshot_is_never_replaced(void **state)
{
    struct snapshot_files f = {0};
    struct snapshot_place old = fixture_place_of_parts(20, 1, false),
                          own = fixture_place_of_parts(20, 1, false), source = fixture_place_at(10, 1);
    const float values[FLOATS] = {0};
    struct err e = {0};
    (void)state;
    strcpy(old.cluster, "elsewhere");
    fixture_write_with_parts(&old, 0, &f);
    snapshot_files_release(&f);
    assert_int_equal(snapshot_write(fixture_dir, &fixture_layout, &own, values, NULL, NULL, &f, &e),
                     ERR_FAILED_PRECONDITION);
    assert_non_null(strstr(e.msg, "step-20-g1 is a snapshot of another run (job 7 of cluster 'elsewhere')"));
    int64_t bytes;
    assert_int_equal(snapshot_part_write(fixture_dir, &fixture_apart, &own, 0, values, 1, &bytes, &e),
                     ERR_FAILED_PRECONDITION);
    assert_int_equal(snapshot_discard(fixture_dir, &own, 0, true, &e), ERR_FAILED_PRECONDITION);
    assert_true(fixture_file_exists("step-20-g1/COMMITTED.json") &&
                fixture_file_exists("parts-step-20-g1-j7/rank-00000.safetensors"));
    /* the next run begins before it and moves it out of the way */
    old.step = 10;
    fixture_write(&old, true, &f);
    snapshot_files_release(&f);
    assert_int_equal(snapshot_set_others_aside(fixture_dir, &source, &e), ERR_OK);
    assert_true(fixture_file_exists("step-10-g1")); /* the source */
    assert_true(fixture_file_exists("set-aside-elsewhere-j7/step-20-g1/COMMITTED.json") &&
                fixture_file_exists("set-aside-elsewhere-j7/parts-step-20-g1-j7/rank-00000.safetensors"));
    fixture_write_with_parts(&own, 0, &f);
    snapshot_files_release(&f);
    assert_int_equal(snapshot_set_others_aside(fixture_dir, &source, &e), ERR_OK);
    assert_true(fixture_file_exists("step-20-g1")); /* its own */
    assert_int_equal(snapshot_set_others_aside("/nonexistent/directory", &source, &e), ERR_OK);
}

/* Another run's snapshot whose run.json is missing, because it was not copied completely, or cannot be read. */
static void a_snapshot_that_names_no_run_is_never_replaced(void **state)
{
    struct snapshot_files f = {0};
    struct snapshot_place old = fixture_place_at(20, 1), own = fixture_place_at(20, 1);
    CLEANUP(free_text) char *run = xasprintf("%s/step-20-g1/run.json", fixture_dir);
    CLEANUP(free_text) char *model = xasprintf("%s/step-20-g1/model.safetensors", fixture_dir);
    const float values[FLOATS] = {0};
    struct err e = {0};
    (void)state;
    strcpy(old.cluster, "elsewhere");
    fixture_write(&old, true, &f);
    snapshot_files_release(&f);
    for (int missing = 0; missing < 2; missing++) {
        if (missing)
            assert_int_equal(unlink(run), 0);
        else
            file_make_unreadable("step-20-g1/run.json");
        assert_int_equal(snapshot_check_name(fixture_dir, &own, &e), ERR_FAILED_PRECONDITION);
        assert_non_null(strstr(e.msg, "step-20-g1 is not replaced, since it may be another run's ("));
        assert_non_null(strstr(e.msg, run));
        assert_int_equal(snapshot_write(fixture_dir, &fixture_layout, &own, values, NULL, NULL, &f, &e),
                         ERR_FAILED_PRECONDITION);
        assert_int_equal(snapshot_discard(fixture_dir, &own, 0, true, &e), ERR_FAILED_PRECONDITION);
        assert_true(fixture_file_exists("step-20-g1/COMMITTED.json") &&
                    fixture_file_exists("step-20-g1/model.safetensors"));
    }
    /* run.json cannot be read, and there is no model */
    assert_int_equal(unlink(model), 0);
    assert_int_equal(symlink(run, run), 0);
    assert_int_equal(snapshot_discard(fixture_dir, &own, 0, true, &e), ERR_FAILED_PRECONDITION);
    /* Neither of them: a removal has left this, and the name is free. */
    assert_int_equal(unlink(run), 0);
    assert_int_equal(snapshot_discard(fixture_dir, &own, 0, true, &e), ERR_OK);
    assert_false(fixture_file_exists("step-20-g1"));
}

/* Runs of other clusters use the same names. */
static void the_same_names_can_be_set_aside_again(void **state)
{
    struct snapshot_place place = fixture_place_of_parts(20, 1, false), own = fixture_place_at(10, 1);
    struct snapshot_files f = {0};
    struct err e = {0};
    (void)state;
    own.generation = 2;
    for (int i = 0; i < 3; i++) {
        fixture_write_with_parts(&place, 0, &f);
        snapshot_files_release(&f);
        assert_int_equal(snapshot_set_aside(fixture_dir, &own, 1, &e), ERR_OK);
    }
    own.generation = 1;
    strcpy(place.cluster, "elsewhere");
    for (int i = 0; i < 3; i++) {
        fixture_write_with_parts(&place, 0, &f);
        snapshot_files_release(&f);
        assert_int_equal(snapshot_set_others_aside(fixture_dir, &own, &e), ERR_OK);
    }
    static const char *const bases[] = {"set-aside-g1", "set-aside-elsewhere-j7"};
    static const char *const suffixes[] = {"", ".2", ".3"};
    for (size_t b = 0; b < ARRAY_LEN(bases); b++)
        for (size_t i = 0; i < ARRAY_LEN(suffixes); i++) {
            CLEANUP(free_text)
            char *snapshot = xasprintf("%s%s/step-20-g1/COMMITTED.json", bases[b], suffixes[i]);
            CLEANUP(free_text)
            char *part = xasprintf("%s%s/parts-step-20-g1-j7/rank-00000.safetensors", bases[b], suffixes[i]);
            assert_true(fixture_file_exists(snapshot) && fixture_file_exists(part));
        }
    assert_false(fixture_file_exists("step-20-g1") || fixture_file_exists("parts-step-20-g1-j7"));
}

/* The name of the parts alone is there already. */
static void parts_are_set_aside_with_their_snapshot(void **state)
{
    struct snapshot_place place = fixture_place_of_parts(20, 1, false), own = fixture_place_at(10, 1);
    struct snapshot_files f = {0};
    struct err e = {0};
    (void)state;
    strcpy(place.cluster, "elsewhere");
    CLEANUP(free_text)
    char *there = xasprintf("%s/set-aside-elsewhere-j7/parts-step-20-g1-j7/x", fixture_dir);
    assert_int_equal(file_mkdirs(there, 0755, &e), ERR_OK);
    fixture_write_with_parts(&place, 0, &f);
    snapshot_files_release(&f);
    assert_int_equal(snapshot_set_others_aside(fixture_dir, &own, &e), ERR_OK);
    assert_true(fixture_file_exists("set-aside-elsewhere-j7.2/step-20-g1/COMMITTED.json") &&
                fixture_file_exists("set-aside-elsewhere-j7.2/parts-step-20-g1-j7/rank-00000.safetensors"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SNAPSHOT_TEST(scan_finds_which_snapshots_are_committed),
        SNAPSHOT_TEST(scan_reads_only_snapshots_that_could_be_chosen),
        SNAPSHOT_TEST(committed_json_names_the_written_bytes),
        SNAPSHOT_TEST(every_flipped_bit_is_noticed),
        SNAPSHOT_TEST(prune_counts_committed_ones_of_this_job),
        SNAPSHOT_TEST(the_next_prune_completes_a_removal),
        SNAPSHOT_TEST(a_users_copy_is_neither_offered_nor_removed),
        SNAPSHOT_TEST(prune_keeps_the_best),
        SNAPSHOT_TEST(what_cannot_be_read_is_not_taken_for_missing),
        SNAPSHOT_TEST(a_directory_that_cannot_be_read_to_its_end_is_an_error),
        SNAPSHOT_TEST(another_runs_snapshot_is_never_replaced),
        SNAPSHOT_TEST(a_snapshot_that_names_no_run_is_never_replaced),
        SNAPSHOT_TEST(snapshots_from_before_a_start_from_scratch_are_set_aside),
        SNAPSHOT_TEST(the_same_names_can_be_set_aside_again),
        SNAPSHOT_TEST(parts_are_set_aside_with_their_snapshot),
    };
    log_init("test_scan", LOG_ERROR);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
