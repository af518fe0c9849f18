#ifndef DDP_DAEMON_AGENT_INVENTORY_H
#define DDP_DAEMON_AGENT_INVENTORY_H

#include <stdint.h>

#include "base/err.h"

/* The machine's cores, memory and address; GPUs are in gpu/gpus.h. */
struct inventory {
    int cores; /* number of cores that this process may use */
    int64_t memory_bytes;
};
struct inventory_load {
    double load; /* 0..1 of all cores, since the last measurement */
    int64_t memory_free;
};
struct inventory_meter { /* CPU ticks at the last measurement */
    int64_t busy, total;
};

void inventory_read(struct inventory *out);
void inventory_measure(struct inventory_meter *meter, struct inventory_load *out);

/* The address at which other nodes reach this one: the source address of the route to the coordinator. If
 * that is a loopback address, the source address of the default route; without one, the address of the first
 * interface that has one; else 127.0.0.1. The caller frees it. UNAVAILABLE: there is no route yet, or no answer of the name
 * server. */
MUST_CHECK enum err_code inventory_address(const char *coordinator, char **out, struct err *e);

#endif
