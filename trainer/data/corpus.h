#ifndef DDP_TRAINER_DATA_CORPUS_H
#define DDP_TRAINER_DATA_CORPUS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/job/job.h"
#include "trainer/data/dataset.h"
#include "trainer/data/vocabulary.h"

/* One file as a long row of numbered symbols, which may be larger than memory: text by byte, and by character
 * where every character is one byte, is numbered as it is read, by a table; tokens are read as they lie. Only
 * text with longer characters is kept decoded, one byte a character where there are at most 256 of them, else
 * two or four. Read-only once open; any thread. The file must stay as it is while it is open: one that became
 * shorter is found out by the next read past its end. */

struct corpus {
    char *path;
    int fd;         /* open where path is not NULL */
    int64_t offset; /* symbol i is the width bytes at offset + i * width, little-endian */
    int width;      /* 1, 2 or 4 */
    int64_t count;
    int32_t table[256];           /* width 1: a byte's number; -1: no symbol */
    struct vocabulary vocabulary; /* of text */
    int64_t symbols;              /* numbers are below it */
    struct dataset_mark mark;
    uint8_t *decoded; /* then symbol i's number is the width bytes at i * width of it; else NULL */
};

/* known: the vocabulary to use, or NULL: that of the file. Errors name the file, and the place. */
MUST_CHECK enum err_code corpus_open_text(struct corpus *out, const char *path, enum symbol_type type,
                                          const struct vocabulary *known, struct err *e);
/* Tokens below `symbols`: all of them are looked at, but of a file above 64 MiB those of 512 pages, as many
 * as its mark is made of; a stray one elsewhere is found when it is read. */
MUST_CHECK enum err_code corpus_open_tokens(struct corpus *out, const char *path, int64_t symbols,
                                            struct err *e);
void corpus_release(struct corpus *c);

/* Symbols [at, at + count) into out. DATA_LOSS names a number that is not below symbols and its place, or the
 * first byte that the file no longer has. */
MUST_CHECK enum err_code corpus_read(const struct corpus *c, int64_t at, int64_t count, int32_t *out,
                                     struct err *e);

/* Where the tokens of a .bin file lie: 16-bit little-endian numbers, the whole file (as nanoGPT writes them)
 * or behind a header of 256 32-bit numbers: magic 20240520, version 1, their count (as llm.c does). */
struct corpus_tokens {
    size_t offset;
    int64_t count;
};
MUST_CHECK enum err_code corpus_parse_tokens(struct corpus_tokens *out, const uint8_t *bytes, size_t size,
                                             struct err *e);

#endif
