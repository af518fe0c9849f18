#include "proto/rpc_session.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "proto/rpc_link.h"
#include "proto/rpc_status.h"

/* A bidirectional stream on a loop. At most five operations are outstanding: the opening, the server's
 * headers, one read, one write, the status. The session ends when all of them have completed, in whatever
 * order. */

#define SEND_QUEUE ((size_t)256 * 1024)

struct item {
    struct item *next;
    grpc_byte_buffer *buffer;
    size_t size;
};

struct rpc_client {
    struct rpc_link link;
    struct rpc_cq *cq;
    struct rpc_client *beside; /* the client that owns the queue; NULL: this one */
    unsigned followers;        /* clients that share our queue */
    struct rpc_session *sessions;
    unsigned ending; /* sessions in their on_end */
    bool closing;
    void (*on_closed)(void *user);
    void *closed_user;
};

struct rpc_session {
    struct rpc_client *client;
    struct rpc_session *prev, *next;
    const ProtobufCMethodDescriptor *shape;
    const struct rpc_session_events *events;
    void *user;
    grpc_call *grpc;
    struct rpc_tag opened, headed, received, sent, ended;
    unsigned out; /* operations */
    bool sending, asked, close_asked, close_sent, has_ended, wants_room;
    struct item *first, *last, *flying;
    size_t queued, limit;
    grpc_byte_buffer *incoming;
    struct rpc_result result;
};

static void client_try_end(struct rpc_client *client);

static void item_free(struct item *item)
{
    grpc_byte_buffer_destroy(item->buffer);
    free(item);
}

static void session_drop_queue(struct rpc_session *session)
{
    while (session->first) {
        struct item *item = session->first;

        session->first = item->next;
        session->queued -= item->size;
        item_free(item);
    }
    session->last = NULL;
}

static void session_start(struct rpc_session *session, const grpc_op *ops, size_t count, struct rpc_tag *tag)
{
    session->out++;
    rpc_cq_batch(session->client->cq, session->grpc, ops, count, tag);
}

/* An operation has completed; the last one ends the session. */
static void session_home(struct rpc_session *session)
{
    struct rpc_client *client = session->client;
    struct err status;

    if (--session->out)
        return;
    session_drop_queue(session);
    if (session->next)
        session->next->prev = session->prev;
    if (session->prev)
        session->prev->next = session->next;
    else
        client->sessions = session->next;
    (void)rpc_result_read(&session->result, session->asked, &status);
    if (session->incoming)
        grpc_byte_buffer_destroy(session->incoming);
    rpc_result_release(&session->result);
    grpc_call_unref(session->grpc); /* before on_end, which may close the client */
    client->ending++; /* on_end may close the client, which must not be freed before it returns */
    session->events->on_end(session, &status, session->user);
    client->ending--;
    free(session);
    client_try_end(client);
}

static bool session_over(const struct rpc_session *session)
{
    return session->has_ended || session->asked;
}

static void session_receive(struct rpc_session *session)
{
    grpc_op op = {.op = GRPC_OP_RECV_MESSAGE, .data.recv_message.recv_message = &session->incoming};

    session_start(session, &op, 1, &session->received);
}

static void session_received(struct rpc_tag *tag, bool ok)
{
    struct rpc_session *session = tag->owner;
    struct err e;
    void *message;

    if (ok && session->incoming && !session->asked) {
        if (rpc_unpack_buffer(session->shape->output, &session->incoming, &message, &e)) {
            grpc_call_cancel_with_status(session->grpc, GRPC_STATUS_INTERNAL, e.msg, NULL);
        } else {
            session->events->on_message(session, message, session->user);
            rpc_free(message);
            session_receive(session);
        }
    }
    session_home(session);
}

static void session_pump(struct rpc_session *session)
{
    grpc_op op = {0};

    if (session->sending || session_over(session))
        return;
    if (session->first) {
        session->flying = session->first;
        session->first = session->flying->next;
        if (!session->first)
            session->last = NULL;
        op.op = GRPC_OP_SEND_MESSAGE;
        op.data.send_message.send_message = session->flying->buffer;
    } else if (session->close_asked && !session->close_sent) {
        session->close_sent = true;
        op.op = GRPC_OP_SEND_CLOSE_FROM_CLIENT;
    } else {
        return;
    }
    session->sending = true;
    session_start(session, &op, 1, &session->sent);
}

static void session_sent(struct rpc_tag *tag, bool ok)
{
    struct rpc_session *session = tag->owner;

    session->sending = false;
    if (session->flying) {
        session->queued -= session->flying->size;
        item_free(session->flying);
        session->flying = NULL;
    }
    if (!ok)
        session_drop_queue(session); /* the connection is gone; the status follows */
    else
        session_pump(session);
    if (ok && session->wants_room && !session_over(session) && session->queued <= session->limit / 2) {
        session->wants_room = false;
        if (session->events->on_sendable)
            session->events->on_sendable(session, session->user);
    }
    session_home(session);
}

static void session_opened(struct rpc_tag *tag, bool ok)
{
    struct rpc_session *session = tag->owner;

    session->sending = false;
    if (ok)
        session_pump(session);
    session_home(session);
}

static void session_headed(struct rpc_tag *tag, bool ok)
{
    struct rpc_session *session = tag->owner;

    /* gRPC makes up headers for a refused stream, too: the stream is open only if no status has come. */
    if (ok && !session_over(session) && session->events->on_open)
        session->events->on_open(session, session->user);
    session_home(session);
}

static void session_ended(struct rpc_tag *tag, bool ok)
{
    struct rpc_session *session = tag->owner;

    (void)ok;
    session->has_ended = true;
    session_home(session);
}

