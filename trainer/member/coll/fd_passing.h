#ifndef DDP_TRAINER_MEMBER_COLL_PASS_H
#define DDP_TRAINER_MEMBER_COLL_PASS_H

#include "trainer/member/coll/group.h"

/* Shares memory between the ranks of a node: memfds, whose descriptors are passed over the node's unix
 * sockets. */

struct fd_message {
    uint64_t bytes;
    uint64_t failed; /* 1: the sender has no memory, so no descriptor comes with this message */
};

/* fd_send with fd -1 sends no descriptor. fd_receive sets *fd to -1 if there is none; else the caller owns
 * it. Both wait for the socket. ABORTED: the group has ended. */
MUST_CHECK enum err_code fd_send(struct coll_group *g, int sock, const struct fd_message *message, int fd,
                                 struct err *e);
MUST_CHECK enum err_code fd_receive(struct coll_group *g, int sock, struct fd_message *message, int *fd,
                                    struct err *e);

/* Collective: each rank of the node has an array in shared memory and maps the arrays of the others. mine
 * NULL: this rank could not get the memory. RESOURCE_EXHAUSTED, on all ranks of the node: at least one of
 * them has no memory. */
MUST_CHECK enum err_code fd_share_array(struct coll_group *g, struct coll_array *a,
                                        const struct device_array *mine, struct err *e);
void fd_unmap_array(const struct coll_group *g, struct coll_array *a);

#endif
