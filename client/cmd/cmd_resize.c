#include <inttypes.h>

#include "base/mem.h"
#include "client/cmd/jobs/job_find.h"
#include "client/cmd/jobs/job_number.h"

/* The commands that change a job while it runs: resize and restart. */

static enum err_code resize_call(struct link *link, const char *method, int64_t job, const void *request,
                                 struct err *e)
{
    CLEANUP(rpc_release) void *message = NULL;
    CLEANUP(buf_release) struct buf talk = {0};
    if (link_call(link, method, request, &message, 0, e) != ERR_OK)
        return e->code;
    const Ddp__V1__ChangeJobReply *reply = message;
    buf_printf(&talk, "#%" PRId64 " %s\n", job, reply->state);
    stderr_put(&talk);
    return ERR_OK;
}

static int cmd_resize_run(struct invocation *in)
{
    Ddp__V1__ResizeJobRequest request = DDP__V1__RESIZE_JOB_REQUEST__INIT;
    struct link link;
    struct err e;
    if (nodes_range_parse(in->args.list[1], &request.nodes_min, &request.nodes_max, &e) != ERR_OK ||
        link_open(&link, in->globals, &e) != ERR_OK)
        return error_print(&e);
    const int code = job_find(&link, "resize", in->args.list[0], &request.job, &e) == ERR_OK &&
                             resize_call(&link, "ResizeJob", request.job, &request, &e) == ERR_OK
                         ? EXIT_DONE
                         : error_print(&e);
    link_close(&link);
    return code;
}

struct restart_options {
    bool from_scratch;
};

static const struct option_spec restart_options[] = {
    {.name = "from-scratch",
     .type = OPTION_FLAG,
     .offset = offsetof(struct restart_options, from_scratch),
     .help = "restart at step 0; the present snapshots no longer count"},
    {0},
};

static enum err_code restart_send(struct link *link, int64_t job, void *context, struct err *e)
{
    const struct restart_options *o = context;
    Ddp__V1__RestartJobRequest request = DDP__V1__RESTART_JOB_REQUEST__INIT;
    request.job = job;
    request.from_scratch = o->from_scratch;
    return resize_call(link, "RestartJob", job, &request, e);
}

static int cmd_restart_run(struct invocation *in)
{
    return jobs_each(in, restart_send, in->options);
}

const struct command cmd_resize = {
    .name = "resize",
    .usage = "resize JOB NODES",
    .summary = "give a job more or fewer nodes while it runs",
    .help =
        "NODES is N, or MIN:MAX for a job that grows and shrinks with the cluster. If the job has more nodes\n"
        "than that, it continues on NODES now. If it has fewer, it keeps running until enough nodes are free.\n"
        "A train job whose ranks can continue changes its nodes between two steps. Any other train job writes\n"
        "a snapshot and continues from it; a command gets SIGTERM and is started again. This does not count as\n"
        "a restart. If the job waits for nodes whose parts of its\n"
        "snapshots are missing, it stops waiting and starts at once. If enough other nodes have their parts, it\n"
        "runs on those only.",
    .least = 2,
    .most = 2,
    .run = cmd_resize_run,
};
const struct command cmd_restart = {
    .name = "restart",
    .usage = "restart JOB... [--from-scratch]",
    .summary = "stop the workers of jobs and start them again",
    .help =
        "A train job writes a snapshot and continues from it; a command gets SIGTERM and is started again.\n"
        "This does not count as a restart. A job that waits for its snapshots looks for them at once.\n\n"
        "With --from-scratch a train job restarts at step 0. Its present snapshots no longer count; they are\n"
        "moved to DIR/set-aside-gN, where N is the generation that ends. A command that has committed\n"
        "a snapshot restarts without it: ddp sets DDP_FROM_SCRATCH=1 and leaves the files in place. The\n"
        "option is refused for commands that have committed nothing.",
    .options = restart_options,
    .size = sizeof(struct restart_options),
    .least = 1,
    .most = JOBS_MOST,
    .run = cmd_restart_run,
};
