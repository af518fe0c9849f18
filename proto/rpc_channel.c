#include "proto/rpc_channel.h"

#include <stdlib.h>
#include <unistd.h>

#include "base/crypto/id.h"
#include "base/mem.h"
#include "proto/rpc_channel_state.h"

/* A thread that waits in a call also drives gRPC's sockets, and so does the pause between two tries. So
 * while a thread waits on the channel, a lost connection is noticed and made again without an extra
 * thread. */

#define BACKOFF_FIRST_MS 100
#define BACKOFF_LAST_MS 1000
#define PAUSE_SLICE_MS 50

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

enum err_code rpc_channel_share(struct rpc_channel **out, const struct rpc_channel *with, const char *token,
                                struct err *e)
{
    struct rpc_channel *channel = xcalloc(1, sizeof(*channel));

    if (rpc_link_share(&channel->link, &with->link, token, e)) {
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

void rpc_active_begin(struct rpc_channel *channel, struct rpc_active *active, grpc_completion_queue *queue,
                      const ProtobufCServiceDescriptor *service, const char *method, gpr_timespec deadline)
{
    pthread_mutex_lock(&channel->lock);
    if (!channel->active && channel->pausing == 0)
        rpc_link_refresh(&channel->link);
    active->grpc = rpc_link_call(&channel->link, queue, service, method, deadline);
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

static enum err_code call_finish(const ProtobufCMethodDescriptor *shape, const struct rpc_result *result,
                                 bool asked, grpc_byte_buffer **answer, void **reply, struct err *e)
{
    if (rpc_result_read(result, asked, e))
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
    struct rpc_active active = {0};
    grpc_byte_buffer *answer = NULL;
    struct rpc_tag tag = {0};
    struct rpc_result result;
    grpc_metadata token;
    grpc_op ops[6] = {0};
    enum err_code code;

    rpc_active_begin(channel, &active, queue, service, shape->name, deadline);
    rpc_result_init(&result);
    rpc_link_headers(&channel->link, &ops[0], &token, flags);
    ops[1].op = GRPC_OP_SEND_MESSAGE;
    ops[1].data.send_message.send_message = request;
    ops[2].op = GRPC_OP_SEND_CLOSE_FROM_CLIENT;
    ops[3].op = GRPC_OP_RECV_MESSAGE;
    ops[3].data.recv_message.recv_message = &answer;
    rpc_result_ops(&result, ops + 4);
    rpc_batch(active.grpc, ops, 6, &tag);
    while (!rpc_pluck(queue, &tag, rpc_deadline(-1)))
        continue;
    rpc_active_remove(channel, &active);
    code = call_finish(shape, &result, atomic_load(&active.asked), &answer, reply, e);
    if (answer)
        grpc_byte_buffer_destroy(answer);
    rpc_result_release(&result);
    grpc_call_unref(active.grpc);
    grpc_completion_queue_shutdown(queue);
    grpc_completion_queue_destroy(queue);
    return code;
}

static void channel_pausing(struct rpc_channel *channel, int change)
{
    pthread_mutex_lock(&channel->lock);
    channel->pausing += change;
    pthread_mutex_unlock(&channel->lock);
}

/* Waits between two tries while gRPC connects; returns early when it has connected. */
static void channel_pause(struct rpc_channel *channel, int64_t pause_ms)
{
    grpc_completion_queue *queue = grpc_completion_queue_create_for_pluck(NULL);
    gpr_timespec until = rpc_deadline(pause_ms);
    struct rpc_tag tag = {0};

    channel_pausing(channel, 1);
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
    channel_pausing(channel, -1);
    grpc_completion_queue_shutdown(queue);
    grpc_completion_queue_destroy(queue);
}

void rpc_channel_sleep(struct rpc_channel *channel, int64_t pause_ms)
{
    const gpr_timespec until = rpc_deadline(pause_ms);
    channel_pause(channel, pause_ms);
    for (int64_t left; (left = rpc_deadline_left_ms(until)) > 0 && !atomic_load(&channel->cancelled);)
        usleep((useconds_t)(left < PAUSE_SLICE_MS ? left : PAUSE_SLICE_MS) * 1000);
}

static int64_t backoff_ms(int attempt)
{
    int64_t base = attempt < 4 ? (int64_t)BACKOFF_FIRST_MS << attempt : BACKOFF_LAST_MS;
    uint16_t jitter;

    id_random(&jitter, sizeof(jitter));
    return base * 3 / 4 + base * jitter / INT64_C(131072);
}

static enum err_code call_retry(struct rpc_channel *channel, const ProtobufCServiceDescriptor *service,
                                const ProtobufCMethodDescriptor *shape, grpc_byte_buffer *request,
                                void **reply, gpr_timespec deadline, unsigned flags, struct err *e)
{
    for (int attempt = 0;; attempt++) {
        grpc_byte_buffer *copy =
            grpc_byte_buffer_copy(request); /* gRPC consumes the slices of the buffer that it sends */
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
