#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/plan/gpu_table.h"
#include "base/topology.h"
#include "client/cmd/command.h"
#include "client/cmd/submit/job_text.h"
#include "client/interrupts.h"
#include "client/plan/plan_trainer.h"
#include "client/screen/screen_plan.h"

#define GPU_USUAL "h100-sxm"
#define EFFICIENCY_USUAL 0.4
#define RANKS_MOST 1000000
#define QUANTITY_MOST 1e18
#define HOP_TCP 50e-6 /* s: a thread of the receiver wakes up */
#define HOP_GPU 10e-6

/* Numbers that were not given are 0. */
struct plan_options {
    int64_t ranks, gpus, per_node;
    const char *gpu, *output;
    double efficiency, rate, step, memory, inside, link, latency;
    char **set;
};

/* ---- numbers with units */

/* "400G", "1.5e12", and with `times` "8x400G" */
static bool quantity_parse(const char *text, bool times, double *out)
{
    static const char letters[] = "kMGTP";
    char *end = NULL;
    double value = strtod(text, &end), factor = 1;
    if (end == text)
        return false;
    if (times && *end == 'x') {
        factor = value;
        text = end + 1;
        value = strtod(text, &end);
        if (end == text)
            return false;
    }
    const char *letter = *end ? strchr(letters, *end == 'K' ? 'k' : *end) : NULL;
    if (*end && (!letter || end[1]))
        return false;
    value *= factor * (letter ? pow(1e3, (double)(letter - letters) + 1) : 1);
    *out = value;
    return value >= 1 && value <= QUANTITY_MOST;
}

static bool quantity_read(const char *text, void *at)
{
    return quantity_parse(text, false, at);
}

static bool link_read(const char *text, void *at)
{
    return quantity_parse(text, true, at);
}

static bool seconds_read(const char *text, void *at)
{
    static const struct {
        const char *unit;
        double seconds;
    } units[] = {{"us", 1e-6}, {"ms", 1e-3}, {"s", 1}};
    char *end = NULL;
    double value = strtod(text, &end);
    for (size_t i = 0; end != text && i < ARRAY_LEN(units); i++)
        if (strcmp(end, units[i].unit) == 0) {
            *(double *)at = value * units[i].seconds;
            return isfinite(value) && value > 0;
        }
    return false;
}

#define PARSED(field, option, placeholder, function, said, ...)                                              \
    {                                                                                                        \
        .name = option, .type = OPTION_PARSED, .offset = offsetof(struct plan_options, field),               \
        .value = placeholder, .parse = function, .expected = said, .help = __VA_ARGS__                       \
    }
#define COUNT(field, option, ...)                                                                            \
    {                                                                                                        \
        .name = option, .type = OPTION_INT, .offset = offsetof(struct plan_options, field), .value = "N",    \
        .min = 1, .max = RANKS_MOST, .help = __VA_ARGS__                                                     \
    }
#define A_QUANTITY "a number such as 30G or 1.5e12"

static const struct option_spec options[] = {
    COUNT(gpus, "gpus", "number of ranks, each with one GPU"),
    COUNT(ranks, "ranks", "number of ranks, on CPUs unless --gpu is given",
          .default_text = "nodes x procs_per_node of the job file"),
    COUNT(per_node, "per-node", "ranks of each node",
          .default_text = "procs_per_node of the job file; with --gpus 8"),
    {.name = "gpu",
     .type = OPTION_TEXT,
     .offset = offsetof(struct plan_options, gpu),
     .value = "NAME",
     .help = "the GPUs: a100-40, a100-80, h100-sxm, h100-pcie, h200, b200, l40s, a10, rtx4090",
     .default_text = "with --gpus " GPU_USUAL},
    {.name = "efficiency",
     .type = OPTION_REAL,
     .offset = offsetof(struct plan_options, efficiency),
     .value = "F",
     .min = 0.01,
     .max = 1,
     .help = "part of a GPU's peak that forward and backward passes reach",
     .default_text = "0.4"},
    PARSED(
        rate, "rate", "FLOPS", quantity_read, A_QUANTITY,
        "floating-point operations per second that a rank reaches in these passes, instead of --efficiency"),
    PARSED(step, "step", "TIME", seconds_read, "a time such as 35ms or 1.2s",
           "how long a step of one rank takes without exchanges",
           .default_text = "CPU: measured here, with the job, for up to 3 s"),
    PARSED(link, "link", "RATE", link_read, "bits per second such as 100M, 400G or 8x400G",
           "bits per second that a node sends, and at the same time receives: 100M, 400G, 8x400G"),
    PARSED(latency, "latency", "TIME", seconds_read, "a time such as 20us or 1ms",
           "from one node to the next, for a message without content", .default_text = "50us; GPUs 10us"),
    PARSED(
        inside, "inside", "BYTES", quantity_read, A_QUANTITY,
        "bytes per second between the ranks of a node: of a GPU's links, or of an array that ranks on CPUs "
        "add up",
        .default_text = "that of the GPU; CPU: measured here"),
    PARSED(memory, "memory", "BYTES", quantity_read, "bytes such as 80G", "memory of a GPU",
           .default_text = "that of the GPU"),
    {.name = "set",
     .type = OPTION_TEXTS,
     .offset = offsetof(struct plan_options, set),
     .value = "KEY=VALUE",
     .help = "change a key of the job file: train.model.layers=24; may be repeated"},
    OPTION_OUTPUT(plan_options, output),
    {0},
};

