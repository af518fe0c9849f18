#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <grpc/grpc_security.h>

#include "base/log.h"
#include "base/mem.h"
#include "proto/rpc_call_accept.h"
#include "proto/rpc_call_state.h"
#include "proto/rpc_health.h"
#include "proto/rpc_server_state.h"

/* How a server stops, in this order: listeners closed and GOAWAY sent (grpc_server_shutdown_and_notify);
 * streams ended by us; after the grace everything left is cancelled; `down` has completed and every call is
 * freed; server destroyed; completion queue shut down; its thread joined; loop handles closed; on_drained. */

#define ARMED_CALLS 16
#define MAX_RECEIVE ((int64_t)1024 * 1024)
#define KEEPALIVE_MS 10000
#define HANDSHAKE_MS 10000
#define LINGER_MS 100
#define IDLE_MS 120000
#define STREAMS_A_CONNECTION 1000
#define WINDOW ((int64_t)256 * 1024) /* bytes of a stream that a client may send ahead */

static grpc_arg server_arg_int(const char *key, int64_t value)
{
    return (grpc_arg){.type = GRPC_ARG_INTEGER, .key = (char *)key, .value.integer = (int)value};
}

static grpc_server *server_make(const struct rpc_server_options *o)
{
    int64_t keepalive = o->keepalive_ms ? o->keepalive_ms : KEEPALIVE_MS;
    int64_t timeout = o->keepalive_timeout_ms ? o->keepalive_timeout_ms : KEEPALIVE_MS;
    grpc_arg list[] = {
        server_arg_int(GRPC_ARG_MAX_RECEIVE_MESSAGE_LENGTH,
                       o->max_receive ? (int64_t)o->max_receive : MAX_RECEIVE),
        server_arg_int(GRPC_ARG_ENABLE_PER_MESSAGE_DECOMPRESSION,
                       0), /* a small message must not become a large one */
        server_arg_int(GRPC_ARG_KEEPALIVE_TIME_MS, keepalive),
        server_arg_int(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, timeout),
        server_arg_int(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1),
        server_arg_int(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0),
        server_arg_int(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 500),
        server_arg_int(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, HANDSHAKE_MS),
        server_arg_int(GRPC_ARG_MAX_CONNECTION_IDLE_MS,
                       IDLE_MS), /* a connection without calls still occupies a descriptor */
        server_arg_int(GRPC_ARG_MAX_CONCURRENT_STREAMS, STREAMS_A_CONNECTION),
        server_arg_int(GRPC_ARG_ENABLE_CHANNELZ, 0),
        /* gRPC would measure the bandwidth of each agent's connection by a ping for each heartbeat. The window is
         * fixed instead. */
        server_arg_int(GRPC_ARG_HTTP2_BDP_PROBE, 0),
        server_arg_int(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, WINDOW),
    };
    grpc_channel_args args = {.num_args = ARRAY_LEN(list), .args = list};

    return grpc_server_create(&args, NULL);
}

static void server_went_down(struct rpc_tag *tag, bool ok);

enum err_code rpc_server_create(struct rpc_server **out, const struct rpc_server_options *options,
                                struct err *e)
{
    struct rpc_server *server;

    if (!options->loop)
        return err_set(e, ERR_INVALID_ARGUMENT, "a server needs a loop");
    rpc_grpc_enter(true);
    server = xcalloc(1, sizeof(*server));
    server->options = *options;
    server->down.owner = server;
    server->down.done = server_went_down;
    server->grpc = server_make(options);
    rpc_cq_init(&server->cq);
    grpc_server_register_completion_queue(server->grpc, server->cq.queue, NULL);
    rpc_health_init(server);
    *out = server;
    return ERR_OK;
}

void rpc_server_add_service(struct rpc_server *server, const struct rpc_service *service)
{
    BUG_ON(server->is_started || server->service_count == ARRAY_LEN(server->services));
    for (const struct rpc_method *row = service->methods; row->name; row++) {
        BUG_ON(!protobuf_c_service_descriptor_get_method_by_name(service->descriptor, row->name));
        BUG_ON(!row->on_start || (row->kind == RPC_BIDI) != (row->on_message != NULL));
    }
    server->services[server->service_count++] = service;
}

