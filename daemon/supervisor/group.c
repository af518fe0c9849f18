#include "daemon/supervisor/group.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/signals.h"
#include "daemon/supervisor/agent_link.h"
#include "daemon/supervisor/lease.h"
#include "daemon/supervisor/protocol/process_kill.h"
#include "daemon/supervisor/protocol/record.h"
#include "daemon/supervisor/protocol/socket.h"
#include "daemon/supervisor/spawn.h"
#include "daemon/supervisor/store_child.h"
#include "daemon/supervisor/watchdog.h"

#define LOCK_WAIT_MS 2000      /* a supervisor that is just ending may hold the lock a little longer */
#define FIRST_ORDER_MS 30000   /* the supervisor ends if no order has come by then */
#define REPORT_TURN (64 << 10) /* bytes of one pipe before the other pipes get their turn */
#define TERMINAL_TURN (256 << 10)
#define REPORT_REST (1 << 20) /* the most that a pipe holds; after this, somebody still writes */
#define LEFTOVER_ROUNDS 100
#define LEFTOVER_PAUSE_MS 10
#define POLL_MAX_MS 1000 /* poll(2) does not count the time that a machine sleeps; leases do */

struct group {
    struct group_options options;
    struct spawn_site site;
    struct spawn **spawns;
    size_t count, cap;
    struct store_children stores;
    struct spares spares;
    struct log_watch log_watch;
    struct lease lease;
    struct watchdog watchdog;
    struct agent_link agent; /* the connection to it */
    int lock_fd, listener, signals;
    bool used;   /* there was a spawn */
    bool ending; /* all workers are being stopped; new orders are ignored */
    int64_t opened;
};

static enum err_code lock_take(struct group *g, struct err *e)
{
    CLEANUP(free_text) char *path = xasprintf("%s/lock", g->options.dir);
    int64_t until = clock_boot_ms() + LOCK_WAIT_MS;

    while (file_lock(path, &g->lock_fd, e)) {
        if (e->code != ERR_FAILED_PRECONDITION || clock_boot_ms() > until)
            return e->code;
        poll(NULL, 0, 10);
    }
    return ERR_OK;
}

static enum err_code signals_open(struct group *g, struct err *e)
{
    sigset_t set;

    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    /* ^C sends SIGINT to every process of a terminal, but only ddpctl decides what it means */
    if (g->options.attached) {
        signals_leave_to_parent();
    } else {
        sigaddset(&set, SIGTERM);
        sigaddset(&set, SIGINT);
    }
    if (sigprocmask(SIG_SETMASK, &set, NULL))
        return err_sys(e, errno, "signals");
    signal(SIGPIPE, SIG_IGN);
    signal(SIGHUP, SIG_IGN);
    g->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    return g->signals < 0 ? err_sys(e, errno, "signalfd") : ERR_OK;
}

static void agent_attach(struct group *g, int fd)
{
    agent_link_attach(&g->agent, fd);
    for (size_t i = 0; i < g->count; i++)
        g->spawns[i]->dirty = true;
}

static void group_add_spawn(struct group *g, struct spawn *s)
{
    g->spawns = array_grow(g->spawns, g->count, &g->cap, sizeof(*g->spawns));
    g->spawns[g->count++] = s;
    g->used = true;
}

static char *reports_path(const struct group *g)
{
    return xasprintf("%s/reports", g->options.dir);
}

/* The reports that no agent has read go to a file. They were made before the exit records, which the next agent wants: so it
 * starts a supervisor, which sends both. */
static void reports_save(struct group *g)
{
    CLEANUP(free_text) char *path = reports_path(g);
    struct err e;

    if (g->agent.outbox.dropped)
        log_warn("reports_dropped", "job=%" PRId64 " count=%" PRId64, g->options.job,
                 g->agent.outbox.dropped);
    if (!g->options.attached && outbox_save(&g->agent.outbox, path, &e))
        log_warn("reports_not_saved", "job=%" PRId64 " why=%s", g->options.job, LOG_Q(e.msg));
}

static void reports_load(struct group *g)
{
    CLEANUP(free_text) char *path = reports_path(g);
    struct err e;

    if (outbox_load(&g->agent.outbox, path, &e))
        log_warn("reports_not_loaded", "job=%" PRId64 " why=%s", g->options.job, LOG_Q(e.msg));
}

