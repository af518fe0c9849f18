#ifndef DDP_DAEMON_AGENT_GPU_GPU_CHOICE_H
#define DDP_DAEMON_AGENT_GPU_GPU_CHOICE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

/* Takes from `chosen` (one a GPU, in the order of nvidia-smi) those that the list does not name. The list is
 * CUDA_VISIBLE_DEVICES' kind: numbers, or UUIDs as far as they are told apart, with commas between; "all";
 * and
 * "", "none" or "-1" for none. INVALID_ARGUMENT: a word that names no GPU, or a MIG slice; as CUDA does it,
 * what stands before the word is chosen, and no more. */
MUST_CHECK enum err_code gpu_choice(const char *list, const char *const *uuids, size_t count, bool *chosen,
                                    struct err *e);

bool gpu_choice_none(const char *list); /* it names none, whatever is there; NULL: it does not */

#endif
