#ifndef DDP_DAEMON_COORDINATOR_SERVICE_SERVICE_STATE_H
#define DDP_DAEMON_COORDINATOR_SERVICE_SERVICE_STATE_H

#include <uv.h>

#include "daemon/coordinator/core/core.h"
#include "daemon/coordinator/service/access/audit.h"
#include "daemon/coordinator/service/handles.h"
#include "daemon/coordinator/service/receive_delay.h"
#include "daemon/coordinator/service/service.h"
#include "daemon/coordinator/service/stats.h"
#include "proto/rpc_server.h"
#include "store/store.h"

/* The state that the service's modules share. It belongs to the loop's thread. */

struct node_query;
struct backups;
struct call;
struct http;
struct log_stream;
struct metrics_recorder;
struct run;
struct agent_session;

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
    struct metrics_recorder *recorder;
    struct backups *backups; /* NULL: the cluster does not outlive this process */
    struct http *http;
    struct core_out out;   /* decided, not yet durable */
    struct core_out spare; /* its arrays are used again */
    uint64_t last_handle;
    struct handles calls;       /* struct call, those that the core owes an answer */
    struct handles sessions;    /* struct agent_session */
    struct handles reads;       /* struct log_read */
    struct handles query_parts; /* struct node_query_part */
    struct call *watches;
    struct agent_session *session_list;
    struct log_stream *logs;
    struct run *run; /* that has come together here; NULL: none, as in every cluster */
    bool wishes_due, watches_due, logs_due, run_due; /* something of the kind waits to be sent */
    bool commit_blocked; /* the last commit failed: out waits until the disk takes it */
    struct err damage;   /* the database is damaged: no effects are released any more, and the program ends */
    int64_t *refused_submits; /* jobs whose submit was refused while they waited in out */
    struct node_query *query_list;
    uv_timer_t query_timer;
    size_t refused_count, refused_cap;
    int64_t flushed_ms; /* boot time of the last metrics snapshot */
    bool stopping;
    struct receive_delay receive_delay;
    uv_timer_t memory_timer;
    int64_t trimmed_bytes; /* resident after memory was given back */
    struct stats stats;
    struct user_record *users; /* by name */
    size_t user_count;
    struct refusal refusals[16];
    size_t refusal_count;
    uv_timer_t refusal_timer; /* ends the minute */
};

#endif
