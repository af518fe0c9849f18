#ifndef DDP_TRAINER_MEMBER_COLL_PASS_H
#define DDP_TRAINER_MEMBER_COLL_PASS_H

#include "trainer/member/coll/internal.h"

/* Memory that ranks of one node share: memfds, and their descriptors over the node's unix sockets. */

struct pass {
    uint64_t bytes;
    uint64_t failed; /* the sender could not make its memory: no descriptor comes with this */
};

/* fd -1: none comes along. Both wait for the socket, and end with the group (ABORTED). */
MUST_CHECK enum err_code pass_send(struct coll_group *g, int sock, const struct pass *message, int fd,
                                   struct err *e);
MUST_CHECK enum err_code pass_receive(struct coll_group *g, int sock, struct pass *message, int *fd,
                                      struct err *e);

/* Each rank of the node brings an array in shared memory (NULL: it has none, why is its own business) and
 * maps the others'. Collective. RESOURCE_EXHAUSTED on all of them when one has none. */
MUST_CHECK enum err_code pass_share(struct coll_group *g, struct coll_array *a,
                                    const struct device_array *mine, struct err *e);
void pass_unmap(const struct coll_group *g, struct coll_array *a);

#endif
