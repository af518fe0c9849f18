#ifndef DDP_TRAINER_ENGINE_STATE_H
#define DDP_TRAINER_ENGINE_STATE_H

#include "trainer/engine/engine.h"
#include "trainer/snapshot/divided.h"

/* The engine's state as snapshots keep it: parameters, then moments, then kept extra arrays, in host memory,
 * snapshot_floats(&n->layout) of them; and the place in the run. */

/* With shard: optimizer, an engine holds the moments of its own part only (optim->part), which are all of them in a world of one rank.
 * state_in and state_in_own then take that part of the state. The others treat it as described below. */
size_t state_bytes(const struct engine *n);
/* Copies the state out; valid after the device's next wait. Not the moments of a part that lacks some: they come by
 * state_moment_out. */
void state_out(const struct engine *n, float *state);
void state_in(struct engine *n, const float *state);
/* Only what a rank has of its own, of a part: its parameters if `params`; the optimizer's moments; the own arrays of the
 * strategy if `extras`. */
void state_in_own(struct engine *n, const float *state, bool params, bool extras);

/* The same arrays in device memory, in the same order; without the moments of a part. Returns their number. */
#define STATE_ARRAYS_MAX (2 + ENGINE_MAX_EXTRA)
struct state_array {
    float *data; /* the engine's */
    size_t count;
};
size_t state_arrays(const struct engine *n, struct state_array out[STATE_ARRAYS_MAX]);
/* One of these arrays to the host, beside a forward and a backward pass (device_ops.fetch). Any thread, one at a time. */
bool state_can_fetch(const struct engine *n);
MUST_CHECK enum err_code state_fetch(const struct engine *n, const struct state_array *array, float *to,
                                     struct err *e);
/* The moments that this engine has, by tensor; `at` counts from the optimizer's state. The caller frees by divided_release. */
void state_ranges(const struct engine *n, struct snapshot_ranges *out);
/* Of a part: moves its share of an array of moments to its place in the whole array, in device memory, or from there. */
void state_moment_out(const struct engine *n, const struct optim_array *a, float *array);
void state_moment_in(struct engine *n, const struct optim_array *a, const float *array);

/* Makes the engine as it was before it restored or started a run: nothing is left of the state and of the place. */
void state_forget(struct engine *n);

/* Fills in the fields that the engine knows. The caller fills in the others: job, generation, world size and
 * rounds. */
void state_place(const struct engine *n, struct snapshot_place *out);
/* The cursor and the permutation are valid for the same data only. FAILED_PRECONDITION: the data is not what
 * the snapshot was trained on. */
MUST_CHECK enum err_code state_check_data(const struct engine *n, const struct snapshot_place *place,
                                          struct err *e);
void state_take_place(struct engine *n, const struct snapshot_place *place);
void state_take_portions(struct engine *n,
                         const struct snapshot_place *place); /* only these, if they fit this group */
void state_take_best(struct engine *n, const struct snapshot_place *place); /* only best_step and best_loss */

#endif
