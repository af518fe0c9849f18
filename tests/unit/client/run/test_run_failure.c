#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/file.h"
#include "base/mem.h"
#include "client/run/run_error.h"
#include "client/run/run_failure.h"
#include "client/run/run_logs.h"

/* A failed job of `count` ranks on one node, and the directories its workers wrote into. */
enum { RANKS_MAX = 16 };
struct failed {
    Ddp__V1__JobStatus job;
    Ddp__V1__Failure failure;
    Ddp__V1__RankStatus ranks[RANKS_MAX], *list[RANKS_MAX];
    char dir[32];
    struct run_error first;
    bool (*seen)(void *user, int rank);
    struct buf out;
};

static void failed_begin(struct failed *f, size_t count, int failing)
{
    memset(f, 0, sizeof(*f));
    ddp__v1__job_status__init(&f->job);
    ddp__v1__failure__init(&f->failure);
    for (size_t i = 0; i < count; i++) {
        ddp__v1__rank_status__init(&f->ranks[i]);
        f->ranks[i].rank = f->ranks[i].local_rank = (int)i;
        f->ranks[i].node = (char *)"box1";
        f->list[i] = &f->ranks[i];
    }
    f->failure.rank = failing;
    f->failure.node = (char *)"box1";
    f->failure.code = 3;
    f->failure.generation = f->job.generation = 2;
    f->job.failure = &f->failure;
    f->job.ranks = f->list;
    f->job.n_ranks = count;
    snprintf(f->dir, sizeof(f->dir), "/tmp/ddp-test-XXXXXX");
    assert_non_null(mkdtemp(f->dir));
}

static void failed_end(struct failed *f)
{
    struct err e;
    run_error_release(&f->first);
    buf_release(&f->out);
    assert_int_equal(file_remove_tree(f->dir, &e), ERR_OK);
}

static void write_error(const struct failed *f, int rank, const char *text)
{
    CLEANUP(free_text) char *dir = xasprintf("%s/%d", f->dir, rank);
    CLEANUP(free_text) char *path = xasprintf("%s/error.json", dir);
    struct err e;
    assert_int_equal(file_mkdirs(dir, 0700, &e), ERR_OK);
    assert_int_equal(file_write_atomic(path, text, strlen(text), 0600, &e), ERR_OK);
}

static void print_failure(struct failed *f)
{
    const struct run_failure failure = {.job = &f->job, .first = &f->first, .seen = f->seen, .user = f};
    buf_clear(&f->out);
    run_failure_print(&failure, &f->out);
}

static void find_error(struct failed *f)
{
    run_error_find(&f->first, &f->job, "box1", f->dir);
}

#define ERROR_AT(text, at) "{\"message\":{\"message\":\"" text "\",\"extraInfo\":{\"timestamp\":\"" at "\"}}}"

static void test_earliest_error_counts(void **state)
{
    (void)state;
    struct failed f;
    failed_begin(&f, 4, 1);
    write_error(&f, 1, ERROR_AT("RuntimeError: peer", "1700000005"));
    write_error(&f, 2, ERROR_AT("ValueError: cause\\nmore", "1700000003"));
    write_error(&f, 3, "no json");
    find_error(&f);
    assert_int_equal(f.first.rank, 2);
    assert_string_equal(f.first.message, "ValueError: cause");
    print_failure(&f);
    assert_string_equal(f.out.data, "ddpctl: the first error was rank 2's: ValueError: cause\n");
    failed_end(&f);
}

/* torchrun's timestamps are whole seconds. Within one second, the rank that was seen to fail first counts. */
static void test_equal_times_prefer_the_rank_that_failed(void **state)
{
    (void)state;
    struct failed f;
    failed_begin(&f, 3, 1);
    for (int rank = 0; rank < 3; rank++)
        write_error(&f, rank, ERROR_AT("E", "1700000005"));
    find_error(&f);
    assert_int_equal(f.first.rank, 1);
    print_failure(&f);
    assert_int_equal(f.out.len, 0);
    failed_end(&f);
}

static void test_short_form_of_the_error_file(void **state)
{
    (void)state;
    struct failed f;
    failed_begin(&f, 2, 0);
    write_error(&f, 0, ERROR_AT("late", "1700000005"));
    write_error(&f, 1, "{\"message\":\"early\",\"timestamp\":1700000004}");
    find_error(&f);
    assert_int_equal(f.first.rank, 1);
    assert_string_equal(f.first.message, "early");
    failed_end(&f);
}

static bool is_seen(void *user, int rank)
{
    return ((struct failed *)user)->failure.rank == rank;
}

