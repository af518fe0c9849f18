#include "client/diagnose/bound.h"

#include <math.h>
#include <stdio.h>

#include "base/mem.h"
#include "base/text.h"
#include "client/job_status.h"

#define WAIT_LEAST 0.2 /* share of a step; a job that waits less is not bound by its waiting */
#define SLOW_LEAST 1.1 /* a rank that computes this many times as long as the others holds them up */
#define BUSY_LEAST 0.8 /* share of a core, or of a GPU's time, from which it counts as busy */
#define IDLE_MOST 0.05 /* share up to which it counts as idle */
#define APART                                                                                                \
    0.5 /* a rank stands out if it uses less than half of what the others use, or more than twice as much */
#define READ_LEAST 1e6 /* bytes per second read from storage; less does not count as reading input */

const char *bound_name(enum bound_kind kind)
{
    static const char *const names[] = {"unknown", "compute", "link", "data", "rank", "wait"};
    return names[kind];
}

void bound_release(struct bound *b)
{
    buf_release(&b->text);
}

/* "98 % of a core", "3.9 cores" */
static struct text bound_cores(double cores)
{
    struct text out;
    if (cores < 1.5)
        snprintf(out.text, sizeof(out.text), "%.0f %% of a core", cores * 100);
    else
        snprintf(out.text, sizeof(out.text), "%.1f cores", cores);
    return out;
}

/* "uses 12 % of a core while the others use 98 %" */
static void bound_compare_cores(struct buf *out, double rank, double others)
{
    buf_printf(out, "uses %s while the others use ", bound_cores(rank).text);
    if (rank < 1.5 && others < 1.5)
        buf_printf(out, "%.0f %%", others * 100);
    else
        buf_puts(out, bound_cores(others).text);
}

/* ---- from times that ranks report */

/* The sentence of `why` already names a rank that is slower than all others (DIAGNOSIS_SLOW). For this rank the function sets
 * kind and rank only, and adds no text. */
static bool bound_by_times(const Ddp__V1__JobStatus *job, struct bound *out)
{
    double share = 1, most = 0, sum = 0, exposed, data, step = 0;
    const Ddp__V1__RankStatus *worst = NULL;
    for (size_t i = 0; i < job->n_ranks; i++) {
        const Ddp__V1__RankStatus *r = job->ranks[i];
        if (!(r->ms_per_step > 0))
            return false;
        const double busy = fmax(0, r->ms_per_step - r->wait_ms); /* a program may report any numbers */
        share = fmin(share, r->wait_ms / r->ms_per_step);
        step = fmax(step, r->ms_per_step);
        sum += busy;
        if (busy > most) {
            most = busy;
            worst = r;
        }
    }
    if (!job->n_ranks)
        return false;
    if (job->n_ranks > 1 && most > SLOW_LEAST * (sum - most) / (double)(job->n_ranks - 1)) {
        out->kind = BOUND_RANK;
        out->rank = worst;
        return true;
    }
    /* Waiting that is hidden behind backward costs no time. */
    if (job_status_metric(job, "exposed", &exposed))
        share = fmin(share, exposed);
    if (job_status_metric(job, "data_ms", &data) && data / step >= fmax(WAIT_LEAST, share)) {
        out->kind = BOUND_DATA;
        buf_printf(&out->text, "bound by data: %.0f %% of each step waits for input", data / step * 100);
    } else if (share >= WAIT_LEAST) {
        out->kind = BOUND_LINK;
        buf_printf(&out->text,
                   "bound by the link: every rank waits for the others' data for %.0f %% of each step",
                   share * 100);
    } else {
        out->kind = BOUND_COMPUTE;
        buf_printf(&out->text, "bound by compute: %.0f %% of each step", (1 - share) * 100);
    }
    return true;
}

/* ---- from what nodes measure */

struct usage_view {
    double (*value)(const Ddp__V1__Usage *u); /* NaN: not known */
    double mean, low, high;                   /* of all ranks; the lowest and the highest */
    const Ddp__V1__RankStatus *lowest, *highest;
    double beside_low, beside_high; /* mean of all ranks but that one */
};

static double usage_cpu(const Ddp__V1__Usage *u)
{
    return u->cpu;
}

static double usage_gpu(const Ddp__V1__Usage *u)
{
    return u->gpus ? u->gpu_utilisation : NAN;
}

static double usage_read(const Ddp__V1__Usage *u)
{
    return u->read_bytes_per_s;
}

