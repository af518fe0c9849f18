#include "client/link.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/net/port_owner.h"
#include "client/cmd/output.h"
#include "client/diagnose/reach.h"
#include "proto/ddp.pb-c.h"
#include "proto/rpc_resolve.h"

#define RESOLVE_MS 3000

void target_release(struct target *t)
{
    free(t->address);
    free(t->token);
    free(t->token_from);
    free(t->tls_ca);
    free(t->tls_cert);
    free(t->tls_key);
    *t = (struct target){0};
}

void link_close(struct link *link)
{
    rpc_channel_close(link->channel);
    target_release(&link->target);
    link->channel = NULL;
}

void link_sleep(struct link *link, int64_t pause_ms)
{
    if (link->own_port) /* another user may listen there by now, so only a call connects, after link_check_owner */
        usleep((useconds_t)pause_ms * 1000);
    else
        rpc_channel_sleep(link->channel, pause_ms);
}

enum err_code link_check_owner(const struct link *link, struct err *e)
{
    const enum port_owner owner = link->own_port ? port_owner_find(link->own_port) : PORT_OF_THIS_USER;
    if (owner == PORT_OF_ANOTHER)
        return err_set(e, ERR_PERMISSION_DENIED,
                       "another user listens at %s now, so this user's token is not sent there",
                       link->target.address);
    if (owner == PORT_OF_NOBODY)
        return err_set(e, ERR_UNAVAILABLE, "nobody listens at %s", link->target.address);
    return ERR_OK;
}

enum err_code link_call(struct link *link, const char *method, const void *request, void **reply,
                        int64_t patience_ms, struct err *e)
{
    const ProtobufCServiceDescriptor *cluster = &ddp__v1__cluster__descriptor;
    CLEANUP(buf_release) struct buf talk = {0};
    if (link_check_owner(link, e) != ERR_OK)
        return e->code;
    enum err_code code = rpc_channel_call(link->channel, cluster, method, request, reply, LINK_CALL_MS, 0, e);
    /* A first attempt without waiting, so that a coordinator that is down is reported before the user
     * wonders. */
    if (code == ERR_UNAVAILABLE && patience_ms && !link->inside) {
        buf_printf(&talk, "ddpctl: the coordinator at %s does not answer; retrying for %lld s\n",
                   link->target.address, (long long)patience_ms / 1000);
        stderr_put(&talk);
        code =
            rpc_channel_call(link->channel, cluster, method, request, reply, patience_ms, RPC_IDEMPOTENT, e);
    }
    return code == ERR_OK ? code : link_explain(link, e);
}

enum err_code link_call_within(struct link *link, const char *method, const void *request, void **reply,
                               int64_t limit_ms, struct err *e)
{
    if (link_check_owner(link, e) != ERR_OK)
        return e->code;
    enum err_code code = rpc_channel_call(link->channel, &ddp__v1__cluster__descriptor, method, request,
                                          reply, limit_ms, 0, e);
    return code == ERR_OK ? code : link_explain(link, e);
}

/* gRPC lists every address that it tried. Only the error of the last attempt is worth showing. */
static const char *link_last_cause(const char *msg)
{
    static const char mark[] = "last error: ";
    const char *last = strstr(msg, mark);
    return last ? last + sizeof(mark) - 1 : msg;
}

/* A name server that does not answer takes longer than the call's deadline, so gRPC reports no more than the
 * deadline. This asks the resolver directly to find out. */
static enum err_code link_explain_name(const struct target *t, struct err *e)
{
    struct err name;
    if (rpc_resolve(t->address, RESOLVE_MS, &name) == ERR_OK)
        return ERR_OK;
    return err_set(e, ERR_UNAVAILABLE, "%s (from %s): %s; check the name, /etc/hosts and /etc/resolv.conf",
                   t->address, t->from, name.msg);
}

/* The port takes connections, but the connection fails: one side uses TLS and the other does not, or the
 * certificates do not match, or the program there is not a coordinator. */
static enum err_code link_explain_refusal(const struct target *t, const char *cause, struct err *e)
{
    if (t->tls_ca)
        return err_set(
            e, ERR_UNAVAILABLE,
            "%s (from %s) accepts connections, but the TLS handshake fails (%.120s): check the certificates "
            "of both sides and the host name in the coordinator's certificate",
            t->address, t->from, cause);
    return err_set(
        e, ERR_UNAVAILABLE,
        "%s (from %s) accepts connections, but closes them (%.100s): check that a coordinator listens there; "
        "if it uses TLS, give --tls-ca, --tls-cert and --tls-key",
        t->address, t->from, cause);
}

enum err_code link_explain(const struct link *link, struct err *e)
{
    const struct target *t = &link->target;
    struct err was = *e;
    if (link->inside)
        return was.code;
    switch (was.code) {
    case ERR_UNAVAILABLE:
        if (strncmp(t->address, "unix:", 5) == 0 && strstr(was.msg, "Permission denied"))
            return err_set(
                e, ERR_PERMISSION_DENIED,
                "%s (from %s) is open to its owner and root only: use --coordinator HOST:PORT and a token",
                t->address, t->from);
        if (link_explain_name(t, e) != ERR_OK)
            return e->code;
        /* Something accepts connections there, so the coordinator is not just down. */
        if (reach_listens(t->address))
            return link_explain_refusal(t, link_last_cause(was.msg), e);
        /* fall through */
    case ERR_DEADLINE_EXCEEDED: /* the name server may be the one that does not answer */
        if (was.code == ERR_DEADLINE_EXCEEDED && link_explain_name(t, e) != ERR_OK)
            return e->code;
        /* This machine may be a node of a cluster. To start a second coordinator here would be the wrong remedy. */
        if (t->from && strcmp(t->from, "the default") == 0)
            return err_set(e, ERR_UNAVAILABLE,
                           "no coordinator is named, and %s does not answer (%.160s): set "
                           "DDP_COORDINATOR=HOST:29600 to the coordinator's machine, or start "
                           "ddp-coordinator on this machine",
                           t->address, link_last_cause(was.msg));
        return err_set(
            e, ERR_UNAVAILABLE,
            "the coordinator at %s (from %s) does not answer (%.160s): start ddp-coordinator there, or give "
            "another address with --coordinator",
            t->address, t->from, link_last_cause(was.msg));
    case ERR_UNAUTHENTICATED:
        return err_set(
            e, was.code,
            "the coordinator at %s refuses %s%s%s%s: give --token FILE; on the coordinator's machine, "
            "`ddp-coordinator token` prints the cluster token and "
            "`ddp-coordinator user add NAME` makes a user token",
            t->address, t->token ? "this token" : "a call without a token",
            t->token_from ? (t->token ? " (from " : " (") : "", t->token_from ? t->token_from : "",
            t->token_from ? ")" : "");
    default:
        return was.code;
    }
}
