#ifndef DDP_TRAINER_RESUME_H
#define DDP_TRAINER_RESUME_H

#include "trainer/trainer.h"

/* Where a run begins: at a snapshot, with another model's parameters, or with its seed. */

/* The snapshots in snapshot.dir that this rank offers to load. Only one rank of each node looks, because all
 * of them see the same directory. */
struct resume_offers {
    struct snapshot_list found;
    struct link_offer *offers;
    size_t count;
    struct err unreadable; /* error if the directory cannot be read */
};
MUST_CHECK enum err_code resume_find(struct trainer *t, struct resume_offers *out, struct err *e);
void resume_release(struct resume_offers *o);
/* After Join: checks that starting as the group says loses nothing. FAILED_PRECONDITION: the directory holds
 * another run's snapshots, or it cannot be read, so that a start from scratch might ignore snapshots. */
MUST_CHECK enum err_code resume_check(const struct trainer *t, const struct resume_offers *o, struct err *e);
/* After Join: notes whether this rank must read the snapshot that it is to load before it does so. */
void resume_take_source(struct trainer *t, const struct resume_offers *o);
/* Collective: the source rank loads the state and broadcasts it to all. Does nothing in a generation that goes on from
 * memory. */
MUST_CHECK enum err_code trainer_restore(struct trainer *t, struct err *e);

#endif
