#include "daemon/agent/agent.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/notify.h"
#include "base/paths.h"
#include "base/signals.h"
#include "daemon/agent/agent_state.h"
#include "daemon/agent/gpu/trainer_plugin.h"
#include "daemon/agent/logs/log_expiry_pass.h"
#include "proto/rpc_resolve.h"

#define LOG_POLL_MS 100
#define RESOLVE_MS 5000
#define RETAIN_EVERY_MS (3600u * 1000)
#define ENDING_MS 5000 /* for attached supervisors to kill what they have */

/* ---- what the coordinator says */

static void fill_hello(void *user, Ddp__V1__Hello *hello)
{
    struct agent *a = user;
    const struct settings *s = a->settings;
    const Ddp__V1__Wish *wish = a->wish.wish;

    hello->node = s->node;
    hello->instance = a->instance;
    hello->version = (char *)DDP_VERSION;
    hello->address = a->address;
    hello->cpu_slots = s->slots ? (int32_t)s->slots : a->inventory.cores;
    hello->cores = a->inventory.cores;
    hello->memory_bytes = a->inventory.memory_bytes;
    hello->port_first = s->port_first;
    hello->port_last = s->port_last;
    hello->log_dir = s->log_dir;
    hello->gpus = gpus_messages(a->gpus, &hello->n_gpus);
    hello->slots_per_gpu = (int32_t)s->slots_per_gpu;
    if (a->nccl) {
        hello->nccl_version = a->nccl;
        hello->plugin = a->plugin;
    }
    hello->keeps_cards = true;
    hello->cards = a->cards.heads;
    hello->n_cards = a->cards.count;
    if (!wish)
        return;
    hello->cluster_id = wish->cluster_id;
    hello->epoch = wish->epoch;
    hello->revision = wish->revision;
}

static void fill_heartbeat(void *user, Ddp__V1__Heartbeat *beat)
{
    struct agent *a = user;
    struct inventory_load load;

    inventory_measure(&a->meter, &load);
    beat->load = load.load;
    beat->memory_free = load.memory_free;
    beat->gpus = gpus_messages(a->gpus, &beat->n_gpus);
    beat->accounts = accounts_messages(a->accounts, &beat->n_accounts);
}

static enum err_code on_welcome(void *user, const Ddp__V1__Welcome *welcome, struct err *e)
{
    struct agent *a = user;
    const Ddp__V1__Wish *wish = a->wish.wish;

    if (wish && strcmp(wish->cluster_id, welcome->cluster_id))
        return err_set(
            e, ERR_FAILED_PRECONDITION,
            "this node belongs to cluster %.8s, the coordinator is of %.8s; ddp-agent --rejoin changes that",
            wish->cluster_id, welcome->cluster_id);
    log_info("joined", "node=%s cluster=%.8s epoch=%" PRId64, a->settings->node, welcome->cluster_id,
             welcome->epoch);
    a->wish_confirmed = false; /* the kept one may be of long ago; today's follows */
    a->facts_due = a->changed = true;
    return ERR_OK;
}

static void on_ack(void *user, int64_t sent)
{
    struct agent *a = user;

    if (sent > a->last_ack)
        a->last_ack = sent;
    agent_renew_leases(a);
    a->changed = true;
}

static void on_wish(void *user, const Ddp__V1__Wish *wish)
{
    struct agent *a = user;
    struct err e;

    if (wish_accept(&a->wish, &a->cards, wish, &e)) {
        log_warn("wish_refused", "why=%s", LOG_Q(e.msg));
        if (e.code != ERR_FAILED_PRECONDITION)
            session_redial(a->session); /* a full disk, say: it must come again */
        return;
    }
    log_debug("wish", "epoch=%" PRId64 " rev=%" PRId64 " jobs=%zu", wish->epoch, wish->revision,
              wish->n_groups);
    a->wish_confirmed = true;
    agent_renew_leases(a);
    a->changed = a->facts_due = true;
}

static Ddp__V1__JobCard *on_card_wanted(void *user, int64_t job)
{
    const struct agent *a = user;

    return cards_read(&a->cards, job);
}

static void on_log_read(void *user, const Ddp__V1__LogRead *read)
{
    struct agent *a = user;

    log_readers_request(a->logs, read);
    a->changed = true;
}

