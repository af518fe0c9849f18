#include "trainer/options.h"

#include <math.h>
#include <stddef.h>

#include "base/conf/program.h"

#define AT(member) .offset = offsetof(struct trainer_options, member)
static const struct option_spec options[] = {
    {.name = "standalone",
     .type = OPTION_FLAG,
     AT(standalone),
     .help = "run one process with one rank; `nodes` and `procs_per_node` are ignored"},
    {.name = "set",
     .type = OPTION_TEXTS,
     AT(set),
     .value = "KEY=VALUE",
     .help = "change the job file: train.optimizer.lr=1e-3; may be repeated"},
    {.name = "sizes",
     .type = OPTION_FLAG,
     AT(sizes),
     .help = "print, as JSON, what the job needs of each rank, and train nothing; `ddpctl plan` reads it"},
    {.name = "world",
     .type = OPTION_INT,
     AT(world),
     .value = "N",
     .min = 1,
     .max = 1 << 20,
     .help = "with --sizes: number of ranks",
     .default_text = "1"},
    {.name = "per-node",
     .type = OPTION_INT,
     AT(per_node),
     .value = "N",
     .min = 1,
     .max = 1 << 20,
     .help = "with --sizes: number of ranks on each node; must divide --world",
     .default_text = "all"},
    {.name = "gpu-memory",
     .type = OPTION_INT,
     AT(gpu_memory),
     .value = "BYTES",
     .min = 1,
     .max = INFINITY,
     .help = "with --sizes: memory of each rank's GPU",
     .default_text = "none, ranks are on CPUs"},
    {.name = "plugin",
     .type = OPTION_FLAG,
     AT(plugin),
     .help = "print, as JSON, the versions of the plugin for GPUs, or why there is none; opens no GPU"},
    {.name = "generate",
     .type = OPTION_TEXT,
     AT(generate),
     .value = "DIR",
     .help = "let the language model in DIR continue a prompt, as `ddpctl generate` does"},
    {.name = "prompt",
     .type = OPTION_TEXT,
     AT(prompt),
     .value = "TEXT",
     .help = "what to continue; -: read it from stdin",
     .default_text = "none"},
    {.name = "tokens",
     .type = OPTION_INT,
     AT(tokens),
     .value = "N",
     .min = 1,
     .max = INFINITY,
     .help = "how many tokens to add",
     .default_text = "200"},
    {.name = "temperature",
     .type = OPTION_REAL,
     AT(temperature),
     .value = "T",
     .max = 1000,
     .help = "0: always the likeliest token; higher: more variety",
     .default_text = "0.8"},
    {.name = "top-k",
     .type = OPTION_INT,
     AT(top_k),
     .value = "K",
     .min = 1,
     .max = INFINITY,
     .help = "draw from the K likeliest tokens",
     .default_text = "all"},
    {.name = "seed",
     .type = OPTION_INT,
     AT(seed),
     .value = "S",
     .help = "seed of the random numbers",
     .default_text = "1"},
    {.name = "digest",
     .type = OPTION_TEXT,
     AT(digest),
     .value = "D",
     .help = "the digest that the snapshot in DIR must have",
     .default_text = "any"},
    {0},
};

static const struct program program = {
    .name = "ddp-trainer",
    .usage = "ddp-trainer --standalone JOB.yaml [--set KEY=VALUE ...]\n"
             "ddp-trainer --sizes JOB.yaml [--world N] [--gpu-memory BYTES] [OPTIONS]\n"
             "ddp-trainer --generate DIR [--prompt TEXT] [OPTIONS]\n"
             "ddp-trainer --plugin",
    .help =
        "--standalone runs a train job in this one process, without a cluster; its reports go to stdout as\n"
        "JSON lines. Without arguments ddp-trainer is a worker of a job, which ddp-supervisor starts.",
};

static const char *options_misuse(const struct trainer_options *o, const struct option_arguments *args)
{
    const bool takes_job = o->standalone || o->sizes;
    if (o->standalone + o->sizes + o->plugin + (o->generate != NULL) > 1)
        return "give only one of --standalone, --sizes, --generate and --plugin";
    if (o->standalone && args->count == 0)
        return "--standalone needs a job file: ddp-trainer --standalone JOB.yaml";
    if (o->sizes && args->count == 0)
        return "--sizes needs a job file: ddp-trainer --sizes JOB.yaml";
    if (args->tail || args->count > takes_job)
        return takes_job ? "give only one job file" : "a job file needs --standalone or --sizes";
    if (o->set && !takes_job)
        return "--set needs --standalone or --sizes";
    if (!o->sizes && (o->world || o->per_node || o->gpu_memory))
        return "--world, --per-node and --gpu-memory need --sizes";
    if (o->per_node && (o->world ? o->world : 1) % o->per_node)
        return "--per-node must divide --world";
    if (!o->generate &&
        (o->prompt || o->digest || o->tokens || o->top_k || o->seed >= 0 || o->temperature >= 0))
        return "--prompt, --tokens, --temperature, --top-k, --seed and --digest need --generate";
    return NULL;
}

int trainer_options_read(struct trainer_options *o, int argc, char **argv)
{
    /* -1: not given; 0 is a valid value of both. */
    *o = (struct trainer_options){.seed = -1, .temperature = -1};
    struct option_arguments args;
    int code = program_parse(&program, (struct option_set[]){{options, o}, {0}}, argc, argv, &args);
    const char *misuse = code < 0 ? options_misuse(o, &args) : NULL;
    if (misuse)
        code = program_misused(&program, misuse);
    o->job_file = args.count ? args.list[0] : NULL;
    o->prompt = o->prompt ? o->prompt : "";
    o->world = o->world ? o->world : 1;
    o->tokens = o->tokens ? o->tokens : 200;
    o->top_k = o->top_k ? o->top_k : INT64_MAX;
    o->seed = o->seed >= 0 ? o->seed : 1;
    o->temperature = o->temperature >= 0 ? o->temperature : 0.8;
    option_arguments_release(&args);
    return code;
}

void trainer_options_release(struct trainer_options *o)
{
    option_release(options, o);
}
