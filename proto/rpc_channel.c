#include <stdlib.h>
#include <string.h>

#include <grpc/grpc_security.h>

#include "base/id.h"
#include "base/mem.h"
#include "proto/rpc_address.h"
#include "proto/rpc_client_impl.h"
#include "proto/rpc_creds.h"
#include "proto/rpc_status.h"

/* A thread that waits in a call also drives gRPC's sockets, and so does the pause between two tries: while
 * anything on the channel waits, a lost connection is noticed and made again without a thread of our own. */

#define MAX_RECEIVE (16 * 1024 * 1024)
#define KEEPALIVE_MS 10000
#define CONNECT_MS 2000 /* one attempt */
#define BACKOFF_FIRST_MS 100
#define BACKOFF_LAST_MS 1000
#define PAUSE_SLICE_MS 50

/* ---- the link ---- */

static grpc_arg arg_int(const char *key, int64_t value)
{
    return (grpc_arg){.type = GRPC_ARG_INTEGER, .key = (char *)key, .value.integer = (int)value};
}

static grpc_channel *channel_make(const char *target, const struct rpc_channel_options *o,
                                  grpc_channel_credentials *creds)
{
    int64_t keepalive = o->keepalive_ms ? o->keepalive_ms : KEEPALIVE_MS;
    int64_t timeout = o->keepalive_timeout_ms ? o->keepalive_timeout_ms : KEEPALIVE_MS;
    grpc_arg list[] = {
        arg_int(GRPC_ARG_MAX_RECEIVE_MESSAGE_LENGTH, o->max_receive ? (int64_t)o->max_receive : MAX_RECEIVE),
        arg_int(GRPC_ARG_ENABLE_PER_MESSAGE_DECOMPRESSION, 0),
        arg_int(GRPC_ARG_ENABLE_HTTP_PROXY, 0), /* http_proxy would be honoured even for 127.0.0.1 */
        arg_int(GRPC_ARG_ENABLE_RETRIES, 0),    /* ours know which calls are idempotent */
        arg_int(GRPC_ARG_SERVICE_CONFIG_DISABLE_RESOLUTION, 1),
        arg_int(GRPC_ARG_DNS_MIN_TIME_BETWEEN_RESOLUTIONS_MS, 1000),
        arg_int(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1),
        arg_int(GRPC_ARG_KEEPALIVE_TIME_MS, keepalive),
        arg_int(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, timeout),
        arg_int(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1),
        arg_int(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0),
        arg_int(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, BACKOFF_FIRST_MS),
        arg_int(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, CONNECT_MS),
        arg_int(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, BACKOFF_LAST_MS),
        arg_int(GRPC_ARG_ENABLE_CHANNELZ, 0),
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

static enum err_code link_connect(struct rpc_link *link, const char *target,
                                  const struct rpc_channel_options *o, struct err *e)
{
    grpc_channel_credentials *creds;

    if (!o->tls)
        creds = grpc_insecure_credentials_create();
    else if (rpc_tls_check(o->tls, e) || rpc_creds_client(o->tls, &creds, e))
        return e->code;
    link->grpc = channel_make(target, o, creds);
    grpc_channel_credentials_release(creds);
    return ERR_OK;
}

enum err_code rpc_link_open(struct rpc_link *link, const char *text,
                            const struct rpc_channel_options *options, struct err *e)
{
    static const struct rpc_channel_options defaults;
    const struct rpc_channel_options *o = options ? options : &defaults;
    CLEANUP(free_text) char *target = NULL;

    if (rpc_address_target(text, &target, e) || (o->token && token_check(o->token, e)))
        return e->code;
    rpc_grpc_enter(false);
    if (link_connect(link, target, o, e)) {
        rpc_grpc_leave();
        return e->code;
    }
    link->has_token = o->token != NULL;
    if (o->token) {
        CLEANUP(free_text) char *value = xasprintf("Bearer %s", o->token);

        link->authorization = grpc_slice_from_copied_string(value);
    }
    return ERR_OK;
}

void rpc_link_close(struct rpc_link *link)
{
    grpc_channel_destroy(link->grpc);
    if (link->has_token)
        grpc_slice_unref(link->authorization);
    rpc_grpc_leave();
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

void rpc_end_init(struct rpc_end *end)
{
    memset(end, 0, sizeof(*end));
    grpc_metadata_array_init(&end->headers);
    grpc_metadata_array_init(&end->trailers);
    end->text = grpc_empty_slice();
}

void rpc_end_ops(struct rpc_end *end, grpc_op ops[2])
{
    ops[0].op = GRPC_OP_RECV_INITIAL_METADATA;
    ops[0].data.recv_initial_metadata.recv_initial_metadata = &end->headers;
    ops[1].op = GRPC_OP_RECV_STATUS_ON_CLIENT;
    ops[1].data.recv_status_on_client.trailing_metadata = &end->trailers;
    ops[1].data.recv_status_on_client.status = &end->status;
    ops[1].data.recv_status_on_client.status_details = &end->text;
}

enum err_code rpc_end_read(const struct rpc_end *end, bool asked, struct err *e)
{
    return rpc_status_of_call((int)end->status, (const char *)GRPC_SLICE_START_PTR(end->text),
                              GRPC_SLICE_LENGTH(end->text), asked, e);
}

void rpc_end_release(struct rpc_end *end)
{
    grpc_metadata_array_destroy(&end->headers);
    grpc_metadata_array_destroy(&end->trailers);
    grpc_slice_unref(end->text);
}

/* ---- the blocking channel ---- */

enum err_code rpc_channel_open(struct rpc_channel **out, const char *target,
                               const struct rpc_channel_options *options, struct err *e)
{
    struct rpc_channel *channel = xcalloc(1, sizeof(*channel));

    if (rpc_link_open(&channel->link, target, options, e)) {
        free(channel);
        return e->code;
    }
    pthread_mutex_init(&channel->lock, NULL);
    *out = channel;
    return ERR_OK;
}

void rpc_channel_close(struct rpc_channel *channel)
{
    if (!channel)
        return;
    BUG_ON(channel->active);
    rpc_link_close(&channel->link);
    pthread_mutex_destroy(&channel->lock);
    free(channel);
}

void rpc_active_cancel(struct rpc_active *active)
{
    atomic_store(&active->asked, true);
    grpc_call_cancel(active->grpc, NULL);
}

void rpc_active_add(struct rpc_channel *channel, struct rpc_active *active)
{
    pthread_mutex_lock(&channel->lock);
    active->prev = NULL;
    active->next = channel->active;
    if (active->next)
        active->next->prev = active;
    channel->active = active;
    if (atomic_load(&channel->cancelled))
        rpc_active_cancel(active);
    pthread_mutex_unlock(&channel->lock);
}

void rpc_active_remove(struct rpc_channel *channel, struct rpc_active *active)
{
    pthread_mutex_lock(&channel->lock);
    if (active->next)
        active->next->prev = active->prev;
    if (active->prev)
        active->prev->next = active->next;
    else
        channel->active = active->next;
    pthread_mutex_unlock(&channel->lock);
}

void rpc_channel_cancel(struct rpc_channel *channel)
{
    atomic_store(&channel->cancelled, true);
    pthread_mutex_lock(&channel->lock);
    for (struct rpc_active *active = channel->active; active; active = active->next)
        rpc_active_cancel(active);
    pthread_mutex_unlock(&channel->lock);
}

bool rpc_pluck(grpc_completion_queue *queue, struct rpc_tag *tag, gpr_timespec deadline)
{
    grpc_event event = grpc_completion_queue_pluck(queue, tag, deadline, NULL);

    if (event.type != GRPC_OP_COMPLETE)
        return false;
    rpc_tag_home(tag);
    tag->ok = event.success != 0;
    return true;
}

/* ---- unary calls ---- */

static enum err_code call_finish(const ProtobufCMethodDescriptor *shape, const struct rpc_end *end,
                                 bool asked, grpc_byte_buffer **answer, void **reply, struct err *e)
{
    if (rpc_end_read(end, asked, e))
        return e->code;
    if (!*answer)
        return err_set(e, ERR_INTERNAL, "%s: the server sent no reply", shape->name);
    if (rpc_unpack_buffer(shape->output, answer, reply, e))
        return err_wrap(e, "%s: the server's reply", shape->name);
    return ERR_OK;
}

static enum err_code call_once(struct rpc_channel *channel, const ProtobufCServiceDescriptor *service,
                               const ProtobufCMethodDescriptor *shape, grpc_byte_buffer *request,
                               void **reply, gpr_timespec deadline, unsigned flags, struct err *e)
{
    grpc_completion_queue *queue = grpc_completion_queue_create_for_pluck(NULL);
    struct rpc_active active = {.grpc = rpc_link_call(&channel->link, queue, service, shape->name, deadline)};
    grpc_byte_buffer *answer = NULL;
    struct rpc_tag tag = {0};
    struct rpc_end end;
    grpc_metadata token;
    grpc_op ops[6] = {0};
    enum err_code code;

    rpc_end_init(&end);
    rpc_link_headers(&channel->link, &ops[0], &token, flags);
    ops[1].op = GRPC_OP_SEND_MESSAGE;
    ops[1].data.send_message.send_message = request;
    ops[2].op = GRPC_OP_SEND_CLOSE_FROM_CLIENT;
    ops[3].op = GRPC_OP_RECV_MESSAGE;
    ops[3].data.recv_message.recv_message = &answer;
    rpc_end_ops(&end, ops + 4);
    rpc_batch(active.grpc, ops, 6, &tag);
    rpc_active_add(channel, &active);
    while (!rpc_pluck(queue, &tag, rpc_deadline(-1)))
        continue;
    rpc_active_remove(channel, &active);
    code = call_finish(shape, &end, atomic_load(&active.asked), &answer, reply, e);
    if (answer)
        grpc_byte_buffer_destroy(answer);
    rpc_end_release(&end);
    grpc_call_unref(active.grpc);
    grpc_completion_queue_shutdown(queue);
    grpc_completion_queue_destroy(queue);
    return code;
}

/* Waits, and meanwhile lets gRPC connect; ends early when it has. */
static void channel_pause(struct rpc_channel *channel, int64_t pause_ms)
{
    grpc_completion_queue *queue = grpc_completion_queue_create_for_pluck(NULL);
    gpr_timespec until = rpc_deadline(pause_ms);
    struct rpc_tag tag = {0};

    while (rpc_deadline_left_ms(until) > 0 && !atomic_load(&channel->cancelled)) {
        int64_t left = rpc_deadline_left_ms(until);
        grpc_connectivity_state state = grpc_channel_check_connectivity_state(channel->link.grpc, 1);

        if (state == GRPC_CHANNEL_READY)
            break;
        rpc_tag_arm(&tag);
        grpc_channel_watch_connectivity_state(channel->link.grpc, state,
                                              rpc_deadline(left < PAUSE_SLICE_MS ? left : PAUSE_SLICE_MS),
                                              queue, &tag);
        while (!rpc_pluck(queue, &tag, rpc_deadline(-1)))
            continue;
    }
    grpc_completion_queue_shutdown(queue);
    grpc_completion_queue_destroy(queue);
}

static int64_t backoff_ms(int attempt)
{
    int64_t base = attempt < 4 ? (int64_t)BACKOFF_FIRST_MS << attempt : BACKOFF_LAST_MS;
    uint16_t jitter;

    id_random(&jitter, sizeof(jitter));
    return base * 3 / 4 + base * jitter / (2 * 65536);
}

static enum err_code call_retry(struct rpc_channel *channel, const ProtobufCServiceDescriptor *service,
                                const ProtobufCMethodDescriptor *shape, grpc_byte_buffer *request,
                                void **reply, gpr_timespec deadline, unsigned flags, struct err *e)
{
    for (int attempt = 0;; attempt++) {
        grpc_byte_buffer *copy = grpc_byte_buffer_copy(request); /* gRPC takes the slices of what it sends */
        enum err_code code = call_once(channel, service, shape, copy, reply, deadline, flags, e);
        int64_t pause = backoff_ms(attempt);

        grpc_byte_buffer_destroy(copy);
        if (code != ERR_UNAVAILABLE || !(flags & RPC_IDEMPOTENT) || rpc_deadline_left_ms(deadline) <= pause)
            return code;
        channel_pause(channel, pause);
        if (atomic_load(&channel->cancelled))
            return err_set(e, ERR_CANCELLED, "cancelled");
    }
}

enum err_code rpc_channel_call(struct rpc_channel *channel, const ProtobufCServiceDescriptor *service,
                               const char *method, const void *request, void **reply, int64_t timeout_ms,
                               unsigned flags, struct err *e)
{
    const ProtobufCMethodDescriptor *shape = rpc_link_method(service, method, request);
    gpr_timespec deadline = rpc_deadline(timeout_ms > 0 ? timeout_ms : -1);
    grpc_byte_buffer *buffer;
    enum err_code code;
    size_t size;

    if (rpc_pack_buffer(request, &buffer, &size, e))
        return e->code;
    code = call_retry(channel, service, shape, buffer, reply, deadline, flags, e);
    grpc_byte_buffer_destroy(buffer);
    return code;
}