static void on_probe(void *user, const Ddp__V1__Probe *probe)
{
    struct agent *a = user;

    worker_monitor_probe(a->watch, probe);
}

static void on_check(void *user, const Ddp__V1__CheckAsk *ask)
{
    struct agent *a = user;

    check_server_ask(a->checks, ask);
}

static void on_gpus_cleared(void *user)
{
    struct agent *a = user;

    gpus_clear_faults(a->gpus);
}

static void on_session_sendable(void *user)
{
    struct agent *a = user;

    a->changed = true;
}

static void on_session_lost(void *user)
{
    struct agent *a = user;

    log_readers_drop_all(a->logs);
    worker_monitor_new_session(a->watch);
}

static enum err_code log_chunk_send(void *ctx, const Ddp__V1__LogChunk *chunk, struct err *e)
{
    struct agent *a = ctx;
    Ddp__V1__AgentUp up;

    ddp__v1__agent_up__init(&up);
    up.body_case = DDP__V1__AGENT_UP__BODY_LOG_CHUNK;
    up.log_chunk = (Ddp__V1__LogChunk *)chunk;
    return session_send(a->session, &up, e);
}

static enum err_code agent_send_up(void *ctx, const Ddp__V1__AgentUp *up, struct err *e)
{
    struct agent *a = ctx;

    return session_send(a->session, up, e);
}

/* ---- what supervisors say */

static void on_supervisors_change(void *user)
{
    struct agent *a = user;

    a->changed = a->facts_due = true;
}

static void on_worker_report(void *user, int64_t job, const struct spawn_report *report)
{
    struct agent *a = user;

    report_queue_add(&a->reports, job, report);
    worker_monitor_reported(a->watch, job, report->spawn);
}

/* ---- the loop */

static void on_settle_timer(uv_timer_t *timer)
{
    struct agent *a = timer->data;

    a->changed = true;
}

static void wake_at(struct agent *a, int64_t at, int64_t now)
{
    if (at == INT64_MAX)
        return;
    if (uv_is_active((uv_handle_t *)&a->later) &&
        uv_timer_get_due_in(&a->later) <= (uint64_t)(at > now ? at - now : 0))
        return;
    BUG_ON(uv_timer_start(&a->later, on_settle_timer, at > now ? (uint64_t)(at - now) : 0, 0));
}

void agent_dial(struct agent *a)
{
    struct session_events events = {.fill_hello = fill_hello,
                                    .fill_heartbeat = fill_heartbeat,
                                    .on_welcome = on_welcome,
                                    .on_ack = on_ack,
                                    .on_wish = on_wish,
                                    .on_card_wanted = on_card_wanted,
                                    .on_log_read = on_log_read,
                                    .on_probe = on_probe,
                                    .on_check = on_check,
                                    .on_gpus_cleared = on_gpus_cleared,
                                    .on_sendable = on_session_sendable,
                                    .on_lost = on_session_lost,
                                    .user = a};

    if (a->session || a->leaving || (a->asking && clock_boot_ms() < a->dial_by))
        return;
    if (session_open(&a->session, &a->loop, a->settings, &events, &a->failure))
        uv_stop(&a->loop);
}

/* --rejoin: what the former cluster left here is killed and forgotten before the new one hears of this node;
 * their job numbers would be mistaken for its own. True while there is something left. */
static bool former_cluster_leave(struct agent *a, int64_t now)
{
    struct known_spawn *known;
    size_t count;

    agent_reconcile(a, now);
    wake_at(a, supervisors_tend(a->supervisors, now), now);
    known = supervisors_known(a->supervisors, &count);
    free(known);
    if (count)
        return true;
    a->leaving = false;
    log_info("former_cluster_left", "node=%s", a->settings->node);
    agent_dial(a);
    return false;
}

/* Once a turn of the loop, before it waits. */
static void on_settle(uv_prepare_t *handle)
{
    struct agent *a = handle->data;
    int64_t now = clock_boot_ms();

    if (a->ending)
        return;
    wake_at(a, agent_send_reports(a, now), now);
    if (!a->changed)
        return;
    a->changed = false;
    if (a->leaving && former_cluster_leave(a, now))
        return;
    if (a->asking && !a->session) {
        agent_dial(a);
        wake_at(a, a->dial_by, now);
    }
    agent_reconcile(a, now);
    wake_at(a, supervisors_tend(a->supervisors, now), now);
    supervisors_sweep(a->supervisors, agent_wants_job, a);
    agent_watch(a);
    if (a->facts_due)
        agent_send_facts(a);
    if (log_readers_pump(a->logs))
        wake_at(a, now + LOG_POLL_MS, now);
}

