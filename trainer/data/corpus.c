#include "trainer/data/corpus.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/digest.h"
#include "base/file.h"
#include "base/mem.h"

#define HEADER_BYTES 1024 /* the header of llm.c's token files */
#define MAGIC_16 20240520
#define MAGIC_32 20240801
#define PAGE 4096
#define MARK_WHOLE ((size_t)64 << 20) /* of larger files, the mark covers MARK_PAGES pages only */
#define MARK_PAGES ((size_t)512)
/* Bytes from which a file counts as large: random windows touch only parts of it. */
#define SCATTERED ((size_t)1 << 30)

/* ---- the file */

/* The file is mapped while it is opened, and read with pread afterwards. If the file becomes shorter later, a
 * read returns an error that names the file, but a mapping would raise SIGBUS. */
struct view {
    const uint8_t *data;
    size_t size;
};

static void view_unmap(struct view *v)
{
    if (v->data)
        munmap((void *)(uintptr_t)v->data, v->size);
}

/* The pieces of a file that are read when it is opened: the whole file or, if it is large, MARK_PAGES pages
 * at even distances, including the last page. */
static size_t view_piece_count(const struct view *v)
{
    return v->size <= MARK_WHOLE ? 1 : MARK_PAGES;
}

static struct view view_piece(const struct view *v, size_t i)
{
    size_t last = v->size / PAGE - 1;
    if (v->size <= MARK_WHOLE)
        return *v;
    return (struct view){v->data + (size_t)((double)last * (double)i / (MARK_PAGES - 1)) * PAGE, PAGE};
}

static struct dataset_mark mark_of(const struct view *v)
{
    struct dataset_mark mark = {.bytes = (int64_t)v->size};
    if (view_piece_count(v) > 1)
        mark.digest = digest64(0, &mark.bytes, sizeof(mark.bytes));
    for (size_t i = 0; i < view_piece_count(v); i++) {
        struct view piece = view_piece(v, i);
        mark.digest = digest64(mark.digest, piece.data, piece.size);
    }
    return mark;
}

static enum err_code map_file(struct corpus *c, const char *path, struct view *out, struct err *e)
{
    struct stat st;
    CLEANUP(close_fd) int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) < 0)
        return err_sys(e, errno, "%s", path);
    if (!S_ISREG(st.st_mode))
        return err_set(e, ERR_FAILED_PRECONDITION, "%s: not a file", path);
    if (st.st_size == 0)
        return err_set(e, ERR_FAILED_PRECONDITION, "%s: the file is empty", path);
    void *map = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, fd, 0);
    if (map == MAP_FAILED)
        return err_sys(e, errno, "%s: cannot be mapped", path);
    *out = (struct view){map, (size_t)st.st_size};
    /* Windows are read at random positions, so read-ahead in a large file would be wasted. */
    if (out->size > SCATTERED) {
        posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM);
        madvise(map, out->size, MADV_RANDOM);
    }
    c->mark = mark_of(out);
    c->path = xstrdup(path);
    c->fd = fd;
    fd = -1;
    return ERR_OK;
}

void corpus_release(struct corpus *c)
{
    vocabulary_release(&c->vocabulary);
    if (c->path)
        close(c->fd);
    free(c->decoded);
    free(c->path);
    *c = (struct corpus){0};
}

/* ---- text */

static enum err_code take_vocabulary(struct corpus *c, enum symbol_type type, const struct vocabulary *known,
                                     const struct view *v, struct err *e)
{
    if (!known)
        return vocabulary_scan(&c->vocabulary, type, (const char *)v->data, v->size, c->path, e);
    c->vocabulary = *known;
    if (known->symbols)
        c->vocabulary.symbols = xmemdup(known->symbols, (size_t)known->count * sizeof(*known->symbols));
    return ERR_OK;
}

static void number_put(uint8_t *to, int width, int64_t at, int32_t number)
{
    for (int i = 0; i < width; i++)
        to[at * width + i] = (uint8_t)(number >> 8 * i);
}

