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
#include "daemon/agent/supervisor.h"
#include "daemon/agent/supervisor_launch.h"
#include "daemon/supervisor/protocol/record.h"
#include "daemon/supervisor/protocol/socket.h"

#define RETRY_MS 200 /* between two tries to reach or start a supervisor */
/* Supervisors that end at once before orders are refused. One or two mean nothing: the former supervisor of the job may
 * be ending, and has its lock until it is gone. */
#define EARLY_ENDS 3
/* The longest time for the directories of all ended jobs before the loop does its other work, and when to go on if nothing
 * else wakes the loop. */
#define SWEEP_MS 500
#define SWEEP_PAUSE_MS 1000

struct supervisors {
    struct uv_loop_s *loop;
    struct supervisors_options options;
    struct supervisor_events events;
    struct supervisor **items;
    size_t count, cap;
    pid_t *children; /* supervisors that this process has started */
    size_t child_count, child_cap;
};

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
    supervisor = supervisor_create(all->loop, job, xasprintf("%s/run/%" PRId64, all->options.state, job),
                                   &all->events);
    all->items = array_grow(all->items, all->count, &all->cap, sizeof(*all->items));
    all->items[all->count++] = supervisor;
    return supervisor;
}

/* ---- finding and starting them */

static void supervisor_trouble_set(struct supervisor *supervisor, const struct err *why)
{
    if (!supervisor->trouble.code || strcmp(supervisor->trouble.msg, why->msg) != 0)
        log_error("supervisor_not_started", "job=%" PRId64 " why=%s", supervisor->job, LOG_Q(why->msg));
    supervisor->trouble = *why; /* the next reconcile refuses the orders that wait */
}

static void supervisor_attend(struct supervisors *all, struct supervisor *supervisor, int64_t now)
{
    struct err e;
    pid_t pid;
    int fd;

    supervisor->retry_at = now + RETRY_MS;
    /* Found again: a supervisor outlives its agent and listens on its socket. Attached ones are not looked
     * for: each ends with the agent that started it. */
    if (!all->options.attached && !control_connect(supervisor->dir, &fd, &e)) {
        supervisor_connected(supervisor, fd);
        supervisor->trouble.code = ERR_OK;
        log_info("supervisor_found", "job=%" PRId64, supervisor->job);
        return;
    }
    /* Started anew: it takes over the records, so it also ends what a dead supervisor left. If the old one
     * still lives but did not answer, its lock makes the new one fail, and the next try connects. */
    if (supervisor_launch(&all->options, supervisor->job, supervisor->dir, &fd, &pid, &e)) {
        supervisor_trouble_set(supervisor, &e);
        return;
    }
    all->children = array_grow(all->children, all->child_count, &all->child_cap, sizeof(*all->children));
    all->children[all->child_count++] = pid;
    supervisor_connected(supervisor, fd);
    supervisor->launched = true;
    log_info("supervisor_started", "job=%" PRId64 " pid=%d", supervisor->job, (int)pid);
}

int64_t supervisors_tend(struct supervisors *all, int64_t now)
{
    int64_t next = INT64_MAX;
    struct err e;

    for (size_t i = 0; i < all->count; i++) {
        struct supervisor *supervisor = all->items[i];
        bool absent = supervisor->fd < 0 && (supervisor->needed || supervisor->count);

        supervisor->needed = false; /* an order that still waits sets it again at the next reconcile */
        if (!absent && supervisor->fd < 0) { /* the next order begins with a new try */
            supervisor->trouble.code = ERR_OK;
            supervisor->early_ends = 0;
        }
        /* A half-finished upgrade, for example: the program is there, but a library that it needs is not. */
        if (absent && supervisor->early_ends >= EARLY_ENDS) {
            err_set(&e, ERR_UNAVAILABLE, "it ended at once: see %s/%" PRId64 "/supervisor.%s.log",
                    all->options.log_dir, supervisor->job, all->options.node);
            supervisor_trouble_set(supervisor, &e);
        }
        if (absent && now >= supervisor->retry_at)
            supervisor_attend(all, supervisor, now);
        if (absent && supervisor->fd < 0 && supervisor->retry_at < next)
            next = supervisor->retry_at;
    }
    return next;
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
    while (!code && !(code = file_next_entry(d, path, &entry, e)) && entry) {
        char *end;
        int64_t job = strtoll(entry->d_name, &end, 10);

        if (job > 0 && !*end)
            code = supervisor_load_records(supervisor_get(all, job), e);
    }
    closedir(d);
    return code;
}

