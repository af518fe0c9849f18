#include "daemon/coordinator/service/cluster_rpc.h"

#include <stdlib.h>
#include <string.h>

#include "base/job/job.h"
#include "base/log.h"
#include "base/match/pattern.h"
#include "base/mem.h"
#include "daemon/coordinator/service/access/audit.h"
#include "daemon/coordinator/service/access/auth.h"
#include "daemon/coordinator/service/access/users.h"
#include "daemon/coordinator/service/calls.h"
#include "daemon/coordinator/service/check_rpc.h"
#include "daemon/coordinator/service/commit_queue.h"
#include "daemon/coordinator/service/convert.h"
#include "daemon/coordinator/service/forecasts.h"
#include "daemon/coordinator/service/list_rpc.h"
#include "daemon/coordinator/service/logs/logs.h"
#include "daemon/coordinator/service/members.h"
#include "daemon/coordinator/service/metrics/metrics_recorder.h"
#include "daemon/coordinator/service/node_query.h"
#include "daemon/coordinator/service/pool.h"
#include "daemon/coordinator/service/probe_rpc.h"
#include "daemon/coordinator/service/service_state.h"
#include "daemon/coordinator/service/tell/tell_rpc.h"
#include "proto/ddp.pb-c.h"
#include "proto/rpc_codec.h"

/* The Cluster service: the calls of users. A change becomes an event of the core and is answered by an
 * effect, after the commit. A read calls commit_queue_flush first, so that no reply shows a state that a
 * crash could take back. Some methods are in modules of their own: see the table at the end. */

#define EVENTS_LIMIT 1000
#define ROOM_FOR_EVENT (1 << 20)

static bool cluster_refuse_change(struct service *s, struct rpc_call *rpc)
{
    struct err e = {0};
    if (commit_queue_accepts(s, &e) == ERR_OK)
        return false;
    s->stats.refused_calls++;
    rpc_call_fail(rpc, &e);
    return true;
}

/* ---- submit */

/* Recognises a submit that is repeated with the same request id after a lost reply. The user is left out: the
 * same person may repeat it over the unix socket instead of TCP. */
static void submit_digest(const Ddp__V1__SubmitJobRequest *request, uint8_t out[DIGEST_BYTES])
{
    Ddp__V1__SubmitJobRequest copy = *request;
    struct err e = {0};
    CLEANUP(buf_release) struct buf packed = {0};
    copy.user = (char *)(uintptr_t) "";
    BUG_ON(rpc_pack(&copy, &packed, &e) != ERR_OK); /* packing cannot fail: the request was just unpacked */
    digest_sha256(out, packed.data, packed.len);
}

/* The first refusal, and the first job after it, are events of the cluster. Without room even for an event none is recorded: its commit
 * would fail, and no other change could be committed until there is room. */
static void submit_note_room(struct service *s, bool low, int64_t room)
{
    if (s->told_low == low)
        return;
    s->told_low = low;
    CLEANUP(free_text)
    char *text = xasprintf("%lld MiB are left at %s: new jobs are %s", (long long)(room >> 20),
                           s->options->state, low ? "refused" : "taken");
    if (low)
        log_error("disk_low", "why=%s", LOG_Q(text));
    if (room >= ROOM_FOR_EVENT)
        commit_queue_cluster_event(s, low ? "disk_full" : "disk_free_again", text);
}

static bool submit_disk_is_low(struct service *s, struct rpc_call *rpc)
{
    int64_t room;
    const bool low = !commit_queue_has_room(s, &room);
    submit_note_room(s, low, room);
    if (!low)
        return false;
    s->stats.refused_calls++;
    rpc_call_fail_with(
        rpc, ERR_RESOURCE_EXHAUSTED,
        "the coordinator's disk is full (%lld MiB left in %s): free some space and submit again",
        (long long)(room >> 20), s->options->state);
    return true;
}

