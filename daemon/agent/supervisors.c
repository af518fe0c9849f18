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

#define RETRY_MS 200 /* between two tries at a supervisor that does not come up */
#define TURN 256     /* messages of one supervisor before the others get their turn */

struct ward_spawn {
    struct spawn_fact fact;
    enum stop_mode asked; /* over this connection */
    bool heard;           /* over this connection */
};

struct ward {
    struct wards *wards;
    int64_t job;
    char *dir;
    int fd; /* -1: nobody there */
    uv_poll_t *poll;
    bool synced; /* all was said over this connection */
    bool needed; /* something waits for a supervisor */
    int64_t retry_at;
    struct ward_spawn *spawns;
    size_t count, cap;
};

struct wards {
    struct uv_loop_s *loop;
    struct wards_options options;
    struct wards_events events;
    struct ward **wards;
    size_t count, cap;
    pid_t *children; /* supervisors of our own starting */
    size_t child_count, child_cap;
};

static struct ward_spawn *find_spawn(struct ward *ward, int64_t spawn)
{
    for (size_t i = 0; i < ward->count; i++)
        if (ward->spawns[i].fact.spawn == spawn)
            return &ward->spawns[i];
    return NULL;
}

static struct ward_spawn *add_spawn(struct ward *ward)
{
    ward->spawns = array_grow(ward->spawns, ward->count, &ward->cap, sizeof(*ward->spawns));
    memset(&ward->spawns[ward->count], 0, sizeof(*ward->spawns));
    return &ward->spawns[ward->count++];
}

static void drop_spawn(struct ward *ward, size_t at)
{
    spawn_fact_release(&ward->spawns[at].fact);
    memmove(&ward->spawns[at], &ward->spawns[at + 1], (ward->count - at - 1) * sizeof(*ward->spawns));
    ward->count--;
}

static struct ward *find_ward(struct wards *w, int64_t job)
{
    for (size_t i = 0; i < w->count; i++)
        if (w->wards[i]->job == job)
            return w->wards[i];
    return NULL;
}

static struct ward *get_ward(struct wards *w, int64_t job)
{
    struct ward *ward = find_ward(w, job);

    if (ward)
        return ward;
    ward = xcalloc(1, sizeof(*ward));
    ward->wards = w;
    ward->job = job;
    ward->dir = xasprintf("%s/run/%" PRId64, w->options.state, job);
    ward->fd = -1;
    w->wards = array_grow(w->wards, w->count, &w->cap, sizeof(*w->wards));
    w->wards[w->count++] = ward;
    return ward;
}

static void free_handle(uv_handle_t *handle)
{
    free(handle);
}

static void disconnect(struct ward *ward)
{
    if (ward->poll)
        uv_close((uv_handle_t *)ward->poll, free_handle);
    ward->poll = NULL;
    close_fd(&ward->fd);
    ward->fd = -1;
    ward->synced = false;
}

static void free_ward(struct ward *ward)
{
    disconnect(ward);
    while (ward->count)
        drop_spawn(ward, ward->count - 1);
    free(ward->spawns);
    free(ward->dir);
    free(ward);
}

/* ---- what supervisors say */

static void lost_supervisor(struct ward *ward)
{
    disconnect(ward);
    ward->retry_at = clock_boot_ms();
    log_debug("supervisor_gone", "job=%" PRId64 " spawns=%zu", ward->job, ward->count);
    ward->wards->events.on_change(ward->wards->events.user);
}

/* What the supervisor did not speak of is not there: an order that never reached it, or a record it has
 * forgotten. */
static void end_of_list(struct ward *ward)
{
    for (size_t i = ward->count; i-- > 0;)
        if (!ward->spawns[i].heard)
            drop_spawn(ward, i);
    ward->synced = true;
    ward->needed = false;
}

static void hear_fact(struct ward *ward, const struct spawn_fact *fact)
{
    struct ward_spawn *s = find_spawn(ward, fact->spawn);

    if (!s)
        s = add_spawn(ward);
    spawn_fact_copy(&s->fact, fact);
    s->heard = true;
}

static void hear(struct ward *ward, const struct control_message *m)
{
    struct wards_events *events = &ward->wards->events;

    switch (m->op) {
    case CONTROL_FACT:
        hear_fact(ward, &m->fact);
        events->on_change(events->user);
        break;
    case CONTROL_SYNCED:
        end_of_list(ward);
        events->on_change(events->user);
        break;
    case CONTROL_REPORT:
        events->on_report(events->user, ward->job, &m->report);
        break;
    case CONTROL_HELLO:
    case CONTROL_START:
    case CONTROL_STOP:
    case CONTROL_FORGET:
    case CONTROL_LEASE:
        break;
    }
}

