#include "daemon/coordinator/service/access/audit.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/log.h"
#include "base/mem.h"
#include "daemon/coordinator/service/access/auth.h"
#include "daemon/coordinator/service/commit_queue.h"
#include "daemon/coordinator/service/pool.h"
#include "daemon/coordinator/service/service_state.h"
#include "proto/ddp.pb-c.h"
#include "proto/rpc_codec.h"

/* One line for each change that a user made, written in the transaction that makes the change. Refused calls
 * have lines too, but a flood of them must not fill the disk or cost a commit each. So a caller's first
 * refused call within a minute has its own line, and all others of that minute share one line. If there are
 * more callers than entries in service.refusals, the remaining callers share the last entry. */

#define LIMIT_DEFAULT 100
#define LIMIT_MOST 10000
#define MINUTE_MS 60000

static void audit_write(struct service *s, const char *who, const char *origin, const char *what, int64_t job,
                        const char *text)
{
    struct audit_record *r = xmalloc(sizeof *r);
    *r = (struct audit_record){.time_ms = service_now().wall_ms,
                               .job = job,
                               .who = xstrdup(who),
                               .origin = xstrdup(origin),
                               .what = xstrdup(what),
                               .text = xstrdup(text)};
    rpc_utf8_clean(r->text);
    for (char *p = r->text; *p; p++)
        if (iscntrl((unsigned char)*p))
            *p = ' ';
    commit_queue_change(s, CHANGE_AUDIT)->audit = r;
}

void audit_add(struct service *s, const struct identity *who, const char *what, int64_t job, const char *fmt,
               ...)
{
    char text[512];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    audit_write(s, who->name, who->origin, what, job, text);
}

/* ---- what the core did for a user */

/* The core's reply to the event that was just handed in: a user's event is always answered at once. */
static const struct core_effect *audit_core_reply(const struct service *s, uint64_t call)
{
    for (size_t i = s->out.effect_count; i > 0; i--)
        if (s->out.effects[i - 1].kind == EFFECT_REPLY && s->out.effects[i - 1].call == call)
            return &s->out.effects[i - 1];
    return NULL;
}

static void audit_add_reason(struct buf *text, const char *reason)
{
    if (reason && *reason)
        buf_printf(text, ": %.200s", reason);
}

static const char *audit_describe_job(struct service *s, const struct core_event *event,
                                      const struct core_effect *answer, struct buf *text)
{
    const int64_t id = answer->job;
    const struct job_record *job = core_job(s->core, id);
    const char *name = job && job->name ? job->name : "";
    switch (event->kind) {
    case CORE_SUBMIT:
        buf_printf(text, "submit job %" PRId64 " '%.100s'", id, name);
        if (event->submit.continues)
            buf_printf(text, ", which continues job %" PRId64, event->submit.continues);
        return "job_submit";
    case CORE_CANCEL:
        buf_printf(text, "%s job %" PRId64 " '%.100s'", event->cancel.kill ? "kill" : "cancel", id, name);
        audit_add_reason(text, event->cancel.why);
        return "job_cancel";
    case CORE_RESIZE:
        buf_printf(text, "resize job %" PRId64 " '%.100s' to %" PRId64 ":%" PRId64 " nodes", id, name,
                   event->resize.nodes_min, event->resize.nodes_max);
        return "job_resize";
    case CORE_TUNE:
        buf_printf(text, "tune job %" PRId64 " '%.100s'", id, name);
        for (char **at = answer->texts; at && *at; at += 3)
            buf_printf(text, "%s %s %s -> %s", at == answer->texts ? ":" : ",", at[0], at[1], at[2]);
        return "job_tune";
    case CORE_PRIORITY:
        buf_printf(text, "change the priority of job %" PRId64 " '%.100s' %s%" PRId64, id, name,
                   event->order.relative ? "by " : "to ", event->order.priority);
        return "job_priority";
    case CORE_HOLD:
        buf_printf(text, "%s job %" PRId64 " '%.100s'", event->order.hold ? "hold" : "release", id, name);
        return event->order.hold ? "job_hold" : "job_release";
    case CORE_DELETE: /* which has no name any more */
        buf_printf(text, "delete job %" PRId64, id);
        return "job_delete";
    default:
        buf_printf(text, "restart job %" PRId64 " '%.100s'", id, name);
        return "job_restart";
    }
}

static const char *audit_describe_node(const struct core_event *event, struct buf *text)
{
    static const char *const what[] = {"node_drain", "node_undrain", "node_forget"};
    static const char *const verb[] = {"drain", "undrain", "forget"};
    const int which = event->kind == CORE_DRAIN ? 0 : event->kind == CORE_UNDRAIN ? 1 : 2;
    buf_printf(text, "%s %.80s", verb[which], event->node.name);
    audit_add_reason(text, event->node.reason);
    return what[which];
}

