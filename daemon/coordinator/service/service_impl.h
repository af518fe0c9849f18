#ifndef DDP_DAEMON_COORDINATOR_SERVICE_SERVICE_IMPL_H
#define DDP_DAEMON_COORDINATOR_SERVICE_SERVICE_IMPL_H

#include <uv.h>

#include "daemon/coordinator/core/core.h"
#include "daemon/coordinator/service/handles.h"
#include "daemon/coordinator/service/service.h"
#include "daemon/coordinator/service/stats.h"
#include "proto/ddp.pb-c.h"
#include "proto/rpc_server.h"
#include "store/store.h"

/* What the service's files share. Everything here belongs to the loop's thread. */

struct recorder;
struct log_stream;
struct ask;
struct http;
struct backups;
struct held_hello;

/* A call that waits for the core's answer, or a stream that follows something. */
enum call_kind {
    CALL_SUBMIT,
    CALL_CANCEL,
    CALL_CHANGE, /* resize, restart */
    CALL_NODE,
    CALL_JOIN,
    CALL_PUT_BOOTSTRAP,
    CALL_COMMIT_SNAPSHOT,
    CALL_SNAPSHOT_FAILURE,
    CALL_WATCH,     /* a worker's */
    CALL_WATCH_JOB, /* a user's: known to the service alone */
};
struct call {
    struct service *service;
    struct rpc_call *rpc;
    uint64_t handle;
    enum call_kind kind;
    int64_t job;
    char *node;               /* CALL_NODE */
    bool dirty;               /* CALL_WATCH_JOB: the job changed since the last message */
    struct call *next, *prev; /* CALL_WATCH_JOB: service.watches */
};

struct session {
    struct service *service;
    struct rpc_call *rpc;
    uint64_t handle;
    char *node;     /* NULL before hello */
    bool welcomed;  /* the core took it */
    bool waiting;   /* there is no durable epoch yet: only the node's leases are renewed */
    bool wish_due;  /* the newest wish is not on its way yet */
    uint8_t *facts; /* packed, held back while commits fail: the newest are the whole truth */
    size_t facts_size;
    struct held_hello *held; /* cards.c: set while the session waits for cards */
    struct session *next, *prev;
};

/* The refused calls of one caller within a minute; audit.c. */
struct refusal {
    char who[80], origin[96], text[384];
    uint64_t count, written;
};

/* Times by which hearing.c measures how long the loop was too late to receive messages. */
struct hearing {
    int64_t asked_ms;  /* boot: everything before this time was reported to the core */
    int64_t due_ms;    /* boot: the loop's next turn should have ended by then */
    int64_t turned_ms; /* boot: its last turn's end ... */
    uint64_t idle_ns;  /* ... and how long it had waited for work until then */
    int64_t late_ms;   /* that it was late since asked_ms */
};

struct service {
    const struct service_options *options;
    uv_loop_t loop;
    uv_prepare_t prepare;
    uv_check_t check;
    uv_timer_t tick, retry, trim;
    uv_signal_t term, interrupt;
    uv_pipe_t lifeline;
    struct store *store;
    struct core *core;
    struct rpc_server *server;
    struct rpc_service services[3]; /* borrowed by the server */
    struct recorder *recorder;
    struct backups *backups; /* NULL: the cluster does not outlive this process */
    struct http *http;
    struct core_out out;   /* decided, not yet durable */
    struct core_out spare; /* its arrays are used again */
    uint64_t last_handle;
    struct handles calls;    /* struct call, those that the core owes an answer */
    struct handles sessions; /* struct session */
    struct handles reads;    /* struct log_read */
    struct handles asks;     /* struct ask_part */
    struct call *watches;
    struct session *session_list;
    struct log_stream *logs;
    struct run *run; /* that has come together here; NULL: none, as in every cluster */
    bool wishes_due, watches_due, logs_due, run_due; /* something of the kind waits to be sent */
    bool stuck;        /* the last commit failed: out waits until the disk takes it */
    struct err broken; /* the database is damaged: no effects are released any more, and the program ends */
    int64_t *refused;  /* jobs whose submit was refused while they waited in out */
    struct ask *ask_list;
    uv_timer_t ask_timer;
    size_t refused_count, refused_cap;
    int64_t flushed_ms; /* boot time of the last metrics snapshot */
    bool stopping;
    struct hearing hearing;
    uv_timer_t memory_timer;
    int64_t trimmed_bytes; /* resident after memory was given back */
    struct stats stats;
    struct user_record *users; /* by name */
    size_t user_count;
    struct refusal refusals[16];
    size_t refusal_count;
    uv_timer_t refusal_timer; /* ends the minute */
};

