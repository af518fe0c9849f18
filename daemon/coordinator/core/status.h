#ifndef DDP_DAEMON_COORDINATOR_CORE_STATUS_H
#define DDP_DAEMON_COORDINATOR_CORE_STATUS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/job/job.h"
#include "base/worker/metric.h"
#include "base/worker/usage.h"
#include "daemon/coordinator/core/event.h"
#include "daemon/coordinator/core/placement/presence.h"
#include "store/record.h"

/* Views of jobs, nodes and totals for people. Texts are borrowed until the next event. */

struct core;
struct core_now;

/* What ddpctl shows of a job. Texts are borrowed; release frees the arrays. */
#define CORE_METRICS METRIC_LINE_COUNT
#define CORE_LOSS_HISTORY 32
struct core_progress {
    int64_t step, steps, updated_ms; /* steps 0: unknown */
    double epoch;
    double steps_per_s;         /* smoothed over some seconds; 0: not known yet */
    int64_t pace_step, pace_ms; /* where it was measured last (boot) */
    struct metric metrics[CORE_METRICS];
    size_t metric_count;
    double loss_history[CORE_LOSS_HISTORY]; /* oldest first */
    size_t loss_count;
    bool has_best_val;
    double best_val;
    int64_t best_val_step;
    char captured[40]; /* what the metrics were read from, "its output"; empty: the program reports them */
};
struct core_rank_status {
    const struct rank_record *rank;
    const struct spawn_record *spawn;
    char device[48], detail[64]; /* "cpu3", "gpu0 H200"; "killed by signal 9" */
    int64_t step, memory_bytes;
    int64_t samples; /* balance: speed: samples of a step that the rank takes; 0: equal numbers */
    double ms_per_step, wait_ms, sample_ms;
    const struct usage *usage; /* NULL: not known */
    int64_t gpu_idle_ms;       /* of its least busy GPU; 0: it is not idle */
};
struct core_job_status {
    const struct job_record *job;
    const struct job_spec *spec;
    const struct generation_record *generation; /* the newest; NULL before the first */
    char reason[512];                           /* why the job is in its state, or what it waits for now */
    const char *log_dir;                        /* of the first node; may be NULL */
    int64_t log_generation; /* whose directory there has the logs of rank 0: the first one of its spawn */
    char **nodes;           /* of that generation, by node rank; borrowed texts; NULL-terminated */
    struct core_rank_status *ranks;
    size_t rank_count;
    int joined;
    struct presence presence;
    const struct core_progress *progress;
    const struct spawn_record *failure;     /* first failing member of the last failed generation, or NULL */
    const struct rank_record *failure_rank; /* which it had in that generation; NULL as failure */
    const struct snapshot_record *snapshot; /* newest committed, or NULL */
    char stall[640];                        /* the rank that stands still; empty: none */
    /* Why its last failure led to no restart, although restarts were left; owned; NULL: it did. */
    char *not_restarted;
    /* Problems that do not stop the job, and a change that is pending; NULL-terminated; owned; NULL: none. */
    char **notes;
    const char
        *unsaved; /* that note which says that a rank cannot write snapshots; borrowed; NULL: none does */
    bool waits_for_space; /* that rank waits for space for the last snapshot */
};
MUST_CHECK enum err_code core_job_status(const struct core *core, int64_t job, bool with_ranks,
                                         struct core_job_status *out, struct err *e);
void core_job_status_release(struct core_job_status *status);
/* A generation's members by rank, for `ddpctl why`; the caller frees the array. */
struct core_member {
    const struct rank_record *rank;
    const struct spawn_record *spawn;
    int64_t step, report_age_ms; /* age -1: no report came since the coordinator started */
    double ms_per_step, wait_ms;
};
struct core_member *core_members(const struct core *core, int64_t job, int64_t generation,
                                 struct core_now now, size_t *count); /* NULL: there is no such generation */
/* One file of each of the job's newest committed snapshots that count, at most CORE_OFFERS_MOST: the snapshot is there if its
 * file is. A node offers no older ones to a new generation. The caller frees (strv_free); NULL: there are none. */
char **core_snapshot_paths(const struct core *core, int64_t job);
/* The job's newest committed snapshots that count, the newest first. Fills at most `most`; returns how many. */
size_t core_committed_snapshots(const struct core *core, int64_t job, const struct snapshot_record **out,
                                size_t most);
/* Job numbers above `after`, growing; the caller frees. */
int64_t *core_job_ids(const struct core *core, int64_t after, size_t *count);

struct core_node_status {
    const struct node_record *node;
    const char *state; /* the state's name, or "drained": draining and empty */
    const struct core_gpu *gpus;
    size_t gpu_count;
    int slots_free, gpus_free;
    const char *nccl, *plugin;
    int gpu_slots;
    int64_t *jobs; /* that have live workers there */
    size_t job_count;
    const int64_t *unknown_jobs; /* jobs that the node runs and the coordinator does not know: the first 64 */
    size_t unknown_count;
    double load;
    int64_t memory_free, silent_ms; /* since its last message */
};
MUST_CHECK enum err_code core_node_status(const struct core *core, const char *name, struct core_now now,
                                          struct core_node_status *out, struct err *e);
void core_node_status_release(struct core_node_status *status);
const char **core_node_names(const struct core *core,
                             size_t *count); /* sorted, borrowed texts; the caller frees */

struct core_totals {
    int nodes, slots, slots_busy, gpus, gpus_busy, gpus_free, gpus_sick;
    int64_t jobs[JOB_CANCELLED + 1], restarts, generations;
};
void core_totals(const struct core *core, struct core_totals *out);

#endif
