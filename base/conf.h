#ifndef DDP_BASE_CONF_H
#define DDP_BASE_CONF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

/* Typed YAML (read by libyaml): a schema is a const table of fields; every key is checked, unknown and
 * duplicate keys are refused, and each message names file, line and column and what was expected:
 *   job.yaml:5:3: unknown key 'slotz', did you mean 'slots'?
 * Anchors, aliases, tags and a second document are refused; at most 1 MiB and 32 levels. An empty text is an
 * empty map. Quoted scalars are text, never numbers or booleans; numbers are decimal ("010" is 10, "1e-3x" an
 * error). Strings that land in a struct are heap-owned by it. */

enum conf_type {
    CONF_TEXT,     /* char * */
    CONF_INT,      /* int64_t, min..max */
    CONF_REAL,     /* double, min..max */
    CONF_BOOL,     /* bool: true or false */
    CONF_ENUM,     /* int, an index into names */
    CONF_DURATION, /* int64_t milliseconds: 90s, 15m, 2h, 1d; a bare number is seconds */
    CONF_TEXTS,    /* char **, NULL-terminated: a list of scalars */
    CONF_ENV,      /* char **, "NAME=value", from a map */
    CONF_STRUCT,   /* a nested map, by the table in `fields`, at offset */
    CONF_PARSED,   /* a scalar that `parse` reads */
    CONF_CUSTOM,   /* a node that fn reads */
};

struct conf_node; /* a YAML node with its place; valid during the parse */
struct conf_field {
    const char *key;
    enum conf_type type;
    size_t offset;
    bool required;
    double min, max;   /* CONF_INT, CONF_REAL, CONF_DURATION (ms); both 0: no range; max INFINITY: no end */
    bool above, below; /* min, max themselves are outside the range */
    const char *const *names;        /* CONF_ENUM, NULL-terminated */
    const struct conf_field *fields; /* CONF_STRUCT, ended by a NULL key */
    /* at = base + offset. CONF_PARSED: false if the text is wrong; `wanted` says what is right. */
    bool (*parse)(const char *text, void *at);
    const char *wanted;
    enum err_code (*fn)(const struct conf_node *node, void *at, struct err *e);
};

struct conf_doc;
/* `where` is how messages name the text: a file name, "--set", "job file". */
MUST_CHECK enum err_code conf_open(struct conf_doc **out, const char *text, size_t len, const char *where,
                                   struct err *e);
MUST_CHECK enum err_code conf_open_file(struct conf_doc **out, const char *path, struct err *e);
void conf_close(struct conf_doc *doc);
/* "train.optimizer.lr=1e-3": replaces or adds a scalar at the path; maps on the way are made. The value is
 * read as YAML (so lists work); later messages about it say --set and the path. */
MUST_CHECK enum err_code conf_set(struct conf_doc *doc, const char *assignment, struct err *e);
/* The same by path and value; later messages about it say `place`, as in "--nodes". */
MUST_CHECK enum err_code conf_set_as(struct conf_doc *doc, const char *path, const char *text,
                                     const char *place, struct err *e);
/* Fills base from the document's root map by the table. Absent keys leave their field as it is: set defaults
 * before. */
MUST_CHECK enum err_code conf_read(const struct conf_doc *doc, const struct conf_field *fields, void *base,
                                   struct err *e);
char *conf_print(const struct conf_doc *doc); /* block-style YAML text of the document; the caller frees */

/* For CONF_CUSTOM parsers. */
const struct conf_node *conf_root(const struct conf_doc *doc);
bool conf_is_scalar(const struct conf_node *node);
bool conf_is_map(const struct conf_node *node);
bool conf_is_list(const struct conf_node *node);
bool conf_is_plain(const struct conf_node *node);      /* an unquoted scalar */
const char *conf_scalar(const struct conf_node *node); /* NULL when not a scalar */
const char *conf_key(const struct conf_node *node);    /* of a map's value; else "value" */
const struct conf_node *conf_get(const struct conf_node *map, const char *key);
const struct conf_node *conf_at(const struct conf_node *list, size_t index);
size_t conf_count(const struct conf_node *node);
MUST_CHECK enum err_code conf_read_map(const struct conf_node *map, const struct conf_field *fields,
                                       void *base, struct err *e);
/* One value by the first row of the table (its key names the value in messages). */
MUST_CHECK enum err_code conf_read_value(const struct conf_node *node, const struct conf_field *field,
                                         void *at, struct err *e);
const char *conf_where(const struct conf_node *node); /* the name of its text */
/* err_set with "where:line:column: " in front. */
enum err_code conf_fail(const struct conf_node *node, struct err *e, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* "90s", "15m", "2h"; the message has no place. */
MUST_CHECK enum err_code conf_duration(const char *text, int64_t *ms, struct err *e);

#endif
