#include "trainer/engine/choose_device.h"

#include <stdlib.h>
#include <unistd.h>

#include "base/log.h"
#include "trainer/device/comm.h"
#include "trainer/device/cpu/limit.h"

/* Whether `device: auto` tries a GPU. An agent names its worker's GPUs in the environment. A worker that a user starts by
 * hand may see all of the machine's. NULL: yes; else why not. */
static const char *no_gpu_because(bool standalone)
{
    const char *visible = getenv("CUDA_VISIBLE_DEVICES"), *plugin = getenv("DDP_CUDA_PLUGIN");
    if (visible && *visible)
        return NULL;
    if (visible)
        return "CUDA_VISIBLE_DEVICES is empty";
    if (!standalone)
        return "this worker was given no GPU";
    /* Of NVIDIA's driver: on Linux, and on Windows' subsystem for it. To load CUDA's libraries in vain takes time. */
    if ((plugin && *plugin) || access("/dev/nvidiactl", F_OK) == 0 || access("/dev/dxg", F_OK) == 0)
        return NULL;
    return "there is no NVIDIA driver (/dev/nvidiactl)";
}

/* A job with `device: cuda` fails without a GPU. With `auto` the worker uses a GPU if it was given one. A worker that a user
 * has started by hand says why it computes on the CPU; of others `ddpctl status` shows which GPUs they have. */
enum err_code choose_device(struct device **out, const struct engine_config *config, struct err *e)
{
    int rank = config->local_rank, ranks = config->local_ranks, threads = (int)config->spec->threads;
    bool wanted = config->device == JOB_DEVICE_CUDA;
    const char *without = wanted ? NULL : no_gpu_because(config->standalone);
    if (config->device == JOB_DEVICE_AUTO && without && config->standalone)
        log_info("device_fallback", "local_rank=%d device=cpu why=%s", rank, LOG_Q(without));
    if (wanted || (config->device == JOB_DEVICE_AUTO && !without)) {
        struct err why = {0};
        if (device_open(out, DEVICE_CUDA, rank, ranks, threads, &why) == ERR_OK) {
            if ((*out)->comm)
                (*out)->comm->prepare(config->spec->reproducible != REPRODUCIBLE_NONE);
            return ERR_OK;
        }
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
    if (device_open(out, DEVICE_CPU, config->spec->pin ? rank : -1, ranks, threads, e))
        return e->code;
    if (config->spec->precision == PRECISION_BF16 && !(*out)->attends_bf16)
        log_warn(
            "bf16_in_floats",
            "local_rank=%d device=%s why=\"this CPU has no fast instructions for bf16, so products are computed in floats: "
            "precision: fp32 is usually faster here\"",
            rank, (*out)->name);
    return ERR_OK;
}
