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

/* A job wants as many nodes as `nodes` allows. Where nodes have unlike numbers of ranks, a missing node counts as the largest
 * one that the job has. */
void presence_find(const struct core *core, const struct job *job, struct presence *out);

#endif