/* Takes over the records that an earlier supervisor of this job left. */
static enum err_code records_take(struct group *g, struct err *e)
{
    CLEANUP(record_list_release) struct record_list found = {0};

    if (record_list(g->options.dir, &found, e))
        return e->code;
    for (size_t i = 0; i < found.count; i++)
        group_add_spawn(g, spawn_found(&found.items[i]));
    return ERR_OK;
}

enum err_code group_open(struct group **out, const struct group_options *options, struct err *e)
{
    struct group *g = xcalloc(1, sizeof(*g));

    g->options = *options;
    g->site = (struct spawn_site){.dir = options->dir,
                                  .brief = options->attached,
                                  .node = options->node,
                                  .job = options->job,
                                  .files = options->files,
                                  .spares = &g->spares,
                                  .log_watch = &g->log_watch};
    log_watch_open(&g->log_watch);
    g->lock_fd = g->listener = g->agent.fd = g->signals = -1;
    g->opened = clock_boot_ms();
    if (terminal_link_open(&g->site.terminal, options->terminal_fd, e) ||
        file_mkdirs(options->dir, 0700, e) || lock_take(g, e) || records_take(g, e) || signals_open(g, e) ||
        watchdog_open(&g->watchdog, e) || control_listen(options->dir, &g->listener, e)) {
        group_free(g);
        return e->code;
    }
    /* Orphans of the workers become children of this process, so that it can find and kill them. */
    if (prctl(PR_SET_CHILD_SUBREAPER, 1)) {
        group_free(g);
        return err_sys(e, errno, "subreaper");
    }
    reports_load(g);
    if (options->control_fd >= 0)
        agent_attach(g, options->control_fd);
    *out = g;
    return ERR_OK;
}

/* Kills what is left when no worker runs. Without cgroups, this finds processes that the modules of spares have
 * started. */
static void leftovers_kill(void)
{
    struct process_mark all = {.over = true};

    for (int round = 0; round < LEFTOVER_ROUNDS && descendants_kill(&all, NULL) > 0; round++)
        poll(NULL, 0, LEFTOVER_PAUSE_MS);
}

void group_free(struct group *g)
{
    if (!g)
        return;
    for (size_t i = 0; i < g->count; i++)
        spawn_free(g->spawns[i]);
    free(g->spawns);
    store_children_release(&g->stores);
    spares_release(&g->spares);
    log_watch_close(&g->log_watch);
    leftovers_kill();
    watchdog_close(&g->watchdog);
    agent_link_release(&g->agent);
    close_fd(&g->listener);
    close_fd(&g->signals);
    close_fd(&g->lock_fd);
    free(g);
}

static struct spawn *group_find_spawn(struct group *g, int64_t number)
{
    for (size_t i = 0; i < g->count; i++)
        if (g->spawns[i]->fact.spawn == number)
            return g->spawns[i];
    return NULL;
}

static void group_start_spawn(struct group *g, struct spawn_order *order)
{
    struct spawn *s = group_find_spawn(g, order->spawn);

    /* a known spawn: the agent repeats an order if it does not know whether the order arrived */
    if (g->ending || s)
        return;
    lease_renew(&g->lease, order->lease_sent, order->lease_ms);
    s = spawn_begin(order, &g->site);
    store_children_take(&g->stores, &s->store);
    group_add_spawn(g, s);
    log_info("spawn_started", "job=%" PRId64 " gen=%" PRId64 " spawn=%" PRId64 " pid=%d", g->options.job,
             s->fact.first_generation, s->fact.spawn, (int)s->pid);
}

static void group_forget_spawn(struct group *g, int64_t number)
{
    struct err e;

    for (size_t i = 0; i < g->count; i++) {
        struct spawn *s = g->spawns[i];

        if (s->fact.spawn != number || !spawn_ended(s))
            continue;
        if (record_remove(g->options.dir, number, &e))
            log_warn("record_not_removed", "job=%" PRId64 " spawn=%" PRId64 " why=%s", g->options.job, number,
                     LOG_Q(e.msg));
        spawn_free(s);
        memmove(&g->spawns[i], &g->spawns[i + 1], (g->count - i - 1) * sizeof(*g->spawns));
        g->count--;
        return;
    }
}

static void group_stop_all(struct group *g, enum stop_mode mode, int64_t now)
{
    for (size_t i = 0; i < g->count; i++)
        spawn_stop(g->spawns[i], mode, g->spawns[i]->order.grace_ms, now);
}

