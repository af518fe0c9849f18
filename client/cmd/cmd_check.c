#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/json.h"
#include "base/mem.h"
#include "client/cmd/check_deep.h"
#include "client/cmd/jobs/job_find.h"
#include "client/cmd/submit/submit.h"
#include "client/diagnose/preflight_survey.h"
#include "client/screen/screen_check.h"
#include "client/text/json_print.h"

#define PLACES_MS 20000

struct check_options {
    struct job_flags job; /* first: job_flag_options fill it */
    struct command_form form;
    const char *output;
    char **exports;
    struct check_deep_options deep;
};

#define DEEP(member) .offset = offsetof(struct check_options, deep.member)

static const struct option_spec options[] = {
    {.name = "export",
     .type = OPTION_TEXTS,
     .offset = offsetof(struct check_options, exports),
     .value = "NAME",
     .help = "as for submit: also pass this variable to the workers"},
    COMMAND_FORM_OPTIONS(check_options, form),
    {.name = "deep",
     .type = OPTION_FLAG,
     DEEP(deep),
     .help =
         "measure the free nodes by a job, in place of the checks above, and name slow GPUs, CPUs and links"},
    {.name = "only-nodes",
     .type = OPTION_TEXT,
     DEEP(only),
     .value = "NAME,...",
     .help = "with --deep: measure these nodes",
     .default_text = "all that are free"},
    {.name = "below",
     .type = OPTION_INT,
     DEEP(below),
     .value = "PERCENT",
     .min = 1,
     .max = 99,
     .help = "with --deep: a rate below this share of the median of its peers is slow",
     .default_text = "80"},
    {.name = "seconds",
     .type = OPTION_REAL,
     DEEP(seconds),
     .value = "S",
     .min = 0.1,
     .max = 600,
     .help = "with --deep: how long to measure the devices, and then the network",
     .default_text = "5"},
    {.name = "drain",
     .type = OPTION_FLAG,
     DEEP(drain),
     .help = "with --deep: drain the nodes on which something is slow, until `ddpctl undrain NODE`"},
    OPTION_OUTPUT(check_options, output),
    {0},
};

/* The job that is checked. */
struct subject {
    char *text;   /* its job file; NULL: there is no job, only nodes are checked */
    char **env;   /* what submit sends, or has sent, with it */
    char **nodes; /* the nodes that the job runs on now; NULL: all nodes */
};

static void check_release_subject(struct subject *s)
{
    free(s->text);
    strv_free(s->env);
    strv_free(s->nodes);
}

static bool check_is_job_number(const char *text)
{
    text += *text == '#';
    return *text && strspn(text, "0123456789") == strlen(text);
}

static bool check_begins_command(const char *argument)
{
    return !check_is_job_number(argument) && command_words_begin(argument);
}

static enum err_code check_read_job(struct link *link, int64_t number, struct subject *s, struct err *e)
{
    Ddp__V1__GetJobRequest request = DDP__V1__GET_JOB_REQUEST__INIT;
    CLEANUP(rpc_release) Ddp__V1__JobStatus *job = NULL;
    void *reply;
    request.job = number;
    if (link_call(link, "GetJob", &request, &reply, 0, e) != ERR_OK)
        return e->code;
    job = reply;
    s->text = xstrdup(job->job_file);
    /* A secret comes without its value, and the check needs none: it looks for programs and files. */
    for (size_t i = 0; i < job->n_env; i++)
        if (!strstr(job->env[i], "=(hidden, "))
            s->env = strv_append(s->env, job->env[i]);
    if (strcmp(job->state, "running") == 0 || strcmp(job->state, "starting") == 0)
        for (size_t i = 0; i < job->n_nodes; i++)
            s->nodes = strv_append(s->nodes, job->nodes[i]);
    return ERR_OK;
}

