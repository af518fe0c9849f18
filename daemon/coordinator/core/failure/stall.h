#ifndef DDP_DAEMON_COORDINATOR_CORE_FAILURE_STALL_H
#define DDP_DAEMON_COORDINATOR_CORE_FAILURE_STALL_H

#include "base/buf.h"
#include "daemon/coordinator/core/model.h"

/* Workers that stand still; stall.c describes what counts as standing still. Times: boot ms. */
void stall_apply(struct core *core, struct node *node, const struct core_event *event);
void stall_forget(struct node *node); /* its session ended, so the state of its workers is unknown */
/* The worker's job was made anew, and its node does not say again how it stands. */
void stall_carry_over(struct spawn *to, const struct spawn *from);
void stall_tick(struct core *core, struct job *job);
int64_t stall_deadline(const struct core *core, const struct job *job); /* INT64_MAX: none */
/* Gives up the workers that SIGKILL did not end because they are stuck in the kernel, and drains their nodes.
 */
void stall_release(struct core *core, struct generation *g);
/* Names the rank that stands still; empty if none does. */
void stall_text(const struct core *core, const struct job *job, int64_t now_ms, char *out, size_t size);
/* A rank ends, perhaps because a collective has timed out: says which rank stood still
 * meanwhile, if one stands out: "meanwhile rank 2 on box1 (pid 7) was stopped by a signal for 33 s". said: what the ended rank wrote at last. */
void stall_name_rank(const struct core *core, const struct spawn *ended, const char *said, struct buf *text);

#endif
