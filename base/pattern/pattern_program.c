#include "base/pattern/pattern_program.h"

#include <stdbool.h>
#include <stdlib.h>

#include "base/mem.h"
#include "base/pattern/pattern.h"

/* Each node is compiled from its end: node_compile gets the state in which the rest of the expression begins, and returns the
 * one in which the node begins. So no address has to be filled in later but that of a loop. */

#define NODES_MOST                                                                                           \
    (1 << 20) /* that are compiled: ()* repeated 255 times 255 times makes no states, but takes time */

struct pattern_compiler {
    const struct pattern_tree *tree;
    struct pattern_program *program;
    size_t compiled;
    bool full;
};

static uint16_t state_add(struct pattern_compiler *c, const struct pattern_state *state)
{
    struct pattern_program *p = c->program;

    if (p->count == PATTERN_STATES)
        c->full = true;
    if (c->full)
        return 0;
    p->states = array_grow(p->states, p->count, &p->cap, sizeof(*p->states));
    p->states[p->count] = *state;
    return (uint16_t)p->count++;
}

static uint16_t add_byte(struct pattern_compiler *c, int from, int to, uint16_t next)
{
    const struct pattern_state state = {PATTERN_BYTE, (uint8_t)from, (uint8_t)to, next, 0};

    return state_add(c, &state);
}

static uint16_t add_fork(struct pattern_compiler *c, uint16_t next, uint16_t other)
{
    const struct pattern_state state = {PATTERN_FORK, 0, 0, next, other};

    return state_add(c, &state);
}

/* ---- sets of characters, as bytes of UTF-8 */

static int utf8_encode(uint32_t c, uint8_t out[4])
{
    const int bytes = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;

    for (int i = bytes - 1; i > 0; i--, c >>= 6)
        out[i] = (uint8_t)(0x80 | (c & 0x3F));
    out[0] = (uint8_t)(bytes == 1 ? c : (0xF00u >> bytes & 0xFF) | c);
    return bytes;
}

/* All characters beyond ASCII. It also takes what looks like UTF-8 but is none, in exchange for few states. */
static uint16_t others_compile(struct pattern_compiler *c, uint16_t next)
{
    const uint16_t last = add_byte(c, 0x80, 0xBF, next);
    const uint16_t second_last = add_byte(c, 0x80, 0xBF, last);
    const uint16_t third_last = add_byte(c, 0x80, 0xBF, second_last);
    const uint16_t long_ones =
        add_fork(c, add_byte(c, 0xE0, 0xEF, second_last), add_byte(c, 0xF0, 0xF4, third_last));

    return add_fork(c, add_byte(c, 0xC2, 0xDF, last), long_ones);
}

/* The last character, up to `to`, for which this holds: in the encodings from that of `from` to its own, each byte runs
 * through a range, whatever the other bytes are. */
static uint32_t range_end(uint32_t from, uint32_t to)
{
    static const uint32_t lengths[] = {0xFFFF, 0x7FF, 0x7F};

    for (size_t i = 0; i < ARRAY_LEN(lengths); i++)
        if (from <= lengths[i] && to > lengths[i])
            to = lengths[i];
    for (int bits = 6; from > 0x7F && bits <= 18; bits += 6) {
        const uint32_t mask = (1u << bits) - 1;

        if ((from & ~mask) == (to & ~mask))
            break;
        if (from & mask)
            to = from | mask;
        else if ((to & mask) != mask)
            to = (to & ~mask) - 1;
    }
    return to;
}

/* `to` is a range_end. */
static uint16_t range_compile(struct pattern_compiler *c, uint32_t from, uint32_t to, uint16_t next)
{
    uint8_t low[4], high[4];
    int bytes = utf8_encode(from, low);

    utf8_encode(to, high);
    while (bytes--)
        next = add_byte(c, low[bytes], high[bytes], next);
    return next;
}

static uint16_t set_compile(struct pattern_compiler *c, const struct pattern_node *node, uint16_t next)
{
    bool begun = false;
    uint16_t begin = 0;

    if (!node->count) /* [^\x00-\U10FFFF]: nothing matches, and a byte FF is not UTF-8 */
        return add_byte(c, 0xFF, 0xFF, next);
    for (size_t i = 0; i < node->count; i++) {
        const struct pattern_range r = c->tree->ranges[node->first + i];

        for (uint32_t from = r.from, last; from <= r.to; from = last + 1) {
            const bool others = from == 0x80 && r.to == PATTERN_LAST_CHARACTER;

            last = others ? r.to : range_end(from, r.to);
            const uint16_t part = others ? others_compile(c, next) : range_compile(c, from, last, next);
            begin = begun ? add_fork(c, begin, part) : part;
            begun = true;
        }
    }
    return begin;
}

/* ---- nodes */

static uint16_t node_compile(struct pattern_compiler *c, int index, uint16_t next);

static uint16_t repetition_compile(struct pattern_compiler *c, const struct pattern_node *node, uint16_t next)
{
    uint16_t at = next;

    if (node->most == PATTERN_NO_END) {
        at = add_fork(c, 0, next);
        const uint16_t body = node_compile(c, node->left, at);
        if (!c->full)
            c->program->states[at].next = body;
    }
    for (int i = node->least; i < node->most && !c->full; i++)
        at = add_fork(c, node_compile(c, node->left, at), next);
    for (int i = 0; i < node->least && !c->full; i++)
        at = node_compile(c, node->left, at);
    return at;
}

static uint16_t anchor_compile(struct pattern_compiler *c, enum pattern_state_kind kind, uint16_t next)
{
    const struct pattern_state state = {.kind = (uint8_t)kind, .next = next};

    return state_add(c, &state);
}

static uint16_t node_compile(struct pattern_compiler *c, int index, uint16_t next)
{
    const struct pattern_node *node = &c->tree->nodes[index];

    if (++c->compiled > NODES_MOST)
        c->full = true;
    if (c->full)
        return 0;
    switch (node->kind) {
    case PATTERN_EMPTY:
        return next;
    case PATTERN_SET:
        return set_compile(c, node, next);
    case PATTERN_BEGIN:
        return anchor_compile(c, PATTERN_AT_BEGIN, next);
    case PATTERN_END:
        return anchor_compile(c, PATTERN_AT_END, next);
    case PATTERN_SEQUENCE:
        return node_compile(c, node->left, node_compile(c, node->right, next));
    case PATTERN_CHOICE: {
        const uint16_t left = node_compile(c, node->left, next);
        return add_fork(c, left, node_compile(c, node->right, next));
    }
    case PATTERN_REPETITION:
        return repetition_compile(c, node, next);
    }
    return 0;
}

enum err_code pattern_program_make(const struct pattern_tree *tree, struct pattern_program *out,
                                   struct err *e)
{
    struct pattern_compiler c = {.tree = tree, .program = out};
    const struct pattern_state match = {.kind = PATTERN_MATCH};

    *out = (struct pattern_program){0};
    state_add(&c, &match);
    out->start = node_compile(&c, tree->root, 0);
    if (c.full)
        return err_set(e, ERR_RESOURCE_EXHAUSTED,
                       "the expression is too large: its repetitions, written out, need more than %d states",
                       PATTERN_STATES);
    return ERR_OK;
}

void pattern_program_release(struct pattern_program *p)
{
    free(p->states);
    *p = (struct pattern_program){0};
}
