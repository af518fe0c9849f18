#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/match/pattern.h"
#include "base/mem.h"
#include "base/text.h"
#include "client/cmd/jobs/job_find.h"
#include "client/cmd/jobs/job_number.h"
#include "client/cmd/jobs/since.h"
#include "client/connect.h"
#include "client/interrupts.h"
#include "client/job_logs.h"
#include "client/output_targets.h"
#include "client/text/term.h"

#define LOGS_GREP_TAIL 10000 /* the nodes keep the positions of these lines in memory */
#define AGAIN_MS 500
#define AWAY                                                                                                 \
    "ddpctl: the coordinator does not answer; waiting for it, which does not affect the job (^C leaves)\n"

struct logs_options {
    const char *rank;
    bool follow, standard_out, standard_error, both, raw, timestamps;
    const char *generation, *since, *grep;
    int64_t lines, bytes;
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
     .help = "print standard error only"},
    {.name = "stdout",
     .type = OPTION_FLAG,
     .offset = offsetof(struct logs_options, standard_out),
     .help = "print standard output only"},
    {.name = "both",
     .type = OPTION_FLAG,
     .offset = offsetof(struct logs_options, both),
     .help = "print standard output and standard error, as without these options"},
    {.name = "generation",
     .letter = 'g',
     .type = OPTION_TEXT,
     .offset = offsetof(struct logs_options, generation),
     .value = "N",
     .help = "print an earlier generation, or all of them (-g all)",
     .default_text = "the newest"},
    {.name = "grep",
     .type = OPTION_TEXT,
     .offset = offsetof(struct logs_options, grep),
     .value = "RE",
     .help =
         "print only lines that match this regular expression (Perl syntax, as in grep -P); exit code 1 if no line matches"},
    {.name = "tail",
     .type = OPTION_INT,
     .offset = offsetof(struct logs_options, lines),
     .value = "N",
     .min = 1,
     .max = 1000000,
     .help =
         "print only the last N lines of each rank's standard output and of its standard error; with --grep, the last N lines that match"},
    {.name = "bytes",
     .type = OPTION_INT,
     .offset = offsetof(struct logs_options, bytes),
     .value = "N",
     .min = 1,
     .max = INFINITY,
     .help =
         "print only the last N bytes of each rank's standard output and of its standard error; with --grep, search only these bytes"},
    {.name = "since",
     .type = OPTION_TEXT,
     .offset = offsetof(struct logs_options, since),
     .value = "WHEN",
     .help = SINCE_HELP},
    {.name = "timestamps",
     .letter = 't',
     .type = OPTION_FLAG,
     .offset = offsetof(struct logs_options, timestamps),
     .help = "begin each line with the time when it was written, and its rank"},
    {.name = "raw",
     .type = OPTION_FLAG,
     .offset = offsetof(struct logs_options, raw),
     .help = "pass every byte unchanged, even to a terminal"},
    {0},
};

/* "14:03:07.214 [0]", with the date if that is not today's. */
static void logs_label_time(struct output_merge *merge, const Ddp__V1__LogData *data)
{
    CLEANUP(free_text) char *label = NULL;
    if (data->written_ms > 0)
        label = xasprintf("%s.%03d [%d] ", text_clock(data->written_ms, clock_wall_ms(), true).text,
                          (int)(data->written_ms % 1000), data->rank);
    else
        label = xasprintf("?            [%d] ", data->rank);
    output_merge_label(merge, data->rank, data->standard_error, label);
}

static void logs_add(struct output_merge *merge, const Ddp__V1__LogData *data, const struct logs_options *o)
{
    if (o->timestamps)
        logs_label_time(merge, data);
    output_merge_add(merge, data->rank, data->standard_error, (const char *)data->data.data, data->data.len,
                     clock_boot_ms());
}

/* What the call has received: output, notes that say why output is missing, and whether that makes it incomplete. */
struct logs_received {
    bool data, note, incomplete;
    bool away; /* the user was told that the coordinator does not answer */
};