/* The core has no expressions, so this is checked before it gets the job. It refuses a bad job file itself. */
static bool submit_pattern_is_bad(struct rpc_call *rpc, const char *job_file)
{
    CLEANUP(job_release) struct job_spec spec = {0};
    struct pattern *pattern = NULL;
    struct err e;
    if (!strstr(job_file, "capture") ||
        job_parse(&spec, job_file, strlen(job_file), "job file", &e) != ERR_OK ||
        spec.capture.from != JOB_CAPTURE_PATTERN)
        return false;
    if (pattern_compile(spec.capture.text, &pattern, &e) == ERR_OK) {
        pattern_free(pattern);
        return false;
    }
    err_wrap(&e, "'pattern' in 'capture'");
    rpc_call_fail(rpc, &e);
    return true;
}

static void submit_job(struct rpc_call *rpc, const void *message, void *user)
{
    struct service *s = user;
    const Ddp__V1__SubmitJobRequest *request = message;
    struct core_event event = {.kind = CORE_SUBMIT};
    if (cluster_refuse_change(s, rpc) || submit_disk_is_low(s, rpc) ||
        submit_pattern_is_bad(rpc, request->job_file))
        return;
    if (request->continues && !caller_owns(s, rpc, request->continues, "continue it"))
        return;
    char **env = xcalloc(request->n_env + 1, sizeof *env); /* NULL-terminated, for the core */
    for (size_t i = 0; i < request->n_env; i++)
        env[i] = request->env[i];
    event.call = call_open(s, rpc, CALL_SUBMIT, true)->handle;
    event.submit.request_id = request->request_id;
    event.submit.job_file = request->job_file;
    event.submit.user = caller_identity(rpc)->name;
    event.submit.env = env;
    event.submit.continues = request->continues;
    event.submit.resume = request->resume;
    event.submit.for_everybody = caller_identity(rpc)->role >= ROLE_OPERATE;
    event.submit.now = request->now;
    submit_digest(request, event.submit.digest);
    audit_event(s, rpc, &event);
    free(env);
}

/* ---- one job */

static void get_job(struct rpc_call *rpc, const void *message, void *user)
{
    struct service *s = user;
    const Ddp__V1__GetJobRequest *request = message;
    struct core_job_status status = {0};
    struct err e = {0};
    CLEANUP(pool_release) struct pool pool = {0};
    Ddp__V1__JobStatus reply;
    commit_queue_flush(s);
    if (core_job_status(s->core, request->job, true, &status, &e) != ERR_OK) {
        rpc_call_fail(rpc, &e);
        return;
    }
    convert_job(&pool, &status, true, &reply);
    forecasts_fill(s, &pool, &status, true, &reply);
    if (caller_is_owner(s, rpc, request->job))
        convert_environment(&pool, status.job, &reply);
    caller_hide_logs(s, rpc, &reply);
    caller_hide_tell(s, rpc, &pool, &reply);
    rpc_call_reply(rpc, &reply);
    core_job_status_release(&status);
}

static void cancel_job(struct rpc_call *rpc, const void *message, void *user)
{
    struct service *s = user;
    const Ddp__V1__CancelJobRequest *request = message;
    if (cluster_refuse_change(s, rpc) || !caller_owns(s, rpc, request->job, "cancel it"))
        return;
    struct call *c = call_open(s, rpc, CALL_CANCEL, true);
    c->job = request->job;
    audit_event(s, rpc,
                &(struct core_event){.kind = CORE_CANCEL,
                                     .call = c->handle,
                                     .cancel = {.job = request->job,
                                                .kill = request->kill,
                                                .why = request->why,
                                                .signal = request->signal,
                                                .exit_code = request->exit_code & 255}});
}

static void change_job(struct rpc_call *rpc, struct service *s, struct core_event *event)
{
    const char *to = event->kind == CORE_RESIZE ? "resize it" : "restart it";
    if (cluster_refuse_change(s, rpc) || !caller_owns(s, rpc, event->resize.job, to))
        return;
    struct call *c = call_open(s, rpc, CALL_CHANGE, true);
    c->job = event->resize.job;
    event->call = c->handle;
    audit_event(s, rpc, event);
}

