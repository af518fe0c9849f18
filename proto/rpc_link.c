#include "proto/rpc_link.h"

#include <stdlib.h>
#include <string.h>

#include <grpc/grpc_security.h>

#include "base/log.h"
#include "base/mem.h"
#include "proto/rpc_address.h"
#include "proto/rpc_creds.h"
#include "proto/rpc_status.h"

#define MAX_RECEIVE ((int64_t)16 * 1024 * 1024)
#define KEEPALIVE_MS 10000
#define WINDOW ((int64_t)1024 * 1024) /* bytes of a stream that a server may send ahead */
#define CONNECT_MS 2000               /* one attempt */
#define BACKOFF_FIRST_MS 100
#define BACKOFF_LAST_MS 1000

static grpc_arg channel_arg_int(const char *key, int64_t value)
{
    return (grpc_arg){.type = GRPC_ARG_INTEGER, .key = (char *)key, .value.integer = (int)value};
}

static grpc_channel *channel_make(const char *target, const struct rpc_channel_options *o,
                                  grpc_channel_credentials *creds)
{
    int64_t keepalive = o->keepalive_ms ? o->keepalive_ms : KEEPALIVE_MS;
    int64_t timeout = o->keepalive_timeout_ms ? o->keepalive_timeout_ms : KEEPALIVE_MS;
    grpc_arg list[] = {
        channel_arg_int(GRPC_ARG_MAX_RECEIVE_MESSAGE_LENGTH,
                        o->max_receive ? (int64_t)o->max_receive : MAX_RECEIVE),
        channel_arg_int(GRPC_ARG_ENABLE_PER_MESSAGE_DECOMPRESSION, 0),
        channel_arg_int(GRPC_ARG_ENABLE_HTTP_PROXY, 0), /* gRPC would use http_proxy even for 127.0.0.1 */
        channel_arg_int(GRPC_ARG_ENABLE_RETRIES,
                        0), /* gRPC's own retries are off: only ddp knows which calls are idempotent */
        channel_arg_int(GRPC_ARG_SERVICE_CONFIG_DISABLE_RESOLUTION, 1),
        channel_arg_int(GRPC_ARG_DNS_MIN_TIME_BETWEEN_RESOLUTIONS_MS, 1000),
        channel_arg_int(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1),
        channel_arg_int(GRPC_ARG_KEEPALIVE_TIME_MS, keepalive),
        channel_arg_int(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, timeout),
        channel_arg_int(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1),
        channel_arg_int(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0),
        channel_arg_int(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, BACKOFF_FIRST_MS),
        channel_arg_int(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, CONNECT_MS),
        channel_arg_int(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, BACKOFF_LAST_MS),
        channel_arg_int(GRPC_ARG_ENABLE_CHANNELZ, 0),
        /* gRPC would measure the bandwidth by a ping for each small message. The window is fixed instead. */
        channel_arg_int(GRPC_ARG_HTTP2_BDP_PROBE, 0),
        channel_arg_int(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, WINDOW),
        {.type = GRPC_ARG_STRING,
         .key = (char *)GRPC_SSL_TARGET_NAME_OVERRIDE_ARG,
         .value.string = (char *)(o->tls_name ? o->tls_name : "")},
    };
    grpc_channel_args args = {.num_args = ARRAY_LEN(list) - (o->tls_name ? 0 : 1), .args = list};

    return grpc_channel_create(target, creds, &args);
}

static enum err_code token_check(const char *token, struct err *e)
{
    for (const char *p = token; *p; p++)
        if (*p <= ' ' || *p > '~')
            return err_set(e, ERR_INVALID_ARGUMENT, "a token must be printable ASCII");
    return ERR_OK;
}

static enum err_code link_connect(struct rpc_link *link, grpc_channel **out, struct err *e)
{
    const struct rpc_channel_options *o = &link->options;
    grpc_channel_credentials *creds;

    if (!o->tls)
        creds = grpc_insecure_credentials_create();
    else if (rpc_tls_check(o->tls, e) || rpc_creds_client(o->tls, &creds, e))
        return e->code;
    *out = channel_make(link->target, o, creds);
    grpc_channel_credentials_release(creds);
    return ERR_OK;
}

static void link_copy(struct rpc_link *link, const struct rpc_channel_options *o)
{
    link->options = *o;
    link->options.token = NULL; /* the header owns it */
    link->options.tls_name = xstrdup(o->tls_name);
    link->has_token = o->token != NULL;
    if (o->token) {
        CLEANUP(free_text) char *value = xasprintf("Bearer %s", o->token);

        link->authorization = grpc_slice_from_copied_string(value);
    }
    if (o->tls) {
        link->files =
            (struct rpc_tls_files){xstrdup(o->tls->ca), xstrdup(o->tls->cert), xstrdup(o->tls->key)};
        link->options.tls = &link->files;
        rpc_tls_changed(&link->files, &link->watch);
    }
}

static void link_release(struct rpc_link *link)
{
    if (link->has_token)
        grpc_slice_unref(link->authorization);
    free((char *)link->options.tls_name);
    free((char *)link->files.ca);
    free((char *)link->files.cert);
    free((char *)link->files.key);
    free(link->target);
    rpc_grpc_leave();
}

