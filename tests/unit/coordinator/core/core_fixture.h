#ifndef DDP_TESTS_UNIT_COORDINATOR_CORE_CORE_FIXTURE_H
#define DDP_TESTS_UNIT_COORDINATOR_CORE_CORE_FIXTURE_H

#include "daemon/coordinator/core/core.h"

/* Runs the coordinator's core on a clock that the test sets. Nodes, workers and users do what the test says.
 * The core itself checks every change against its state tables. */
struct core_fixture {
    struct core *core;
    struct core_config config;
    struct core_out out; /* the changes and effects of all calls since fixture_clear */
    struct core_now now;
    uint64_t handles; /* the last number that was given to a call or a session */
    uint64_t seed;
    char *events;          /* the texts of all events, one a line */
    struct records kept;   /* what a restarted coordinator finds: all changes applied */
    size_t kept_from;      /* the number of changes in `out` that `kept` has already */
    int procs, seat, turn; /* sent with the next hellos: see core_hello */
    int gpu_slots;
    const char *nccl, *plugin;
    bool keeps_cards;  /* said in the next hellos */
    bool stays;        /* said in the next Joins and Watches: the worker can go on in the next generation */
    int64_t ready;     /* said in the next Watches: the hand-over for which the worker waits */
    bool broken;       /* said in the next Watches */
    int64_t arrived;   /* the same: the exchange that it has come to */
    int64_t gathered;  /* the same: bytes of state that it has gathered for a hand-over */
    bool holds;        /* and it stands still there */
    int64_t live_step; /* said in the next Joins: the worker has the state after this step in memory */
    const char *version, *computes; /* the same: of its program and its device */
    size_t removed_cap, job_cap, node_cap, generation_cap, rank_cap, spawn_cap, snapshot_cap;
};

int fixture_setup(void **state);
int fixture_teardown(void **state);
/* Lets time pass, and calls the core at each of its deadlines. */
void fixture_pass(struct core_fixture *f, int64_t ms);
/* The same, while these nodes send heartbeats: "box1 box2". */
void fixture_pass_beating(struct core_fixture *f, int64_t ms, const char *nodes);
/* A heartbeat that says which users have no account on the node: pairs of user and reason, then NULL. */
void fixture_accounts(struct core_fixture *f, const char *node, const char *const *pairs);
void fixture_restart(struct core_fixture *f); /* kills the coordinator and starts it again */

/* nodes */
uint64_t fixture_hello(struct core_fixture *f, const char *node, const char *instance, int cpu_slots,
                       int gpus);
/* Makes a node alive: its hello, and facts without a spawn. */
uint64_t fixture_node(struct core_fixture *f, const char *node, int cpu_slots);
/* As fixture_node, for a node that joins a run: see core_hello. */
uint64_t fixture_member(struct core_fixture *f, const char *node, int procs, int seat, int turn);
void fixture_goodbye(struct core_fixture *f, uint64_t session);
/* The node sends these facts, and has seen the newest wish. */
void fixture_facts(struct core_fixture *f, const char *node, const struct spawn_fact *facts, size_t count);
/* The node reports that each spawn of its wish runs. */
void fixture_all_run(struct core_fixture *f, const char *node);
/* The node reports that each spawn of its wish runs, except those that the wish stops: they have exited. */
void fixture_all_obey(struct core_fixture *f, const char *node);
void fixture_both_obey(struct core_fixture *f); /* the same on box1 and box2 */
/* The node reports that the rank's spawn of the current generation has ended. */
void fixture_exit(struct core_fixture *f, int64_t job, int rank, int code, int signal);
/* The node reports this fact about the rank's spawn. */
void fixture_fact(struct core_fixture *f, int64_t job, int rank, struct spawn_fact fact);
void fixture_operator(struct core_fixture *f, enum core_event_kind kind, const char *node);
enum node_state fixture_node_state(const struct core_fixture *f, const char *node);

/* jobs; fixture_submit adds a command to a file that has neither "train" nor "command" */
int64_t fixture_submit(struct core_fixture *f, const char *file);
/* A job whose first generation runs, on the nodes box1 and box2 with four slots each; both are new. */
int64_t fixture_running_job(struct core_fixture *f, const char *file);
void fixture_cancel(struct core_fixture *f, int64_t job, bool kill);
/* These return the code that the user gets. */
enum err_code fixture_resize(struct core_fixture *f, int64_t job, int64_t min, int64_t max);
enum err_code fixture_tune(struct core_fixture *f, int64_t job, const char *assignment); /* by ana */
enum err_code fixture_order(struct core_fixture *f, enum core_event_kind kind, int64_t job, int64_t priority,
                            bool flag); /* by ana; flag: relative, or hold */
