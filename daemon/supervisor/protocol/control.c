#include "daemon/supervisor/protocol/control.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

static const char *const op_names[] = {"hello", "start",  "stop",   "forget", "lease",
                                       "fact",  "report", "synced", "answer"};

static int name_find(const char *const *names, size_t count, const char *text)
{
    for (size_t i = 0; text && i < count; i++)
        if (!strcmp(names[i], text))
            return (int)i;
    return -1;
}

bool spawn_answer_equal(const struct spawn_answer *a, const struct spawn_answer *b)
{
    return a->commit == b->commit && a->stale == b->stale && a->agrees == b->agrees &&
           a->allowed == b->allowed && a->stop_step == b->stop_step && !a->error == !b->error &&
           (!a->error || !strcmp(a->error, b->error));
}

void spawn_answer_copy(struct spawn_answer *to, const struct spawn_answer *from)
{
    struct spawn_answer copy = *from;

    copy.error = xstrdup(from->error);
    spawn_answer_release(to);
    *to = copy;
}

void spawn_answer_release(struct spawn_answer *a)
{
    free((char *)a->error);
    memset(a, 0, sizeof(*a));
}

static void answer_encode(struct jout *o, const struct spawn_answer *a)
{
    jout_int(o, "commit", a->commit);
    jout_text(o, "error", a->error);
    jout_bool(o, "stale", a->stale);
    jout_bool(o, "agrees", a->agrees);
    jout_int(o, "allowed", a->allowed);
    jout_int(o, "stop_step", a->stop_step);
}

static void answer_decode(struct spawn_answer *a, const json_t *obj)
{
    a->commit = json_get_int(obj, "commit", 0);
    a->error = xstrdup(json_get_text(obj, "error", NULL));
    a->stale = json_get_bool(obj, "stale", false);
    a->agrees = json_get_bool(obj, "agrees", false);
    a->allowed = json_get_int(obj, "allowed", 0);
    a->stop_step = json_get_int(obj, "stop_step", 0);
}

void control_encode(const struct control_message *m, struct buf *out)
{
    struct jout o = {.buf = out};

    jout_open(&o, NULL, '{');
    jout_text(&o, "op", op_names[m->op]);
    switch (m->op) {
    case CONTROL_HELLO:
        jout_int(&o, "job", m->job);
        jout_text(&o, "node", m->node);
        break;
    case CONTROL_START:
        spawn_order_encode(&o, &m->order);
        break;
    case CONTROL_STOP:
        /* the members that are left out have a default, which an older reader knows as well */
        jout_int(&o, "mode", m->mode);
        jout_int(&o, "grace_ms", m->grace_ms);
        if (m->signal)
            jout_int(&o, "signal", m->signal);
        jout_int(&o, "spawn", m->spawn);
        break;
    case CONTROL_FORGET:
        jout_int(&o, "spawn", m->spawn);
        break;
    case CONTROL_LEASE:
        jout_int(&o, "lease_sent", m->lease_sent);
        jout_int(&o, "lease_ms", m->lease_ms);
        break;
    case CONTROL_FACT:
        spawn_fact_encode(&o, &m->fact);
        break;
    case CONTROL_REPORT:
        metric_report_encode(&o, &m->report);
        break;
    case CONTROL_ANSWER:
        jout_int(&o, "spawn", m->spawn);
        answer_encode(&o, &m->answer);
        break;
    case CONTROL_SYNCED:
        break;
    }
    jout_close(&o, '}');
}

static enum err_code body_get(struct control_message *m, json_t *obj, struct err *e)
{
    switch (m->op) {
    case CONTROL_START:
        return spawn_order_decode(&m->order, obj, e);
    case CONTROL_FACT:
        return spawn_fact_decode(&m->fact, obj, e);
    case CONTROL_REPORT:
        return metric_report_decode(&m->report, obj, e);
    case CONTROL_ANSWER:
        m->spawn = json_get_int(obj, "spawn", 0);
        answer_decode(&m->answer, obj);
        return ERR_OK;
    case CONTROL_HELLO:
    case CONTROL_STOP:
    case CONTROL_FORGET:
    case CONTROL_LEASE:
    case CONTROL_SYNCED:
        break;
    }
    /* the short messages share their members */
    m->job = json_get_int(obj, "job", 0);
    m->spawn = json_get_int(obj, "spawn", 0);
    m->node = xstrdup(json_get_text(obj, "node", NULL));
    m->mode = (enum stop_mode)json_get_int(obj, "mode", STOP_NONE);
    m->grace_ms = json_get_int(obj, "grace_ms", 0);
    m->signal = (int)json_get_int(obj, "signal", 0);
    m->lease_sent = json_get_int(obj, "lease_sent", 0);
    m->lease_ms = json_get_int(obj, "lease_ms", 0);
    if (m->mode > STOP_KILL)
        return err_set(e, ERR_INVALID_ARGUMENT, "unknown stop mode %d", (int)m->mode);
    return ERR_OK;
}

enum err_code control_decode(struct control_message *out, const char *text, size_t len, struct err *e)
{
    CLEANUP(json_release) json_t *obj = NULL;
    int op;

    memset(out, 0, sizeof(*out));
    if (json_parse(text, len, CONTROL_MESSAGE_MAX, &obj, e))
        return e->code;
    op = name_find(op_names, ARRAY_LEN(op_names), json_get_text(obj, "op", NULL));
    if (op < 0)
        return err_set(e, ERR_INVALID_ARGUMENT, "unknown control message");
    out->op = (enum control_op)op;
    return body_get(out, obj, e);
}

void control_message_release(struct control_message *m)
{
    free(m->node);
    spawn_order_release(&m->order);
    spawn_fact_release(&m->fact);
    metric_report_release(&m->report);
    spawn_answer_release(&m->answer);
    memset(m, 0, sizeof(*m));
}
