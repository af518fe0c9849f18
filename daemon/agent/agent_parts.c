#include "daemon/agent/agent_parts.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/crypto/secret.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/paths.h"
#include "daemon/agent/coordinator_file.h"
#include "daemon/agent/coordinator_link.h"
#include "daemon/agent/gpu/agent_gpus.h"
#include "daemon/agent/gpu/trainer_plugin.h"
#include "daemon/agent/logs/log_cluster.h"
#include "daemon/agent/node_jobs.h"
#include "proto/rpc_resolve.h"

#define RESOLVE_MS 5000

static enum err_code instance_read(struct agent *a, struct err *e)
{
    CLEANUP(free_text) char *path = paths_join(a->settings->state, "instance");
    CLEANUP(buf_release) struct buf text = {0};

    if (file_exists(path)) {
        if (file_read(path, 256, &text, e))
            return e->code;
        if (text.len != ID_TEXT || text.data[ID_TEXT - 1] != '\n')
            return err_set(e, ERR_DATA_LOSS, "%s is damaged: remove it", path);
        memcpy(a->instance, text.data, ID_TEXT - 1);
        return ERR_OK;
    }
    id_text(a->instance);
    buf_printf(&text, "%s\n", a->instance);
    return file_write_atomic(path, text.data, text.len, 0600, e);
}

/* Before --rejoin forgets the cluster. A run's cluster has a log directory of its own. */
static void former_logs_note(const struct agent *a)
{
    const struct settings *s = a->settings;
    struct err e;

    if (a->wish.wish && s->lifeline < 0 &&
        log_cluster_note(s->log_dir, s->node, a->wish.wish->cluster_id, &e))
        log_warn("cluster_not_noted", "why=%s", LOG_Q(e.msg));
}

/* Reports that this agent could not send go to the next one. */
static void reports_save(struct agent *a)
{
    CLEANUP(free_text) char *path = paths_join(a->settings->state, "reports");
    struct err e;

    if (report_queue_save(&a->reports, path, &e))
        log_warn("reports_not_saved", "count=%zu why=%s", a->reports.count, LOG_Q(e.msg));
}

static void reports_load(struct agent *a)
{
    CLEANUP(free_text) char *path = paths_join(a->settings->state, "reports");
    struct err e;

    if (a->settings->rejoin) /* the new cluster has other jobs of these numbers */
        (void)unlink(path);
    else if (report_queue_load(&a->reports, path, &e))
        log_warn("reports_not_loaded", "why=%s", LOG_Q(e.msg));
}

static enum err_code state_open(struct agent *a, struct err *e)
{
    CLEANUP(free_text) char *lock = paths_join(a->settings->state, "agent.lock");

    if (file_mkdirs(a->settings->state, 0700, e))
        return e->code;
    if (file_lock(lock, &a->lock_fd, e))
        return err_wrap(e, "another ddp-agent uses this state directory (--state)");
    if (instance_read(a, e) || wish_open(&a->wish, a->settings->state, e) ||
        cards_open(&a->cards, a->settings->state, e))
        return e->code;
    a->wish.brief = a->cards.brief = a->settings->lifeline >= 0;
    former_logs_note(a);
    reports_load(a);
    if (!a->settings->rejoin)
        return ERR_OK;
    cards_forget(&a->cards);
    return wish_forget(&a->wish, e);
}

/* ddp-trainer is installed beside the agent. Without it command jobs still run. */
static void trainer_find(struct agent *a)
{
    struct err e;

    if (!paths_program("ddp-trainer", &a->trainer, &e))
        return;
    log_warn("no_trainer", "why=%s", LOG_Q(e.msg));
    a->trainer = xstrdup("ddp-trainer");
}

/* The Python module that programs import as ddp is installed in <prefix>/share/ddp/python. */
static void python_find(struct agent *a)
{
    CLEANUP(free_text) char *found = NULL;
    struct err e;

    if (paths_program("../share/ddp/python", &found, &e))
        log_debug("no_python_module", "why=%s", LOG_Q(e.msg));
    else
        a->python = realpath(found, NULL);
}

