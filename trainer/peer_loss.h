#ifndef DDP_TRAINER_PEER_LOSS_H
#define DDP_TRAINER_PEER_LOSS_H

#include "trainer/trainer.h"

/* The coordinator takes the first failed exit that it sees as the cause, and a survivor's exit often comes
 * before that of the rank that died. The coordinator can correct the cause later (exit_cause.c), but the
 * events until then name the survivor. So a survivor waits until the coordinator says that the generation is
 * over, at most timeout_ms. A signal ends the wait. */
void peer_loss_await(struct trainer *t, int timeout_ms);
void peer_loss_wake(void); /* from a signal handler or any thread */

#endif
