#ifndef DDP_TESTS_UNIT_COORDINATOR_CORE_CORE_FIXTURE_H
#define DDP_TESTS_UNIT_COORDINATOR_CORE_CORE_FIXTURE_H

#include "daemon/coordinator/core/core.h"

/* The core on a clock of the test's: nodes, workers and users do what the test tells them. The core itself
 * checks every change against the state tables. `out` keeps what came out of the calls since fixture_clear.
 */
struct core_fixture {
    struct core *core;
    struct core_config config;
    struct core_out out; /* since fixture_clear */
    struct core_now now;
    uint64_t handles; /* calls and sessions */
    uint64_t seed;
    char *events;          /* texts of all events, one a line */
    struct records kept;   /* what a restart finds: applied from every change */
    size_t kept_from;      /* changes of out that are kept already */
    int procs, seat, turn; /* for the next hellos */
    int gpu_slots;
    const char *nccl, *plugin;
    size_t removed_cap, job_cap, node_cap, generation_cap, rank_cap, spawn_cap, snapshot_cap;
};

int fixture_setup(void **state);
int fixture_teardown(void **state);
void fixture_pass(struct core_fixture *f, int64_t ms); /* time, with a tick at each deadline on the way */
void fixture_pass_beating(struct core_fixture *f, int64_t ms,
                          const char *nodes); /* "box1 box2": these send heartbeats */
/* A heartbeat that says for which users the node has no account: pairs of user and reason, NULL-terminated.
 */
void fixture_accounts(struct core_fixture *f, const char *node, const char *const *pairs);
void fixture_restart(struct core_fixture *f); /* the coordinator dies and comes back */

/* nodes */
uint64_t fixture_hello(struct core_fixture *f, const char *node, const char *instance, int cpu_slots,
                       int gpus);
uint64_t fixture_node(struct core_fixture *f, const char *node,
                      int cpu_slots); /* hello and empty facts: alive */
/* As fixture_node, of a run's member: see core_hello. */
uint64_t fixture_member(struct core_fixture *f, const char *node, int procs, int seat, int turn);
void fixture_goodbye(struct core_fixture *f, uint64_t session);
void fixture_facts(struct core_fixture *f, const char *node, const struct spawn_fact *facts,
                   size_t count); /* up to date */
void fixture_all_run(struct core_fixture *f,
                     const char *node); /* every spawn of the wish that is not stopped runs */
void fixture_all_obey(struct core_fixture *f,
                      const char *node); /* as above, and every stopped one has exited */
void fixture_exit(struct core_fixture *f, int64_t job, int rank, int code,
                  int signal); /* of the current generation */
void fixture_fact(struct core_fixture *f, int64_t job, int rank,
                  struct spawn_fact fact); /* about that rank's spawn */
void fixture_operator(struct core_fixture *f, enum core_event_kind kind, const char *node);
enum node_state fixture_node_state(const struct core_fixture *f, const char *node);

/* jobs; a file without "train" and "command" gets a command */
int64_t fixture_submit(struct core_fixture *f, const char *file);
void fixture_cancel(struct core_fixture *f, int64_t job, bool kill);
enum err_code fixture_resize(struct core_fixture *f, int64_t job, int64_t min,
                             int64_t max); /* what the user is told */
enum err_code fixture_restart_job(struct core_fixture *f, int64_t job);
enum err_code fixture_from_scratch(struct core_fixture *f, int64_t job); /* restart --from-scratch */
void fixture_looked(struct core_fixture *f, int64_t job, const char *node, bool found);
enum job_state fixture_job(const struct core_fixture *f, int64_t job);
const struct generation_record *fixture_generation(const struct core_fixture *f,
                                                   int64_t job); /* the current one */
const char *fixture_node_of(const struct core_fixture *f, int64_t job, int rank);
const char *fixture_waits(struct core_fixture *f,
                          int64_t job); /* the status line's reason; lives until the next call */
int64_t fixture_spawn(const struct core_fixture *f, int64_t job, int rank);
enum core_stop fixture_stop(const struct core_fixture *f, int64_t job,
                            int rank);                             /* what its node's wish says */
bool fixture_said(const struct core_fixture *f, const char *text); /* an event holds it */

/* native workers */
uint64_t fixture_join(struct core_fixture *f, int64_t job, int rank);
uint64_t fixture_join_with(struct core_fixture *f, int64_t job, int rank, const struct core_offer *offers,
                           size_t count);
/* With what it could not offer: NULL-terminated, or NULL. */
uint64_t fixture_join_telling(struct core_fixture *f, int64_t job, int rank, const struct core_offer *offers,
                              size_t count, char *const *unusable);
enum err_code fixture_snapshot_failed(struct core_fixture *f, int64_t job, int rank, int64_t step,
                                      const char *why);
void fixture_put(struct core_fixture *f, int64_t job, const char *bytes);
void fixture_form(struct core_fixture *f, int64_t job); /* all run, join, bootstrap: running */
enum err_code fixture_commit(struct core_fixture *f, int64_t job, int64_t spawn, int64_t generation,
                             int64_t step, const char *digest);
/* Of the current generation, by a rank that writes a part; digest "": it writes its part alone. */
enum err_code fixture_commit_part(struct core_fixture *f, int64_t job, int rank, int64_t step, int parts,
                                  const char *digest, bool *pending);
void fixture_report(struct core_fixture *f, int64_t job, int rank, int64_t step, const char *metric,
                    double value);
uint64_t fixture_watch(struct core_fixture *f, int64_t job, int64_t spawn);

/* what came out */
const struct core_effect *fixture_reply(const struct core_fixture *f,
                                        uint64_t call); /* the newest for it, or NULL */
size_t fixture_effects(const struct core_fixture *f, enum core_effect_kind kind);
void fixture_clear(struct core_fixture *f);

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
