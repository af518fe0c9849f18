#include <stdlib.h>

#include "base/mem.h"
#include "client/cmd/jobs/job_find.h"
#include "client/cmd/submit/submit.h"

struct resume_options {
    char **set;
    bool follow;
    const char *output;
};

static const struct option_spec options[] = {
    {.name = "set",
     .type = OPTION_TEXTS,
     .offset = offsetof(struct resume_options, set),
     .value = "KEY=VALUE",
     .help = "change a key of the job file: train.epochs=20; may be repeated"},
    {.name = "follow",
     .letter = 'f',
     .type = OPTION_FLAG,
     .offset = offsetof(struct resume_options, follow),
     .help =
         "show a train job's progress or a command's output until it ends; ^C detaches and does not cancel"},
    OPTION_OUTPUT(resume_options, output),
    {0},
};

static int job_resume(struct link *link, int64_t old, const void *context)
{
    const struct resume_options *o = context;
    CLEANUP(free_text) char *name = NULL;
    struct err e;
    int64_t job;
    if (submit_resumed(link, old, o->set, &job, &name, &e) != ERR_OK)
        return error_print(&e);
    return submit_after(link, job, name, o->follow, o->output);
}

static int cmd_resume_run(struct invocation *in)
{
    const struct resume_options *o = in->options;
    return jobs_run(in, o->follow ? "resume --follow" : NULL, job_resume, o);
}

const struct command cmd_resume = {
    .name = "resume",
    .usage = "resume JOB... [--set KEY=VALUE ...] [--follow]",
    .summary = "continue ended jobs from their last snapshots, as new jobs",
    .help =
        "Submits the job file of JOB again, changed by --set. The new job continues from the last committed\n"
        "snapshot of JOB; it has a number of its own, and `ddpctl status` shows which job it continues. Any\n"
        "number of ranks can resume any snapshot, except that with `reproducible: world` the number of ranks\n"
        "must divide the shards.\n\n"
        "The new job gets the variables that the submit of JOB sent from its user's environment, if you have\n"
        "submitted JOB yourself. --set env.NAME=VALUE changes a variable.\n\n"
        "  ddpctl resume 7 --set train.epochs=20",
    .options = options,
    .size = sizeof(struct resume_options),
    .least = 1,
    .most = JOBS_MOST,
    .run = cmd_resume_run,
};
