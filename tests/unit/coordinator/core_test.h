#ifndef DDP_TESTS_UNIT_COORDINATOR_CORE_TEST_H
#define DDP_TESTS_UNIT_COORDINATOR_CORE_TEST_H

#include "daemon/coordinator/core/core.h"

/* The core with a hand on its clock: nodes, workers and users say what the test has them say. Every change is
 * checked against the state tables by the core itself; what came out of the last call is kept in `out`. */
struct bench {
    struct core *core;
    struct core_config config;
    struct core_out out; /* of the calls since bench_clear */
    struct core_now now;
    uint64_t handles; /* calls and sessions */
    uint64_t seed;
    char *events;          /* texts of all events, one a line */
    struct records kept;   /* what a restart finds: applied from every change */
    size_t kept_from;      /* changes of out that are kept already */
    int procs, seat, turn; /* what the next hellos say */
    int gpu_slots;
    const char *nccl, *plugin;
    size_t removed_cap, job_cap, node_cap, generation_cap, rank_cap, spawn_cap, snapshot_cap;
};

int bench_setup(void **state);
int bench_teardown(void **state);
void bench_pass(struct bench *b, int64_t ms); /* time, with a tick at each deadline on the way */
void bench_pass_beating(struct bench *b, int64_t ms,
                        const char *nodes); /* "box1 box2": these send heartbeats */
/* A heartbeat that says for which users the node has no account: pairs of user and reason, NULL-terminated.
 */
void bench_accounts(struct bench *b, const char *node, const char *const *pairs);
void bench_restart(struct bench *b); /* the coordinator dies and comes back */

/* nodes */
uint64_t bench_hello(struct bench *b, const char *node, const char *instance, int cpu_slots, int gpus);
uint64_t bench_node(struct bench *b, const char *node, int cpu_slots); /* hello and empty facts: alive */
/* As bench_node, of a run's member: see core_hello. */
uint64_t bench_member(struct bench *b, const char *node, int procs, int seat, int turn);
void bench_goodbye(struct bench *b, uint64_t session);
void bench_facts(struct bench *b, const char *node, const struct core_fact *facts,
                 size_t count);                         /* up to date */
void bench_all_run(struct bench *b, const char *node);  /* every spawn of the wish that is not stopped runs */
void bench_all_obey(struct bench *b, const char *node); /* as above, and every stopped one has exited */
void bench_exit(struct bench *b, int64_t job, int rank, int code, int signal); /* of the current generation */
void bench_fact(struct bench *b, int64_t job, int rank, struct core_fact fact); /* about that rank's spawn */
void bench_operator(struct bench *b, enum core_event_kind kind, const char *node);
enum node_state bench_node_state(const struct bench *b, const char *node);

/* jobs. A file may leave out what it likes; "train" or "command" is added when neither is there. */
int64_t bench_submit(struct bench *b, const char *file);
void bench_cancel(struct bench *b, int64_t job, bool kill);
enum err_code bench_resize(struct bench *b, int64_t job, int64_t min,
                           int64_t max); /* what the user is told */
enum err_code bench_restart_job(struct bench *b, int64_t job);
enum err_code bench_from_scratch(struct bench *b, int64_t job); /* restart --from-scratch */
void bench_looked(struct bench *b, int64_t job, const char *node, bool found);
enum job_state bench_job(const struct bench *b, int64_t job);
const struct generation_record *bench_generation(const struct bench *b, int64_t job); /* the current one */
const char *bench_node_of(const struct bench *b, int64_t job, int rank);
const char *bench_waits(struct bench *b,
                        int64_t job); /* the status line's reason; lives until the next call */
int64_t bench_spawn(const struct bench *b, int64_t job, int rank);
enum core_stop bench_stop(const struct bench *b, int64_t job, int rank); /* what its node's wish says */
bool bench_said(const struct bench *b, const char *text);                /* an event holds it */

/* native workers */
uint64_t bench_join(struct bench *b, int64_t job, int rank);
uint64_t bench_join_with(struct bench *b, int64_t job, int rank, const struct core_offer *offers,
                         size_t count);
/* With what it could not offer: NULL-terminated, or NULL. */
uint64_t bench_join_telling(struct bench *b, int64_t job, int rank, const struct core_offer *offers,
                            size_t count, char *const *unusable);
enum err_code bench_snapshot_failed(struct bench *b, int64_t job, int rank, int64_t step, const char *why);
void bench_put(struct bench *b, int64_t job, const char *bytes);
void bench_form(struct bench *b, int64_t job); /* all run, join, bootstrap: running */
enum err_code bench_commit(struct bench *b, int64_t job, int64_t spawn, int64_t generation, int64_t step,
                           const char *digest);
void bench_report(struct bench *b, int64_t job, int rank, int64_t step, const char *metric, double value);
uint64_t bench_watch(struct bench *b, int64_t job, int64_t spawn);

/* what came out */
const struct core_effect *bench_reply(const struct bench *b, uint64_t call); /* the newest for it, or NULL */
size_t bench_effects(const struct bench *b, enum core_effect_kind kind);
void bench_clear(struct bench *b);

#define TRAIN                                                                                                \
    "train:\n  model: {type: linear, in: 20, out: 1}\n  data: {type: synthetic, samples: 64}\n  batch: 4\n"  \
    "  steps: 5000\n"
/* The same bits at every world size: a world of 1, 2 or 4. */
#define WORLD                                                                                                \
    "train:\n  model: {type: linear, in: 20, out: 1}\n  data: {type: synthetic, samples: 64}\n"              \
    "  global_batch: 8\n  steps: 5000\n  reproducible: world\n  shards: 4\n"                                 \
    "  snapshot: {dir: /out, every: 10}\n"
#define COMMAND "command: [\"true\"]\n"

#endif
