#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "client/cmd/submit.h"
#include "client/diagnose/preflight_survey.h"

struct submit_options {
    struct job_flags job; /* first: job_flag_options fill it */
    bool resume, follow;
    const char *output;
    char **exports;
};

static const struct option_spec options[] = {
    {.name = "follow",
     .letter = 'f',
     .type = OPTION_FLAG,
     .offset = offsetof(struct submit_options, follow),
     .help = "show how it goes until it ends; ^C detaches, never cancels"},
    {.name = "resume",
     .type = OPTION_FLAG,
     .offset = offsetof(struct submit_options, resume),
     .help = "go on from another job's snapshots in snapshot.dir"},
    {.name = "export",
     .type = OPTION_TEXTS,
     .offset = offsetof(struct submit_options, exports),
     .value = "NAME",
     .help = "gives the workers this variable too; ALL, or NONE; repeatable"},
    OPTION_OUTPUT(submit_options, output),
    {0},
};

/* Paths that are not here may be on the nodes: said, not refused. */
static void submit_warn_missing(const char *text)
{
    CLEANUP(buf_release) struct buf talk = {0};
    char **missing = job_text_missing(text);
    for (size_t i = 0; missing && missing[i]; i++)
        buf_printf(&talk, "ddpctl: warning: %s, each node must have it\n", missing[i]);
    stderr_put(&talk);
    strv_free(missing);
}

/* A COMMAND gets what makes it the submitter's: PATH, the virtual environment. A job file says all by itself,
 * but for
 * --export. */
static enum err_code submit_read_environment(const struct submit_options *o, bool command, char ***env,
                                             struct err *e)
{
    char *const nothing[] = {NULL};
    *env = NULL;
    if (!command && !o->exports)
        return ERR_OK;
    return job_text_environment(environ ? environ : nothing, o->exports, env, e);
}

static char *submit_job_name(const char *text)
{
    struct job_spec spec;
    struct err e;
    char *name = job_parse(&spec, text, strlen(text), "job file", &e) == ERR_OK ? xstrdup(spec.name) : NULL;
    job_release(&spec);
    return name ? name : xstrdup("job");
}

static int cmd_submit_run(struct invocation *in)
{
    struct submit_options *o = in->options;
    CLEANUP(free_text) char *text = NULL;
    char **env = NULL;
    struct link link;
    struct err e;
    int64_t job;
    if (submit_text(&in->args, &o->job, &text, &e) != ERR_OK ||
        submit_read_environment(o, in->args.tail, &env, &e) != ERR_OK)
        return error_print(&e);
    submit_warn_missing(text);
    if (link_open(&link, in->globals, &e) != ERR_OK) {
        strv_free(env);
        return error_print(&e);
    }
    if (o->follow) /* what follows is followed from its start */
        preflight_survey_warn(&link, text, env);
    struct submission submission = {.text = text, .env = env, .resume = o->resume};
    int code;
    if (submit_send(&link, &submission, &job, &e) == ERR_OK) {
        CLEANUP(free_text) char *name = submit_job_name(text);
        if (!o->follow)
            preflight_survey_warn(&link, text, env);
        code = submit_after(&link, job, name, o->follow, o->output);
    } else {
        code = error_print(&e);
    }
    strv_free(env);
    link_close(&link);
    return code;
}

const struct command cmd_submit = {
    .name = "submit",
    .usage = "submit JOB.yaml [OPTIONS]\nsubmit [OPTIONS] -- COMMAND [ARGUMENTS]",
    .summary = "give the cluster a job; prints its number",
    .help = "Queues a job: a job file (docs/jobfile.md), or any command, which sees the environment that "
            "torchrun\n"
            "would give it. Options override the file. Relative paths are made absolute here. The job's "
            "number goes\n"
            "to stdout.\n\n"
            "  ddpctl submit fashion.yaml --set train.epochs=20 --follow\n"
            "  ddpctl submit --nodes 2 --procs-per-node 4 -- python3 train.py --lr 0.1",
    .options = options,
    .shared = job_flag_options,
    .size = sizeof(struct submit_options),
    .most = 1,
    .tail = true,
    .run = cmd_submit_run,
};
