#include "base/mem.h"
#include "client/cmd/job_number.h"
#include "client/connect.h"

struct cancel_options {
    bool kill;
};

static const struct option_spec options[] = {
    {.name = "kill",
     .type = OPTION_FLAG,
     .offset = offsetof(struct cancel_options, kill),
     .help = "kill it at once, without a snapshot and without grace"},
    {0},
};

static int cmd_cancel_run(struct invocation *in)
{
    const struct cancel_options *o = in->options;
    Ddp__V1__CancelJobRequest request = DDP__V1__CANCEL_JOB_REQUEST__INIT;
    CLEANUP(rpc_release) void *reply = NULL;
    CLEANUP(buf_release) struct buf talk = {0};
    struct link link;
    struct err e;
    if (job_number_parse(in->args.list[0], &request.job, &e) != ERR_OK ||
        link_open(&link, in->globals, &e) != ERR_OK)
        return error_print(&e);
    request.kill = o->kill;
    enum err_code code = link_call(&link, "CancelJob", &request, &reply, 0, &e);
    if (code == ERR_OK) {
        const Ddp__V1__CancelJobReply *answer = reply;
        buf_printf(&talk, "#%lld %s\n", (long long)request.job, answer->state);
        stderr_put(&talk);
    }
    link_close(&link);
    return code == ERR_OK ? EXIT_DONE : error_print(&e);
}

const struct command cmd_cancel = {
    .name = "cancel",
    .usage = "cancel JOB [--kill]",
    .summary = "stop a job",
    .help =
        "A train job finishes its step and writes a snapshot, from which `ddpctl resume JOB` continues. A\n"
        "command gets SIGTERM, and SIGKILL once its grace is over (30 s, `grace` in the job file).",
    .options = options,
    .size = sizeof(struct cancel_options),
    .least = 1,
    .most = 1,
    .run = cmd_cancel_run,
};
