#ifndef DDP_TRAINER_DEVICE_CPU_PIN_H
#define DDP_TRAINER_DEVICE_CPU_PIN_H

#include "base/err.h"

/* Keeps this process, and all threads it starts later, on its share of the cores; *threads of them. */
MUST_CHECK enum err_code cpu_pin(int local_rank, int local_ranks, int *threads, struct err *e);

#endif
