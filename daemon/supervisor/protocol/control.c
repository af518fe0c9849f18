#include "daemon/supervisor/protocol/control.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"
#include "daemon/supervisor/protocol/message.h"

static const char *const op_names[] = {"hello", "start", "stop",   "forget",
                                       "lease", "fact",  "report", "synced"};
static const char *const state_names[] = {"starting", "running", "stopping", "exited"};

const char *spawn_state_name(enum spawn_state state)
{
    return state_names[state];
}

static int name_find(const char *const *names, size_t count, const char *text)
{
    for (size_t i = 0; text && i < count; i++)
        if (!strcmp(names[i], text))
            return (int)i;
    return -1;
}

char *text_member(const json_t *obj, const char *key)
{
    return xstrdup(json_get_text(obj, key, NULL));
}

static void texts_put(struct jout *o, const char *key, char *const *list)
{
    if (!list)
        return;
    jout_open(o, key, '[');
    for (; *list; list++)
        jout_text(o, NULL, *list);
    jout_close(o, ']');
}

static char **texts_get(const json_t *obj, const char *key)
{
    const json_t *list = json_object_get(obj, key), *item;
    char **out = NULL;
    size_t i;

    if (!json_is_array(list))
        return NULL;
    json_array_foreach(list, i, item) if (json_is_string(item)) out =
        strv_append(out, json_string_value(item));
    return out;
}

static void order_put(struct jout *o, const struct spawn_order *s)
{
    jout_int(o, "spawn", s->spawn);
    jout_int(o, "generation", s->generation);
    jout_int(o, "rank", s->rank);
    jout_int(o, "local_rank", s->local_rank);
    jout_text(o, "id", s->id);
    jout_text(o, "owner", s->owner);
    texts_put(o, "argv", s->argv);
    texts_put(o, "env", s->env);
    jout_text(o, "workdir", s->workdir);
    jout_text(o, "log_dir", s->log_dir);
    if (s->token)
        jout_text(o, "token", s->token);
    if (s->user)
        jout_text(o, "user", s->user);
    texts_put(o, "gpu_uuids", s->gpu_uuids);
    jout_int(o, "gpu_slots", s->gpu_slots);
    jout_int(o, "master_port", s->master_port);
    jout_bool(o, "native", s->native);
    jout_int(o, "lease_sent", s->lease_sent);
    jout_int(o, "lease_ms", s->lease_ms);
    jout_int(o, "grace_ms", s->grace_ms);
}

static enum err_code order_get(struct spawn_order *s, const json_t *obj, struct err *e)
{
    s->spawn = json_get_int(obj, "spawn", 0);
    s->generation = json_get_int(obj, "generation", 0);
    s->rank = (int)json_get_int(obj, "rank", 0);
    s->local_rank = (int)json_get_int(obj, "local_rank", 0);
    s->id = text_member(obj, "id");
    s->owner = text_member(obj, "owner");
    s->argv = texts_get(obj, "argv");
    s->env = texts_get(obj, "env");
    s->workdir = text_member(obj, "workdir");
    s->log_dir = text_member(obj, "log_dir");
    s->token = text_member(obj, "token");
    s->user = text_member(obj, "user");
    s->gpu_uuids = texts_get(obj, "gpu_uuids");
    s->gpu_slots = (int)json_get_int(obj, "gpu_slots", 1);
    s->master_port = (int)json_get_int(obj, "master_port", 0);
    s->native = json_get_bool(obj, "native", false);
    s->lease_sent = json_get_int(obj, "lease_sent", 0);
    s->lease_ms = json_get_int(obj, "lease_ms", 0);
    s->grace_ms = json_get_int(obj, "grace_ms", 0);
    if (s->spawn <= 0 || !s->id || !s->owner || !s->argv || !s->log_dir)
        return err_set(e, ERR_INVALID_ARGUMENT, "start order without spawn, id, owner, argv or log_dir");
    return ERR_OK;
}

void fact_put(struct jout *o, const struct spawn_fact *f)
{
    jout_int(o, "spawn", f->spawn);
    jout_int(o, "generation", f->generation);
    jout_int(o, "rank", f->rank);
    jout_int(o, "local_rank", f->local_rank);
    jout_text(o, "state", spawn_state_name(f->state));
    jout_int(o, "pid", f->pid);
    jout_int(o, "started_ms", f->started_ms);
    jout_int(o, "ended_ms", f->ended_ms);
    jout_int(o, "code", f->code);
    jout_int(o, "signal", f->signal);
    jout_bool(o, "out_of_memory", f->out_of_memory);
    jout_bool(o, "lost", f->lost);
    jout_bool(o, "not_started", f->not_started);
    jout_bool(o, "port_busy", f->port_busy);
    jout_bool(o, "lease_expired", f->lease_expired);
    jout_bool(o, "node_trouble", f->node_trouble);
    jout_bool(o, "no_account", f->no_account);
    jout_bool(o, "stopped", f->stopped);
    jout_text(o, "message", f->message);
    jout_text(o, "stderr_tail", f->stderr_tail);
    jout_text(o, "id", f->id);
    jout_text(o, "owner", f->owner);
    jout_text(o, "cgroup", f->cgroup);
}

