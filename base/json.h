#ifndef DDP_BASE_JSON_H
#define DDP_BASE_JSON_H

#include <stdbool.h>
#include <stdint.h>

#include <jansson.h>

#include "base/buf.h"
#include "base/err.h"

/* JSON out by a small writer (jansson reads, at about the same speed as we need; writing it by tree is slow).
 * Commas and nesting are the writer's; keys are NULL inside arrays. NaN and infinities become null. */
struct jout {
    struct buf *buf;
    bool need_comma;
};

void jout_open(struct jout *o, const char *key, char bracket); /* '{' or '[' */
void jout_close(struct jout *o, char bracket);                 /* '}' or ']' */
void jout_text(struct jout *o, const char *key,
               const char *text);       /* NULL gives null; UTF-8 kept, bad bytes -> U+FFFD */
bool json_text_valid(const char *text); /* UTF-8: goes through jout_text as it is */
void jout_text_n(struct jout *o, const char *key, const char *text, size_t len);
void jout_int(struct jout *o, const char *key, int64_t value);
void jout_real(struct jout *o, const char *key, double value); /* shortest form that reads back the same */
void jout_bool(struct jout *o, const char *key, bool value);
void jout_raw(struct jout *o, const char *key, const char *json); /* one value, already JSON */

/* The shortest decimal that reads back the same; "nan" and "inf" as printf has them. */
#define REAL_TEXT 40
void real_text(char out[REAL_TEXT], double value);

/* JSON in: strict (duplicate keys, NaN, trailing bytes are refused), at most `limit` bytes and 64 levels. The
 * message has line and column. The caller json_decref()s. */
MUST_CHECK enum err_code json_parse(const char *text, size_t len, size_t limit, json_t **out, struct err *e);
void json_release(json_t **value); /* for CLEANUP */
/* Members with a default when absent or of another type. The text is borrowed from obj. */
const char *json_get_text(const json_t *obj, const char *key, const char *fallback);
int64_t json_get_int(const json_t *obj, const char *key, int64_t fallback);
double json_get_real(const json_t *obj, const char *key, double fallback);
bool json_get_bool(const json_t *obj, const char *key, bool fallback);

#endif