/* ---- the machine */

static enum err_code plan_place_ranks(struct plan *p, const struct plan_options *o, struct err *e)
{
    const struct job_spec *job = &p->job;
    struct plan_machine *m = &p->machine;
    int64_t per_node = job->procs == JOB_PROCS_NUMBER && job->procs_per_node > 0 ? job->procs_per_node : 1;
    if (o->gpus && o->ranks)
        return err_set(e, ERR_INVALID_ARGUMENT, "give --gpus or --ranks, not both");
    m->ranks = o->gpus ? o->gpus : o->ranks;
    if (o->per_node)
        per_node = o->per_node;
    else if (o->gpus)
        per_node = m->ranks < 8 ? m->ranks : 8;
    if (!m->ranks)
        m->ranks = job->nodes_max * per_node;
    if (m->ranks % per_node)
        return err_set(e, ERR_INVALID_ARGUMENT,
                       "%lld ranks cannot be divided among nodes of %lld: give --per-node",
                       (long long)m->ranks, (long long)per_node);
    m->nodes = m->ranks / per_node;
    m->gpu = o->gpus || o->gpu || job->device == JOB_DEVICE_CUDA;
    m->host_sums = m->gpu && job->train.reproducible == REPRODUCIBLE_WORLD; /* NCCL adds in another order */
    m->hop_s = o->latency > 0 ? o->latency : m->gpu ? HOP_GPU : HOP_TCP;
    m->link = o->link / 8;
    if (m->nodes > 1 && m->link <= 0)
        return err_set(e, ERR_INVALID_ARGUMENT,
                       "%lld nodes: give the rate of a node's link, such as --link 10G", (long long)m->nodes);
    return ERR_OK;
}

static enum err_code plan_take_gpu(struct plan *p, const struct plan_options *o, struct err *e)
{
    const char *name = o->gpu ? o->gpu : GPU_USUAL;
    const struct gpu_figures *g = gpu_find(name);
    struct plan_machine *m = &p->machine;
    if (!g)
        return err_set(e, ERR_INVALID_ARGUMENT, "unknown GPU '%s': `ddpctl plan --help` lists the known ones",
                       name);
    const double peak = p->job.train.precision == PRECISION_BF16 ? g->bf16 : g->fp32;
    const double efficiency = o->efficiency > 0 ? o->efficiency : EFFICIENCY_USUAL;
    p->memory = o->memory > 0 ? o->memory : g->memory;
    m->inside = o->inside > 0 ? o->inside : g->inside;
    m->memory_rate = g->memory_rate;
    m->step_s = o->step;
    m->rate = o->rate > 0 ? o->rate : peak * efficiency;
    snprintf(p->compute_from, sizeof(p->compute_from),
             o->step > 0   ? "a step as given"
             : o->rate > 0 ? "%s, at the given rate"
                           : "%s, %.0f %% of its peak of %.0f TFLOP/s%s",
             g->about, efficiency * 100, peak / 1e12, o->efficiency > 0 ? "" : " (assumed: --efficiency)");
    return ERR_OK;
}

