#include "trainer/data/corpus.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
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
/* Bytes that are read at once while a file is opened: whole blocks of a digest, and not much for a cache. */
#define BLOCK ((size_t)256 << 10)

/* ---- the file */

/* Reads a range of the file in order, block by block. This is not done by a mapping: if the file becomes shorter meanwhile, or the
 * server of a network file system fails, a read returns an error that names the file, but a mapping would raise SIGBUS. */
struct walk {
    const struct corpus *c;
    uint64_t at, end; /* where the block begins, and where the range ends */
    size_t size;      /* of the block; 0 before the first */
    bool characters;  /* the blocks of a text: each ends where a character ends */
    uint8_t *bytes;   /* BLOCK of them, owned */
};

static struct walk walk_open(const struct corpus *c, uint64_t at, uint64_t size)
{
    return (struct walk){.c = c, .at = at, .end = at + size, .bytes = xmalloc(BLOCK)};
}

static void walk_close(struct walk *w)
{
    free(w->bytes);
}

static bool walk_is_over(const struct walk *w)
{
    return w->at + w->size == w->end;
}

static enum err_code walk_read(struct walk *w, struct err *e)
{
    w->at += w->size;
    w->size = w->end - w->at < BLOCK ? (size_t)(w->end - w->at) : BLOCK;
    if (fd_read_at(w->c->fd, w->bytes, w->size, w->at, e))
        return err_wrap(e, "%s", w->c->path);
    /* A character that the block cuts off is read again with the next block. */
    if (w->characters && !walk_is_over(w))
        w->size = utf8_whole((const char *)w->bytes, w->size);
    return ERR_OK;
}

/* The pieces of a file that its mark covers: the whole file or, if it is large, MARK_PAGES pages at even
 * distances, including the last page. */
struct piece {
    uint64_t at, size;
};

static size_t piece_count(size_t size)
{
    return size <= MARK_WHOLE ? 1 : MARK_PAGES;
}

static struct piece piece_of(size_t size, size_t i)
{
    size_t last = size / PAGE - 1;
    if (size <= MARK_WHOLE)
        return (struct piece){0, size};
    return (struct piece){(uint64_t)((double)last * (double)i / (MARK_PAGES - 1)) * PAGE, PAGE};
}

static enum err_code take_mark(struct corpus *c, size_t size, struct err *e)
{
    struct dataset_mark mark = {.bytes = (int64_t)size};
    if (piece_count(size) > 1)
        mark.digest = digest64(0, &mark.bytes, sizeof(mark.bytes));
    for (size_t i = 0; i < piece_count(size); i++) {
        struct piece piece = piece_of(size, i);
        CLEANUP(walk_close) struct walk w = walk_open(c, piece.at, piece.size);
        mark.digest = digest64_begin(mark.digest, piece.size);
        while (!walk_is_over(&w)) {
            if (walk_read(&w, e))
                return e->code;
            mark.digest = digest64_add(mark.digest, w.bytes, w.size);
        }
    }
    c->mark = mark;
    return ERR_OK;
}

static enum err_code open_file(struct corpus *c, const char *path, size_t *size, struct err *e)
{
    struct stat st;
    CLEANUP(close_fd) int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) < 0)
        return err_sys(e, errno, "%s", path);
    if (!S_ISREG(st.st_mode))
        return err_set(e, ERR_FAILED_PRECONDITION, "%s: not a file", path);
    if (st.st_size == 0)
        return err_set(e, ERR_FAILED_PRECONDITION, "%s: the file is empty", path);
    *size = (size_t)st.st_size;
    c->path = xstrdup(path);
    c->fd = fd;
    fd = -1;
    return take_mark(c, *size, e);
}

/* Windows are read at random positions, so read-ahead in a large file would be wasted. Not before the file has been opened: that
 * may read all of it in order. */
