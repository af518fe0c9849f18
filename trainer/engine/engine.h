#ifndef DDP_TRAINER_ENGINE_ENGINE_H
#define DDP_TRAINER_ENGINE_ENGINE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/job/job.h"
#include "trainer/data/dataset.h"
#include "trainer/data/deal.h"
#include "trainer/data/sampler.h"
#include "trainer/device/array.h"
#include "trainer/device/device.h"
#include "trainer/model/model.h"
#include "trainer/optim/optim.h"
#include "trainer/snapshot/snapshot.h"

/* The engine computes: it owns device, data, model, optimizer, the flat arrays and the position in the run.
 * It lives as long as the process and knows no other rank. The caller, which has the process group, tells it
 * which share of the samples is its own (engine_take_share), and exchanges its arrays. One thread. Opened in
 * the order of the fields, released in the reverse order. */

/* The flat arrays have a few floats behind the last parameter, for values that all ranks must know at every
 * step. They are summed together with the array, so they need no collective of their own. */
#define TAIL_FLOATS 16
/* TAIL_LOSS: this rank's share of the step's mean loss. The others are votes: above 0, some rank asks for it.
 */
enum tail_slot {
    TAIL_LOSS,
    TAIL_STOP,
    TAIL_SIGNAL,
    TAIL_SNAPSHOT,
    TAIL_EVAL,
    TAIL_TUNE,
    TAIL_HANDOVER,
    TAIL_USED
};
_Static_assert(TAIL_USED + 1 <= TAIL_FLOATS, "the last float is the strategy's (sync_config.tail)");

/* The results of a step in device memory, which the host reads when the step is over. */
struct engine_outcome {
    float tail[TAIL_USED]; /* all ranks' */
    float loss;            /* this rank's share */
};

#define ENGINE_SEEN_WORK 16
#define ENGINE_MAX_EXTRA 4

/* Arrays beside parameters and gradients: those of the strategy that keeps ranks in step. */
struct engine_extra {
    const char *name;
    bool kept; /* stored in snapshots, as "<tensor>.<name>" */
    bool own;  /* each rank has values of its own */
};

/* The micro-batch that was gathered in host_batch, if the device has its own memory; rows < 0: none. */
struct engine_staged {
    struct cursor cursor;
    int64_t micro, rows;
    int shard; /* number of the sampler's shard */
};

/* What this rank is dealt for a round of a given time: share.h */
struct engine_share {
    bool given;          /* steps take these samples; else those at the cursor */
    int64_t first;       /* in the row of n->deal */
    int64_t most, taken; /* samples */
    int64_t batch;       /* samples of a step */
    int64_t *limits;     /* `most` of all ranks */
    double ratio;        /* samples that all ranks take while this rank takes one, by the last round */
};

struct engine {
    const struct train_spec *spec;
    struct device *device;
    size_t program_bytes; /* resident memory before anything else was opened */
    double peak_flops;    /* rate of this device; 0: not measured */
    struct dataset *train, *test;

    /* This rank's share of the samples, and the memory whose size depends on it (engine_take_share). Samples
     * are dealt to shards. A rank is one shard, or several if results must not depend on the world size. */
    /* Its rank is the current shard, its world_size the number of all ranks' shards. */
    struct sampler sampler;
    int first_shard, shards;
    /* balance: speed: where the portions of the ranks begin and end, for a world of bounds_world ranks (0: none). */
    int64_t *bounds;
    int bounds_world;
    int64_t rows;          /* most rows of a micro-batch */
    double planned_arrays; /* with how many extra_arrays the model was opened */
    unsigned opened;       /* how often the memory below was allocated */
    bool told_attention;   /* the log names the kernels of attention */
    struct model *model;
    /* Partial sums of shards that wait for others, with the layout of the gradients; NULL with one shard. */
    float **spare;
    int spare_count;
    size_t spare_bytes;        /* that were allocated for them */
    int64_t *index;            /* sample numbers of a micro-batch, host memory */
    struct dataset_rows batch; /* a micro-batch, device memory */
    int64_t *sample;           /* the same numbers as index, device memory */
    struct dataset_rows host_batch;
    void *host_memory; /* memory of host_batch; NULL if the device has host memory */
    struct engine_staged staged;
    size_t batch_bytes;
    struct device_tally *tally;     /* device */
    struct engine_outcome *outcome; /* device */

    struct optim *optim;
    struct device_array params, grads; /* model->count floats, then the tail */
    struct device_array extra[ENGINE_MAX_EXTRA];
    struct engine_extra extras[ENGINE_MAX_EXTRA];
    size_t extra_count;
    /* The optimizer has written the model's bf16 copy with params, and nothing has changed params since. */
    bool narrowed;
    /* The parameters lack the last update of other ranks' matrices, which are only in the model's bf16 copy (packed.h). */
    bool partial;
    /* Parameters of other ranks have not all arrived; some may arrive in the memory of the gradients (packed.h). The
     * forward pass calls this before it reads parameters below `end`. NULL: all are there. */
    model_need_fn await;
    void *await_arg;
    bool plain;                      /* the device failed to record once, so nothing is recorded any more */
    uint64_t seen[ENGINE_SEEN_WORK]; /* keys of the last micro-batches that could be recorded */
    unsigned seen_count;
    uint64_t *block_sums; /* device memory for the digest of the parameters; NULL: the host computes it */

