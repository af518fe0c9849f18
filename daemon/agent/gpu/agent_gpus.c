/* GPUs between their parts: which they are (gpus.h), what trains on them (trainer_plugin.h), and the hello,
 * which tells both. Either may come late: the driver after us, the trainer's word after its time. */
#include <stdlib.h>

#include "base/clock.h"
#include "base/mem.h"
#include "daemon/agent/agent_state.h"
#include "daemon/agent/gpu/trainer_plugin.h"

#define GPUS_MS 30000   /* a driver that starts for its first user takes seconds a GPU */
#define PLUGIN_MS 60000 /* longer than anybody waits for an answer */
#define BUSY_MS 2000    /* where workers are: their node must not be taken for lost meanwhile */

static void on_gpus_change(void *user)
{
    struct agent *a = user;

    session_beat(a->session);
}

static void on_trainer_plugin(void *user, const char *nccl, const char *version)
{
    struct agent *a = user;

    a->asking = NULL;
    free(a->nccl);
    free(a->plugin);
    a->nccl = xstrdup(nccl);
    a->plugin = xstrdup(version);
    if (a->ending)
        return;
    if (a->session)
        session_renew(a->session);
    agent_dial(a);
}

/* The driver came later than we did: the coordinator hears of its GPUs once it is known what trains there. */
static void on_gpus_arrival(void *user)
{
    struct agent *a = user;

    a->asking = trainer_plugin_ask(&a->loop, a->trainer, on_trainer_plugin, a);
}

static bool gpu_is_leased(void *user, const char *uuid)
{
    const struct agent *a = user;

    return wish_leases(a->wish.wish, uuid);
}

enum err_code agent_open_gpus(struct agent *a, struct err *e)
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
        a->asking = trainer_plugin_ask(&a->loop, a->trainer, on_trainer_plugin, a);
    a->dial_by = clock_boot_ms() + (busy ? BUSY_MS : PLUGIN_MS);
    return ERR_OK;
}
