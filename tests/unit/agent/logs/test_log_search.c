#include "tests/unit/base/check.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cut_file.h"
#include "base/mem.h"
#include "daemon/agent/logs/log_search.h"

struct fixture {
    int fd;
    struct pattern *pattern;
    struct log_search search;
    struct err e;
    struct buf got;
};

static int fixture_open(void **state)
{
    struct fixture *d = xcalloc(1, sizeof(*d));
    char path[] = "/tmp/ddp-test-search-XXXXXX";

    d->fd = mkstemp(path);
    unlink(path);
    *state = d;
    return d->fd < 0 ? -1 : 0;
}

static int fixture_close(void **state)
{
    struct fixture *d = *state;

    log_search_release(&d->search);
    pattern_free(d->pattern);
    buf_release(&d->got);
    close(d->fd);
    free(d);
    return 0;
}

static void write_text(struct fixture *d, const char *text)
{
    assert_int_equal(pwrite(d->fd, text, strlen(text), lseek(d->fd, 0, SEEK_END)), strlen(text));
}

static void begin_search(struct fixture *d, const char *pattern, int64_t offset, bool within, int64_t tail)
{
    struct err e;

    log_search_release(&d->search);
    pattern_free(d->pattern);
    assert_ok(pattern_compile(pattern, &d->pattern, &e), &e);
    log_search_begin(&d->search, d->pattern, offset, within, tail);
    buf_clear(&d->got);
}

static enum log_search_result run_search(struct fixture *d, bool last, size_t wanted, int64_t budget)
{
    enum log_search_result result;
    struct stat st;
    size_t bytes = 0;

    assert_int_equal(fstat(d->fd, &st), 0);
    result = log_search_run(&d->search, d->fd, &st, last, wanted, &budget, &d->e);
    assert_true(d->search.out.len <= wanted);
    for (size_t i = 0; i < d->search.region_count; i++)
        bytes += (size_t)(d->search.regions[i].to - d->search.regions[i].from);
    assert_int_equal(bytes, d->search.out.len);
    if (d->search.out.len)
        buf_append(&d->got, d->search.out.data, d->search.out.len);
    log_search_clear(&d->search);
    return result;
}

#define MUCH (INT64_MAX / 2)

static void lines_that_match_are_found(void **state)
{
    struct fixture *d = *state;

    write_text(d, "one\ntwo\n\nthree\ntwo and a half");
    begin_search(d, "tw", 0, false, 0);
    assert_int_equal(run_search(d, false, 1000, MUCH), LOG_SEARCH_END);
    assert_string_equal(d->got.data, "two\n"); /* the last line goes on */
    assert_int_equal(run_search(d, true, 1000, MUCH), LOG_SEARCH_END);
    assert_string_equal(d->got.data, "two\ntwo and a half");
    begin_search(d, "^$", 0, false, 0);
    run_search(d, true, 1000, MUCH);
    assert_string_equal(d->got.data, "\n");
}

static void a_line_that_grows_is_found_when_it_ends(void **state)
{
    struct fixture *d = *state;

    write_text(d, "loss 1");
    begin_search(d, "^loss 12$", 0, false, 0);
    assert_int_equal(run_search(d, false, 1000, MUCH), LOG_SEARCH_END);
    write_text(d, "2");
    assert_int_equal(run_search(d, false, 1000, MUCH), LOG_SEARCH_END);
    assert_int_equal(d->got.len, 0);
    write_text(d, "\nloss 12");
    run_search(d, false, 1000, MUCH);
    assert_string_equal(d->got.data, "loss 12\n");
    write_text(d, "3\n");
    run_search(d, false, 1000, MUCH);
    assert_string_equal(d->got.data, "loss 12\n");
}

/* The long lines lie in two blocks, and the pieces that are taken are smaller than a line. */
static void any_piece_and_any_budget_give_the_same(void **state)
{
    struct fixture *d = *state;
    CLEANUP(buf_release) struct buf text = {0}, wanted = {0}, line = {0};

    for (int i = 0; i < 300; i++) {
        buf_clear(&line);
        buf_printf(&line, "line %d ", i);
        for (int at = 0; at < (i == 100 || i == 200 ? 60000 : i % 7 * 30); at++)
            buf_putc(&line, (char)('a' + at % 26));
        buf_printf(&line, "%s\n", i % 5 == 0 ? " found" : "");
        buf_append(&text, line.data, line.len);
        if (i % 5 == 0)
            buf_append(&wanted, line.data, line.len);
    }
    write_text(d, text.data);
    for (int round = 0; round < 3; round++) {
        const int64_t budgets[] = {MUCH, 2000, 40000};
        const size_t pieces[] = {65536, 1000, 7000};

        begin_search(d, "[0-9] .*found$", 0, false, 0);
        while (run_search(d, true, pieces[round], budgets[round]) != LOG_SEARCH_END)
            ;
        assert_int_equal(d->got.len, wanted.len);
        assert_memory_equal(d->got.data, wanted.data, wanted.len);
    }
}

static void a_line_that_takes_too_long_ends_the_search_with_its_place(void **state)
{
    struct fixture *d = *state;

    write_text(d, "aaa\naaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab\naa\n");
    begin_search(d, "^((a+)+)+$", 0, false, 0);
    assert_int_equal(run_search(d, true, 1000, MUCH), LOG_SEARCH_FAILED);
    assert_non_null(strstr(d->e.msg, "the line at byte 4: the expression takes too long"));
    assert_string_equal(d->got.data, "aaa\n");
}

