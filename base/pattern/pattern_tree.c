#include "base/pattern/pattern_tree.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/pattern/pattern.h"
#include "base/pattern/pattern_set.h"

#define DEPTH_MOST 100 /* of groups: parsing recurses */

struct pattern_parser {
    struct pattern_tree *tree;
    const char *text, *at;
    int depth;
    struct err *e;
};

/* Every failure ends here, so that each message says where. Returns -1. */
static int parse_refuse(struct pattern_parser *p, const char *at, const char *why)
{
    int character = 1;

    for (const char *s = p->text; s < at; s++)
        character += (*s & 0xC0) != 0x80;
    err_set(p->e, ERR_INVALID_ARGUMENT, "%s (character %d of the expression)", why, character);
    return -1;
}

static int node_add(struct pattern_parser *p, const struct pattern_node *node)
{
    struct pattern_tree *t = p->tree;

    t->nodes = array_grow(t->nodes, t->node_count, &t->node_cap, sizeof(*t->nodes));
    t->nodes[t->node_count] = *node;
    return (int)t->node_count++;
}

static int node_pair(struct pattern_parser *p, enum pattern_node_kind kind, int left, int right)
{
    const struct pattern_node node = {.kind = kind, .left = left, .right = right};

    return left < 0 || right < 0 ? -1 : node_add(p, &node);
}

static int node_single(struct pattern_parser *p, enum pattern_node_kind kind)
{
    const struct pattern_node node = {.kind = kind};

    return node_add(p, &node);
}

/* A set of the ranges that were added from `first` on. */
static int node_set(struct pattern_parser *p, size_t first)
{
    const struct pattern_node node = {
        .kind = PATTERN_SET, .first = first, .count = p->tree->range_count - first};

    return node_add(p, &node);
}

static int node_ranges(struct pattern_parser *p, const struct pattern_range *ranges, size_t count)
{
    struct pattern_tree *t = p->tree;
    const size_t first = t->range_count;

    for (size_t i = 0; i < count; i++) {
        t->ranges = array_grow(t->ranges, t->range_count, &t->range_cap, sizeof(*t->ranges));
        t->ranges[t->range_count++] = ranges[i];
    }
    return node_set(p, first);
}

/* What other kinds of expressions write with a backslash has no meaning in POSIX; a silent other meaning would mislead. */
static int escape_refuse(struct pattern_parser *p)
{
    static const struct {
        char letter;
        const char *instead;
    } known[] = {{'d', "[0-9]"},       {'D', "[^0-9]"},       {'w', "[[:alnum:]_]"}, {'W', "[^[:alnum:]_]"},
                 {'s', "[[:space:]]"}, {'S', "[^[:space:]]"}, {'t', "[[:blank:]]"}};
    const char letter = p->at[1];
    CLEANUP(free_text) char *why = NULL;

    for (size_t i = 0; i < ARRAY_LEN(known); i++)
        if (known[i].letter == letter)
            why = xasprintf("'\\%c' does not exist in POSIX extended regular expressions: write %s", letter,
                            known[i].instead);
    if (!why && letter >= '1' && letter <= '9')
        why = xasprintf("back references such as '\\%c' are not supported", letter);
    if (!why && letter)
        why = xasprintf("'\\%c' does not exist in POSIX extended regular expressions", letter);
    return parse_refuse(p, p->at,
                        why ? why : "the expression ends in a backslash: write \\\\ for the character");
}

static int parse_character(struct pattern_parser *p)
{
    const bool escaped = *p->at == '\\';
    struct pattern_range range;
    int bytes;

    if (escaped && (!p->at[1] || !strchr("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~ ", p->at[1])))
        return escape_refuse(p);
    /* GNU's anchors of words */
    if (escaped && (p->at[1] == '<' || p->at[1] == '>' || p->at[1] == '`' || p->at[1] == '\''))
        return escape_refuse(p);
    p->at += escaped;
    bytes = pattern_character(p->at, &range.from);
    if (bytes < 0)
        return parse_refuse(p, p->at, "the expression is not UTF-8");
    if (*p->at == '\n')
        return parse_refuse(p, p->at, "no line contains a line end");
    p->at += bytes;
    range.to = range.from;
    return node_ranges(p, &range, 1);
}

static int parse_choice(struct pattern_parser *p);

static int parse_group(struct pattern_parser *p)
{
    const char *open = p->at++;
    int node;

    if (++p->depth > DEPTH_MOST)
        return parse_refuse(p, open, "more than 100 groups inside each other");
    node = parse_choice(p);
    p->depth--;
    if (node >= 0 && *p->at != ')')
        return parse_refuse(p, open, "the group that begins here has no ')'");
    p->at++;
    return node;
}