static void logs_wait_for_coordinator(struct link *link, struct output_merge *merge,
                                      struct logs_received *any)
{
    CLEANUP(buf_release) struct buf talk = {0};
    if (!any->away) {
        buf_puts(&talk, AWAY);
        output_merge_say(merge, true, &talk);
    }
    any->away = true;
    for (int i = 0; i < AGAIN_MS / 100 && !interrupts_count(); i++)
        link_sleep(link, 100);
}

/* Waits a moment for more output, which is NULL if none has come. */
static enum err_code logs_next(struct job_logs *logs, struct output_merge *merge, Ddp__V1__LogData **data,
                               struct err *e)
{
    *data = NULL;
    if (!job_logs_are_open(logs) && job_logs_open(logs, e) != ERR_OK)
        return e->code;
    return job_logs_next(logs, output_merge_waits(merge) ? 10 : 100, data, e);
}

static enum err_code logs_copy_stream(struct job_logs *logs, struct output_merge *merge,
                                      const struct logs_options *o, struct logs_received *any, struct err *e)
{
    CLEANUP(buf_release) struct buf talk = {0};
    for (;;) {
        CLEANUP(rpc_release) Ddp__V1__LogData *data = NULL;
        const enum err_code code = logs_next(logs, merge, &data, e);
        if (interrupts_count()) /* the user has seen enough: no error */
            return ERR_OK;
        /* The coordinator does not report how far a search has come, so a search cannot be continued. */
        if (code == ERR_UNAVAILABLE && o->follow && !o->grep)
            logs_wait_for_coordinator(logs->link, merge, any);
        else if (code != ERR_OK)
            return code;
        if (!data && logs->over)
            return ERR_OK;
        if (!data) {
            output_merge_tick(merge, clock_boot_ms());
            if (!output_targets_put(merge)) /* nobody reads any more */
                return ERR_OK;
            continue;
        }
        any->away = false;
        any->data = any->data || data->data.len;
        any->note = any->note || *data->note;
        any->incomplete = any->incomplete || data->incomplete;
        if (*data->note) {
            term_printf_safe(&talk, "ddpctl: %s", data->note);
            buf_putc(&talk, '\n');
        }
        output_merge_say(merge, true, &talk);
        buf_clear(&talk);
        logs_add(merge, data, o);
        if (!output_targets_put(merge))
            return ERR_OK;
    }
}

static enum err_code logs_check_grep(const struct logs_options *o, struct err *e)
{
    struct pattern *pattern;
    if (!o->grep)
        return ERR_OK;
    if (o->lines > LOGS_GREP_TAIL)
        return err_set(e, ERR_INVALID_ARGUMENT, "--tail: at most %d with --grep, got %lld", LOGS_GREP_TAIL,
                       (long long)o->lines);
    if (pattern_compile(o->grep, &pattern, e) != ERR_OK)
        return err_wrap(e, "--grep");
    pattern_free(pattern);
    return ERR_OK;
}

static enum err_code logs_read_options(const struct logs_options *o, Ddp__V1__ReadLogsRequest *request,
                                       struct err *e)
{
    int64_t rank = -1;
    const char *rest = "";
    if (o->rank && job_rank_parse(o->rank, &rank, e) != ERR_OK)
        return e->code;
    if (logs_check_grep(o, e) != ERR_OK)
        return e->code;
    if (o->since && since_parse(o->since, &request->since_ms, e) != ERR_OK)
        return e->code;
    request->all_generations = o->generation && strcmp(o->generation, "all") == 0;
    if (o->generation && !request->all_generations) {
        errno = 0;
        request->generation = strtoll(o->generation, (char **)&rest, 10);
        if (*rest || errno || request->generation < 1 || !isdigit((unsigned char)*o->generation))
            return option_refuse("generation", "the number of a generation, from 1 on, or 'all'",
                                 o->generation, e);
    }
    request->rank = (int32_t)rank;
    request->follow = o->follow;
    request->both = o->both || o->standard_out == o->standard_error;
    request->standard_error = o->standard_error;
    request->tail_lines = o->lines;
    request->tail_bytes = o->bytes;
    request->times = o->timestamps;
    request->grep = (char *)(uintptr_t)(o->grep ? o->grep : "");
    return ERR_OK;
}

