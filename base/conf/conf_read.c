#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/conf/conf_tree.h"
#include "base/match/nearest.h"
#include "base/mem.h"
#include "base/text.h"

/* The typed half of conf.h: fills a struct from a map node by a table of fields. */

static const struct conf_field *find_field(const struct conf_field *fields, const char *key)
{
    for (; fields->key; fields++)
        if (!strcmp(fields->key, key))
            return fields;
    return NULL;
}

/* The path of a key that belongs into a map below this one: "train.optimizer" for "optimizer", "train.optimizer.lr" for
 * "lr". NULL: no map has the key. */
static char *find_below(const struct conf_field *fields, const char *key)
{
    for (const struct conf_field *f = fields; f->key; f++)
        if (f->fields && find_field(f->fields, key))
            return xasprintf("%s.%s", f->key, key);
    for (const struct conf_field *f = fields; f->key; f++) {
        CLEANUP(free_text) char *rest = f->fields ? find_below(f->fields, key) : NULL;
        if (rest)
            return xasprintf("%s.%s", f->key, rest);
    }
    return NULL;
}

static enum err_code unknown_key(const struct conf_node *map, const struct conf_node *key,
                                 const struct conf_field *fields, struct err *e)
{
    CLEANUP(buf_release) struct buf all = {0};
    CLEANUP(free_text) char *below = find_below(fields, key->text);
    const char *names[64], *near;
    size_t count = 0;

    if (below)
        return conf_fail(key, e, "unknown key '%.64s', did you mean '%s%s%s'?", key->text,
                         map->key ? map->key->text : "", map->key ? "." : "", below);
    for (const struct conf_field *f = fields; f->key; f++) {
        BUG_ON(count == ARRAY_LEN(names));
        names[count++] = f->key;
        buf_printf(&all, "%s%s", all.len ? ", " : "", f->key);
    }
    near = nearest_name(key->text, names, count);
    if (near)
        return conf_fail(key, e, "unknown key '%.64s', did you mean '%s'?", key->text, near);
    return conf_fail(key, e, "unknown key '%.64s', expected one of %s", key->text,
                     all.data ? all.data : "none");
}

enum err_code conf_refuse(const struct conf_node *node, const char *key, const char *expected, struct err *e)
{
    if (node->kind == CONF_MAP)
        return conf_fail(node, e, "invalid value for '%s': expected %s, got a map", key, expected);
    if (node->kind == CONF_LIST)
        return conf_fail(node, e, "invalid value for '%s': expected %s, got a list of %zu value%s", key,
                         expected, node->count, text_plural((int64_t)node->count));
    if (conf_is_null(node))
        return conf_fail(node, e, "invalid value for '%s': expected %s, got no value", key, expected);
    /* The quotes can be the only mistake: "2" is text, 2 is a number. */
    if (!node->plain)
        return conf_fail(node, e, "invalid value for '%s': expected %s, got the text \"%.64s\"", key,
                         expected, node->text);
    return conf_fail(node, e, "invalid value for '%s': expected %s, got '%.64s'", key, expected, node->text);
}

static bool skip_digits(const char **at)
{
    const char *first = *at;

    while (isdigit((unsigned char)**at))
        ++*at;
    return *at > first;
}

/* Accepts decimal numbers only: strtod would also accept hexadecimal numbers, nan and blanks. */
static bool looks_real(const char *s)
{
    bool digits;

    s += *s == '-' || *s == '+';
    digits = skip_digits(&s);
    if (*s == '.') {
        s++;
        digits |= skip_digits(&s);
    }
    if (!digits)
        return false;
    if (*s == 'e' || *s == 'E') {
        s++;
        s += *s == '-' || *s == '+';
        if (!skip_digits(&s))
            return false;
    }
    return !*s;
}

static bool looks_int(const char *s)
{
    s += *s == '-' || *s == '+';
    return skip_digits(&s) && !*s;
}

static bool range_has(const struct conf_field *f, double value)
{
    bool low = f->above ? value <= f->min : value < f->min;
    bool high = f->below ? value >= f->max : value > f->max;

    return isfinite(value) && ((f->min == 0 && f->max == 0 && !f->above) || (!low && !high));
}

static enum err_code check_range(const struct conf_node *node, const struct conf_field *f, double value,
                                 struct err *e)
{
    char expected[96];

    if (range_has(f, value))
        return ERR_OK;
    if (isinf(f->max))
        snprintf(expected, sizeof(expected), "a number %s %.15g", f->above ? "above" : "of at least", f->min);
    else if (f->above || f->below)
        snprintf(expected, sizeof(expected), "a number %s %.15g and %s %.15g",
                 f->above ? "above" : "of at least", f->min, f->below ? "below" : "of at most", f->max);
    else
        snprintf(expected, sizeof(expected), "a number from %.15g to %.15g", f->min, f->max);
    return conf_refuse(node, f->key, expected, e);
}

