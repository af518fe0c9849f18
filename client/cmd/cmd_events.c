#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "client/cmd/job_number.h"
#include "client/connect.h"
#include "client/screen/screen_events.h"
#include "client/text/json_print.h"

struct events_options {
    const char *output;
};

static const struct option_spec options[] = {OPTION_OUTPUT(events_options, output), {0}};

static int cmd_events_run(struct invocation *in)
{
    const struct events_options *o = in->options;
    Ddp__V1__GetEventsRequest request = DDP__V1__GET_EVENTS_REQUEST__INIT;
    CLEANUP(rpc_release) void *reply = NULL;
    CLEANUP(buf_release) struct buf out = {0};
    struct term term = term_of(STDOUT_FILENO);
    struct link link;
    struct err e;
    if ((in->args.count && job_number_parse(in->args.list[0], &request.job, &e) != ERR_OK) ||
        link_open(&link, in->globals, &e) != ERR_OK)
        return error_print(&e);
    enum err_code code = link_call(&link, "GetEvents", &request, &reply, 0, &e);
    if (code == ERR_OK && o->output && strcmp(o->output, "json") == 0)
        json_print(reply, &out);
    else if (code == ERR_OK)
        screen_events(reply, &term, &out);
    stdout_put(&out);
    link_close(&link);
    return code == ERR_OK ? EXIT_DONE : error_print(&e);
}

const struct command cmd_events = {
    .name = "events",
    .usage = "events [JOB] [-o table|json]",
    .summary = "list what happened to a job, and what each failure cost",
    .help =
        "Prints every change of the job's state, its generations and its failures, oldest first, in local\n"
        "time. Without JOB: the events of the cluster itself (nodes, database, backups).",
    .options = options,
    .size = sizeof(struct events_options),
    .most = 1,
    .run = cmd_events_run,
};