enum err_code supervisors_open(struct supervisors **out, struct uv_loop_s *loop,
                               const struct supervisors_options *options,
                               const struct supervisor_events *events, struct err *e)
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
        supervisor_let_go(all->items[i]);
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
    if (supervisor->fd < 0 && supervisor->trouble.code)
        return err_set(e, ERR_RESOURCE_EXHAUSTED, "its supervisor cannot be started: %.200s",
                       supervisor->trouble.msg);
    if (supervisor->fd < 0)
        return err_set(e, ERR_UNAVAILABLE, "the supervisor is not connected yet");
    m.order = *order; /* borrowed for the call */
    code = control_send(supervisor->fd, &m, e);
    if (code == ERR_ABORTED) /* it has just died: the loop will see its end of file */
        return err_set(e, ERR_UNAVAILABLE, "the supervisor has died");
    if (code)
        return code;
    s = supervisor_add_spawn(supervisor);
    s->fact = (struct spawn_fact){.job = job,
                                  .spawn = order->spawn,
                                  .first_generation = order->first_generation,
                                  .first_local_rank = order->first_local_rank,
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
    struct supervised_spawn *s = supervisor_add_spawn(supervisor);
    struct err e;

    s->fact = (struct spawn_fact){.job = job,
                                  .spawn = order->spawn,
                                  .first_generation = order->first_generation,
                                  .first_local_rank = order->first_local_rank,
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
    if (file_mkdirs(supervisor->dir, 0700, &e) ||
        record_write(supervisor->dir, &s->fact, !all->options.attached, &e))
        log_warn("record_not_written", "job=%" PRId64 " spawn=%" PRId64 " why=%s", job, order->spawn,
                 LOG_Q(e.msg));
}

void supervisors_stop(struct supervisors *all, const struct action *stop)
{
    struct supervisor *supervisor = supervisor_find(all, stop->job);
    struct supervised_spawn *s = supervisor ? supervisor_find_spawn(supervisor, stop->spawn) : NULL;
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

void supervisors_answer(struct supervisors *all, const struct action *action)
{
    const Ddp__V1__SpawnAnswer *from = action->wish->answer;
    struct supervisor *supervisor = supervisor_find(all, action->job);
    struct supervised_spawn *s = supervisor ? supervisor_find_spawn(supervisor, action->spawn) : NULL;
    struct control_message m = {.op = CONTROL_ANSWER, .spawn = action->spawn};
    struct err e;

    m.answer = (struct spawn_answer){.commit = from->commit,
                                     .stale = from->stale,
                                     .agrees = from->agrees,
                                     .allowed = from->allowed,
                                     .stop_step = from->stop_step,
                                     .error = *from->error ? from->error : NULL};
    if (!s || supervisor->fd < 0 || spawn_answer_equal(&m.answer, &s->answered) ||
        control_send(supervisor->fd, &m, &e))
        return; /* the next reconcile sends it again */
    spawn_answer_copy(&s->answered, &m.answer);
}

void supervisors_forget(struct supervisors *all, int64_t job, int64_t spawn)
{
    struct supervisor *supervisor = supervisor_find(all, job);
    struct supervised_spawn *s = supervisor ? supervisor_find_spawn(supervisor, spawn) : NULL;
    struct control_message m = {.op = CONTROL_FORGET, .spawn = spawn};
    struct err e;

    if (!s)
        return;
    /* Without a supervisor, a record of supervisors_refuse can still be removed. Otherwise the refused orders would need the
     * supervisor that could not be started for them. */
    if (supervisor->fd < 0 ? !supervisor->trouble.code || !s->fact.not_started
                           : control_send(supervisor->fd, &m, &e))
        return;
    if (record_remove(supervisor->dir, spawn, &e)) /* it may be one that supervisors_refuse has written */
        log_warn("record_not_removed", "job=%" PRId64 " spawn=%" PRId64 " why=%s", job, spawn, LOG_Q(e.msg));
    supervisor_drop_spawn(supervisor, (size_t)(s - supervisor->spawns));
}

void supervisors_renew(struct supervisors *all, int64_t job, int64_t sent, int64_t lease_ms)
{
    struct supervisor *supervisor = supervisor_find(all, job);
    struct control_message m = {.op = CONTROL_LEASE, .lease_sent = sent, .lease_ms = lease_ms};
    struct err e;

    if (supervisor && supervisor->fd >= 0 && control_send(supervisor->fd, &m, &e))
        log_debug("lease_not_passed_on", "job=%" PRId64 " why=%s", job, LOG_Q(e.msg));
}

/* ---- facts */

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

    return supervisor && supervisor_find_spawn(supervisor, spawn);
}

/* A job of which nothing is known is settled although no supervisor is connected: no record means no spawn,
 * and the first order makes its supervisor necessary. If it cannot be started, further orders are refused, too. */
bool supervisors_settled(void *supervisors, int64_t job)
{
    const struct supervisor *supervisor = supervisor_find(supervisors, job);
    bool refused = supervisor && supervisor->trouble.code;

    for (size_t i = 0; refused && i < supervisor->count; i++)
        refused = supervisor->spawns[i].fact.not_started;
    return !supervisor || supervisor->synced || (supervisor->fd < 0 && (!supervisor->count || refused));
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

int64_t supervisors_sweep(struct supervisors *all, bool (*wanted)(void *ctx, int64_t job), void *ctx)
{
    const int64_t end = clock_boot_ms() + (all->options.sweep_ms ? all->options.sweep_ms : SWEEP_MS);

    for (size_t i = all->count; i-- > 0;) {
        CLEANUP(free_text) char *base = NULL;
        struct supervisor *supervisor = all->items[i];
        struct err e;

        if (supervisor->fd >= 0 || supervisor->count || supervisor->needed || wanted(ctx, supervisor->job))
            continue;
        base = supervisors_run_base(all, supervisor->job);
        if (file_remove_tree_within(base, end - clock_boot_ms(), &e) ||
            file_remove_tree_within(supervisor->dir, end - clock_boot_ms(), &e)) {
            /* A large directory is removed in parts, because the loop has other work. */
            if (e.code == ERR_DEADLINE_EXCEEDED) {
                all->items[i] = all->items[0];
                /* Moves it to the end of the order of removal, so that the others get their turn. */
                all->items[0] = supervisor;
                return clock_boot_ms() + SWEEP_PAUSE_MS;
            }
            log_warn("directory_not_removed", "job=%" PRId64 " why=%s", supervisor->job, LOG_Q(e.msg));
        }
        supervisor_free(supervisor);
        all->items[i] = all->items[--all->count];
        /* The heartbeat is among the other work, so the limit is for all directories together. */
        if (clock_boot_ms() >= end)
            return clock_boot_ms() + SWEEP_PAUSE_MS;
    }
    return INT64_MAX;
}
