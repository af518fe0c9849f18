#ifndef DDP_BASE_JSON_H
#define DDP_BASE_JSON_H

#include <stdbool.h>
#include <stdint.h>

#include <jansson.h>

#include "base/buf.h"
#include "base/err.h"

/* A small JSON writer; jansson writes from a tree, which is slow, so it only reads. The writer adds commas and
 * closes levels. Keys are NULL inside arrays. NaN and infinities become null. */
struct jout {
    struct buf *buf;
    bool need_comma;
};

void jout_open(struct jout *o, const char *key, char bracket); /* '{' or '[' */
void jout_close(struct jout *o, char bracket);                 /* '}' or ']' */
void jout_text(struct jout *o, const char *key,
               const char *text);       /* NULL becomes null; invalid UTF-8 bytes become U+FFFD */
bool json_text_valid(const char *text); /* whether jout_text writes the text unchanged */
size_t json_char_length(const char *text); /* bytes of its first character, which is not NUL; 0: not UTF-8 */
void jout_text_n(struct jout *o, const char *key, const char *text, size_t len);
void jout_int(struct jout *o, const char *key, int64_t value);
void jout_real(struct jout *o, const char *key,
               double value); /* the shortest decimal that is read as the same number */
void jout_bool(struct jout *o, const char *key, bool value);
void jout_raw(struct jout *o, const char *key, const char *json); /* one value, already JSON */

/* The shortest decimal that is read as the same number; "nan" and "inf" as in printf. */
#define REAL_TEXT 40
void real_text(char out[REAL_TEXT], double value);

/* Parses JSON strictly: refuses duplicate keys, NaN and trailing bytes, more than `limit` bytes and more than 64
 * levels. The message names line and column. The caller calls json_decref(). */
MUST_CHECK enum err_code json_parse(const char *text, size_t len, size_t limit, json_t **out, struct err *e);
void json_release(json_t **value); /* for CLEANUP */
/* Returns a member, or the default if it is absent or of another type. The text is borrowed from obj. */
const char *json_get_text(const json_t *obj, const char *key, const char *fallback);
int64_t json_get_int(const json_t *obj, const char *key, int64_t fallback);
double json_get_real(const json_t *obj, const char *key, double fallback);
bool json_get_bool(const json_t *obj, const char *key, bool fallback);

#endif
