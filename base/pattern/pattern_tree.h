#ifndef DDP_BASE_PATTERN_PATTERN_TREE_H
#define DDP_BASE_PATTERN_PATTERN_TREE_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

/* The syntax tree of an expression (pattern.h). */
#define PATTERN_LAST_CHARACTER 0x10FFFF
#define PATTERN_NO_END (-1) /* a repetition without an upper limit */

enum pattern_node_kind {
    PATTERN_EMPTY, /* matches the empty text */
    PATTERN_SET,   /* one character */
    PATTERN_BEGIN, /* ^ */
    PATTERN_END,   /* $ */
    PATTERN_SEQUENCE,
    PATTERN_CHOICE,
    PATTERN_REPETITION,
};

struct pattern_node {
    enum pattern_node_kind kind;
    int left, right;     /* of sequence and choice; the node that is repeated is `left` */
    int least, most;     /* of a repetition */
    size_t first, count; /* of a set: its ranges */
};

struct pattern_range {
    uint32_t from, to; /* code points, both included */
};

struct pattern_tree {
    struct pattern_node *nodes;
    size_t node_count, node_cap;
    struct pattern_range *ranges; /* those of a set are sorted and do not touch */
    size_t range_count, range_cap;
    int root;
};

/* INVALID_ARGUMENT: the message says what is wrong and where. The caller releases the tree in any case. */
MUST_CHECK enum err_code pattern_tree_parse(const char *text, struct pattern_tree *out, struct err *e);
void pattern_tree_release(struct pattern_tree *t);

#endif
