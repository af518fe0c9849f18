#ifndef DDP_TRAINER_MEMBER_COLL_MEET_H
#define DDP_TRAINER_MEMBER_COLL_MEET_H

#include "trainer/member/coll/group.h"

/* Connects a rank with its peers while a group forms: at most one connection to another rank, any number from
 * other ranks. Both ends of a connection prove that they know the generation's key; see handshake.c. */

enum coll_handshake_purpose { COLL_HANDSHAKE_NODE = 1, COLL_HANDSHAKE_RING = 2, COLL_HANDSHAKE_PAIR = 3 };

struct coll_handshake {
    struct coll_group *group;
    enum coll_handshake_purpose purpose;
    int listener;
    int to;          /* rank to connect to; -1: none */
    int out;         /* the connection to that rank; -1 until it exists */
    const int *from; /* ranks that connect to this rank, from_count of them */
    int *in;         /* their connections, in the order of `from`; -1 until they exist */
    int from_count;
    int64_t deadline; /* CLOCK_BOOTTIME, ms */
};

/* Sets m->out and m->in to nonblocking sockets. The caller owns them, also after an error. DEADLINE_EXCEEDED:
 * a rank did not connect in time; the message names it. */
MUST_CHECK enum err_code coll_handshake_run(struct coll_handshake *m, struct err *e);

#endif
