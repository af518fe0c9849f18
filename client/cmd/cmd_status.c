#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "client/cmd/jobs/job_filter.h"
#include "client/cmd/jobs/job_find.h"
#include "client/cmd/jobs/since.h"
#include "client/interrupts.h"
#include "client/job_probe.h"
#include "client/job_status.h"
#include "client/screen/screen_job.h"
#include "client/screen/screen_jobs.h"
#include "client/text/json_print.h"

struct status_options {
    bool watch, all, mine;
    const char *state, *since;
    const char *output;
};

static const struct option_spec options[] = {
    {.name = "watch",
     .letter = 'w',
     .type = OPTION_FLAG,
     .offset = offsetof(struct status_options, watch),
     .help = "redraw until ^C, or until the job has ended"},
    {.name = "all",
     .letter = 'a',
     .type = OPTION_FLAG,
     .offset = offsetof(struct status_options, all),
     .help = "also list the jobs that ended long ago"},
    {.name = "mine",
     .letter = 'm',
     .type = OPTION_FLAG,
     .offset = offsetof(struct status_options, mine),
     .help = "list only your own jobs"},
    {.name = "state",
     .letter = 's',
     .type = OPTION_TEXT,
     .offset = offsetof(struct status_options, state),
     .value = "STATE,...",
     .help = "list only jobs in these states: running,queued"},
    {.name = "since",
     .type = OPTION_TEXT,
     .offset = offsetof(struct status_options, since),
     .value = "WHEN",
     .help =
         "leave out the jobs that ended before: 2h or 7d ago, or local time 2026-11-30 or \"2026-11-30 14:00\""},
    OPTION_OUTPUT(status_options, output),
    {0},
};

static bool status_wants_json(const struct status_options *o)
{
    return o->output && strcmp(o->output, "json") == 0;
}

/* Lists the jobs that match the options. All jobs are read, because the newest hundred may contain no match. */
static enum err_code status_fetch_filtered(struct link *link, const struct status_options *o, struct buf *out,
                                           struct err *e)
{
    CLEANUP(job_pages_release) struct job_pages pages = {0};
    CLEANUP(free_text) char *user = NULL;
    struct term term = term_of(STDOUT_FILENO);
    struct job_filter filter = {.state = o->state};
    if (o->since && since_parse(o->since, &filter.since_ms, e) != ERR_OK)
        return e->code;
    if (o->mine && job_find_user(link, &user, e) != ERR_OK)
        return e->code;
    if (job_pages_fetch(link, o->all || o->since, &pages, e) != ERR_OK)
        return e->code;
    filter.user = user;
    Ddp__V1__ListJobsReply every = *pages.totals;
    every.jobs = pages.jobs;
    every.n_jobs = 0;
    for (size_t i = 0; i < pages.count; i++)
        if (job_filter_keeps(&filter, pages.jobs[i]))
            every.jobs[every.n_jobs++] = pages.jobs[i];
    if (status_wants_json(o))
        json_print(&every.base, out);
    else
        screen_jobs(&every, o->all || o->state || o->since || o->mine, &term, out);
    return ERR_OK;
}

static bool status_filters(const struct status_options *o)
{
    return o->all || o->mine || o->state || o->since;
}

static enum err_code status_fetch_job(struct link *link, const struct status_options *o, int64_t job,
                                      struct buf *out, bool *ended, struct err *e)
{
    struct term term = term_of(STDOUT_FILENO);
    Ddp__V1__GetJobRequest request = DDP__V1__GET_JOB_REQUEST__INIT;
    CLEANUP(rpc_release) void *reply = NULL;
    request.job = job;
    if (link_call(link, "GetJob", &request, &reply, 0, e) != ERR_OK)
        return e->code;
    *ended = job_status_ended(reply);
    if (status_wants_json(
            o)) { /* every kind of reply has its own fields, so JSON needs no screen of its own */
        json_print(reply, out);
        return ERR_OK;
    }
    if (out->len)
        buf_putc(out, '\n');
    CLEANUP(rpc_release) void *probe = job_probe_failure(link, reply);
    screen_job(reply, probe, &term, out);
    return ERR_OK;
}

/* What a screen leaves besides its text. */
struct status_rest {
    bool over;       /* the jobs have ended */
    int failed;      /* exit code of the first job that could not be shown */
    struct buf talk; /* why, for stderr */
};

static void status_rest_release(struct status_rest *rest)
{
    buf_release(&rest->talk);
}

static void status_leave_out(struct job_numbers *jobs, size_t index, const struct err *why,
                             struct status_rest *rest)
{
    const int code = error_put(why, &rest->talk);

    rest->failed = rest->failed == EXIT_DONE ? code : rest->failed;
    job_numbers_remove(jobs, index);
}

/* One screen: the jobs in `jobs`, or the list of jobs if it is empty. Removes from `jobs` what cannot be shown. UNAVAILABLE: the
 * coordinator does not answer. */
