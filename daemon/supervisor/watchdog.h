#ifndef DDP_DAEMON_SUPERVISOR_WATCHDOG_H
#define DDP_DAEMON_SUPERVISOR_WATCHDOG_H

#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#include "base/err.h"

/* Ends this process, and by PR_SET_PDEATHSIG its workers, if the supervisor's thread does not act when a lease ends. The
 * thread may hang in a system call on a file, for example if the log directory is on a file server that no longer answers.
 * Such calls end only by a signal that kills, so the timer sends SIGALRM, whose default action is to kill.
 *
 * The timer counts CLOCK_MONOTONIC, which stands still while the machine sleeps: after a sleep that was longer than the lease,
 * the thread gets time to stop the workers in order. */
#define WATCHDOG_MARGIN_MS 1000 /* after the end of a lease; the coordinator waits 2 s (lease_margin_ms) */

struct watchdog {
    timer_t timer;
    bool made;
    int64_t at; /* when it ends this process, ms of CLOCK_BOOTTIME; 0: it does not */
};

MUST_CHECK enum err_code watchdog_open(struct watchdog *w, struct err *e);
/* Moves the end to `at`; 0: no end. */
void watchdog_set(struct watchdog *w, int64_t at, int64_t now);
/* The thread acts: if the end would come in less than the margin, it moves there. */
void watchdog_delay(struct watchdog *w, int64_t now);
/* The longest time in ms that the thread may wait before it moves the end again. INT64_MAX: any. */
int64_t watchdog_wait_most(const struct watchdog *w, int64_t now);
void watchdog_close(struct watchdog *w); /* zeroed and not opened is fine */

#endif
