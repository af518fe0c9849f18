#ifndef DDP_DAEMON_COORDINATOR_SERVICE_SERVICE_STATE_H
#define DDP_DAEMON_COORDINATOR_SERVICE_SERVICE_STATE_H

#include <uv.h>

#include "daemon/coordinator/core/core.h"
#include "daemon/coordinator/service/access/account_names.h"
#include "daemon/coordinator/service/access/audit.h"
#include "daemon/coordinator/service/handles.h"
#include "daemon/coordinator/service/metrics/stats.h"
#include "daemon/coordinator/service/receive_delay.h"
#include "daemon/coordinator/service/service.h"
#include "daemon/relay/relay_server.h"
#include "proto/rpc_server.h"
#include "store/store.h"

/* The state that the service's modules share. It belongs to the loop's thread. */

struct node_query;
struct backups;
struct call;
struct forecasts;
struct http;
struct log_stream;
struct log_tails;
struct metrics_recorder;
struct teller;
struct web_site;
struct run;
struct agent_session;

struct service {
    const struct service_options *options;
    struct store *store;
    struct core *core;
    struct rpc_server *server;
    struct rpc_service services[3];    /* borrowed by the server */
    struct metrics_recorder *recorder; /* never NULL while the loop runs */
    struct backups *backups;           /* NULL under `ddpctl run`, whose cluster ends with this process */
    struct teller *teller;
    struct http *http;          /* NULL without --metrics */
    struct web_site *site;      /* NULL without `web` */
    struct relay_server *relay; /* NULL without `relay` */
    uint8_t relay_key[RELAY_KEY];
    struct relay_offer *relays_left; /* of agents that are not connected now */
    size_t relays_left_count, relays_left_cap;

    /* the loop */
    uv_loop_t loop;
    uv_prepare_t prepare;
    uv_check_t check;
    uv_timer_t tick, retry, trim; /* the core's deadlines; commits that failed; old events and audit lines */
    uv_signal_t term, interrupt;
    uv_pipe_t lifeline;
    bool stopping;

    /* commit_queue.c */
    struct core_out out;   /* decided, not yet durable */
    struct core_out spare; /* empty; keeps its arrays for the next turn */
    size_t thin_at;        /* with so many effects in `out`, those that are out of date are removed */
    bool commit_blocked;   /* the last commit failed: `out` waits until a commit succeeds */
    enum commit_obstacle { OBSTACLE_NONE, OBSTACLE_FULL, OBSTACLE_LOCKED, OBSTACLE_OTHER } obstacle;
    char obstacle_text
        [256];         /* while commit_blocked, for users: "the coordinator's disk is full (/var/lib/ddp)" */
    bool told_low;     /* an event says that the disk has too little room for new jobs */
    struct err damage; /* not ERR_OK: the database is damaged, no effects are released, the program ends */

    /* calls and streams by handle */
    uint64_t last_handle;
    struct handles calls;       /* struct call: those that the core owes an answer */
    struct handles sessions;    /* struct agent_session */
    struct handles reads;       /* struct log_read */
    struct handles query_parts; /* struct node_query_part */
    struct call *watches;       /* users' streams of a job */
    struct agent_session *session_list;
    struct handles named_sessions; /* agent_rpc.c: by a digest of the node's name; the first of a list */
    struct log_stream *logs;
    struct log_tails *log_tails;
    struct forecasts *forecasts;
    struct node_query *query_list;
    uv_timer_t query_timer;
    struct run *run;                                 /* the hosts of a `ddpctl run`; NULL in a cluster */
    bool wishes_due, watches_due, logs_due, run_due; /* at least one such stream has something to send */

    /* what is measured */
    struct stats stats;
    int64_t published_ms; /* boot: when the stats were last given to http */
    struct receive_delay receive_delay;
    uv_timer_t memory_timer;
    int64_t trimmed_bytes; /* resident memory after the last trim */

    /* access */
    struct user_record *users; /* sorted by name */
    size_t user_count;
    struct account_names account_names;
    struct refusal refusals[16];
    size_t refusal_count;
    uv_timer_t refusal_timer; /* ends the minute of `refusals` */
    uv_timer_t logs_timer;    /* logs.c: new output is held until its next tick */
};

#endif