static enum err_code status_fetch_screen(struct link *link, const struct status_options *o,
                                         struct job_numbers *jobs, struct buf *out, struct status_rest *rest,
                                         struct err *e)
{
    bool all_ended = jobs->count > 0;
    /* JSON keeps to the newest hundred jobs, which scripts expect. A screen shows what runs, however old it is. */
    if (!jobs->count && (status_filters(o) || !status_wants_json(o)))
        return status_fetch_filtered(link, o, out, e);
    if (!jobs->count) {
        Ddp__V1__ListJobsRequest request = DDP__V1__LIST_JOBS_REQUEST__INIT;
        CLEANUP(rpc_release) void *reply = NULL;
        if (link_call(link, "ListJobs", &request, &reply, 0, e) != ERR_OK)
            return e->code;
        json_print(reply, out);
    }
    for (size_t i = 0; i < jobs->count;) {
        bool ended = false;
        if (status_fetch_job(link, o, jobs->list[i], out, &ended, e) == ERR_OK) {
            all_ended = all_ended && ended;
            i++;
        } else if (e->code == ERR_NOT_FOUND || e->code == ERR_PERMISSION_DENIED) {
            status_leave_out(jobs, i, e, rest);
        } else {
            return e->code;
        }
    }
    rest->over = all_ended;
    return ERR_OK;
}

#define AWAY "the coordinator does not answer, the jobs go on; waiting for it (^C leaves)\n"

/* Draws a screen over the last one, cut to the terminal's size. The last screen, of a job that has ended, is
 * drawn whole, since it stays. */
static void status_redraw(bool over, const struct buf *text, struct buf *out)
{
    struct term term = term_of(STDOUT_FILENO);
    buf_puts(out, "\033[H\033[J");
    if (over) {
        buf_append(out, text->data, text->len);
        return;
    }
    buf_puts(out, "\033[?7l"); /* long lines are cut, not wrapped */
    term_fit(&term, text, false, out);
    buf_puts(out, "\033[?7h");
}

/* In a pipe, screens follow each other with a blank line between them; JSON is one line for each. */
static void status_append(const struct status_options *o, bool first, const struct buf *text, struct buf *out)
{
    if (!first && text->len && !status_wants_json(o))
        buf_putc(out, '\n');
    buf_append(out, text->data, text->len);
}

static enum err_code status_watch(struct link *link, const struct status_options *o, struct job_numbers *jobs,
                                  struct status_rest *rest, struct err *e)
{
    CLEANUP(buf_release) struct buf out = {0}, text = {0};
    bool live = term_of(STDOUT_FILENO).live && !status_wants_json(o), away = false;
    interrupts_catch();
    for (bool first = true; !rest->over && !interrupts_count(); first = false) {
        enum err_code code = status_fetch_screen(link, o, jobs, &text, rest, e);
        /* A coordinator that has answered once may restart; one that never answered has a wrong address. */
        if (code != ERR_OK && (code != ERR_UNAVAILABLE || first))
            return code;
        if (code != ERR_OK && live)
            buf_puts(&text, AWAY);
        else if (code != ERR_OK && !away)
            buf_puts(&rest->talk, "ddpctl: " AWAY);
        away = code != ERR_OK;
        if (!live) /* a redrawn screen would cover it */
            stderr_put(&rest->talk);
        if (live)
            status_redraw(rest->over, &text, &out);
        else
            status_append(o, first, &text, &out);
        buf_clear(&text);
        if (!(status_wants_json(o) ? stdout_put : screen_put)(&out))
            return ERR_OK;
        for (int i = 0; i < 10 && !interrupts_count() && !rest->over; i++)
            link_sleep(link, 100);
    }
    return ERR_OK;
}

static int cmd_status_run(struct invocation *in)
{
    const struct status_options *o = in->options;
    CLEANUP(buf_release) struct buf out = {0};
    CLEANUP(job_numbers_release) struct job_numbers jobs = {0};
    CLEANUP(status_rest_release) struct status_rest rest = {0};
    struct link link;
    struct err e;
    if (in->args.count && status_filters(o)) {
        err_set(&e, ERR_INVALID_ARGUMENT,
                "--all, --mine, --state and --since filter the list of jobs, and cannot be used with JOB");
        return error_print(&e);
    }
    if (o->state && job_filter_check(o->state, &e) != ERR_OK)
        return error_print(&e);
    if (link_open(&link, in->globals, &e) != ERR_OK)
        return error_print(&e);
    enum err_code code = jobs_find(&link, in->args.list, in->args.count, &jobs, &e);
    if (code == ERR_OK)
        code = o->watch ? status_watch(&link, o, &jobs, &rest, &e)
                        : status_fetch_screen(&link, o, &jobs, &out, &rest, &e);
    stderr_put(&rest.talk);
    int result = rest.failed;
    if (code != ERR_OK)
        error_print_keep(&e, &result);
    (status_wants_json(o) ? stdout_put : screen_put)(&out);
    link_close(&link);
    return result;
}

const struct command cmd_status = {
    .name = "status",
    .usage =
        "status [JOB...] [--watch] [-o table|json]\nstatus [--mine] [--state STATE,...] [--since WHEN] [--all]",
    .summary = "list the jobs, or show jobs in detail",
    .help =
        "Without JOB: the jobs that run, the queue with the next job first, and the last ten that ended (--all: every job).\n"
        "With JOB: its command, its progress, its ranks with their nodes and speed, its last snapshot and, if it failed, the\n"
        "reason. -o json prints the message of proto/ddp.proto with its field names as keys.",
    .options = options,
    .size = sizeof(struct status_options),
    .most = JOBS_MOST,
    .run = cmd_status_run,
};
