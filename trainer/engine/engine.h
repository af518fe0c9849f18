#ifndef DDP_TRAINER_ENGINE_ENGINE_H
#define DDP_TRAINER_ENGINE_ENGINE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/job/job.h"
#include "trainer/data/dataset.h"
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
enum tail_slot { TAIL_LOSS, TAIL_STOP, TAIL_SIGNAL, TAIL_SNAPSHOT, TAIL_EVAL, TAIL_USED };

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
    bool kept; /* in snapshots, as "<tensor>.<name>" */
    bool own;  /* each rank has values of its own */
};

/* The micro-batch that lies in host_batch, where it is not the device's own memory; rows < 0: none. */
struct engine_staged {
    struct cursor cursor;
    int64_t micro, rows;
    int shard; /* of the sampler's */
};

struct engine {
    const struct train_spec *spec;
    struct device *device;
    size_t program_bytes; /* resident before any of the rest was opened */
    double peak_flops;    /* of this device; 0: not measured */
    struct dataset *train, *test;

    /* This rank's share of the samples, and the memory whose size depends on it (engine_take_share). Samples
     * are dealt to shards. A rank is one shard, or several if results must not depend on the world size. */
    struct sampler sampler; /* its rank is the shard at work, its world_size the number of shards of all */
    int first_shard, shards;
    int64_t rows;    /* the most that a micro-batch has */
    unsigned opened; /* how often the memory below was made */
    struct model *model;
    float **spare; /* sums of shards that wait for others, like the gradients; NULL with one shard */
    int spare_count;
    int64_t *index;            /* of a micro-batch, host */
    struct dataset_rows batch; /* of a micro-batch, device */
    int64_t *sample;           /* device: as index */
    struct dataset_rows host_batch;
    void *host_memory; /* of host_batch; NULL where the device's memory is the host's */
    struct engine_staged staged;
    size_t batch_bytes;
    struct device_tally *tally;     /* device */
    struct engine_outcome *outcome; /* device */

    struct optim *optim;
    struct device_array params, grads; /* model->count floats and the tail */
    struct device_array extra[ENGINE_MAX_EXTRA];
    struct engine_extra extras[ENGINE_MAX_EXTRA];
    size_t extra_count;
    bool plain;                      /* the device failed to record once: it is not asked again */
    uint64_t seen[ENGINE_SEEN_WORK]; /* keys of micro-batches that could be recorded, the last ones */
    unsigned seen_count;
    uint64_t *block_sums; /* of the parameters' digest, device; NULL: it is the host's work */

    struct snapshot_tensor *tensors;
    const char *kept[2 + ENGINE_MAX_EXTRA]; /* of a snapshot besides parameters: moments, then extras */
    struct snapshot_layout layout;
    struct buf config_json, vocab_json; /* a language model's, beside its tensors; else empty */

    /* The place in the run. */
    struct cursor cursor;
    int64_t step, samples; /* done so far, all ranks */
    double loss, lr, grad_norm;
    double val_loss, val_acc; /* of the last evaluation, at val_step; NaN before it */
    double best_loss;         /* of all evaluations, and its step; NaN and 0 before the first */
    int64_t val_step, best_step;
};

struct engine_config {
    const struct train_spec *spec; /* outlives the engine */
    enum job_device device;
    int local_rank, local_ranks; /* of this node's processes, which share its cores */
    struct engine_extra extras[ENGINE_MAX_EXTRA];
    size_t extra_count;
};
/* Opens device and data. The caller must call engine_close also after an error. FAILED_PRECONDITION: the job
 * wants a GPU, and there is none. */
MUST_CHECK enum err_code engine_open(struct engine *n, const struct engine_config *config, struct err *e);
void engine_close(struct engine *n);

/* Makes this rank `rank` of `world_size`. The first call opens model, optimizer and arrays; parameters are
 * zero. Later calls, for a group of another shape, keep parameters, moments and the position in the run.
 * INVALID_ARGUMENT: the job's shards cannot be dealt to that many ranks. After an error the engine can only
 * be closed. */
MUST_CHECK enum err_code engine_take_share(struct engine *n, int rank, int world_size, struct err *e);
/* Moves a cursor that stands at the end of its epoch to the next one. An epoch ends earlier in a smaller world if
 * samples are padded, so a cursor of another world size may stand there. */
void engine_leave_spent_epoch(struct engine *n);
/* From here on the sampler deals to shard j of this rank. */
void engine_take_shard(struct engine *n, int j);

double engine_run_progress(const struct engine *n); /* 0 to 1, for the learning rate */
bool engine_finished(const struct engine *n);
int64_t engine_total_steps(const struct engine *n); /* of the whole run, as far as it can be told */

#endif
