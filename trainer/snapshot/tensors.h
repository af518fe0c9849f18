#ifndef DDP_TRAINER_SNAPSHOT_TENSORS_H
#define DDP_TRAINER_SNAPSHOT_TENSORS_H

#include "trainer/snapshot/parts.h"
#include "trainer/snapshot/safetensors.h"
#include "trainer/snapshot/snapshot.h"

/* One file of a snapshot: some arrays of a state, and the place in the run as metadata. For this folder. */

enum snapshot_choice {
    SNAPSHOT_PARAMS = 1,
    SNAPSHOT_OWN = 2,    /* moments of which each rank has its own */
    SNAPSHOT_SHARED = 4, /* the other moments */
};
/* moment -1: the parameters. False also for a moment that is unused. */
bool snapshot_chosen(const struct snapshot_layout *l, int moment, enum snapshot_choice choice);

/* Where the tensor is in a state, in floats; SNAPSHOT_NONE: it does not have that moment. */
size_t snapshot_tensor_place(const struct snapshot_layout *l, size_t tensor, int moment);

/* part_samples -1: the file is not a part. */
MUST_CHECK enum err_code snapshot_write_tensors(const char *path, const struct snapshot_layout *l,
                                                const struct snapshot_place *place, int64_t part_samples,
                                                enum snapshot_choice choice, const float *state,
                                                struct err *e);
/* The same for tensors that the caller describes. */
MUST_CHECK enum err_code snapshot_write_described(const char *path, const struct safetensor *tensors,
                                                  size_t count, const struct snapshot_place *place,
                                                  int64_t part_samples, const struct safetensors_check *check,
                                                  struct err *e);
MUST_CHECK enum err_code snapshot_read_tensors(const struct safetensors *f, const struct snapshot_layout *l,
                                               enum snapshot_choice choice, float *state, struct err *e);
MUST_CHECK enum err_code snapshot_metadata_int(const struct safetensors *f, const char *key, int64_t *out,
                                               struct err *e);
/* DATA_LOSS: the file of a part, whose tensors have this digest, is not what `want` describes. */
MUST_CHECK enum err_code snapshot_part_check(const struct safetensors *f, uint64_t digest,
                                             const struct snapshot_part *want, struct err *e);
/* OUT_OF_RANGE. */
MUST_CHECK enum err_code snapshot_check_finite(const struct snapshot_place *place, const float *state,
                                               size_t floats, struct err *e);

#endif