static void session_tag_init(struct rpc_tag *tag, struct rpc_session *session,
                             void (*done)(struct rpc_tag *tag, bool ok))
{
    tag->owner = session;
    tag->done = done;
}

struct rpc_session *rpc_session_start(struct rpc_client *client, const ProtobufCServiceDescriptor *service,
                                      const char *method, size_t send_queue,
                                      const struct rpc_session_events *events, void *user)
{
    struct rpc_session *session = xcalloc(1, sizeof(*session));
    grpc_op open = {0}, end[2] = {0};
    grpc_metadata token;

    BUG_ON(client->closing);
    if (!client->sessions)
        rpc_link_refresh(&client->link);
    session->client = client;
    session->shape = rpc_link_method(service, method, NULL);
    session->events = events;
    session->user = user;
    session->limit = send_queue ? send_queue : SEND_QUEUE;
    session->grpc = rpc_link_call(&client->link, client->cq->queue, service, method, rpc_deadline(-1));
    session_tag_init(&session->opened, session, session_opened);
    session_tag_init(&session->headed, session, session_headed);
    session_tag_init(&session->received, session, session_received);
    session_tag_init(&session->sent, session, session_sent);
    session_tag_init(&session->ended, session, session_ended);
    session->next = client->sessions;
    if (session->next)
        session->next->prev = session;
    client->sessions = session;
    rpc_result_init(&session->result);
    rpc_result_ops(&session->result, end);
    rpc_link_headers(&client->link, &open, &token, 0);
    session->sending = true; /* until the headers are out */
    session_start(session, &open, 1, &session->opened);
    session_start(session, &end[0], 1, &session->headed);
    session_start(session, &end[1], 1, &session->ended);
    session_receive(session);
    return session;
}

enum err_code rpc_session_send(struct rpc_session *session, const void *message, struct err *e)
{
    struct item *item;
    grpc_byte_buffer *buffer;
    size_t size;

    BUG_ON(((const ProtobufCMessage *)message)->descriptor != session->shape->input);
    if (session_over(session) || session->close_asked)
        return err_set(e, ERR_CANCELLED, "the session is over");
    if (rpc_pack_buffer(message, &buffer, &size, e))
        return e->code;
    if (session->queued && session->queued + size > session->limit) {
        grpc_byte_buffer_destroy(buffer);
        session->wants_room = true;
        return err_set(e, ERR_RESOURCE_EXHAUSTED, "the server reads too slowly");
    }
    item = xcalloc(1, sizeof(*item));
    item->buffer = buffer;
    item->size = size + sizeof(*item); /* so that empty messages fill the queue, too */
    session->queued += item->size;
    if (session->last)
        session->last->next = item;
    else
        session->first = item;
    session->last = item;
    session_pump(session);
    return ERR_OK;
}

size_t rpc_session_queued(const struct rpc_session *session)
{
    return session->queued;
}

void rpc_session_close_send(struct rpc_session *session)
{
    session->close_asked = true;
    session_pump(session);
}

void rpc_session_cancel(struct rpc_session *session)
{
    session->asked = true;
    grpc_call_cancel(session->grpc, NULL);
}

/* ---- the client ---- */

/* Returns NULL and sets *e on failure. */
static struct rpc_client *client_make(const char *target, const struct rpc_channel_options *options,
                                      struct err *e)
{
    struct rpc_client *client = xcalloc(1, sizeof(*client));

    if (rpc_link_open(&client->link, target, options, e) == ERR_OK)
        return client;
    free(client);
    return NULL;
}

enum err_code rpc_client_open(struct rpc_client **out, struct uv_loop_s *loop, const char *target,
                              const struct rpc_channel_options *options, struct err *e)
{
    struct rpc_client *client = client_make(target, options, e);

    if (!client)
        return e->code;
    rpc_grpc_enter(false); /* for the queue, which outlives the link */
    client->cq = xcalloc(1, sizeof(*client->cq));
    rpc_cq_init(client->cq);
    rpc_cq_start(client->cq, loop);
    *out = client;
    return ERR_OK;
}

enum err_code rpc_client_open_beside(struct rpc_client **out, struct rpc_client *beside, const char *target,
                                     const struct rpc_channel_options *options, struct err *e)
{
    struct rpc_client *client;

    BUG_ON(beside->closing || beside->beside);
    client = client_make(target, options, e);
    if (!client)
        return e->code;
    client->cq = beside->cq;
    client->beside = beside;
    beside->followers++;
    *out = client;
    return ERR_OK;
}

static void client_gone(struct rpc_client *client)
{
    void (*on_closed)(void *user) = client->on_closed;
    void *user = client->closed_user;

    free(client);
    if (on_closed)
        on_closed(user);
}

static void client_queue_closed(void *user)
{
    struct rpc_client *client = user;

    free(client->cq);
    rpc_grpc_leave();
    client_gone(client);
}

static void client_try_end(struct rpc_client *client)
{
    struct rpc_client *beside = client->beside;

    if (!client->closing || client->sessions || client->followers || client->ending || !client->link.grpc)
        return;
    rpc_link_close(&client->link);
    if (!beside) {
        rpc_cq_close(client->cq, client_queue_closed, client);
        return;
    }
    client_gone(client);
    beside->followers--;
    client_try_end(beside);
}

void rpc_client_close(struct rpc_client *client, void (*on_closed)(void *user), void *user)
{
    struct rpc_session *session;

    BUG_ON(client->closing);
    client->closing = true;
    client->on_closed = on_closed;
    client->closed_user = user;
    for (session = client->sessions; session; session = session->next)
        rpc_session_cancel(session);
    client_try_end(client);
}