static void agent_detach(struct group *g)
{
    agent_link_detach(&g->agent);
    if (!g->options.attached && g->used)
        return; /* workers outlive their agent: the next one connects, or the lease ends them */
    /* attached, or never used: then the next agent starts a supervisor of its own when it needs one */
    g->ending = true;
    group_stop_all(g, STOP_KILL, clock_boot_ms());
}

static void message_obey(struct group *g, struct control_message *m)
{
    int64_t now = clock_boot_ms();
    struct spawn *s;

    switch (m->op) {
    case CONTROL_START:
        group_start_spawn(g, &m->order);
        break;
    case CONTROL_STOP:
        s = group_find_spawn(g, m->spawn);
        if (s) {
            spawn_stop_by(s, m->signal);
            spawn_stop(s, m->mode, m->grace_ms, now);
        }
        break;
    case CONTROL_FORGET:
        group_forget_spawn(g, m->spawn);
        break;
    case CONTROL_LEASE:
        lease_renew(&g->lease, m->lease_sent, m->lease_ms);
        break;
    case CONTROL_ANSWER:
        s = group_find_spawn(g, m->spawn);
        if (s)
            spawn_answer_worker(s, &m->answer);
        break;
    case CONTROL_HELLO:
    case CONTROL_FACT:
    case CONTROL_REPORT:
    case CONTROL_SYNCED:
        break; /* only a supervisor sends these */
    }
}

static void agent_hear(struct group *g)
{
    while (g->agent.fd >= 0) {
        CLEANUP(control_message_release) struct control_message m;
        struct err e;

        switch (control_receive(g->agent.fd, &m, &e)) {
        case ERR_OK:
            message_obey(g, &m);
            break;
        case ERR_UNAVAILABLE:
            return;
        case ERR_INVALID_ARGUMENT:
            log_warn("control_message_refused", "why=%s", LOG_Q(e.msg));
            break;
        default:
            agent_detach(g);
            return;
        }
    }
}

static void signals_take(struct group *g)
{
    struct signalfd_siginfo info;

    while (read(g->signals, &info, sizeof(info)) == (ssize_t)sizeof(info)) {
        if (info.ssi_signo == SIGCHLD)
            continue;
        log_warn("supervisor_told_to_stop", "job=%" PRId64 " signal=%u by=%u", g->options.job, info.ssi_signo,
                 info.ssi_pid);
        g->ending = true;
        for (size_t i = 0; i < g->count; i++)
            spawn_interrupt(g->spawns[i], clock_boot_ms());
    }
}

/* Returns 0 if no child has ended. */
static pid_t child_find_ended(void)
{
    siginfo_t info = {0};

    return waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) ? 0 : info.si_pid;
}

static void workers_reap(struct group *g)
{
    int status;
    pid_t pid;

    while ((pid = child_find_ended()) > 0) {
        /* A shutdown sends SIGTERM to the supervisor and the worker at the same time. Now that the worker has ended, the
         * supervisor's own signal can be read, and it must be read before the worker's end is recorded. */
        signals_take(g);
        if (waitpid(pid, &status, 0) != pid)
            return;
        store_children_reaped(&g->stores, pid, status, g->options.job);
        for (size_t i = 0; i < g->count; i++)
            capture_child_reaped(&g->spawns[i]->capture, pid);
        if (spares_reaped(&g->spares, pid, status, clock_boot_ms()))
            continue;
        for (size_t i = 0; i < g->count; i++) {
            struct spawn *s = g->spawns[i];

            if (s->pid != pid)
                continue;
            if (s->exec_fd >= 0) /* the end may be known before the reason of a failed start has been read */
                spawn_exec_ready(s, &g->site);
            spawn_reaped(s, status);
        }
    }
}

static void pids_free(pid_t **list)
{
    free(*list);
}

/* Lists the first processes of the other live spawns, and the processes that belong to no spawn. pids has room for
 * all. */
static struct spawn_peers peers_list(const struct group *g, const struct spawn *s, pid_t *pids)
{
    size_t common = g->stores.count + g->spares.count;
    pid_t *mains = pids + common + g->count;
    struct spawn_peers peers = {mains, 0, pids, common};

