#include "daemon/agent/gpu/agent_gpus.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/mem.h"
#include "daemon/agent/coordinator_link.h"
#include "daemon/agent/gpu/trainer_plugin.h"

#define GPUS_MS 30000   /* a driver that starts for its first user takes seconds for each GPU */
#define PLUGIN_MS 60000 /* longer than trainer_plugin waits for the answer */
#define BUSY_MS 2000    /* the same if workers run here, so that the node does not count as lost meanwhile */

static void on_gpus_change(void *user)
{
    struct agent *a = user;

    session_beat(a->session);
}

static void on_trainer_plugin(void *user, const char *nccl, const char *version)
{
    struct agent *a = user;

    a->plugin_query = NULL;
    free(a->nccl);
    free(a->plugin);
    a->nccl = xstrdup(nccl);
    a->plugin = xstrdup(version);
    if (a->ending)
        return;
    if (a->session) /* the hello went out without the answer */
        session_renew(a->session);
    coordinator_link_dial(a);
}

/* The driver came later than the agent. The coordinator hears of the GPUs with the trainer's answer. */
static void on_gpus_arrival(void *user)
{
    struct agent *a = user;

    a->plugin_query = trainer_plugin_ask(&a->loop, a->trainer, on_trainer_plugin, a);
}

static bool gpu_is_leased(void *user, const char *uuid)
{
    const struct agent *a = user;

    return wish_leases(a->wish.wish, uuid);
}

enum err_code agent_gpus_open(struct agent *a, struct err *e)
{
    bool busy = wish_any(a->wish.wish);
    struct gpus_options options = {.state = a->settings->state,
                                   .configured = a->settings->gpus,
                                   .visible = getenv("CUDA_VISIBLE_DEVICES"),
                                   .leased = gpu_is_leased,
                                   .on_change = on_gpus_change,
                                   .on_arrival = on_gpus_arrival,
                                   .patience_ms = busy ? BUSY_MS : GPUS_MS,
                                   .user = a};

    if (gpus_open(&a->gpus, &a->loop, &options, e))
        return e->code;
    if (gpus_count(a->gpus))
        a->plugin_query = trainer_plugin_ask(&a->loop, a->trainer, on_trainer_plugin, a);
    a->dial_by = clock_boot_ms() + (busy ? BUSY_MS : PLUGIN_MS);
    return ERR_OK;
}

void agent_gpus_add_usage(void *agent, int64_t job, int64_t spawn, struct usage *out)
{
    struct agent *a = agent;
    const Ddp__V1__GroupWish *group = wish_group(a->wish.wish, job);

    for (size_t i = 0; group && i < group->n_spawns; i++)
        for (size_t k = 0; group->spawns[i]->spawn == spawn && k < group->spawns[i]->n_gpu_uuids; k++)
            gpus_add_usage(a->gpus, group->spawns[i]->gpu_uuids[k], out);
}
