#ifndef DDP_BASE_NET_TCP_LISTEN_H
#define DDP_BASE_NET_TCP_LISTEN_H

#include <netdb.h>
#include <stdint.h>

#include "base/err.h"

/* TCP sockets that listen at the address that others are told. Any thread; resolving a name may take seconds. */

#define TCP_HOST_MOST 104 /* bytes of a host: an address literal without brackets, or a name; and NUL */

/* Binds an address literal of this machine. For a literal of another machine (behind NAT, for example), or for a name,
 * which others may resolve differently and which is not resolved here, it binds every interface. port 0: any. Sets *fd to a
 * nonblocking socket that the caller owns; it does not listen yet. */
MUST_CHECK enum err_code tcp_bind_host(int *fd, const char *host, uint16_t port, struct err *e);
uint16_t tcp_bound_port(int fd);
/* Resolves an address literal or a name. The caller frees *out with tcp_free_info. */
MUST_CHECK enum err_code tcp_resolve_host(struct addrinfo **out, const char *host, uint16_t port,
                                          struct err *e);
void tcp_free_info(struct addrinfo **at); /* for CLEANUP */
/* Options of a connection that carries tensors: no delay, and a peer that does not answer counts as gone after 22 s. */
void tcp_tune(int fd);

#endif