    for (size_t i = 0; i < g->stores.count; i++)
        pids[i] = g->stores.items[i].pid;
    for (size_t i = 0; i < g->spares.count; i++)
        pids[g->stores.count + i] = g->spares.items[i]->pid;
    for (size_t i = 0; i < g->count; i++)
        if (g->spawns[i]->capture.pid)
            pids[peers.store_count++] = g->spawns[i]->capture.pid;
    for (size_t i = 0; i < g->count; i++)
        if (g->spawns[i] != s && g->spawns[i]->pid)
            mains[peers.count++] = g->spawns[i]->pid;
    return peers;
}

/* Stops workers whose lease runs out: after its end the coordinator may start the same job elsewhere. SIGTERM
 * comes before the end, so that SIGKILL at the end has little left to do. Returns when to look again. */
static int64_t lease_check(struct group *g, int64_t now)
{
    int64_t next = INT64_MAX;

    for (size_t i = 0; lease_held(&g->lease) && i < g->count; i++) {
        struct spawn *s = g->spawns[i];
        int64_t term = lease_term(&g->lease, s->order.grace_ms);

        /* Without a pid, the worker has ended by itself: its exit code counts, and its leftovers are being killed. A spare
         * that has ended before it was the rank has no such code, and must not be started again. */
        if (spawn_ended(s) || (!s->pid && !s->warm) || s->fact.lease_expired)
            continue;
        if (now < term) {
            next = term < next ? term : next;
            continue;
        }
        s->fact.lease_expired = true;
        spawn_stop(s, STOP_TERM, lease_end(&g->lease) > now ? lease_end(&g->lease) - now : 0, now);
        log_warn("lease_expired", "job=%" PRId64 " spawn=%" PRId64, g->options.job, s->fact.spawn);
    }
    return next;
}

/* Each turn of the loop moves the end of this process. So it comes only if the loop stands still when the lease ends:
 * a worker that takes long to die does not end its supervisor. */
static void watchdog_feed(struct group *g, int64_t now)
{
    const int64_t end = lease_end(&g->lease);
    bool lives = false;

    for (size_t i = 0; i < g->count; i++)
        lives |= !spawn_ended(g->spawns[i]);
    watchdog_set(&g->watchdog,
                 lives && lease_held(&g->lease) ? (end > now ? end : now) + WATCHDOG_MARGIN_MS : 0, now);
}

static int64_t group_tick(struct group *g, int64_t now)
{
    int64_t next = lease_check(g, now), spares_at;
    CLEANUP(pids_free)
    pid_t *pids = xcalloc(2 * g->count + g->stores.count + g->spares.count + 1, sizeof(*pids));

    for (size_t i = 0; i < g->count; i++) {
        struct spawn *s = g->spawns[i];
        struct spawn_peers peers = peers_list(g, s, pids);
        int64_t at;

        if (!spawn_ended(s) && !s->pid) { /* its last reports, before the fact that it ended */
            agent_link_take_reports(&g->agent, s, REPORT_REST);
            agent_link_take_captured(&g->agent, s, REPORT_REST);
        }
        at = spawn_tick(s, &g->site, &peers, now);
        /* A turn in which many workers are killed may take long: without cgroups, each kill reads all of /proc. */
        watchdog_delay(&g->watchdog, clock_boot_ms());
        worker_link_tell(&s->worker, &s->fact.asks);
        next = at < next ? at : next;
    }
    store_children_tick(&g->stores, g->spawns, g->count);
    if (g->ending)
        return next;
    spares_at = spares_tick(&g->spares, g->spawns, g->count, g->options.files, now);
    return spares_at < next ? spares_at : next;
}

static bool group_is_done(struct group *g, int64_t now)
{
    for (size_t i = 0; i < g->count; i++)
        if (!spawn_ended(g->spawns[i]))
            return false;
    if (g->options.attached && g->agent.fd < 0)
        return true; /* no agent will ask for these records */
    for (size_t i = 0; i < g->count; i++)
        if (!g->spawns[i]->saved)
            return false;
    if (g->ending)
        return true; /* the records are on disk: the next supervisor reports them */
    if (g->stores.count)
        return false; /* workers on other nodes use a ddp-store */
    if (g->agent.fd >= 0 && g->count)
        return false; /* the coordinator has yet to commit an end */
    if (g->agent.fd >= 0 && spares_linger(&g->spares, now))
        return false;
    return g->used || now - g->opened > FIRST_ORDER_MS;
}

struct poll_set {
    struct pollfd *fds;
    size_t count, cap;
};

