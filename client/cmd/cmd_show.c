#include <string.h>

#include "base/mem.h"
#include "client/cmd/jobs/job_find.h"

static int cmd_show_run(struct invocation *in)
{
    Ddp__V1__GetJobRequest request = DDP__V1__GET_JOB_REQUEST__INIT;
    CLEANUP(rpc_release) void *reply = NULL;
    CLEANUP(buf_release) struct buf out = {0};
    struct link link;
    struct err e;
    if (link_open(&link, in->globals, &e) != ERR_OK)
        return error_print(&e);
    enum err_code code = job_find(&link, "show", in->args.list[0], &request.job, &e);
    if (code == ERR_OK)
        code = link_call(&link, "GetJob", &request, &reply, 0, &e);
    if (code == ERR_OK) {
        const char *text = ((const Ddp__V1__JobStatus *)reply)->job_file;
        buf_puts(&out, text); /* printable: job_print quotes control characters */
        if (*text && text[strlen(text) - 1] != '\n')
            buf_putc(&out, '\n');
        stdout_put(&out);
    }
    link_close(&link);
    return code == ERR_OK ? EXIT_DONE : error_print(&e);
}

const struct command cmd_show = {
    .name = "show",
    .usage = "show JOB",
    .summary = "print the job file of a job",
    .help =
        "Prints the job file as the coordinator has it: with the options of `submit`, absolute paths, and what\n"
        "`tune`, `priority` and `hold` have changed. It can be submitted again:\n\n"
        "  ddpctl show 9 > again.yaml",
    .least = 1,
    .most = 1,
    .run = cmd_show_run,
};
