#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "client/cmd/job_number.h"
#include "client/connect.h"
#include "client/interrupts.h"
#include "client/text/prefix.h"
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
static enum err_code logs_copy_stream(struct rpc_stream *stream, struct prefixer *prefix, bool *any,
                                      struct err *e)
{
    CLEANUP(buf_release) struct buf out = {0}, talk = {0};
    for (;;) {
        CLEANUP(rpc_release) Ddp__V1__LogData *data = NULL;
        void *message = NULL;
        enum err_code code = rpc_stream_next(stream, 100, &message, e);
        data = message;
        if (interrupts_count()) /* the user has seen enough: no error */
            return ERR_OK;
        if (code == ERR_DEADLINE_EXCEEDED && !rpc_stream_ended(stream))
            continue;
        if (code != ERR_OK)
            return code;
        if (!data)
            break;
        *any = *any || *data->note || data->data.len;
        if (*data->note) {
            term_printf_safe(&talk, "ddpctl: %s", data->note);
            buf_putc(&talk, '\n');
        }
        prefixer_add(prefix, data->rank, data->standard_error, (const char *)data->data.data, data->data.len,
                     &out);
        stderr_put(&talk);
        if (!stdout_put(&out)) /* nobody reads any more */
            return ERR_OK;
    }
    prefixer_finish(prefix, &out);
    stdout_put(&out);
    return ERR_OK;
}

static int cmd_logs_run(struct invocation *in)
{
    const struct logs_options *o = in->options;
    Ddp__V1__ReadLogsRequest request = DDP__V1__READ_LOGS_REQUEST__INIT;
    struct rpc_stream *stream;
    struct prefixer prefix;
    struct link link;
    struct err e;
    int64_t rank = -1;
    bool any = false;
    if (job_number_parse(in->args.list[0], &request.job, &e) != ERR_OK)
        return error_print(&e);
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
    prefixer_init(&prefix, rank < 0 && isatty(STDOUT_FILENO), term_of(STDOUT_FILENO).colour);
    /* One stream of one rank passes unchanged. Two streams arrive in pieces and are merged by whole lines. */
    prefix.raw = rank >= 0 && !o->both;
    prefix.filtered = !o->raw && isatty(STDOUT_FILENO);
    enum err_code code =
        rpc_stream_open(&stream, link.channel, &ddp__v1__cluster__descriptor, "ReadLogs", &request, 0, 0, &e);
    if (code == ERR_OK) {
        code = logs_copy_stream(stream, &prefix, &any, &e);
        rpc_stream_close(stream);
    }
    if (code != ERR_OK)
        link_explain(&link, &e);
    prefixer_release(&prefix);
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
        "Prints what the workers of the newest generation wrote to standard output. On a terminal, if there\n"
        "are several ranks, each line begins with its rank; in a pipe lines are unchanged. Nodes that cannot "
        "be\n"
        "reached are named on stderr and left out. The files are in the log directory that `ddpctl status "
        "JOB`\n"
        "prints.",
    .options = options,
    .size = sizeof(struct logs_options),
    .least = 1,
    .most = 1,
    .run = cmd_logs_run,
};
