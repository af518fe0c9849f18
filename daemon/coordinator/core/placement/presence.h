#ifndef DDP_DAEMON_COORDINATOR_CORE_PLACEMENT_PRESENCE_H
#define DDP_DAEMON_COORDINATOR_CORE_PLACEMENT_PRESENCE_H

#include <stdint.h>

struct core;
struct job;

/* How many ranks of a job are present while it runs, and how many it wants. */
struct presence {
    int64_t present, wanted; /* both 0: no member of the job runs */
    char missing[192];       /* why fewer are present, a few words; empty: none is missing */
};

/* A job wants as many nodes as `nodes` allows. If its nodes have different numbers of ranks, a missing node counts as many
 * ranks as the largest one. */
void presence_find(const struct core *core, const struct job *job, struct presence *out);

#endif