static enum err_code read_int(const struct conf_node *node, const struct conf_field *f, int64_t *out,
                              struct err *e)
{
    long long value;

    if (!conf_is_plain(node) || !looks_int(node->text))
        return conf_refuse(node, f->key, "a whole number", e);
    errno = 0;
    value = strtoll(node->text, NULL, 10);
    if (errno)
        return conf_fail(node, e, "invalid value for '%s': %.64s is too large", f->key, node->text);
    if (check_range(node, f, (double)value, e))
        return e->code;
    *out = value;
    return ERR_OK;
}

static enum err_code read_real(const struct conf_node *node, const struct conf_field *f, double *out,
                               struct err *e)
{
    double value;

    if (!conf_is_plain(node) || !looks_real(node->text))
        return conf_refuse(node, f->key, "a number", e);
    value = strtod(node->text, NULL);
    if (!isfinite(value))
        return conf_fail(node, e, "invalid value for '%s': %.64s is too large", f->key, node->text);
    if (check_range(node, f, value, e))
        return e->code;
    /* Such as 0.99999999, which a float rounds to 1. */
    if (f->single && !range_has(f, (double)(float)value))
        return conf_fail(
            node, e, "invalid value for '%s': %.64s is %.15g in single precision, in which the job computes",
            f->key, node->text, (double)(float)value);
    *out = value;
    return ERR_OK;
}

static enum err_code read_bool(const struct conf_node *node, const struct conf_field *f, bool *out,
                               struct err *e)
{
    bool yes = conf_is_plain(node) && !strcmp(node->text, "true");

    if (!yes && !(conf_is_plain(node) && !strcmp(node->text, "false")))
        return conf_refuse(node, f->key, "true or false", e);
    *out = yes;
    return ERR_OK;
}

static enum err_code read_enum(const struct conf_node *node, const struct conf_field *f, int *out,
                               struct err *e)
{
    CLEANUP(buf_release) struct buf all = {0};
    size_t count = 0;

    while (f->names[count])
        count++;
    for (int i = 0; f->names[i]; i++) {
        if (conf_is_scalar(node) && !strcmp(node->text, f->names[i])) {
            *out = i;
            return ERR_OK;
        }
        buf_printf(&all, "%s%s", text_separator((size_t)i, count, " or "), f->names[i]);
    }
    return conf_refuse(node, f->key, all.data, e);
}

static enum err_code read_text(const struct conf_node *node, const struct conf_field *f, char **out,
                               struct err *e)
{
    if (!conf_is_scalar(node) || conf_is_null(node))
        return conf_refuse(node, f->key, "text", e);
    free(*out);
    *out = xstrdup(node->text);
    return ERR_OK;
}

static enum err_code read_texts(const struct conf_node *node, const struct conf_field *f, char ***out,
                                struct err *e)
{
    char **list;

    if (!conf_is_list(node))
        return conf_refuse(node, f->key, "a list such as [first, second]", e);
    for (size_t i = 0; i < node->count; i++)
        if (!conf_is_scalar(node->items[i]) || conf_is_null(node->items[i]))
            return conf_refuse(node->items[i], f->key, "text in the list", e);
    list = xcalloc(node->count + 1, sizeof(*list));
    for (size_t i = 0; i < node->count; i++)
        list[i] = xstrdup(node->items[i]->text);
    strv_free(*out);
    *out = list;
    return ERR_OK;
}

static bool is_env_name(const char *s)
{
    if (!isalpha((unsigned char)*s) && *s != '_')
        return false;
    while (isalnum((unsigned char)*s) || *s == '_')
        s++;
    return !*s;
}

static enum err_code read_env(const struct conf_node *node, const struct conf_field *f, char ***out,
                              struct err *e)
{
    char **list;

    if (!conf_is_map(node))
        return conf_refuse(node, f->key, "a map such as {NAME: value}", e);
    for (size_t i = 0; i < node->count; i++) {
        const struct conf_node *item = node->items[i];

        if (!is_env_name(item->key->text))
            return conf_fail(item->key, e, "invalid name of an environment variable: '%.64s'",
                             item->key->text);
        if (!conf_is_scalar(item) || conf_is_null(item))
            return conf_refuse(item, item->key->text, "text, or \"\" for an empty value", e);
    }
    list = xcalloc(node->count + 1, sizeof(*list));
    for (size_t i = 0; i < node->count; i++)
        list[i] = xasprintf("%s=%s", node->items[i]->key->text, node->items[i]->text);
    strv_free(*out);
    *out = list;
    return ERR_OK;
}

/* The unit without a name is only read. */
static const struct {
    const char *suffix;
    int64_t ms;
} units[] = {{"", 1000}, {"ms", 1}, {"s", 1000}, {"m", 60000}, {"h", 3600000}, {"d", 86400000}};

enum err_code conf_duration(const char *text, int64_t *ms, struct err *e)
{
    const char *unit = text;
    long long count;

