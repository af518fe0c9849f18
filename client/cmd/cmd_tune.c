#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/job/job_tune.h"
#include "base/json.h"
#include "base/mem.h"
#include "client/cmd/jobs/job_find.h"
#include "client/connect.h"
#include "client/text/json_print.h"
#include "client/text/table.h"

struct tune_options {
    const char *output;
};

static const struct option_spec options[] = {OPTION_OUTPUT(tune_options, output), {0}};

static const struct table_column columns[] = {{"KEY", false}, {"VALUE", false}};

static void tune_list_json(int64_t job, const struct job_change *values, size_t count, struct buf *out)
{
    struct jout o = {.buf = out};

    jout_open(&o, NULL, '{');
    jout_int(&o, "job", job);
    jout_open(&o, "values", '{');
    for (size_t i = 0; i < count; i++)
        jout_text(&o, values[i].key, values[i].from);
    jout_close(&o, '}');
    jout_close(&o, '}');
    buf_putc(out, '\n');
}

static void tune_list_table(const struct job_change *values, size_t count, struct buf *out)
{
    CLEANUP(table_release) struct table *table = table_new(columns, ARRAY_LEN(columns));
    struct term term = term_of(STDOUT_FILENO);

    for (size_t i = 0; i < count; i++) {
        table_cell(table, STYLE_NONE, values[i].key);
        table_cell(table, STYLE_NONE, values[i].from);
        table_end_row(table);
    }
    table_print(table, &term, out);
}

/* The coordinator keeps the job file as it is after the last change. */
static enum err_code tune_list(struct link *link, int64_t job, bool json, struct err *e)
{
    Ddp__V1__GetJobRequest request = DDP__V1__GET_JOB_REQUEST__INIT;
    CLEANUP(rpc_release) void *message = NULL;
    CLEANUP(job_release) struct job_spec spec = {0};
    CLEANUP(buf_release) struct buf out = {0};
    size_t count;

    request.job = job;
    if (link_call(link, "GetJob", &request, &message, 0, e) != ERR_OK)
        return e->code;
    const Ddp__V1__JobStatus *status = message;
    if (job_parse(&spec, status->job_file, strlen(status->job_file), "job file", e) != ERR_OK)
        return e->code;
    if (spec.kind != JOB_TRAIN)
        return err_set(e, ERR_FAILED_PRECONDITION,
                       "job %" PRId64 " is a command job: only train jobs can be tuned", job);
    struct job_change *values = job_tunable(&spec, &count);
    if (json)
        tune_list_json(job, values, count, &out);
    else
        tune_list_table(values, count, &out);
    job_changes_free(values, count);
    (json ? stdout_put : screen_put)(&out);
    return ERR_OK;
}

/* "#3 optimizer.lr 0.001 -> 0.0001, at the next step" */
static void tune_print_reply(int64_t job, const Ddp__V1__TuneJobReply *reply)
{
    CLEANUP(buf_release) struct buf talk = {0};

    buf_printf(&talk, "#%" PRId64, job);
    for (size_t i = 0; i < reply->n_changes; i++)
        buf_printf(&talk, "%s %s %s -> %s", i ? "," : "", reply->changes[i]->key, reply->changes[i]->from,
                   reply->changes[i]->to);
    if (reply->n_changes)
        buf_printf(&talk, ", %s\n", reply->when);
    else
        buf_puts(&talk, " has these values already\n");
    stderr_put(&talk);
}

static enum err_code tune_change(struct link *link, int64_t job, char *const *assignments, size_t count,
                                 bool json, struct err *e)
{
    Ddp__V1__TuneJobRequest request = DDP__V1__TUNE_JOB_REQUEST__INIT;
    CLEANUP(rpc_release) void *reply = NULL;
    CLEANUP(buf_release) struct buf out = {0};

    request.job = job;
    request.assignments = (char **)(uintptr_t)assignments;
    request.n_assignments = count;
    if (link_call(link, "TuneJob", &request, &reply, 0, e) != ERR_OK)
        return e->code;
    if (json)
        json_print(reply, &out);
    else
        tune_print_reply(job, reply);
    stdout_put(&out);
    return ERR_OK;
}

static int cmd_tune_run(struct invocation *in)
{
    const struct tune_options *o = in->options;
    const bool json = o->output && strcmp(o->output, "json") == 0;
    struct link link;
    int64_t job;
    struct err e;
    if (link_open(&link, in->globals, &e) != ERR_OK)
        return error_print(&e);
    enum err_code code = job_find(&link, "tune", in->args.list[0], &job, &e);
    if (code == ERR_OK && in->args.count > 1)
        code = tune_change(&link, job, (char *const *)(uintptr_t)(in->args.list + 1), in->args.count - 1,
                           json, &e);
    else if (code == ERR_OK)
        code = tune_list(&link, job, json, &e);
    link_close(&link);
    return code == ERR_OK ? EXIT_DONE : error_print(&e);
}

const struct command cmd_tune = {
    .name = "tune",
    .usage = "tune JOB [KEY=VALUE...] [-o table|json]",
    .summary = "change values of a train job while it runs",
    .help =
        "For example `ddpctl tune 3 optimizer.lr=1e-4 sync.every=200`. All ranks take the values over between\n"
        "the same two steps: after the next step, or at the end of a round where ranks exchange in rounds\n"
        "(average, diloco). The values stay when the job restarts or is resumed. To undo a change, set the\n"
        "former value; `ddpctl events JOB` shows it.\n\n"
        "Without KEY=VALUE, prints the keys that can change, and their present values.",
    .options = options,
    .size = sizeof(struct tune_options),
    .least = 1,
    .most = 65,
    .run = cmd_tune_run,
};
