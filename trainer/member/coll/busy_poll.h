#ifndef DDP_TRAINER_MEMBER_COLL_BUSY_POLL_H
#define DDP_TRAINER_MEMBER_COLL_BUSY_POLL_H

#include <poll.h>
#include <stdbool.h>

/* poll(2) that asks again and again for a short time before the thread sleeps. To put a thread to sleep and wake it takes longer
 * than a rank on a short path needs for its next bytes. It pays off only while this thread and its peer each have a core. So after
 * each ask this thread gives the core to any other thread that wants it. If one takes it, or if nothing comes in time, the next
 * waits sleep without asking: one wait at first, then three, up to 63. */
struct busy_poll {
    bool on;   /* the caller's: the path is short */
    int skip;  /* waits that still sleep at once */
    int skips; /* their number after the last wait that asked in vain */
};

/* As poll(2) without a timeout. */
int busy_poll(struct busy_poll *b, struct pollfd *fds, nfds_t count);
/* Whether the next wait asks first. */
bool busy_poll_asks(struct busy_poll *b);
/* What became of a wait that asked. */
void busy_poll_learn(struct busy_poll *b, bool in_time);

#endif
