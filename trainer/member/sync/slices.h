#ifndef DDP_TRAINER_MEMBER_SYNC_SLICES_H
#define DDP_TRAINER_MEMBER_SYNC_SLICES_H

#include "base/job/job.h"
#include "trainer/member/sync/sync.h"

/* The floats that an exchange sends, divided into one slice for each owner. A slice is some of the wire's blocks in a
 * row (wire.h), so that no block lies in two slices. Owners have equal numbers of blocks, except for one. A slice is
 * worked on window by window; a window lies within one tensor and begins with a block. */

#define SLICES_WINDOW ((size_t)1 << 16) /* the most floats of a window; whole blocks */

struct slices_window {
    size_t at, count; /* floats in the array */
    size_t code;      /* where its codes begin among those of all windows */
};

struct slices {
    int owners;
    struct slices_window *windows; /* in rising order */
    size_t count, room;            /* windows, and places for them */
    size_t *first;                 /* by owner, and one more: the index of its first window */
    size_t *codes;                 /* by owner, and one more: where the codes of its slice begin */
};

/* Cuts the floats of the tensors. `s` is zeros or was cut before. */
void slices_cut(struct slices *s, const struct sync_tensor *tensors, size_t count, enum wire_type wire,
                int owners);
void slices_release(struct slices *s);
size_t slices_floats(const struct slices *s, int owner);
/* Bytes of the codes of the largest slice. */
size_t slices_most(const struct slices *s);

#endif