enum err_code fixture_checked_priority(struct core_fixture *f, int64_t job, int64_t priority, int64_t seen);
enum err_code fixture_restart_job(struct core_fixture *f, int64_t job);
enum err_code fixture_from_scratch(struct core_fixture *f, int64_t job); /* restart --from-scratch */
void fixture_looked(struct core_fixture *f, int64_t job, const char *node, bool found);
enum job_state fixture_job(const struct core_fixture *f, int64_t job);
/* The job's current generation. */
const struct generation_record *fixture_generation(const struct core_fixture *f, int64_t job);
const char *fixture_node_of(const struct core_fixture *f, int64_t job, int rank);
/* The reason in the job's status. It is valid until the next call. */
const char *fixture_waits(struct core_fixture *f, int64_t job);
int64_t fixture_spawn(const struct core_fixture *f, int64_t job, int rank);
/* How the wish of the rank's node stops its spawn. */
enum core_stop fixture_stop(const struct core_fixture *f, int64_t job, int rank);
/* Whether the text of an event contains `text`. */
bool fixture_said(const struct core_fixture *f, const char *text);

/* native workers */
uint64_t fixture_join(struct core_fixture *f, int64_t job, int rank);
uint64_t fixture_join_with(struct core_fixture *f, int64_t job, int rank, const struct core_offer *offers,
                           size_t count);
/* `unusable` are the snapshots that the worker could not load: NULL-terminated, or NULL. */
uint64_t fixture_join_telling(struct core_fixture *f, int64_t job, int rank, const struct core_offer *offers,
                              size_t count, char *const *unusable);
enum err_code fixture_snapshot_failed(struct core_fixture *f, int64_t job, int rank, int64_t step,
                                      const char *why);
/* As above, but the rank waits for space for another waits_ms. */
enum err_code fixture_snapshot_waits(struct core_fixture *f, int64_t job, int rank, int64_t step,
                                     const char *why, int64_t waits_ms);
/* The connection of this call, which the rank made, is lost. */
void fixture_gone(struct core_fixture *f, int64_t job, int rank, uint64_t call);
void fixture_put(struct core_fixture *f, int64_t job, const char *bytes);
void fixture_form(struct core_fixture *f, int64_t job); /* all spawns run and join, so that the job runs */
enum err_code fixture_commit(struct core_fixture *f, int64_t job, int64_t spawn, int64_t generation,
                             int64_t step, const char *digest);
/* A commit in the current generation by a rank that wrote a part. `digest` is "" if it wrote nothing else. */
enum err_code fixture_commit_part(struct core_fixture *f, int64_t job, int rank, int64_t step, int parts,
                                  const char *digest, bool *pending);
void fixture_report_line(struct core_fixture *f, int64_t job, int rank, const struct metric_line *line);
/* A line that the node has read from the worker's output; note: or a problem. */
void fixture_report_captured(struct core_fixture *f, int64_t job, int rank, const struct metric_line *line,
                             const char *captured, const char *note);
void fixture_report(struct core_fixture *f, int64_t job, int rank, int64_t step, const char *metric,
                    double value);
uint64_t fixture_watch(struct core_fixture *f, int64_t job, int64_t spawn);
/* The spawn says that it could not write its part of this step. */
uint64_t fixture_watch_failed(struct core_fixture *f, int64_t job, int64_t spawn, int64_t step);
/* The spawn says that it belongs to this generation. The answer can be recorded. */
uint64_t fixture_watch_in(struct core_fixture *f, int64_t job, int64_t spawn, int64_t generation);
/* Says that its ranks use this revision of the job file since this step. */
uint64_t fixture_watch_telling(struct core_fixture *f, int64_t job, int64_t spawn, int64_t revision,
                               int64_t step);

/* effects */
/* The newest reply to the call, or NULL. */
const struct core_effect *fixture_reply(const struct core_fixture *f, uint64_t call);
size_t fixture_effects(const struct core_fixture *f, enum core_effect_kind kind);
void fixture_clear(struct core_fixture *f);

#define TRAIN                                                                                                \
    "train:\n  model: {type: linear, in: 20, out: 1}\n  data: {type: synthetic, samples: 64}\n  batch: 4\n"  \
    "  steps: 5000\n"
/* A job that computes the same bits at world sizes 1, 2 and 4. */
#define WORLD                                                                                                \
    "train:\n  model: {type: linear, in: 20, out: 1}\n  data: {type: synthetic, samples: 64}\n"              \
    "  global_batch: 8\n  steps: 5000\n  reproducible: world\n  shards: 4\n"                                 \
    "  snapshot: {dir: /out, every: 10}\n"
#define COMMAND "command: [\"true\"]\n"

#endif
