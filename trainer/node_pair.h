#ifndef DDP_TRAINER_NODE_PAIR_H
#define DDP_TRAINER_NODE_PAIR_H

#include "trainer/member/coll/coll.h"

/* Two ranks on two nodes that make all-reduces with each other, in a group of their own beside the formation's, so that the rate
 * between them can be measured.
 *
 * The first all-reduces are of a small array. It grows as long as a call fits into a window of the time, so a slow connection is
 * measured with less data. The two ranks take the same array, because rank 0 of the pair decides.
 *
 * Failure modes: the ranks cannot connect; the connection breaks, or it is so slow that the pair's limit passes; the formation's
 * generation ends. A guard, which is a thread of its own, aborts the pair in the last two cases. */

struct node_pair_config {
    /* `timeout_ms` limits connecting. All pairs of a round have the same job, generation and ranks, so each needs a key of its own
     * (node_pair_make_key): a relay could not tell them apart otherwise. */
    struct coll_config group;
    struct coll_listener *listener;      /* not used before: an abort of a pair ends what it can do */
    const struct coll_group *generation; /* the pair ends if this group is over */
    int64_t time_ns;                     /* for the windows */
    int64_t limit_ms;                    /* for all */
    double slower;                       /* as in measure_idle */
};
struct pair_rate { /* bytes a second that a rank sends; it receives as many */
    double median, best;
};

#define NODE_PAIR_CALLS_MOST 10000 /* in a window */

/* From the generation's key. first, second: the ranks in the formation. */
void node_pair_make_key(uint8_t out[32], const uint8_t key[32], int round, int first, int second);
/* Whether rank 0 of the pair may ask for so many calls. least: 0, or 1 where it must ask for some. */
MUST_CHECK enum err_code node_pair_check_calls(int64_t calls, int64_t least, struct err *e);
/* Both ranks call it. It also ends the process if the device's collectives do not end. */
MUST_CHECK enum err_code node_pair_measure(const struct node_pair_config *config, struct pair_rate *out,
                                           struct err *e);

#endif