    struct snapshot_tensor *tensors;
    /* Names of the arrays that a snapshot holds besides parameters: moments, then extra arrays. own: each rank has
     * values of its own, if ranks differ. */
    const char *kept[OPTIM_MOMENTS + ENGINE_MAX_EXTRA];
    bool own[OPTIM_MOMENTS + ENGINE_MAX_EXTRA];
    bool unused[OPTIM_MOMENTS + ENGINE_MAX_EXTRA]; /* the strategy in use does not need it: describe_use */
    const char *optional[ENGINE_MAX_EXTRA + 1];    /* engine_config.optional */
    size_t *places; /* where each tensor of these arrays is in a state: layout.places */
    struct snapshot_layout layout;
    struct buf config_json, vocab_json; /* files of a language model's snapshot; else empty */
    struct buf algorithms;              /* describe_algorithms */

    /* The position in the run. */
    struct cursor cursor;
    int64_t step, samples; /* steps and samples so far, of all ranks */
    /* Rounds of a given time: samples beyond the last whole step, and the fewest steps of any rank's optimizer. */
    int64_t step_samples, fewest_updates;
    struct deal deal;
    struct engine_share share;
    /* Parameters and moments are those after `step`. Not before the owner has restored or started the run, and not
     * while an update is made that is not counted yet. */
    bool whole;
    double loss, lr, grad_norm;
    bool loss_unread;         /* that of the last step is still in `outcome` */
    double val_loss, val_acc; /* results of the last evaluation, at val_step; NaN before the first one */
    double best_loss; /* lowest validation loss so far, at best_step; NaN and 0 before the first evaluation */
    int64_t val_step, best_step;
};

struct engine_config {
    const struct train_spec
        *spec; /* borrowed; outlives the engine; the owner may tune it between two steps */
    enum job_device device;
    bool resumes;    /* the process takes the place of one that has failed */
    bool standalone; /* a user has started the process; no agent has chosen its GPUs */
    /* This process's number among local_ranks processes that share this node's cores. */
    int local_rank, local_ranks;
    struct engine_extra extras[ENGINE_MAX_EXTRA];
    size_t extra_count;
    /* The arrays that snapshots of other strategies may have or lack; the last is NULL. */
    const char *optional[ENGINE_MAX_EXTRA + 1];
};
/* Opens device and data. The caller must call engine_close even after an error. FAILED_PRECONDITION: the job
 * wants a GPU, and there is none. */
MUST_CHECK enum err_code engine_open(struct engine *n, const struct engine_config *config, struct err *e);
void engine_close(struct engine *n);

/* Makes this rank `rank` of `world_size`. The first call opens model, optimizer and arrays; parameters are
 * zero. Later calls, for a group of another shape, keep parameters, moments and the position in the run.
 * INVALID_ARGUMENT: the job's shards cannot be dealt to that many ranks. After an error the engine can only
 * be closed. */
MUST_CHECK enum err_code engine_take_share(struct engine *n, int rank, int world_size, struct err *e);
/* shard: optimizer. offsets: world_size + 1 of them: rank r updates the parameters from offsets[r] up to offsets[r + 1], and keeps
 * their moments (divide.h). Returns false if the job does not divide its optimizer. */
bool engine_divide(const struct engine *n, int world_size, size_t *offsets);
/* The arrays of floats, as long as the parameters, that this rank holds if it has so many of moments: parameters, gradients,
 * moments, and those of the strategy. */
double engine_arrays(const struct engine *n, double moments);
/* How many samples of a whole step each rank takes from now on, by rank; they add up to the global batch. NULL: ranks take
 * equal numbers. The portions stay for later groups of the same size. */
void engine_take_portions(struct engine *n, const int64_t *portions);
/* The samples of a whole step that a rank takes now. equal: that it would take without portions. */
int64_t engine_portion(const struct engine *n, int rank, bool equal);
/* Moves a cursor that stands at the end of its epoch to the next one. An epoch ends earlier in a smaller
 * world if samples are padded, so a cursor of another world size may stand there. */
void engine_leave_spent_epoch(struct engine *n);
/* Switches the sampler to shard j of this rank: the next samples are those of that shard. */
void engine_take_shard(struct engine *n, int j);

/* Where the next step takes its samples: the cursor, or a place in this rank's share, at `taken` samples of it. */
struct cursor engine_position(const struct engine *n, int64_t taken);
/* Where this rank is after so many more steps, of which all ranks make the same number, and the samples by then. */
struct engine_ahead {
    struct cursor cursor;
    int64_t local, global;
};
void engine_look_ahead(struct engine *n, int64_t steps, struct engine_ahead *out);
/* The steps so far, with those of the open round as far as this rank can tell; only such a round makes parts of steps. */
double engine_steps_made(const struct engine *n);
double engine_run_progress(const struct engine *n); /* returns 0 to 1, for the learning rate */
bool engine_finished(const struct engine *n);
/* Returns the steps of the whole run, as far as they are known. */
int64_t engine_total_steps(const struct engine *n);

#endif
