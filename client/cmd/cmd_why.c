#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "client/cmd/jobs/job_find.h"
#include "client/connect.h"
#include "client/diagnose/diagnosis.h"
#include "client/reply_json.h"
#include "client/screen/screen_why.h"

struct why_options {
    const char *output;
};

static const struct option_spec options[] = {OPTION_OUTPUT(why_options, output), {0}};

static int cmd_why_run(struct invocation *in)
{
    const struct why_options *o = in->options;
    Ddp__V1__ProbeJobRequest request = DDP__V1__PROBE_JOB_REQUEST__INIT;
    CLEANUP(rpc_release) void *reply = NULL;
    CLEANUP(diagnosis_release) struct diagnosis diagnosis = {0};
    CLEANUP(buf_release) struct buf out = {0};
    struct term term = term_of(STDOUT_FILENO);
    struct link link;
    struct err e;
    if (link_open(&link, in->globals, &e) != ERR_OK)
        return error_print(&e);
    enum err_code code = job_find(&link, "why", in->args.list[0], &request.job, &e);
    if (code == ERR_OK)
        code = link_call(&link, "ProbeJob", &request, &reply, 0, &e);
    link_close(&link);
    if (code != ERR_OK)
        return error_print(&e);
    diagnosis_find(reply, &diagnosis);
    if (o->output && strcmp(o->output, "json") == 0) {
        reply_json_why(reply, &out);
    } else {
        screen_why(reply, &diagnosis, &term, &out);
        screen_fold(&out);
    }
    return stdout_put(&out) ? EXIT_DONE : EXIT_FAILED;
}

const struct command cmd_why = {
    .name = "why",
    .usage = "why JOB [-o table|json]",
    .summary = "find out why a job hangs, waits, is slow or has failed",
    .help =
        "Prints the cause in one sentence, then the evidence. The nodes inspect the job's processes now,\n"
        "whatever program these run. If the ranks of a job that hangs wait for one rank, `why` names it, with\n"
        "its node, its process and the system call in which it waits. For a job that failed, it names the first\n"
        "failure, and lists the later failures that it caused.\n\n"
        "IDLE is the time since a rank's processes used CPU time, QUIET the time since its last output or\n"
        "report.",
    .options = options,
    .size = sizeof(struct why_options),
    .least = 1,
    .most = 1,
    .run = cmd_why_run,
};
