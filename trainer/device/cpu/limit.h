#ifndef DDP_TRAINER_DEVICE_CPU_LIMIT_H
#define DDP_TRAINER_DEVICE_CPU_LIMIT_H

#include "base/err.h"
#include "base/isa.h"

/* The largest instruction set that this process computes with. oneDNN keeps it, for the whole process: its
 * products and ddp's own kernels follow the same limit, also one that the user sets by ONEDNN_MAX_CPU_ISA
 * (cpu_limit_isa goes before that). */

/* Limits the process to the set `most`. ISA_AUTO keeps the user's limit; if there is none, it limits to isa_auto(). Call it before
 * the first device is opened, at most once. FAILED_PRECONDITION: the CPU does not have this set, or the process already uses
 * another one. */
MUST_CHECK enum err_code cpu_limit_isa(enum isa most, struct err *e);

/* The set in use. Fixes the limit. */
enum isa cpu_isa(void);

#endif
