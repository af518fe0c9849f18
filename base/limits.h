#ifndef DDP_BASE_LIMITS_H
#define DDP_BASE_LIMITS_H

#include <sys/resource.h>

#include "base/err.h"

/* The limits of open files of this process (`ulimit -n`). The soft limit protects programs that use
 * select(2); the hard limit is the maximum that the administrator allows. */

/* Raises the soft limit to the hard limit. Returns the old soft limit, for jobs that we start; 0: unknown. */
rlim_t limits_raise_files(void);
/* Restores the soft limit: in a child before exec, or in this process while it calls posix_spawn. 0: does nothing. */
void limits_restore_files(rlim_t soft);
/* RESOURCE_EXHAUSTED if fewer than `wanted` open files are allowed; the message says how to raise the limit.
 */
MUST_CHECK enum err_code limits_want_files(rlim_t wanted, struct err *e);

#endif
