#ifndef DDP_DAEMON_COORDINATOR_SERVICE_ACCESS_AUTH_H
#define DDP_DAEMON_COORDINATOR_SERVICE_ACCESS_AUTH_H

#include "daemon/coordinator/service/access/identity.h"
#include "daemon/coordinator/service/pool.h"
#include "proto/ddp.pb-c.h"
#include "proto/rpc_server.h"

/* Identifies callers and decides whether they may make a call. Loop thread. */

struct service;

/* Checks a call before its body is read (rpc_server_options.auth). UNAUTHENTICATED: no or an unknown token;
 * PERMISSION_DENIED: a known caller without the right; UNAVAILABLE: a worker that may be known soon. */
enum err_code auth_check(struct rpc_call *call, const struct rpc_auth *auth, void *service, struct err *e);
const struct identity *caller_identity(const struct rpc_call *call); /* not NULL in handlers */
/* True if the caller owns the job or has the role operate, or if the job does not exist, which the handler
 * reports. Otherwise fails the call with PERMISSION_DENIED. action, for the message: "cancel it". */
bool caller_owns(struct service *s, struct rpc_call *call, int64_t job, const char *action);
/* Whether the caller owns the job or has the role operate; fails nothing. */
bool caller_is_owner(struct service *s, const struct rpc_call *call, int64_t job);
/* Whether the caller may read the job's logs. caller_may_read also fails the call if not. */
bool caller_reads_logs(struct service *s, const struct rpc_call *call, int64_t job);
bool caller_may_read(struct service *s, struct rpc_call *call, int64_t job);
/* Shows only the host of the job's `tell` to a caller who does not own the job. */
void caller_hide_tell(struct service *s, const struct rpc_call *call, struct pool *pool,
                      Ddp__V1__JobStatus *status);
/* Removes from the status what only readers of the job's logs may see: the last lines of stderr. */
void caller_hide_logs(struct service *s, const struct rpc_call *call, Ddp__V1__JobStatus *status);

#endif