static void on_readable(uv_poll_t *poll, int status, int events)
{
    struct ward *ward = poll->data;

    (void)status;
    (void)events;
    for (int i = 0; ward->fd >= 0 && i < TURN; i++) {
        CLEANUP(control_message_release) struct control_message m;
        struct err e;

        switch (control_receive(ward->fd, &m, &e)) {
        case ERR_OK:
            hear(ward, &m);
            break;
        case ERR_UNAVAILABLE:
            return;
        case ERR_INVALID_ARGUMENT:
            log_warn("control_message_refused", "job=%" PRId64 " why=%s", ward->job, LOG_Q(e.msg));
            break;
        default:
            lost_supervisor(ward);
            return;
        }
    }
}

/* ---- finding and starting them */

static void connected(struct ward *ward, int fd)
{
    ward->fd = fd;
    ward->synced = false;
    for (size_t i = 0; i < ward->count; i++) {
        ward->spawns[i].asked = STOP_NONE;
        ward->spawns[i].heard = false;
    }
    ward->poll = xcalloc(1, sizeof(*ward->poll));
    ward->poll->data = ward;
    BUG_ON(uv_poll_init(ward->wards->loop, ward->poll, fd));
    BUG_ON(uv_poll_start(ward->poll, UV_READABLE, on_readable));
}

static void attend(struct ward *ward, int64_t now)
{
    struct wards *w = ward->wards;
    struct err e;
    pid_t pid;
    int fd;

    ward->retry_at = now + RETRY_MS;
    if (!w->options.attached && !control_connect(ward->dir, &fd, &e)) {
        connected(ward, fd);
        log_info("supervisor_found", "job=%" PRId64, ward->job);
        return;
    }
    if (ward_launch(&w->options, ward->job, ward->dir, &fd, &pid, &e)) {
        log_error("supervisor_not_started", "job=%" PRId64 " why=%s", ward->job, LOG_Q(e.msg));
        return;
    }
    w->children = array_grow(w->children, w->child_count, &w->child_cap, sizeof(*w->children));
    w->children[w->child_count++] = pid;
    connected(ward, fd);
    log_info("supervisor_started", "job=%" PRId64 " pid=%d", ward->job, (int)pid);
}

int64_t wards_tend(struct wards *w, int64_t now)
{
    int64_t next = INT64_MAX;

    for (size_t i = 0; i < w->count; i++) {
        struct ward *ward = w->wards[i];
        bool absent = ward->fd < 0 && (ward->needed || ward->count);

        ward->needed = false; /* whoever still needs it says so at the next look */
        if (absent && now >= ward->retry_at)
            attend(ward, now);
        if (absent && ward->fd < 0 && ward->retry_at < next)
            next = ward->retry_at;
    }
    return next;
}

static enum err_code load_ward(struct wards *w, int64_t job, struct err *e)
{
    CLEANUP(record_list_release) struct record_list found = {0};
    struct ward *ward = get_ward(w, job);

    if (record_list(ward->dir, &found, e))
        return e->code;
    for (size_t i = 0; i < found.count; i++) {
        struct ward_spawn *s = add_spawn(ward);

        spawn_fact_copy(&s->fact, &found.items[i]);
    }
    return ERR_OK;
}

static enum err_code load_all(struct wards *w, struct err *e)
{
    CLEANUP(free_text) char *path = xasprintf("%s/run", w->options.state);
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
            code = load_ward(w, job, e);
    }
    closedir(d);
    return code;
}

enum err_code wards_open(struct wards **out, struct uv_loop_s *loop, const struct wards_options *options,
                         const struct wards_events *events, struct err *e)
{
    struct wards *w = xcalloc(1, sizeof(*w));

    w->loop = loop;
    w->options = *options;
    w->events = *events;
    if (load_all(w, e)) {
        wards_close(w);
        return e->code;
    }
    *out = w;
    return ERR_OK;
}

void wards_let_go(struct wards *w)
{
    for (size_t i = 0; i < w->count; i++)
        disconnect(w->wards[i]);
}

void wards_close(struct wards *w)
{
    if (!w)
        return;
    for (size_t i = 0; i < w->count; i++)
        free_ward(w->wards[i]);
    free(w->wards);
    free(w->children);
    free(w);
}

char *wards_run_base(struct wards *w, int64_t job)
{
    return w->options.runtime ? xasprintf("%s/%" PRId64, w->options.runtime, job)
                              : xstrdup(get_ward(w, job)->dir);
}

/* ---- orders */

enum err_code wards_start(struct wards *w, int64_t job, struct spawn_order *order, struct err *e)
{
    struct ward *ward = get_ward(w, job);
    struct control_message m = {.op = CONTROL_START};
    enum err_code code;
    struct ward_spawn *s;

    ward->needed = true;
    if (ward->fd < 0)
        return err_set(e, ERR_UNAVAILABLE, "no supervisor yet");
    m.order = *order; /* borrowed for the call */
    code = control_send(ward->fd, &m, e);
    if (code == ERR_ABORTED) /* it has just died: its end of file is on the way */
        return err_set(e, ERR_UNAVAILABLE, "no supervisor any more");
    if (code)
        return code;
    s = add_spawn(ward);
    s->fact = (struct spawn_fact){.spawn = order->spawn,
                                  .generation = order->generation,
                                  .rank = order->rank,
                                  .local_rank = order->local_rank,
                                  .state = SPAWN_STARTING};
    s->heard = ward->synced; /* until then its list may still lack the order */
    spawn_order_release(order);
    return ERR_OK;
}

