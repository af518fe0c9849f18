#ifndef DDP_BASE_JOB_H
#define DDP_BASE_JOB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/conf.h"
#include "base/err.h"

/* The job file, typed. The same YAML text is what a user writes, what travels to the coordinator, what it
 * stores and what the trainer reads: every program parses it with this one module. */

enum job_kind { JOB_COMMAND, JOB_TRAIN };
enum job_device { JOB_DEVICE_AUTO, JOB_DEVICE_CPU, JOB_DEVICE_CUDA };
enum job_procs { JOB_PROCS_NUMBER, JOB_PROCS_GPU, JOB_PROCS_CPU, JOB_PROCS_AUTO };
#define JOB_GPUS_ALL (-1)

enum model_type { MODEL_LINEAR, MODEL_MLP };
enum activation_type { ACTIVATION_RELU, ACTIVATION_GELU, ACTIVATION_TANH };
enum loss_type { LOSS_AUTO, LOSS_CROSS_ENTROPY, LOSS_MSE };
enum data_type { DATA_SYNTHETIC, DATA_IDX };
enum optimizer_type { OPTIMIZER_SGD, OPTIMIZER_ADAMW };
enum schedule_type { SCHEDULE_CONSTANT, SCHEDULE_LINEAR, SCHEDULE_COSINE };
enum sync_type { SYNC_ALLREDUCE, SYNC_AVERAGE };
enum resume_type { RESUME_AUTO, RESUME_CONTINUE, RESUME_NEVER };
enum every_unit { EVERY_STEPS, EVERY_EPOCHS, EVERY_MS };

struct job_every { /* 500 · "10 epochs" · "15m"; count 0: never */
    int64_t count;
    enum every_unit unit;
};

struct train_spec {
    struct {
        enum model_type type;
        int64_t in, out; /* linear */
        int64_t *sizes;  /* mlp: size_count widths, input first */
        size_t size_count;
        enum activation_type activation;
    } model;
    enum loss_type loss;
    struct {
        enum data_type type;
        int64_t samples; /* synthetic */
        int64_t in, out; /* synthetic: widths, 20 and 1 as in the tutorial */
        char *dir;       /* idx: holds train-images-idx3-ubyte[.gz] and the other three */
        bool pad;        /* repeat samples in the tail as PyTorch's DistributedSampler does */
        bool shuffle;    /* true */
    } data;
    struct {
        enum optimizer_type type;
        double lr, momentum, betas[2], eps, weight_decay, clip; /* clip 0: none */
        bool nesterov;
    } optimizer;
    struct {
        enum schedule_type type;
        int64_t warmup; /* steps */
        double min_lr;
    } schedule;
    int64_t batch;         /* samples per rank and step; 0 when global_batch is given */
    int64_t global_batch;  /* whole batch over all ranks; 0 when batch is given */
    int64_t accumulate;    /* micro-batches a step, 1 */
    int64_t epochs, steps; /* one of them is 0 */
    int64_t seed;
    struct {
        enum sync_type type;
        int64_t every; /* average: H */
    } sync;
    struct {
        char *dir; /* NULL: no snapshots */
        struct job_every every;
        int64_t keep;
    } snapshot;
    enum resume_type resume;
    struct {
        struct job_every every; /* default: each epoch */
        int64_t batches;        /* 0: all */
    } eval;
    int64_t log_every;   /* steps between reports, 10 */
    bool tutorial_lines; /* the tutorials' progress lines on stdout, true */
};

struct job_spec {
    char *name;
    enum job_kind kind;
    int64_t nodes_min, nodes_max; /* equal: fixed */
    enum job_procs procs;
    int64_t procs_per_node; /* JOB_PROCS_NUMBER */
    int64_t gpus_per_proc;  /* or JOB_GPUS_ALL */
    enum job_device device;
    int64_t max_restarts, priority;
    int64_t time_limit_ms;   /* 0: none */
    int64_t lease_ms;        /* default: command 60 s, train 10 min */
    int64_t join_timeout_ms; /* 60 s */
    int64_t grace_ms;        /* SIGTERM to SIGKILL, 30 s */
    char **env;              /* "NAME=value" */
    char *workdir;           /* absolute in a submitted job */
    char **command;          /* JOB_COMMAND */
    struct train_spec train; /* JOB_TRAIN */
};

/* Parses and checks everything that can be checked without a machine: types, ranges, unknown keys,
 * contradictions (both command and train, both epochs and steps, ...). *out is zeroed first; release it
 * whatever the result. */
MUST_CHECK enum err_code job_parse(struct job_spec *out, const char *text, size_t len, const char *where,
                                   struct err *e);
MUST_CHECK enum err_code job_read(struct job_spec *out, const struct conf_doc *doc, struct err *e);
void job_release(struct job_spec *spec);

/* A job file's text for `submit -- COMMAND` and its flags: the fields that differ from the defaults. Caller
 * frees. */
char *job_print(const struct job_spec *spec);
void job_defaults(struct job_spec *spec, enum job_kind kind);

#endif
