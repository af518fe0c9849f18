#ifndef DDP_BASE_JOB_JOB_H
#define DDP_BASE_JOB_JOB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/conf/conf.h"
#include "base/err.h"
#include "base/isa.h"

/* The job file, typed. A user writes it as YAML, ddpctl sends the same text to the coordinator, the coordinator
 * stores it, and the trainer reads it. Every program parses it with this module. */

enum job_kind { JOB_COMMAND, JOB_TRAIN };
enum job_device { JOB_DEVICE_AUTO, JOB_DEVICE_CPU, JOB_DEVICE_CUDA };
enum job_procs { JOB_PROCS_NUMBER, JOB_PROCS_GPU, JOB_PROCS_CPU, JOB_PROCS_AUTO };
enum job_store { JOB_STORE_PROGRAM, JOB_STORE_LAUNCHER };
enum job_idle { JOB_IDLE_TELL, JOB_IDLE_STOP };
enum job_logs { JOB_LOGS_SHARED, JOB_LOGS_PRIVATE };
/* The failures that a restart answers: faults of the machines only, or errors of the program too. */
enum job_restart_on { RESTART_ON_FAULT, RESTART_ON_ANY };
/* Where ddp reads the curves of a command that reports no metrics itself. */
enum job_capture_from { JOB_CAPTURE_AUTO, JOB_CAPTURE_NONE, JOB_CAPTURE_PATTERN, JOB_CAPTURE_TENSORBOARD };
struct job_capture {
    enum job_capture_from from; /* auto: the usual lines of training programs */
    char *text; /* the expression with named groups, or the directory of the event files; else NULL */
};
#define JOB_GPUS_ALL (-1)

enum model_type { MODEL_LINEAR, MODEL_MLP, MODEL_GPT };
enum activation_type { ACTIVATION_RELU, ACTIVATION_GELU, ACTIVATION_TANH, ACTIVATION_GELU_TANH };
enum loss_type { LOSS_AUTO, LOSS_CROSS_ENTROPY, LOSS_MSE };
enum data_type { DATA_SYNTHETIC, DATA_IDX, DATA_TEXT, DATA_TOKENS };
enum symbol_type { SYMBOL_CHARACTER, SYMBOL_BYTE };
enum optimizer_type { OPTIMIZER_SGD, OPTIMIZER_ADAMW, OPTIMIZER_MUON };
enum schedule_type { SCHEDULE_CONSTANT, SCHEDULE_LINEAR, SCHEDULE_COSINE };
enum sync_type { SYNC_ALLREDUCE, SYNC_AVERAGE, SYNC_DILOCO, SYNC_AUTO };
enum outer_schedule { OUTER_CONSTANT, OUTER_TRAPEZOID };
enum wire_type { WIRE_FP32, WIRE_BF16, WIRE_INT8, WIRE_INT4 };
/* How ranks are kept in step: the strategy, and the keys of all strategies (job_sync.c). */
struct sync_spec {
    enum sync_type type;
    int64_t every;    /* average, diloco: steps of a round; of the first one at most, if every_ms is set */
    int64_t every_ms; /* average, diloco: time of a round; 0: rounds have `every` steps */
    /* diloco */
    double outer_lr, outer_momentum;    /* of the optimizer that takes the step at a round's end */
    enum outer_schedule outer_schedule; /* of the momentum (trainer/member/sync/diloco.c) */
    enum wire_type wire;                /* what is sent of each parameter */
    int64_t warm;                       /* steps of plain all-reduce before the first round, 0 */
    int64_t fragments;                  /* parts that are exchanged one after the other within a round, 1 */
    int64_t overlap;                    /* steps between sending and applying, 0 */
    double mix;                         /* with overlap: weight of this rank's own parameters then */
    int64_t
        quorum; /* a round closes when so many ranks have made it, and the grace has passed; 0: all ranks */
    int64_t grace_ms; /* with quorum; 0: from the times of the last arrivals */
};
enum resume_type { RESUME_AUTO, RESUME_CONTINUE, RESUME_NEVER };
enum precision_type { PRECISION_FP32, PRECISION_BF16 };
enum balance_type { BALANCE_EQUAL, BALANCE_SPEED };
enum shard_type { SHARD_NONE, SHARD_OPTIMIZER };
enum moments_type { MOMENTS_AUTO, MOMENTS_PARTS, MOMENTS_WHOLE };
enum reproducible_type { REPRODUCIBLE_LAYOUT, REPRODUCIBLE_WORLD, REPRODUCIBLE_NONE };
enum recompute_type { RECOMPUTE_NONE, RECOMPUTE_BLOCK };
enum lost_type { LOST_WAIT, LOST_FAIL };
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
        enum activation_type activation;       /* gpt: gelu_tanh (GPT-2's) or gelu (exact) */
        int64_t layers, heads, width, context; /* gpt */
        int64_t vocab;                         /* gpt: 0 (the number of symbols of the data) */
        double dropout;                        /* gpt: 0 */
        bool tied; /* gpt: the head shares the weights of the token embedding; true */
    } model;
    char *init_from; /* directory of a snapshot or a Hugging Face model with the initial parameters; NULL */
    enum loss_type loss;
    struct {
        enum data_type type;
        int64_t samples; /* synthetic */
        int64_t in, out; /* synthetic: widths; 20 and 1, as in the tutorial */
        char *dir;       /* idx: the directory of train-images-idx3-ubyte[.gz] and the other three files */
        char *path;      /* text: a text file; tokens: a .bin file of tokens */
        char *val_path;  /* text, tokens: the file of the validation split; NULL: `path` is split */
        double
            split; /* text, tokens: the fraction of the file, from its start, that is the training split; 0.9 */
        enum symbol_type symbols; /* text */
        bool pad;                 /* repeats samples at the end, as PyTorch's DistributedSampler does */
        bool shuffle;             /* true */
    } data;
    struct {
        enum optimizer_type type;
        double lr, momentum, betas[2], eps, weight_decay, clip; /* clip 0: none */
        double adamw_lr; /* muon: of the parameters that AdamW updates, with betas and eps */
        bool nesterov;
    } optimizer;
    struct {
        enum schedule_type type;
        int64_t warmup; /* steps */
        double min_lr;
    } schedule;
    int64_t batch;         /* samples per rank and step; 0 if global_batch is given */
    int64_t global_batch;  /* samples of all ranks per step; 0 if batch is given */
    int64_t accumulate;    /* micro-batches per step; 1 */
    int64_t epochs, steps; /* one of the two is 0 */
    int64_t seed;
    enum precision_type precision;
    enum recompute_type recompute; /* gpt: what the backward pass computes again, to save memory */
    enum shard_type shard;         /* what each rank keeps a part of only */
    enum balance_type balance;     /* how the samples of a step are divided among ranks: base/job/balance.h */
    enum reproducible_type reproducible;
    enum isa isa;    /* the largest that ranks on CPUs compute with */
    int64_t shards;  /* reproducible: world: parts of the global batch, a power of two, 4 */
    int64_t threads; /* threads of a rank; 0: its share of the cores. With reproducible: world 1 */
    bool pin;        /* each rank on CPUs stays on its own cores, on one NUMA node if possible; true */
    struct sync_spec sync;
    struct {
        char *dir; /* NULL: no snapshots */
        struct job_every every;
        int64_t keep;
        int64_t keep_best; /* additional snapshots, those with the best validation loss; 0 */
        /* shard: optimizer: each rank writes its part of the moments, or each writer writes all; auto: parts if one directory holds
         * all of them */
        enum moments_type moments;
    } snapshot;
    enum resume_type resume;
    struct {
        struct job_every every; /* default: each epoch */
        int64_t batches;        /* 0: all */
    } eval;
    int64_t log_every;   /* steps between reports, 10 */
    int64_t measure_ms;  /* measures the machines for this time, and trains nothing: trainer/measure.h; 0 */
    bool tutorial_lines; /* prints the progress lines of PyTorch's tutorials on stdout; false */
};

