#include "daemon/agent/supervisor.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <uv.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "daemon/supervisor/protocol/record.h"
#include "daemon/supervisor/protocol/socket.h"

#define TURN 256      /* messages of one supervisor before the others get their turn */
#define LAST_TURNS 64 /* before the connection closes */

struct supervised_spawn *supervisor_find_spawn(struct supervisor *supervisor, int64_t spawn)
{
    for (size_t i = 0; i < supervisor->count; i++)
        if (supervisor->spawns[i].fact.spawn == spawn)
            return &supervisor->spawns[i];
    return NULL;
}

struct supervised_spawn *supervisor_add_spawn(struct supervisor *supervisor)
{
    supervisor->spawns =
        array_grow(supervisor->spawns, supervisor->count, &supervisor->cap, sizeof(*supervisor->spawns));
    memset(&supervisor->spawns[supervisor->count], 0, sizeof(*supervisor->spawns));
    return &supervisor->spawns[supervisor->count++];
}

void supervisor_drop_spawn(struct supervisor *supervisor, size_t at)
{
    spawn_fact_release(&supervisor->spawns[at].fact);
    spawn_answer_release(&supervisor->spawns[at].answered);
    memmove(&supervisor->spawns[at], &supervisor->spawns[at + 1],
            (supervisor->count - at - 1) * sizeof(*supervisor->spawns));
    supervisor->count--;
}

struct supervisor *supervisor_create(struct uv_loop_s *loop, int64_t job, char *dir,
                                     const struct supervisor_events *events)
{
    struct supervisor *s = xcalloc(1, sizeof(*s));

    *s = (struct supervisor){.events = events, .loop = loop, .job = job, .dir = dir, .fd = -1};
    return s;
}

static void poll_handle_free(uv_handle_t *handle)
{
    free(handle);
}

void supervisor_disconnect(struct supervisor *supervisor)
{
    if (supervisor->poll)
        uv_close((uv_handle_t *)supervisor->poll, poll_handle_free);
    supervisor->poll = NULL;
    close_fd(&supervisor->fd);
    supervisor->fd = -1;
    supervisor->synced = false;
}

void supervisor_free(struct supervisor *supervisor)
{
    supervisor_disconnect(supervisor);
    while (supervisor->count)
        supervisor_drop_spawn(supervisor, supervisor->count - 1);
    free(supervisor->spawns);
    free(supervisor->dir);
    free(supervisor);
}

enum err_code supervisor_load_records(struct supervisor *s, struct err *e)
{
    CLEANUP(record_list_release) struct record_list found = {0};

    if (record_list(s->dir, &found, e))
        return e->code;
    for (size_t i = 0; i < found.count; i++) {
        struct supervised_spawn *spawn = supervisor_add_spawn(s);

        spawn_fact_copy(&spawn->fact, &found.items[i]);
        spawn->fact.job = s->job; /* an older supervisor does not write the job number */
    }
    return ERR_OK;
}

/* ---- messages from the supervisor */

static void supervisor_lost(struct supervisor *supervisor)
{
    /* If it ended before it said anything, the next one may do so, too: retry_at keeps the time after this try. */
    if (supervisor->launched && !supervisor->synced)
        supervisor->early_ends++;
    else
        supervisor->retry_at = clock_boot_ms();
    supervisor_disconnect(supervisor);
    log_debug("supervisor_gone", "job=%" PRId64 " spawns=%zu", supervisor->job, supervisor->count);
    supervisor->events->on_change(supervisor->events->user);
}

/* A spawn that the supervisor did not name does not exist: the order never reached it, or the supervisor has
 * forgotten the record. */
static void spawns_synced(struct supervisor *supervisor)
{
    for (size_t i = supervisor->count; i-- > 0;)
        if (!supervisor->spawns[i].heard)
            supervisor_drop_spawn(supervisor, i);
    supervisor->synced = true;
    supervisor->needed = false;
    supervisor->early_ends = 0;
    supervisor->trouble.code = ERR_OK;
}

static void fact_take(struct supervisor *supervisor, const struct spawn_fact *fact)
{
    struct supervised_spawn *s = supervisor_find_spawn(supervisor, fact->spawn);

    if (!s)
        s = supervisor_add_spawn(supervisor);
    spawn_fact_copy(&s->fact, fact);
    s->fact.job = supervisor->job; /* an older supervisor does not send the job number */
    s->heard = true;
}

static void message_take(struct supervisor *supervisor, const struct control_message *m)
{
    const struct supervisor_events *events = supervisor->events;

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
    /* The connection starts with a hello, and the others are sent by agents only: nothing to do. */
    case CONTROL_HELLO:
    case CONTROL_START:
    case CONTROL_STOP:
    case CONTROL_FORGET:
    case CONTROL_LEASE:
    case CONTROL_ANSWER:
        break;
    }
}

/* Takes up to TURN messages. Returns false when there is none left, or the connection is lost. */
static bool supervisor_hear(struct supervisor *supervisor)
{
    for (int i = 0; supervisor->fd >= 0 && i < TURN; i++) {
        CLEANUP(control_message_release) struct control_message m;
        struct err e;

        switch (control_receive(supervisor->fd, &m, &e)) {
        case ERR_OK:
            message_take(supervisor, &m);
            break;
        case ERR_UNAVAILABLE:
            return false;
        case ERR_INVALID_ARGUMENT: /* a message of another version; the next message may be valid */
            log_warn("control_message_refused", "job=%" PRId64 " why=%s", supervisor->job, LOG_Q(e.msg));
            break;
        default:
            supervisor_lost(supervisor);
            return false;
        }
    }
    return supervisor->fd >= 0;
}

static void on_supervisor_readable(uv_poll_t *poll, int status, int events)
{
    (void)status;
    (void)events;
    (void)supervisor_hear(poll->data);
}

void supervisor_let_go(struct supervisor *supervisor)
{
    for (int i = 0; i < LAST_TURNS && supervisor_hear(supervisor); i++)
        ;
    supervisor_disconnect(supervisor);
}

void supervisor_connected(struct supervisor *supervisor, int fd)
{
    supervisor->fd = fd;
    supervisor->synced = supervisor->launched = false;
    for (size_t i = 0; i < supervisor->count; i++) {
        supervisor->spawns[i].asked = STOP_NONE;
        spawn_answer_release(&supervisor->spawns[i].answered);
        supervisor->spawns[i].heard = false;
    }
    supervisor->poll = xcalloc(1, sizeof(*supervisor->poll));
    supervisor->poll->data = supervisor;
    BUG_ON(uv_poll_init(supervisor->loop, supervisor->poll, fd));
    BUG_ON(uv_poll_start(supervisor->poll, UV_READABLE, on_supervisor_readable));
}
