#include "daemon/coordinator/core/job_sums.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "daemon/coordinator/core/model.h"
#include "daemon/coordinator/core/nodes/idle.h"
#include "daemon/coordinator/core/nodes/inventory.h"

static void sums_add_usage(struct usage *sum, const struct usage *u)
{
    const double gpus = sum->gpus + u->gpus;

    for (int i = USAGE_CPU; i <= USAGE_WRITE; i++)
        sum->values[i] += u->values[i];
    if (!u->gpus)
        return;
    sum->values[USAGE_GPU] = (sum->values[USAGE_GPU] * sum->gpus + u->values[USAGE_GPU] * u->gpus) / gpus;
    sum->values[USAGE_GPU_MEMORY] += u->values[USAGE_GPU_MEMORY];
    sum->values[USAGE_GPU_WATTS] += u->values[USAGE_GPU_WATTS];
    const double hottest = sum->values[USAGE_GPU_CELSIUS], celsius = u->values[USAGE_GPU_CELSIUS];
    sum->values[USAGE_GPU_CELSIUS] = isnan(hottest) || isnan(celsius) ? NAN : fmax(hottest, celsius);
    sum->gpus += u->gpus;
}

static double job_loss(const struct core_progress *p)
{
    for (size_t i = 0; i < p->metric_count; i++)
        if (!strcmp(p->metrics[i].name, "loss"))
            return p->metrics[i].value;
    return NAN;
}

bool core_job_sums(const struct core *core, int64_t id, struct core_job_sums *out)
{
    const struct job *job = core_find_job(core, id);
    const struct generation *g = job ? job_current(job) : NULL;

    if (!g || job->r.state != JOB_RUNNING)
        return false;
    *out = (struct core_job_sums){.ranks = g->r.world_size,
                                  .loss = job_loss(&job->progress),
                                  .step = job->progress.step,
                                  .steps = job->progress.steps,
                                  .steps_per_s = job->progress.steps_per_s};
    bool known = true;
    for (int i = 0; i < g->r.world_size; i++) {
        const struct spawn *s = g->ranks[i].spawn;
        const struct usage *u = idle_usage(core, s);

        out->gpus += (int)strv_len(s->r.gpu_uuids);
        out->idle_gpu_ranks += idle_gpu_ms(core, s) > 0;
        if (u)
            sums_add_usage(&out->usage, u);
        else
            known = known && s->r.dead; /* a rank that has ended uses nothing */
    }
    if (!known || !out->usage.gpus)
        for (int i = known ? USAGE_GPU : USAGE_CPU; i < USAGE_METRICS; i++)
            out->usage.values[i] = NAN;
    return true;
}

static bool use_is_listed(const struct core_gpu_use *list, size_t count, const struct core_gpu *gpu,
                          int64_t job)
{
    while (count > 0 && list[count - 1].job == job)
        if (list[--count].gpu == gpu)
            return true;
    return false;
}

size_t core_gpu_uses(const struct core *core, struct core_gpu_use *out, size_t most)
{
    size_t count = 0, kept = 0;

    for (size_t i = 0; i < core->job_count; i++) {
        const struct job *job = core->jobs[i];
        const struct generation *g = job_current(job);

        for (int k = 0; g && job->r.state == JOB_RUNNING && k < g->r.world_size; k++) {
            const struct spawn *s = g->ranks[k].spawn;
            const bool heard = !s->r.dead && s->node && s->node->session;

            for (char **uuid = heard ? s->r.gpu_uuids : NULL; uuid && *uuid; uuid++) {
                const struct core_gpu *gpu = inventory_find(s->node, *uuid);

                if (!gpu || use_is_listed(out, kept, gpu, job->r.id))
                    continue;
                if (kept < most)
                    out[kept++] = (struct core_gpu_use){s->node->r.name, gpu, job->r.id};
                count++;
            }
        }
    }
    return count;
}
