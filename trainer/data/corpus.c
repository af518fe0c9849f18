#include "trainer/data/corpus.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/digest.h"
#include "base/mem.h"

#define HEADER_BYTES 1024 /* llm.c's */
#define MAGIC_16 20240520
#define MAGIC_32 20240801
#define PAGE 4096
#define MARK_WHOLE ((size_t)64 << 20) /* larger files are marked by some of their pages */
#define MARK_PAGES ((size_t)512)
#define SCATTERED ((size_t)1 << 30) /* a mapping that windows touch here and there */

/* ---- the file */

/* All of it, or, of a large one, its size and pages at even distances, the last among them. */
static struct dataset_mark mark_of(const uint8_t *data, size_t size)
{
    struct dataset_mark mark = {.bytes = (int64_t)size};
    if (size <= MARK_WHOLE) {
        mark.digest = digest64(0, data, size);
        return mark;
    }
    size_t last = (size - PAGE) / PAGE;
    mark.digest = digest64(0, &mark.bytes, sizeof(mark.bytes));
    for (size_t i = 0; i < MARK_PAGES; i++)
        mark.digest =
            digest64(mark.digest, data + (size_t)((double)last * (double)i / (MARK_PAGES - 1)) * PAGE, PAGE);
    return mark;
}

static enum err_code map_file(struct corpus *c, const char *path, struct err *e)
{
    struct stat st;
    CLEANUP(close_fd) int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) < 0)
        return err_sys(e, errno, "%s", path);
    if (!S_ISREG(st.st_mode))
        return err_set(e, ERR_FAILED_PRECONDITION, "%s: not a file", path);
    if (st.st_size == 0)
        return err_set(e, ERR_FAILED_PRECONDITION, "%s: the file is empty", path);
    c->map = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, fd, 0);
    if (c->map == MAP_FAILED) {
        c->map = NULL;
        return err_sys(e, errno, "%s: cannot be mapped", path);
    }
    c->map_size = c->memory = (size_t)st.st_size;
    c->path = xstrdup(path);
    if (c->map_size > SCATTERED)
        madvise(c->map, c->map_size, MADV_RANDOM);
    c->mark = mark_of(c->map, c->map_size);
    return ERR_OK;
}

void corpus_release(struct corpus *c)
{
    vocabulary_release(&c->vocabulary);
    if (c->map)
        munmap(c->map, c->map_size);
    free(c->decoded);
    free(c->path);
    *c = (struct corpus){0};
}

/* ---- text */

static enum err_code take_vocabulary(struct corpus *c, enum symbol_type type, const struct vocabulary *known,
                                     struct err *e)
{
    if (!known)
        return vocabulary_scan(&c->vocabulary, type, c->map, c->map_size, c->path, e);
    c->vocabulary = *known;
    if (known->symbols)
        c->vocabulary.symbols = xmemdup(known->symbols, (size_t)known->count * sizeof(*known->symbols));
    return ERR_OK;
}

static void put(uint8_t *to, int width, int64_t at, int32_t number)
{
    for (int i = 0; i < width; i++)
        to[at * width + i] = (uint8_t)(number >> 8 * i);
}

/* Every character's number, in as few bytes as will do. */
static enum err_code decode(struct corpus *c, struct err *e)
{
    const char *text = c->map;
    c->width = c->vocabulary.count <= 1 << 8 ? 1 : c->vocabulary.count <= 1 << 16 ? 2 : 4;
    uint8_t *to = malloc(c->map_size * (size_t)c->width);
    c->decoded = to;
    if (!to)
        return err_set(e, ERR_RESOURCE_EXHAUSTED, "%s: %zu bytes of decoded text: out of memory", c->path,
                       c->map_size * (size_t)c->width);
    for (size_t at = 0; at < c->map_size;) {
        uint32_t symbol = 0;
        size_t length = utf8_decode(text + at, c->map_size - at, &symbol);
        int32_t number = length ? vocabulary_find(&c->vocabulary, symbol) : -1;
        if (number < 0)
            return err_set(e, ERR_DATA_LOSS, "%s: byte %zu is %s", c->path, at,
                           length ? "a character that the training text has not" : "not UTF-8");
        put(to, c->width, c->count++, number);
        at += length;
    }
    to = realloc(to, (size_t)(c->count * c->width));
    c->decoded = to ? to : c->decoded;
    c->data = c->decoded;
    c->memory += (size_t)(c->count * c->width);
    return ERR_OK;
}