/* While a machine starts, the name server and the routes of its network may come later than the agent: waits for them. A name
 * that the server does not know is an error. */
static enum err_code address_await(struct agent *a, struct err *e)
{
    const struct timespec pause = {.tv_sec = 1};
    const char *coordinator = a->settings->coordinator, *told = NULL;

    for (;;) {
        const char *lack = "name_not_resolved";
        enum err_code code = rpc_resolve(coordinator, RESOLVE_MS, e);

        /* ddpctl run waits for this agent, and reports the error itself */
        if (code != ERR_UNAVAILABLE || a->settings->lifeline >= 0) {
            lack = "no_route";
            code = inventory_address(coordinator, &a->address, e);
        }
        if (code != ERR_UNAVAILABLE || a->settings->lifeline >= 0)
            return code;
        if (!told || strcmp(told, lack) != 0)
            log_warn(lack, "coordinator=%s why=%s", coordinator, LOG_Q(e->msg));
        told = lack;
        nanosleep(&pause, NULL);
    }
}

static enum err_code address_find(struct agent *a, struct err *e)
{
    if (!a->settings->address)
        return address_await(a, e);
    a->address = xstrdup(a->settings->address);
    return ERR_OK;
}

static void check_server_open(struct agent *a)
{
    const struct settings *s = a->settings;
    struct check_server_options options = {.settings = s,
                                           .inherited = s->lifeline >= 0 ? environ : NULL,
                                           .user = s->user,
                                           .own = a->own.name ? &a->own : NULL,
                                           .submitter_on = s->run_as ? s->node : NULL,
                                           .address = a->address,
                                           .coordinator = s->coordinator,
                                           .port_first = s->port_first,
                                           .port_last = s->port_last,
                                           .send = coordinator_link_send,
                                           .ctx = a};

    a->check_server = check_server_create(&a->loop, &options);
}

static void log_modules_open(struct agent *a)
{
    const struct settings *s = a->settings;
    struct log_readers_options readers = {s->log_dir, s->node, coordinator_link_send_log, node_jobs_log_ended,
                                          a};
    struct log_limit_options limits = {.log_dir = s->log_dir,
                                       .node = s->node,
                                       .per_job = s->log_limit,
                                       .total = s->log_total,
                                       .live = node_jobs_live,
                                       .ctx = a};
    CLEANUP(free_text) char *deleted = paths_join(s->state, "deleted-jobs");
    struct log_expiry_options expiry = {s->log_dir, s->node, deleted, s->log_keep_ms, node_jobs_live, a};
    struct log_tail_options tails = {s->log_dir, s->node, coordinator_link_send, a};

    if (s->rejoin) /* the new cluster has other jobs of these numbers */
        (void)unlink(deleted);
    a->log_readers = log_readers_create(&readers);
    a->log_tails = log_tail_sender_create(&tails);
    if (s->log_limit || s->log_total)
        a->log_limits = log_limit_timer_create(&a->loop, &limits);
    a->log_expiry = log_expiry_timer_create(&a->loop, &expiry);
}

static void on_supervisors_change(void *user)
{
    struct agent *a = user;

    a->changed = a->facts_due = true;
}

static void on_account_looked_up(void *user)
{
    struct agent *a = user;

    a->changed = true;
}

/* Blocks until the account database answers, as settings.c has done already. *others: workers run under other accounts
 * than the agent. */
static enum err_code accounts_open(struct agent *a, bool *others, struct err *e)
{
    const struct settings *s = a->settings;
    struct accounts_options options = {.node = s->node, .on_change = on_account_looked_up, .ctx = a};
    CLEANUP(account_release) struct account user = {0};
    struct err none;

    if (s->user && account_look_up(s->user, &user, e))
        return e->code;
    if (account_look_up_own(&a->own, &none))
        log_debug("no_own_account", "why=%s", LOG_Q(none.msg));
    *others = s->run_as || (s->user && user.uid != geteuid());
    a->accounts = accounts_create(&a->loop, &options);
    return ERR_OK;
}

static void on_worker_report(void *user, int64_t job, const struct metric_report *report)
{
    struct agent *a = user;

    report_queue_add(&a->reports, job, report);
    worker_monitor_reported(a->monitor, job, report->spawn);
}