enum err_code rpc_link_open(struct rpc_link *link, const char *text,
                            const struct rpc_channel_options *options, struct err *e)
{
    static const struct rpc_channel_options defaults;
    struct rpc_channel_options own = options ? *options : defaults, *o = &own;

    if (rpc_address_target(text, &link->target, e))
        return e->code;
    if (strncmp(text, "unix:", 5) == 0) /* always plain text: TLS settings apply to TCP only */
        own.tls = NULL;
    if ((o->token && token_check(o->token, e)) || (o->tls && rpc_tls_check(o->tls, e))) {
        free(link->target);
        return e->code;
    }
    rpc_grpc_enter(false);
    link_copy(link, o);
    if (link_connect(link, &link->grpc, e)) {
        link_release(link);
        return e->code;
    }
    return ERR_OK;
}

enum err_code rpc_link_share(struct rpc_link *link, const struct rpc_link *with, const char *token,
                             struct err *e)
{
    const struct rpc_channel_options options = {.token = token};

    BUG_ON(with->options.tls); /* rpc_link_refresh would replace the connection */
    if (token_check(token, e))
        return e->code;
    rpc_grpc_enter(false);
    link_copy(link, &options);
    link->target = xstrdup(with->target);
    link->grpc = with->grpc;
    link->shared = true;
    return ERR_OK;
}

void rpc_link_refresh(struct rpc_link *link)
{
    grpc_channel *fresh = NULL;
    bool changed;
    struct err e;

    if (!link->options.tls)
        return;
    changed = rpc_tls_changed(&link->files, &link->watch);
    if (!changed && !link->watch.failed)
        return;
    link->watch.failed = link_connect(link, &fresh, &e) != ERR_OK;
    if (link->watch.failed) {
        /* Each call tries again, but the same files are reported once. */
        if (changed)
            log_warn("tls_not_reloaded", "why=%s", LOG_Q(e.msg));
        return;
    }
    grpc_channel_destroy(link->grpc);
    link->grpc = fresh;
}

void rpc_link_close(struct rpc_link *link)
{
    if (!link->shared)
        grpc_channel_destroy(link->grpc);
    link->grpc = NULL;
    link_release(link);
}

const ProtobufCMethodDescriptor *rpc_link_method(const ProtobufCServiceDescriptor *service,
                                                 const char *method, const void *request)
{
    const ProtobufCMethodDescriptor *shape =
        protobuf_c_service_descriptor_get_method_by_name(service, method);

    BUG_ON(!shape);
    BUG_ON(request && ((const ProtobufCMessage *)request)->descriptor != shape->input);
    return shape;
}

grpc_call *rpc_link_call(struct rpc_link *link, grpc_completion_queue *queue,
                         const ProtobufCServiceDescriptor *service, const char *method, gpr_timespec deadline)
{
    CLEANUP(free_text) char *path = xasprintf("/%s/%s", service->name, method);
    grpc_slice slice = grpc_slice_from_copied_string(path);
    grpc_call *call = grpc_channel_create_call(link->grpc, NULL, GRPC_PROPAGATE_DEFAULTS, queue, slice, NULL,
                                               deadline, NULL);

    grpc_slice_unref(slice);
    return call;
}

void rpc_link_headers(const struct rpc_link *link, grpc_op *op, grpc_metadata *token, unsigned flags)
{
    op->op = GRPC_OP_SEND_INITIAL_METADATA;
    if (flags & RPC_WAIT_FOR_READY)
        op->flags =
            GRPC_INITIAL_METADATA_WAIT_FOR_READY | GRPC_INITIAL_METADATA_WAIT_FOR_READY_EXPLICITLY_SET;
    if (!link->has_token)
        return;
    memset(token, 0, sizeof(*token));
    token->key = grpc_slice_from_static_string("authorization");
    token->value = link->authorization;
    op->data.send_initial_metadata.count = 1;
    op->data.send_initial_metadata.metadata = token;
}

void rpc_result_init(struct rpc_result *result)
{
    memset(result, 0, sizeof(*result));
    grpc_metadata_array_init(&result->headers);
    grpc_metadata_array_init(&result->trailers);
    result->text = grpc_empty_slice();
}

void rpc_result_ops(struct rpc_result *result, grpc_op ops[2])
{
    ops[0].op = GRPC_OP_RECV_INITIAL_METADATA;
    ops[0].data.recv_initial_metadata.recv_initial_metadata = &result->headers;
    ops[1].op = GRPC_OP_RECV_STATUS_ON_CLIENT;
    ops[1].data.recv_status_on_client.trailing_metadata = &result->trailers;
    ops[1].data.recv_status_on_client.status = &result->status;
    ops[1].data.recv_status_on_client.status_details = &result->text;
}

enum err_code rpc_result_read(const struct rpc_result *result, bool asked, struct err *e)
{
    return rpc_status_of_call((int)result->status, (const char *)GRPC_SLICE_START_PTR(result->text),
                              GRPC_SLICE_LENGTH(result->text), asked, e);
}

void rpc_result_release(struct rpc_result *result)
{
    grpc_metadata_array_destroy(&result->headers);
    grpc_metadata_array_destroy(&result->trailers);
    grpc_slice_unref(result->text);
}