static enum err_code number_text(struct corpus *c, enum symbol_type type, const struct vocabulary *known,
                                 struct err *e)
{
    if (take_vocabulary(c, type, known, e))
        return e->code;
    c->symbols = c->vocabulary.count;
    if (type == SYMBOL_CHARACTER && c->vocabulary.symbols[c->symbols - 1] >= 0x80)
        return decode(c, e);
    c->data = c->map;
    c->width = 1;
    c->count = (int64_t)c->map_size;
    c->mapped = true;
    for (uint32_t byte = 0; byte < 256; byte++)
        c->table[byte] = vocabulary_find(&c->vocabulary, byte);
    return ERR_OK;
}

enum err_code corpus_open_text(struct corpus *out, const char *path, enum symbol_type type,
                               const struct vocabulary *known, struct err *e)
{
    *out = (struct corpus){0};
    if (!map_file(out, path, e) && !number_text(out, type, known, e))
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
        return err_set(e, ERR_DATA_LOSS, "version %lld of a token file, version 1 is read",
                       (long long)version);
    if (count < 0 || (size_t)count != (size - HEADER_BYTES) / 2 || size % 2)
        return err_set(e, ERR_DATA_LOSS, "its header promises %lld tokens, the file has %.1f: damaged",
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
        return err_set(e, ERR_DATA_LOSS, "32-bit tokens (magic %d), 16-bit ones are read", MAGIC_32);
    if (size % 2)
        return err_set(e, ERR_DATA_LOSS, "%zu bytes, an odd number: not 16-bit tokens", size);
    *out = (struct corpus_tokens){0, (int64_t)(size / 2)};
    return ERR_OK;
}

enum err_code corpus_open_tokens(struct corpus *out, const char *path, int64_t symbols, struct err *e)
{
    struct corpus_tokens where;
    *out = (struct corpus){.width = 2, .symbols = symbols};
    if (map_file(out, path, e) == ERR_OK) {
        if (corpus_parse_tokens(&where, out->map, out->map_size, e) == ERR_OK) {
            out->data = (const uint8_t *)out->map + where.offset;
            out->count = where.count;
            return ERR_OK;
        }
        err_wrap(e, "%s", path);
    }
    corpus_release(out);
    return e->code;
}

/* ---- reading */

static enum err_code strange(const struct corpus *c, int64_t at, struct err *e)
{
    if (c->width == 1)
        return err_set(e, ERR_DATA_LOSS,
                       "%s: byte %lld (0x%02x) is a character that the training text has not", c->path,
                       (long long)at, c->data[at]);
    return err_set(e, ERR_DATA_LOSS,
                   "%s: token %lld is %d, but there are only %lld: wrong vocab, or not 16-bit tokens",
                   c->path, (long long)at, c->data[2 * at] | c->data[2 * at + 1] << 8, (long long)c->symbols);
}

enum err_code corpus_read(const struct corpus *c, int64_t at, int64_t count, int32_t *out, struct err *e)
{
    const uint8_t *p = c->data + at * c->width;
    BUG_ON(at < 0 || count < 0 || at > c->count - count);
    if (c->mapped)
        for (int64_t i = 0; i < count; i++)
            out[i] = c->table[p[i]];
    else if (c->width == 1)
        for (int64_t i = 0; i < count; i++)
            out[i] = p[i];
    else if (c->width == 2)
        for (int64_t i = 0; i < count; i++)
            out[i] = p[2 * i] | p[2 * i + 1] << 8;
    else
        for (int64_t i = 0; i < count; i++)
            out[i] = (int32_t)header_number(p, (size_t)i);
    for (int64_t i = 0; i < count; i++)
        if (out[i] < 0 || out[i] >= c->symbols)
            return strange(c, at + i, e);
    return ERR_OK;
}
