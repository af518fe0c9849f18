/* Tests when the bytes of a log were written, and where a reader begins, by notes that the test writes. */
#include "tests/unit/base/check.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "daemon/agent/logs/log_dates.h"
#include "daemon/agent/logs/log_start.h"

#define CHANGED_US 900000 /* the log's last change */

static int open_notes(const struct log_note *notes, size_t count)
{
    FILE *f = tmpfile();
    uint8_t bytes[LOG_NOTE_SIZE];
    int fd;

    assert_non_null(f);
    for (size_t i = 0; i < count; i++) {
        log_note_encode(&notes[i], bytes);
        assert_int_equal(fwrite(bytes, sizeof(bytes), 1, f), 1);
    }
    fflush(f);
    fd = dup(fileno(f));
    fclose(f);
    return fd;
}

static struct stat log_of(int64_t size)
{
    return (struct stat){.st_size = size, .st_mtim = {0, CHANGED_US * 1000}};
}

static void expect_runs(const struct log_runs *runs, const int64_t (*wanted)[2], size_t count)
{
    assert_int_equal(runs->count, count);
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(runs->bytes[i], wanted[i][0]);
        assert_int_equal(runs->wall_us[i], wanted[i][1]);
    }
}

static const struct log_note notes[] = {
    {1000, 10, false}, {1001, 5, true}, {1002, 20, false}, {1003, 7, true}, {1004, 40, false}};

static void runs_follow_the_notes_of_their_stream(void **state)
{
    CLEANUP(close_fd) int fd = open_notes(notes, ARRAY_LEN(notes));
    CLEANUP(log_runs_release) struct log_runs runs = {0};
    struct stat log = log_of(50);
    int64_t at = 0;

    (void)state;
    log_runs_find(&runs, fd, &at, false, &log, 0, 50);
    expect_runs(&runs, (const int64_t[][2]){{10, 1000}, {10, 1002}, {20, 1004}, {10, CHANGED_US}}, 4);
    at = 0;
    log_runs_find(&runs, fd, &at, true, &log, 0, 7);
    expect_runs(&runs, (const int64_t[][2]){{5, 1001}, {2, 1003}}, 2);
}

/* However the bytes are cut into pieces, each byte has the same time, and the place in the notes is kept. */
static void pieces_of_any_size_have_the_same_times(void **state)
{
    CLEANUP(close_fd) int fd = open_notes(notes, ARRAY_LEN(notes));
    struct stat log = log_of(50);

    (void)state;
    for (int64_t piece = 1; piece <= 50; piece++) {
        int64_t notes_at = 0;

        for (int64_t begin = 0; begin < 50; begin += piece) {
            CLEANUP(log_runs_release) struct log_runs runs = {0};
            const int64_t end = begin + piece < 50 ? begin + piece : 50;
            int64_t at = begin;

            log_runs_find(&runs, fd, &notes_at, false, &log, begin, end);
            for (size_t i = 0; i < runs.count; at += runs.bytes[i++])
                assert_int_equal(runs.wall_us[i], at < 10   ? 1000
                                                  : at < 20 ? 1002
                                                  : at < 40 ? 1004
                                                            : CHANGED_US);
            assert_int_equal(at, end);
        }
    }
}

/* The notes belong to the job's user. */
static void any_notes_give_runs_of_all_bytes(void **state)
{
    const struct log_note bad[] = {{-1, -5, false},
                                   {INT64_MAX, INT64_MAX, false},
                                   {3, 0, false},
                                   {INT64_MIN, 4, false},
                                   {7, INT64_MIN, false}};
    struct stat log = log_of(50);

    (void)state;
    for (size_t first = 0; first < ARRAY_LEN(bad); first++) {
        CLEANUP(close_fd) int fd = open_notes(bad + first, ARRAY_LEN(bad) - first);
        CLEANUP(log_runs_release) struct log_runs runs = {0};
        int64_t at = 0, sum = 0;

        log_runs_find(&runs, fd, &at, false, &log, 0, 50);
        for (size_t i = 0; i < runs.count; i++) {
            assert_true(runs.bytes[i] > 0);
            sum += runs.bytes[i];
        }
        assert_int_equal(sum, 50);
        const int64_t since = log_offset_since(fd, false, &log, 5);
        const struct log_start start = {.since_ms = 1};
        (void)since;
        assert_in_range(log_start_find(&start, -1, fd, false, &log), 0, 50);
    }
}

/* A hole as large as a file can be costs nothing, and is examined once. */
static void a_hole_ends_the_notes(void **state)
{
    CLEANUP(close_fd) int fd = open_notes(notes, 1);
    CLEANUP(log_runs_release) struct log_runs runs = {0};
    struct stat log = log_of(50);
    int64_t at = 0;

    (void)state;
    assert_int_equal(ftruncate(fd, (int64_t)1 << 40), 0);
    log_runs_find(&runs, fd, &at, false, &log, 0, 30);
    expect_runs(&runs, (const int64_t[][2]){{10, 1000}, {20, CHANGED_US}}, 2);
    assert_true(at == LOG_NOTES_END);
    log_runs_find(&runs, fd, &at, false, &log, 30, 50);
    expect_runs(&runs, (const int64_t[][2]){{20, CHANGED_US}}, 1);
    assert_int_equal(log_offset_since(fd, false, &log, 1001), 10);
}

