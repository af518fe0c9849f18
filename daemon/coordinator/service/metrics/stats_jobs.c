#include "daemon/coordinator/service/metrics/stats_jobs.h"

#include <math.h>
#include <stdlib.h>

#include "base/json.h"
#include "base/mem.h"

void stats_jobs_collect(const struct core *core, int64_t wall_ms, struct stats_jobs *out)
{
    size_t count;
    int64_t *ids = core_job_ids(core, 0, &count);

    *out = (struct stats_jobs){.jobs = xcalloc(STATS_JOBS, sizeof *out->jobs),
                               .gpus = xcalloc(STATS_GPUS, sizeof *out->gpus)};
    for (size_t i = count; i-- > 0;) {
        const struct job_record *job = core_job(core, ids[i]);
        struct core_job_sums sums;
        if (!core_job_sums(core, ids[i], &sums))
            continue;
        if (out->job_count == STATS_JOBS) {
            out->jobs_left_out++;
            continue;
        }
        out->jobs[out->job_count++] =
            (struct stats_job){.id = job->id,
                               .name = job->name,
                               .user = job->user,
                               .restarts = job->restarts_used,
                               .running_s = (double)(wall_ms - job->started_ms) / 1e3,
                               .sums = sums};
    }
    free(ids);
    const size_t gpus = core_gpu_uses(core, out->gpus, STATS_GPUS);
    out->gpu_count = gpus < STATS_GPUS ? gpus : STATS_GPUS;
    out->gpus_left_out = gpus - out->gpu_count;
}

void stats_jobs_release(struct stats_jobs *j)
{
    free(j->jobs);
    free(j->gpus);
    *j = (struct stats_jobs){0};
}

/* Appends NAME="VALUE". Prometheus needs '\', '"' and line ends escaped in a value. */
static void label_put(struct buf *out, const char *name, const char *value)
{
    buf_printf(out, "%s=\"", name);
    for (const char *c = value ? value : ""; *c; c++) {
        if (*c == '\n') {
            buf_puts(out, "\\n");
            continue;
        }
        if (*c == '\\' || *c == '"')
            buf_putc(out, '\\');
        buf_putc(out, *c);
    }
    buf_putc(out, '"');
}

/* Appends the end of the labels, and the shortest number that is read back as the same value. */
static void sample_end(struct buf *out, double value)
{
    char text[REAL_TEXT];

    real_text(text, value);
    buf_printf(out, "} %s\n", text);
}

static void gauge_head(struct buf *out, const char *name, const char *help)
{
    buf_printf(out, "# HELP %s %s\n# TYPE %s gauge\n", name, help, name);
}

/* ---- jobs */

static double job_ranks(const struct stats_job *j)
{
    return j->sums.ranks;
}

static double job_gpus(const struct stats_job *j)
{
    return j->sums.gpus;
}

static double job_idle_gpu_ranks(const struct stats_job *j)
{
    return j->sums.gpus ? j->sums.idle_gpu_ranks : NAN;
}

static double job_restarts(const struct stats_job *j)
{
    return (double)j->restarts;
}

static double job_running(const struct stats_job *j)
{
    return j->running_s > 0 ? j->running_s : 0; /* the wall clock may have been set back */
}

static double job_step(const struct stats_job *j)
{
    return j->sums.step > 0 ? (double)j->sums.step : NAN;
}

static double job_steps(const struct stats_job *j)
{
    return j->sums.steps > 0 ? (double)j->sums.steps : NAN;
}

static double job_pace(const struct stats_job *j)
{
    return j->sums.steps_per_s > 0 ? j->sums.steps_per_s : NAN;
}

static double job_loss(const struct stats_job *j)
{
    return j->sums.loss;
}

