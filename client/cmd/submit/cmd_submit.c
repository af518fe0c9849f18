#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "client/cmd/submit/submit.h"
#include "client/diagnose/preflight_survey.h"

struct submit_options {
    struct job_flags job; /* first: job_flag_options fill it */
    struct command_form form;
    bool resume, follow, now;
    const char *output;
    char **exports;
};

static const struct option_spec options[] = {
    {.name = "follow",
     .letter = 'f',
     .type = OPTION_FLAG,
     .offset = offsetof(struct submit_options, follow),
     .help =
         "show a train job's progress or a command's output until it ends; ^C detaches and does not cancel"},
    {.name = "now",
     .type = OPTION_FLAG,
     .offset = offsetof(struct submit_options, now),
     .help = "do not queue a job that cannot start now: exit with code 1"},
    {.name = "resume",
     .type = OPTION_FLAG,
     .offset = offsetof(struct submit_options, resume),
     .help = "continue from another job's snapshots in snapshot.dir"},
    {.name = "export",
     .type = OPTION_TEXTS,
     .offset = offsetof(struct submit_options, exports),
     .value = "NAME",
     .help = "also pass this variable to the workers; or ALL, or NONE; may be repeated"},
    COMMAND_FORM_OPTIONS(submit_options, form),
    OPTION_OUTPUT(submit_options, output),
    {0},
};

/* A path that is not on this machine may still be on the nodes, so this is a warning. */
static void submit_warn_missing(const char *text)
{
    CLEANUP(buf_release) struct buf talk = {0};
    char **missing = job_text_missing(text);
    for (size_t i = 0; missing && missing[i]; i++)
        buf_printf(&talk, "ddpctl: warning: %s; each node must have it\n", missing[i]);
    stderr_put(&talk);
    strv_free(missing);
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
    if (submit_text(&in->args, &o->form, &o->job, &text, &e) != ERR_OK ||
        submit_environment(in->args.tail, o->exports, &env, &e) != ERR_OK)
        return error_print(&e);
    submit_warn_missing(text);
    if (link_open(&link, in->globals, &e) != ERR_OK) {
        strv_free(env);
        return error_print(&e);
    }
    /* --follow prints the job from its start, so the warnings come before the submit; otherwise they come
     * after it, and do not delay the job. */
    if (o->follow)
        preflight_survey_warn(&link, text, env);
    struct submission submission = {.text = text, .env = env, .resume = o->resume, .now = o->now};
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
    .usage = "submit JOB.yaml [OPTIONS]\nsubmit [OPTIONS] SCRIPT.py|COMMAND [ARGUMENTS]",
    .summary = "queue a job and print its number",
    .help =
        "Queues a job: a job file (docs/reference/jobfile.md), or any command, which gets the environment variables\n"
        "that torchrun would set. Options override the job file. Relative paths are relative to the current\n"
        "directory. The job's number goes to stdout.\n\n"
        "A file that ends in .yaml or .yml is a job file. Any other first word that is not an option begins\n"
        "the script or command, and every word after it belongs to it, as for `ddpctl run`. A SCRIPT.py is\n"
        "run by `python3 -u`, or by the interpreter that $PYTHON_EXEC names.\n\n"
        "A job that the present nodes cannot run is queued all the same, because nodes may come. A warning says\n"
        "what is missing, and which smaller job would run. --now queues only a job that can start now.\n\n"
        "  ddpctl submit fashion.yaml --set train.epochs=20 --follow\n"
        "  ddpctl submit --nodes 2 --procs-per-node 4 train.py --lr 0.1",
    .options = options,
    .shared = job_flag_options,
    .size = sizeof(struct submit_options),
    .most = 1,
    .rules = {.ends = command_words_begin},
    .tail = true,
    .run = cmd_submit_run,
};