void audit_event(struct service *s, struct rpc_call *rpc, const struct core_event *event)
{
    const bool of_node =
        event->kind == CORE_DRAIN || event->kind == CORE_UNDRAIN || event->kind == CORE_FORGET;
    CLEANUP(buf_release) struct buf text = {0};
    struct core_event named = *event;
    named.who = caller_identity(rpc)->name;
    const size_t changes = s->out.change_count;
    commit_queue_event(s, &named);
    const struct core_effect *answer = audit_core_reply(s, event->call);
    const struct identity *who = caller_identity(rpc);
    if (answer && answer->err.code == ERR_PERMISSION_DENIED) {
        s->stats.refused_calls++;
        audit_refused(s, who->name, who->origin, rpc_call_method(rpc)->name, answer->err.msg);
        return;
    }
    /* A refused event changed nothing, and so did the cancel of a job that has ended. A submit or a tune that was repeated after a
     * lost reply already has its line. */
    if (!answer || answer->err.code != ERR_OK || s->out.change_count == changes ||
        ((event->kind == CORE_SUBMIT || event->kind == CORE_TUNE) && answer->existed))
        return;
    const int64_t job = of_node ? 0 : answer->job;
    const char *what =
        of_node ? audit_describe_node(event, &text) : audit_describe_job(s, event, answer, &text);
    audit_write(s, who->name, who->origin, what, job, text.data);
}

/* ---- refused calls */

static void refusals_on_minute_end(uv_timer_t *timer)
{
    struct service *s = timer->data;
    if (s->commit_blocked) { /* keep counting, write later */
        uv_timer_start(&s->refusal_timer, refusals_on_minute_end, MINUTE_MS, 0);
        return;
    }
    for (size_t i = 0; i < s->refusal_count; i++) {
        const struct refusal *r = &s->refusals[i];
        char text[512];
        if (r->count == r->written) /* the caller's only refused call has its line already */
            continue;
        snprintf(text, sizeof text, "refused %" PRIu64 " more calls, the last was %s", r->count - r->written,
                 r->text);
        audit_write(s, r->who, r->origin, STORE_AUDIT_REFUSED, 0, text);
    }
    s->refusal_count = 0;
}

/* The last entry is shared by all callers for whom no other entry is left. */
static struct refusal *refusal_find(struct service *s, const char *who, const char *origin)
{
    const size_t most = ARRAY_LEN(s->refusals);
    for (size_t i = 0; i < s->refusal_count; i++)
        if (strcmp(s->refusals[i].who, who) == 0 && strcmp(s->refusals[i].origin, origin) == 0)
            return &s->refusals[i];
    if (s->refusal_count == most)
        return &s->refusals[most - 1];
    struct refusal *r = &s->refusals[s->refusal_count++];
    /* The last entry must not name one caller, since all further callers are counted there. */
    const bool last = s->refusal_count == most;
    *r = (struct refusal){0};
    snprintf(r->who, sizeof r->who, "%s", last ? "many" : who);
    snprintf(r->origin, sizeof r->origin, "%s", last ? "many addresses" : origin);
    return r;
}

void audit_refused(struct service *s, const char *who, const char *origin, const char *method,
                   const char *why)
{
    struct refusal *r = refusal_find(s, who, origin);
    snprintf(r->text, sizeof r->text, "%.60s: %.300s", method, why);
    r->count++;
    if (r->count == 1 && !s->commit_blocked) {
        char text[512];
        snprintf(text, sizeof text, "refused %s", r->text);
        audit_write(s, r->who, r->origin, STORE_AUDIT_REFUSED, 0, text);
        r->written = 1;
    }
    if (!uv_is_active((uv_handle_t *)&s->refusal_timer)) {
        s->refusal_timer.data = s;
        uv_timer_start(&s->refusal_timer, refusals_on_minute_end, MINUTE_MS, 0);
    }
}

/* ---- reading and trimming */

void audit_trim(struct service *s)
{
    struct err e = {0};
    const struct core_now now = service_now();
    const int64_t since = core_holds_ages(s->core, now) ? 0 : now.wall_ms - s->options->audit_keep_ms;
    if (store_trim_audit(s->store, since, s->options->audit_rows, &e) != ERR_OK)
        log_warn("audit_not_trimmed", "why=%s", LOG_Q(e.msg));
}

void audit_get(struct rpc_call *rpc, const void *message, void *user)
{
    struct service *s = user;
    const Ddp__V1__GetAuditRequest *request = message;
    Ddp__V1__GetAuditReply reply = DDP__V1__GET_AUDIT_REPLY__INIT;
    CLEANUP(pool_release) struct pool pool = {0};
    struct audit_record *list = NULL;
    struct err e = {0};
    size_t limit = request->limit > 0 ? (size_t)request->limit : LIMIT_DEFAULT;
    commit_queue_flush(s); /* includes lines of this turn */
    if (limit > LIMIT_MOST)
        limit = LIMIT_MOST;
    if (store_audit(s->store, request->since_ms, limit, &list, &reply.n_entries, &e) != ERR_OK) {
        rpc_call_fail(rpc, &e);
        return;
    }
    reply.entries = pool_alloc(&pool, reply.n_entries * sizeof *reply.entries);
    for (size_t i = 0; i < reply.n_entries; i++) {
        Ddp__V1__AuditEntry *entry = reply.entries[i] = pool_alloc(&pool, sizeof *entry);
        ddp__v1__audit_entry__init(entry);
        entry->id = list[i].id;
        entry->time_ms = list[i].time_ms;
        entry->who = list[i].who;
        entry->origin = list[i].origin;
        entry->what = list[i].what;
        entry->job = list[i].job;
        entry->text = list[i].text;
    }
    rpc_call_reply(rpc, &reply);
    store_audit_free(list, reply.n_entries);
}
