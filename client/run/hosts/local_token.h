#ifndef DDP_CLIENT_RUN_HOSTS_LOCAL_TOKEN_H
#define DDP_CLIENT_RUN_HOSTS_LOCAL_TOKEN_H

#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"

/* The token of runs that meet at a loopback address and whose user has no other token. All ddpctl of one user
 * on one machine find the same token, in a file that only this user can read; the first one makes it. */

/* The token, as text; the caller frees it. PERMISSION_DENIED: the file belongs to another user, who knows it. */
MUST_CHECK enum err_code local_token_get(char **token, struct err *e);
char *local_token_file(void);

/* Who listens at a port of this machine's loopback addresses. A token is sent to its own user's run only:
 * another user could listen there to collect it. A signal that asks ddpctl to end ends the look too, with
 * PORT_OF_NOBODY. */
enum port_owner { PORT_OF_NOBODY, PORT_OF_THIS_USER, PORT_OF_ANOTHER };
enum port_owner local_port_owner(int64_t port);
/* For tests: the same from the text of /proc/net/tcp or tcp6. */
enum port_owner local_port_owner_in(const char *table, int64_t port, uid_t user);

#endif
