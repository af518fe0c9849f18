#ifndef DDP_TRAINER_DEVICE_CPU_PIN_H
#define DDP_TRAINER_DEVICE_CPU_PIN_H

#include "base/err.h"

/* Pins this process, and all threads that it starts later, to its part of the cores. Sets *threads to the
 * number of these cores. */
MUST_CHECK enum err_code cpu_pin(int local_rank, int local_ranks, int *threads, struct err *e);

#endif
