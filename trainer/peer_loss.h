#ifndef DDP_TRAINER_PEER_LOSS_H
#define DDP_TRAINER_PEER_LOSS_H

#include "trainer/trainer.h"

/* Called when a peer was lost or the generation is over. Waits until the coordinator has said what follows: at most
 * timeout_ms if it says nothing, and as long as it says that this process is to wait. A process that stays also waits
 * for a coordinator that is away, as long as its lease allows, and timeout_ms begins again when the coordinator answers.
 * A signal and a request to stop end the wait. Returns true if this process is a member of a later generation: then *as holds the identity with which to join it. At the call
 * as->generation is the generation that this process joined last, or tried to.
 *
 * A process that ends waits, too: the coordinator takes the first failed exit that it sees as the cause, and a survivor's
 * exit often comes before that of the rank that died. The coordinator can correct the cause later (exit_cause.c), but the
 * events until then name the survivor. */
bool peer_loss_await(struct trainer *t, int timeout_ms, struct link_member *as);
/* Sleeps until something may have changed, at most until end_ms on the monotonic clock. Returns whether time is left.
 * end_ms < 0: no limit. */
bool peer_loss_sleep(int64_t end_ms);
void peer_loss_wake(void); /* from a signal handler or any thread */

#endif
