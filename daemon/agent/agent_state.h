#ifndef DDP_DAEMON_AGENT_AGENT_STATE_H
#define DDP_DAEMON_AGENT_AGENT_STATE_H

#include <pwd.h>
#include <uv.h>

#include "base/id.h"
#include "daemon/agent/accounts.h"
#include "daemon/agent/gpu/gpus.h"
#include "daemon/agent/inventory.h"
#include "daemon/agent/logs/log_limit_timer.h"
#include "daemon/agent/logs/log_readers.h"
#include "daemon/agent/observe/worker_monitor.h"
#include "daemon/agent/preflight/check_server.h"
#include "daemon/agent/report_queue.h"
#include "daemon/agent/session.h"
#include "daemon/agent/settings.h"
#include "daemon/agent/supervisors.h"
#include "daemon/agent/wish.h"

/* What agent.c (the loop), agent_gpus.c and agent_act.c (wishes to orders, facts to messages) share. Own
 * folder only. */

struct agent {
    const struct settings *settings;
    char instance[ID_TEXT];
    char *address, *trainer, *runtime;
    char *coordinator_file; /* tells running workers where the coordinator is now */
    bool coordinator_told;
    int lock_fd;
    struct inventory inventory;
    struct inventory_meter meter;
    struct gpus *gpus;
    struct trainer_plugin *asking; /* NULL: it has answered, or is not needed */
    int64_t dial_by;               /* BOOTTIME ms: without the answer, which a new hello tells then */
    char *nccl, *plugin;           /* its answer; NULL: there are no GPUs */
    struct wish_store wish;
    struct card_store cards;
    struct supervisors *supervisors;
    struct session *session;
    struct log_readers *logs;
    struct log_limit_timer *log_limits; /* NULL: logs have no limits */
    struct worker_monitor *watch;
    struct check_server *checks;
    struct accounts *accounts;
    struct report_queue reports;
    int64_t last_ack; /* CLOCK_BOOTTIME ms: when the last acknowledged heartbeat was sent; 0: none yet */
    int64_t reports_sent_ms; /* when the last batch went out */
    bool changed, facts_due, ending, session_closed;
    bool wish_confirmed; /* the kept wish came in the newest session */
    struct err failure;  /* ends the loop */
    bool leaving;        /* --rejoin: ending what the former cluster left here */
    uv_loop_t loop;
    uv_prepare_t settle;
    uv_timer_t later;  /* settles again */
    uv_timer_t retain; /* hourly */
    struct {           /* a thread of the pool removes old logs: users make those directories large */
        uv_work_t work;
        int64_t *live; /* jobs whose logs stay */
        size_t count;
        int removed;
        struct err problem; /* code ERR_OK: none */
        bool runs;
    } retention;
    uv_signal_t terminate, interrupt, child;
    uv_poll_t lifeline;
};

/* Whom the jobs of this submitter run as; NULL: as this agent. */
const struct passwd *agent_other_user(const struct agent *a, const char *submitter);
enum err_code agent_open_gpus(struct agent *a, struct err *e);
void agent_tell_coordinator(struct agent *a); /* to the workers; tries again where it failed */
void agent_dial(struct agent *a);             /* not before it is known what the hello has to say */
void agent_reconcile(struct agent *a, int64_t now);
void agent_watch(struct agent *a); /* tells the watch which workers live */
void agent_send_facts(struct agent *a);
int64_t agent_send_reports(struct agent *a, int64_t now); /* when to look again; INT64_MAX: not needed */
bool agent_log_ended(void *agent, int64_t job, int64_t generation, int local_rank);
bool agent_wants_job(void *agent, int64_t job);
int64_t *agent_live_jobs(void *agent, size_t *count); /* the caller frees */
void agent_renew_leases(struct agent *a);

#endif
