#ifndef DDP_BASE_HOST_MEMORY_H
#define DDP_BASE_HOST_MEMORY_H

#include <stdint.h>

/* The memory that this process can use, in bytes; 0: unknown. A cgroup may allow less than the machine has: that of a container, a
 * unit of systemd, or a job of a batch system. Any thread. */
struct host_memory {
    int64_t total, available;
};

void host_memory_read(struct host_memory *out);
/* The same with the proc and sys of this directory, for tests; "": the machine's own. */
void host_memory_read_at(const char *root, struct host_memory *out);

#endif
