#ifndef DDP_DAEMON_SUPERVISOR_PROTOCOL_CONTROL_H
#define DDP_DAEMON_SUPERVISOR_PROTOCOL_CONTROL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"

/* What an agent and its supervisors say to each other: one JSON object a datagram, on a unix SEQPACKET socket
 * (socket.h). Everything is a level, so a lost or repeated message does no harm:
 *
 *   agent → supervisor   start   one spawn, whole; again for a known spawn: ignored
 *                        stop    a mode never weaker than the last one
 *                        forget  the exit record of an ended spawn is no longer wanted
 *                        lease   a heartbeat sent at lease_sent (CLOCK_BOOTTIME ms) was acknowledged
 *   supervisor → agent   hello   first, once a connection; then a fact for every spawn, then synced
 *                        fact    a spawn as it is now, after each change
 *                        report  one parsed line of a worker's report pipe
 *                        synced  all that there is was said: absence counts from here
 *
 * Texts and lists are owned by their struct. Not for several threads. */

enum control_op {
    CONTROL_HELLO,
    CONTROL_START,
    CONTROL_STOP,
    CONTROL_FORGET,
    CONTROL_LEASE,
    CONTROL_FACT,
    CONTROL_REPORT,
    CONTROL_SYNCED,
};

enum spawn_state { SPAWN_STARTING, SPAWN_RUNNING, SPAWN_STOPPING, SPAWN_EXITED };
const char *spawn_state_name(enum spawn_state state); /* as SpawnFact.state */

enum stop_mode { STOP_NONE, STOP_SNAPSHOT, STOP_TERM, STOP_KILL }; /* numbers as on the wire */

/* All that a supervisor needs to start one worker. */
struct spawn_order {
    int64_t spawn, generation;
    int rank, local_rank;
    char *id;    /* DDP_SPAWN_ID */
    char *owner; /* the agent's instance, DDP_AGENT_ID: with id, unique on the machine */
    char **argv; /* argv[0] is looked up in the PATH of env */
    char **env;  /* whole, without DDP_REPORT_FD and DDP_TOKEN_FD */
    char *workdir;
    char *log_dir; /* of this local rank: stdout.log, stderr.log, error.json */
    char *token;   /* hex; NULL: no DDP_TOKEN_FD */
    char *user;    /* NULL: as the supervisor */
    char **gpu_uuids;
    int gpu_slots;   /* how many workers may share one of them */
    int master_port; /* to lease on this host; 0: another node's */
    bool native;     /* hears of STOP_SNAPSHOT from the coordinator by itself */
    int64_t lease_sent, lease_ms;
    int64_t grace_ms;
};

/* A spawn as it is; the same on the socket and in its record file. */
struct spawn_fact {
    int64_t spawn, generation, pid, started_ms, ended_ms;
    int rank, local_rank;
    enum spawn_state state;
    int code, signal;
    bool out_of_memory, lost, not_started, port_busy, lease_expired;
    bool node_trouble;         /* not started for want of something here: another node may do */
    bool no_account;           /* and why: the job's user cannot run here */
    bool stopped;              /* it was told to stop before it began to end */
    char *message;             /* one line, or NULL */
    char *stderr_tail;         /* lines with \n between, or NULL */
    char *id, *owner, *cgroup; /* what a sweep needs */
};

#define REPORT_METRICS 48
#define REPORT_NAME 48
struct spawn_report {
    int64_t spawn, generation, time_ms, step;
    int rank;
    bool has_step;
    size_t count;
    struct {
        char name[REPORT_NAME];
        double value; /* null on the wire is NaN */
    } metrics[REPORT_METRICS];
};

struct control_message {
    enum control_op op;
    int64_t job, spawn; /* hello; stop, forget */
    char *node;         /* hello */
    enum stop_mode mode;
    int64_t grace_ms;
    int signal; /* stop: instead of SIGTERM, 0: that */
    int64_t lease_sent, lease_ms;
    struct spawn_order order;
    struct spawn_fact fact;
    struct spawn_report report;
};

void control_encode(const struct control_message *m, struct buf *out); /* appended */
/* INVALID_ARGUMENT when it is not one of ours; *out is zeroed first, release it whatever the result. */
MUST_CHECK enum err_code control_decode(struct control_message *out, const char *text, size_t len,
                                        struct err *e);
void control_message_release(struct control_message *m); /* for CLEANUP too */

void spawn_order_release(struct spawn_order *o);
void spawn_fact_copy(struct spawn_fact *to, const struct spawn_fact *from); /* releases what was in to */
void spawn_fact_release(struct spawn_fact *f);

#define CONTROL_MESSAGE_MAX (1 << 20)

#endif
