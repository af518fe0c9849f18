#include "daemon/agent/supervisors.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <uv.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "daemon/agent/supervisor_launch.h"
#include "daemon/supervisor/protocol/record.h"
#include "daemon/supervisor/protocol/socket.h"

#define RETRY_MS 200 /* between two tries to reach or start a supervisor */
#define TURN 256     /* messages of one supervisor before the others get their turn */

struct supervised_spawn {
    struct spawn_fact fact;
    enum stop_mode asked; /* the strongest stop that was sent over this connection */
    bool heard;           /* the supervisor has named it over this connection */
};

struct supervisor {
    struct supervisors *all;
    int64_t job;
    char *dir;
    int fd; /* -1: not connected */
    uv_poll_t *poll;
    bool synced; /* it has named all its spawns over this connection */
    bool needed; /* an order waits for it */
    int64_t retry_at;
    struct supervised_spawn *spawns;
    size_t count, cap;
};

struct supervisors {
    struct uv_loop_s *loop;
    struct supervisors_options options;
    struct supervisors_events events;
    struct supervisor **items;
    size_t count, cap;
    pid_t *children; /* supervisors that this process has started */
    size_t child_count, child_cap;
};

static struct supervised_spawn *spawn_find(struct supervisor *supervisor, int64_t spawn)
{
    for (size_t i = 0; i < supervisor->count; i++)
        if (supervisor->spawns[i].fact.spawn == spawn)
            return &supervisor->spawns[i];
    return NULL;
}

static struct supervised_spawn *spawn_add(struct supervisor *supervisor)
{
    supervisor->spawns =
        array_grow(supervisor->spawns, supervisor->count, &supervisor->cap, sizeof(*supervisor->spawns));
    memset(&supervisor->spawns[supervisor->count], 0, sizeof(*supervisor->spawns));
    return &supervisor->spawns[supervisor->count++];
}

static void spawn_drop(struct supervisor *supervisor, size_t at)
{
    spawn_fact_release(&supervisor->spawns[at].fact);
    memmove(&supervisor->spawns[at], &supervisor->spawns[at + 1],
            (supervisor->count - at - 1) * sizeof(*supervisor->spawns));
    supervisor->count--;
}

static struct supervisor *supervisor_find(struct supervisors *all, int64_t job)
{
    for (size_t i = 0; i < all->count; i++)
        if (all->items[i]->job == job)
            return all->items[i];
    return NULL;
}

static struct supervisor *supervisor_get(struct supervisors *all, int64_t job)
{
    struct supervisor *supervisor = supervisor_find(all, job);

    if (supervisor)
        return supervisor;
    supervisor = xcalloc(1, sizeof(*supervisor));
    supervisor->all = all;
    supervisor->job = job;
    supervisor->dir = xasprintf("%s/run/%" PRId64, all->options.state, job);
    supervisor->fd = -1;
    all->items = array_grow(all->items, all->count, &all->cap, sizeof(*all->items));
    all->items[all->count++] = supervisor;
    return supervisor;
}

static void poll_handle_free(uv_handle_t *handle)
{
    free(handle);
}

static void supervisor_disconnect(struct supervisor *supervisor)
{
    if (supervisor->poll)
        uv_close((uv_handle_t *)supervisor->poll, poll_handle_free);
    supervisor->poll = NULL;
    close_fd(&supervisor->fd);
    supervisor->fd = -1;
    supervisor->synced = false;
}

static void supervisor_free(struct supervisor *supervisor)
{
    supervisor_disconnect(supervisor);
    while (supervisor->count)
        spawn_drop(supervisor, supervisor->count - 1);
    free(supervisor->spawns);
    free(supervisor->dir);
    free(supervisor);
}

/* ---- what supervisors say */

static void supervisor_lost(struct supervisor *supervisor)
{
    supervisor_disconnect(supervisor);
    supervisor->retry_at = clock_boot_ms();
    log_debug("supervisor_gone", "job=%" PRId64 " spawns=%zu", supervisor->job, supervisor->count);
    supervisor->all->events.on_change(supervisor->all->events.user);
}

/* A spawn that the supervisor did not name does not exist: the order never reached it, or the supervisor has
 * forgotten the record. */
static void spawns_synced(struct supervisor *supervisor)
{
    for (size_t i = supervisor->count; i-- > 0;)
        if (!supervisor->spawns[i].heard)
            spawn_drop(supervisor, i);
    supervisor->synced = true;
    supervisor->needed = false;
}