enum err_code fact_get(struct spawn_fact *f, const json_t *obj, struct err *e)
{
    int state = name_find(state_names, ARRAY_LEN(state_names), json_get_text(obj, "state", NULL));

    f->spawn = json_get_int(obj, "spawn", 0);
    f->generation = json_get_int(obj, "generation", 0);
    f->rank = (int)json_get_int(obj, "rank", 0);
    f->local_rank = (int)json_get_int(obj, "local_rank", 0);
    f->pid = json_get_int(obj, "pid", 0);
    f->started_ms = json_get_int(obj, "started_ms", 0);
    f->ended_ms = json_get_int(obj, "ended_ms", 0);
    f->code = (int)json_get_int(obj, "code", 0);
    f->signal = (int)json_get_int(obj, "signal", 0);
    f->out_of_memory = json_get_bool(obj, "out_of_memory", false);
    f->lost = json_get_bool(obj, "lost", false);
    f->not_started = json_get_bool(obj, "not_started", false);
    f->port_busy = json_get_bool(obj, "port_busy", false);
    f->lease_expired = json_get_bool(obj, "lease_expired", false);
    f->node_trouble = json_get_bool(obj, "node_trouble", false);
    f->no_account = json_get_bool(obj, "no_account", false);
    f->stopped = json_get_bool(obj, "stopped", false);
    f->message = text_member(obj, "message");
    f->stderr_tail = text_member(obj, "stderr_tail");
    f->id = text_member(obj, "id");
    f->owner = text_member(obj, "owner");
    f->cgroup = text_member(obj, "cgroup");
    if (state < 0 || f->spawn <= 0)
        return err_set(e, ERR_INVALID_ARGUMENT, "fact without a spawn or with an unknown state");
    f->state = (enum spawn_state)state;
    return ERR_OK;
}

static void report_put(struct jout *o, const struct spawn_report *r)
{
    jout_int(o, "spawn", r->spawn);
    jout_int(o, "generation", r->generation);
    jout_int(o, "rank", r->rank);
    jout_int(o, "time_ms", r->time_ms);
    if (r->has_step)
        jout_int(o, "step", r->step);
    jout_open(o, "metrics", '{');
    for (size_t i = 0; i < r->count; i++)
        jout_real(o, r->metrics[i].name, r->metrics[i].value);
    jout_close(o, '}');
}

static enum err_code report_get(struct spawn_report *r, json_t *obj, struct err *e)
{
    json_t *metrics = json_object_get(obj, "metrics"), *value;
    const char *key;

    r->spawn = json_get_int(obj, "spawn", 0);
    r->generation = json_get_int(obj, "generation", 0);
    r->rank = (int)json_get_int(obj, "rank", 0);
    r->time_ms = json_get_int(obj, "time_ms", 0);
    r->has_step = json_is_integer(json_object_get(obj, "step"));
    r->step = json_get_int(obj, "step", 0);
    json_object_foreach(metrics, key, value)
    {
        if (r->count == REPORT_METRICS)
            break;
        snprintf(r->metrics[r->count].name, REPORT_NAME, "%s", key);
        r->metrics[r->count++].value = json_is_number(value) ? json_number_value(value) : NAN;
    }
    if (r->spawn <= 0)
        return err_set(e, ERR_INVALID_ARGUMENT, "report without a spawn");
    return ERR_OK;
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
        order_put(&o, &m->order);
        break;
    case CONTROL_STOP:
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
        fact_put(&o, &m->fact);
        break;
    case CONTROL_REPORT:
        report_put(&o, &m->report);
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
        return order_get(&m->order, obj, e);
    case CONTROL_FACT:
        return fact_get(&m->fact, obj, e);
    case CONTROL_REPORT:
        return report_get(&m->report, obj, e);
    case CONTROL_HELLO:
    case CONTROL_STOP:
    case CONTROL_FORGET:
    case CONTROL_LEASE:
    case CONTROL_SYNCED:
        break;
    }
    m->job = json_get_int(obj, "job", 0);
    m->spawn = json_get_int(obj, "spawn", 0);
    m->node = text_member(obj, "node");
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
    memset(m, 0, sizeof(*m));
}

void spawn_order_release(struct spawn_order *o)
{
    free(o->id);
    free(o->owner);
    strv_free(o->argv);
    strv_free(o->env);
    free(o->workdir);
    free(o->log_dir);
    free(o->token);
    free(o->user);
    strv_free(o->gpu_uuids);
    memset(o, 0, sizeof(*o));
}

void spawn_fact_copy(struct spawn_fact *to, const struct spawn_fact *from)
{
    struct spawn_fact copy = *from;

    copy.message = xstrdup(from->message);
    copy.stderr_tail = xstrdup(from->stderr_tail);
    copy.id = xstrdup(from->id);
    copy.owner = xstrdup(from->owner);
    copy.cgroup = xstrdup(from->cgroup);
    spawn_fact_release(to);
    *to = copy;
}

void spawn_fact_release(struct spawn_fact *f)
{
    free(f->message);
    free(f->stderr_tail);
    free(f->id);
    free(f->owner);
    free(f->cgroup);
    memset(f, 0, sizeof(*f));
}