static void resize_job(struct rpc_call *rpc, const void *message, void *user)
{
    const Ddp__V1__ResizeJobRequest *request = message;
    change_job(rpc, user,
               &(struct core_event){.kind = CORE_RESIZE,
                                    .resize = {.job = request->job,
                                               .nodes_min = request->nodes_min,
                                               .nodes_max = request->nodes_max}});
}

static void restart_job(struct rpc_call *rpc, const void *message, void *user)
{
    const Ddp__V1__RestartJobRequest *request = message;
    change_job(rpc, user,
               &(struct core_event){.kind = CORE_RESTART,
                                    .resize = {.job = request->job, .from_scratch = request->from_scratch}});
}

/* Priority, hold, release and delete. `to` says what the caller wants, if it must be refused. */
static void order_job(struct rpc_call *rpc, struct service *s, enum call_kind kind, struct core_event event,
                      const char *to)
{
    if (cluster_refuse_change(s, rpc) || !caller_owns(s, rpc, event.order.job, to))
        return;
    struct call *c = call_open(s, rpc, kind, true);
    c->job = event.order.job;
    event.call = c->handle;
    audit_event(s, rpc, &event);
}

static void set_priority(struct rpc_call *rpc, const void *message, void *user)
{
    const Ddp__V1__SetPriorityRequest *request = message;
    order_job(rpc, user, CALL_CHANGE,
              (struct core_event){.kind = CORE_PRIORITY,
                                  .order = {.job = request->job,
                                            .priority = request->priority,
                                            .relative = request->relative,
                                            .checked = request->checked,
                                            .seen = request->seen}},
              "change its priority");
}

static void hold_job(struct rpc_call *rpc, const void *message, void *user)
{
    const Ddp__V1__HoldJobRequest *request = message;
    order_job(
        rpc, user, CALL_CHANGE,
        (struct core_event){.kind = CORE_HOLD, .order = {.job = request->job, .hold = !request->release}},
        request->release ? "release it" : "hold it");
}

static void delete_job(struct rpc_call *rpc, const void *message, void *user)
{
    struct service *s = user;
    const Ddp__V1__DeleteJobRequest *request = message;
    char **nodes = NULL;
    struct err e;
    if (store_job_nodes(s->store, request->job, &nodes, &e) == ERR_OK) {
        order_job(rpc, s, CALL_DELETE,
                  (struct core_event){.kind = CORE_DELETE, .order = {.job = request->job, .nodes = nodes}},
                  "delete it");
    } else {
        rpc_call_fail(rpc, &e);
        if (e.code == ERR_DATA_LOSS) /* found by this read, before a commit found it */
            commit_queue_damaged(s, &e);
    }
    strv_free(nodes);
}

static void tune_job_values(struct rpc_call *rpc, const void *message, void *user)
{
    struct service *s = user;
    const Ddp__V1__TuneJobRequest *request = message;
    if (cluster_refuse_change(s, rpc) || !caller_owns(s, rpc, request->job, "tune it"))
        return;
    struct call *c = call_open(s, rpc, CALL_TUNE, true);
    c->job = request->job;
    char **assignments = xcalloc(request->n_assignments + 1, sizeof *assignments); /* NULL-terminated */
    for (size_t i = 0; i < request->n_assignments; i++)
        assignments[i] = request->assignments[i];
    audit_event(s, rpc,
                &(struct core_event){.kind = CORE_TUNE,
                                     .call = c->handle,
                                     .tune = {.job = request->job, .assignments = assignments}});
    free(assignments);
}

static void watch_job(struct rpc_call *rpc, const void *message, void *user)
{
    struct service *s = user;
    const Ddp__V1__WatchJobRequest *request = message;
    commit_queue_flush(s);
    if (!core_job(s->core, request->job)) {
        rpc_call_fail_with(rpc, ERR_NOT_FOUND, "there is no job %lld", (long long)request->job);
        return;
    }
    struct call *c = call_open(s, rpc, CALL_WATCH_JOB, false);
    c->job = request->job;
    c->dirty = true; /* so that the present status is sent at once */
    c->next = s->watches;
    if (c->next)
        c->next->prev = c;
    s->watches = c;
    s->watches_due = true; /* sent at the end of this turn of the loop */
    s->stats.watches++;
}

