#ifndef DDP_TRAINER_MEMBER_COLL_LISTENER_H
#define DDP_TRAINER_MEMBER_COLL_LISTENER_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

/* Where a rank of a group listens, and the bytes that tell its peers so. */

#define COLL_MAX_ADDRESS 512

struct coll_address {
    char host[104]; /* literal without brackets, or a name */
    uint16_t port;
    char path[400]; /* unix socket, or "": meets nobody on its node */
};
MUST_CHECK enum err_code coll_address_decode(struct coll_address *out, const uint8_t *data, size_t size,
                                             struct err *e);
/* Starts a nonblocking connect; EINPROGRESS is success. */
MUST_CHECK enum err_code coll_connect_tcp(int *fd, const struct coll_address *to, struct err *e);
MUST_CHECK enum err_code coll_connect_unix(int *fd, const struct coll_address *to, struct err *e);
struct coll_listener;
struct coll_group;
int coll_listener_tcp(const struct coll_listener *l);
int coll_listener_unix(const struct coll_listener *l); /* -1: none */
/* Between these two an abort of the listener reaches the group. ABORTED: it is over before it began; still to
 * end. */
MUST_CHECK enum err_code coll_listener_begin(struct coll_listener *l, struct coll_group *g, struct err *e);
void coll_listener_end(struct coll_listener *l);

#endif
