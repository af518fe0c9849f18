#include "daemon/agent/agent.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/notify.h"
#include "base/signals.h"
#include "daemon/agent/agent_parts.h"
#include "daemon/agent/agent_state.h"
#include "daemon/agent/coordinator_link.h"
#include "daemon/agent/node_jobs.h"
#include "daemon/agent/spawn_messages.h"
#include "daemon/agent/wish_apply.h"

#define ENDING_MS 5000 /* time in which attached supervisors must kill their workers */

/* ---- settling */

static void on_settle_timer(uv_timer_t *timer)
{
    struct agent *a = timer->data;

    a->changed = true;
}

static void wake_at(struct agent *a, int64_t at, int64_t now)
{
    if (at == INT64_MAX)
        return;
    if (uv_is_active((uv_handle_t *)&a->settle_timer) &&
        uv_timer_get_due_in(&a->settle_timer) <= (uint64_t)(at > now ? at - now : 0))
        return;
    BUG_ON(uv_timer_start(&a->settle_timer, on_settle_timer, at > now ? (uint64_t)(at - now) : 0, 0));
}

/* --rejoin: kills the former cluster's workers and forgets their records before the agent connects to the new
 * cluster. Otherwise the new cluster would take the workers' job numbers for its own. Returns true while some
 * workers are left. */
static bool former_cluster_leave(struct agent *a, int64_t now)
{
    const struct spawn_fact **known;
    size_t count;

    wish_apply(a, now);
    wake_at(a, supervisors_tend(a->supervisors, now), now);
    known = supervisors_known(a->supervisors, &count);
    free(known);
    if (count)
        return true;
    a->leaving = false;
    log_info("former_cluster_left", "node=%s", a->settings->node);
    coordinator_link_dial(a);
    return false;
}

/* Runs in each turn of the loop, before it waits. Callbacks only mark what changed, so any number of messages
 * costs one comparison of wish and facts. */
static void on_settle(uv_prepare_t *handle)
{
    struct agent *a = handle->data;
    int64_t now = clock_boot_ms();

    if (a->ending)
        return;
    /* reports have their own intervals: they are sent even if nothing else has changed */
    wake_at(a, spawn_messages_send_reports(a, now), now);
    if (!a->changed)
        return;
    a->changed = false;
    if (a->leaving && former_cluster_leave(a, now))
        return;
    if (a->plugin_query && !a->session) { /* dials when it has waited long enough for the trainer's answer */
        coordinator_link_dial(a);
        wake_at(a, a->dial_by, now);
    }
    wake_at(a, coordinator_link_save_wish(a, now), now);
    wish_apply(a, now);
    wake_at(a, supervisors_tend(a->supervisors, now), now);
    wake_at(a, supervisors_sweep(a->supervisors, node_jobs_wants, a), now);
    node_jobs_monitor(a);
    wake_at(a, node_jobs_send_log_tails(a, now),
            now); /* before the facts, which may say that a worker has ended */
    if (a->facts_due)
        spawn_messages_send_facts(a);
    int64_t logs_ms = log_readers_pump(a->log_readers);
    if (logs_ms)
        wake_at(a, clock_boot_ms() + logs_ms, now);
}

/* ---- ending */

static void on_session_closed(void *user);

/* Without a lifeline the agent ends at once and the workers go on. With one it first waits until its
 * supervisors have ended: they are attached, so they kill their workers when their connections close. A
 * coordinator on another machine is then told that nothing runs here any more. */
static void agent_maybe_finish(struct agent *a)
{
    if (!a->ending || (a->settings->lifeline >= 0 && supervisors_children(a->supervisors)))
        return;
    if (a->session_closed)
        uv_stop(&a->loop);
    else if (a->session) /* kept open by agent_end only to say goodbye */
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
    BUG_ON(uv_timer_start(&a->settle_timer, on_ending_late, ENDING_MS, 0));
    supervisors_let_go(a->supervisors);
    /* a coordinator on this machine belongs to the same `ddpctl run` and ends as well: no goodbye */
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
    BUG_ON(uv_timer_init(&a->loop, &a->settle_timer));
    a->settle.data = a->settle_timer.data = a;
    for (size_t i = 0; i < ARRAY_LEN(signals); i++) {
        BUG_ON(uv_signal_init(&a->loop, signals[i]));
        signals[i]->data = a;
        if (numbers[i] == SIGCHLD || !parent_decides) /* ^C at a terminal reaches ddpctl's children too */
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

/* ---- running */

static void on_handle_left(uv_handle_t *handle, void *arg)
{
    (void)arg;
    if (!uv_is_closing(handle))
        uv_close(handle, NULL);
}

enum err_code agent_run(const struct settings *settings, struct err *e)
{
    struct agent *a = xcalloc(1, sizeof(*a));
    enum err_code code;

    a->settings = settings;
    a->lock_fd = -1;
    a->changed = true; /* the first turn settles what the records on disk ask for */
    BUG_ON(uv_loop_init(&a->loop));
    code = agent_parts_open(a, e);
    if (!code) {
        handles_start(a);
        a->leaving = settings->rejoin;
        coordinator_link_dial(a);
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
    agent_parts_release(a);
    uv_walk(&a->loop, on_handle_left, NULL);
    uv_run(&a->loop, UV_RUN_DEFAULT);
    if (uv_loop_close(&a->loop))
        log_debug("loop_not_closed", "why=\"handles are open\"");
    free(a);
    return code;
}