static void logs_explain_nothing(const struct logs_options *o)
{
    const bool both = o->both || o->standard_out == o->standard_error;
    fprintf(stderr, "ddpctl: %s%s%s\n", o->grep ? "no line matches" : "nothing was written",
            both                ? ""
            : o->standard_error ? o->grep ? " in standard error" : " to standard error"
            : o->grep           ? " in standard output; --stderr searches standard error"
                                : " to standard output; --stderr prints standard error",
            o->since ? " since that time" : "");
}

/* Whether the coordinator answers, and has this job: with -f ddpctl waits for it only if it has answered once. */
static enum err_code logs_check_job(struct link *link, int64_t job, struct err *e)
{
    Ddp__V1__GetJobRequest request = DDP__V1__GET_JOB_REQUEST__INIT;
    CLEANUP(rpc_release) void *reply = NULL;
    request.job = job;
    return link_call(link, "GetJob", &request, &reply, 0, e);
}

static int cmd_logs_run(struct invocation *in)
{
    const struct logs_options *o = in->options;
    Ddp__V1__ReadLogsRequest request = DDP__V1__READ_LOGS_REQUEST__INIT;
    struct output_merge merge;
    struct job_logs logs;
    struct link link;
    struct err e;
    struct logs_received any = {0};
    if (logs_read_options(o, &request, &e) != ERR_OK || link_open(&link, in->globals, &e) != ERR_OK)
        return error_print(&e);
    interrupts_catch();
    /* One stream of one rank passes unchanged; two streams are merged by lines. */
    const bool several = request.rank < 0 || request.both;
    const struct output_targets_options targets = {.several = several, .raw = o->raw};
    output_merge_init(&merge);
    output_targets_set(&merge, &targets);
    merge.joined = true;
    merge.targets[0].wanted = merge.targets[0].wanted && request.rank < 0;
    merge.targets[0].dims_errors = merge.targets[0].colour && !o->standard_error;
    enum err_code code = job_find(&link, "logs", in->args.list[0], &request.job, &e);
    if (code == ERR_OK && o->follow)
        code = logs_check_job(&link, request.job, &e);
    if (code == ERR_OK) {
        job_logs_init_request(&logs, &link, &request);
        code = logs_copy_stream(&logs, &merge, o, &any, &e);
        job_logs_release(&logs);
        output_merge_finish(&merge, clock_boot_ms());
        output_targets_put(&merge);
        if (code != ERR_OK)
            link_explain(&link, &e);
    }
    output_merge_release(&merge);
    link_close(&link);
    if (code != ERR_OK)
        return error_print(&e);
    if (interrupts_count())
        return EXIT_DONE;
    if (any.incomplete && !any.note) /* the coordinator drops notes that a slow reader has no room for */
        fprintf(stderr, "ddpctl: a part of the logs is missing\n");
    else if (!any.data && (!any.note || o->grep))
        logs_explain_nothing(o);
    return any.incomplete || (o->grep && !any.data) ? EXIT_FAILED : EXIT_DONE;
}

const struct command cmd_logs = {
    .name = "logs",
    .usage = "logs JOB [--rank R] [-f] [--tail N] [--stdout | --stderr]",
    .summary = "print what the workers wrote",
    .help =
        "Prints what the workers of the newest generation wrote to standard output and standard error, in the\n"
        "order in which they wrote it. All of it goes to ddpctl's standard output. On a terminal standard error\n"
        "is dim; without --rank each line begins with its rank, and with -f progress bars stay at the bottom. In\n"
        "a pipe lines are unchanged. If a node cannot be reached, ddpctl prints the coordinator's copy of the last\n"
        "64 KiB of each log, and says so on stderr. `ddpctl status JOB` prints the directory of the log files.\n"
        "Exit code 1: a part of what you asked for is missing; stderr says why.",
    .options = options,
    .size = sizeof(struct logs_options),
    .least = 1,
    .most = 1,
    .run = cmd_logs_run,
};
