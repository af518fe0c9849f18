#ifndef DDP_TRAINER_DEVICE_CPU_PIN_H
#define DDP_TRAINER_DEVICE_CPU_PIN_H

#include <stddef.h>

#include "base/err.h"
#include "base/topology.h"

/* Which cores and which memory a rank uses. The ranks of a node are spread over its NUMA nodes such that each rank has as many cores
 * as possible, all of one NUMA node. If there are at least twice as many NUMA nodes as ranks, each rank gets several. A rank has one
 * compute thread for each core. It is pinned to one hardware thread of each core, and may use the others only if it is the only
 * rank of its job on the node, if there are more ranks than cores, or if the user asks for more threads than the rank has cores. */
struct cpu_share {
    int *cpus; /* hardware threads, by number */
    size_t count;
    int *nodes; /* NUMA nodes of these, by number */
    size_t node_count;
    int threads; /* compute threads of this rank: the number of cores that every rank of this node has at least, or the number that the user asks for */
};

/* wanted: threads that the user asks for; 0: none. */
void cpu_share_choose(struct cpu_share *out, const struct topology *t, int local_rank, int local_ranks,
                      int wanted);
void cpu_share_release(struct cpu_share *s);

/* Chooses this process's share and pins it there, with all threads that it starts later. Memory comes from the NUMA node of the
 * thread that touches it first; if the share has several, from each in turn. local_rank -1: the process is not pinned, and only
 * `threads` is chosen. */
MUST_CHECK enum err_code cpu_pin(struct cpu_share *out, int local_rank, int local_ranks, int wanted,
                                 struct err *e);

#endif