static int parse_brackets(struct pattern_parser *p)
{
    const char *open = p->at++;
    const size_t first = p->tree->range_count;
    struct err e;

    if (pattern_set_parse(p->tree, &p->at, &e))
        return parse_refuse(p, open, e.msg);
    return node_set(p, first);
}

static int parse_atom(struct pattern_parser *p)
{
    static const struct pattern_range any[] = {{0, PATTERN_LAST_CHARACTER}};

    switch (*p->at) {
    case '(':
        return parse_group(p);
    case '[':
        return parse_brackets(p);
    case '.':
        p->at++;
        return node_ranges(p, any, 1);
    case '^':
        p->at++;
        return node_single(p, PATTERN_BEGIN);
    case '$':
        p->at++;
        return node_single(p, PATTERN_END);
    case '*':
    case '+':
    case '?':
    case '{':
        return parse_refuse(p, p->at,
                            "there is nothing here to repeat: write a backslash before the character itself");
    default:
        return parse_character(p);
    }
}

/* -1: no number up to PATTERN_REPEAT. */
static int parse_number(struct pattern_parser *p)
{
    int n = 0;

    if (*p->at < '0' || *p->at > '9')
        return -1;
    for (; *p->at >= '0' && *p->at <= '9'; p->at++)
        n = n > PATTERN_REPEAT ? n : n * 10 + (*p->at - '0');
    return n > PATTERN_REPEAT ? -1 : n;
}

/* "{2}", "{2,}", "{2,5}" and, as GNU has it, "{,5}". False: it is none. */
static bool parse_bounds(struct pattern_parser *p, struct pattern_node *out)
{
    p->at++;
    out->least = *p->at == ',' ? 0 : parse_number(p);
    out->most = out->least;
    if (out->least < 0)
        return false;
    if (*p->at == ',' && p->at[1] == '}') {
        out->most = PATTERN_NO_END;
        p->at++;
    } else if (*p->at == ',') {
        p->at++;
        out->most = parse_number(p);
        if (out->most < out->least)
            return false;
    }
    return *p->at++ == '}';
}

static int parse_repeated(struct pattern_parser *p)
{
    int node = parse_atom(p);

    while (node >= 0 && *p->at && strchr("*+?{", *p->at)) {
        struct pattern_node repetition = {.kind = PATTERN_REPETITION, .left = node, .most = PATTERN_NO_END};
        const char *begin = p->at;

        repetition.least = *p->at == '+';
        if (*p->at == '?')
            repetition.most = 1;
        if (*p->at == '{' && !parse_bounds(p, &repetition))
            return parse_refuse(p, begin,
                                "expected a number of repetitions up to 255, such as {2}, {2,} or {2,5}");
        p->at += *begin != '{';
        node = node_add(p, &repetition);
    }
    return node;
}

static int parse_sequence(struct pattern_parser *p)
{
    int node = -1;

    while (*p->at && *p->at != '|' && *p->at != ')') {
        const int next = parse_repeated(p);

        if (next < 0)
            return -1;
        node = node < 0 ? next : node_pair(p, PATTERN_SEQUENCE, node, next);
    }
    /* POSIX lets a ')' outside of a group stand for itself, but most of those are mistakes. */
    if (*p->at == ')' && !p->depth)
        return parse_refuse(p, p->at, "this ')' closes no group: write \\) for the character");
    return node < 0 ? node_single(p, PATTERN_EMPTY) : node;
}

static int parse_choice(struct pattern_parser *p)
{
    int node = parse_sequence(p);

    while (node >= 0 && *p->at == '|') {
        p->at++;
        node = node_pair(p, PATTERN_CHOICE, node, parse_sequence(p));
    }
    return node;
}

enum err_code pattern_tree_parse(const char *text, struct pattern_tree *out, struct err *e)
{
    struct pattern_parser p = {.tree = out, .text = text, .at = text, .e = e};

    *out = (struct pattern_tree){0};
    if (!*text)
        return err_set(e, ERR_INVALID_ARGUMENT, "the expression is empty");
    if (strlen(text) > PATTERN_BYTES)
        return err_set(e, ERR_INVALID_ARGUMENT, "the expression has %zu bytes: at most %d are allowed",
                       strlen(text), PATTERN_BYTES);
    out->root = parse_choice(&p);
    return out->root < 0 ? e->code : ERR_OK;
}

void pattern_tree_release(struct pattern_tree *t)
{
    free(t->nodes);
    free(t->ranges);
    *t = (struct pattern_tree){0};
}
