#include "base/cut_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"

#define LINE_START "[ddp: "
#define LINE_END " bytes of this log are left out here]\n"
#define LINE_BYTES (sizeof(LINE_START) - 1 + 15 + sizeof(LINE_END) - 1)
#define BLOCK 65536          /* the largest block of a file system */
#define NEAR (256 << 10)     /* bytes that are searched for the end of a line */
#define WORTH_IT (2 * BLOCK) /* the least number of bytes to remove */

/* The line has a fixed length, so that a later cut can overwrite it. */
static void put_line(char *out, size_t size, int64_t bytes)
{
    snprintf(out, size, LINE_START "%015lld" LINE_END, (long long)bytes);
}

static bool is_line(const char *text)
{
    return !memcmp(text, LINE_START, sizeof(LINE_START) - 1) &&
           !memcmp(text + LINE_BYTES - (sizeof(LINE_END) - 1), LINE_END, sizeof(LINE_END) - 1);
}

/* Reads up to `size` bytes that end at `end`; returns their number. */
static size_t read_before(int fd, char *out, size_t size, int64_t end)
{
    int64_t from = end > (int64_t)size ? end - (int64_t)size : 0;
    ssize_t n = pread(fd, out, (size_t)(end - from), from);

    return n == (ssize_t)(end - from) ? (size_t)n : 0;
}

/* Returns the offset of the line that belongs to the hole at `hole`; zeros may lie between them. -1: none. */
static int64_t find_line(int fd, int64_t hole)
{
    CLEANUP(free_text) char *text = xmalloc(BLOCK + LINE_BYTES);
    size_t n = read_before(fd, text, BLOCK + LINE_BYTES, hole), len = n;

    while (len && !text[len - 1])
        len--;
    return len >= LINE_BYTES && is_line(text + len - LINE_BYTES) ? hole - (int64_t)(n - len + LINE_BYTES)
                                                                 : -1;
}

/* Returns the offset for the line: that of the present line, or else behind the last line end before `head`. */
static int64_t find_start(int fd, int64_t head, int64_t size)
{
    CLEANUP(free_text) char *text = xmalloc(NEAR);
    off_t hole = lseek(fd, 0, SEEK_HOLE);
    int64_t start = hole > 0 && hole < size ? find_line(fd, hole) : -1;
    const char *end;
    size_t n;

    if (start >= 0)
        return start;
    n = read_before(fd, text, NEAR, head);
    end = n ? memrchr(text, '\n', n) : NULL;
    return end ? head - (int64_t)n + (end + 1 - text) : head;
}

static int64_t find_rest(int fd, int64_t tail, int64_t size)
{
    CLEANUP(free_text) char *text = xmalloc(NEAR);
    ssize_t n = pread(fd, text, NEAR, size - tail);
    const char *end = n > 0 ? memchr(text, '\n', (size_t)n) : NULL;

    return size - tail + (end ? end + 1 - text : 0);
}

enum err_code cut_file_middle(int fd, int64_t head, int64_t tail, int64_t *left_out, struct err *e)
{
    int64_t start, from, rest;
    char line[CUT_FILE_LINE];
    struct stat st;

    if (fstat(fd, &st))
        return err_sys(e, errno, "stat");
    if (head < 0 || tail < 0 || st.st_size <= head + tail + WORTH_IT)
        return err_set(e, ERR_FAILED_PRECONDITION, "nothing to cut: the file has %lld bytes",
                       (long long)st.st_size);
    start = find_start(fd, head, st.st_size);
    from = start + (int64_t)LINE_BYTES;
    rest = find_rest(fd, tail, st.st_size);
    if (rest < from + WORTH_IT)
        return err_set(e, ERR_FAILED_PRECONDITION,
                       "nothing to cut: the start and the newest part cover the file");
    /* Make the hole first: a line that names more bytes than are removed would hide the rest of them. */
    if (fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, from, rest - from))
        return errno == EOPNOTSUPP
                   ? err_set(e, ERR_UNIMPLEMENTED, "the file system cannot free a part of a file")
                   : err_sys(e, errno, "free the middle of the file");
    put_line(line, sizeof(line), rest - start);
    if (pwrite(fd, line, LINE_BYTES, start) != (ssize_t)LINE_BYTES)
        return err_sys(e, errno, "write");
    *left_out = rest - start;
    return ERR_OK;
}

/* Returns the first byte behind a hole that ends in the block at `data`, where the rest of the hole is zeros. */
static int64_t skip_zeros(int fd, int64_t data)
{
    CLEANUP(free_text) char *text = xmalloc(BLOCK);
    ssize_t n = pread(fd, text, BLOCK, data), zeros = 0;

    while (zeros < n && !text[zeros])
        zeros++;
    return zeros == n ? data : data + zeros;
}

static ssize_t read_on(int fd, char *out, size_t size, int64_t at, int64_t *next)
{
    ssize_t n = pread(fd, out, size, at);

    *next = at + (n > 0 ? n : 0);
    return n;
}

/* A small buffer gets a shorter line, which still ends in a line end. */
static ssize_t give_line(char *out, size_t size, int64_t bytes)
{
    char line[CUT_FILE_LINE];
    size_t n = size < LINE_BYTES ? size : LINE_BYTES;

    put_line(line, sizeof(line), bytes);
    if (n)
        line[n - 1] = '\n';
    memcpy(out, line, n);
    return (ssize_t)n;
}

ssize_t cut_file_read(int fd, char *out, size_t size, int64_t at, int64_t *next)
{
    int64_t line_end = -1;
    struct stat st;
    off_t data, hole;

    if (fstat(fd, &st))
        return -1;
    data = at < st.st_size ? lseek(fd, at, SEEK_DATA) : at;
    hole = data == at ? lseek(fd, at, SEEK_HOLE) : at;
    if (data < 0 || hole < 0 || hole >= st.st_size)
        return read_on(fd, out, size, at, next); /* no hole follows */
    line_end = find_line(fd, hole);
    if (line_end >= 0)
        line_end += (int64_t)LINE_BYTES;
    if (data == at && (line_end < 0 || at < line_end)) {
        int64_t left = (line_end < 0 ? hole : line_end) - at;

        return read_on(fd, out, (int64_t)size < left ? size : (size_t)left, at, next);
    }
    data = lseek(fd, hole, SEEK_DATA);
    if (data < 0)
        return read_on(fd, out, size, at, next); /* zeros up to the end */
    data = skip_zeros(fd, data);
    if (at == line_end) /* the caller has read the line already */
        return read_on(fd, out, size, data, next);
    *next = data;
    return give_line(out, size, data - at);
}