/* Returns false if some rank's value is not known. */
static bool usage_view_fill(const Ddp__V1__JobStatus *job, double (*value)(const Ddp__V1__Usage *u),
                            struct usage_view *out)
{
    double sum = 0;
    *out = (struct usage_view){.value = value, .low = INFINITY, .high = -INFINITY};
    for (size_t i = 0; i < job->n_ranks; i++) {
        const Ddp__V1__RankStatus *r = job->ranks[i];
        const double v = r->usage ? value(r->usage) : NAN;
        if (!(v >= 0))
            return false;
        sum += v;
        if (v < out->low) {
            out->low = v;
            out->lowest = r;
        }
        if (v > out->high) {
            out->high = v;
            out->highest = r;
        }
    }
    if (!job->n_ranks)
        return false;
    const double others = (double)job->n_ranks - 1;
    out->mean = sum / (double)job->n_ranks;
    out->beside_low = others > 0 ? (sum - out->low) / others : NAN;
    out->beside_high = others > 0 ? (sum - out->high) / others : NAN;
    return true;
}

static void bound_name_rank(const Ddp__V1__RankStatus *r, struct bound *out)
{
    out->kind = BOUND_RANK;
    out->rank = r;
    buf_printf(&out->text, "rank %d on %s ", r->rank, r->node);
}

static bool bound_by_gpus(const Ddp__V1__JobStatus *job, const struct usage_view *cpu, struct bound *out)
{
    struct usage_view gpu;
    if (!usage_view_fill(job, usage_gpu, &gpu))
        return false;
    if (gpu.beside_low >= 0.5 && gpu.low < APART * gpu.beside_low) {
        bound_name_rank(gpu.lowest, out);
        buf_printf(&out->text, "keeps its GPU busy for %.0f %% of the time, the others for %.0f %%",
                   gpu.low * 100, gpu.beside_low * 100);
    } else if (gpu.mean >= BUSY_LEAST) {
        out->kind = BOUND_COMPUTE;
        buf_printf(&out->text, "bound by compute: the GPUs are busy for %.0f %% of the time", gpu.mean * 100);
    } else if (cpu->mean >= BUSY_LEAST) {
        out->kind = BOUND_DATA;
        buf_printf(
            &out->text,
            "bound by the CPU: the GPUs are busy for %.0f %% of the time while each rank uses %s, probably to prepare data",
            gpu.mean * 100, bound_cores(cpu->mean).text);
    } else {
        return gpu.mean >
               IDLE_MOST; /* the CPU decides whether idle GPUs wait for data or for anything else */
    }
    return true;
}

static void bound_by_cpu(const Ddp__V1__JobStatus *job, const struct usage_view *cpu, struct bound *out)
{
    struct usage_view read;
    const bool reads = usage_view_fill(job, usage_read, &read) && read.mean >= READ_LEAST;
    if (cpu->beside_low >= 0.5 && cpu->low < APART * cpu->beside_low) {
        bound_name_rank(cpu->lowest, out);
        bound_compare_cores(&out->text, cpu->low, cpu->beside_low);
    } else if (cpu->high >= 0.5 && cpu->beside_high < APART * cpu->high) {
        bound_name_rank(cpu->highest, out);
        bound_compare_cores(&out->text, cpu->high, cpu->beside_high);
    } else if (cpu->mean >= BUSY_LEAST) {
        out->kind = BOUND_COMPUTE;
        buf_printf(&out->text, "bound by compute: each rank uses %s", bound_cores(cpu->mean).text);
    } else if (reads) {
        out->kind = BOUND_DATA;
        buf_printf(&out->text, "bound by data: each rank reads %s a second from storage and uses %s",
                   text_bytes((int64_t)read.mean).text, bound_cores(cpu->mean).text);
    } else if (cpu->high <= IDLE_MOST) {
        out->kind = BOUND_WAIT;
        buf_printf(&out->text, "%s: %s %s, and no storage",
                   job->n_ranks > 1 ? "all ranks are idle" : "it is idle",
                   job->n_ranks > 1 ? "each uses" : "it uses", bound_cores(cpu->mean).text);
    } else {
        buf_printf(&out->text, "each rank uses %s", bound_cores(cpu->mean).text);
    }
}

void bound_find(const Ddp__V1__ProbeJobReply *reply, struct bound *out)
{
    const Ddp__V1__JobStatus *job = reply->job;
    struct usage_view cpu;
    if (bound_by_times(job, out) || !usage_view_fill(job, usage_cpu, &cpu))
        return;
    if (!bound_by_gpus(job, &cpu, out))
        bound_by_cpu(job, &cpu, out);
}