static bool job_has_logs(void *ctx, int64_t job)
{
    const struct agent *a = ctx;

    for (size_t i = 0; i < a->retention.count; i++)
        if (a->retention.live[i] == job)
            return true;
    return false;
}

static void on_expiry_work(uv_work_t *work)
{
    struct agent *a = work->data;
    struct err e;

    a->retention.problem.code = ERR_OK;
    if (log_expiry_pass(a->settings->log_dir, a->settings->log_keep_ms, clock_wall_ms(), job_has_logs, a,
                        &a->retention.removed, &e))
        a->retention.problem = e;
}

static void on_expiry_over(uv_work_t *work, int status)
{
    struct agent *a = work->data;

    (void)status;
    a->retention.runs = false;
    free(steal(a->retention.live));
    if (a->retention.problem.code)
        log_warn("old_logs_not_removed", "why=%s", LOG_Q(a->retention.problem.msg));
    if (a->retention.removed)
        log_info("old_logs_removed", "jobs=%d", a->retention.removed);
}

static void on_expiry_timer(uv_timer_t *timer)
{
    struct agent *a = timer->data;

    if (a->retention.runs)
        return;
    a->retention.runs = true;
    a->retention.live = agent_live_jobs(a, &a->retention.count);
    a->retention.work.data = a;
    BUG_ON(uv_queue_work(&a->loop, &a->retention.work, on_expiry_work, on_expiry_over));
}

static void on_session_closed(void *user);

/* Attached supervisors see our connections close, kill, and end: with a lifeline nothing is left when we are
 * gone. A coordinator elsewhere is told so. */
static void agent_maybe_finish(struct agent *a)
{
    if (!a->ending || (a->settings->lifeline >= 0 && supervisors_children(a->supervisors)))
        return;
    if (a->session_closed)
        uv_stop(&a->loop);
    else if (a->session)
        session_leave(steal(a->session), on_session_closed, a);
}

static void on_session_closed(void *user)
{
    struct agent *a = user;

    a->session_closed = true;
    agent_maybe_finish(a);
}

static void on_ending_late(uv_timer_t *timer)
{
    struct agent *a = timer->data;

    log_error("supervisors_left", "count=%zu", supervisors_children(a->supervisors));
    uv_stop(&a->loop);
}

static void agent_end(struct agent *a, const char *why)
{
    if (a->ending)
        return;
    a->ending = true;
    log_info("ending", "why=%s workers=%s", why, a->settings->lifeline >= 0 ? "end-too" : "go-on");
    BUG_ON(uv_timer_start(&a->later, on_ending_late, ENDING_MS, 0));
    supervisors_let_go(a->supervisors);
    bool leaves = a->settings->lifeline >= 0 && strncmp(a->settings->coordinator, "unix:", 5) != 0;
    if (!a->session)
        a->session_closed = true;
    else if (!leaves)
        session_close(steal(a->session), on_session_closed, a);
    agent_maybe_finish(a);
}

static void on_terminate(uv_signal_t *handle, int number)
{
    agent_end(handle->data, number == SIGTERM ? "SIGTERM" : "SIGINT");
}

static void on_child(uv_signal_t *handle, int number)
{
    struct agent *a = handle->data;

    (void)number;
    supervisors_reap(a->supervisors);
    agent_maybe_finish(a);
}

static void on_lifeline(uv_poll_t *handle, int status, int events)
{
    struct agent *a = handle->data;
    char byte;
    ssize_t n = read(a->settings->lifeline, &byte, 1);

    (void)events;
    if (status < 0 || n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) {
        uv_poll_stop(handle);
        agent_end(a, "lifeline");
    }
}

