#ifndef DDP_CLIENT_LINK_H
#define DDP_CLIENT_LINK_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "proto/rpc_client.h"

#define LINK_CALL_MS 10000 /* deadline of a call */

/* Calls to the coordinator. Any number of threads may share a link. */

struct target {
    char *address; /* "unix:/path", "host:port" */
    char *token;   /* or NULL */
    char *
        token_from; /* for messages: the file or variable, or where no token was found. NULL: none was looked for */
    char *tls_ca, *tls_cert, *tls_key;
    const char *from; /* the source of the address, for messages: "--coordinator", "the default" */
};
void target_release(struct target *target);

/* A connection to the coordinator. */
struct link {
    struct target target;
    struct rpc_channel *channel;
    /* If not 0: a port of this machine. The token is sent only while this user listens there, because another
     * user may have taken the port since the last call. */
    int64_t own_port;
    /* Of the coordinator to itself: errors are told as they are, and nothing is written to stderr. */
    bool inside;
};
void link_close(struct link *link);
/* Sleeps before another attempt to reach a coordinator that went away. */
void link_sleep(struct link *link, int64_t pause_ms);
/* To be called before each call and each stream: whether the token may be sent. PERMISSION_DENIED: another user
 * listens at own_port. UNAVAILABLE: nobody does. link_call and link_call_within ask it themselves. */
MUST_CHECK enum err_code link_check_owner(const struct link *link, struct err *e);

/* A unary call of the Cluster service with a deadline of 10 s. If the coordinator is UNAVAILABLE, the call is
 * repeated for patience_ms, with a message on stderr; 0 means one attempt, for calls that must not be
 * repeated. *reply: rpc_free. The message of an error says what to do. */
MUST_CHECK enum err_code link_call(struct link *link, const char *method, const void *request, void **reply,
                                   int64_t patience_ms, struct err *e);
/* Like link_call, but one attempt with the given deadline. */
MUST_CHECK enum err_code link_call_within(struct link *link, const char *method, const void *request,
                                          void **reply, int64_t limit_ms, struct err *e);
/* Replaces the transport's message by one that names the coordinator and says what to do. Returns e->code. */
enum err_code link_explain(const struct link *link, struct err *e);

#endif
