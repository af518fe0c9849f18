#ifndef DDP_TRAINER_MEMBER_COLL_PASS_H
#define DDP_TRAINER_MEMBER_COLL_PASS_H

#include "trainer/member/coll/group.h"

/* Shares memory between the ranks of a node: memfds, whose descriptors are passed over the node's unix
 * sockets. */

struct fd_message {
    uint64_t bytes;
    uint64_t failed; /* the sender could not make its memory: no descriptor comes with this */
};

/* fd -1: without a descriptor. Both wait for the socket; ABORTED when the group ends. */
MUST_CHECK enum err_code fd_send(struct coll_group *g, int sock, const struct fd_message *message, int fd,
                                 struct err *e);
MUST_CHECK enum err_code fd_receive(struct coll_group *g, int sock, struct fd_message *message, int *fd,
                                    struct err *e);

/* Collective: each rank of the node brings an array in shared memory and maps those of the others. mine NULL:
 * this rank could not get the memory. RESOURCE_EXHAUSTED, on all of the node's ranks: one of them has none.
 */
MUST_CHECK enum err_code fd_share_array(struct coll_group *g, struct coll_array *a,
                                        const struct device_array *mine, struct err *e);
void fd_unmap_array(const struct coll_group *g, struct coll_array *a);

#endif
