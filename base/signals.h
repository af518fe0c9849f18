#ifndef DDP_BASE_SIGNALS_H
#define DDP_BASE_SIGNALS_H

/* Batch systems signal every process of a step at its end (time limit, preemption, scancel), and a terminal
 * its whole group. Under `ddpctl run` the command alone decides what that means, first of all to leave a
 * snapshot; a daemon that ended by itself would take the means for it away. So those whose end is a
 * lifeline's ignore TERM, INT, HUP, QUIT, USR1 and USR2. Children that are to have the defaults must set
 * them. */
void signals_leave_to_parent(void);

#endif