static void a_line_was_written_when_it_ended(void **state)
{
    struct fixture *d = *state;
    char path[] = "/tmp/ddp-test-notes-XXXXXX";
    CLEANUP(close_fd) int notes = mkstemp(path);
    /* "found 1\n" in two parts, "no\n", "found 2\n" */
    const struct log_note list[] = {{1000, 3, false}, {2000, 8, false}, {3000, 11, false}, {4000, 19, false}};
    CLEANUP(log_runs_release) struct log_runs runs = {0};
    int64_t notes_at = 0, budget = MUCH;
    struct stat st;

    unlink(path);
    for (size_t i = 0; i < ARRAY_LEN(list); i++) {
        uint8_t bytes[LOG_NOTE_SIZE];

        log_note_encode(&list[i], bytes);
        assert_int_equal(write(notes, bytes, sizeof(bytes)), sizeof(bytes));
    }
    write_text(d, "found 1\nno\nfound 2\n");
    begin_search(d, "found", 0, false, 0);
    assert_int_equal(fstat(d->fd, &st), 0);
    log_search_run(&d->search, d->fd, &st, true, 1000, &budget, &d->e);
    log_search_date(&d->search, &runs, notes, &notes_at, false, &st);
    assert_int_equal(runs.count, 2);
    assert_true(runs.bytes[0] == 8 && runs.wall_us[0] == 2000);
    assert_true(runs.bytes[1] == 8 && runs.wall_us[1] == 4000);
}

/* As when the agent restarts: the next search gets only the place. */
static void another_search_goes_on_from_the_place(void **state)
{
    struct fixture *d = *state;
    CLEANUP(buf_release) struct buf got = {0};
    enum log_search_result result;
    int64_t place = 0;
    bool within = false;

    write_text(d, "no\nfound 1 with a long end\nno\nfound 2\nno\n");
    do {
        begin_search(d, "found", place, within, 0);
        result = run_search(d, true, 5, MUCH);
        if (d->got.len)
            buf_append(&got, d->got.data, d->got.len);
        place = log_search_place(&d->search, &within);
    } while (result != LOG_SEARCH_END);
    assert_string_equal(got.data, "found 1 with a long end\nfound 2\n");
}

static void a_tail_has_the_last_lines_that_match(void **state)
{
    struct fixture *d = *state;

    for (int i = 0; i < 1000; i++) {
        char text[64];

        snprintf(text, sizeof(text), "%s %d\n", i % 100 == 7 ? "hit" : "line", i);
        write_text(d, text);
    }
    begin_search(d, "hit", 0, false, 3);
    while (run_search(d, true, 1000, 500) != LOG_SEARCH_END)
        ;
    assert_string_equal(d->got.data, "hit 707\nhit 807\nhit 907\n");
    begin_search(d, "hit", 0, false, 100);
    run_search(d, true, 1000, MUCH);
    assert_memory_equal(d->got.data, "hit 7\nhit 107\n", 14);
    assert_int_equal(d->got.len, 6 + 9 * 8);
    begin_search(d, "none", 0, false, 3);
    assert_int_equal(run_search(d, false, 1000, MUCH), LOG_SEARCH_END);
    assert_int_equal(d->got.len, 0);
    write_text(d, "none\n"); /* with --follow */
    run_search(d, false, 1000, MUCH);
    assert_string_equal(d->got.data, "none\n");
}

static void a_shorter_file_is_searched_from_its_start(void **state)
{
    struct fixture *d = *state;

    write_text(d, "first found\nand more\n");
    begin_search(d, "found", 0, false, 0);
    run_search(d, false, 1000, MUCH);
    assert_int_equal(ftruncate(d->fd, 0), 0);
    write_text(d, "found\n");
    run_search(d, false, 1000, MUCH);
    assert_string_equal(d->got.data, "first found\nfound\n");
}

static void a_hole_is_skipped(void **state)
{
    struct fixture *d = *state;
    CLEANUP(buf_release) struct buf text = {0};
    int64_t left_out;
    struct err e;
    enum err_code code;

    for (int i = 0; text.len < 2 << 20; i++)
        buf_printf(&text, "line %08d\n", i);
    write_text(d, text.data);
    code = cut_file_middle(d->fd, 100 << 10, 200 << 10, &left_out, &e);
    if (code == ERR_UNIMPLEMENTED)
        skip();
    assert_ok(code, &e);
    begin_search(d, "left out|line 00000003|line 00149796", 0, false, 0);
    while (run_search(d, true, 1000, 3000000) != LOG_SEARCH_END)
        ;
    CLEANUP(free_text)
    char *wanted =
        xasprintf("line 00000003\n[ddp: %015lld bytes of this log are left out here]\nline 00149796\n",
                  (long long)left_out);
    assert_string_equal(d->got.data, wanted);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(lines_that_match_are_found, fixture_open, fixture_close),
        cmocka_unit_test_setup_teardown(a_line_that_grows_is_found_when_it_ends, fixture_open, fixture_close),
        cmocka_unit_test_setup_teardown(any_piece_and_any_budget_give_the_same, fixture_open, fixture_close),
        cmocka_unit_test_setup_teardown(a_line_that_takes_too_long_ends_the_search_with_its_place,
                                        fixture_open, fixture_close),
        cmocka_unit_test_setup_teardown(a_line_was_written_when_it_ended, fixture_open, fixture_close),
        cmocka_unit_test_setup_teardown(another_search_goes_on_from_the_place, fixture_open, fixture_close),
        cmocka_unit_test_setup_teardown(a_tail_has_the_last_lines_that_match, fixture_open, fixture_close),
        cmocka_unit_test_setup_teardown(a_shorter_file_is_searched_from_its_start, fixture_open,
                                        fixture_close),
        cmocka_unit_test_setup_teardown(a_hole_is_skipped, fixture_open, fixture_close),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
