#ifndef DDP_DAEMON_COORDINATOR_CORE_PLACEMENT_CAPACITY_H
#define DDP_DAEMON_COORDINATOR_CORE_PLACEMENT_CAPACITY_H

#include "daemon/coordinator/core/model.h"

/* What nodes have room for, in one placement pass: node->place counts what is there, what is busy, and what
 * is kept free for jobs that wait. Own folder only. */

enum room_mode { ROOM_CPU, ROOM_GPU }; /* which kind of slot a job occupies */

#define ROOM_NO_FORMER                                                                                       \
    (1 << 20) /* the order of nodes that had no part in the last generation, from here on */

void room_count(struct node *node);          /* begins a pass: nothing is kept */
bool room_usable(const struct node *node);   /* something can be placed on it now */
bool room_expected(const struct node *node); /* not now, but as things stand soon again */
enum room_mode room_mode_of(const struct core *core, const struct job *job);
bool room_feasible(const struct core *core, const struct job *job,
                   enum room_mode mode); /* by an empty cluster */
/* How many processes the job has on this node, and of how many GPUs each; 0: the node is none for it. */
int room_procs(const struct job *job, const struct node *node, enum room_mode mode, int *gpus_each);
int room_sick(const struct core *core);       /* GPUs that are there, and not well */
int room_units(const struct place_choice *c); /* slots or GPUs */
int room_available(const struct node *node, enum room_mode mode);
int room_former_order(const struct job *job,
                      const struct node *node); /* its node rank in the last generation */
/* All nodes that could take the job's processes now, best first; those of an emptier cluster when `later`.
 * `out` has room for every node. */
size_t room_candidates(const struct core *core, const struct job *job, enum room_mode mode, bool later,
                       struct place_choice *out);
/* world.c. Of `list`, best first, those that the job takes: `least` to `most` nodes, beside `with` processes
 * that it keeps. They move to the front. 0: no choice does, and the list is as it was. */
size_t world_choose(const struct job_spec *spec, int64_t least, int64_t most, int64_t with,
                    struct place_choice *list, size_t count);
bool world_matters(const struct job_spec *spec); /* reproducible: world */
/* Some number of nodes from min to max could give a world size that the job can have. */
bool world_possible(const struct job_spec *spec, int64_t min, int64_t max);

/* Whether the job, if it stopped now, could have its processes on this node again. Its own slots count as
 * free. */
bool room_fits_again(const struct job *job, const struct node *node, enum room_mode mode);
void room_take(struct node *node, const struct place_choice *c);
void room_keep(const struct job *job, struct node *node, const struct place_choice *c);

#endif