static void expect_windows(const struct corpus *c, size_t size)
{
    if (size > SCATTERED)
        posix_fadvise(c->fd, 0, 0, POSIX_FADV_RANDOM);
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

static enum err_code scan_characters(struct corpus *c, size_t size, struct err *e)
{
    CLEANUP(walk_close) struct walk w = walk_open(c, 0, size);
    uint8_t *seen = xcalloc(VOCABULARY_SEEN, 1);
    enum err_code code = ERR_OK;
    w.characters = true;
    while (!code && !walk_is_over(&w)) {
        code = walk_read(&w, e);
        if (!code)
            code = vocabulary_mark(seen, (const char *)w.bytes, w.size, w.at, c->path, e);
    }
    if (!code)
        vocabulary_collect(&c->vocabulary, seen);
    free(seen);
    return code;
}

static enum err_code take_vocabulary(struct corpus *c, enum symbol_type type, const struct vocabulary *known,
                                     size_t size, struct err *e)
{
    if (!known && type == SYMBOL_CHARACTER)
        return scan_characters(c, size, e);
    if (!known)
        return vocabulary_scan(&c->vocabulary, type, NULL, 0, c->path, e);
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

/* Stores the numbers of a block's characters in `decoded`, with 1, 2 or 4 bytes for each. */
static enum err_code decode_block(struct corpus *c, const struct walk *w, struct err *e)
{
    const char *text = (const char *)w->bytes;
    for (size_t at = 0; at < w->size;) {
        uint32_t symbol = 0;
        size_t length = utf8_decode(text + at, w->size - at, &symbol);
        int32_t number = length ? vocabulary_find(&c->vocabulary, symbol) : -1;
        unsigned long long byte = w->at + at;
        if (number < 0)
            return length ? err_set(e, ERR_DATA_LOSS,
                                    "%s: the character at byte %llu does not occur in the training text",
                                    c->path, byte)
                          : err_set(e, ERR_DATA_LOSS, "%s: byte %llu is not UTF-8", c->path, byte);
        number_put(c->decoded, c->width, c->count++, number);
        at += length;
    }
    return ERR_OK;
}

static enum err_code text_decode(struct corpus *c, size_t size, struct err *e)
{
    c->width = c->vocabulary.count <= 1 << 8 ? 1 : c->vocabulary.count <= 1 << 16 ? 2 : 4;
    c->decoded = malloc(size * (size_t)c->width);
    if (!c->decoded)
        return err_set(e, ERR_RESOURCE_EXHAUSTED, "%s: %zu bytes of decoded text: out of memory", c->path,
                       size * (size_t)c->width);
    CLEANUP(walk_close) struct walk w = walk_open(c, 0, size);
    w.characters = true;
    while (!walk_is_over(&w))
        if (walk_read(&w, e) || decode_block(c, &w, e))
            return e->code;
    /* The text has fewer characters than bytes, so give back the rest of the memory. */
    uint8_t *less = realloc(c->decoded, (size_t)(c->count * c->width));
    c->decoded = less ? less : c->decoded;
    return ERR_OK;
}

static enum err_code strange_byte(const struct corpus *c, int64_t at, uint8_t byte, struct err *e)
{
    return err_set(e, ERR_DATA_LOSS, "%s: byte %lld (0x%02x) does not occur in the training text", c->path,
                   (long long)at, byte);
}

/* Finds bytes of a validation text that the training text does not have. */
static enum err_code check_bytes(const struct corpus *c, size_t size, struct err *e)
{
    CLEANUP(walk_close) struct walk w = walk_open(c, 0, size);
    while (!walk_is_over(&w)) {
        if (walk_read(&w, e))
            return e->code;
        for (size_t i = 0; i < w.size; i++)
            if (c->table[w.bytes[i]] < 0)
                return strange_byte(c, (int64_t)(w.at + i), w.bytes[i], e);
    }
    return ERR_OK;
}

static enum err_code number_text(struct corpus *c, enum symbol_type type, const struct vocabulary *known,
                                 size_t size, struct err *e)
{
    if (take_vocabulary(c, type, known, size, e))
        return e->code;
    c->symbols = c->vocabulary.count;
    if (type == SYMBOL_CHARACTER && c->vocabulary.symbols[c->symbols - 1] >= 0x80)
        return text_decode(c, size, e);
    c->width = 1;
    c->count = (int64_t)size;
    for (uint32_t byte = 0; byte < 256; byte++)
        c->table[byte] = vocabulary_find(&c->vocabulary, byte);
    return known && type == SYMBOL_CHARACTER ? check_bytes(c, size, e) : ERR_OK;
}

enum err_code corpus_open_text(struct corpus *out, const char *path, enum symbol_type type,
                               const struct vocabulary *known, struct err *e)
{
    size_t size;
    *out = (struct corpus){0};
    if (open_file(out, path, &size, e) || number_text(out, type, known, size, e)) {
        corpus_release(out);
        return e->code;
    }
    expect_windows(out, size);
    return ERR_OK;
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

/* Checks the tokens in the pieces that the mark covers. This finds a wrong vocab when the file is opened. */
static enum err_code check_tokens(const struct corpus *c, size_t size, struct err *e)
{
    const uint64_t first = (uint64_t)c->offset;
    for (size_t i = 0; c->symbols < 1 << 16 && i < piece_count(size); i++) {
        struct piece piece = piece_of(size, i);
        const uint64_t skipped = piece.at < first ? first - piece.at : 0; /* the header */
        CLEANUP(walk_close) struct walk w = walk_open(c, piece.at + skipped, piece.size - skipped);
        while (!walk_is_over(&w)) {
            if (walk_read(&w, e))
                return e->code;
            for (size_t at = 0; at < w.size; at += 2)
                if (token_at(w.bytes + at) >= c->symbols)
                    return strange_token(c, (int64_t)(w.at + at - first) / 2, token_at(w.bytes + at), e);
        }
    }
    return ERR_OK;
}

static enum err_code number_tokens(struct corpus *c, size_t size, struct err *e)
{
    struct corpus_tokens where;
    uint8_t header[HEADER_BYTES];
    if (fd_read_at(c->fd, header, size < sizeof(header) ? size : sizeof(header), 0, e) ||
        corpus_parse_tokens(&where, header, size, e))
        return err_wrap(e, "%s", c->path);
    c->offset = (int64_t)where.offset;
    c->count = where.count;
    return check_tokens(c, size, e);
}

enum err_code corpus_open_tokens(struct corpus *out, const char *path, int64_t symbols, struct err *e)
{
    size_t size;
    *out = (struct corpus){.width = 2, .symbols = symbols};
    if (open_file(out, path, &size, e) || number_tokens(out, size, e)) {
        corpus_release(out);
        return e->code;
    }
    expect_windows(out, size);
    return ERR_OK;
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
