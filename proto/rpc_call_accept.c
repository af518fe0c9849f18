#include "proto/rpc_call_accept.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <grpc/grpc_security.h>
#include <grpc/support/alloc.h>

#include "base/mem.h"
#include "proto/rpc_call_state.h"
#include "proto/rpc_health.h"
#include "proto/rpc_server_state.h"

/* From a call that gRPC hands over to a handler that runs: the identity of the caller, its permission, and the
 * method. */

/* The text behind a URI's scheme, percent-decoded. */
static void uri_decode(const char *uri, char *out, size_t size)
{
    const char *colon = strchr(uri, ':');
    size_t used = 0;

    for (const char *p = colon ? colon + 1 : uri; *p && used + 1 < size; p++) {
        unsigned byte;

        if (p[0] == '%' && sscanf(p + 1, "%2x", &byte) == 1 && p[1] && p[2]) {
            out[used++] = (char)byte;
            p += 2;
        } else {
            out[used++] = *p;
        }
    }
    out[used] = '\0';
}

/* "fd:7" is a unix socket that this server accepted. "unix-abstract:..." is a TCP connection through the gate, which
 * knows its address. Any other peer has proven no identity. */
static void peer_read_address(struct rpc_call *call, const char *uri)
{
    const struct rpc_gate *gate = call->server->gate;
    struct rpc_peer *peer = &call->peer;
    char text[sizeof(((struct sockaddr_un *)0)->sun_path) + 1];
    const char *address = text;
    struct unix_peer who;

    peer->kind = RPC_PEER_TCP;
    peer->uid = (uid_t)-1;
    if (strncmp(uri, "fd:", 3) == 0 && rpc_unix_peer(call->server, atoi(uri + 3), &who)) {
        peer->kind = RPC_PEER_UNIX;
        peer->uid = who.uid;
        peer->pid = who.pid;
        snprintf(peer->address, sizeof(peer->address), "unix");
        return;
    }
    uri_decode(uri, text, sizeof(text));
    if (gate && strncmp(uri, "unix-abstract:", 14) == 0)
        rpc_gate_peer(gate, text, &call->connection, &address);
    snprintf(peer->address, sizeof(peer->address), "%.79s", address);
}

static void peer_read_name(struct rpc_call *call)
{
    grpc_auth_context *auth = grpc_call_auth_context(call->grpc);
    grpc_auth_property_iterator it;
    const grpc_auth_property *found;

    if (!auth)
        return;
    it = grpc_auth_context_find_properties_by_name(auth, GRPC_TRANSPORT_SECURITY_TYPE_PROPERTY_NAME);
    found = grpc_auth_property_iterator_next(&it);
    if (found && grpc_auth_context_peer_is_authenticated(auth) &&
        strcmp(found->value, GRPC_SSL_TRANSPORT_SECURITY_TYPE) == 0) {
        call->peer.kind = RPC_PEER_TLS;
        it = grpc_auth_context_find_properties_by_name(auth, GRPC_X509_CN_PROPERTY_NAME);
        found = grpc_auth_property_iterator_next(&it);
        if (found)
            snprintf(call->peer.name, sizeof(call->peer.name), "%.*s", (int)found->value_length,
                     found->value);
    }
    grpc_auth_context_release(auth);
}

static void call_read_peer(struct rpc_call *call)
{
    char *uri = grpc_call_get_peer(call->grpc);

    peer_read_address(call, uri ? uri : "");
    gpr_free(uri);
    if (call->peer.kind != RPC_PEER_UNIX)
        peer_read_name(call);
}

static void metadata_find_token(const grpc_metadata_array *metadata, struct rpc_auth *auth)
{
    static const char scheme[] = "Bearer ";
    const size_t skip = sizeof(scheme) - 1;

    for (size_t i = 0; i < metadata->count; i++) {
        const grpc_metadata *pair = &metadata->metadata[i];

        if (grpc_slice_str_cmp(pair->key, "authorization") != 0 || GRPC_SLICE_LENGTH(pair->value) < skip ||
            strncasecmp((const char *)GRPC_SLICE_START_PTR(pair->value), scheme, skip) != 0)
            continue;
        auth->token = (const char *)GRPC_SLICE_START_PTR(pair->value) + skip;
        auth->token_len = GRPC_SLICE_LENGTH(pair->value) - skip;
        return;
    }
}

static enum err_code call_admit(struct rpc_call *call, const char *service, const char *method, struct err *e)
{
    const struct rpc_server_options *options = &call->server->options;
    struct rpc_auth auth = {.service = service, .method = method, .peer = &call->peer};

