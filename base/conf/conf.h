#ifndef DDP_BASE_CONF_CONF_H
#define DDP_BASE_CONF_CONF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

/* Typed YAML (read by libyaml): a schema is a const table of fields; every key is checked, unknown and
 * duplicate keys are refused, and each message names file, line and column and the expected value:
 *   job.yaml:5:3: unknown key 'slotz', did you mean 'slots'?
 *   job.yaml:6:8: invalid value for 'batch': expected a whole number, got 'two'
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
    bool above, below; /* the range excludes min, excludes max */
    bool single;       /* CONF_REAL: the value is used as a float, which must be in the range as well */
    const char *const *names; /* CONF_ENUM, NULL-terminated */
    /* CONF_STRUCT: ended by a NULL key. CONF_CUSTOM: keys of the map that fn reads, for "did you mean"; NULL: unknown. */
    const struct conf_field *fields;
    /* CONF_PARSED: writes the value to at = base + offset; returns false if the text is invalid. */
    bool (*parse)(const char *text, void *at);
    const char *expected; /* CONF_PARSED, for messages: "a range such as 1-9" */
    enum err_code (*fn)(const struct conf_node *node, void *at, struct err *e);
    const char *since; /* the first release with the key, for the reference; NULL: 0.1.0, the first release */
};

struct conf_doc;
/* `where` names the text in messages: a file name, "--set", "job file". */
MUST_CHECK enum err_code conf_open(struct conf_doc **out, const char *text, size_t len, const char *where,
                                   struct err *e);
MUST_CHECK enum err_code conf_open_file(struct conf_doc **out, const char *path, struct err *e);
void conf_close(struct conf_doc *doc);
/* "train.optimizer.lr=1e-3": replaces or adds the value at the path, and makes missing maps on the way. The
 * value is read as YAML, so that lists work; later messages name the value's place as "--set" and the path. */
MUST_CHECK enum err_code conf_set(struct conf_doc *doc, const char *assignment, struct err *e);
/* The same with path and value apart; later messages name the value's place as `place`, such as "--nodes". */
MUST_CHECK enum err_code conf_set_as(struct conf_doc *doc, const char *path, const char *text,
                                     const char *place, struct err *e);
/* Fills base from the document's root map by the table. An absent key leaves its field as it is, so the
 * caller sets the defaults before the call. */
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
const char *conf_key(const struct conf_node *node);    /* its key in a map; "value" elsewhere */
const struct conf_node *conf_get(const struct conf_node *map, const char *key);
const struct conf_node *conf_at(const struct conf_node *list, size_t index);
size_t conf_count(const struct conf_node *node);
MUST_CHECK enum err_code conf_read_map(const struct conf_node *map, const struct conf_field *fields,
                                       void *base, struct err *e);
/* Reads one value by the row `field`, whose key names the value in messages. */
MUST_CHECK enum err_code conf_read_value(const struct conf_node *node, const struct conf_field *field,
                                         void *at, struct err *e);
const char *conf_where(const struct conf_node *node); /* the name of its text */
/* err_set with "where:line:column: " in front. */
enum err_code conf_fail(const struct conf_node *node, struct err *e, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* The same with "invalid value for 'KEY': expected EXPECTED, got VALUE". */
enum err_code conf_refuse(const struct conf_node *node, const char *key, const char *expected, struct err *e);

/* Parses "90s", "15m", "2h"; the message does not name the place. */
MUST_CHECK enum err_code conf_duration(const char *text, int64_t *ms, struct err *e);

/* The shortest text with one unit that conf_duration reads as exactly `ms` (not negative): 90m, 2h, 1500ms. */
struct duration_text {
    char text[24];
};
struct duration_text conf_duration_text(int64_t ms);

#endif
