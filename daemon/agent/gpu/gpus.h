#ifndef DDP_DAEMON_AGENT_GPU_GPUS_H
#define DDP_DAEMON_AGENT_GPU_GPUS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/worker/usage.h"
#include "proto/ddp.pb-c.h"

/* The GPUs that this agent offers: their names, their load, and which of them are sick. Loop thread.
 *
 * The agent offers what NVML lists, narrowed by the config's list and then by the agent's own
 * CUDA_VISIBLE_DEVICES (set by a batch system, or by the user of ddpctl run). If the driver comes later than
 * the agent, its GPUs are offered then. Names and faults are kept in <state>/gpus.json until the machine
 * starts again: so a restart of the agent does not forget a sick GPU before the operator undrains the node,
 * and a GPU that was sick or leased and that NVML does not list any more counts as lost. */

struct uv_loop_s;
struct gpus;

struct gpus_options {                             /* texts are borrowed until gpus_close */
    const char *state;                            /* directory */
    const char *configured;                       /* a list as in gpu_choice.h; NULL: all */
    const char *visible;                          /* CUDA_VISIBLE_DEVICES, or NULL */
    bool (*leased)(void *user, const char *uuid); /* a worker may be using it */
    void (*on_change)(void *user);                /* a GPU became sick, worse or well */
    void (*on_arrival)(void *user);               /* the driver came later, and now there are GPUs */
    int64_t patience_ms; /* for the first readings; a slower driver counts as one that comes later */
    void *user;
};

/* INVALID_ARGUMENT: the configured list names a GPU that does not exist. Without a driver, or with one that
 * does not answer, the result is OK and there are no GPUs for now. */
MUST_CHECK enum err_code gpus_open(struct gpus **out, struct uv_loop_s *loop,
                                   const struct gpus_options *options, struct err *e);
void gpus_close(struct gpus *g);
size_t gpus_count(const struct gpus *g); /* all that are offered, sick ones included */
/* Their current state; borrowed until the next turn of the loop. */
Ddp__V1__Gpu **gpus_messages(struct gpus *g, size_t *count);
/* Adds what the last reading says of this GPU; nothing of one that is gone. */
void gpus_add_usage(const struct gpus *g, const char *uuid, struct usage *out);
/* The operator has undrained the node: forgets all faults but those that NVML still reports. */
void gpus_clear_faults(struct gpus *g);

#endif
