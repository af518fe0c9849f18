#ifndef DDP_DAEMON_COORDINATOR_SERVICE_ACCESS_IDENTITY_H
#define DDP_DAEMON_COORDINATOR_SERVICE_ACCESS_IDENTITY_H

#include "daemon/coordinator/service/access/roles.h"
#include "daemon/coordinator/service/service_impl.h"

/* The identity of a caller. auth.c derives it from the token, the certificate or the socket before it reads
 * the call's body, and never from the request. */

enum identity_kind { IDENTITY_USER, IDENTITY_AGENT, IDENTITY_WORKER };
struct identity {
    enum identity_kind kind;
    int64_t job, spawn; /* IDENTITY_WORKER */
    enum role role;     /* IDENTITY_USER; else ROLE_NONE */
    char name[80];
    char origin[96];   /* "10.0.0.7", "unix uid 0 pid 4711" */
    const char *known; /* how: "the unix socket" */
    bool has_record;   /* it is a user's own token: streams end when it is revoked */
    bool may_serve;    /* as an agent, besides */
};

/* auth.c */
enum err_code auth_check(struct rpc_call *call, const struct rpc_auth *auth, void *service, struct err *e);
const struct identity *caller(const struct rpc_call *call); /* never NULL in a handler */
/* True if the caller owns the job or has the role operate, or if the job does not exist (the handler reports
 * that). Otherwise fails the call. `to`: "cancel it". */
bool caller_owns(struct service *s, struct rpc_call *call, int64_t job, const char *to);
/* Whether the caller may read the job's logs; caller_may_read fails the call if not. */
bool caller_reads_logs(struct service *s, const struct rpc_call *call, int64_t job);
bool caller_may_read(struct service *s, struct rpc_call *call, int64_t job);

/* users.c: people with a token of their own. */
MUST_CHECK enum err_code users_open(struct service *s, struct err *e);
void users_close(struct service *s);
const struct user_record *users_by_token(const struct service *s, const char *token, size_t len);
void users_who(struct rpc_call *rpc, const void *request, void *user); /* the methods' on_start */
void users_list(struct rpc_call *rpc, const void *request, void *user);
void users_add(struct rpc_call *rpc, const void *request, void *user);
void users_remove(struct rpc_call *rpc, const void *request, void *user);
void users_renew(struct rpc_call *rpc, const void *request, void *user);

/* audit.c: what was done, by whom, committed together with it. */
void audit_add(struct service *s, const struct identity *who, const char *what, int64_t job, const char *fmt,
               ...) __attribute__((format(printf, 5, 6)));
/* Passes a user's event to the core and, if the core accepts it, writes an audit record. */
void audit_event(struct service *s, struct rpc_call *rpc, const struct core_event *event);
/* Records a refused call. The caller's first one is written at once; the others of that minute are counted.
 */
void audit_refused(struct service *s, const char *who, const char *origin, const char *method,
                   const char *why);
void audit_trim(struct service *s);
void audit_get(struct rpc_call *rpc, const void *request, void *user); /* GetAudit: on_start */

#endif