void wards_refuse(struct wards *w, int64_t job, const struct spawn_order *order, const char *why,
                  bool node_trouble, bool no_account)
{
    struct ward *ward = get_ward(w, job);
    struct ward_spawn *s = add_spawn(ward);
    struct err e;

    s->fact = (struct spawn_fact){.spawn = order->spawn,
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
    s->fact.message = xstrdup(why);
    s->heard = true;
    if (file_mkdirs(ward->dir, 0700, &e) || record_write(ward->dir, &s->fact, &e))
        log_warn("record_not_written", "job=%" PRId64 " spawn=%" PRId64 " why=%s", job, order->spawn,
                 LOG_Q(e.msg));
}

void wards_stop(struct wards *w, const struct action *stop)
{
    struct ward *ward = find_ward(w, stop->job);
    struct ward_spawn *s = ward ? find_spawn(ward, stop->spawn) : NULL;
    struct control_message m = {.op = CONTROL_STOP,
                                .spawn = stop->spawn,
                                .mode = stop->mode,
                                .grace_ms = stop->grace_ms,
                                .signal = stop->signal};
    struct err e;

    if (!s || ward->fd < 0 || s->asked >= stop->mode || control_send(ward->fd, &m, &e))
        return; /* asked again at the next look */
    s->asked = stop->mode;
}

void wards_forget(struct wards *w, int64_t job, int64_t spawn)
{
    struct ward *ward = find_ward(w, job);
    struct ward_spawn *s = ward ? find_spawn(ward, spawn) : NULL;
    struct control_message m = {.op = CONTROL_FORGET, .spawn = spawn};
    struct err e;

    if (!s || ward->fd < 0 || control_send(ward->fd, &m, &e))
        return;
    if (record_remove(ward->dir, spawn, &e)) /* one of our own making */
        log_warn("record_not_removed", "job=%" PRId64 " spawn=%" PRId64 " why=%s", job, spawn, LOG_Q(e.msg));
    drop_spawn(ward, (size_t)(s - ward->spawns));
}

void wards_renew(struct wards *w, int64_t job, int64_t sent, int64_t lease_ms)
{
    struct ward *ward = find_ward(w, job);
    struct control_message m = {.op = CONTROL_LEASE, .lease_sent = sent, .lease_ms = lease_ms};
    struct err e;

    if (ward && ward->fd >= 0 && control_send(ward->fd, &m, &e))
        log_debug("lease_not_passed_on", "job=%" PRId64 " why=%s", job, LOG_Q(e.msg));
}

/* ---- what is known */

struct known_spawn *wards_known(struct wards *w, size_t *count)
{
    struct known_spawn *known = NULL;
    size_t cap = 0;

    *count = 0;
    for (size_t i = 0; i < w->count; i++)
        for (size_t k = 0; k < w->wards[i]->count; k++) {
            known = array_grow(known, *count, &cap, sizeof(*known));
            known[(*count)++] = (struct known_spawn){w->wards[i]->job, &w->wards[i]->spawns[k].fact};
        }
    return known;
}

/* A job that nothing is known of has nothing to say: the order itself brings its supervisor up. */
bool wards_settled(void *wards, int64_t job)
{
    struct ward *ward = find_ward(wards, job);

    return !ward || ward->synced || (ward->fd < 0 && !ward->count);
}

size_t wards_children(const struct wards *w)
{
    return w->child_count;
}

void wards_reap(struct wards *w)
{
    int status;
    pid_t pid;

    /* all: where we are the first process of a container, orphans of dead supervisors are ours too */
    while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
        for (size_t i = 0; i < w->child_count; i++)
            if (w->children[i] == pid)
                w->children[i] = w->children[--w->child_count];
}

void wards_sweep(struct wards *w, bool (*wanted)(void *ctx, int64_t job), void *ctx)
{
    for (size_t i = w->count; i-- > 0;) {
        CLEANUP(free_text) char *base = NULL;
        struct ward *ward = w->wards[i];
        struct err e;

        if (ward->fd >= 0 || ward->count || ward->needed || wanted(ctx, ward->job))
            continue;
        base = wards_run_base(w, ward->job);
        if (file_remove_tree(base, &e) || file_remove_tree(ward->dir, &e)) {
            log_warn("directory_not_removed", "job=%" PRId64 " why=%s", ward->job, LOG_Q(e.msg));
            if (e.code == ERR_DEADLINE_EXCEEDED) { /* large: more of it later, the loop has other work */
                w->wards[i] = w->wards[0];
                w->wards[0] = ward; /* behind the others, which are no larger for it */
                return;
            }
        }
        free_ward(ward);
        w->wards[i] = w->wards[--w->count];
    }
}
