#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/paths.h"
#include "client/cmd/jobs/job_find.h"
#include "client/connect.h"

struct generate_options {
    const char *prompt, *tokens, *temperature, *top_k, *seed;
};

#define TEXT(field, option, placeholder, ...)                                                                \
    {                                                                                                        \
        .name = option, .type = OPTION_TEXT, .offset = offsetof(struct generate_options, field),             \
        .value = placeholder, .help = __VA_ARGS__                                                            \
    }

static const struct option_spec options[] = {
    TEXT(prompt, "prompt", "TEXT", "the beginning of the text; - reads it from stdin"),
    TEXT(tokens, "tokens", "N", "number of tokens to generate", .default_text = "200"),
    TEXT(temperature, "temperature", "T",
         "0 takes the most likely token each time; 1 samples from the model's distribution",
         .default_text = "0.8"),
    TEXT(top_k, "top-k", "K", "sample among the K most likely tokens only", .default_text = "all"),
    TEXT(seed, "seed", "S", "seed of the sampling; the same seed gives the same text", .default_text = "1"),
    {0},
};

static bool generate_is_directory(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

struct place {
    char *dir;    /* with the model */
    char *digest; /* that a job's snapshot must have; NULL: a directory was given, any model will do */
};

static void generate_model_release(struct place *p)
{
    free(p->dir);
    free(p->digest);
}

static enum err_code generate_find_snapshot(struct link *link, int64_t job, struct place *out, struct err *e)
{
    Ddp__V1__GetJobRequest request = DDP__V1__GET_JOB_REQUEST__INIT;
    CLEANUP(rpc_release) void *reply = NULL;
    request.job = job;
    if (link_call(link, "GetJob", &request, &reply, 0, e) != ERR_OK)
        return e->code;
    const Ddp__V1__JobStatus *status = reply;
    if (!status->snapshot || !*status->snapshot->path)
        return err_set(
            e, ERR_FAILED_PRECONDITION,
            "job %lld has no committed snapshot; set train.snapshot in its job file, or give a directory",
            (long long)job);
    if (!generate_is_directory(status->snapshot->path))
        return err_set(e, ERR_FAILED_PRECONDITION, "the snapshot is on %s in %s; run ddpctl generate there",
                       status->snapshot->n_nodes ? status->snapshot->nodes[0] : "its node",
                       status->snapshot->path);
    *out = (struct place){xstrdup(status->snapshot->path), xstrdup(status->snapshot->digest)};
    return ERR_OK;
}

/* If the argument is an existing directory, it is used; otherwise it must be a job. */
static enum err_code generate_find_model(const struct invocation *in, struct place *out, struct err *e)
{
    const char *what = in->args.list[0];
    struct link link;
    struct job_reference reference;
    int64_t job;
    if (generate_is_directory(what)) {
        out->dir = xstrdup(what);
        return ERR_OK;
    }
    if (job_reference_parse(what, &reference, e) != ERR_OK)
        return err_set(e, ERR_INVALID_ARGUMENT, "'%s' is neither a directory nor a job", what);
    if (link_open(&link, in->globals, e) != ERR_OK)
        return e->code;
    enum err_code code = job_find(&link, "generate", what, &job, e);
    if (code == ERR_OK)
        code = generate_find_snapshot(&link, job, out, e);
    else if (reference.kind == REFERENCE_NAME && code == ERR_NOT_FOUND)
        code = err_set(e, ERR_INVALID_ARGUMENT, "'%s' is neither a directory nor a job", what);
    link_close(&link);
    return code;
}

/* The trainer has the model's code, so this process becomes the trainer. */
static enum err_code generate_exec_trainer(const struct generate_options *o, const struct place *p,
                                           struct err *e)
{
    CLEANUP(free_text) char *program = NULL;
    const struct {
        const char *name, *value;
    } given[] = {
        {"--prompt", o->prompt}, {"--tokens", o->tokens}, {"--temperature", o->temperature},
        {"--top-k", o->top_k},   {"--seed", o->seed},     {"--digest", p->digest},
    };
    const char *argv[3 + 2 * ARRAY_LEN(given) + 1] = {"ddp-trainer", "--generate", p->dir};
    size_t n = 3;
    if (paths_program("ddp-trainer", &program, e) != ERR_OK)
        return e->code;
    for (size_t i = 0; i < ARRAY_LEN(given); i++) {
        if (!given[i].value)
            continue;
        argv[n++] = given[i].name;
        argv[n++] = given[i].value;
    }
    execv(program, (char *const *)(uintptr_t)argv);
    return err_sys(e, errno, "%s", program);
}

static int cmd_generate_run(struct invocation *in)
{
    CLEANUP(generate_model_release) struct place place = {0};
    struct err e;
    if (generate_find_model(in, &place, &e) == ERR_OK &&
        generate_exec_trainer(in->options, &place, &e) == ERR_OK)
        return EXIT_DONE;
    return error_print(&e);
}

const struct command cmd_generate = {
    .name = "generate",
    .usage = "generate JOB|DIR [--prompt TEXT] [--tokens N]",
    .summary = "continue a prompt with a language model",
    .help =
        "Continues the prompt with the model of JOB's last committed snapshot, or of a directory that holds\n"
        "model.safetensors and config.json (a snapshot, or a model that Hugging Face wrote). The text goes "
        "to\n"
        "stdout as it is generated. A model of characters or bytes reads and prints text; a model of other\n"
        "tokens reads and prints token numbers: --prompt \"464 3290\".\n\n"
        "  ddpctl generate 9 --prompt \"In the beginning\" --tokens 300\n"
        "  ddpctl generate out/ --temperature 0.5 --seed 7",
    .options = options,
    .size = sizeof(struct generate_options),
    .least = 1,
    .most = 1,
    .run = cmd_generate_run,
};