static void handles_start(struct agent *a)
{
    uv_signal_t *signals[] = {&a->child, &a->terminate, &a->interrupt};
    static const int numbers[] = {SIGCHLD, SIGTERM, SIGINT};
    bool parent_decides = a->settings->lifeline >= 0;

    BUG_ON(uv_prepare_init(&a->loop, &a->settle) || uv_prepare_start(&a->settle, on_settle));
    BUG_ON(uv_timer_init(&a->loop, &a->later));
    BUG_ON(uv_timer_init(&a->loop, &a->retain));
    a->settle.data = a->later.data = a->retain.data = a;
    if (a->settings->log_keep_ms)
        BUG_ON(uv_timer_start(&a->retain, on_expiry_timer, RETAIN_EVERY_MS / 60, RETAIN_EVERY_MS));
    for (size_t i = 0; i < ARRAY_LEN(signals); i++) {
        BUG_ON(uv_signal_init(&a->loop, signals[i]));
        signals[i]->data = a;
        if (numbers[i] == SIGCHLD || !parent_decides)
            BUG_ON(uv_signal_start(signals[i], numbers[i] == SIGCHLD ? on_child : on_terminate, numbers[i]));
    }
    if (!parent_decides)
        return;
    signals_leave_to_parent();
    if (uv_poll_init(&a->loop, &a->lifeline, a->settings->lifeline) ||
        uv_poll_start(&a->lifeline, UV_READABLE, on_lifeline))
        log_error("lifeline_not_watched", "fd=%d", a->settings->lifeline);
    a->lifeline.data = a;
}

/* ---- coming up */

static enum err_code instance_read(struct agent *a, struct err *e)
{
    CLEANUP(free_text) char *path = paths_join(a->settings->state, "instance");
    CLEANUP(buf_release) struct buf text = {0};

    if (file_exists(path)) {
        if (file_read(path, 256, &text, e))
            return e->code;
        if (text.len != ID_TEXT || text.data[ID_TEXT - 1] != '\n')
            return err_set(e, ERR_DATA_LOSS, "%s is damaged, remove it", path);
        memcpy(a->instance, text.data, ID_TEXT - 1);
        return ERR_OK;
    }
    id_text(a->instance);
    buf_printf(&text, "%s\n", a->instance);
    return file_write_atomic(path, text.data, text.len, 0600, e);
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
    if (!a->settings->rejoin)
        return ERR_OK;
    cards_forget(&a->cards);
    return wish_forget(&a->wish, e);
}

/* A worker is started with the coordinator's address, but may outlive it: the coordinator can move to another
 * machine. So the workers look into this file, which only we may write. What cannot be written is removed:
 * workers then keep the address that they have. */
void agent_tell_coordinator(struct agent *a)
{
    CLEANUP(free_text) char *text = xasprintf("%s\n", a->settings->coordinator);
    const char *dir = a->runtime ? a->runtime : a->settings->state;
    struct err e;

    if (a->coordinator_told)
        return;
    if (!a->coordinator_file)
        a->coordinator_file = paths_join(dir, "coordinator");
    if (!file_mkdirs(dir, a->runtime ? 0711 : 0700, &e) &&
        !file_write_atomic(a->coordinator_file, text, strlen(text), 0644, &e)) {
        a->coordinator_told = true;
        return;
    }
    log_warn("coordinator_not_told", "path=%s why=%s", LOG_Q(a->coordinator_file), LOG_Q(e.msg));
    unlink(a->coordinator_file);
}

/* ddp-trainer stands beside us; without it command jobs still run. */
static void trainer_find(struct agent *a)
{
    struct err e;

    if (!paths_program("ddp-trainer", &a->trainer, &e))
        return;
    log_warn("no_trainer", "why=%s", LOG_Q(e.msg));
    a->trainer = xstrdup("ddp-trainer");
}

/* At a machine's start the name server may come later than we. A name that it does not know is an error. */
static void await_name_server(const struct settings *s)
{
    const struct timespec pause = {.tv_sec = 1};
    struct err e;

    for (int tries = 0; rpc_resolve(s->coordinator, RESOLVE_MS, &e) == ERR_UNAVAILABLE; tries++) {
        if (s->lifeline >= 0)
            return; /* ddpctl run waits for us: no name is an answer, too */
        if (!tries)
            log_warn("name_not_resolved", "coordinator=%s why=%s", s->coordinator, LOG_Q(e.msg));
        nanosleep(&pause, NULL);
    }
}

static enum err_code address_find(struct agent *a, struct err *e)
{
    if (a->settings->address) {
        a->address = xstrdup(a->settings->address);
        return ERR_OK;
    }
    await_name_server(a->settings);
    return inventory_address(a->settings->coordinator, &a->address, e);
}

