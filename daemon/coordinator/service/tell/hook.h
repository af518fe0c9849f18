#ifndef DDP_DAEMON_COORDINATOR_SERVICE_TELL_HOOK_H
#define DDP_DAEMON_COORDINATOR_SERVICE_TELL_HOOK_H

#include <stddef.h>
#include <stdint.h>

#include "base/job/tell.h"
#include "daemon/coordinator/core/notices.h"

#define HOOK_OF_JOBS "jobs" /* stands for all `tell` of jobs in lists and metrics; no hook has this name */

/* The hooks of coordinator.yaml. rules[i] selects the events that hooks[i] gets. */
struct hook {
    char *post; /* URL, secret; NULL: run */
    enum tell_shape shape;
    char **run; /* program and arguments; NULL: post */
    int64_t timeout_ms;
};

struct hook_list {
    struct core_hook *rules;
    struct hook *hooks;
    size_t count;
    char **tell_allow; /* of jobs: see tell_check */
    char *tell_ca;     /* a file of certificates; NULL: the system's */
};

#endif