static void watch_sendable(struct rpc_call *rpc)
{
    const struct call *c = rpc_call_user(rpc);
    c->service->watches_due = true;
}

/* ---- nodes */

static void change_node(struct rpc_call *rpc, const Ddp__V1__NodeRequest *request, struct service *s,
                        enum core_event_kind kind)
{
    if (cluster_refuse_change(s, rpc))
        return;
    struct call *c = call_open(s, rpc, CALL_NODE, true);
    c->node = xstrdup(request->node);
    audit_event(s, rpc,
                &(struct core_event){.kind = kind,
                                     .call = c->handle,
                                     .node = {.name = request->node, .reason = request->reason}});
}

static void drain_node(struct rpc_call *rpc, const void *message, void *user)
{
    change_node(rpc, message, user, CORE_DRAIN);
}

static void undrain_node(struct rpc_call *rpc, const void *message, void *user)
{
    change_node(rpc, message, user, CORE_UNDRAIN);
}

static void forget_node(struct rpc_call *rpc, const void *message, void *user)
{
    change_node(rpc, message, user, CORE_FORGET);
}

/* ---- events and metrics */

static void get_events(struct rpc_call *rpc, const void *message, void *user)
{
    struct service *s = user;
    const Ddp__V1__GetEventsRequest *request = message;
    struct err e = {0};
    CLEANUP(pool_release) struct pool pool = {0};
    struct event_record *events = NULL;
    size_t count = 0;
    commit_queue_flush(s);
    if (request->job && !core_job(s->core, request->job)) {
        rpc_call_fail_with(rpc, ERR_NOT_FOUND, "there is no job %lld", (long long)request->job);
        return;
    }
    if (store_events(s->store, request->job, request->after, EVENTS_LIMIT, &events, &count, &e) != ERR_OK) {
        rpc_call_fail(rpc, &e);
        if (e.code == ERR_DATA_LOSS) /* found by this read, before a commit found it */
            commit_queue_damaged(s, &e);
        return;
    }
    Ddp__V1__GetEventsReply reply = DDP__V1__GET_EVENTS_REPLY__INIT;
    reply.n_events = count;
    reply.events = pool_alloc(&pool, count * sizeof *reply.events);
    for (size_t i = 0; i < count; i++) {
        Ddp__V1__Event *event = reply.events[i] = pool_alloc(&pool, sizeof *event);
        ddp__v1__event__init(event);
        event->id = events[i].id;
        event->time_ms = events[i].time_ms;
        event->job = events[i].job;
        event->generation = events[i].generation;
        event->what = events[i].what;
        /* The text may have been cut in the middle of a character. */
        event->text = rpc_utf8_clean(pool_text(&pool, events[i].text));
    }
    rpc_call_reply(rpc, &reply);
    store_events_free(events, count);
}

static void get_metrics(struct rpc_call *rpc, const void *message, void *user)
{
    struct service *s = user;
    const Ddp__V1__GetMetricsRequest *request = message;
    commit_queue_flush(s);
    if (!core_job(s->core, request->job)) {
        rpc_call_fail_with(rpc, ERR_NOT_FOUND, "there is no job %lld", (long long)request->job);
        return;
    }
    const struct metrics_query query = {.job = request->job,
                                        .name = request->name[0] ? request->name : NULL,
                                        .by_rank = request->by_rank,
                                        .rank = request->rank,
                                        .usage = request->usage,
                                        .limit = request->limit > 0 ? (size_t)request->limit : 0,
                                        .since_ms = request->since_ms,
                                        .after = request->after,
                                        .until = request->until};
    metrics_recorder_read(s->recorder, rpc, &query);
}

