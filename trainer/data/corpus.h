#ifndef DDP_TRAINER_DATA_CORPUS_H
#define DDP_TRAINER_DATA_CORPUS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/job/job.h"
#include "trainer/data/dataset.h"
#include "trainer/data/vocabulary.h"

/* One file as a long array of numbered symbols. The file may be larger than memory. Tokens are read from the
 * file as they are. Text by byte, and text by character in which every character is one byte, is read from
 * the file and numbered by a table. Only text with longer characters is kept decoded in memory, with 1 byte
 * for each character if there are at most 256 different ones, else with 2 or 4. Read-only after opening; any
 * thread. The file must not change while it is opened and used: if it became shorter, the next read past its end
 * returns an error. */

struct corpus {
    char *path;
    int fd;         /* valid if path is not NULL */
    int64_t offset; /* symbol i lies in `width` bytes at offset + i * width of the file, little-endian */
    int width;      /* 1, 2 or 4 */
    int64_t count;
    int32_t table[256];           /* if width is 1: the number of each byte; -1: the byte is not a symbol */
    struct vocabulary vocabulary; /* of a text; empty for tokens */
    int64_t symbols;              /* all numbers are below this */
    struct dataset_mark mark;
    /* Text decoded in memory: the number of symbol i lies in `width` bytes at i * width. Else NULL. */
    uint8_t *decoded;
};

/* known: the vocabulary to use; NULL: the vocabulary of this file. Error messages name the file and the
 * position. */
MUST_CHECK enum err_code corpus_open_text(struct corpus *out, const char *path, enum symbol_type type,
                                          const struct vocabulary *known, struct err *e);
/* Checks that the tokens are below `symbols`: all tokens or, if the file is larger than 64 MiB, those in the
 * 512 pages that its mark covers. corpus_read finds an invalid token elsewhere. */
MUST_CHECK enum err_code corpus_open_tokens(struct corpus *out, const char *path, int64_t symbols,
                                            struct err *e);
void corpus_release(struct corpus *c);

/* Copies the numbers of symbols [at, at + count) to out. DATA_LOSS: a number is not below `symbols`, or the
 * file has become shorter; the message names the position. */
MUST_CHECK enum err_code corpus_read(const struct corpus *c, int64_t at, int64_t count, int32_t *out,
                                     struct err *e);

/* Where the tokens of a .bin file lie. They are 16-bit little-endian numbers: the whole file (nanoGPT's
 * format), or the part behind a header of 256 32-bit numbers, which are magic 20240520, version 1, the count
 * of tokens, then zeros (llm.c's format). */
struct corpus_tokens {
    size_t offset;
    int64_t count;
};
/* bytes: at least the first 1024 of the file's `size`, if it has as many. */
MUST_CHECK enum err_code corpus_parse_tokens(struct corpus_tokens *out, const uint8_t *bytes, size_t size,
                                             struct err *e);

#endif
