#include <ctype.h>
#include <inttypes.h>
#include <stdlib.h>

#include "base/mem.h"
#include "client/cmd/jobs/job_find.h"

/* The commands for a job's place in the queue and the end of its records: priority, hold, release, delete. */

static enum err_code order_call(struct link *link, const char *method, const void *request, int64_t job,
                                const char *done, struct err *e)
{
    CLEANUP(rpc_release) void *reply = NULL;
    CLEANUP(buf_release) struct buf talk = {0};
    if (link_call(link, method, request, &reply, 0, e) != ERR_OK)
        return e->code;
    buf_printf(&talk, "#%" PRId64 " %s\n", job, done);
    stderr_put(&talk);
    return ERR_OK;
}

/* ---- priority */

struct priority_change {
    int32_t value;
    bool relative;
    const char *text;
};

/* "3", "+1", "-2" */
static enum err_code priority_read(const char *text, struct priority_change *out, struct err *e)
{
    const bool sign = *text == '+' || *text == '-';
    char *end = NULL;
    const long value = isdigit((unsigned char)text[sign]) ? strtol(text, &end, 10) : 0;
    if (!end || *end || value < -2000 || value > 2000)
        return err_set(
            e, ERR_INVALID_ARGUMENT,
            "invalid priority '%s': expected a number from 0 to 1000, or +N or -N, which changes the "
            "present one",
            text);
    *out = (struct priority_change){(int32_t)value, sign, text};
    return ERR_OK;
}

/* Turns a relative change into an absolute one. If a reply is lost and the call is repeated, the change is applied only once. */
static enum err_code priority_add(struct link *link, Ddp__V1__SetPriorityRequest *request, struct err *e)
{
    Ddp__V1__GetJobRequest get = DDP__V1__GET_JOB_REQUEST__INIT;
    CLEANUP(rpc_release) void *reply = NULL;
    get.job = request->job;
    if (link_call(link, "GetJob", &get, &reply, 0, e))
        return e->code;
    request->seen = ((const Ddp__V1__JobStatus *)reply)->priority;
    request->priority += request->seen;
    request->checked = true;
    return ERR_OK;
}

static enum err_code priority_send(struct link *link, int64_t job, void *context, struct err *e)
{
    const struct priority_change *change = context;
    Ddp__V1__SetPriorityRequest request = DDP__V1__SET_PRIORITY_REQUEST__INIT;
    CLEANUP(free_text) char *done = xasprintf("priority %s", change->text);
    request.job = job;
    request.priority = change->value;
    if (change->relative && priority_add(link, &request, e))
        return e->code;
    return order_call(link, "SetPriority", &request, job, done, e);
}

static int cmd_priority_run(struct invocation *in)
{
    struct priority_change change;
    struct err e;
    if (priority_read(in->args.list[in->args.count - 1], &change, &e) != ERR_OK)
        return error_print(&e);
    in->args.count--; /* the others are jobs */
    return jobs_each(in, priority_send, &change);
}

/* ---- hold, release */

static enum err_code hold_send(struct link *link, int64_t job, void *context, struct err *e)
{
    Ddp__V1__HoldJobRequest request = DDP__V1__HOLD_JOB_REQUEST__INIT;
    const bool *release = context;
    request.job = job;
    request.release = *release;
    return order_call(link, "HoldJob", &request, job, *release ? "released" : "on hold", e);
}

static int cmd_hold_run(struct invocation *in)
{
    bool release = false;
    return jobs_each(in, hold_send, &release);
}

static int cmd_release_run(struct invocation *in)
{
    bool release = true;
    return jobs_each(in, hold_send, &release);
}

/* ---- delete */

static enum err_code delete_send(struct link *link, int64_t job, void *context, struct err *e)
{
    Ddp__V1__DeleteJobRequest request = DDP__V1__DELETE_JOB_REQUEST__INIT;
    CLEANUP(rpc_release) void *message = NULL;
    CLEANUP(buf_release) struct buf talk = {0};
    (void)context;
    request.job = job;
    if (link_call(link, "DeleteJob", &request, &message, 0, e) != ERR_OK)
        return e->code;
    const Ddp__V1__DeleteJobReply *reply = message;
    buf_printf(&talk, "#%" PRId64 " deleted\n", job);
    for (size_t i = 0; i < reply->n_keep_logs; i++)
        buf_printf(&talk,
                   "ddpctl: %s is not connected: the log files of job %" PRId64
                   " there stay until they expire\n",
                   reply->keep_logs[i], job);
    stderr_put(&talk);
    return ERR_OK;
}

static int cmd_delete_run(struct invocation *in)
{
    return jobs_each(in, delete_send, NULL);
}

const struct command cmd_priority = {
    .name = "priority",
    .usage = "priority JOB... NUMBER|+N|-N",
    .summary = "change the place of jobs in the queue",
    .help =
        "Jobs of higher priority start first; jobs of equal priority start in the order of their numbers. +N\n"
        "and -N change the present priority. Elastic train jobs on CPUs may give nodes above their minimum to a\n"
        "queued job of a higher priority; all other running jobs keep their nodes.\n\n"
        "  ddpctl priority 9 +1",
    .least = 2,
    .most = JOBS_MOST,
    .rules = {.numbers = true},
    .run = cmd_priority_run,
};
const struct command cmd_hold = {
    .name = "hold",
    .usage = "hold JOB...",
    .summary = "keep queued jobs from starting",
    .help =
        "A job on hold stays in the queue, and other jobs pass it, until `ddpctl release JOB`. A job that runs\n"
        "cannot be put on hold. A job file with `hold: true` is submitted on hold.",
    .least = 1,
    .most = JOBS_MOST,
    .run = cmd_hold_run,
};
const struct command cmd_release = {
    .name = "release",
    .usage = "release JOB...",
    .summary = "let jobs on hold start",
    .help = "The job takes its place in the queue again, by its priority and number.",
    .least = 1,
    .most = JOBS_MOST,
    .run = cmd_release_run,
};
const struct command cmd_delete = {
    .name = "delete",
    .usage = "delete JOB...",
    .summary = "remove ended jobs, with their log files",
    .help =
        "Removes the records of ended jobs: status, events and metrics. The nodes remove the log files; a node\n"
        "that is not connected, or that has an agent of an older version, keeps them until they expire\n"
        "(`log_keep` in agent.yaml). Snapshots stay. The audit log keeps a line for each deleted job.",
    .least = 1,
    .most = JOBS_MOST,
    .run = cmd_delete_run,
};
