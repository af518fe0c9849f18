/* SIGTERM, and ^C in a program that runs by itself. A thread of its own takes them, so that no handler runs on a thread that
 * computes. */
#ifndef DDP_TRAINER_SIGNALS_H
#define DDP_TRAINER_SIGNALS_H

#include <stdatomic.h>
#include <stdbool.h>

#include "base/err.h"

extern atomic_int trainer_stop_signal; /* the number of the signal that asked this process to stop, or 0 */
extern atomic_int trainer_running;     /* nonzero while there is a state to save */

/* Call it before any other thread starts, because threads inherit the blocked signals. Without a state to save, a signal
 * ends the process at once. */
MUST_CHECK enum err_code signals_open(bool standalone, struct err *e);

#endif
