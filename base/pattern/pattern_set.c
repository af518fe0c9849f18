#include "base/pattern/pattern_set.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

int pattern_character(const char *text, uint32_t *out)
{
    const unsigned char *s = (const unsigned char *)text;
    const int bytes = *s < 0x80   ? *s != 0
                      : *s < 0xC2 ? -1
                      : *s < 0xE0 ? 2
                      : *s < 0xF0 ? 3
                      : *s < 0xF5 ? 4
                                  : -1;
    uint32_t c = bytes < 2 ? *s : *s & (0x7Fu >> bytes);

    for (int i = 1; i < bytes; i++) {
        if ((s[i] & 0xC0) != 0x80)
            return -1;
        c = c << 6 | (s[i] & 0x3F);
    }
    if ((bytes == 3 && (c < 0x800 || (c >= 0xD800 && c < 0xE000))) ||
        (bytes == 4 && (c < 0x10000 || c > PATTERN_LAST_CHARACTER)))
        return -1;
    *out = c;
    return bytes;
}

static void set_add(struct pattern_tree *t, uint32_t from, uint32_t to)
{
    t->ranges = array_grow(t->ranges, t->range_count, &t->range_cap, sizeof(*t->ranges));
    t->ranges[t->range_count++] = (struct pattern_range){from, to};
}

struct character_class {
    const char *name;
    struct pattern_range ranges[4];
    size_t count;
};

static const struct character_class classes[] = {
    {"alpha", {{'A', 'Z'}, {'a', 'z'}}, 2},
    {"digit", {{'0', '9'}}, 1},
    {"alnum", {{'0', '9'}, {'A', 'Z'}, {'a', 'z'}}, 3},
    {"upper", {{'A', 'Z'}}, 1},
    {"lower", {{'a', 'z'}}, 1},
    {"space", {{'\t', '\r'}, {' ', ' '}}, 2},
    {"blank", {{'\t', '\t'}, {' ', ' '}}, 2},
    {"punct", {{'!', '/'}, {':', '@'}, {'[', '`'}, {'{', '~'}}, 4},
    {"print", {{' ', '~'}}, 1},
    {"graph", {{'!', '~'}}, 1},
    {"cntrl", {{0, 31}, {127, 127}}, 2},
    {"xdigit", {{'0', '9'}, {'A', 'F'}, {'a', 'f'}}, 3},
};

/* *at is behind "[:". */
static enum err_code class_parse(struct pattern_tree *t, const char **at, struct err *e)
{
    const char *end = strstr(*at, ":]");
    const size_t len = end ? (size_t)(end - *at) : 0;

    for (size_t i = 0; end && i < ARRAY_LEN(classes); i++) {
        const struct character_class *c = &classes[i];

        if (strlen(c->name) != len || memcmp(c->name, *at, len))
            continue;
        for (size_t r = 0; r < c->count; r++)
            set_add(t, c->ranges[r].from, c->ranges[r].to);
        *at = end + 2;
        return ERR_OK;
    }
    return err_set(
        e, ERR_INVALID_ARGUMENT,
        "unknown character class '[:%.*s': expected one such as [:digit:], [:alpha:], [:alnum:] or "
        "[:space:]",
        end ? (int)len + 2 : (int)strnlen(*at, 10), *at);
}

/* One character of a bracket expression, also in the form [.x.]. */
static enum err_code member_parse(const char **at, uint32_t *out, struct err *e)
{
    const bool named = (*at)[0] == '[' && ((*at)[1] == '.' || (*at)[1] == '=');
    const char mark = named ? (*at)[1] : 0;
    const char *from = *at + (named ? 2 : 0);
    const int bytes = pattern_character(from, out);

    if (bytes <= 0)
        return err_set(e, ERR_INVALID_ARGUMENT,
                       bytes ? "the expression is not UTF-8" : "a '[' is not closed by a ']'");
    *at = from + bytes;
    if (!named)
        return ERR_OK;
    if ((*at)[0] != mark || (*at)[1] != ']')
        return err_set(e, ERR_INVALID_ARGUMENT,
                       "in '[%c': only a single character is supported, as in [%c-%c]", mark, mark, mark);
    *at += 2;
    return ERR_OK;
}

static int compare_ranges(const void *a, const void *b)
{
    const struct pattern_range *x = a, *y = b;

    return (x->from > y->from) - (x->from < y->from);
}

/* Sorts the ranges from `first` on and joins those that overlap or touch. */
static void set_normalize(struct pattern_tree *t, size_t first)
{
    size_t count = first;

    qsort(t->ranges + first, t->range_count - first, sizeof(*t->ranges), compare_ranges);
    for (size_t i = first; i < t->range_count; i++) {
        const struct pattern_range r = t->ranges[i];

        if (count > first && r.from <= t->ranges[count - 1].to + 1) {
            if (r.to > t->ranges[count - 1].to)
                t->ranges[count - 1].to = r.to;
        } else {
            t->ranges[count++] = r;
        }
    }
    t->range_count = count;
}

/* The ranges from `first` on are normalized, and stay so. */
static void set_negate(struct pattern_tree *t, size_t first)
{
    const size_t count = t->range_count - first;
    struct pattern_range *old = xmemdup(t->ranges + first, count * sizeof(*old));
    uint32_t from = 0;

    t->range_count = first;
    for (size_t i = 0; i < count; i++) {
        if (old[i].from > from)
            set_add(t, from, old[i].from - 1);
        from = old[i].to + 1;
    }
    if (from <= PATTERN_LAST_CHARACTER)
        set_add(t, from, PATTERN_LAST_CHARACTER);
    free(old);
}

static enum err_code range_parse(struct pattern_tree *t, const char **at, struct err *e)
{
    const char *begin = *at;
    uint32_t from = 0, to;

    if (member_parse(at, &from, e))
        return e->code;
    to = from;
    if ((*at)[0] == '-' && (*at)[1] && (*at)[1] != ']') {
        ++*at;
        if (member_parse(at, &to, e))
            return e->code;
    }
    if (from > to)
        return err_set(e, ERR_INVALID_ARGUMENT, "the range '%.*s' ends before it begins", (int)(*at - begin),
                       begin);
    set_add(t, from, to);
    return ERR_OK;
}

enum err_code pattern_set_parse(struct pattern_tree *t, const char **at, struct err *e)
{
    const bool negated = **at == '^';
    const char *start = *at += negated;
    const size_t first = t->range_count;

    /* A ']' that comes first is a member. */
    while (**at != ']' || *at == start)
        if ((*at)[0] == '[' && (*at)[1] == ':') {
            *at += 2;
            if (class_parse(t, at, e))
                return e->code;
        } else if (range_parse(t, at, e)) {
            return e->code;
        }
    ++*at;
    set_normalize(t, first);
    if (negated)
        set_negate(t, first);
    return ERR_OK;
}
