#ifndef DDP_TRAINER_DATA_VOCABULARY_H
#define DDP_TRAINER_DATA_VOCABULARY_H

#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/job/job.h"

/* The symbols of a text and their numbers. By byte: the 256 byte values, each with its own value as number.
 * By character: the distinct code points of a text in UTF-8, numbered in rising order. A vocabulary of
 * characters is stored beside the parameters as vocab.json, {"<character>": number}: a run continues only
 * with the same vocabulary. */

struct vocabulary {
    enum symbol_type type;
    int64_t count;
    uint32_t *symbols; /* owned: code points in rising order; NULL by byte */
};

/* Collects the symbols of a text. where: the file name for messages. DATA_LOSS: the text has a byte that is
 * not UTF-8, or a NUL (`symbols: byte` takes such files); the message names the byte. */
MUST_CHECK enum err_code vocabulary_scan(struct vocabulary *out, enum symbol_type type, const char *text,
                                         size_t size, const char *where, struct err *e);
/* The same for the characters of a text that comes in pieces. seen: VOCABULARY_SEEN bytes, zero at first; each piece sets the bits
 * of its code points. first: the offset of the piece in the text. Only the last piece may end within a character
 * (utf8_whole). */
#define VOCABULARY_SEEN (0x110000 / 8)
MUST_CHECK enum err_code vocabulary_mark(uint8_t *seen, const char *text, size_t size, uint64_t first,
                                         const char *where, struct err *e);
void vocabulary_collect(struct vocabulary *out, const uint8_t *seen);
void vocabulary_release(struct vocabulary *v);

/* Returns the number of a code point (or byte), or -1 if it is not in the vocabulary. */
int32_t vocabulary_find(const struct vocabulary *v, uint32_t symbol);
/* Appends symbol number `number` as text (UTF-8, or one byte). 0 <= number < count. */
void vocabulary_put(const struct vocabulary *v, int32_t number, struct buf *out);
/* Sets *numbers to the numbers of a text's symbols; the caller frees it. INVALID_ARGUMENT: a symbol is not in
 * the vocabulary; the message names the first such symbol. */
MUST_CHECK enum err_code vocabulary_encode(const struct vocabulary *v, const char *text, size_t size,
                                           int32_t **numbers, size_t *count, struct err *e);

/* Prints and parses the text of vocab.json; only for a vocabulary of characters. DATA_LOSS: the text is
 * invalid; the message names `where`. */
void vocabulary_print(const struct vocabulary *v, struct buf *out);
MUST_CHECK enum err_code vocabulary_parse(struct vocabulary *out, const char *json, size_t size,
                                          const char *where, struct err *e);

/* Decodes one code point of UTF-8 at `text` and returns its length in bytes; size > 0. Returns 0 if the bytes
 * are not UTF-8 (overlong, a surrogate, or truncated). */
size_t utf8_decode(const char *text, size_t size, uint32_t *symbol);
/* Returns how many of these bytes come before a character that is cut off at their end. */
size_t utf8_whole(const char *text, size_t size);
size_t utf8_encode(uint32_t symbol, char out[4]);

#endif
