#ifndef DDP_BASE_NET_PORT_OWNER_H
#define DDP_BASE_NET_PORT_OWNER_H

#include <stdint.h>
#include <sys/types.h>

/* Who listens at a port of this machine's loopback addresses, by the kernel's table of sockets. A token that belongs to
 * one user of this machine is sent to that user's programs only: another user could listen there to collect it. */
enum port_owner { PORT_OF_NOBODY, PORT_OF_THIS_USER, PORT_OF_ANOTHER };
enum port_owner port_owner_find(int64_t port);
/* The same from the text of /proc/net/tcp or tcp6. */
enum port_owner port_owner_in(const char *table, int64_t port, uid_t user);

#endif