/* Finds the job that the only word names. *job stays 0 if the word is a command instead: one that names no job. */
static enum err_code check_find_job(struct link *link, const char *word, int64_t *job, struct err *e)
{
    struct job_reference reference;
    struct err why = {0};
    if (job_reference_parse(word, &reference, &why) != ERR_OK)
        return ERR_OK;
    const enum err_code code = job_find(link, "check", word, job, &why);
    /* An unreachable coordinator is no error here. The command itself is checked first, and this does not need a coordinator. */
    if (code == ERR_OK ||
        (reference.kind == REFERENCE_NAME && (code == ERR_NOT_FOUND || code == ERR_UNAVAILABLE)))
        return ERR_OK;
    *e = why;
    return e->code;
}

static enum err_code check_find_subject(const struct invocation *in, struct link *link, struct subject *s,
                                        struct err *e)
{
    const struct check_options *o = in->options;
    char *const *const tail = in->args.tail;
    const char *word = in->args.count ? in->args.list[0] : NULL;
    if (tail && tail[0] && !tail[1] && !in->args.dashes)
        word = tail[0];
    int64_t job = 0;
    if (!in->args.count && !tail)
        return submit_environment(false, o->exports, &s->env, e);
    if (word && (tail ? !command_words_are_python(&o->form, word) : check_is_job_number(word)) &&
        check_find_job(link, word, &job, e) != ERR_OK)
        return e->code;
    if (job)
        return check_read_job(link, job, s, e);
    if (submit_text(&in->args, &o->form, &o->job, &s->text, e) != ERR_OK)
        return e->code;
    return submit_environment(in->args.tail, o->exports, &s->env, e);
}

static enum err_code check_survey_nodes(struct preflight_survey *survey, struct link *link,
                                        const struct subject *s, struct findings *found, struct err *e)
{
    CLEANUP(job_release) struct job_spec spec = {0};
    Ddp__V1__CheckPlace place = DDP__V1__CHECK_PLACE__INIT;
    if (preflight_survey_nodes(survey, link, s->nodes, strv_len(s->nodes), found, e) != ERR_OK)
        return e->code;
    if (s->text && job_parse(&spec, s->text, strlen(s->text), "job file", e) != ERR_OK)
        return e->code;
    survey->preflight.nodes_only = !s->text;
    if (s->text)
        preflight_place_init(&spec, s->env, true, &place);
    if (s->text)
        preflight_check_size(&survey->preflight, &spec, found);
    else if (!survey->preflight.count)
        findings_add(found, "", xstrdup("no node can take work"),
                     xstrdup("start ddp-agent on a machine; `ddp-coordinator init` prints the commands"));
    enum err_code code = preflight_survey_places(survey, link, &place, PLACES_MS, e);
    if (s->text && code == ERR_OK)
        preflight_check_isa(&survey->preflight, &spec, found);
    if (s->text)
        preflight_place_release(&place);
    return code == ERR_OK ? preflight_survey_links(survey, link, e) : code;
}

static void check_print_answers(struct jout *o, const char *key, const Ddp__V1__CheckNodesReply *reply)
{
    jout_open(o, key, '[');
    for (size_t i = 0; reply && i < reply->n_answers; i++) {
        CLEANUP(buf_release) struct buf one = {0};
        json_print(&reply->answers[i]->base, &one);
        one.data[one.len - 1] = '\0'; /* the line's end */
        jout_raw(o, NULL, one.data);
    }
    jout_close(o, ']');
}

static void check_print_json(const struct preflight_survey *s, const struct findings *found, struct buf *out)
{
    struct jout o = {.buf = out};
    jout_open(&o, NULL, '{');
    jout_bool(&o, "fit", found->count == 0);
    findings_print_json(found, &o);
    check_print_answers(&o, "nodes", s->places);
    check_print_answers(&o, "links", s->links);
    jout_close(&o, '}');
    buf_putc(out, '\n');
}