static void fact_take(struct supervisor *supervisor, const struct spawn_fact *fact)
{
    struct supervised_spawn *s = spawn_find(supervisor, fact->spawn);

    if (!s)
        s = spawn_add(supervisor);
    spawn_fact_copy(&s->fact, fact);
    s->fact.job = supervisor->job; /* an older supervisor does not say it */
    s->heard = true;
}

static void message_take(struct supervisor *supervisor, const struct control_message *m)
{
    struct supervisors_events *events = &supervisor->all->events;

    switch (m->op) {
    case CONTROL_FACT:
        fact_take(supervisor, &m->fact);
        events->on_change(events->user);
        break;
    case CONTROL_SYNCED:
        spawns_synced(supervisor);
        events->on_change(events->user);
        break;
    case CONTROL_REPORT:
        events->on_report(events->user, supervisor->job, &m->report);
        break;
    case CONTROL_HELLO:
    case CONTROL_START:
    case CONTROL_STOP:
    case CONTROL_FORGET:
    case CONTROL_LEASE:
        break;
    }
}

static void on_supervisor_readable(uv_poll_t *poll, int status, int events)
{
    struct supervisor *supervisor = poll->data;

    (void)status;
    (void)events;
    for (int i = 0; supervisor->fd >= 0 && i < TURN; i++) {
        CLEANUP(control_message_release) struct control_message m;
        struct err e;

        switch (control_receive(supervisor->fd, &m, &e)) {
        case ERR_OK:
            message_take(supervisor, &m);
            break;
        case ERR_UNAVAILABLE:
            return;
        case ERR_INVALID_ARGUMENT: /* of another version; the next message may be good */
            log_warn("control_message_refused", "job=%" PRId64 " why=%s", supervisor->job, LOG_Q(e.msg));
            break;
        default:
            supervisor_lost(supervisor);
            return;
        }
    }
}

/* ---- finding and starting them */

static void supervisor_connected(struct supervisor *supervisor, int fd)
{
    supervisor->fd = fd;
    supervisor->synced = false;
    for (size_t i = 0; i < supervisor->count; i++) {
        supervisor->spawns[i].asked = STOP_NONE;
        supervisor->spawns[i].heard = false;
    }
    supervisor->poll = xcalloc(1, sizeof(*supervisor->poll));
    supervisor->poll->data = supervisor;
    BUG_ON(uv_poll_init(supervisor->all->loop, supervisor->poll, fd));
    BUG_ON(uv_poll_start(supervisor->poll, UV_READABLE, on_supervisor_readable));
}

static void supervisor_attend(struct supervisor *supervisor, int64_t now)
{
    struct supervisors *all = supervisor->all;
    struct err e;
    pid_t pid;
    int fd;

    supervisor->retry_at = now + RETRY_MS;
    /* Found again: a supervisor outlives its agent and listens on its socket. Attached ones are not looked
     * for: each ends with the agent that started it. */
    if (!all->options.attached && !control_connect(supervisor->dir, &fd, &e)) {
        supervisor_connected(supervisor, fd);
        log_info("supervisor_found", "job=%" PRId64, supervisor->job);
        return;
    }
    /* Started anew: it takes over the records, so it also ends what a dead supervisor left. If the old one
     * still lives but did not answer, its lock makes the new one fail, and the next try connects. */
    if (supervisor_launch(&all->options, supervisor->job, supervisor->dir, &fd, &pid, &e)) {
        log_error("supervisor_not_started", "job=%" PRId64 " why=%s", supervisor->job, LOG_Q(e.msg));
        return;
    }
    all->children = array_grow(all->children, all->child_count, &all->child_cap, sizeof(*all->children));
    all->children[all->child_count++] = pid;
    supervisor_connected(supervisor, fd);
    log_info("supervisor_started", "job=%" PRId64 " pid=%d", supervisor->job, (int)pid);
}

int64_t supervisors_tend(struct supervisors *all, int64_t now)
{
    int64_t next = INT64_MAX;

    for (size_t i = 0; i < all->count; i++) {
        struct supervisor *supervisor = all->items[i];
        bool absent = supervisor->fd < 0 && (supervisor->needed || supervisor->count);

        supervisor->needed = false; /* an order that still waits sets it again at the next reconcile */
        if (absent && now >= supervisor->retry_at)
            supervisor_attend(supervisor, now);
        if (absent && supervisor->fd < 0 && supervisor->retry_at < next)
            next = supervisor->retry_at;
    }
    return next;
}

static enum err_code records_load_job(struct supervisors *all, int64_t job, struct err *e)
{
    CLEANUP(record_list_release) struct record_list found = {0};
    struct supervisor *supervisor = supervisor_get(all, job);