struct job_spec {
    char *name;
    enum job_kind kind;
    int64_t nodes_min, nodes_max; /* equal: fixed */
    enum job_procs procs;
    int64_t procs_per_node; /* JOB_PROCS_NUMBER */
    int64_t gpus_per_proc;  /* or JOB_GPUS_ALL */
    enum job_device device;
    bool hold;                      /* a queued job does not start */
    int64_t max_restarts, priority; /* max_restarts: default: command 0, train 3 */
    enum job_restart_on restart_on;
    int64_t max_replacements; /* docs/reference/jobfile.md; default 20. 0: failures end all ranks */
    int64_t time_limit_ms;    /* 0: none */
    int64_t lease_ms;         /* default: command 60 s, train 10 min */
    int64_t join_timeout_ms;  /* 60 s */
    int64_t grace_ms;         /* SIGTERM to SIGKILL, 30 s */
    int64_t stall_timeout_ms; /* restarts the job after this time without progress; 0: never */
    struct {
        double gpu;       /* a GPU of lower utilisation is idle; 0.05 */
        int64_t after_ms; /* act when all GPUs have been idle for this time; 0: never */
        enum job_idle then;
    } idle;
    enum lost_type
        on_lost_snapshots; /* train: what happens if committed snapshots cannot be found; default: wait */
    char **env;            /* "NAME=value" */
    char *workdir;         /* absolute in a submitted job */
    char **command;        /* JOB_COMMAND */
    char **preload;        /* command: Python modules that spare processes import in advance */
    char **only_nodes;     /* the nodes that the job may use; NULL: all */
    struct job_capture capture; /* command */
    char *role;                 /* ROLE_NAME; NULL: default */
    char *run_id;               /* TORCHELASTIC_RUN_ID; NULL: derived from the job's number */
    enum job_logs logs;         /* private: only the owner and operators can read them */
    enum job_store store;       /* command: who serves PyTorch's TCPStore on MASTER_PORT; default: program */
    char *tell;                 /* secret URL that gets messages about the job; NULL: none */
    int tell_as;                /* enum tell_shape */
    bool virtual_local_rank;    /* each worker sees LOCAL_RANK 0 and its own GPUs only */
    struct train_spec train;    /* JOB_TRAIN */
};

/* Parses the text and makes all checks that need no machine: types, ranges, unknown keys, contradictions (both
 * command and train, both epochs and steps, ...). *out is zeroed first; release it whatever the result. */
MUST_CHECK enum err_code job_parse(struct job_spec *out, const char *text, size_t len, const char *where,
                                   struct err *e);
MUST_CHECK enum err_code job_read(struct job_spec *out, const struct conf_doc *doc, struct err *e);
void job_release(struct job_spec *spec);

/* Makes the text of a job file for `submit -- COMMAND` and its flags: the fields that differ from the defaults.
 * The caller frees it. */
char *job_print(const struct job_spec *spec);
void job_defaults(struct job_spec *spec, enum job_kind kind);

#endif
