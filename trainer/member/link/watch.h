#ifndef DDP_TRAINER_MEMBER_LINK_WATCH_H
#define DDP_TRAINER_MEMBER_LINK_WATCH_H

#include "trainer/member/link/link.h"

/* Whether the generation goes on: what the coordinator says of it while it runs. */

/* Called on the Watch thread when the generation that this process joined last is over: its collectives must
 * be aborted. May only set flags and call coll_abort and coll_listener_abort with that generation. */
typedef void (*link_over_fn)(void *arg, int64_t generation);
/* From here until link_unwatch `over` is called, once: at once if the generation is over already. The first
 * call starts the thread, which stays for later ones; without coordinator nothing happens. */
MUST_CHECK enum err_code link_watch(struct link *r, link_over_fn over, void *arg, struct err *e);
void link_unwatch(struct link *r); /* when it returns, `over` is not running and is not called any more */
/* Where a signal that ends this worker is noted (not 0). Before link_watch. */
void link_heed_signal(struct link *r, const volatile int *number);
/* The worker was to stop while the coordinator was away, so snapshots stay uncommitted. */
bool link_given_up(const struct link *r);
/* Two levels, about the generation joined last; joining the next one clears them. */
bool link_stop_asked(const struct link *r); /* finish the step, snapshot, exit 0 */
bool link_over(const struct link *r);       /* it is over, or this process is no member any more */

#endif
