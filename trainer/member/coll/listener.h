#ifndef DDP_TRAINER_MEMBER_COLL_LISTENER_H
#define DDP_TRAINER_MEMBER_COLL_LISTENER_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/net/tcp_listen.h"

/* The address at which a rank listens for its peers, and its encoding in bytes. */

#define COLL_MAX_ADDRESS 512

struct coll_address {
    char host[TCP_HOST_MOST]; /* address literal without brackets, or a name */
    uint16_t port;
    char path[400]; /* path of the unix socket; "": the rank does not accept connections from its node */
};
MUST_CHECK enum err_code coll_address_decode(struct coll_address *out, const uint8_t *data, size_t size,
                                             struct err *e);
/* Starts a nonblocking connect and sets *fd, which the caller owns. A connect that is in progress counts as
 * success. */
MUST_CHECK enum err_code coll_connect_tcp(int *fd, const struct coll_address *to, struct err *e);
MUST_CHECK enum err_code coll_connect_unix(int *fd, const struct coll_address *to, struct err *e);
struct coll_listener;
struct coll_group;
int coll_listener_tcp(const struct coll_listener *l);
int coll_listener_unix(const struct coll_listener *l); /* -1: none */
/* Between coll_listener_begin and coll_listener_end, an abort of the listener reaches the group. ABORTED: the
 * generation was aborted before; the caller must call coll_listener_end in this case, too. */
MUST_CHECK enum err_code coll_listener_begin(struct coll_listener *l, struct coll_group *g, struct err *e);
void coll_listener_end(struct coll_listener *l);

#endif