static enum err_code check_read_version(struct link *link, void **reply, struct err *e)
{
    Ddp__V1__GetVersionRequest request = DDP__V1__GET_VERSION_REQUEST__INIT;
    return link_call(link, "GetVersion", &request, reply, 0, e);
}

static int cmd_check_run(struct invocation *in)
{
    const struct check_options *o = in->options;
    CLEANUP(check_release_subject) struct subject subject = {0};
    CLEANUP(preflight_survey_release) struct preflight_survey survey = {0};
    CLEANUP(findings_release) struct findings found = {0};
    CLEANUP(rpc_release) void *version = NULL;
    CLEANUP(buf_release) struct buf out = {0};
    struct term term = term_of(STDOUT_FILENO);
    struct link link;
    struct err e;
    const bool json = o->output && strcmp(o->output, "json") == 0;
    const char *misuse = check_deep_misuse(&o->deep);
    if (misuse) {
        err_set(&e, ERR_INVALID_ARGUMENT, "%s", misuse);
        return error_print(&e);
    }
    if (link_open(&link, in->globals, &e) != ERR_OK)
        return error_print(&e);
    enum err_code code = check_find_subject(in, &link, &subject, &e);
    if (code == ERR_OK && o->deep.deep) {
        const int ended = check_deep(&link, &o->deep, subject.text, subject.env, json);
        link_close(&link);
        return ended;
    }
    if (code == ERR_OK)
        code = check_read_version(&link, &version, &e);
    if (code == ERR_OK)
        code = check_survey_nodes(&survey, &link, &subject, &found, &e);
    link_close(&link);
    if (code != ERR_OK)
        return error_print(&e);
    survey.preflight.version =
        ((Ddp__V1__GetVersionReply *)version)->version; /* that the agents' must match */
    preflight_check(&survey.preflight, &found);
    if (json)
        check_print_json(&survey, &found, &out);
    else
        screen_check(&survey.preflight, &found, &term, &out);
    return (json ? stdout_put : screen_put)(&out) && !found.count ? EXIT_DONE : EXIT_FAILED;
}

const struct command cmd_check = {
    .name = "check",
    .usage = "check [JOB | JOB.yaml] [OPTIONS]\ncheck [OPTIONS] SCRIPT.py|COMMAND [ARGUMENTS]\n"
             "check --deep [JOB.yaml] [--drain]",
    .summary = "check that the nodes can run a job, before it runs",
    .help =
        "Checks each node, as the user that jobs run as: the working directory, the data (size and content,\n"
        "compared between nodes), the interpreter and scripts, versions, the clock, and free memory and disk.\n"
        "Then it tests ports between each pair of nodes, over the addresses that workers use: one of the range for\n"
        "MASTER_PORT, and one that the kernel chooses. It also measures how fast each node sends to the next.\n"
        "Problems are listed below the tables, each with its remedy, and the exit code is 1.\n"
        "A single word that names a job means this job; after -- it is always a command.\n\n"
        "Of files above 8 MiB, the size and three blocks are compared. Without a job only the nodes are checked.\n"
        "This needs the role `operate`. When an operator submits a job, `ddpctl submit` does the quick part of\n"
        "this check and prints warnings.\n\n"
        "With --deep, a job measures the free nodes instead: matrix products, memory and copies of each GPU, or\n"
        "of each slot of a node without GPUs, and all-reduces between nodes. Each rate is printed beside the\n"
        "median of its peers, which are of the same model. A rate that stays below 80 % of this median in all\n"
        "rounds is a problem. ddpctl then prints the command that drains the node; --drain drains it at once.\n"
        "Nodes that run jobs are left out. --deep needs the role `submit`, --drain the role `operate`.\n\n"
        "  ddpctl check --deep\n"
        "  ddpctl check --deep --drain --only-nodes box1,box2,box3",
    .options = options,
    .shared = job_flag_options,
    .size = sizeof(struct check_options),
    .most = 1,
    .rules = {.ends = check_begins_command},
    .tail = true,
    .run = cmd_check_run,
};