static void get_version(struct rpc_call *rpc, const void *message, void *user)
{
    struct service *s = user;
    Ddp__V1__GetVersionReply reply = DDP__V1__GET_VERSION_REPLY__INIT;
    (void)message;
    reply.version = (char *)(uintptr_t)DDP_VERSION;
    reply.cluster_id = (char *)(uintptr_t)store_cluster_id(s->store);
    reply.epoch = store_epoch(s->store);
    reply.schema = store_schema(s->store);
    rpc_call_reply(rpc, &reply);
}

/* Each method also needs a row in access/roles.c, which says who may call it. */
const struct rpc_method cluster_methods[] = {
    {.name = "SubmitJob", .kind = RPC_UNARY, .on_start = submit_job, .on_end = call_on_end},
    {.name = "GetJob", .kind = RPC_UNARY, .on_start = get_job},
    {.name = "ListJobs", .kind = RPC_UNARY, .on_start = list_jobs},
    {.name = "CancelJob", .kind = RPC_UNARY, .on_start = cancel_job, .on_end = call_on_end},
    {.name = "ResizeJob", .kind = RPC_UNARY, .on_start = resize_job, .on_end = call_on_end},
    {.name = "RestartJob", .kind = RPC_UNARY, .on_start = restart_job, .on_end = call_on_end},
    {.name = "TuneJob", .kind = RPC_UNARY, .on_start = tune_job_values, .on_end = call_on_end},
    {.name = "SetPriority", .kind = RPC_UNARY, .on_start = set_priority, .on_end = call_on_end},
    {.name = "HoldJob", .kind = RPC_UNARY, .on_start = hold_job, .on_end = call_on_end},
    {.name = "DeleteJob", .kind = RPC_UNARY, .on_start = delete_job, .on_end = call_on_end},
    {.name = "WatchJob",
     .kind = RPC_SERVER_STREAM,
     .on_start = watch_job,
     .on_sendable = watch_sendable,
     .on_end = call_on_end},
    {.name = "ReadLogs",
     .kind = RPC_SERVER_STREAM,
     .on_start = logs_read,
     .on_sendable = logs_sendable,
     .on_end = logs_end},
    {.name = "GetMetrics", .kind = RPC_UNARY, .on_start = get_metrics},
    {.name = "ListNodes", .kind = RPC_UNARY, .on_start = list_nodes},
    {.name = "DrainNode", .kind = RPC_UNARY, .on_start = drain_node, .on_end = call_on_end},
    {.name = "UndrainNode", .kind = RPC_UNARY, .on_start = undrain_node, .on_end = call_on_end},
    {.name = "ForgetNode", .kind = RPC_UNARY, .on_start = forget_node, .on_end = call_on_end},
    {.name = "GetEvents", .kind = RPC_UNARY, .on_start = get_events},
    {.name = "GetVersion", .kind = RPC_UNARY, .on_start = get_version},
    {.name = "JoinRun",
     .kind = RPC_SERVER_STREAM,
     .on_start = members_join,
     .on_sendable = members_sendable,
     .on_end = members_end},
    {.name = "CheckNodes",
     .kind = RPC_UNARY,
     .waits = true,
     .on_start = check_nodes,
     .on_end = node_query_end},
    {.name = "ProbeJob", .kind = RPC_UNARY, .waits = true, .on_start = probe_job, .on_end = node_query_end},
    {.name = "WhoAmI", .kind = RPC_UNARY, .on_start = users_who},
    {.name = "GetAudit", .kind = RPC_UNARY, .on_start = audit_get},
    {.name = "ListHooks", .kind = RPC_UNARY, .on_start = tell_list},
    {.name = "TestHook", .kind = RPC_UNARY, .waits = true, .on_start = tell_test, .on_end = tell_test_end},
    {.name = "ListUsers", .kind = RPC_UNARY, .on_start = users_list},
    {.name = "AddUser", .kind = RPC_UNARY, .on_start = users_add},
    {.name = "RemoveUser", .kind = RPC_UNARY, .on_start = users_remove},
    {.name = "RenewUserToken", .kind = RPC_UNARY, .on_start = users_renew},
    {.name = NULL},
};
