#ifndef DDP_TRAINER_PEER_LOSS_H
#define DDP_TRAINER_PEER_LOSS_H

#include "trainer/trainer.h"

/* Called when a peer was lost or the generation is over. Waits until the coordinator says what follows. Returns true if
 * this process is a member of a later generation, and sets *as to the identity with which it joins. Before the call,
 * as->generation is the generation that this process joined last, or tried to join.
 *
 * The wait ends after timeout_ms without an answer, and on a signal or a request to stop. While the coordinator says "wait",
 * and for a process that stays even while the coordinator is away, timeout_ms begins again.
 *
 * A process that is about to exit waits here, too. A survivor often notices a death before the agent does. The coordinator
 * reports the first failed exit that it sees as the cause, so without this wait its first event would name the survivor.
 * It could correct the cause only later (exit_cause.c). */
bool peer_loss_await(struct trainer *t, int timeout_ms, struct link_member *as);
/* Sleeps until something may have changed, at most until end_ms on the monotonic clock. Returns whether time is left.
 * end_ms < 0: no limit. */
bool peer_loss_sleep(int64_t end_ms);
void peer_loss_wake(void); /* from any thread */

#endif
