#ifndef DDP_TRAINER_DEVICE_CPU_PROFILE_H
#define DDP_TRAINER_DEVICE_CPU_PROFILE_H

#include "trainer/device/device.h"

/* With DDP_CPU_PROFILE=FILE, counts the processor time of the calling thread by kind of operation. Closing the device
 * writes one line of JSON for each kind to FILE.PID. The first step is left out, because it compiles products, and so is
 * what follows the last step. Use one thread: the work of other compute threads is counted as that of other threads.
 * The clock is read twice for each operation, which takes less than 1 us. */
struct cpu_profile;

/* Returns NULL if the environment asks for no profile. Otherwise d->ops becomes a table whose operations are counted. */
struct cpu_profile *cpu_profile_open(struct device *d);
void cpu_profile_close(struct cpu_profile *p); /* NULL is fine */

#endif
