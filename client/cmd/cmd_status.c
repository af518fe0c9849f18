#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "client/cmd/job_number.h"
#include "client/connect.h"
#include "client/interrupts.h"
#include "client/job_status.h"
#include "client/screen/screen_job.h"
#include "client/screen/screen_jobs.h"
#include "client/text/json_print.h"

struct status_options {
    bool watch, all;
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
    OPTION_OUTPUT(status_options, output),
    {0},
};

static bool status_wants_json(const struct status_options *o)
{
    return o->output && strcmp(o->output, "json") == 0;
}

/* --all: a reply of the coordinator holds a limited number of jobs, so this asks for page after page, from
 * the oldest job on. */
static enum err_code status_fetch_all_jobs(struct link *link, const struct status_options *o, struct buf *out,
                                           struct err *e)
{
    Ddp__V1__ListJobsRequest request = DDP__V1__LIST_JOBS_REQUEST__INIT;
    Ddp__V1__ListJobsReply every = {0};
    Ddp__V1__JobStatus **jobs = NULL;
    size_t count = 0, pages = 0;
    void **replies = NULL;

    request.all = true;
    request.after = -1; /* 0 would mean the newest */
    do {
        void *reply = NULL;
        if (link_call(link, "ListJobs", &request, &reply, 0, e) != ERR_OK)
            break;
        replies = xrealloc(replies, (pages + 1) * sizeof *replies);
        replies[pages++] = reply;
        every = *(Ddp__V1__ListJobsReply *)reply; /* the totals of the newest reply */
        jobs = xrealloc(jobs, (count + every.n_jobs + 1) * sizeof(Ddp__V1__JobStatus *));
        for (size_t i = 0; i < every.n_jobs; i++)
            jobs[count++] = every.jobs[i];
        if (every.n_jobs)
            request.after = jobs[count - 1]->job;
    } while (every.n_jobs);
    /* The loop ends with an empty list, or early with an error. */
    const enum err_code code = pages && !every.n_jobs ? ERR_OK : e->code;
    if (code == ERR_OK) {
        every.jobs = jobs;
        every.n_jobs = count;
        if (status_wants_json(o)) {
            json_print(&every.base, out);
        } else {
            struct term term = term_of(STDOUT_FILENO);
            screen_jobs(&every, &term, out);
        }
    }
    for (size_t i = 0; i < pages; i++)
        rpc_release(&replies[i]);
    free(replies);
    free(jobs);
    return code;
}

/* One screen: the job, or the list of jobs. *over is set to true if the job has ended. */
static enum err_code status_fetch_screen(struct link *link, const struct status_options *o, int64_t job,
                                         struct buf *out, bool *over, struct err *e)
{
    struct term term = term_of(STDOUT_FILENO);
    CLEANUP(rpc_release) void *reply = NULL;
    if (job) {
        Ddp__V1__GetJobRequest request = DDP__V1__GET_JOB_REQUEST__INIT;
        request.job = job;
        if (link_call(link, "GetJob", &request, &reply, 0, e) != ERR_OK)
            return e->code;
        *over = job_status_ended(reply);
        if (!status_wants_json(o))
            screen_job(reply, &term, out);
    } else if (o->all) {
        return status_fetch_all_jobs(link, o, out, e);
    } else {
        Ddp__V1__ListJobsRequest request = DDP__V1__LIST_JOBS_REQUEST__INIT;
        if (link_call(link, "ListJobs", &request, &reply, 0, e) != ERR_OK)
            return e->code;
        if (!status_wants_json(o))
            screen_jobs(reply, &term, out);
    }
    if (status_wants_json(o)) /* every kind of reply has its own fields, so JSON needs no screen of its own */
        json_print(reply, out);
    return ERR_OK;
}

#define AWAY "the coordinator does not answer, training goes on; waiting for it (^C leaves)\n"

/* Draws a screen over the last one, cut to the terminal's size. The last screen, of a job that has ended, is
 * drawn whole, since it stays. */
static void status_redraw(int64_t job, bool over, const struct buf *text, struct buf *out)
{
    struct term term = term_of(STDOUT_FILENO);
    buf_puts(out, "\033[H\033[J");
    if (over) {
        buf_append(out, text->data, text->len);
        return;
    }
    buf_puts(out, "\033[?7l"); /* long lines are cut, not wrapped */
    term_fit(&term, text, !job, out);
    buf_puts(out, "\033[?7h");
}

/* In a pipe, screens follow each other with a blank line between them; JSON is one line for each. */
static void status_append(const struct status_options *o, bool first, const struct buf *text, struct buf *out)
{
    if (!first && text->len && !status_wants_json(o))
        buf_putc(out, '\n');
    buf_append(out, text->data, text->len);
}

static enum err_code status_watch(struct link *link, const struct status_options *o, int64_t job,
                                  struct err *e)
{
    CLEANUP(buf_release) struct buf out = {0}, talk = {0}, text = {0};
    bool live = term_of(STDOUT_FILENO).live && !status_wants_json(o), over = false, away = false;
    interrupts_catch();
    for (bool first = true; !over && !interrupts_count(); first = false) {
        enum err_code code = status_fetch_screen(link, o, job, &text, &over, e);
        /* A coordinator that has answered once may restart; one that never answered has a wrong address. */
        if (code != ERR_OK && (code != ERR_UNAVAILABLE || first))
            return code;
        if (code != ERR_OK && live)
            buf_puts(&text, AWAY);
        else if (code != ERR_OK && !away)
            buf_puts(&talk, "ddpctl: " AWAY);
        away = code != ERR_OK;
        stderr_put(&talk);
        if (live)
            status_redraw(job, over, &text, &out);
        else
            status_append(o, first, &text, &out);
        buf_clear(&text);
        if (!stdout_put(&out))
            return ERR_OK;
        for (int i = 0; i < 10 && !interrupts_count() && !over; i++)
            usleep(100000);
    }
    return ERR_OK;
}

static int cmd_status_run(struct invocation *in)
{
    const struct status_options *o = in->options;
    CLEANUP(buf_release) struct buf out = {0};
    struct link link;
    struct err e;
    int64_t job = 0;
    bool over;
    if (in->args.count && job_number_parse(in->args.list[0], &job, &e) != ERR_OK)
        return error_print(&e);
    if (link_open(&link, in->globals, &e) != ERR_OK)
        return error_print(&e);
    enum err_code code =
        o->watch ? status_watch(&link, o, job, &e) : status_fetch_screen(&link, o, job, &out, &over, &e);
    int result = code == ERR_OK ? EXIT_DONE : error_print(&e);
    stdout_put(&out);
    link_close(&link);
    return result;
}

const struct command cmd_status = {
    .name = "status",
    .usage = "status [JOB] [--watch] [-o table|json]",
    .summary = "list the jobs, or show one job in detail",
    .help =
        "Without JOB: the newest hundred jobs, without those that ended long ago (--all: every job). With\n"
        "JOB: its progress, its ranks with their nodes and speed, its last snapshot and, if it failed, the\n"
        "reason. -o json prints the message of proto/ddp.proto with its field names as keys.",
    .options = options,
    .size = sizeof(struct status_options),
    .most = 1,
    .run = cmd_status_run,
};
