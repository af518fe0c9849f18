#ifndef DDP_TRAINER_DATA_VOCABULARY_H
#define DDP_TRAINER_DATA_VOCABULARY_H

#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/job/job.h"

/* The symbols of a text and their numbers. By byte: the 256 values, each its own number. By character: the
 * distinct code points of a text in UTF-8, numbered in rising order. A vocabulary of characters is kept
 * beside the parameters as vocab.json, {"<character>": number}, so that the same text, and no other, goes on.
 */

struct vocabulary {
    enum symbol_type type;
    int64_t count;
    uint32_t *symbols; /* owned: code points in rising order; NULL by byte */
};

/* DATA_LOSS names the byte where `where` stops being UTF-8, or has a NUL (symbols: byte takes such files). */
MUST_CHECK enum err_code vocabulary_scan(struct vocabulary *out, enum symbol_type type, const char *text,
                                         size_t size, const char *where, struct err *e);
void vocabulary_release(struct vocabulary *v);

/* The number of a code point (or byte); -1: there is none. */
int32_t vocabulary_find(const struct vocabulary *v, uint32_t symbol);
/* Appends a symbol as it stands in a text. 0 <= number < count. */
void vocabulary_put(const struct vocabulary *v, int32_t number, struct buf *out);
/* The numbers of a text; the caller frees. INVALID_ARGUMENT names the first symbol that has none. */
MUST_CHECK enum err_code vocabulary_encode(const struct vocabulary *v, const char *text, size_t size,
                                           int32_t **numbers, size_t *count, struct err *e);

/* vocab.json's text, by character; and from its text. DATA_LOSS names `where`. */
void vocabulary_print(const struct vocabulary *v, struct buf *out);
MUST_CHECK enum err_code vocabulary_parse(struct vocabulary *out, const char *json, size_t size,
                                          const char *where, struct err *e);

/* One code point of UTF-8 at text, size > 0, and its length; 0: it is none (overlong, surrogate, cut off). */
size_t utf8_decode(const char *text, size_t size, uint32_t *symbol);
size_t utf8_encode(uint32_t symbol, char out[4]);

#endif