static void test_peers_are_listed_as_consequences(void **state)
{
    (void)state;
    struct failed f;
    failed_begin(&f, 12, 1);
    char *tail[] = {(char *)"1", (char *)"2", (char *)"3", (char *)"4", (char *)"5", (char *)"\033[31msix"};
    f.failure.stderr_tail = tail;
    f.failure.n_stderr_tail = 6;
    f.failure.signal = 9;
    f.failure.out_of_memory = true;
    for (int i = 0; i < 12; i++)
        f.ranks[i].detail = (char *)(i == 1 ? "killed by signal 9" : i == 2 ? "" : "exited with code 1");
    find_error(&f);
    assert_int_equal(f.first.rank, -1);
    print_failure(&f);
    const char *wanted = "  | 2\n  | 3\n  | 4\n  | 5\n  | ";
    assert_memory_equal(f.out.data, wanted, strlen(wanted));
    assert_null(strchr(f.out.data, '\033'));
    assert_non_null(
        strstr(f.out.data, "ddpctl: ended after rank 1 had failed: ranks 0, 3-11 exited with code 1\n"));
    f.seen = is_seen;
    print_failure(&f);
    assert_string_equal(f.out.data,
                        "ddpctl: ended after rank 1 had failed: ranks 0, 3-11 exited with code 1\n");
    f.failure.generation = 1; /* an earlier generation */
    buf_clear(&f.out);
    print_failure(&f);
    assert_int_equal(f.out.len, 0);
    failed_end(&f);
}

/* Nine ways to end are eight in the line, and the rest is counted. */
static void test_peers_that_ended_in_many_ways(void **state)
{
    (void)state;
    struct failed f;
    char details[RANKS_MAX][24];
    failed_begin(&f, 16, 0);
    for (int i = 1; i < 16; i++) {
        snprintf(details[i], sizeof(details[i]), "exited with code %d", i < 10 ? i : 9);
        f.ranks[i].detail = details[i];
    }
    print_failure(&f);
    assert_non_null(strstr(
        f.out.data, "after rank 0 had failed: rank 1 exited with code 1, rank 2 exited with code 2, "));
    assert_non_null(strstr(f.out.data, "rank 8 exited with code 8, and 7 more\n"));
    failed_end(&f);
}

static void test_error_file_for_the_parent_has_the_exit_code(void **state)
{
    (void)state;
    struct failed f;
    CLEANUP(buf_release) struct buf text = {0};
    struct err e;
    failed_begin(&f, 1, 0);
    CLEANUP(free_text) char *path = xasprintf("%s/up.json", f.dir);
    write_error(&f, 0, ERROR_AT("ValueError: x", "1700000005"));
    find_error(&f);
    assert_int_equal(run_error_copy(&f.first, &f.failure, path, &e), ERR_OK);
    assert_int_equal(file_read(path, 1 << 16, &text, &e), ERR_OK);
    assert_string_equal(text.data, "{\"message\":{\"message\":\"ValueError: x\",\"extraInfo\":{\"timestamp\":"
                                   "\"1700000005\"},\"errorCode\":3}}");
    run_error_release(&f.first);
    f.failure.signal = 15;
    buf_clear(&text);
    /* The error file of the parent is replaced. */
    assert_int_equal(run_error_copy(&f.first, &f.failure, path, &e), ERR_OK);
    assert_int_equal(file_read(path, 1 << 16, &text, &e), ERR_OK);
    assert_non_null(strstr(text.data, "\"message\":\"rank 0 on box1 killed by signal 15 (SIGTERM)\""));
    assert_non_null(strstr(text.data, "\"errorCode\":-15"));
    failed_end(&f);
}

static void test_each_run_has_a_log_directory(void **state)
{
    (void)state;
    struct failed f;
    struct err e;
    char *one = NULL, *two = NULL;
    failed_begin(&f, 1, 0);
    CLEANUP(free_text) char *base = xasprintf("%s/deep/er", f.dir);
    assert_int_equal(run_logs_claim(base, "../a b", &one, &e), ERR_OK);
    assert_int_equal(run_logs_claim(base, "../a b", &two, &e), ERR_OK);
    assert_string_not_equal(one, two);
    CLEANUP(free_text) char *wanted = xasprintf("%s/.._a_b_", base);
    assert_memory_equal(one, wanted, strlen(wanted));
    CLEANUP(free_text) char *rank = xasprintf("%s/1/generation_3/box1/0", one);
    CLEANUP(free_text) char *linked = xasprintf("%s/attempt_2/0", one);
    assert_int_equal(file_mkdirs(rank, 0700, &e), ERR_OK);
    run_logs_attempt(one, 1, 3, "box1");
    assert_int_equal(access(linked, F_OK), 0);
    free(one);
    free(two);
    failed_end(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_earliest_error_counts),
        cmocka_unit_test(test_equal_times_prefer_the_rank_that_failed),
        cmocka_unit_test(test_short_form_of_the_error_file),
        cmocka_unit_test(test_peers_are_listed_as_consequences),
        cmocka_unit_test(test_peers_that_ended_in_many_ways),
        cmocka_unit_test(test_error_file_for_the_parent_has_the_exit_code),
        cmocka_unit_test(test_each_run_has_a_log_directory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
