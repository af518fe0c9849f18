#include "daemon/supervisor/agent_link.h"

#include <fcntl.h>

#include "base/clock.h"
#include "base/mem.h"
#include "daemon/supervisor/protocol/socket.h"

void agent_link_attach(struct agent_link *t, int fd)
{
    agent_link_detach(t);
    (void)fcntl(fd, F_SETFD, FD_CLOEXEC);
    t->fd = fd;
    t->greet = t->sync = true;
}

void agent_link_detach(struct agent_link *t)
{
    close_fd(&t->fd);
    t->fd = -1;
    t->blocked = false;
}

void agent_link_release(struct agent_link *t)
{
    agent_link_detach(t);
    outbox_release(&t->outbox);
}

/* Remembers whether the agent's queue is full; returns the code. */
static enum err_code result_note(struct agent_link *t, enum err_code code)
{
    t->blocked = code == ERR_UNAVAILABLE;
    return code;
}

static enum err_code message_send(struct agent_link *t, const struct control_message *m, struct err *e)
{
    return result_note(t, control_send(t->fd, m, e));
}

static enum err_code facts_send(struct agent_link *t, struct spawn *const *spawns, size_t count, bool ended,
                                struct err *e)
{
    for (size_t i = 0; i < count; i++) {
        struct spawn *s = spawns[i];
        struct control_message m = {.op = CONTROL_FACT, .fact = s->fact}; /* borrowed for the call */

        if (!s->dirty || spawn_ended(s) != ended)
            continue;
        if (message_send(t, &m, e))
            return e->code;
        s->dirty = false;
    }
    return ERR_OK;
}

/* A report that cannot be sent although the agent is there (it is too large) is dropped. */
static enum err_code reports_send(struct agent_link *t, struct err *e)
{
    const struct outbox_item *item;

    while ((item = outbox_first(&t->outbox))) {
        enum err_code code = result_note(t, control_send_text(t->fd, item->text, item->len, e));

        if (code == ERR_UNAVAILABLE || code == ERR_ABORTED)
            return code;
        outbox_pop(&t->outbox);
    }
    return ERR_OK;
}

static enum err_code hello_send(struct agent_link *t, const struct spawn_site *site, struct err *e)
{
    CLEANUP(free_text) char *node = xstrdup(site->node);
    struct control_message hello = {.op = CONTROL_HELLO, .job = site->job, .node = node};

    if (!t->greet)
        return ERR_OK;
    if (message_send(t, &hello, e))
        return e->code;
    t->greet = false;
    return ERR_OK;
}

static enum err_code synced_send(struct agent_link *t, struct err *e)
{
    const struct control_message synced = {.op = CONTROL_SYNCED};

    if (!t->sync)
        return ERR_OK;
    if (message_send(t, &synced, e))
        return e->code;
    t->sync = false;
    return ERR_OK;
}

/* The fact of an ended spawn is sent after its reports, because the agent and the coordinator accept no reports after
 * it. */
bool agent_link_tell(struct agent_link *t, const struct spawn_site *site, struct spawn *const *spawns,
                     size_t count)
{
    struct err e;

    if (t->fd < 0 || t->blocked)
        return true;
    if (!hello_send(t, site, &e) && !facts_send(t, spawns, count, false, &e) && !reports_send(t, &e) &&
        !facts_send(t, spawns, count, true, &e) && !synced_send(t, &e))
        return true;
    return t->blocked;
}

struct report_place {
    struct agent_link *talk;
    const struct spawn *spawn;
    const char *captured; /* as in struct metric_report */
};

static void report_queue(void *ctx, const char *line)
{
    struct report_place *at = ctx;
    const struct control_message m = {.op = CONTROL_REPORT,
                                      .report = {.spawn = at->spawn->fact.spawn,
                                                 .time_ms = clock_wall_ms(),
                                                 .text = line,
                                                 .captured = at->captured}};
    struct buf text = {0};
    size_t len;

    control_encode(&m, &text);
    len = text.len;
    outbox_push(&at->talk->outbox, buf_steal(&text), len);
}

void agent_link_take_reports(struct agent_link *t, struct spawn *s, size_t limit)
{
    struct report_place at = {t, s, NULL};

    spawn_read_reports(s, limit, report_queue, &at);
}

void agent_link_take_captured(struct agent_link *t, struct spawn *s, size_t limit)
{
    struct report_place at = {t, s, s->capture.source};

    capture_child_read(&s->capture, limit, report_queue, &at);
}
