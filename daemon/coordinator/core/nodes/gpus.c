/* Handles what a node says of its GPUs. A GPU that becomes sick gets no new workers, but its present workers
 * go on. A GPU that fell off the bus is lost: its workers would wait for ever, so their generation ends. */
#include "daemon/coordinator/core/nodes/gpus.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "daemon/coordinator/core/emit.h"
#include "daemon/coordinator/core/failure/restart_rule.h"
#include "daemon/coordinator/core/generation_end.h"
#include "daemon/coordinator/core/model.h"
#include "daemon/coordinator/core/nodes/inventory.h"
#include "daemon/coordinator/core/notices.h"

/* Whether this is the first spawn of its job on the node that holds the GPU: jobs are told once, not for each
 * rank. */
static bool first_holder_of_job(const struct node *node, size_t at, const char *uuid)
{
    for (size_t i = 0; i < at; i++)
        if (node->spawns[i]->job == node->spawns[at]->job &&
            names_contain(node->spawns[i]->r.gpu_uuids, uuid))
            return false;
    return names_contain(node->spawns[at]->r.gpu_uuids, uuid);
}

static void say_gpu_health(struct core *core, const struct node *node, const struct core_gpu *gpu)
{
    const char *why = gpu->problem && *gpu->problem ? gpu->problem : "it is not healthy";

    if (gpu->healthy) {
        emit_event(core, NULL, "gpu_well", "%s gpu%d is healthy again", node->r.name, gpu->index);
        return;
    }
    emit_event(core, NULL, "gpu_sick", "%s gpu%d: %s", node->r.name, gpu->index, why);
    notice_node(core, node->r.name, NOTICE_GPU_SICK, "%s gpu%d: %s", node->r.name, gpu->index, why);
    for (size_t i = 0; i < node->spawn_count; i++)
        if (first_holder_of_job(node, i, gpu->uuid))
            emit_event(core, node->spawns[i]->job, "gpu_sick", "%s gpu%d of rank %d: %s", node->r.name,
                       gpu->index, node->spawns[i]->rank->r.rank, why);
}

static bool generation_uses_gpu(const struct generation *g, const struct node *node, const char *uuid)
{
    for (int i = 0; i < g->r.world_size; i++)
        if (g->ranks[i].spawn->node == node && !g->ranks[i].spawn->r.dead &&
            names_contain(g->ranks[i].spawn->r.gpu_uuids, uuid))
            return true;
    return false;
}

static void end_generations_on(struct core *core, struct node *node, const struct core_gpu *gpu)
{
    struct job **jobs = xcalloc(node->spawn_count + 1, sizeof(struct job *));
    CLEANUP(free_text)
    char *text =
        xasprintf("%s gpu%d: %s", node->r.name, gpu->index, gpu->problem ? gpu->problem : "it is lost");
    CLEANUP(free_text) char *uuid = xstrdup(gpu->uuid);
    size_t count = 0;

    for (size_t i = 0; i < node->spawn_count; i++)
        if (first_holder_of_job(node, i, uuid))
            jobs[count++] = node->spawns[i]->job;
    for (size_t i = 0; i < count; i++) {
        struct generation *g = job_current(jobs[i]);
        if (generation_open(g) && g->r.state != GENERATION_DRAINING && generation_uses_gpu(g, node, uuid))
            generation_fail(core, g,
                            &(struct failure_cause){.charged = true, .exit_code = 125, .text = text});
    }
    free(jobs);
}

/* The GPU on `node` that explains why the job's current generation failed, with the worker that had it; NULL: there is
 * none. The workers may be dead. */
static const struct core_gpu *find_gpu_to_blame(const struct job *job, const struct node *node,
                                                struct spawn **holder)
{
    const struct generation *g = job_current(job);