    if (!skip_digits(&unit))
        return err_set(e, ERR_INVALID_ARGUMENT, "expected a duration such as 90s, 15m, 2h or 1d, got '%.64s'",
                       text);
    errno = 0;
    count = strtoll(text, NULL, 10);
    for (size_t i = 0; i < ARRAY_LEN(units); i++) {
        if (strcmp(unit, units[i].suffix))
            continue;
        if (errno || count > (int64_t)36500 * 86400000 / units[i].ms)
            return err_set(e, ERR_INVALID_ARGUMENT, "the duration '%.64s' is longer than 100 years", text);
        *ms = count * units[i].ms;
        return ERR_OK;
    }
    return err_set(e, ERR_INVALID_ARGUMENT, "expected a duration such as 90s, 15m, 2h or 1d, got '%.64s'",
                   text);
}

struct duration_text conf_duration_text(int64_t ms)
{
    struct duration_text out;
    size_t i = ARRAY_LEN(units) - 1;

    if (!ms)
        return (struct duration_text){"0s"};
    while (ms % units[i].ms)
        i--;
    snprintf(out.text, sizeof(out.text), "%lld%s", (long long)(ms / units[i].ms), units[i].suffix);
    return out;
}

static enum err_code read_duration(const struct conf_node *node, const struct conf_field *f, int64_t *out,
                                   struct err *e)
{
    char range[64];
    struct err why;
    int64_t ms;

    if (!conf_is_scalar(node) || conf_is_null(node))
        return conf_refuse(node, f->key, "a duration such as 90s, 15m, 2h or 1d", e);
    if (conf_duration(node->text, &ms, &why))
        return conf_fail(node, e, "invalid value for '%s': %s", f->key, why.msg);
    if (f->max <= 0 || ((double)ms >= f->min && (double)ms <= f->max)) {
        *out = ms;
        return ERR_OK;
    }
    if (isinf(f->max))
        snprintf(range, sizeof(range), "of at least %s", conf_duration_text((int64_t)f->min).text);
    else
        snprintf(range, sizeof(range), "from %s to %s", conf_duration_text((int64_t)f->min).text,
                 conf_duration_text((int64_t)f->max).text);
    return conf_fail(node, e, "invalid value for '%s': expected a duration %s, got '%s'", f->key, range,
                     node->text);
}

static enum err_code read_parsed(const struct conf_node *node, const struct conf_field *f, void *at,
                                 struct err *e)
{
    if (!conf_is_scalar(node) || !f->parse(node->text, at))
        return conf_refuse(node, f->key, f->expected, e);
    return ERR_OK;
}

static enum err_code read_field(const struct conf_node *node, const struct conf_field *f, char *base,
                                struct err *e)
{
    void *at = base + f->offset;

    switch (f->type) {
    case CONF_TEXT:
        return read_text(node, f, at, e);
    case CONF_INT:
        return read_int(node, f, at, e);
    case CONF_REAL:
        return read_real(node, f, at, e);
    case CONF_BOOL:
        return read_bool(node, f, at, e);
    case CONF_ENUM:
        return read_enum(node, f, at, e);
    case CONF_DURATION:
        return read_duration(node, f, at, e);
    case CONF_TEXTS:
        return read_texts(node, f, at, e);
    case CONF_ENV:
        return read_env(node, f, at, e);
    case CONF_STRUCT:
        return conf_read_map(node, f->fields, at, e);
    case CONF_PARSED:
        return read_parsed(node, f, at, e);
    case CONF_CUSTOM:
        return f->fn(node, at, e);
    }
    BUG_ON("unknown field type");
    return ERR_INTERNAL;
}

enum err_code conf_read_value(const struct conf_node *node, const struct conf_field *field, void *at,
                              struct err *e)
{
    return read_field(node, field, at, e);
}

enum err_code conf_read_map(const struct conf_node *map, const struct conf_field *fields, void *base,
                            struct err *e)
{
    if (!conf_is_map(map))
        return conf_refuse(map, conf_key(map), "a map of keys and values", e);
    for (size_t i = 0; i < map->count; i++)
        if (!find_field(fields, map->items[i]->key->text))
            return unknown_key(map, map->items[i]->key, fields, e);
    for (size_t i = 0; i < map->count; i++)
        if (read_field(map->items[i], find_field(fields, map->items[i]->key->text), base, e))
            return e->code;
    for (; fields->key; fields++)
        if (fields->required && !conf_get(map, fields->key))
            return map->key ? conf_fail(map, e, "'%s' has no key '%s', which is required", map->key->text,
                                        fields->key)
                            : conf_fail(map, e, "the required key '%s' is missing", fields->key);
    return ERR_OK;
}

enum err_code conf_read(const struct conf_doc *doc, const struct conf_field *fields, void *base,
                        struct err *e)
{
    return conf_read_map(doc->root, fields, base, e);
}
