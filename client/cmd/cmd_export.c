#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "client/cmd/jobs/job_find.h"
#include "client/export/export_run.h"
#include "client/export/export_source.h"
#include "client/export/export_text.h"
#include "client/interrupts.h"
#include "client/job_status.h"

#define AGAIN_MS 1000
#define LINES_BYTES (64 << 10)

struct export_options {
    const char *tensorboard;
    bool csv, jsonl, follow;
};

static const struct option_spec options[] = {
    {.name = "tensorboard",
     .type = OPTION_TEXT,
     .offset = offsetof(struct export_options, tensorboard),
     .value = "DIR",
     .help = "write event files for TensorBoard: DIR/9-name is the run of job 9"},
    {.name = "csv",
     .type = OPTION_FLAG,
     .offset = offsetof(struct export_options, csv),
     .help = "print job,step,time_ms,rank,name,value,captured"},
    {.name = "jsonl",
     .type = OPTION_FLAG,
     .offset = offsetof(struct export_options, jsonl),
     .help = "print one JSON object a line for each point"},
    {.name = "follow",
     .letter = 'f',
     .type = OPTION_FLAG,
     .offset = offsetof(struct export_options, follow),
     .help = "go on with new points until ^C, or until the jobs have ended"},
    {0},
};

struct export_job {
    int64_t job;
    bool over; /* it has ended, and all its points are written; or it failed */
    bool failed;
    struct export_points points;
    struct export_run run;
};

struct export
{
    const struct export_options *options;
    struct link link;
    struct export_job *jobs;
    size_t count;
    bool terminal;    /* stdout is one */
    bool reader_gone; /* of stdout */
    int failed;       /* exit code of the first job that failed */
};

static bool export_interrupted(const struct export *x)
{
    return interrupts_count() || x->reader_gone;
}

static void export_print(struct export *x, const struct export_job *j)
{
    CLEANUP(buf_release) struct buf out = {0};
    for (size_t i = 0; i < j->points.count && !export_interrupted(x); i++) {
        if (x->options->csv)
            export_put_csv(&out, j->job, &j->points.points[i], x->terminal);
        else
            export_put_jsonl(&out, j->job, &j->points.points[i]);
        if (out.len >= LINES_BYTES || i + 1 == j->points.count)
            x->reader_gone = !stdout_put(&out);
    }
}

static enum err_code export_look_at_job(struct export *x, struct export_job *j, bool *ended, struct err *e)
{
    Ddp__V1__GetJobRequest request = DDP__V1__GET_JOB_REQUEST__INIT;
    CLEANUP(rpc_release) void *message = NULL;
    request.job = j->job;
    if (link_call(&x->link, "GetJob", &request, &message, 0, e) != ERR_OK)
        return e->code;
    const Ddp__V1__JobStatus *job = message;
    *ended = job_status_ended(job);
    if (x->options->tensorboard && !j->run.path)
        return export_run_open(&j->run, x->options->tensorboard, j->job, job->name, e);
    return ERR_OK;
}

/* Reads the job's state before its points. If the job has ended by then, the points include its last ones. */
static enum err_code export_turn(struct export *x, struct export_job *j, struct err *e)
{
    bool ended = false;
    if (export_look_at_job(x, j, &ended, e) != ERR_OK ||
        export_fetch(&x->link, j->job, &j->points, e) != ERR_OK)
        return e->code;
    if (!x->options->tensorboard)
        export_print(x, j);
    else if (export_run_put(&j->run, &j->points, e) != ERR_OK)
        return e->code;
    export_points_done(&j->points);
    j->over = ended || !x->options->follow;
    return ERR_OK;
}