static void check_server_start(struct agent *a)
{
    const struct settings *s = a->settings;
    struct check_server_options options = {.user = s->user,
                                           .submitter_on = s->run_as ? s->node : NULL,
                                           .address = a->address,
                                           .coordinator = s->coordinator,
                                           .port_first = s->port_first,
                                           .port_last = s->port_last,
                                           .send = agent_send_up,
                                           .ctx = a};

    a->checks = check_server_create(&a->loop, &options);
}

static enum err_code parts_open(struct agent *a, struct err *e)
{
    struct supervisors_options supervisors = {.state = a->settings->state,
                                              .log_dir = a->settings->log_dir,
                                              .node = a->settings->node,
                                              .files = a->settings->files,
                                              .attached = a->settings->lifeline >= 0};
    struct supervisors_events supervisor_events = {on_supervisors_change, on_worker_report, a};
    struct log_readers_options logs = {a->settings->log_dir, a->settings->node, log_chunk_send,
                                       agent_log_ended, a};
    struct worker_monitor_options watch = {a->settings->log_dir, a->settings->node, agent_send_up, a};
    struct log_limit_options keeper = {.log_dir = a->settings->log_dir,
                                       .node = a->settings->node,
                                       .per_job = a->settings->log_limit,
                                       .total = a->settings->log_total,
                                       .live = agent_live_jobs,
                                       .ctx = a};
    CLEANUP(free_text) char *supervisor = NULL;

    if (paths_program("ddp-supervisor", &supervisor, e) || state_open(a, e) || address_find(a, e))
        return e->code;
    trainer_find(a);
    a->accounts = accounts_create(a->settings->node);
    if (a->settings->run_as || agent_other_user(a, NULL))
        a->runtime = xasprintf("/run/ddp/%.8s", a->instance);
    supervisors.runtime = a->runtime;
    agent_tell_coordinator(a);
    inventory_read(&a->inventory);
    if (agent_open_gpus(a, e))
        return e->code;
    a->logs = log_readers_create(&logs);
    a->watch = worker_monitor_create(&a->loop, &watch);
    if (a->settings->log_limit || a->settings->log_total)
        a->log_limits = log_limit_timer_create(&a->loop, &keeper);
    check_server_start(a);
    if (supervisors_open(&a->supervisors, &a->loop, &supervisors, &supervisor_events, e))
        return e->code;
    handles_start(a);
    a->leaving = a->settings->rejoin;
    agent_dial(a);
    return ERR_OK;
}

static void on_handle_left(uv_handle_t *handle, void *arg)
{
    (void)arg;
    if (!uv_is_closing(handle))
        uv_close(handle, NULL);
}

static void agent_release(struct agent *a)
{
    worker_monitor_close(a->watch);
    check_server_close(a->checks);
    accounts_free(a->accounts);
    supervisors_close(a->supervisors);
    log_readers_free(a->logs);
    log_limit_timer_free(a->log_limits);
    report_queue_release(&a->reports);
    wish_close(&a->wish);
    cards_close(&a->cards);
    gpus_close(a->gpus);
    trainer_plugin_close(a->asking);
    free(a->nccl);
    free(a->plugin);
    close_fd(&a->lock_fd);
    free(a->address);
    free(a->trainer);
    free(a->runtime);
    free(a->coordinator_file);
}

enum err_code agent_run(const struct settings *settings, struct err *e)
{
    struct agent *a = xcalloc(1, sizeof(*a));
    enum err_code code;

    a->settings = settings;
    a->lock_fd = -1;
    a->changed = true;
    BUG_ON(uv_loop_init(&a->loop));
    code = parts_open(a, e);
    if (!code) {
        log_info("started", "node=%s coordinator=%s from=%s address=%s state=%s logs=%s", settings->node,
                 settings->coordinator, LOG_Q(settings->coordinator_from), a->address, LOG_Q(settings->state),
                 LOG_Q(settings->log_dir));
        notify_send("READY=1");
        uv_run(&a->loop, UV_RUN_DEFAULT);
        notify_send("STOPPING=1");
        code = a->failure.code;
        if (code)
            *e = a->failure;
    }
    agent_release(a);
    uv_walk(&a->loop, on_handle_left, NULL);
    uv_run(&a->loop, UV_RUN_DEFAULT);
    if (uv_loop_close(&a->loop))
        log_debug("loop_not_closed", "why=handles");
    free(a);
    return code;
}