    if (record_list(supervisor->dir, &found, e))
        return e->code;
    for (size_t i = 0; i < found.count; i++) {
        struct supervised_spawn *s = spawn_add(supervisor);

        spawn_fact_copy(&s->fact, &found.items[i]);
        s->fact.job = job; /* an older supervisor does not write it */
    }
    return ERR_OK;
}

static enum err_code records_load_all(struct supervisors *all, struct err *e)
{
    CLEANUP(free_text) char *path = xasprintf("%s/run", all->options.state);
    struct dirent *entry;
    enum err_code code = ERR_OK;
    DIR *d;

    if (file_mkdirs(path, 0700, e))
        return e->code;
    d = opendir(path);
    if (!d)
        return err_sys(e, errno, "%s", path);
    while (!code && (entry = readdir(d))) {
        char *end;
        int64_t job = strtoll(entry->d_name, &end, 10);

        if (job > 0 && !*end)
            code = records_load_job(all, job, e);
    }
    closedir(d);
    return code;
}

enum err_code supervisors_open(struct supervisors **out, struct uv_loop_s *loop,
                               const struct supervisors_options *options,
                               const struct supervisors_events *events, struct err *e)
{
    struct supervisors *all = xcalloc(1, sizeof(*all));

    all->loop = loop;
    all->options = *options;
    all->events = *events;
    if (records_load_all(all, e)) {
        supervisors_close(all);
        return e->code;
    }
    *out = all;
    return ERR_OK;
}

void supervisors_let_go(struct supervisors *all)
{
    for (size_t i = 0; i < all->count; i++)
        supervisor_disconnect(all->items[i]);
}

void supervisors_close(struct supervisors *all)
{
    if (!all)
        return;
    for (size_t i = 0; i < all->count; i++)
        supervisor_free(all->items[i]);
    free(all->items);
    free(all->children);
    free(all);
}

char *supervisors_run_base(struct supervisors *all, int64_t job)
{
    return all->options.runtime ? xasprintf("%s/%" PRId64, all->options.runtime, job)
                                : xstrdup(supervisor_get(all, job)->dir);
}

/* ---- orders */

enum err_code supervisors_start(struct supervisors *all, int64_t job, struct spawn_order *order,
                                struct err *e)
{
    struct supervisor *supervisor = supervisor_get(all, job);
    struct control_message m = {.op = CONTROL_START};
    enum err_code code;
    struct supervised_spawn *s;

    supervisor->needed = true;
    if (supervisor->fd < 0)
        return err_set(e, ERR_UNAVAILABLE, "the supervisor is not connected yet");
    m.order = *order; /* borrowed for the call */
    code = control_send(supervisor->fd, &m, e);
    if (code == ERR_ABORTED) /* it has just died: the loop will see its end of file */
        return err_set(e, ERR_UNAVAILABLE, "the supervisor has died");
    if (code)
        return code;
    s = spawn_add(supervisor);
    s->fact = (struct spawn_fact){.job = job,
                                  .spawn = order->spawn,
                                  .generation = order->generation,
                                  .rank = order->rank,
                                  .local_rank = order->local_rank,
                                  .state = SPAWN_STARTING};
    /* Before synced, the supervisor may list its spawns without this one: then it has not heard the order
     * yet, and the order counts as lost and is given again. */
    s->heard = supervisor->synced;
    spawn_order_release(order);
    return ERR_OK;
}

void supervisors_refuse(struct supervisors *all, int64_t job, const struct spawn_order *order,
                        const char *why, bool node_trouble, bool no_account)
{
    struct supervisor *supervisor = supervisor_get(all, job);
    struct supervised_spawn *s = spawn_add(supervisor);
    struct err e;

    s->fact = (struct spawn_fact){.job = job,
                                  .spawn = order->spawn,
                                  .generation = order->generation,
                                  .rank = order->rank,
                                  .local_rank = order->local_rank,
                                  .state = SPAWN_EXITED,
                                  .not_started = true,
                                  .node_trouble = node_trouble,
                                  .no_account = no_account,
                                  .code = 127,
                                  .started_ms = clock_wall_ms(),
                                  .ended_ms = clock_wall_ms()};
    spawn_fact_set_text(&s->fact.message, xstrdup(why));
    /* no supervisor will name it; its record makes it survive a restart of the agent */
    s->heard = true;
    if (file_mkdirs(supervisor->dir, 0700, &e) || record_write(supervisor->dir, &s->fact, &e))
        log_warn("record_not_written", "job=%" PRId64 " spawn=%" PRId64 " why=%s", job, order->spawn,
                 LOG_Q(e.msg));
}

