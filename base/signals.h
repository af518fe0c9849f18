#ifndef DDP_BASE_SIGNALS_H
#define DDP_BASE_SIGNALS_H

/* Batch systems send a signal to every process of a step at its end (time limit, preemption, scancel), and a
 * terminal to its whole process group. Under `ddpctl run` only the command decides what the signal means; it may
 * first write a snapshot, which needs the daemons. So a daemon that a lifeline ends ignores TERM, INT, HUP,
 * QUIT, USR1 and USR2. Children that need the default actions must set them. */
void signals_leave_to_parent(void);

#endif