    if (strcmp(service, RPC_HEALTH_SERVICE) == 0)
        return ERR_OK; /* open to all callers, so it authenticates nobody */
    if (!options->auth) {
        if (call->connection)
            rpc_gate_report_call(call->server->gate, call->connection, true);
        return ERR_OK;
    }
    metadata_find_token(&call->metadata, &auth);
    options->auth(call, &auth, options->auth_user, e);
    /* A caller that is known but may not do this is authenticated: PERMISSION_DENIED. A caller that is
     * told to retry (UNAVAILABLE) could not be checked, so it still counts as unauthenticated. */
    if (call->connection)
        rpc_gate_report_call(call->server->gate, call->connection,
                             e->code != ERR_UNAUTHENTICATED && e->code != ERR_UNAVAILABLE);
    return e->code;
}

static enum err_code call_find_method(struct rpc_call *call, const char *service, const char *method,
                                      struct err *e)
{
    const struct rpc_service *found = rpc_server_find(call->server, service);
    const struct rpc_method *row = found ? found->methods : NULL;

    while (row && row->name && strcmp(row->name, method) != 0)
        row++;
    if (!row || !row->name)
        return err_set(e, ERR_UNIMPLEMENTED, "unknown method /%s/%s", service, method);
    call->service = found;
    call->method = row;
    call->shape = protobuf_c_service_descriptor_get_method_by_name(found->descriptor, row->name);
    return ERR_OK;
}

static enum err_code call_route(struct rpc_call *call, char *path, struct err *e)
{
    char *slash = path[0] == '/' ? strchr(path + 1, '/') : NULL;

    if (!slash)
        return err_set(e, ERR_UNIMPLEMENTED, "the call's path is not /SERVICE/METHOD");
    *slash = '\0';
    if (call_admit(call, path + 1, slash + 1, e))
        return e->code;
    return call_find_method(call, path + 1, slash + 1, e);
}

static void call_begin(struct rpc_call *call)
{
    struct rpc_server *server = call->server;
    grpc_op op = {.op = GRPC_OP_RECV_CLOSE_ON_SERVER,
                  .data.recv_close_on_server.cancelled = &call->was_cancelled};
    CLEANUP(free_text) char *path = rpc_slice_text(call->details.method);
    struct err e = {0};

    call->next = server->calls;
    if (call->next)
        call->next->prev = call;
    server->calls = call;
    server->live_count++;
    call->deadline = gpr_convert_clock_type(call->details.deadline, GPR_CLOCK_MONOTONIC);
    call_read_peer(call);
    rpc_cq_batch(&server->cq, call->grpc, &op, 1, &call->closed);
    if (call_route(call, path, &e))
        rpc_call_fail(call, &e);
    else if (call->method->kind == RPC_BIDI)
        rpc_call_start(call, NULL);
    if (call->method && call->method->kind != RPC_UNARY)
        rpc_call_pump(
            call); /* Send the headers at once, so that the client sees that its stream is accepted. */
    if (call->method)
        rpc_call_receive(call);
}

static void call_release_details(struct rpc_call *call)
{
    grpc_call_details_destroy(&call->details);
    grpc_metadata_array_destroy(&call->metadata);
}

static void call_accepted(struct rpc_tag *tag, bool ok)
{
    struct rpc_call *call = tag->owner;

    if (!ok) { /* the server shuts down */
        call_release_details(call);
        rpc_call_unref(call);
        return;
    }
    if (!call->server->is_draining)
        rpc_call_arm(call->server);
    rpc_call_ref(call); /* a refused call may end before call_begin returns */
    call_begin(call);
    call_release_details(call);
    rpc_call_unref(call);
}

static void call_tag_init(struct rpc_tag *tag, struct rpc_call *call,
                          void (*done)(struct rpc_tag *tag, bool ok))
{
    tag->owner = call;
    tag->done = done;
}

void rpc_call_arm(struct rpc_server *server)
{
    struct rpc_call *call = xcalloc(1, sizeof(*call));
    grpc_call_error refused;

    call->server = server;
    call->refs = 1;
    call_tag_init(&call->arrived, call, call_accepted);
    call_tag_init(&call->received, call, rpc_call_received);
    call_tag_init(&call->sent, call, rpc_call_sent);
    call_tag_init(&call->closed, call, rpc_call_closed);
    grpc_call_details_init(&call->details);
    grpc_metadata_array_init(&call->metadata);
    server->call_count++;
    rpc_tag_arm(&call->arrived);
    refused = grpc_server_request_call(server->grpc, &call->grpc, &call->details, &call->metadata,
                                       server->cq.queue, server->cq.queue, &call->arrived);
    BUG_ON(refused != GRPC_CALL_OK);
}
