#include <stdlib.h>
#include <string.h>

#include "base/id.h"
#include "base/mem.h"
#include "daemon/coordinator/service_impl.h"

/* Who may call what. The unix socket has let in only our own user and root; a TCP peer has proven nothing
 * (TLS adds a certificate of our CA, which says which machines may talk, not what they may ask). A wrong
 * token is UNAUTHENTICATED, a good one of the wrong kind PERMISSION_DENIED; neither message says more than
 * the caller knows. */

#define TOKEN_BYTES 32

static bool is_cluster_token(const struct service *s, const struct rpc_auth *auth)
{
    const size_t len = strlen(s->options->token);
    return auth->token && auth->token_len == len && secret_equal(auth->token, s->options->token, len);
}

static const struct spawn_record *worker_of(const struct service *s, const struct rpc_auth *auth)
{
    uint8_t token[TOKEN_BYTES];
    char text[2 * TOKEN_BYTES + 1];
    if (!auth->token || auth->token_len != 2 * TOKEN_BYTES)
        return NULL;
    memcpy(text, auth->token, 2 * TOKEN_BYTES);
    text[2 * TOKEN_BYTES] = '\0';
    return hex_decode(token, sizeof token, text) ? core_find_token(s->core, token, sizeof token) : NULL;
}

static enum err_code admit(struct rpc_call *call, struct identity who)
{
    rpc_call_set_identity(call, xmemdup(&who, sizeof who), free);
    return ERR_OK;
}

static enum err_code check_worker(struct rpc_call *call, const struct service *s, const struct rpc_auth *auth,
                                  struct err *e)
{
    const struct spawn_record *spawn = worker_of(s, auth);
    if (spawn)
        return admit(call, (struct identity){IDENTITY_WORKER, spawn->job, spawn->spawn});
    if (is_cluster_token(s, auth))
        return err_set(e, ERR_PERMISSION_DENIED, "only a worker may call this, by its own token");
    return err_set(e, ERR_UNAUTHENTICATED, "no token of a worker");
}

static enum err_code check_user(struct rpc_call *call, const struct service *s, const struct rpc_auth *auth,
                                struct err *e)
{
    if (auth->peer->kind == RPC_PEER_UNIX || s->options->insecure || is_cluster_token(s, auth))
        return admit(call, (struct identity){.kind = IDENTITY_USER});
    if (worker_of(s, auth))
        return err_set(e, ERR_PERMISSION_DENIED, "a worker's token does not open this");
    if (!auth->token)
        return err_set(
            e, ERR_UNAUTHENTICATED,
            "the coordinator wants the cluster's token over TCP: `ddp-coordinator token` prints it there");
    return err_set(e, ERR_UNAUTHENTICATED,
                   "this is not the cluster's token: `ddp-coordinator token` prints it there");
}

enum err_code auth_check(struct rpc_call *call, const struct rpc_auth *auth, void *service, struct err *e)
{
    struct service *s = service;
    const bool worker = strcmp(auth->service, "ddp.v1.Rendezvous") == 0;
    enum err_code code = worker ? check_worker(call, s, auth, e) : check_user(call, s, auth, e);
    if (code == ERR_OK)
        stats_call(&s->stats, auth->service, auth->method);
    else
        s->stats.refused_calls++;
    return code;
}
