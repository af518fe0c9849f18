#ifndef DDP_TRAINER_SNAPSHOT_DIVIDED_H
#define DDP_TRAINER_SNAPSHOT_DIVIDED_H

#include "trainer/snapshot/parts.h"
#include "trainer/snapshot/safetensors.h"
#include "trainer/snapshot/snapshot.h"

/* Divided moments (shard: optimizer): each part of a snapshot holds the moments of those parameters that its rank updates, and no
 * other part has them. So such a snapshot needs all of its parts.
 *
 * A part's tensor is called "<tensor>.<moment>", as in optimizer.safetensors. If the part has only the floats [from, to) of that
 * tensor, it is called "<tensor>.<moment>[from:to]" and has one dimension. So ranks of any other division can read from the
 * parts what they need. */

struct snapshot_range {    /* floats of one moment of one tensor */
    size_t moment, tensor; /* numbers in the layout */
    size_t first, count;
    size_t at; /* where they begin in the array that holds them */
};
struct snapshot_ranges { /* what a rank has, or needs */
    struct snapshot_range *list;
    size_t count, cap;
    size_t floats; /* in the array that holds them */
};
void divided_add(struct snapshot_ranges *r, const struct snapshot_range *range);
void divided_release(struct snapshot_ranges *r);
size_t divided_floats(const struct snapshot_ranges *r); /* of all ranges together */
/* Returns how many parameters lie before this place in the flat array, which has gaps between tensors. */
size_t divided_parameters_before(const struct snapshot_layout *l, size_t offset);

/* ---- writing. moments: ranges->floats floats */

uint64_t divided_digest(const struct snapshot_ranges *ranges, const float *moments);
MUST_CHECK enum err_code divided_write(const char *path, const struct snapshot_layout *l,
                                       const struct snapshot_place *place,
                                       const struct snapshot_ranges *ranges, const float *moments,
                                       struct err *e);

/* ---- reading: one range of a part after the other */

struct divided_file {
    struct safetensors *f;
    struct snapshot_ranges ranges; /* in the order of the file; `at` is 0 */
    size_t next;
    uint64_t digest;
};
/* path: snapshot_part_path. The caller must call divided_close even after an error. FAILED_PRECONDITION: these are not moments of
 * this layout. */
MUST_CHECK enum err_code divided_open(struct divided_file *d, const char *path,
                                      const struct snapshot_layout *l, struct err *e);
/* The names and shapes alone: fills in d->ranges from d->f. */
MUST_CHECK enum err_code divided_parse(struct divided_file *d, const struct snapshot_layout *l,
                                       struct err *e);
void divided_close(struct divided_file *d);
/* Reads the next range into `data`, which has room for the largest tensor. *range NULL: that was all of the part. Then DATA_LOSS: it is
 * not the part that `want` describes, and nothing of it may be used. */
MUST_CHECK enum err_code divided_next(struct divided_file *d, const struct snapshot_part *want,
                                      const struct snapshot_range **range, float *data, struct err *e);
/* Copies to `moments` what `need` has of the range. Returns the number of floats. */
size_t divided_take(const struct snapshot_ranges *need, const struct snapshot_range *range, const float *data,
                    float *moments);

#endif
