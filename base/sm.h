#ifndef DDP_BASE_SM_H
#define DDP_BASE_SM_H

#include <stdbool.h>
#include <stdint.h>

/* A state machine as a const table: names, and for each state the set of states that may follow, as bits. A
 * move that is not in the table is a bug, not an error. */
struct sm_state {
    const char *name;
    uint32_t next; /* 1u << state, ORed */
};
struct sm {
    const char *name;
    const struct sm_state *states;
    int count;
};

bool sm_may(const struct sm *sm, int from, int to);
void sm_check(const struct sm *sm, int from,
              int to); /* a move that is not allowed is a BUG, which names both states */
const char *sm_name(const struct sm *sm, int state);
int sm_find(const struct sm *sm, const char *name); /* -1: no state has this name */
bool sm_terminal(const struct sm *sm, int state);   /* no state may follow */

#endif
