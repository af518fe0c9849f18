#ifndef DDP_BASE_WORKER_SPAWN_FACT_H
#define DDP_BASE_WORKER_SPAWN_FACT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/json.h"

/* The facts about one worker process (a spawn) during its life. The coordinator alone knows which generation
 * and rank a spawn has. The supervisor creates the fact and stores it on disk; the agent forwards it; the core
 * decides by it. All use this struct. JSON is its form on disk and on the supervisor's socket;
 * proto/rpc_spawn_fact.h has the form in messages to the coordinator.
 *
 * Texts are const, so that a fact can be made of literals and borrowed texts. A fact that owns its texts
 * (from spawn_fact_copy or spawn_fact_decode, or set by spawn_fact_set_text) is released by
 * spawn_fact_release. */

enum spawn_state { SPAWN_STARTING, SPAWN_RUNNING, SPAWN_STOPPING, SPAWN_EXITED };

/* What a command's process asks its supervisor for over DDP_CONTROL_FD (daemon/supervisor/worker_link.h). Each is
 * the last of its kind, and holds until the process ends, so that asking again does no harm. */
struct spawn_asks {
    int64_t commit;      /* number of its last commit, from 1 on; 0: none */
    int64_t step, bytes; /* of that commit */
    const char *path;    /* of that commit; NULL: none */
    bool heeds;          /* it calls should_stop, so a stop needs no signal */
    int64_t promise;     /* it goes on past no step from this one on before it is allowed to; 0: no promise */
};

struct spawn_fact {
    int64_t job, spawn;
    int64_t first_generation; /* with first_local_rank: where its logs are (log_place.h). On the node only */
    int first_local_rank;
    enum spawn_state state;
    int64_t pid;                  /* 0: it was never started */
    int64_t started_ms, ended_ms; /* the node's wall clock */
    int code, signal;             /* exit code and signal; at most one is not 0 */
    bool out_of_memory;           /* the kernel killed it because memory was exhausted */
    bool lost;                    /* it ended with unknown code, because its supervisor had died */
    bool not_started;             /* its command never ran; message gives the reason */
    bool port_busy;               /* its MASTER_PORT was in use */
    bool lease_expired;           /* its supervisor stopped it because the node's lease ran out */
    bool node_trouble; /* not started because its node lacks something: another node may start it */
    bool no_account;   /* with node_trouble: the job's user has no account on the node */
    bool stopped;      /* it was told to stop before it ended */
    bool interrupted;  /* with stopped: by a signal to its supervisor, not by the coordinator */
    struct spawn_asks asks;
    const char *message;     /* one line, or NULL */
    const char *stderr_tail; /* its last lines with '\n' between them, or NULL */
    const char *id, *owner;  /* DDP_SPAWN_ID and DDP_AGENT_ID, which mark its processes. On the node only */
    const char *cgroup;      /* its cgroup's path, or NULL. On the node only */
};

const char *spawn_state_name(enum spawn_state state); /* "starting", "running", "stopping", "exited" */
bool spawn_state_parse(const char *name, enum spawn_state *out); /* false: no state has this name, or NULL */

/* Writes the members of a JSON object that the caller has opened. */
void spawn_fact_encode(struct jout *o, const struct spawn_fact *f);
/* INVALID_ARGUMENT: no spawn number, or an unknown state. Release *f whatever the result; it must be zeroed.
 */
MUST_CHECK enum err_code spawn_fact_decode(struct spawn_fact *f, const json_t *obj, struct err *e);

void spawn_fact_set_text(const char **text, char *value); /* frees the old text, takes the new one */
void spawn_fact_copy(struct spawn_fact *to, const struct spawn_fact *from); /* releases what was in `to` */
void spawn_fact_release(struct spawn_fact *f);

#endif
