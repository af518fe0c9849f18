#ifndef DDP_DAEMON_AGENT_AGENT_STATE_H
#define DDP_DAEMON_AGENT_AGENT_STATE_H

#include <uv.h>

#include "base/crypto/id.h"
#include "daemon/agent/accounts.h"
#include "daemon/agent/gpu/gpus.h"
#include "daemon/agent/inventory.h"
#include "daemon/agent/logs/log_expiry_timer.h"
#include "daemon/agent/logs/log_limit_timer.h"
#include "daemon/agent/logs/log_readers.h"
#include "daemon/agent/logs/log_tail_sender.h"
#include "daemon/agent/observe/worker_monitor.h"
#include "daemon/agent/preflight/check_server.h"
#include "daemon/agent/report_queue.h"
#include "daemon/agent/session.h"
#include "daemon/agent/settings.h"
#include "daemon/agent/supervisors.h"
#include "daemon/agent/wish.h"
#include "daemon/relay/relay_server.h"

/* The state of the whole agent, which agent.c owns. Only the modules that join others use it: agent_parts,
 * coordinator_link, wish_apply, node_jobs, spawn_messages, coordinator_file and gpu/agent_gpus. Every other
 * module has a struct of its own. Loop thread. */

struct agent {
    const struct settings *settings;
    char instance[ID_TEXT]; /* DDP_AGENT_ID: does not change as long as the state directory exists */
    char *address;          /* the address at which other nodes reach the workers */
    char *trainer;          /* ddp-trainer's path */
    char *python;           /* directory of the Python module ddp; NULL: not installed */
    char *runtime_dir;      /* /run/ddp/<instance>; NULL: all workers run under the agent's own account */
    char *coordinator_file; /* tells running workers where the coordinator is now */
    bool coordinator_told;  /* the file is written */
    int lock_fd;
    struct inventory inventory;
    struct inventory_meter meter;
    struct gpus *gpus;
    struct trainer_plugin *plugin_query; /* NULL: the trainer has answered, or was not asked */
    /* BOOTTIME ms: dials without the trainer's answer at this time; a new hello sends the answer later. */
    int64_t dial_by;
    char *nccl, *plugin; /* the trainer's answer; NULL: there are no GPUs */
    struct wish_store wish;
    struct err wish_trouble; /* why the newest wish could not be written; without a code: it was */
    int64_t wish_retry_at;   /* BOOTTIME ms: when to try again, while there is wish.unsaved */
    struct card_store cards;
    struct supervisors *supervisors;
    struct session *session;
    struct log_readers *log_readers;
    struct log_tail_sender *log_tails;
    struct log_limit_timer *log_limits; /* NULL: logs have no limits */
    struct log_expiry_timer *log_expiry;
    struct worker_monitor *monitor;
    struct check_server *check_server;
    struct accounts *accounts;
    struct account own;         /* the account that the agent runs under; without a name: it has no entry */
    struct relay_server *relay; /* NULL: this agent runs none */
    uint8_t relay_key[RELAY_KEY];
    struct report_queue reports;
    int64_t last_ack;        /* BOOTTIME ms: when the last acknowledged heartbeat was sent; 0: none yet */
    int64_t reports_sent_ms; /* BOOTTIME: when the last batch of reports went out */
    bool changed;            /* the loop has work to do before it waits */
    bool facts_due;          /* the facts must be sent to the coordinator again */
    bool wish_confirmed;     /* the kept wish came in the newest session */
    bool leaving;            /* --rejoin: the former cluster's workers are being ended */
    bool ending;             /* the agent was told to end */
    bool session_closed;     /* only while ending */
    struct err failure;      /* ends the loop */
    uv_loop_t loop;
    uv_prepare_t settle;
    uv_timer_t settle_timer; /* sets `changed` at the next time that something is due */
    uv_signal_t terminate, interrupt, child;
    uv_poll_t lifeline;
};

#endif