/* The rank's step, and the rate of copying, on this machine's CPU. */
static enum err_code plan_take_cpu(struct plan *p, const struct plan_options *o, const char *text,
                                   struct err *e)
{
    struct plan_machine *m = &p->machine;
    const double copies = plan_copy_rate(p->ways[0].sizes.arrays * sizeof(float));
    m->inside = o->inside > 0 ? o->inside : copies;
    m->memory_rate = 2 * copies;
    m->rate = o->rate;
    m->step_s = o->step;
    snprintf(p->compute_from, sizeof(p->compute_from), "%s",
             o->step > 0 ? "a step as given" : "at the given rate");
    if (o->step > 0 || o->rate > 0)
        return ERR_OK;
    const int64_t local = m->ranks / m->nodes;
    struct topology machine;
    if (topology_read_own(&machine, e))
        return e->code;
    const int64_t cores = (int64_t)topology_cores(&machine);
    topology_release(&machine);
    CLEANUP(free_text) char *alone = NULL;
    CLEANUP(free_text) char *directory = plan_temporary();
    struct err ignored;
    if (!mkdtemp(directory))
        return err_sys(e, errno, "%s", directory);
    enum err_code code = plan_alone_text(p, text, cores > local ? cores / local : 1, directory, &alone, e);
    if (!code)
        code = plan_trainer_step(alone, &m->step_s, e);
    if (file_remove_tree(directory, &ignored))
        fprintf(stderr, "ddpctl: %s\n", ignored.msg);
    snprintf(p->compute_from, sizeof(p->compute_from), "measured with one rank on this machine's CPU");
    return code;
}

/* ---- the command */

static enum err_code plan_make(struct plan *p, const struct plan_options *o, const char *path, struct err *e)
{
    CLEANUP(free_text) char *text = NULL;
    CLEANUP(buf_release) struct buf others = {0};
    const struct job_flags flags = {.set = o->set};
    if (job_text_from_file(path, &flags, &text, &others, e) != ERR_OK) {
        stderr_put(&others);
        return e->code;
    }
    if (job_parse(&p->job, text, strlen(text), path, e) != ERR_OK)
        return e->code;
    if (p->job.kind != JOB_TRAIN)
        return err_set(e, ERR_INVALID_ARGUMENT,
                       "%s: only train jobs can be planned: ddp does not know what a command computes", path);
    if (plan_place_ranks(p, o, e) != ERR_OK || (p->machine.gpu && plan_take_gpu(p, o, e) != ERR_OK) ||
        plan_ways_size(p, text, e) != ERR_OK || (!p->machine.gpu && plan_take_cpu(p, o, text, e) != ERR_OK))
        return e->code;
    plan_ways_step(p);
    return ERR_OK;
}

static int cmd_plan_run(struct invocation *in)
{
    const struct plan_options *o = in->options;
    CLEANUP(buf_release) struct buf out = {0};
    CLEANUP(plan_release) struct plan plan = {0};
    struct err e = {0};
    interrupts_catch_all();
    if (plan_make(&plan, o, in->args.list[0], &e) != ERR_OK)
        return interrupts_count() ? 128 + interrupt_signal() : error_print(&e);
    if (o->output && strcmp(o->output, "json") == 0) {
        screen_plan_json(&plan, &out);
        return stdout_put(&out) ? EXIT_DONE : EXIT_FAILED;
    }
    const struct term term = term_of(STDOUT_FILENO);
    screen_plan(&plan, &term, &out);
    return screen_put(&out) ? EXIT_DONE : EXIT_FAILED;
}

const struct command cmd_plan = {
    .name = "plan",
    .usage = "plan JOB.yaml [--gpus N|--ranks N] [--link RATE]",
    .summary = "estimate memory and speed of a job on machines that are not there",
    .help =
        "Prints, for each strategy, the memory of a rank, how long a step computes, how long ranks stand "
        "still\n"
        "for exchanges, and the tokens per second of all ranks. Memory is what ddp-trainer would allocate; "
        "times\n"
        "are estimates of a model. It contacts no coordinator.\n\n"
        "  ddpctl plan job.yaml --gpus 512 --gpu h200 --link 8x400G\n"
        "  ddpctl plan job.yaml --ranks 4 --link 100M        # CPUs: measures a step here",
    .options = options,
    .size = sizeof(struct plan_options),
    .least = 1,
    .most = 1,
    .offline = true,
    .run = cmd_plan_run,
};