/* Stores the number of every character in `decoded`, with 1, 2 or 4 bytes for each. */
static enum err_code text_decode(struct corpus *c, const struct view *v, struct err *e)
{
    const char *text = (const char *)v->data;
    c->width = c->vocabulary.count <= 1 << 8 ? 1 : c->vocabulary.count <= 1 << 16 ? 2 : 4;
    uint8_t *to = malloc(v->size * (size_t)c->width);
    c->decoded = to;
    if (!to)
        return err_set(e, ERR_RESOURCE_EXHAUSTED, "%s: %zu bytes of decoded text: out of memory", c->path,
                       v->size * (size_t)c->width);
    for (size_t at = 0; at < v->size;) {
        uint32_t symbol = 0;
        size_t length = utf8_decode(text + at, v->size - at, &symbol);
        int32_t number = length ? vocabulary_find(&c->vocabulary, symbol) : -1;
        if (number < 0)
            return length ? err_set(e, ERR_DATA_LOSS,
                                    "%s: the character at byte %zu does not occur in the training text",
                                    c->path, at)
                          : err_set(e, ERR_DATA_LOSS, "%s: byte %zu is not UTF-8", c->path, at);
        number_put(to, c->width, c->count++, number);
        at += length;
    }
    /* The text has fewer characters than bytes, so give back the rest of the memory. */
    to = realloc(to, (size_t)(c->count * c->width));
    c->decoded = to ? to : c->decoded;
    return ERR_OK;
}

static enum err_code strange_byte(const struct corpus *c, int64_t at, uint8_t byte, struct err *e)
{
    return err_set(e, ERR_DATA_LOSS, "%s: byte %lld (0x%02x) does not occur in the training text", c->path,
                   (long long)at, byte);
}

static enum err_code number_text(struct corpus *c, enum symbol_type type, const struct vocabulary *known,
                                 const struct view *v, struct err *e)
{
    if (take_vocabulary(c, type, known, v, e))
        return e->code;
    c->symbols = c->vocabulary.count;
    if (type == SYMBOL_CHARACTER && c->vocabulary.symbols[c->symbols - 1] >= 0x80)
        return text_decode(c, v, e);
    c->width = 1;
    c->count = (int64_t)v->size;
    for (uint32_t byte = 0; byte < 256; byte++)
        c->table[byte] = vocabulary_find(&c->vocabulary, byte);
    for (size_t i = 0; known && type == SYMBOL_CHARACTER && i < v->size; i++)
        if (c->table[v->data[i]] < 0)
            return strange_byte(c, (int64_t)i, v->data[i], e);
    return ERR_OK;
}

enum err_code corpus_open_text(struct corpus *out, const char *path, enum symbol_type type,
                               const struct vocabulary *known, struct err *e)
{
    CLEANUP(view_unmap) struct view v = {0};
    *out = (struct corpus){0};
    if (!map_file(out, path, &v, e) && !number_text(out, type, known, &v, e))
        return ERR_OK;
    corpus_release(out);
    return e->code;
}

/* ---- tokens */