/* Notes of the other stream are not read again for each piece. */
static void a_stream_without_new_notes_passes_the_others(void **state)
{
    CLEANUP(close_fd) int fd = open_notes(notes, ARRAY_LEN(notes));
    CLEANUP(log_runs_release) struct log_runs runs = {0};
    struct stat log = log_of(50);
    int64_t at = 0;

    (void)state;
    log_runs_find(&runs, fd, &at, true, &log, 0, 20);
    expect_runs(&runs, (const int64_t[][2]){{5, 1001}, {2, 1003}, {13, CHANGED_US}}, 3);
    assert_int_equal(at, sizeof(uint8_t[LOG_NOTE_SIZE]) * ARRAY_LEN(notes));
}

static void a_clock_that_is_set_back_keeps_the_order(void **state)
{
    const struct log_note back[] = {{1000, 10, false}, {400, 20, false}, {1005, 30, false}};
    CLEANUP(close_fd) int fd = open_notes(back, ARRAY_LEN(back));
    CLEANUP(log_runs_release) struct log_runs runs = {0};
    struct stat log = log_of(30);
    int64_t at = 0;

    (void)state;
    log_runs_find(&runs, fd, &at, false, &log, 0, 30);
    expect_runs(&runs, (const int64_t[][2]){{10, 1000}, {10, 1000}, {10, 1005}}, 3);
}

static void without_notes_the_last_change_counts(void **state)
{
    CLEANUP(log_runs_release) struct log_runs runs = {0};
    struct stat log = log_of(50);
    int64_t at = 0;

    (void)state;
    log_runs_find(&runs, -1, &at, false, &log, 20, 50);
    expect_runs(&runs, (const int64_t[][2]){{30, CHANGED_US}}, 1);
    assert_int_equal(log_offset_since(-1, false, &log, CHANGED_US), 0);
    assert_int_equal(log_offset_since(-1, false, &log, CHANGED_US + 1), 50);
}

static void a_time_gives_the_first_byte_since(void **state)
{
    CLEANUP(close_fd) int fd = open_notes(notes, ARRAY_LEN(notes));
    struct stat log = log_of(50);

    (void)state;
    assert_int_equal(log_offset_since(fd, false, &log, 1), 0);
    assert_int_equal(log_offset_since(fd, false, &log, 1000), 0);
    assert_int_equal(log_offset_since(fd, false, &log, 1001), 10);
    assert_int_equal(log_offset_since(fd, false, &log, 1004), 20);
    assert_int_equal(log_offset_since(fd, false, &log, 1005), 40); /* bytes without a note */
    assert_int_equal(log_offset_since(fd, false, &log, CHANGED_US + 1), 50);
    assert_int_equal(log_offset_since(fd, true, &log, 1002), 5);
}

static int64_t start_of_tail(const char *text, int64_t lines)
{
    const struct log_start start = {.tail_lines = lines};
    FILE *f = tmpfile();
    struct stat st;

    assert_non_null(f);
    fputs(text, f);
    fflush(f);
    assert_int_equal(fstat(fileno(f), &st), 0);
    const int64_t at = log_start_find(&start, fileno(f), -1, false, &st);
    fclose(f);
    return at;
}

static void the_last_lines_are_found(void **state)
{
    CLEANUP(free_text) char *large = xcalloc(1, 200001);

    (void)state;
    assert_int_equal(start_of_tail("", 3), 0);
    assert_int_equal(start_of_tail("a\nb\nc\n", 1), 4);
    assert_int_equal(start_of_tail("a\nb\nc\n", 3), 0);
    assert_int_equal(start_of_tail("a\nb\nc\n", 9), 0);
    assert_int_equal(start_of_tail("a\nb\nrest", 1), 4); /* a line without an end counts */
    assert_int_equal(start_of_tail("a\n\n\n", 2), 2);
    memset(large, 'x', 200000); /* more than one block, one line end in each */
    large[1000] = large[199000] = '\n';
    assert_int_equal(start_of_tail(large, 1), 199001);
    assert_int_equal(start_of_tail(large, 2), 1001);
    assert_int_equal(start_of_tail(large, 3), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(runs_follow_the_notes_of_their_stream),
        cmocka_unit_test(pieces_of_any_size_have_the_same_times),
        cmocka_unit_test(any_notes_give_runs_of_all_bytes),
        cmocka_unit_test(a_hole_ends_the_notes),
        cmocka_unit_test(a_stream_without_new_notes_passes_the_others),
        cmocka_unit_test(a_clock_that_is_set_back_keeps_the_order),
        cmocka_unit_test(without_notes_the_last_change_counts),
        cmocka_unit_test(a_time_gives_the_first_byte_since),
        cmocka_unit_test(the_last_lines_are_found),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
