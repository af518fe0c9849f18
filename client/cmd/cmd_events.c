#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "client/cmd/jobs/job_find.h"
#include "client/interrupts.h"
#include "client/job_status.h"
#include "client/screen/screen_events.h"
#include "client/text/json_print.h"

#define AGAIN_MS 500

struct events_options {
    bool follow;
    const char *output;
};

static const struct option_spec options[] = {
    {.name = "follow",
     .letter = 'f',
     .type = OPTION_FLAG,
     .offset = offsetof(struct events_options, follow),
     .help = "go on with each new event until ^C, or until the job has ended"},
    OPTION_OUTPUT(events_options, output),
    {0},
};

/* Moves the events of one reply to the end of another. */
static void events_move(Ddp__V1__GetEventsReply *to, size_t *cap, Ddp__V1__GetEventsReply *from)
{
    for (size_t i = 0; i < from->n_events; i++) {
        to->events = array_grow(to->events, to->n_events, cap, sizeof(*to->events));
        to->events[to->n_events++] = from->events[i];
    }
    from->n_events = 0;
}

/* Gets all events after this number. A reply has only some of them, so the next ones are asked for until there are none. */
static enum err_code events_get(struct link *link, int64_t job, int64_t after, void **reply, struct err *e)
{
    Ddp__V1__GetEventsRequest request = DDP__V1__GET_EVENTS_REQUEST__INIT;
    CLEANUP(rpc_release) void *message = NULL;
    request.job = job;
    request.after = after;
    if (link_call(link, "GetEvents", &request, &message, 0, e) != ERR_OK)
        return e->code;
    Ddp__V1__GetEventsReply *all = message;
    size_t cap = all->n_events;
    for (bool more = all->n_events > 0; more;) {
        CLEANUP(rpc_release) void *part = NULL;
        request.after = all->events[all->n_events - 1]->id;
        if (link_call(link, "GetEvents", &request, &part, 0, e) != ERR_OK)
            return e->code;
        more = ((const Ddp__V1__GetEventsReply *)part)->n_events > 0;
        events_move(all, &cap, part);
    }
    *reply = steal(message);
    return ERR_OK;
}

/* *after becomes the number of the newest event. */
static enum err_code events_fetch(struct link *link, const struct events_options *o, int64_t job, bool first,
                                  int64_t *after, struct buf *out, struct err *e)
{
    CLEANUP(rpc_release) void *message = NULL;
    const struct term term = term_of(STDOUT_FILENO);
    if (events_get(link, job, *after, &message, e) != ERR_OK)
        return e->code;
    const Ddp__V1__GetEventsReply *reply = message;
    if (reply->n_events)
        *after = reply->events[reply->n_events - 1]->id;
    if (o->output && strcmp(o->output, "json") == 0) {
        if (first || reply->n_events)
            json_print(message, out);
    } else {
        screen_events(reply, &term, out);
        screen_fold(out);
    }
    return ERR_OK;
}

static enum err_code events_job_over(struct link *link, int64_t job, bool *over, struct err *e)
{
    Ddp__V1__GetJobRequest request = DDP__V1__GET_JOB_REQUEST__INIT;
    CLEANUP(rpc_release) void *reply = NULL;
    request.job = job;
    if (!job)
        return ERR_OK;
    if (link_call(link, "GetJob", &request, &reply, 0, e) != ERR_OK)
        return e->code;
    *over = job_status_ended(reply);
    return ERR_OK;
}

static enum err_code events_print(struct link *link, const struct events_options *o, int64_t job,
                                  struct err *e)
{
    CLEANUP(buf_release) struct buf out = {0};
    int64_t after = -1; /* from the start: 0 would mean only the newest */
    bool over = !o->follow;
    if (o->follow)
        interrupts_catch();
    for (bool first = true; !interrupts_count(); first = false) {
        /* A job is looked at before its events: those of its end are there once it has ended. */
        enum err_code code = over ? ERR_OK : events_job_over(link, job, &over, e);
        if (code == ERR_OK)
            code = events_fetch(link, o, job, first, &after, &out, e);
        /* A coordinator that has answered once may restart. */
        if (code != ERR_OK && (code != ERR_UNAVAILABLE || first))
            return code;
        if (!stdout_put(&out) || (over && code == ERR_OK))
            return ERR_OK;
        for (int i = 0; i < AGAIN_MS / 100 && !interrupts_count(); i++)
            link_sleep(link, 100);
    }
    return ERR_OK;
}

static int cmd_events_run(struct invocation *in)
{
    struct link link;
    struct err e;
    int64_t job = 0;
    if (link_open(&link, in->globals, &e) != ERR_OK)
        return error_print(&e);
    enum err_code code = in->args.count ? job_find(&link, "events", in->args.list[0], &job, &e) : ERR_OK;
    if (code == ERR_OK)
        code = events_print(&link, in->options, job, &e);
    link_close(&link);
    return code == ERR_OK ? EXIT_DONE : error_print(&e);
}

const struct command cmd_events = {
    .name = "events",
    .usage = "events [JOB] [-f] [-o table|json]",
    .summary = "list what happened to a job, or to the cluster",
    .help =
        "Prints every change of the job's state, its generations and its failures, what each failure cost, and\n"
        "who changed the job, oldest first, in local time. Without JOB: the events of the cluster itself (nodes,\n"
        "database, backups, deleted jobs). With -f and -o json each new list of events is one line.",
    .options = options,
    .size = sizeof(struct events_options),
    .most = 1,
    .run = cmd_events_run,
};
