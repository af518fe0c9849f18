#include "proto/rpc_stream.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "proto/rpc_channel_state.h"

/* A blocking stream. At most one operation of each kind is outstanding, each with a tag of its own that is
 * plucked by the caller that waits for it. A read whose caller stopped waiting stays outstanding, and the
 * next rpc_stream_next continues to wait for it. */

struct rpc_stream {
    struct rpc_channel *channel;
    const ProtobufCMethodDescriptor *shape;
    grpc_completion_queue *queue;
    struct rpc_active active;
    struct rpc_tag opened, sent, received, ended;
    bool opening, sending, receiving, has_ended; /* operations out; has_ended: status is in end */
    grpc_byte_buffer *incoming;
    struct rpc_result result;
};

static void stream_wait(struct rpc_stream *stream, struct rpc_tag *tag, bool *out)
{
    if (*out)
        while (!rpc_pluck(stream->queue, tag, rpc_deadline(-1)))
            continue;
    *out = false;
}

static void stream_start(struct rpc_stream *stream, grpc_byte_buffer *request, unsigned flags)
{
    grpc_metadata token;
    grpc_op open[3] = {0}, result[2] = {0};
    size_t count = 1;

    rpc_link_headers(&stream->channel->link, &open[0], &token, flags);
    if (request) {
        open[1].op = GRPC_OP_SEND_MESSAGE;
        open[1].data.send_message.send_message = request;
        open[2].op = GRPC_OP_SEND_CLOSE_FROM_CLIENT;
        count = 3;
    }
    stream->opening = true;
    rpc_batch(stream->active.grpc, open, count, &stream->opened);
    rpc_result_init(&stream->result);
    rpc_result_ops(&stream->result, result);
    rpc_batch(stream->active.grpc, result, 2, &stream->ended);
}

enum err_code rpc_stream_open(struct rpc_stream **out, struct rpc_channel *channel,
                              const ProtobufCServiceDescriptor *service, const char *method,
                              const void *request, int64_t timeout_ms, unsigned flags, struct err *e)
{
    const ProtobufCMethodDescriptor *shape = rpc_link_method(service, method, request);
    gpr_timespec deadline = rpc_deadline(timeout_ms > 0 ? timeout_ms : -1);
    grpc_byte_buffer *buffer = NULL;
    struct rpc_stream *stream;
    size_t size;

    if (request && rpc_pack_buffer(request, &buffer, &size, e))
        return e->code;
    stream = xcalloc(1, sizeof(*stream));
    stream->channel = channel;
    stream->shape = shape;
    stream->queue = grpc_completion_queue_create_for_pluck(NULL);
    rpc_active_begin(channel, &stream->active, stream->queue, service, method, deadline);
    stream_start(stream, buffer, flags);
    if (buffer)
        grpc_byte_buffer_destroy(buffer); /* the batch has its own reference to the slices */
    *out = stream;
    return ERR_OK;
}

static enum err_code stream_status(struct rpc_stream *stream, struct err *e)
{
    bool waiting = !stream->has_ended;

    stream_wait(stream, &stream->ended, &waiting);
    stream->has_ended = true;
    return rpc_result_read(&stream->result, atomic_load(&stream->active.asked), e);
}

static void stream_read(struct rpc_stream *stream)
{
    grpc_op op = {.op = GRPC_OP_RECV_MESSAGE, .data.recv_message.recv_message = &stream->incoming};

    stream->receiving = true;
    rpc_batch(stream->active.grpc, &op, 1, &stream->received);
}

enum err_code rpc_stream_next(struct rpc_stream *stream, int64_t wait_ms, void **message, struct err *e)
{
    if (!stream->has_ended) {
        if (!stream->receiving)
            stream_read(stream);
        if (!rpc_pluck(stream->queue, &stream->received, rpc_deadline(wait_ms)))
            return err_set(e, ERR_DEADLINE_EXCEEDED, "no message for %lld ms", (long long)wait_ms);
        stream->receiving = false;
        if (stream->received.ok && stream->incoming) {
            if (!rpc_unpack_buffer(stream->shape->output, &stream->incoming, message, e))
                return ERR_OK;
            rpc_stream_cancel(stream);
            (void)stream_status(stream, &(struct err){0});
            return err_wrap(e, "%s: the server's message", stream->shape->name);
        }
    }
    if (stream_status(stream, e))
        return e->code;
    *message = NULL;
    return ERR_OK;
}

bool rpc_stream_ended(const struct rpc_stream *stream)
{
    return stream->has_ended;
}

static enum err_code stream_put(struct rpc_stream *stream, const grpc_op *op, struct err *e)
{
    stream_wait(stream, &stream->opened, &stream->opening);
    stream->sending = true;
    rpc_batch(stream->active.grpc, op, 1, &stream->sent);
    stream_wait(stream, &stream->sent, &stream->sending);
    if (stream->sent.ok)
        return ERR_OK;
    if (!stream_status(stream, e))
        return err_set(e, ERR_CANCELLED, "the stream is over");
    return e->code;
}

enum err_code rpc_stream_send(struct rpc_stream *stream, const void *message, struct err *e)
{
    grpc_op op = {.op = GRPC_OP_SEND_MESSAGE};
    grpc_byte_buffer *buffer;
    enum err_code code;
    size_t size;

    BUG_ON(((const ProtobufCMessage *)message)->descriptor != stream->shape->input);
    if (rpc_pack_buffer(message, &buffer, &size, e))
        return e->code;
    op.data.send_message.send_message = buffer;
    code = stream_put(stream, &op, e);
    grpc_byte_buffer_destroy(buffer);
    return code;
}

enum err_code rpc_stream_close_send(struct rpc_stream *stream, struct err *e)
{
    grpc_op op = {.op = GRPC_OP_SEND_CLOSE_FROM_CLIENT};

    return stream_put(stream, &op, e);
}

void rpc_stream_cancel(struct rpc_stream *stream)
{
    rpc_active_cancel(&stream->active);
}

void rpc_stream_close(struct rpc_stream *stream)
{
    struct err ignored;

    if (!stream)
        return;
    rpc_active_remove(stream->channel, &stream->active);
    if (!stream->has_ended)
        rpc_active_cancel(&stream->active);
    stream_wait(stream, &stream->opened, &stream->opening);
    stream_wait(stream, &stream->sent, &stream->sending);
    stream_wait(stream, &stream->received, &stream->receiving);
    (void)stream_status(stream, &ignored);
    if (stream->incoming)
        grpc_byte_buffer_destroy(stream->incoming);
    rpc_result_release(&stream->result);
    grpc_call_unref(stream->active.grpc);
    grpc_completion_queue_shutdown(stream->queue);
    grpc_completion_queue_destroy(stream->queue);
    free(stream);
}
