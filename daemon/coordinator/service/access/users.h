#ifndef DDP_DAEMON_COORDINATOR_SERVICE_ACCESS_USERS_H
#define DDP_DAEMON_COORDINATOR_SERVICE_ACCESS_USERS_H

#include <stddef.h>

#include "base/err.h"
#include "proto/rpc_server.h"

/* Users who have a token of their own, and the methods that list and change them. Loop thread. */

struct service;
struct user_record;

MUST_CHECK enum err_code users_open(struct service *s, struct err *e);
void users_close(struct service *s);
/* NULL: no user has this token. Compares in constant time. */
const struct user_record *users_by_token(const struct service *s, const char *token, size_t len);

/* NULL: there is no such user. */
const struct user_record *users_by_name(const struct service *s, const char *name);

/* The methods' on_start: WhoAmI, ListUsers, AddUser, RemoveUser, RenewUserToken. */
void users_who(struct rpc_call *rpc, const void *request, void *user);
void users_list(struct rpc_call *rpc, const void *request, void *user);
void users_add(struct rpc_call *rpc, const void *request, void *user);
void users_remove(struct rpc_call *rpc, const void *request, void *user);
void users_renew(struct rpc_call *rpc, const void *request, void *user);

#endif
