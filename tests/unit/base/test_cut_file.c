#include "tests/unit/base/check.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cut_file.h"
#include "base/mem.h"

#define KIB 1024
#define MIB (1024 * KIB)

struct log {
    int append, fd; /* descriptors of the worker and of the agent */
    int lines;
};

static int open_log(void **state)
{
    struct log *l = xcalloc(1, sizeof(*l));
    char path[] = "/tmp/ddp-cut-XXXXXX";
    int fd = mkstemp(path);

    l->append = open(path, O_WRONLY | O_APPEND | O_CLOEXEC);
    l->fd = fd;
    unlink(path);
    *state = l;
    return fd >= 0 && l->append >= 0 ? 0 : -1;
}

static int close_log(void **state)
{
    struct log *l = *state;

    close(l->append);
    close(l->fd);
    free(l);
    return 0;
}

static void write_lines(struct log *l, size_t bytes)
{
    CLEANUP(buf_release) struct buf text = {0};

    while (text.len < bytes)
        buf_printf(&text, "line %08d of what a worker says\n", l->lines++);
    assert_int_equal(write(l->append, text.data, text.len), text.len);
}

static int64_t cut_log(struct log *l, int64_t head, int64_t tail)
{
    int64_t left_out = 0;
    struct err e;
    enum err_code code = cut_file_middle(l->fd, head, tail, &left_out, &e);

    if (code == ERR_UNIMPLEMENTED)
        skip(); /* this file system cannot make holes */
    assert_ok(code, &e);
    return left_out;
}

static int64_t stored_bytes(const struct log *l)
{
    struct stat st;

    assert_int_equal(fstat(l->fd, &st), 0);
    return (int64_t)st.st_blocks * 512;
}

/* Reads the file from offset `at` to its end, in pieces of that size. */
static void read_all(const struct log *l, int64_t at, size_t piece, struct buf *out)
{
    CLEANUP(free_text) char *text = xmalloc(piece);
    int64_t next;
    ssize_t n;

    buf_clear(out);
    while ((n = cut_file_read(l->fd, text, piece, at, &next)) > 0) {
        buf_append(out, text, (size_t)n);
        assert_true(next >= at + n);
        at = next;
    }
    assert_int_equal(n, 0);
    assert_null(out->len ? memchr(out->data, 0, out->len) : NULL);
    buf_append(out, "", 0);
}

static int count_matches(const char *text, const char *what)
{
    int n = 0;

    for (; (text = strstr(text, what)); text += strlen(what))
        n++;
    return n;
}

static void the_middle_is_removed_and_a_line_says_so(void **state)
{
    CLEANUP(buf_release) struct buf text = {0};
    struct log *l = *state;
    CLEANUP(free_text) char *said = NULL;
    struct stat st;
    int64_t left_out;

    write_lines(l, 8 * MIB);
    left_out = cut_log(l, 100 * KIB, 300 * KIB);
    assert_in_range(left_out, 7 * MIB, 8 * MIB);
    assert_in_range(stored_bytes(l), 0, 600 * KIB);
    assert_int_equal(fstat(l->fd, &st), 0);
    assert_int_equal(lseek(l->append, 0, SEEK_END), st.st_size);
    write_lines(l, 1); /* the worker still appends at the old end */
    said = xasprintf("\n[ddp: %015lld bytes of this log are left out here]\nline ", (long long)left_out);
    for (size_t piece = 200; piece < 2 * MIB; piece = piece * 5 + 3) {
        read_all(l, 0, piece, &text);
        assert_int_equal(strncmp(text.data, "line 00000000", 13), 0);
        assert_int_equal(count_matches(text.data, said), 1);
        assert_int_equal(count_matches(text.data, "left out"), 1);
        assert_int_equal(text.len + (size_t)left_out,
                         (size_t)lseek(l->append, 0, SEEK_END) + strlen(said) - strlen("\nline "));
    }
}

static void a_second_cut_extends_the_hole(void **state)
{
    CLEANUP(buf_release) struct buf text = {0};
    struct log *l = *state;
    int64_t first, second;

    write_lines(l, 3 * MIB);
    first = cut_log(l, 200 * KIB, 400 * KIB);
    for (int i = 0; i < 5; i++) {
        write_lines(l, 3 * MIB);
        second = cut_log(l, 100 * KIB, 400 * KIB); /* the line stays where the first cut put it */
        assert_in_range(second, first + 2 * MIB, first + 4 * MIB);
        first = second;
        read_all(l, 0, 64 * KIB, &text);
        assert_int_equal(count_matches(text.data, "left out"), 1);
        assert_in_range(stored_bytes(l), 0, 900 * KIB);
    }
    assert_int_equal(strncmp(text.data, "line 00000000", 13), 0);
    assert_non_null(strstr(text.data, "bytes of this log are left out here]\nline "));
}

/* A follower was so slow that the text at its position has been removed. */
static void a_reader_inside_the_hole_gets_the_line_first(void **state)
{
    CLEANUP(buf_release) struct buf text = {0};
    struct log *l = *state;

    write_lines(l, 4 * MIB);
    cut_log(l, 100 * KIB, 300 * KIB);
    for (int64_t at = 102 * KIB; at < 3 * MIB; at += 99999) {
        read_all(l, at, 64 * KIB, &text);
        assert_int_equal(strncmp(text.data, "[ddp: ", 6), 0);
        assert_non_null(strstr(text.data, "left out here]\nline "));
        assert_int_equal(count_matches(text.data, "left out"), 1);
    }
}

static void files_without_line_breaks_are_cut(void **state)
{
    CLEANUP(buf_release) struct buf piece = {0}, text = {0};
    struct log *l = *state;

    for (int i = 0; i < MIB; i++)
        buf_putc(&piece, 'x');
    for (int i = 0; i < 4; i++)
        assert_int_equal(write(l->append, piece.data, piece.len), piece.len);
    cut_log(l, 100 * KIB, 300 * KIB);
    read_all(l, 0, 64 * KIB, &text);
    assert_in_range(text.len, 400 * KIB, 401 * KIB);
    assert_int_equal(count_matches(text.data, "left out"), 1);
}

static void small_files_are_not_cut(void **state)
{
    struct log *l = *state;
    int64_t left_out;
    struct err e;

    write_lines(l, 300 * KIB);
    assert_int_equal(cut_file_middle(l->fd, 100 * KIB, 150 * KIB, &left_out, &e), ERR_FAILED_PRECONDITION);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, open_log, close_log)
    const struct CMUnitTest tests[] = {
        TEST(the_middle_is_removed_and_a_line_says_so),
        TEST(a_second_cut_extends_the_hole),
        TEST(a_reader_inside_the_hole_gets_the_line_first),
        TEST(files_without_line_breaks_are_cut),
        TEST(small_files_are_not_cut),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