/* The key stays as long as the state directory exists: ranks that hold a ticket wait for an agent that is started again. */
static enum err_code relay_key_read(struct agent *a, struct err *e)
{
    CLEANUP(free_text) char *path = paths_join(a->settings->state, "relay.key");
    CLEANUP(buf_release) struct buf key = {0};

    if (!file_exists(path)) {
        id_random(a->relay_key, sizeof(a->relay_key));
        return file_write_atomic(path, a->relay_key, sizeof(a->relay_key), 0600, e);
    }
    if (secret_read_own(path, 256, &key, e))
        return e->code;
    if (key.len != sizeof(a->relay_key))
        return err_set(e, ERR_DATA_LOSS, "%s is damaged: remove it", path);
    memcpy(a->relay_key, key.data, sizeof(a->relay_key));
    return ERR_OK;
}

static enum err_code relay_open_here(struct agent *a, struct err *e)
{
    struct relay_options options = {.address = a->settings->relay};

    if (!a->settings->relay)
        return ERR_OK;
    if (relay_key_read(a, e))
        return e->code;
    memcpy(options.key, a->relay_key, sizeof(options.key));
    if (relay_server_open(&a->relay, &options, e))
        return e->code;
    log_info("relay_listening", "address=%s", LOG_Q(a->settings->relay));
    return ERR_OK;
}

enum err_code agent_parts_open(struct agent *a, struct err *e)
{
    const struct settings *s = a->settings;
    struct supervisors_options supervisors = {.state = s->state,
                                              .log_dir = s->log_dir,
                                              .node = s->node,
                                              .files = s->files,
                                              .attached = s->lifeline >= 0,
                                              .terminal = s->terminal};
    struct supervisor_events supervisor_events = {on_supervisors_change, on_worker_report, a};
    struct worker_monitor_options monitor = {.log_dir = s->log_dir,
                                             .node = s->node,
                                             .send = coordinator_link_send,
                                             .ctx = a,
                                             .add_gpus = agent_gpus_add_usage};
    CLEANUP(free_text) char *supervisor = NULL;
    bool others = false;

    /* a missing ddp-supervisor is reported now, not when the first job comes */
    if (paths_program("ddp-supervisor", &supervisor, e) || state_open(a, e) || address_find(a, e) ||
        accounts_open(a, &others, e) || relay_open_here(a, e))
        return e->code;
    trainer_find(a);
    python_find(a);
    if (others) /* these workers cannot enter the state directory */
        a->runtime_dir = xasprintf("/run/ddp/%.8s", a->instance);
    supervisors.runtime = a->runtime_dir;
    coordinator_file_write(a);
    inventory_read(&a->inventory);
    if (agent_gpus_open(a, e))
        return e->code;
    log_modules_open(a);
    a->monitor = worker_monitor_create(&a->loop, &monitor);
    check_server_open(a);
    return supervisors_open(&a->supervisors, &a->loop, &supervisors, &supervisor_events, e);
}

void agent_parts_release(struct agent *a)
{
    relay_server_close(a->relay);
    explicit_bzero(a->relay_key, sizeof(a->relay_key));
    worker_monitor_close(a->monitor);
    check_server_close(a->check_server);
    accounts_close(a->accounts);
    account_release(&a->own);
    supervisors_close(a->supervisors);
    log_readers_free(a->log_readers);
    log_tail_sender_free(a->log_tails);
    log_limit_timer_free(a->log_limits);
    log_expiry_timer_free(a->log_expiry);
    if (a->lock_fd >= 0 &&
        a->settings->lifeline < 0) /* the agent of a run is the only one of its state directory */
        reports_save(a);
    report_queue_release(&a->reports);
    wish_close(&a->wish);
    cards_close(&a->cards);
    gpus_close(a->gpus);
    trainer_plugin_close(a->plugin_query);
    free(a->nccl);
    free(a->plugin);
    close_fd(&a->lock_fd);
    free(a->address);
    free(a->trainer);
    free(a->python);
    free(a->runtime_dir);
    free(a->coordinator_file);
}
