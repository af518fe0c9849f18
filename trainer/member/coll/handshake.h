#ifndef DDP_TRAINER_MEMBER_COLL_MEET_H
#define DDP_TRAINER_MEMBER_COLL_MEET_H

#include "trainer/member/coll/group.h"

/* Connects a rank with its peers while a group forms: any number of connections to other ranks, and from
 * other ranks. Both ends of a connection prove that they know the generation's key; see handshake.c. */

enum coll_handshake_purpose { COLL_HANDSHAKE_NODE = 1, COLL_HANDSHAKE_RING = 2, COLL_HANDSHAKE_PAIR = 3 };

struct coll_handshake {
    struct coll_group *group;
    enum coll_handshake_purpose purpose;
    int listener;
    const int *to; /* ranks to connect to, to_count of them */
    int *out;      /* the connections to them, in the order of `to`; -1 until they exist */
    int to_count;
    const int *from; /* ranks that connect to this rank, from_count of them */
    int *in;         /* their connections, in the order of `from`; -1 until they exist */
    int from_count;
    const int *watched; /* connections that the group has already, watched_count of them; may carry data */
    int watched_count;
    int64_t deadline; /* CLOCK_BOOTTIME, ms */
};

/* Sets m->out and m->in to nonblocking sockets. The caller owns them, even after an error. DEADLINE_EXCEEDED:
 * a rank did not connect in time; the message names it. ABORTED: the group is over, or the peer of a watched
 * connection closed it. */
MUST_CHECK enum err_code coll_handshake_run(struct coll_handshake *m, struct err *e);

#endif
