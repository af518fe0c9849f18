#ifndef DDP_CLIENT_INTERRUPTS_H
#define DDP_CLIENT_INTERRUPTS_H

#include <stdbool.h>

/* Signals that ask ddpctl to end, ^C above all: they are counted here, and the caller's loop obeys them. Any
 * thread may be interrupted; the counts are process-wide.
 *
 * interrupts_count() is their number since the start. A signal that repeats the last one is not counted, but
 * SIGINT always is: a second ^C is a second request. */
void interrupts_catch(void);                     /* SIGINT and SIGTERM */
void interrupts_catch_all(void);                 /* SIGHUP, too: so that no temporary file is left */
void interrupts_catch_these(const int *signals); /* ended by 0 */
int interrupts_count(void);
int interrupt_signal(void);      /* the last signal that was counted */
void interrupts_add(int number); /* as if the signal had come */
/* Nobody reads the output any more. This counts as SIGTERM, but only if no signal came before. A SIGHUP that follows has the same
 * cause, a closed terminal, and is not counted. */
void interrupts_add_reader_left(void);
/* True once after the process was continued (^Z and fg): others have written to the terminal meanwhile. */
bool interrupts_was_continued(void);

#endif
