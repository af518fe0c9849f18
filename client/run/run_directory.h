#ifndef DDP_CLIENT_RUN_RUN_DIRECTORY_H
#define DDP_CLIENT_RUN_RUN_DIRECTORY_H

#include "base/err.h"

/* The directory of one `ddpctl run`, <tmp>/ddp-run-XXXXXX, and the file `lock` in it, which the run holds. Nobody holds
 * the lock of a run that was killed, and the next run of the same user removes its directory. A directory of logs that
 * are kept has no lock file. */

/* Removes the directories of killed runs, and makes one (mode 0700). The caller frees *dir. The lock is held until
 * *lock is closed. */
MUST_CHECK enum err_code run_directory_make(const char *tmp, char **dir, int *lock, struct err *e);

#endif
