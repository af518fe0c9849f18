#ifndef DDP_TRAINER_TRAINER_H
#define DDP_TRAINER_TRAINER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/job/job.h"
#include "trainer/member/coll/coll.h"
#include "trainer/config.h"
#include "trainer/data/dataset.h"
#include "trainer/data/sampler.h"
#include "trainer/device/device.h"
#include "trainer/model/model.h"
#include "trainer/optim/optim.h"
#include "trainer/member/link/link.h"
#include "trainer/snapshot/saver.h"
#include "trainer/snapshot/snapshot.h"
#include "trainer/member/sync/sync.h"

/* Everything of one worker, owned by the main thread. Opened in the order of the fields, released in the
 * reverse. */

/* A few floats travel behind the last parameter in both flat arrays, so that what all ranks must know at
 * every step costs no collective of its own: with all-reduce they ride on the gradients, with averaging on
 * the parameters. */
#define TAIL_FLOATS 16
/* loss: this rank's share of the step's mean; the others are votes, above 0: someone asks for it. */
enum tail_slot { TAIL_LOSS, TAIL_STOP, TAIL_SIGNAL, TAIL_SNAPSHOT, TAIL_EVAL, TAIL_USED };

struct interval { /* since the last report */
    int64_t since_ns, steps, samples;
    int64_t exposed_ns; /* in the sync of gradients: what backward did not hide */
    uint64_t wait_ns;
};

struct sizes { /* bytes of memory */
    size_t parameters, gradients, optimizer, activations, workspace, batch;
    size_t data;     /* samples kept in memory */
    size_t snapshot; /* staged copies */
    size_t peers;    /* arrays of this node's other ranks: shared, resident in each */
    size_t program;  /* resident before anything was opened */
    size_t sum;
};

/* What a step leaves in device memory, to be read when it is over. */
struct outcome {
    float tail[TAIL_USED]; /* all ranks' */
    float loss;            /* this rank's share */
};

#define SEEN_WORK 16

/* The micro-batch that lies in host_batch, where it is not the device's own memory; rows < 0: none. */
struct staged {
    struct cursor cursor;
    int64_t micro, rows;
    int rank; /* of the sampler: which shard */
};

struct trainer {
    const struct trainer_config *config;
    const struct train_spec *spec;
    struct link *link;
    int rank, world_size;

    struct device *device;
    struct dataset *train, *test;
    struct sampler sampler;
    struct model *model;
    struct optim *optim;

    struct coll_listener *listener;
    struct link_group group_info;
    struct coll_group *group;
    float *params, *grads; /* model->count floats and the tail */
    int shards;            /* this rank's: 1, or its part of spec->shards where the world must not show */
    float **spare;         /* sums of shards that wait for others, like grads; NULL with one shard */
    int spare_count;
    struct sync *sync;

    int64_t *index;            /* of a micro-batch, host */
    struct dataset_rows batch; /* of a micro-batch, device */
    int64_t *sample;           /* device: as index */
    struct dataset_rows host_batch;
    void *host_memory; /* of host_batch; NULL where the device's memory is the host's */
    struct staged staged;
    size_t batch_bytes;
    struct device_tally *tally; /* device */
    struct outcome *outcome;    /* device */
    bool plain;                 /* the device failed to record once: it is not asked again */
    uint64_t seen[SEEN_WORK];   /* keys of micro-batches that could be recorded, the last ones */
    unsigned seen_count;

    struct snapshot_tensor *tensors;
    const char *kept[6]; /* arrays of a snapshot besides parameters: the optimizer's, then the strategy's */
    struct snapshot_layout layout;
    struct buf config_json, vocab_json; /* a language model's, beside its tensors; else empty */
    struct saver *saver;                /* NULL: this rank writes no snapshots */
    uint64_t *block_sums;               /* of the parameters' digest, device; NULL: it is the host's work */
    float *scratch;                     /* one state, where ranks differ; else NULL */
    char *snapshot_dir;                 /* absolute */

    struct cursor cursor;
    int64_t step, samples; /* done so far, all ranks */
    bool resumed;
    bool stopped, asked; /* ended before its end; because the coordinator asked some rank to */
    double loss, lr, grad_norm;
    uint64_t digest;                  /* of the parameters ... */
    int64_t digest_step, agreed_step; /* ... at that step; when all ranks' were the same. -1: never */
    double val_loss, val_acc;         /* of the last evaluation, at val_step; NaN before it */
    double best_loss;                 /* of all evaluations, and its step; NaN and 0 before the first */
    int64_t val_step, best_step;
    int64_t last_snapshot_ms, last_eval_ms, last_snapshot_step;
    struct interval interval;
    double peak_flops; /* of all ranks' devices; 0: not measured */
    struct sizes sizes;
    bool told_sizes;
};

/* setup.c: everything up to and including the group and the arrays; parameters are zero still. Takes the
 * report over, also on an error; trainer_close is due in any case. */
MUST_CHECK enum err_code trainer_open(struct trainer *t, const struct trainer_config *config,
                                      struct link *link, struct err *e);
/* False: the device's collectives did not end, the process must, by _exit: what is left belongs to them. */
MUST_CHECK bool trainer_close(struct trainer *t);

