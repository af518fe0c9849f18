#ifndef DDP_BASE_TOPOLOGY_H
#define DDP_BASE_TOPOLOGY_H

#include <sched.h>
#include <stddef.h>

#include "base/buf.h"
#include "base/err.h"

/* The processors of this machine as Linux describes them in sysfs: which hardware threads are one core, and which cores
 * are at the same memory (a NUMA node). */

#define TOPOLOGY_ROOT "/sys/devices/system"
#define TOPOLOGY_MOST 8192 /* processors that Linux may have */

/* A set of processors, by number, of the size that sched_getaffinity wants on every machine. */
struct topology_set {
    unsigned long words[TOPOLOGY_MOST / (8 * sizeof(unsigned long))];
};
static inline cpu_set_t *topology_cpus(struct topology_set *s)
{
    return (cpu_set_t *)(void *)s;
}

struct topology_cpu { /* a hardware thread */
    int cpu;
    int core; /* the smallest number of the core's hardware threads that are allowed */
    int node; /* NUMA node; 0 if the kernel names none */
};
struct topology {
    struct topology_cpu *cpus; /* by node, then by core, then by number */
    size_t count;
};

/* Describes the processors of `allowed` that are online. root: TOPOLOGY_ROOT, or a copy of it. If the kernel does not describe
 * them, there is one NUMA node, and each processor is a core. NUMA nodes without processors are left out. */
void topology_read(struct topology *out, const char *root, const struct topology_set *allowed);
/* The processors of this machine that this process may use. */
MUST_CHECK enum err_code topology_read_own(struct topology *out, struct err *e);
/* The number of processors that this process may use; 1 if the kernel does not say. */
int topology_allowed(void);
size_t topology_cores(const struct topology *t);
void topology_release(struct topology *t);

/* Adds the numbers of a list such as "0-3,8" to the set. */
void topology_parse(const char *list, struct topology_set *out);
/* Prints ascending numbers in this form. */
void topology_print(const int *numbers, size_t count, struct buf *out);

#endif
