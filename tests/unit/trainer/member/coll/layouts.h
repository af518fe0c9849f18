#ifndef DDP_TESTS_UNIT_TRAINER_MEMBER_COLL_LAYOUTS_H
#define DDP_TESTS_UNIT_TRAINER_MEMBER_COLL_LAYOUTS_H

#include <string.h>

#include "tests/unit/trainer/member/ranks.h"

/* How ranks lie on nodes, in the tests of collectives. */

static const struct layout {
    const char *name;
    int world;
    int node_of[8];
} layouts[] = {
    {"one", 1, {0}},
    {"node of 2", 2, {0, 0}},
    {"node of 3", 3, {0, 0, 0}},
    {"node of 5", 5, {0, 0, 0, 0, 0}},
    {"node of 8", 8, {0, 0, 0, 0, 0, 0, 0, 0}},
    {"2 nodes", 2, {0, 1}},
    {"3 nodes", 3, {0, 1, 2}},
    {"5 nodes", 5, {0, 1, 2, 3, 4}},
    {"8 nodes", 8, {0, 1, 2, 3, 4, 5, 6, 7}},
    {"2 x 2", 4, {0, 0, 1, 1}},
    {"2 x 3", 6, {0, 0, 0, 1, 1, 1}},
    {"1 + 3", 4, {0, 1, 1, 1}},
    {"3 x 2, dealt out", 6, {0, 1, 2, 0, 1, 2}},
    {"3 + 1 + 2", 6, {5, 5, 5, 2, 9, 9}},
};
#define LAYOUTS (sizeof(layouts) / sizeof(layouts[0]))

static inline void with_layout(struct ranks *r, const struct layout *l)
{
    memset(r, 0, sizeof(*r));
    r->world = l->world;
    memcpy(r->node_of, l->node_of, sizeof(l->node_of));
}

#endif