/* A row has either a function or, without one, a value of usage. */
static const struct job_series {
    const char *name, *help;
    double (*value)(const struct stats_job *j);
    enum usage_metric usage;
} job_series[] = {
    {"ddp_job_ranks", "Ranks of a running job.", job_ranks, 0},
    {"ddp_job_gpus", "GPUs of a running job.", job_gpus, 0},
    {"ddp_job_running_seconds", "Time since the job ran for the first time.", job_running, 0},
    {"ddp_job_restarts", "Restarts of a running job that counted against max_restarts.", job_restarts, 0},
    {"ddp_job_step", "Step of a running job, as it reports it.", job_step, 0},
    {"ddp_job_steps", "Steps of the whole run, as the job reports them.", job_steps, 0},
    {"ddp_job_steps_per_second", "Steps per second of a running job.", job_pace, 0},
    {"ddp_job_loss", "Loss that a running job reported last.", job_loss, 0},
    {"ddp_job_cpu_cores", "Cores that all ranks use.", NULL, USAGE_CPU},
    {"ddp_job_memory_bytes", "Resident memory of all ranks.", NULL, USAGE_MEMORY},
    {"ddp_job_read_bytes_per_second", "Bytes that all ranks read from storage.", NULL, USAGE_READ},
    {"ddp_job_write_bytes_per_second", "Bytes that all ranks write to storage.", NULL, USAGE_WRITE},
    {"ddp_job_gpu_utilisation", "Mean utilisation of the job's GPUs, 0 to 1.", NULL, USAGE_GPU},
    {"ddp_job_idle_gpu_ranks", "Ranks with a GPU that is idle now.", job_idle_gpu_ranks, 0},
};

static void job_series_print(const struct stats_jobs *j, const struct job_series *s, struct buf *out)
{
    gauge_head(out, s->name, s->help);
    for (size_t i = 0; i < j->job_count; i++) {
        const struct stats_job *job = &j->jobs[i];
        const double value = s->value ? s->value(job) : job->sums.usage.values[s->usage];
        if (!isfinite(value)) /* not known */
            continue;
        buf_printf(out, "%s{job=\"%lld\",", s->name, (long long)job->id);
        label_put(out, "name", job->name);
        buf_putc(out, ',');
        label_put(out, "user", job->user);
        sample_end(out, value);
    }
}

/* ---- GPUs */

static double gpu_utilisation(const struct core_gpu *g)
{
    return g->unmeasured ? NAN : g->utilisation;
}

static double gpu_memory_used(const struct core_gpu *g)
{
    return (double)g->memory_used;
}

static double gpu_memory(const struct core_gpu *g)
{
    return (double)g->memory_bytes;
}

static double gpu_watts(const struct core_gpu *g)
{
    return g->power_watts > 0 ? g->power_watts : NAN;
}

static double gpu_celsius(const struct core_gpu *g)
{
    return g->temperature > 0 ? g->temperature : NAN;
}

static const struct gpu_series {
    const char *name, *help;
    double (*value)(const struct core_gpu *g);
} gpu_series[] = {
    {"ddp_gpu_utilisation", "Utilisation of a GPU that a running job holds, 0 to 1.", gpu_utilisation},
    {"ddp_gpu_memory_used_bytes", "Memory in use on the GPU.", gpu_memory_used},
    {"ddp_gpu_memory_bytes", "Memory of the GPU.", gpu_memory},
    {"ddp_gpu_watts", "Power that the GPU draws.", gpu_watts},
    {"ddp_gpu_celsius", "Temperature of the GPU.", gpu_celsius},
};

static void gpu_series_print(const struct stats_jobs *j, const struct gpu_series *s, struct buf *out)
{
    gauge_head(out, s->name, s->help);
    for (size_t i = 0; i < j->gpu_count; i++) {
        const struct core_gpu_use *use = &j->gpus[i];
        const double value = s->value(use->gpu);
        if (!isfinite(value))
            continue;
        buf_printf(out, "%s{", s->name);
        label_put(out, "node", use->node);
        buf_printf(out, ",gpu=\"%d\",job=\"%lld\"", use->gpu->index, (long long)use->job);
        sample_end(out, value);
    }
}

void stats_jobs_print(const struct stats_jobs *j, struct buf *out)
{
    for (size_t i = 0; i < ARRAY_LEN(job_series); i++)
        job_series_print(j, &job_series[i], out);
    for (size_t i = 0; i < ARRAY_LEN(gpu_series); i++)
        gpu_series_print(j, &gpu_series[i], out);
    gauge_head(out, "ddp_job_series_left_out", "Running jobs beyond those that have series of their own.");
    buf_printf(out, "ddp_job_series_left_out %zu\n", j->jobs_left_out);
    gauge_head(out, "ddp_gpu_series_left_out",
               "GPUs of running jobs beyond those that have series of their own.");
    buf_printf(out, "ddp_gpu_series_left_out %zu\n", j->gpus_left_out);
}
