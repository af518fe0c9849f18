#ifndef DDP_TRAINER_PEER_LOSS_H
#define DDP_TRAINER_PEER_LOSS_H

#include "trainer/trainer.h"

/* The coordinator takes the first bad exit that it hears of for the cause, and a survivor's would often come
 * before that of the rank that died. So a survivor waits until it is told that its generation is over, at
 * most timeout_ms; a signal ends the wait. */
void peer_loss_await(struct trainer *t, int timeout_ms);
void peer_loss_wake(void); /* from a signal handler or any thread */

#endif