    for (int i = 0; i < g->r.world_size; i++) {
        struct spawn *s = g->ranks[i].spawn;
        for (char **uuid = s->node == node ? s->r.gpu_uuids : NULL; uuid && *uuid; uuid++) {
            const struct core_gpu *gpu = inventory_find(node, *uuid);
            *holder = s;
            /* Workers go on with a sick GPU, so a peer's sick GPU explains nothing. A lost GPU fails all ranks. */
            if (gpu && (gpu->lost || (!gpu->healthy && s->r.spawn == g->r.failed_spawn)))
                return gpu;
        }
    }
    return NULL;
}

/* A program that gets a CUDA error ends at once, but the agent looks at the GPUs only every 2 s. */
static void blame_gpus_for_errors(struct core *core, const struct node *node)
{
    for (size_t i = 0; i < core->job_count; i++) {
        struct job *job = core->jobs[i];
        struct spawn *holder;
        const struct core_gpu *gpu = restart_rule_waits(job) ? find_gpu_to_blame(job, node, &holder) : NULL;
        if (!gpu)
            continue;
        CLEANUP(free_text)
        char *text = xasprintf("%s gpu%d of rank %d: %.300s", node->r.name, gpu->index, holder->rank->r.rank,
                               gpu->problem && *gpu->problem ? gpu->problem : "it is not healthy");
        generation_replace_cause(
            core, job_current(job),
            &(struct failure_cause){.spawn = holder, .charged = true, .exit_code = 125, .text = text});
    }
}

void gpus_end_lost(struct core *core, struct node *node)
{
    blame_gpus_for_errors(core, node);
    for (size_t i = 0; i < node->gpu_count; i++)
        if (node->gpus[i].lost)
            end_generations_on(core, node, &node->gpus[i]);
}

/* An agent asks its trainer for these after it has connected. Until then the last known ones count. */
static void take_plugin(struct node *node, const struct core_hello *hello)
{
    if (node->nccl && !(hello->nccl && *hello->nccl))
        return;
    free(node->nccl);
    node->nccl = xstrdup(hello->nccl ? hello->nccl : "");
    free(node->plugin);
    node->plugin = xstrdup(hello->plugin ? hello->plugin : "");
}

void gpus_hello(struct core *core, struct node *node, const struct core_hello *hello)
{
    struct node before = {.gpus = steal(node->gpus), .gpu_count = node->gpu_count};
    bool known = node->nccl || before.gpu_count;

    node->gpu_count = 0;
    inventory_set(node, hello->gpus, hello->gpu_count);
    node->gpu_slots = hello->gpu_slots > 0 ? hello->gpu_slots : 1;
    take_plugin(node, hello);
    for (size_t i = 0; i < node->gpu_count; i++) {
        const struct core_gpu *old = inventory_find(&before, node->gpus[i].uuid);
        if (old ? old->healthy != node->gpus[i].healthy : !node->gpus[i].healthy)
            say_gpu_health(core, node, &node->gpus[i]);
    }
    if (known && before.gpu_count != node->gpu_count)
        emit_event(core, NULL, "gpus_changed", "%s has %zu GPUs, it had %zu before", node->r.name,
                   node->gpu_count, before.gpu_count);
    inventory_free(&before);
}

void gpus_heard(struct core *core, struct node *node, const struct core_gpu *gpus, size_t count)
{
    bool *was_well = xcalloc(node->gpu_count + 1, sizeof(*was_well));

    for (size_t i = 0; i < node->gpu_count; i++)
        was_well[i] = node->gpus[i].healthy;
    if (inventory_update(node, gpus, count)) {
        free(node->r.gpus);
        node->r.gpus = inventory_print(node);
        emit_node(core, node, CHANGE_NODE_PUT);
        for (size_t i = 0; i < node->gpu_count; i++)
            if (was_well[i] != node->gpus[i].healthy)
                say_gpu_health(core, node, &node->gpus[i]);
        gpus_end_lost(core, node);
    }
    free(was_well);
}
