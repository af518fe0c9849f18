#include "proto/rpc_call.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "proto/rpc_call_state.h"
#include "proto/rpc_server_state.h"
#include "proto/rpc_status.h"

#define SEND_QUEUE ((size_t)256 * 1024)

/* ---- references ---- */

static void outgoing_free(struct outgoing *item)
{
    grpc_byte_buffer_destroy(item->buffer);
    free(item);
}

static void call_drop_queue(struct rpc_call *call)
{
    while (call->first) {
        struct outgoing *item = call->first;

        call->first = item->next;
        call->queued -= item->size;
        outgoing_free(item);
    }
    call->last = NULL;
}

static void call_free(struct rpc_call *call)
{
    struct rpc_server *server = call->server;

    if (call->grpc)
        grpc_call_unref(call->grpc);
    if (call->incoming)
        grpc_byte_buffer_destroy(call->incoming);
    call_drop_queue(call);
    rpc_free(call->request);
    if (call->identity_release)
        call->identity_release(call->identity);
    free(call->status_text);
    free(call);
    rpc_server_call_freed(server);
}

struct rpc_call *rpc_call_ref(struct rpc_call *call)
{
    call->refs++;
    return call;
}

void rpc_call_unref(struct rpc_call *call)
{
    BUG_ON(call->refs == 0);
    if (--call->refs == 0)
        call_free(call);
}

/* ---- sending ---- */

static void batch_status(struct rpc_call *call, grpc_op *op, grpc_slice *text)
{
    op->op = GRPC_OP_SEND_STATUS_FROM_SERVER;
    op->data.send_status_from_server.status = (grpc_status_code)call->status;
    if (call->status_text) {
        *text = grpc_slice_from_copied_string(call->status_text);
        op->data.send_status_from_server.status_details = text;
    }
    call->finish_sent = true;
}

/* Starts the next batch unless one is in progress: the headers if they were not sent, one message, and
 * behind the last message the status. gRPC allows one send at a time. */
void rpc_call_pump(struct rpc_call *call)
{
    grpc_op ops[3] = {0};
    grpc_slice text = grpc_empty_slice();
    size_t count = 0;

    if (call->sending || call->finish_sent || call->is_closed)
        return;
    if (!call->headers_sent)
        ops[count++].op = GRPC_OP_SEND_INITIAL_METADATA;
    if (call->first) {
        call->flying = call->first;
        call->first = call->flying->next;
        if (!call->first)
            call->last = NULL;
        ops[count].op = GRPC_OP_SEND_MESSAGE;
        ops[count++].data.send_message.send_message = call->flying->buffer;
    }
    if (call->finish_asked && !call->first)
        batch_status(call, &ops[count++], &text);
    if (count) {
        call->headers_sent = true;
        call->sending = true;
        rpc_call_ref(call);
        rpc_cq_batch(&call->server->cq, call->grpc, ops, count, &call->sent);
        if (call->receive_due)
            rpc_call_receive(call);
    }
    grpc_slice_unref(text);
}

static size_t call_send_limit(const struct rpc_call *call)
{
    return call->server->options.send_queue ? call->server->options.send_queue : SEND_QUEUE;
}

void rpc_call_sent(struct rpc_tag *tag, bool ok)
{
    struct rpc_call *call = tag->owner;

    call->sending = false;
    if (call->flying) {
        call->queued -= call->flying->size;
        outgoing_free(call->flying);
        call->flying = NULL;
    }
    if (!ok)
        call_drop_queue(call); /* the connection is gone: the close notice is on its way */
    else
        rpc_call_pump(call);
    if (ok && call->wants_room && !rpc_call_over(call) && call->queued <= call_send_limit(call) / 2) {
        call->wants_room = false;
        if (call->method->on_sendable)
            call->method->on_sendable(call);
    }
    rpc_call_unref(call);
}

static enum err_code call_queue(struct rpc_call *call, const void *message, struct err *e)
{
    struct outgoing *item;
    grpc_byte_buffer *buffer;
    size_t size;

    BUG_ON(((const ProtobufCMessage *)message)->descriptor != call->shape->output);
    if (rpc_pack_buffer(message, &buffer, &size, e))
        return e->code;
    /* One message always fits an empty queue, however large it is. */
    if (call->queued && call->queued + size > call_send_limit(call)) {
        grpc_byte_buffer_destroy(buffer);
        call->wants_room = true;
        return err_set(e, ERR_RESOURCE_EXHAUSTED, "the client reads too slowly");
    }
    item = xcalloc(1, sizeof(*item));
    item->buffer = buffer;
    item->size = size + sizeof(*item); /* so that empty messages fill the queue, too */
    call->queued += item->size;
    if (call->last)
        call->last->next = item;
    else
        call->first = item;
    call->last = item;
    return ERR_OK;
}

enum err_code rpc_call_send(struct rpc_call *call, const void *message, struct err *e)
{
    if (rpc_call_over(call))
        return err_set(e, ERR_CANCELLED, "the call is over");
    if (call_queue(call, message, e))
        return e->code;
    rpc_call_pump(call);
    return ERR_OK;
}