const struct rpc_service *rpc_server_find(const struct rpc_server *server, const char *service)
{
    for (size_t i = 0; i < server->service_count; i++)
        if (strcmp(server->services[i]->descriptor->name, service) == 0)
            return server->services[i];
    return NULL;
}

static enum err_code server_creds(struct rpc_server *server, const struct rpc_tls_files *tls,
                                  grpc_server_credentials **out, struct err *e)
{
    struct rpc_tls_source *source;

    if (!tls) {
        *out = grpc_insecure_server_credentials_create();
        return ERR_OK;
    }
    if (server->tls_count == ARRAY_LEN(server->tls))
        return err_set(e, ERR_RESOURCE_EXHAUSTED, "more than %zu TLS addresses", ARRAY_LEN(server->tls));
    if (rpc_tls_check(tls, e))
        return e->code;
    source = rpc_tls_source_create(tls);
    server->tls[server->tls_count++] = source;
    return rpc_creds_server(source, out, e);
}

static enum err_code serve_behind_gate(struct rpc_server *server, const char *path,
                                       grpc_server_credentials *creds, struct err *e)
{
    CLEANUP(free_text) char *target = xasprintf("unix:%s", path);
    const mode_t mask = umask(0177);
    const int bound = grpc_server_add_http2_port(server->grpc, target, creds);

    umask(mask);
    return bound > 0 ? ERR_OK : err_set(e, ERR_UNAVAILABLE, "listen on %s: failed", target);
}

enum err_code rpc_server_listen_tcp(struct rpc_server *server, const char *text,
                                    const struct rpc_tls_files *tls, int *port, struct err *e)
{
    const struct rpc_server_options *o = &server->options;
    grpc_server_credentials *creds;
    const char *path;
    int bound;

    BUG_ON(server->is_started);
    if (!server->gate && rpc_gate_create(&server->gate, &o->limits, o->private_dir, e))
        return e->code;
    if (rpc_gate_listen(server->gate, text, tls != NULL, &bound, &path, e) ||
        server_creds(server, tls, &creds, e))
        return e->code;
    const enum err_code code = serve_behind_gate(server, path, creds, e);
    grpc_server_credentials_release(creds);
    if (code == ERR_OK && port)
        *port = bound;
    return code;
}

static void server_turn_ends(uv_prepare_t *turn)
{
    struct rpc_server *server = turn->data;

    uv_prepare_stop(turn);
    while (server->due) {
        struct rpc_call *call = server->due;

        server->due = call->due_next;
        call->due_listed = false;
        if (call->receive_due) /* no send has done it */
            rpc_call_receive(call);
        rpc_call_unref(call);
    }
}

void rpc_server_start(struct rpc_server *server)
{
    BUG_ON(server->is_started);
    server->is_started = true;
    uv_timer_init(server->options.loop, &server->grace);
    server->grace.data = server;
    uv_prepare_init(server->options.loop, &server->turn);
    server->turn.data = server;
    rpc_cq_start(&server->cq, server->options.loop);
    grpc_server_start(server->grpc);
    for (int i = 0; i < ARMED_CALLS; i++)
        rpc_call_arm(server);
    for (struct rpc_listener *listener = server->listeners; listener; listener = listener->next)
        rpc_listener_start(listener);
    if (server->gate)
        rpc_gate_start(server->gate);
}

void rpc_server_receive_later(struct rpc_call *call)
{
    struct rpc_server *server = call->server;

    call->receive_due = true;
    if (call->due_listed)
        return;
    call->due_listed = true;
    call->due_next = server->due;
    server->due = rpc_call_ref(call);
    uv_prepare_start(&server->turn, server_turn_ends);
}

/* ---- draining ---- */

void rpc_server_handle_closed(struct rpc_server *server)
{
    BUG_ON(server->closing == 0);
    if (--server->closing)
        return;
    server->is_drained = true;
    server->on_drained(server->drained_user);
}

static void server_handle_closed(uv_handle_t *handle)
{
    rpc_server_handle_closed(handle->data);
}

static void server_queue_closed(void *user)
{
    rpc_server_handle_closed(user);
}

