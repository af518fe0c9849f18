#ifndef DDP_DAEMON_AGENT_INVENTORY_H
#define DDP_DAEMON_AGENT_INVENTORY_H

#include <stdint.h>

#include "base/err.h"

/* What this machine has; of GPUs see gpus.h. */
struct inventory {
    int cores; /* that this process may run on */
    int64_t memory_bytes;
};
struct inventory_load {
    double load; /* 0..1 of all cores, since the last look */
    int64_t memory_free;
};
struct inventory_meter { /* of the last look */
    int64_t busy, total;
};

void inventory_read(struct inventory *out);
void inventory_measure(struct inventory_meter *meter, struct inventory_load *out);

/* The address that the way to the coordinator starts from (a connected UDP socket's); where that is loopback,
 * the one of the default route; where there is none, 127.0.0.1. The caller frees. */
MUST_CHECK enum err_code inventory_address(const char *coordinator, char **out, struct err *e);

#endif