void supervisors_stop(struct supervisors *all, const struct action *stop)
{
    struct supervisor *supervisor = supervisor_find(all, stop->job);
    struct supervised_spawn *s = supervisor ? spawn_find(supervisor, stop->spawn) : NULL;
    struct control_message m = {.op = CONTROL_STOP,
                                .spawn = stop->spawn,
                                .mode = stop->mode,
                                .grace_ms = stop->grace_ms,
                                .signal = stop->signal};
    struct err e;

    if (!s || supervisor->fd < 0 || s->asked >= stop->mode || control_send(supervisor->fd, &m, &e))
        return; /* the next reconcile asks again */
    s->asked = stop->mode;
}

void supervisors_forget(struct supervisors *all, int64_t job, int64_t spawn)
{
    struct supervisor *supervisor = supervisor_find(all, job);
    struct supervised_spawn *s = supervisor ? spawn_find(supervisor, spawn) : NULL;
    struct control_message m = {.op = CONTROL_FORGET, .spawn = spawn};
    struct err e;

    if (!s || supervisor->fd < 0 || control_send(supervisor->fd, &m, &e))
        return;
    if (record_remove(supervisor->dir, spawn, &e)) /* it may be one that supervisors_refuse has written */
        log_warn("record_not_removed", "job=%" PRId64 " spawn=%" PRId64 " why=%s", job, spawn, LOG_Q(e.msg));
    spawn_drop(supervisor, (size_t)(s - supervisor->spawns));
}

void supervisors_renew(struct supervisors *all, int64_t job, int64_t sent, int64_t lease_ms)
{
    struct supervisor *supervisor = supervisor_find(all, job);
    struct control_message m = {.op = CONTROL_LEASE, .lease_sent = sent, .lease_ms = lease_ms};
    struct err e;

    if (supervisor && supervisor->fd >= 0 && control_send(supervisor->fd, &m, &e))
        log_debug("lease_not_passed_on", "job=%" PRId64 " why=%s", job, LOG_Q(e.msg));
}

/* ---- what is known */

const struct spawn_fact **supervisors_known(struct supervisors *all, size_t *count)
{
    const struct spawn_fact **known = NULL;
    size_t cap = 0;

    *count = 0;
    for (size_t i = 0; i < all->count; i++)
        for (size_t k = 0; k < all->items[i]->count; k++) {
            known = array_grow(known, *count, &cap, sizeof(*known));
            known[(*count)++] = &all->items[i]->spawns[k].fact;
        }
    return known;
}

bool supervisors_know(struct supervisors *all, int64_t job, int64_t spawn)
{
    struct supervisor *supervisor = supervisor_find(all, job);

    return supervisor && spawn_find(supervisor, spawn);
}

/* A job of which nothing is known is settled although no supervisor is connected: no record means no spawn,
 * and the first order makes its supervisor necessary. */
bool supervisors_settled(void *supervisors, int64_t job)
{
    struct supervisor *supervisor = supervisor_find(supervisors, job);

    return !supervisor || supervisor->synced || (supervisor->fd < 0 && !supervisor->count);
}

size_t supervisors_children(const struct supervisors *all)
{
    return all->child_count;
}

void supervisors_reap(struct supervisors *all)
{
    int status;
    pid_t pid;

    /* all children: as the first process of a container the agent also inherits the orphans of dead
     * supervisors */
    while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
        for (size_t i = 0; i < all->child_count; i++)
            if (all->children[i] == pid)
                all->children[i] = all->children[--all->child_count];
}

void supervisors_sweep(struct supervisors *all, bool (*wanted)(void *ctx, int64_t job), void *ctx)
{
    for (size_t i = all->count; i-- > 0;) {
        CLEANUP(free_text) char *base = NULL;
        struct supervisor *supervisor = all->items[i];
        struct err e;

        if (supervisor->fd >= 0 || supervisor->count || supervisor->needed || wanted(ctx, supervisor->job))
            continue;
        base = supervisors_run_base(all, supervisor->job);
        if (file_remove_tree(base, &e) || file_remove_tree(supervisor->dir, &e)) {
            log_warn("directory_not_removed", "job=%" PRId64 " why=%s", supervisor->job, LOG_Q(e.msg));
            if (e.code ==
                ERR_DEADLINE_EXCEEDED) { /* a large directory: the rest later, the loop has other work */
                all->items[i] = all->items[0];
                all->items[0] = supervisor; /* last in the order of removal, so that others get their turn */
                return;
            }
        }
        supervisor_free(supervisor);
        all->items[i] = all->items[--all->count];
    }
}
