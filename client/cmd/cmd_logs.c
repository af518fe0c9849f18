#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "client/cmd/jobs/job_find.h"
#include "client/cmd/jobs/job_number.h"
#include "client/connect.h"
#include "client/interrupts.h"
#include "client/output_targets.h"
#include "client/text/term.h"

struct logs_options {
    const char *rank;
    bool follow, standard_error, both, raw;
    int64_t generation, tail;
};

static const struct option_spec options[] = {
    {.name = "rank",
     .letter = 'r',
     .type = OPTION_TEXT,
     .offset = offsetof(struct logs_options, rank),
     .value = "R",
     .help = "print this rank only"},
    {.name = "follow",
     .letter = 'f',
     .type = OPTION_FLAG,
     .offset = offsetof(struct logs_options, follow),
     .help = "print new output until the job ends; ^C leaves"},
    {.name = "stderr",
     .letter = 'e',
     .type = OPTION_FLAG,
     .offset = offsetof(struct logs_options, standard_error),
     .help = "print standard error instead of standard output"},
    {.name = "both",
     .type = OPTION_FLAG,
     .offset = offsetof(struct logs_options, both),
     .help = "print standard output and standard error"},
    {.name = "generation",
     .letter = 'g',
     .type = OPTION_INT,
     .offset = offsetof(struct logs_options, generation),
     .value = "N",
     .help = "print an earlier generation",
     .default_text = "the newest"},
    {.name = "tail",
     .type = OPTION_INT,
     .offset = offsetof(struct logs_options, tail),
     .value = "BYTES",
     .help = "print only the last BYTES of each file"},
    {.name = "raw",
     .type = OPTION_FLAG,
     .offset = offsetof(struct logs_options, raw),
     .help = "pass every byte unchanged, even to a terminal"},
    {0},
};

/* *any: whether there was output, or a note that explains why there is none. */
static enum err_code logs_copy_stream(struct rpc_stream *stream, struct output_merge *merge, bool *any,
                                      struct err *e)
{
    CLEANUP(buf_release) struct buf talk = {0};
    for (;;) {
        CLEANUP(rpc_release) Ddp__V1__LogData *data = NULL;
        void *message = NULL;
        enum err_code code = rpc_stream_next(stream, output_merge_waits(merge) ? 10 : 100, &message, e);
        data = message;
        if (interrupts_count()) /* the user has seen enough: no error */
            return ERR_OK;
        if (code == ERR_DEADLINE_EXCEEDED && !rpc_stream_ended(stream)) {
            output_merge_tick(merge, clock_boot_ms());
            if (!output_targets_put(merge)) /* nobody reads any more */
                return ERR_OK;
            continue;
        }
        if (code != ERR_OK)
            return code;
        if (!data)
            return ERR_OK;
        *any = *any || *data->note || data->data.len;
        if (*data->note) {
            term_printf_safe(&talk, "ddpctl: %s", data->note);
            buf_putc(&talk, '\n');
        }
        output_merge_say(merge, true, &talk);
        buf_clear(&talk);
        output_merge_add(merge, data->rank, data->standard_error, (const char *)data->data.data,
                         data->data.len, clock_boot_ms());
        if (!output_targets_put(merge))
            return ERR_OK;
    }
}

static int cmd_logs_run(struct invocation *in)
{
    const struct logs_options *o = in->options;
    Ddp__V1__ReadLogsRequest request = DDP__V1__READ_LOGS_REQUEST__INIT;
    struct rpc_stream *stream;
    struct output_merge merge;
    struct link link;
    struct err e;
    int64_t rank = -1;
    bool any = false;
    if (o->rank && job_rank_parse(o->rank, &rank, &e) != ERR_OK)
        return error_print(&e);
    request.rank = (int32_t)rank;
    request.follow = o->follow;
    request.standard_error = o->standard_error;
    request.both = o->both;
    request.generation = o->generation;
    request.tail_bytes = o->tail;
    if (link_open(&link, in->globals, &e) != ERR_OK)
        return error_print(&e);
    interrupts_catch();
    /* One stream of one rank passes unchanged. */
    const struct output_targets_options targets = {.several = rank < 0 || o->both, .raw = o->raw};
    output_merge_init(&merge);
    output_targets_set(&merge, &targets);
    merge.joined = true;
    merge.targets[0].wanted = merge.targets[0].wanted && rank < 0;
    enum err_code code = job_find(&link, "logs", in->args.list[0], &request.job, &e);
    const bool found = code == ERR_OK;
    if (found)
        code = rpc_stream_open(&stream, link.channel, &ddp__v1__cluster__descriptor, "ReadLogs", &request, 0,
                               0, &e);
    if (code == ERR_OK) {
        code = logs_copy_stream(stream, &merge, &any, &e);
        rpc_stream_close(stream);
        output_merge_finish(&merge, clock_boot_ms());
        output_targets_put(&merge);
    }
    if (found && code != ERR_OK)
        link_explain(&link, &e);
    output_merge_release(&merge);
    link_close(&link);
    /* Python's logging, tracebacks and ddp-trainer write to standard error only. */
    if (code == ERR_OK && !any && !o->standard_error && !o->both && !interrupts_count())
        fprintf(stderr, "ddpctl: there is no standard output; --stderr prints standard error\n");
    return code == ERR_OK ? EXIT_DONE : error_print(&e);
}

const struct command cmd_logs = {
    .name = "logs",
    .usage = "logs JOB [--rank R] [-f] [--stderr]",
    .summary = "print what the workers wrote",
    .help =
        "Prints what the workers of the newest generation wrote to standard output. Without --rank, on a\n"
        "terminal each line begins with its rank, and with -f progress bars stay at the bottom; in a pipe lines\n"
        "are unchanged. Nodes that cannot be reached are named on stderr and left out. The files are in the log\n"
        "directory that `ddpctl status JOB` prints.",
    .options = options,
    .size = sizeof(struct logs_options),
    .least = 1,
    .most = 1,
    .run = cmd_logs_run,
};
