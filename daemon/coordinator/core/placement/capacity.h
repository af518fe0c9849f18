#ifndef DDP_DAEMON_COORDINATOR_CORE_PLACEMENT_CAPACITY_H
#define DDP_DAEMON_COORDINATOR_CORE_PLACEMENT_CAPACITY_H

#include "daemon/coordinator/core/model.h"

/* What nodes have room for in one placement pass: node->place counts what exists, what is busy, and what is
 * kept free for jobs that wait. */

enum room_mode { ROOM_CPU, ROOM_GPU }; /* which kind of slot a job occupies */

/* room_former_order of nodes without a part in the last generation starts here. */
#define ROOM_NO_FORMER (1 << 20)

struct place_choice {
    struct node *node;
    int procs, gpus_each; /* gpus_each 0: CPU slots */
    int order, available; /* for sorting */
};

void room_count(struct node *node);          /* begins a pass: nothing is kept */
bool room_usable(const struct node *node);   /* workers can be placed on it now */
bool room_expected(const struct node *node); /* workers can probably be placed on it soon */
enum room_mode room_mode_of(const struct core *core, const struct job *job);
/* The cluster could run the job if it were empty. */
bool room_feasible(const struct core *core, const struct job *job, enum room_mode mode);
/* How many processes the job has on this node, and how many GPUs each of them has. Returns 0 if the node
 * cannot run this job. */
int room_procs(const struct job *job, const struct node *node, enum room_mode mode, int *gpus_each);
int room_sick(const struct core *core);       /* GPUs that exist and are sick */
int room_units(const struct place_choice *c); /* slots or GPUs */
int room_available(const struct node *node, enum room_mode mode);
int room_former_order(const struct job *job, const struct node *node); /* node rank in the last generation */
/* All nodes that could take the job's processes now, best first. later: those that could take them if other
 * jobs had ended. `out` has room for every node. */
size_t room_candidates(const struct core *core, const struct job *job, enum room_mode mode, bool later,
                       struct place_choice *out);
/* Whether the job, if it stopped now, could have its processes on this node again. Its own slots count as
 * free. */
bool room_fits_again(const struct job *job, const struct node *node, enum room_mode mode);
void room_take(struct node *node, const struct place_choice *c);
void room_keep(const struct job *job, struct node *node, const struct place_choice *c);

#endif
