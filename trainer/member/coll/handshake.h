#ifndef DDP_TRAINER_MEMBER_COLL_MEET_H
#define DDP_TRAINER_MEMBER_COLL_MEET_H

#include "trainer/member/coll/group.h"

/* Connects a rank with its peers while a group forms: at most one connection out, any number in. Both ends of
 * each prove the generation's key; see handshake.c. */

enum coll_handshake_purpose { COLL_HANDSHAKE_NODE = 1, COLL_HANDSHAKE_RING = 2 };

struct coll_handshake {
    struct coll_group *group;
    enum coll_handshake_purpose purpose;
    int listener;
    int to;          /* rank to connect to, -1: none */
    int out;         /* the connection, -1 until made */
    const int *from; /* ranks that connect to this one */
    int *in;         /* theirs, -1 until made */
    int from_count;
    int64_t deadline; /* CLOCK_BOOTTIME, ms */
};

/* Fills out and in, nonblocking sockets that the caller owns whatever the result. DEADLINE_EXCEEDED names who
 * is missing. */
MUST_CHECK enum err_code coll_handshake_run(struct coll_handshake *m, struct err *e);

#endif