struct core_now service_now(void);
uint64_t service_handle(struct service *s); /* a new one */

/* Hands an event to the core; its outcome is committed at the end of this turn of the loop. */
void service_event(struct service *s, const struct core_event *event);
/* Adds a change of the service itself, committed with the core's changes at the end of this turn. The caller
 * fills in its record. */
struct change *service_change(struct service *s, enum change_kind kind);
/* Commits what is pending and carries it out: before a read, so that nobody sees what is not durable. */
void service_flush(struct service *s);
/* The database is damaged (DATA_LOSS): no more effects are released, and the program ends with this error. */
void service_end_broken(struct service *s, const struct err *e);
/* ERR_OK, or why nothing that changes state is taken now. */
MUST_CHECK enum err_code service_accepts(const struct service *s, struct err *e);

/* Writes an event of the cluster itself with the next commit. */
void service_say(struct service *s, const char *what, const char *text);
void service_stop(struct service *s, const char *why); /* answers the calls in progress, then ends */
/* Loads the core from the store and replaces the present core. */
MUST_CHECK enum err_code service_rebuild(struct service *s, struct err *e);
/* notes.c: the NOTE lines of `ddpctl status`; strv_free */
char **service_notes(struct service *s);
/* memory.c */
void memory_watch(struct service *s);

/* hearing.c */
void hearing_open(struct service *s);
void hearing_turn(struct service *s); /* at each turn's end */
void hearing_tell(struct service *s); /* before the core judges silences */
void hearing_due(struct service *s, int64_t wait_ms);

/* calls.c */
struct call *call_open(struct service *s, struct rpc_call *rpc, enum call_kind kind, bool owed);
void call_end(struct rpc_call *rpc, bool cancelled); /* every method's on_end */
struct call *call_take(struct service *s, uint64_t handle);
void calls_push(struct service *s);                     /* sends the watches that are dirty */
void calls_job_changed(struct service *s, int64_t job); /* marks them */

/* effects.c */
void effects_run(struct service *s, const struct core_out *out);
/* Without the core, while there is no durable epoch: */
void effects_let_wait(struct service *s, struct session *session);
void effects_ack(struct session *session, int64_t sequence);

/* The services' tables. */
extern const struct rpc_method cluster_methods[];    /* cluster_rpc.c */
extern const struct rpc_method agent_methods[];      /* agent_rpc.c */
extern const struct rpc_method rendezvous_methods[]; /* rendezvous_rpc.c */

/* agent_rpc.c */
struct session *session_find(struct service *s, const char *node); /* welcomed ones only */
void sessions_push(struct service *s);                             /* sends the wishes that are due */
void sessions_redial(struct service *s);                           /* ends those that wait for an epoch */
void session_hello(struct session *x, const Ddp__V1__Hello *m, const struct records *cards, size_t count);
void sessions_release_held(struct service *s); /* facts that waited while commits failed */
MUST_CHECK enum err_code session_send(struct session *session, const Ddp__V1__AgentDown *message,
                                      struct err *e);

/* logs.c */
void logs_read(struct rpc_call *rpc, const void *request, void *user); /* ReadLogs: on_start */
void logs_sendable(struct rpc_call *rpc);
void logs_end(struct rpc_call *rpc, bool cancelled);
void logs_chunk(struct session *session, const Ddp__V1__LogChunk *chunk);
void logs_job_changed(struct service *s, int64_t job);
void logs_node_changed(struct service *s, const char *node); /* its session came, went, or the node is lost */
void logs_push(struct service *s);                           /* opens what the above left to do */

/* members.c: JoinRun */
void members_join(struct rpc_call *rpc, const void *request, void *user); /* on_start */
void members_sendable(struct rpc_call *rpc);
void members_end(struct rpc_call *rpc, bool cancelled);
void members_changed(struct service *s); /* a node */
void members_job_changed(struct service *s);
void members_push(struct service *s); /* sends what is due */
/* Fills procs, seat and turn, if the node belongs to a member. */
void members_describe(struct service *s, struct core_hello *hello);
void members_free(struct run *run);

/* probe_rpc.c */
void probe_job(struct rpc_call *rpc, const void *request, void *user); /* ProbeJob: on_start */

/* check_rpc.c */
void check_nodes(struct rpc_call *rpc, const void *request, void *user); /* CheckNodes: on_start */

/* looks.c */
void looks_ask(struct session *session, int64_t job);
/* False: this is the answer to another question. */
bool looks_answered(struct session *session, const Ddp__V1__CheckAnswer *answer);

#endif