static void poll_set_add(struct poll_set *w, int fd, short events)
{
    if (fd < 0)
        return;
    w->fds = array_grow(w->fds, w->count, &w->cap, sizeof(*w->fds));
    w->fds[w->count++] = (struct pollfd){.fd = fd, .events = events};
}

static bool poll_set_ready(const struct poll_set *w, int fd)
{
    for (size_t i = 0; fd >= 0 && i < w->count; i++)
        if (w->fds[i].fd == fd)
            return w->fds[i].revents != 0;
    return false;
}

static void group_wait(struct group *g, struct poll_set *w, int64_t next, int64_t now)
{
    const int64_t most = watchdog_wait_most(&g->watchdog, now);
    int64_t timeout = next == INT64_MAX || next - now > POLL_MAX_MS ? POLL_MAX_MS : next - now;

    timeout = timeout < most ? timeout : most;
    w->count = 0;
    poll_set_add(w, g->signals, POLLIN);
    poll_set_add(w, g->listener, POLLIN);
    poll_set_add(w, g->log_watch.fd, POLLIN);
    poll_set_add(w, g->agent.fd, (short)(POLLIN | (g->agent.blocked ? POLLOUT : 0)));
    for (size_t i = 0; i < g->count; i++) {
        poll_set_add(w, g->spawns[i]->exec_fd, POLLIN);
        poll_set_add(w, g->spawns[i]->report_fd, POLLIN);
        poll_set_add(w, g->spawns[i]->capture.fd, POLLIN);
        poll_set_add(w, g->spawns[i]->terminal.master, POLLIN);
        poll_set_add(w, g->spawns[i]->worker.fd,
                     (short)(POLLIN | (g->spawns[i]->worker.blocked ? POLLOUT : 0)));
    }
    for (size_t i = 0; i < g->spares.count; i++)
        poll_set_add(w, g->spares.items[i]->socket, POLLIN);
    if (poll(w->fds, w->count, timeout > 0 ? (int)timeout : 0) <= 0)
        w->count = 0;
}

static void group_serve(struct group *g, const struct poll_set *w)
{
    struct err e;
    int fd;

    if (poll_set_ready(w, g->log_watch.fd))
        log_times_hear(&g->log_watch, clock_boot_ms());
    /* the pipes take turns: a worker that writes much must not starve the others */
    for (size_t i = 0; i < g->count; i++) {
        struct spawn *s = g->spawns[i];

        if (poll_set_ready(w, s->exec_fd))
            spawn_exec_ready(s, &g->site);
        if (poll_set_ready(w, s->report_fd))
            agent_link_take_reports(&g->agent, s, REPORT_TURN);
        if (poll_set_ready(w, s->capture.fd))
            agent_link_take_captured(&g->agent, s, REPORT_TURN);
        if (poll_set_ready(w, s->terminal.master))
            pseudo_terminal_copy(&s->terminal, TERMINAL_TURN, clock_boot_ms());
        if (poll_set_ready(w, s->worker.fd))
            spawn_hear_worker(s);
    }
    for (size_t i = 0; i < g->spares.count; i++)
        if (poll_set_ready(w, g->spares.items[i]->socket))
            spares_hear(&g->spares, i);
    if (poll_set_ready(w, g->signals))
        signals_take(g); /* group_run reaps the workers next */
    if (poll_set_ready(w, g->agent.fd)) {
        g->agent.blocked = false;
        agent_hear(g);
    }
    if (!poll_set_ready(w, g->listener))
        return;
    if (control_accept(g->listener, &fd, &e))
        log_warn("connection_refused", "why=%s", LOG_Q(e.msg));
    else if (g->options.attached)
        close(fd); /* an attached supervisor has only the agent that started it */
    else
        agent_attach(g, fd); /* a newer agent replaces the old connection */
}

void group_run(struct group *g)
{
    struct poll_set w = {0};
    int64_t now = clock_boot_ms(), next;

    for (;;) {
        next = group_tick(g, now);
        if (!agent_link_tell(&g->agent, &g->site, g->spawns, g->count))
            agent_detach(g);
        if (group_is_done(g, now))
            break;
        group_wait(g, &w, next, now);
        group_serve(g, &w);
        workers_reap(g);
        now = clock_boot_ms();
        watchdog_feed(g, now);
    }
    watchdog_set(&g->watchdog, 0, now);
    reports_save(g);
    free(w.fds);
}
