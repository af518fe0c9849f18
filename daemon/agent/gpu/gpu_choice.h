#ifndef DDP_DAEMON_AGENT_GPU_GPU_CHOICE_H
#define DDP_DAEMON_AGENT_GPU_GPU_CHOICE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

/* Clears in `chosen` (one entry a GPU, in the order of nvidia-smi) the GPUs that the list does not name. The
 * list is like CUDA_VISIBLE_DEVICES: numbers, or unambiguous beginnings of UUIDs, separated by commas; or
 * "all"; or "", "none" or "-1" for none. INVALID_ARGUMENT: a word names no GPU, or a MIG slice. As with CUDA,
 * the words before it still count, and those after it do not. */
MUST_CHECK enum err_code gpu_choice(const char *list, const char *const *uuids, size_t count, bool *chosen,
                                    struct err *e);

bool gpu_choice_none(const char *list); /* the list is one of those for no GPU; NULL means all */

#endif
