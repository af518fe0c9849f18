#ifndef DDP_TRAINER_MEMBER_LINK_WATCH_H
#define DDP_TRAINER_MEMBER_LINK_WATCH_H

#include <stdatomic.h>

#include "trainer/member/link/link.h"

/* Watch: the coordinator says whether this process's generation goes on, is to stop, or is over; and to a process that
 * stays what comes after it. */

/* Called on the Watch thread when the generation that this process joined last is over. It must abort the
 * generation's collectives. May only set flags and call coll_abort and coll_listener_abort with that
 * generation. */
typedef void (*link_over_fn)(void *arg, int64_t generation);
/* Until link_unwatch, calls `over` once when the generation is over; immediately if it is over already. The
 * first call starts the Watch thread, which later calls reuse. Does nothing without a coordinator. */
MUST_CHECK enum err_code link_watch(struct link *r, link_over_fn over, void *arg, struct err *e);
void link_unwatch(struct link *r); /* when it returns, `over` is not running and is not called any more */
/* number: nonzero once a signal has asked this worker to end. Call it before the first link_watch. */
void link_heed_signal(struct link *r, const atomic_int *number);
/* Whether the worker was asked to stop while the coordinator was away, so that snapshots stay uncommitted. */
bool link_given_up(const struct link *r);
/* Two levels of the generation that was joined last; joining the next one clears them. */
bool link_stop_asked(const struct link *r); /* finish the step, snapshot, exit 0 */
bool link_over(const struct link *r); /* the generation is over, or this process is not a member any more */

/* ---- a process that outlives its generation */

/* Whether this process can go on in the next generation, keeping its state; false at first. Join and Watch say so; the
 * newest word counts. heard: called on the Watch thread whenever link_after may have changed; it may only wake others. */
void link_set_stays(struct link *r, bool stays, void (*heard)(void));
bool link_stays(const struct link *r);
/* Whether the coordinator is away, as far as Watch has noticed. A stream that has been answered does not notice within 20 s
 * that the coordinator hangs or cannot be reached any more; link_ask calls Watch again, and a coordinator that has not
 * answered after a second counts as away until it does. Any thread. */
bool link_away(const struct link *r);
void link_ask(struct link *r);

enum link_word {
    LINK_SILENT, /* nothing yet: the generation goes on, or the coordinator does not know that it is over */
    LINK_WAIT, /* the next generation is not decided: this one is over, or members have not yet noticed that it is broken */
    LINK_JOIN,      /* the process is a member of a later generation, and joins it */
    LINK_DISMISSED, /* the process is not a member any more, and ends */
};
/* What follows the generation that was joined last. LINK_JOIN: *next says as whom to join; its world_size is 0, because
 * only Join knows it. Any thread. */
enum link_word link_after(struct link *r, struct link_member *next);

/* The number of the hand-over for which the coordinator asks all ranks to wait between two steps; 0: none. A level. */
int64_t link_handover(const struct link *r);
/* This process waits for that hand-over; 0: it goes on. The coordinator is told at once. */
void link_set_ready(struct link *r, int64_t number);
/* Before that, with shard: optimizer: the ranks have gathered so many bytes of the state, at least 1. The coordinator is told at once.
 * link_set_ready ends it. */
void link_set_gathered(struct link *r, int64_t bytes);
/* The group of the last joined generation is broken. The coordinator is told at once, and in each Watch until the next
 * generation is joined. */
void link_set_broken(struct link *r);

/* ---- rounds that do not wait for late members (sync.quorum) */

/* This process has arrived at this exchange of its group, from 1 on; 0: at none. holds: it waits there, to go on in another
 * generation. The coordinator is told at once. */
void link_set_arrived(struct link *r, int64_t exchange, bool holds);
/* Returns the exchange before which this process must hold, or before a later one, because a late member waits to come back;
 * 0: none. The value can change at any time. */
int64_t link_hold(const struct link *r);
/* A round has closed without this process: its generation is over, and it goes on with its own steps until its exchange. */
bool link_late(struct link *r);

#endif
