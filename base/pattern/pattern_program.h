#ifndef DDP_BASE_PATTERN_PATTERN_PROGRAM_H
#define DDP_BASE_PATTERN_PATTERN_PROGRAM_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/pattern/pattern_tree.h"

/* The nondeterministic automaton of an expression, over bytes. State 0 is the end of a match. */
enum pattern_state_kind {
    PATTERN_MATCH,
    PATTERN_BYTE,     /* goes to `next` with a byte from `from` to `to` */
    PATTERN_FORK,     /* goes to `next` and `other` without a byte */
    PATTERN_AT_BEGIN, /* goes to `next` at the begin of the line */
    PATTERN_AT_END,
};

struct pattern_state {
    uint8_t kind, from, to;
    uint16_t next, other;
};

struct pattern_program {
    struct pattern_state *states;
    size_t count, cap;
    uint16_t start;
};

/* RESOURCE_EXHAUSTED: it would have more than PATTERN_STATES states. The caller releases the program in any case. */
MUST_CHECK enum err_code pattern_program_make(const struct pattern_tree *tree, struct pattern_program *out,
                                              struct err *e);
void pattern_program_release(struct pattern_program *p);

#endif