/* setup.c: the sampler deals to shard j of this rank's from here on. */
void trainer_take_shard(struct trainer *t, int j);

/* choice.c: opens t->device as the job says. FAILED_PRECONDITION: it wants a GPU, and there is none. */
MUST_CHECK enum err_code trainer_choose_device(struct trainer *t, struct err *e);
/* Collective. FAILED_PRECONDITION: ranks have devices of different kinds. */
MUST_CHECK enum err_code trainer_check_devices(struct trainer *t, struct err *e);

/* start.c: what snapshots hold; whether a directory's model is the job's, beyond names and shapes; and,
 * collective, the parameters that a run begins with: those of init_from, or of its seed. */
void trainer_describe(struct trainer *t);
/* Of the parameters alone; tensors, which the layout borrows, is the caller's to free. */
struct snapshot_layout trainer_layout(const struct model *m, struct snapshot_tensor **tensors);
MUST_CHECK enum err_code trainer_check_dir(const struct trainer *t, const char *dir, struct err *e);
MUST_CHECK enum err_code trainer_start(struct trainer *t, struct err *e);

/* state.c. Collective: what rank `root` found out is told to all, so that all end for the same reason. */
MUST_CHECK enum err_code trainer_agree(struct trainer *t, int root, const struct err *found, struct err *e);
/* Collective: the source rank loads, all have it afterwards. */
MUST_CHECK enum err_code trainer_restore(struct trainer *t, struct err *e);
/* Collective where ranks differ. last: waits for the writer, and fails when the snapshot could not be made to
 * count. */
MUST_CHECK enum err_code trainer_snapshot(struct trainer *t, bool last, struct err *e);

/* Until the snapshot before is written: one that matters must not be left out. */
void trainer_await_saver(struct trainer *t);

/* evaluate.c. Collective: loss and accuracy over the test split, exact counts over all ranks. Ranks that
 * differ (in an averaging round) each judge their own parameters on their part. OUT_OF_RANGE, on all: the
 * loss is no number; the last step of a run may have ruined it. */
MUST_CHECK enum err_code trainer_evaluate(struct trainer *t, struct err *e);

/* compare.c. Collective: t->digest is that of this step, unless ranks are in the middle of an averaging
 * round. DATA_LOSS: this rank's parameters are not those of the others; ABORTED: another's. */
MUST_CHECK enum err_code trainer_compare(struct trainer *t, struct err *e);
/* What the device needs for it. */
MUST_CHECK enum err_code compare_open(struct trainer *t, struct err *e);
void compare_close(struct trainer *t);

/* sizes.c */
size_t sizes_resident(void); /* of this process now; 0 where it cannot be told */
void sizes_take(struct trainer *t);
void sizes_log(const struct trainer *t);

/* progress.c */
void progress_epoch(const struct trainer *t); /* the tutorials' line at the start of an epoch */
void progress_resumed(const struct trainer *t);
void progress_saved(struct trainer *t); /* says what the saver finished since the last call */
void progress_report(struct trainer *t, bool evaluated);
int64_t progress_steps(const struct trainer *t); /* of the whole run, as far as it can be told */

/* batch.c: rows is the most that a micro-batch has. */
MUST_CHECK enum err_code batch_open(struct trainer *t, int64_t rows, struct err *e);
void batch_close(struct trainer *t);
/* Samples t->index[0, rows) of d. */
MUST_CHECK enum err_code batch_load(struct trainer *t, const struct dataset *d, int64_t rows,
                                    struct model_batch *out, struct err *e);
/* The sampler's share of micro-batch number `micro` of the step at the trainer's cursor. */
MUST_CHECK enum err_code batch_next(struct trainer *t, int64_t micro, struct model_batch *out, struct err *e);
/* Gathers beforehand what batch_next will be asked for, while the device is at work. */
void batch_stage(struct trainer *t, const struct cursor *cursor, int64_t micro);

/* step.c: one step; t->step is still that of the step before. */
struct step {
    int64_t local, global; /* samples: of this rank, of all */
    float tail[TAIL_FLOATS];
};
MUST_CHECK enum err_code trainer_step(struct trainer *t, struct step *s, struct err *e);
double trainer_run_progress(const struct trainer *t); /* 0 to 1, for the schedule */

double progress_bits(double nats);
/* What a text's bits are called: "bits_per_char", "bits_per_byte"; NULL: it is none. */
const char *progress_bits_name(const struct trainer *t);

/* loop.c: to the end, or until all agree to stop. */
MUST_CHECK enum err_code trainer_run(struct trainer *t, struct err *e);

extern volatile int trainer_stop_signal; /* set by SIGTERM's handler: its number */
extern volatile int trainer_running;     /* whether there is a state worth a snapshot */

/* verdict.c. The coordinator takes the first bad exit that it hears of for the cause, and a survivor's would
 * often come before that of the rank that died. So a survivor waits until it is told that its generation is
 * over, at most timeout_ms; a signal ends the wait. */
void trainer_await_verdict(struct trainer *t, int timeout_ms);
void trainer_wake(void); /* from a signal handler or any thread */

#endif
