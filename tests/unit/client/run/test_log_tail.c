#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/file.h"
#include "base/mem.h"
#include "client/run/log_tail.h"

static void file_append(const char *dir, const char *name, const char *text)
{
    CLEANUP(free_text) char *path = xasprintf("%s/%s", dir, name);
    FILE *f = fopen(path, "a");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static void add_ranks(struct log_tail *t, int64_t generation)
{
    for (int rank = 0; rank < 2; rank++)
        for (int standard_error = 0; standard_error < 2; standard_error++)
            log_tail_add(t, rank, (struct log_tail_place){generation, rank}, standard_error, NULL);
}

static void test_reads_files_as_they_grow(void **state)
{
    (void)state;
    char root[] = "/tmp/ddp-test-XXXXXX";
    struct log_tail t;
    struct err e;
    assert_non_null(mkdtemp(root));
    CLEANUP(free_text) char *rank0 = xasprintf("%s/7/generation_1/box/0", root);
    CLEANUP(free_text) char *rank1 = xasprintf("%s/7/generation_2/box/1", root);
    log_tail_init(&t);
    log_tail_open(&t, root, 7, 1, "box");
    add_ranks(&t, 1);
    t.merge.targets[0].wanted = true;
    assert_false(log_tail_read(&t, 0));
    assert_int_equal(file_mkdirs(rank0, 0755, &e), ERR_OK);
    file_append(rank0, "stdout.log", "one\ntw");
    file_append(rank0, "stderr.log", "oh\n");
    assert_true(log_tail_read(&t, 0));
    assert_false(log_tail_read(&t, 0));
    file_append(rank0, "stdout.log", "o\n");
    assert_true(log_tail_read(&t, 0));
    assert_string_equal(t.merge.targets[0].text.data, "[0] one\n[0] two\n");
    assert_string_equal(t.merge.targets[1].text.data, "oh\n");
    log_tail_open(&t, root, 7, 2, "box");
    add_ranks(&t, 2);
    assert_int_equal(file_mkdirs(rank1, 0755, &e), ERR_OK);
    file_append(rank1, "stdout.log", "again");
    buf_clear(&t.merge.targets[0].text);
    assert_true(log_tail_read(&t, 0));
    output_merge_finish(&t.merge, 0);
    assert_string_equal(t.merge.targets[0].text.data, "[1] again\n");
    log_tail_release(&t);
    assert_int_equal(file_remove_tree(root, &e), ERR_OK);
}

/* Rank 0's worker goes on as rank 1 of generation 2, and a new one becomes rank 0. */
static void test_a_worker_that_goes_on_keeps_its_files(void **state)
{
    (void)state;
    char root[] = "/tmp/ddp-test-XXXXXX";
    struct log_tail t;
    struct err e;
    assert_non_null(mkdtemp(root));
    CLEANUP(free_text) char *old = xasprintf("%s/7/generation_1/box/0", root);
    CLEANUP(free_text) char *new = xasprintf("%s/7/generation_2/box/1", root);
    assert_int_equal(file_mkdirs(old, 0755, &e), ERR_OK);
    assert_int_equal(file_mkdirs(new, 0755, &e), ERR_OK);
    log_tail_init(&t);
    t.merge.targets[0].wanted = true;
    log_tail_open(&t, root, 7, 1, "box");
    add_ranks(&t, 1);
    file_append(old, "stdout.log", "step 1\n");
    assert_true(log_tail_read(&t, 0));
    log_tail_open(&t, root, 7, 2, "box");
    log_tail_add(&t, 0, (struct log_tail_place){2, 1}, false, NULL);
    log_tail_add(&t, 1, (struct log_tail_place){1, 0}, false, NULL);
    assert_false(log_tail_read(&t, 0)); /* nothing is shown twice */
    file_append(old, "stdout.log", "step 2\n");
    file_append(new, "stdout.log", "joined\n");
    assert_true(log_tail_read(&t, 0));
    assert_string_equal(t.merge.targets[0].text.data, "[0] step 1\n[0] joined\n[1] step 2\n");
    log_tail_release(&t);
    assert_int_equal(file_remove_tree(root, &e), ERR_OK);
}

static int descriptors_in_use(void)
{
    int count = 0;
    for (int fd = 0; fd < 100; fd++)
        count += lseek(fd, 0, SEEK_CUR) >= 0 || errno != EBADF;
    return count;
}

/* A restart opens new files for every rank. Those of the last generation would take as many descriptors again. */
static void test_files_of_the_last_generation_are_closed(void **state)
{
    (void)state;
    char root[] = "/tmp/ddp-test-XXXXXX";
    struct log_tail t;
    struct err e;
    assert_non_null(mkdtemp(root));
    log_tail_init(&t);
    const int before = descriptors_in_use();
    for (int generation = 1; generation <= 2; generation++) {
        for (int rank = 0; rank < 2; rank++) {
            CLEANUP(free_text) char *dir = xasprintf("%s/7/generation_%d/box/%d", root, generation, rank);
            assert_int_equal(file_mkdirs(dir, 0755, &e), ERR_OK);
            file_append(dir, "stdout.log", "one\n");
            file_append(dir, "stderr.log", "two\n");
        }
        log_tail_open(&t, root, 7, generation, "box");
        add_ranks(&t, generation);
        assert_true(log_tail_read(&t, 0));
        assert_int_equal(descriptors_in_use(), before + 4);
    }
    log_tail_release(&t);
    assert_int_equal(file_remove_tree(root, &e), ERR_OK);
}

static void test_a_file_that_cannot_be_opened_is_reported_once(void **state)
{
    (void)state;
    char root[] = "/tmp/ddp-test-XXXXXX";
    struct rlimit limit, none;
    struct log_tail t;
    struct err e;
    assert_non_null(mkdtemp(root));
    CLEANUP(free_text) char *dir = xasprintf("%s/7/generation_1/box/0", root);
    assert_int_equal(file_mkdirs(dir, 0755, &e), ERR_OK);
    file_append(dir, "stdout.log", "one\n");
    log_tail_init(&t);
    log_tail_open(&t, root, 7, 1, "box");
    add_ranks(&t, 1);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    none = (struct rlimit){.rlim_cur = 3, .rlim_max = limit.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    for (int turn = 0; turn < 2; turn++)
        log_tail_read(&t, 0);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    const char *said = t.merge.targets[1].text.data;
    assert_non_null(said);
    assert_non_null(strstr(said, "generation_1/box/0/stdout.log: Too many open files"));
    assert_ptr_equal(strchr(said, '\n'), said + t.merge.targets[1].text.len - 1); /* one line */
    log_tail_release(&t);
    assert_int_equal(file_remove_tree(root, &e), ERR_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_worker_that_goes_on_keeps_its_files),
        cmocka_unit_test(test_reads_files_as_they_grow),
        cmocka_unit_test(test_files_of_the_last_generation_are_closed),
        cmocka_unit_test(test_a_file_that_cannot_be_opened_is_reported_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