static int64_t header_number(const uint8_t *bytes, size_t i)
{
    const uint8_t *p = bytes + 4 * i;
    return (int32_t)((uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24);
}

static enum err_code parse_header(struct corpus_tokens *out, const uint8_t *bytes, size_t size, struct err *e)
{
    int64_t version = header_number(bytes, 1), count = header_number(bytes, 2);
    if (version != 1)
        return err_set(e, ERR_DATA_LOSS, "unsupported version of a token file: expected 1, got %lld",
                       (long long)version);
    if (count < 0 || (size_t)count != (size - HEADER_BYTES) / 2 || size % 2)
        return err_set(e, ERR_DATA_LOSS,
                       "truncated or damaged: expected %lld tokens, as its header says, got %.1f",
                       (long long)count, (double)(size - HEADER_BYTES) / 2);
    *out = (struct corpus_tokens){HEADER_BYTES, count};
    return ERR_OK;
}

enum err_code corpus_parse_tokens(struct corpus_tokens *out, const uint8_t *bytes, size_t size, struct err *e)
{
    int64_t magic = size >= HEADER_BYTES ? header_number(bytes, 0) : 0;
    if (magic == MAGIC_16)
        return parse_header(out, bytes, size, e);
    if (magic == MAGIC_32)
        return err_set(e, ERR_DATA_LOSS, "unsupported 32-bit tokens (magic %d): convert them to 16 bits",
                       MAGIC_32);
    if (size % 2)
        return err_set(e, ERR_DATA_LOSS, "not a file of 16-bit tokens: its size, %zu bytes, is odd", size);
    *out = (struct corpus_tokens){0, (int64_t)(size / 2)};
    return ERR_OK;
}

static int32_t token_at(const uint8_t *bytes)
{
    return bytes[0] | bytes[1] << 8;
}

static enum err_code strange_token(const struct corpus *c, int64_t at, int32_t token, struct err *e)
{
    return err_set(
        e, ERR_DATA_LOSS,
        "%s: token %lld is %d, but model.vocab is %lld: raise it, or check that the file has 16-bit "
        "tokens",
        c->path, (long long)at, (int)token, (long long)c->symbols);
}

/* Checks the tokens in the pages that are read for the mark anyway. This finds a wrong vocab when the file is
 * opened. */
static enum err_code check_tokens(const struct corpus *c, const struct view *v, struct err *e)
{
    const uint8_t *first = v->data + c->offset;
    for (size_t i = 0; c->symbols < 1 << 16 && i < view_piece_count(v); i++) {
        struct view piece = view_piece(v, i);
        const uint8_t *p = piece.data < first ? first : piece.data;
        for (; p < piece.data + piece.size; p += 2)
            if (token_at(p) >= c->symbols)
                return strange_token(c, (p - first) / 2, token_at(p), e);
    }
    return ERR_OK;
}

static enum err_code number_tokens(struct corpus *c, const struct view *v, struct err *e)
{
    struct corpus_tokens where;
    if (corpus_parse_tokens(&where, v->data, v->size, e))
        return err_wrap(e, "%s", c->path);
    c->offset = (int64_t)where.offset;
    c->count = where.count;
    return check_tokens(c, v, e);
}

enum err_code corpus_open_tokens(struct corpus *out, const char *path, int64_t symbols, struct err *e)
{
    CLEANUP(view_unmap) struct view v = {0};
    *out = (struct corpus){.width = 2, .symbols = symbols};
    if (!map_file(out, path, &v, e) && !number_tokens(out, &v, e))
        return ERR_OK;
    corpus_release(out);
    return e->code;
}

/* ---- reading */

static void read_decoded(const struct corpus *c, int64_t at, int64_t count, int32_t *out)
{
    const uint8_t *p = c->decoded + at * c->width;
    for (int64_t i = 0; i < count; i++, p += c->width)
        out[i] = c->width == 1 ? p[0] : c->width == 2 ? token_at(p) : (int32_t)header_number(p, 0);
}

/* The bytes are read to the end of `out` and widened from its start, so no number is written over a byte that
 * is not yet widened. */
static enum err_code read_file(const struct corpus *c, int64_t at, int64_t count, int32_t *out, struct err *e)
{
    const uint8_t *p = (const uint8_t *)out + (4 - c->width) * count;
    if (fd_read_at(c->fd, (uint8_t *)out + (4 - c->width) * count, (size_t)(count * c->width),
                   (uint64_t)(c->offset + at * c->width), e))
        return err_wrap(e, "%s", c->path);
    for (int64_t i = 0; i < count; i++, p += c->width) {
        int32_t number = c->width == 1 ? c->table[*p] : token_at(p);
        if (number < 0)
            return strange_byte(c, at + i, *p, e);
        if (number >= c->symbols)
            return strange_token(c, at + i, number, e);
        out[i] = number;
    }
    return ERR_OK;
}

enum err_code corpus_read(const struct corpus *c, int64_t at, int64_t count, int32_t *out, struct err *e)
{
    BUG_ON(at < 0 || count < 0 || at > c->count - count);
    if (!c->decoded)
        return read_file(c, at, count, out, e);
    read_decoded(c, at, count, out);
    return ERR_OK;
}