size_t rpc_call_queued(const struct rpc_call *call)
{
    return call->queued;
}

static void call_set_status(struct rpc_call *call, int status, const char *text)
{
    if (rpc_call_over(call))
        return;
    call->finish_asked = true;
    call->status = status;
    call->status_text = text ? rpc_utf8_clean(xstrdup(text)) : NULL;
    rpc_call_pump(call);
}

void rpc_call_finish(struct rpc_call *call)
{
    call_set_status(call, ERR_OK, NULL);
}

void rpc_call_reply(struct rpc_call *call, const void *message)
{
    struct err e;

    if (rpc_call_over(call))
        return;
    if (call_queue(call, message, &e)) {
        log_error("reply_not_sent", "rpc=%s why=%s", call->method->name, LOG_Q(e.msg));
        rpc_call_fail(call, &e);
        return;
    }
    rpc_call_finish(call);
}

void rpc_call_fail(struct rpc_call *call, const struct err *status)
{
    BUG_ON(status->code == ERR_OK);
    call_set_status(call, rpc_status_code(status), status->msg);
}

void rpc_call_fail_with(struct rpc_call *call, enum err_code code, const char *fmt, ...)
{
    struct err e = {.code = code};
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(e.msg, sizeof(e.msg), fmt, ap);
    va_end(ap);
    rpc_call_fail(call, &e);
}

void rpc_call_drain(struct rpc_call *call)
{
    if (call->method && (call->method->kind != RPC_UNARY || call->method->waits))
        rpc_call_fail_with(call, ERR_UNAVAILABLE, "draining");
}

/* ---- receiving ---- */

void rpc_call_start(struct rpc_call *call, const void *request)
{
    if (call->server->is_draining)
        rpc_call_drain(call);
    if (rpc_call_over(call))
        return;
    call->started = true;
    call->method->on_start(call, request, call->service->user);
}

static void call_take_message(struct rpc_call *call)
{
    struct err e;
    void *message;

    if (rpc_unpack_buffer(call->shape->input, &call->incoming, &message, &e)) {
        rpc_call_fail(call, &e);
    } else if (call->method->kind == RPC_BIDI) {
        rpc_server_receive_later(call);
        call->method->on_message(call, message);
        rpc_free(message);
    } else {
        call->request = message;
        rpc_call_start(call, message);
    }
}

void rpc_call_received(struct rpc_tag *tag, bool ok)
{
    struct rpc_call *call = tag->owner;

    call->receiving = false;
    if (rpc_call_over(call)) {
        /* The call is over; call_free drops the bytes. */
    } else if (ok && call->incoming) {
        call_take_message(call);
    } else if (call->method->kind != RPC_BIDI) {
        rpc_call_fail_with(call, ERR_INVALID_ARGUMENT, "the call has no request");
        /* Without a failure no message means that the client has closed its side. */
    } else if (!grpc_call_failed_before_recv_message(call->grpc)) {
        call->method->on_message(call, NULL);
    }
    rpc_call_unref(call);
}

void rpc_call_receive(struct rpc_call *call)
{
    grpc_op op = {.op = GRPC_OP_RECV_MESSAGE, .data.recv_message.recv_message = &call->incoming};

    if (call->receiving || rpc_call_over(call))
        return;
    call->receive_due = false;
    call->receiving = true;
    rpc_call_ref(call);
    rpc_cq_batch(&call->server->cq, call->grpc, &op, 1, &call->received);
}

void rpc_call_closed(struct rpc_tag *tag, bool ok)
{
    struct rpc_call *call = tag->owner;
    struct rpc_server *server = call->server;

    (void)ok;
    call->is_closed = true;
    call_drop_queue(call);
    if (call->next)
        call->next->prev = call->prev;
    if (call->prev)
        call->prev->next = call->next;
    else
        server->calls = call->next;
    server->live_count--;
    if (call->started && call->method->on_end)
        call->method->on_end(call, call->was_cancelled != 0);
    rpc_server_quiet(server);
    rpc_call_unref(call);
}

/* ---- what handlers can ask ---- */

bool rpc_call_over(const struct rpc_call *call)
{
    return call->finish_asked || call->is_closed;
}

int64_t rpc_call_remaining_ms(const struct rpc_call *call)
{
    return rpc_deadline_left_ms(call->deadline);
}

const struct rpc_peer *rpc_call_peer(const struct rpc_call *call)
{
    return &call->peer;
}

const struct rpc_method *rpc_call_method(const struct rpc_call *call)
{
    return call->method;
}

void *rpc_call_service_user(const struct rpc_call *call)
{
    return call->service->user;
}

void rpc_call_set_user(struct rpc_call *call, void *user)
{
    call->user = user;
}

void *rpc_call_user(const struct rpc_call *call)
{
    return call->user;
}

void rpc_call_set_identity(struct rpc_call *call, void *identity, void (*release)(void *identity))
{
    if (call->identity_release)
        call->identity_release(call->identity);
    call->identity = identity;
    call->identity_release = release;
}

void *rpc_call_identity(const struct rpc_call *call)
{
    return call->identity;
}
