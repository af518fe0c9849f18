#ifndef DDP_DAEMON_SUPERVISOR_KERNEL_KILLS_H
#define DDP_DAEMON_SUPERVISOR_KERNEL_KILLS_H

#include <stdbool.h>
#include <stdint.h>

/* Tells whether the kernel has lately killed a process of this machine for want of memory. It counts these kills for the whole
 * machine and does not say whom it killed, so only the last seconds count: over hours, some other program may have been killed. */
struct kernel_kills {
    long long before, lately; /* counts since boot; -1: unknown */
    int64_t lately_ms;        /* when `lately` was read */
};

void kernel_kills_begin(struct kernel_kills *k, long long count, int64_t now_ms);
/* Whether it is time to read the count again. Nothing wakes up for it: a count that was read late only makes the time longer. */
bool kernel_kills_due(const struct kernel_kills *k, int64_t now_ms);
void kernel_kills_note(struct kernel_kills *k, long long count, int64_t now_ms);
/* Whether `count`, read just now, is above the count of at least one such time ago. */
bool kernel_kills_grew(const struct kernel_kills *k, long long count);

#endif
