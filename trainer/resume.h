#ifndef DDP_TRAINER_RESUME_H
#define DDP_TRAINER_RESUME_H

#include "trainer/trainer.h"

/* Where a run begins: at a snapshot, at another run's parameters, or at its seed. */

/* What lies in snapshot.dir that this rank can offer to load. Only one rank a node looks: all of the node see
 * the same. */
struct resume_offers {
    struct snapshot_list found;
    struct link_offer *offers;
    size_t count;
    struct err unreadable; /* the directory cannot be read */
};
MUST_CHECK enum err_code resume_find(struct trainer *t, struct resume_offers *out, struct err *e);
void resume_release(struct resume_offers *o);
/* After Join: whether the run may begin as the group says. FAILED_PRECONDITION: the directory holds another
 * run's snapshots; or it cannot be read, so that nobody knows what would be started over. */
MUST_CHECK enum err_code resume_check(const struct trainer *t, const struct resume_offers *o, struct err *e);
/* Collective: the source rank loads, all have it afterwards. */
MUST_CHECK enum err_code trainer_restore(struct trainer *t, struct err *e);

#endif
