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
#include "client/cmd/job_number.h"
#include "client/run/log_tail.h"
#include "client/text/prefix.h"

static void add(struct prefixer *p, int rank, const char *text, struct buf *out)
{
    prefixer_add(p, rank, false, text, strlen(text), out);
}

static void test_ranks_never_mix_within_a_line(void **state)
{
    (void)state;
    struct prefixer p;
    struct buf out = {0};
    prefixer_init(&p, true, false);
    add(&p, 0, "he", &out);
    add(&p, 1, "wor", &out);
    add(&p, 0, "llo\nmo", &out);
    add(&p, 1, "ld\n\n", &out);
    prefixer_finish(&p, &out);
    assert_string_equal(out.data, "[0] hello\n[1] world\n[1] \n[0] mo\n");
    prefixer_release(&p);
    buf_release(&out);
}

static void test_raw_passes_bytes(void **state)
{
    (void)state;
    struct prefixer p;
    struct buf out = {0};
    prefixer_init(&p, false, false);
    p.raw = true;
    add(&p, 0, "50%\r", &out);
    add(&p, 0, "60%", &out);
    prefixer_finish(&p, &out);
    assert_string_equal(out.data, "50%\r60%");
    prefixer_release(&p);
    buf_release(&out);
}

static void test_a_label_is_the_streams_own(void **state)
{
    (void)state;
    struct prefixer p;
    struct buf out = {0};
    prefixer_init(&p, false, false);
    p.raw = true;
    prefixer_label(&p, 3, false, "[trainer1]:");
    add(&p, 3, "he", &out);
    add(&p, 0, "raw ", &out);
    add(&p, 3, "llo\nend", &out);
    prefixer_finish(&p, &out);
    assert_string_equal(out.data, "raw [trainer1]:hello\n[trainer1]:end\n");
    prefixer_release(&p);
    buf_release(&out);
}

static void test_line_without_end_is_cut(void **state)
{
    (void)state;
    struct prefixer p;
    struct buf out = {0}, line = {0};
    prefixer_init(&p, true, true);
    for (int i = 0; i < 1 << 20; i++)
        buf_putc(&line, 'x');
    for (int i = 0; i < 15; i++)
        prefixer_add(&p, 3, true, line.data, line.len, &out);
    assert_int_equal(out.len, 0);
    prefixer_add(&p, 3, true, line.data, line.len, &out);
    assert_int_equal(out.len, (16 << 20) + 1 + strlen("\033[35m[3]\033[0m "));
    prefixer_release(&p);
    buf_release(&out);
    buf_release(&line);
}

/* Logs are read in pieces of 64 KiB, of several ranks by turns. */
static void test_a_long_line_stays_whole(void **state)
{
    (void)state;
    struct prefixer p;
    struct buf out = {0}, piece = {0};
    prefixer_init(&p, true, false);
    for (int i = 0; i < 1 << 16; i++)
        buf_putc(&piece, 'x');
    for (int i = 0; i < 5; i++) {
        prefixer_add(&p, 0, false, piece.data, piece.len, &out);
        prefixer_add(&p, 1, false, "other\n", 6, &out);
    }
    add(&p, 0, "end\n", &out);
    assert_int_equal(strncmp(out.data, "[1] other\n[1] other\n[1] other\n[1] other\n[1] other\n[0] xxx", 57),
                     0);
    assert_int_equal(out.len, 5 * strlen("[1] other\n") + strlen("[0] ") + 5 * piece.len + strlen("end\n"));
    prefixer_release(&p);
    buf_release(&out);
    buf_release(&piece);
}

static void append(const char *dir, const char *name, const char *text)
{
    CLEANUP(free_text) char *path = xasprintf("%s/%s", dir, name);
    FILE *f = fopen(path, "a");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static void add_ranks(struct log_tail *t)
{
    for (int rank = 0; rank < 2; rank++)
        for (int standard_error = 0; standard_error < 2; standard_error++)
            log_tail_add(t, rank, rank, standard_error, NULL);
}

static void test_tail_follows_files_as_they_come(void **state)
{
    (void)state;
    char root[] = "/tmp/ddp-test-XXXXXX";
    struct log_tail t;
    struct buf out = {0}, err = {0};
    struct err e;
    assert_non_null(mkdtemp(root));
    CLEANUP(free_text) char *rank0 = xasprintf("%s/7/generation_1/box/0", root);
    CLEANUP(free_text) char *rank1 = xasprintf("%s/7/generation_2/box/1", root);
    log_tail_init(&t);
    log_tail_open(&t, root, 7, 1, "box");
    add_ranks(&t);
    t.out.wanted = true;
    assert_false(log_tail_read(&t, &out, &err));
    assert_int_equal(file_mkdirs(rank0, 0755, &e), ERR_OK);
    append(rank0, "stdout.log", "one\ntw");
    append(rank0, "stderr.log", "oh\n");
    assert_true(log_tail_read(&t, &out, &err));
    assert_false(log_tail_read(&t, &out, &err));
    append(rank0, "stdout.log", "o\n");
    assert_true(log_tail_read(&t, &out, &err));
    assert_string_equal(out.data, "[0] one\n[0] two\n");
    assert_string_equal(err.data, "oh\n");
    log_tail_open(&t, root, 7, 2, "box");
    add_ranks(&t);
    assert_int_equal(file_mkdirs(rank1, 0755, &e), ERR_OK);
    append(rank1, "stdout.log", "again");
    buf_clear(&out);
    assert_true(log_tail_read(&t, &out, &err));
    log_tail_finish(&t, &out, &err);
    assert_string_equal(out.data, "[1] again\n");
    log_tail_release(&t);
    assert_int_equal(file_remove_tree(root, &e), ERR_OK);
    buf_release(&out);
    buf_release(&err);
}

static void test_rank_numbers(void **state)
{
    (void)state;
    struct err e;
    int64_t rank;
    assert_int_equal(job_rank_parse("12", &rank, &e), ERR_OK);
    assert_int_equal(rank, 12);
    assert_int_equal(job_rank_parse("-1", &rank, &e), ERR_INVALID_ARGUMENT);
    assert_int_equal(job_rank_parse("", &rank, &e), ERR_INVALID_ARGUMENT);
    assert_int_equal(job_rank_parse("99999999", &rank, &e), ERR_INVALID_ARGUMENT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ranks_never_mix_within_a_line),
        cmocka_unit_test(test_raw_passes_bytes),
        cmocka_unit_test(test_a_label_is_the_streams_own),
        cmocka_unit_test(test_line_without_end_is_cut),
        cmocka_unit_test(test_a_long_line_stays_whole),
        cmocka_unit_test(test_tail_follows_files_as_they_come),
        cmocka_unit_test(test_rank_numbers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
