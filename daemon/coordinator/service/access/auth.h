#ifndef DDP_DAEMON_COORDINATOR_SERVICE_ACCESS_AUTH_H
#define DDP_DAEMON_COORDINATOR_SERVICE_ACCESS_AUTH_H

#include "daemon/coordinator/service/access/identity.h"
#include "proto/rpc_server.h"

/* Who calls, and whether that caller may make this call. Loop thread. */

struct service;

/* The server's check of each call, before its body is read. user: struct service. */
enum err_code auth_check(struct rpc_call *call, const struct rpc_auth *auth, void *service, struct err *e);
const struct identity *caller_identity(const struct rpc_call *call); /* never NULL in a handler */
/* True if the caller owns the job or has the role operate, or if the job does not exist (the handler reports
 * that). Otherwise fails the call. `to`: "cancel it". */
bool caller_owns(struct service *s, struct rpc_call *call, int64_t job, const char *to);
/* Whether the caller may read the job's logs; caller_may_read fails the call if not. */
bool caller_reads_logs(struct service *s, const struct rpc_call *call, int64_t job);
bool caller_may_read(struct service *s, struct rpc_call *call, int64_t job);

#endif
