#include "base/mem.h"
#include "client/cmd/jobs/job_find.h"

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

static enum err_code cancel_send(struct link *link, int64_t job, void *context, struct err *e)
{
    const struct cancel_options *o = context;
    Ddp__V1__CancelJobRequest request = DDP__V1__CANCEL_JOB_REQUEST__INIT;
    CLEANUP(rpc_release) void *reply = NULL;
    CLEANUP(buf_release) struct buf talk = {0};
    request.job = job;
    request.kill = o->kill;
    if (link_call(link, "CancelJob", &request, &reply, 0, e) != ERR_OK)
        return e->code;
    const Ddp__V1__CancelJobReply *answer = reply;
    buf_printf(&talk, "#%lld %s\n", (long long)job, answer->state);
    stderr_put(&talk);
    return ERR_OK;
}

static int cmd_cancel_run(struct invocation *in)
{
    return jobs_each(in, cancel_send, in->options);
}

const struct command cmd_cancel = {
    .name = "cancel",
    .usage = "cancel JOB... [--kill]",
    .summary = "stop jobs",
    .help =
        "A train job finishes its step and writes a snapshot, from which `ddpctl resume JOB` continues. A\n"
        "command gets SIGTERM, and SIGKILL once its grace is over (30 s, `grace` in the job file).\n\n"
        "JOB, here and elsewhere, is a number, a range of numbers, the name of one job, or `last`, the newest\n"
        "job that you have submitted:\n\n"
        "  ddpctl cancel 3-5 9 my-run last",
    .options = options,
    .size = sizeof(struct cancel_options),
    .least = 1,
    .most = JOBS_MOST,
    .run = cmd_cancel_run,
};
