#ifndef DDP_CLIENT_CONNECT_H
#define DDP_CLIENT_CONNECT_H

#include "client/cmd/command.h"
#include "proto/ddp.pb-c.h"
#include "proto/rpc_client.h"

/* Which coordinator, and by what right. The address: --coordinator, DDP_COORDINATOR, `coordinator` in the
 * config file, the local socket <state>/coordinator.sock where there is one, then localhost:29600. The token,
 * which TCP wants:
 * --token FILE, DDP_TOKEN (the token itself), `token` in the config file, <config>/token, <state>/token.
 */
struct target {
    char *address; /* "unix:/path", "host:port" */
    char *token;   /* or NULL */
    char *tls_ca, *tls_cert, *tls_key;
    const char *from; /* how the address was found: "--coordinator", "the default" */
};
MUST_CHECK enum err_code target_find(const struct globals *globals, struct target *out, struct err *e);
void target_release(struct target *target);

/* The cluster as commands see it. */
struct link {
    struct target target;
    struct rpc_channel *channel;
};
MUST_CHECK enum err_code link_open(struct link *link, const struct globals *globals, struct err *e);
void link_close(struct link *link);

/* A unary call of the Cluster service, 10 s. patience_ms: where it may safely be repeated, so long
 * UNAVAILABLE is tried again, which is said on stderr; 0: once. *reply: rpc_free. A failure's message says
 * what to do. */
MUST_CHECK enum err_code link_call(struct link *link, const char *method, const void *request, void **reply,
                                   int64_t patience_ms, struct err *e);
/* As link_call, once, within a time of its own. */
MUST_CHECK enum err_code link_call_within(struct link *link, const char *method, const void *request,
                                          void **reply, int64_t limit_ms, struct err *e);
/* Turns the coordinator's or the transport's words into ours; returns e->code. */
enum err_code link_explain(const struct link *link, struct err *e);

#endif