static enum err_code export_all(struct export *x, struct err *e)
{
    for (bool first = true;; first = false) {
        bool over = true;
        for (size_t i = 0; i < x->count && !export_interrupted(x); i++) {
            struct export_job *j = &x->jobs[i];
            if (!j->over && export_turn(x, j, e) != ERR_OK && (e->code != ERR_UNAVAILABLE || first)) {
                /* A coordinator that has answered once may restart. One that never did cannot be reached. */
                if (e->code == ERR_UNAVAILABLE)
                    return e->code;
                error_print_keep(e, &x->failed);
                j->over = j->failed = true;
            }
            over = over && j->over;
        }
        if (over || export_interrupted(x))
            return ERR_OK;
        for (int i = 0; i < AGAIN_MS / 100 && !interrupts_count(); i++)
            link_sleep(&x->link, 100);
    }
}

/* Says where the curves are. Otherwise the command would print nothing. */
static void export_say(const struct export *x)
{
    CLEANUP(buf_release) struct buf talk = {0};
    for (size_t i = 0; i < x->count; i++) {
        const struct export_job *j = &x->jobs[i];
        if (j->failed)
            continue;
        if (!j->points.series_count)
            buf_printf(&talk, "ddpctl: job %lld has reported no metrics\n", (long long)j->job);
        else if (x->options->tensorboard)
            buf_printf(&talk, "ddpctl: job %lld: wrote %s\n", (long long)j->job, j->run.dir);
    }
    stderr_put(&talk);
}

static void export_release(struct export *x)
{
    for (size_t i = 0; i < x->count; i++) {
        export_points_release(&x->jobs[i].points);
        export_run_close(&x->jobs[i].run);
    }
    free(x->jobs);
    link_close(&x->link);
}

static void export_add_job(struct export *x, int64_t job)
{
    for (size_t i = 0; i < x->count; i++)
        if (x->jobs[i].job == job) /* named twice */
            return;
    x->jobs[x->count++] = (struct export_job){.job = job, .run.fd = -1};
}

static int cmd_export_run(struct invocation *in)
{
    struct export x = {.options = in->options, .terminal = isatty(STDOUT_FILENO)};
    CLEANUP(job_numbers_release) struct job_numbers jobs = {0};
    struct err e;
    if (!!x.options->tensorboard + x.options->csv + x.options->jsonl != 1) {
        err_set(&e, ERR_INVALID_ARGUMENT, "export: give one of --tensorboard DIR, --csv and --jsonl");
        return error_print(&e);
    }
    if (link_open(&x.link, in->globals, &e) != ERR_OK)
        return error_print(&e);
    interrupts_catch();
    enum err_code code = jobs_find(&x.link, in->args.list, in->args.count, &jobs, &e);
    x.jobs = xcalloc(jobs.count + 1, sizeof(*x.jobs));
    for (size_t i = 0; i < jobs.count; i++)
        export_add_job(&x, jobs.list[i]);
    if (code == ERR_OK && x.options->csv) {
        CLEANUP(buf_release) struct buf header = {0};
        buf_puts(&header, EXPORT_CSV_HEADER);
        x.reader_gone = !stdout_put(&header);
    }
    if (code == ERR_OK)
        code = export_all(&x, &e);
    if (code == ERR_OK && !export_interrupted(&x))
        export_say(&x);
    export_release(&x);
    if (code != ERR_OK)
        return error_print(&e);
    if (x.failed != EXIT_DONE)
        return x.failed;
    return interrupts_count() ? 128 + interrupt_signal() : stdout_lost() ? EXIT_FAILED : EXIT_DONE;
}

const struct command cmd_export = {
    .name = "export",
    .usage = "export JOB... --tensorboard DIR [-f]\nexport JOB... --csv | --jsonl [-f]",
    .summary = "write the metrics of jobs for TensorBoard, or as CSV or JSON lines",
    .help =
        "Writes every point of every rank. In TensorBoard each job is a run. The tag of a curve is 'loss' for\n"
        "rank 0 and 'loss/rank 3' for rank 3. A value that is not a number is nan in CSV and null in JSON.\n"
        "If a signal interrupts the export, the last record is still complete, and the exit code is 128 + the\n"
        "signal's number.",
    .options = options,
    .size = sizeof(struct export_options),
    .least = 1,
    .most = JOBS_MOST,
    .run = cmd_export_run,
};
