#ifndef DDP_DAEMON_AGENT_GPU_GPUS_H
#define DDP_DAEMON_AGENT_GPU_GPUS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "proto/ddp.pb-c.h"

/* The GPUs that this agent offers: what they are, how they are, which of them are sick. Loop thread.
 *
 * Offered is what NVML lists, narrowed by the config's list, then by the agent's own CUDA_VISIBLE_DEVICES (a
 * batch system's, or the user's under ddpctl run). A driver may come later than the agent: what it lists is
 * offered then. What was offered, and how it was, is kept in <state>/gpus.json until the machine starts anew:
 * a restart of the agent forgets no sickness before the operator undrains the node, and one that was sick or
 * leased and that NVML lists no more counts as lost. */

struct uv_loop_s;
struct gpus;

struct gpus_options {                             /* texts are borrowed until gpus_close */
    const char *state;                            /* directory */
    const char *configured;                       /* as in gpu_choice.h; NULL: all */
    const char *visible;                          /* CUDA_VISIBLE_DEVICES, or NULL */
    bool (*leased)(void *user, const char *uuid); /* a worker may hold it */
    void (*on_change)(void *user);                /* one became sick, worse or well */
    void (*on_arrival)(void *user);               /* there were none, and now there are */
    int64_t patience_ms; /* for the first look; what takes longer is a driver that comes later */
    void *user;
};

/* INVALID_ARGUMENT: the configured list names what is not there. Without a driver, or with one that does not
 * answer, there are no GPUs until there is one. */
MUST_CHECK enum err_code gpus_open(struct gpus **out, struct uv_loop_s *loop,
                                   const struct gpus_options *options, struct err *e);
void gpus_close(struct gpus *g);
size_t gpus_count(const struct gpus *g); /* offered, the sick ones too */
/* As they are now; borrowed until the loop turns. */
Ddp__V1__Gpu **gpus_messages(struct gpus *g, size_t *count);
/* The operator holds them for well again: what NVML still says of them stays. */
void gpus_clear_faults(struct gpus *g);

#endif
