#ifndef DDP_DAEMON_COORDINATOR_CORE_PLACEMENT_CAPACITY_H
#define DDP_DAEMON_COORDINATOR_CORE_PLACEMENT_CAPACITY_H

#include "base/text.h"
#include "daemon/coordinator/core/model.h"

/* What nodes have room for in one placement pass: node->place counts what exists, what is busy, and what is
 * kept free for jobs that wait. */

enum slot_kind { SLOT_CPU, SLOT_GPU }; /* which kind of slot a job occupies */

enum capacity_when {
    CAPACITY_NOW,   /* on what is free now, and on what the job's survivors hold */
    CAPACITY_AGAIN, /* as soon as the job's own old workers are dead, and its nodes are connected */
    CAPACITY_LATER, /* if other jobs ended */
};

/* capacity_former_order of nodes without a part in the last generation starts here. */
#define NO_FORMER_RANK (1 << 20)

struct placement_choice {
    struct node *node;
    int procs, gpus_each; /* gpus_each 0: CPU slots */
    int kept;             /* of procs: survivors of the job, which hold their slots already */
    int order, available; /* for sorting */
};

void capacity_count(struct node *node);            /* begins a pass: nothing is kept */
bool capacity_usable(const struct node *node);     /* workers can be placed on it now */
bool capacity_can_train(const struct node *node);  /* its trainer can use GPUs */
bool capacity_lacks_nccl(const struct node *node); /* one rank alone can train on its GPUs */
bool capacity_expected(const struct node *node);   /* workers can probably be placed on it soon */
enum slot_kind capacity_slot_kind(const struct core *core, const struct job *job);
/* The cluster could run the job if it were empty. */
bool capacity_feasible(const struct core *core, const struct job *job, enum slot_kind kind);
/* How many processes the job has on this node, and how many GPUs each of them has. Returns 0 if the node
 * cannot run this job. */
int capacity_procs(const struct job *job, const struct node *node, enum slot_kind kind, int *gpus_each);
int capacity_sick_gpus(const struct core *core);               /* GPUs that exist and are sick */
struct text capacity_text(int64_t count, enum slot_kind kind); /* "4 GPUs" */
int capacity_units(const struct placement_choice *c);          /* slots or GPUs */
int capacity_available(const struct node *node, enum slot_kind kind);
/* What running jobs on the node could leave to the job (yielding.c). */
int capacity_yielding(const struct job *job, const struct node *node, enum slot_kind kind);
int capacity_former_order(const struct job *job,
                          const struct node *node); /* node rank in the last generation */
/* All nodes that could take the job's processes, best first. `out` has room for every node. */
size_t capacity_candidates(const struct core *core, const struct job *job, enum slot_kind kind,
                           enum capacity_when when, struct placement_choice *out);
/* Whether the job, if it stopped now, could have its processes on this node again. Its own slots count as
 * free. */
bool capacity_fits_again(const struct job *job, const struct node *node, enum slot_kind kind);
void capacity_take(struct node *node, const struct placement_choice *c);
void capacity_reserve(const struct job *job, struct node *node, const struct placement_choice *c);

#endif