static void server_try_end(struct rpc_server *server)
{
    if (!server->is_down || server->call_count || !server->grpc)
        return;
    grpc_server_destroy(server->grpc);
    server->grpc = NULL;
    uv_close((uv_handle_t *)&server->grace, server_handle_closed);
    uv_close((uv_handle_t *)&server->turn, server_handle_closed);
    rpc_cq_close(&server->cq, server_queue_closed, server);
}

static void server_went_down(struct rpc_tag *tag, bool ok)
{
    struct rpc_server *server = tag->owner;

    (void)ok;
    server->is_down = true;
    server_try_end(server);
}

void rpc_server_call_freed(struct rpc_server *server)
{
    server->call_count--;
    server_try_end(server);
}

static void grace_over(uv_timer_t *timer)
{
    struct rpc_server *server = timer->data;

    if (server->grpc)
        grpc_server_cancel_all_calls(server->grpc);
}

/* No call is left, but a client that does not poll at the moment keeps its connection open. It gets a
 * moment to read the last replies and to close; then its connection is cut. */
void rpc_server_quiet(struct rpc_server *server)
{
    if (server->is_draining && server->grpc && server->live_count == 0 &&
        uv_timer_get_due_in(&server->grace) > LINGER_MS)
        uv_timer_start(&server->grace, grace_over, LINGER_MS, 0);
}

void rpc_server_each_call(struct rpc_server *server, void (*fn)(struct rpc_call *call, void *user),
                          void *user)
{
    for (struct rpc_call *call = server->calls, *next; call; call = next) {
        next = call->next; /* ending a call does not take it off the list: only its close notice does */
        fn(call, user);
    }
}

static void drain_calls(struct rpc_server *server)
{
    struct rpc_call *call = server->calls;

    rpc_health_drain(server);
    while (call) { /* ending a call does not take it off the list: only its close notice does */
        struct rpc_call *next = call->next;

        rpc_call_drain(call);
        call = next;
    }
}

void rpc_server_drain(struct rpc_server *server, int64_t grace_ms, void (*on_drained)(void *user), void *user)
{
    BUG_ON(!server->is_started);
    if (server->is_draining) {
        if (server->grpc && uv_timer_get_due_in(&server->grace) > (uint64_t)grace_ms)
            uv_timer_start(&server->grace, grace_over, (uint64_t)grace_ms, 0);
        return;
    }
    server->is_draining = true;
    server->on_drained = on_drained;
    server->drained_user = user;
    server->closing = 3; /* the timer, the prepare handle, the queue's */
    rpc_listeners_close(server);
    if (server->gate)
        rpc_gate_shut(server->gate);
    rpc_tag_arm(&server->down);
    grpc_server_shutdown_and_notify(server->grpc, server->cq.queue, &server->down);
    uv_timer_start(&server->grace, grace_over, (uint64_t)grace_ms, 0);
    drain_calls(server);
    rpc_server_quiet(server);
}

bool rpc_server_draining(const struct rpc_server *server)
{
    return server->is_draining;
}

size_t rpc_server_calls(const struct rpc_server *server)
{
    return server->live_count;
}

void rpc_server_traffic(struct rpc_server *server, struct rpc_traffic *out)
{
    if (server->gate)
        rpc_gate_take_traffic(server->gate, out);
    else
        *out = (struct rpc_traffic){0};
}

/* Never started: no thread is parked in the queue yet, so it is emptied here. */
static void server_undo(struct rpc_server *server)
{
    rpc_listeners_close(server);
    grpc_server_shutdown_and_notify(server->grpc, server->cq.queue, &server->down);
    grpc_completion_queue_next(server->cq.queue, rpc_deadline(-1), NULL);
    grpc_server_destroy(server->grpc);
    rpc_cq_release(&server->cq);
}

void rpc_server_free(struct rpc_server *server)
{
    if (!server)
        return;
    BUG_ON(server->is_started && !server->is_drained);
    if (!server->is_started)
        server_undo(server);
    rpc_gate_free(server->gate);
    for (size_t i = 0; i < server->tls_count; i++)
        rpc_tls_source_free(server->tls[i]);
    free(server->unix_peers);
    free(server);
    rpc_grpc_leave();
}
