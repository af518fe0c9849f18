#include "trainer/engine/choose_device.h"

#include <stdlib.h>

#include "base/log.h"
#include "trainer/device/cpu/limit.h"

/* Whether the environment names GPUs for this worker. The agent sets it, or a user who starts a worker by
 * hand. */
static bool has_gpu(void)
{
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    return visible && *visible;
}

/* A job with `device: cuda` fails without a GPU. With `auto` the worker uses a GPU if it was given one. */
enum err_code choose_device(struct device **out, const struct engine_config *config, struct err *e)
{
    int rank = config->local_rank, ranks = config->local_ranks, threads = (int)config->spec->threads;
    bool wanted = config->device == JOB_DEVICE_CUDA;
    if (wanted || (config->device == JOB_DEVICE_AUTO && has_gpu())) {
        struct err why = {0};
        if (device_open(out, DEVICE_CUDA, rank, ranks, threads, &why) == ERR_OK)
            return ERR_OK;
        if (why.code != ERR_UNAVAILABLE) {
            *e = why;
            return e->code;
        }
        if (wanted)
            return err_set(e, ERR_FAILED_PRECONDITION, "device: cuda: %s", why.msg);
        log_warn("device_fallback", "local_rank=%d device=cpu why=%s", rank, LOG_Q(why.msg));
    }
    if (cpu_limit_isa(config->spec->isa, e))
        return e->code;
    return device_open(out, DEVICE_CPU, rank, ranks, threads, e);
}
