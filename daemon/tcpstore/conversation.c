#include "daemon/tcpstore/conversation.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

enum { STOP_WAITING = 0, WAIT_CANCELED = 1, READY = 0, NOT_READY = 1 }; /* replies of one byte */
enum { IN_KEEP = 64 << 10 }; /* a larger buffer is freed when its request has been obeyed */

static void reply_number(struct tcpstore_conversation *c, int64_t number)
{
    buf_append(&c->out, &number, sizeof(number));
}

static void reply_piece(struct tcpstore_conversation *c, struct tcpstore_piece piece)
{
    uint64_t size = piece.size;

    buf_append(&c->out, &size, sizeof(size));
    if (piece.size)
        buf_append(&c->out, piece.data, piece.size);
}

static void reply_popped(struct tcpstore_conversation *c, struct tcpstore_table *t, struct tcpstore_piece key)
{
    size_t size;

    reply_number(c, tcpstore_queue_length(t, key));
    void *data = tcpstore_pop(t, key, &size);
    if (data)
        reply_piece(c, (struct tcpstore_piece){data, size});
    free(data);
}

static enum err_code reply_values(struct tcpstore_conversation *c, const struct tcpstore_table *t,
                                  const struct tcpstore_request *r, struct err *e)
{
    struct tcpstore_piece list = r->list;
    size_t size = 0;

    for (uint64_t i = 0; i < r->count; i++) {
        size += sizeof(uint64_t) + tcpstore_get(t, tcpstore_list_take(&list)).size;
        /* a short request can name a large value many times */
        if (size > (size_t)TCPSTORE_REQUEST_MAX)
            return err_set(e, ERR_INVALID_ARGUMENT, "MULTI_GET: the values have more than %d bytes in all",
                           TCPSTORE_REQUEST_MAX);
    }
    buf_reserve(&c->out, size);
    list = r->list;
    for (uint64_t i = 0; i < r->count; i++)
        reply_piece(c, tcpstore_get(t, tcpstore_list_take(&list)));
    return ERR_OK;
}

static void add_key_size(void *ctx, struct tcpstore_piece key)
{
    *(size_t *)ctx += sizeof(uint64_t) + key.size;
}

static void reply_key(void *ctx, struct tcpstore_piece key)
{
    reply_piece(ctx, key);
}

static enum err_code reply_keys(struct tcpstore_conversation *c, const struct tcpstore_table *t,
                                struct err *e)
{
    size_t size = 0;

    tcpstore_each_key(t, add_key_size, &size);
    if (size > (size_t)TCPSTORE_REQUEST_MAX)
        return err_set(e, ERR_INVALID_ARGUMENT, "LIST_KEYS: the keys have more than %d bytes in all",
                       TCPSTORE_REQUEST_MAX);
    buf_reserve(&c->out, sizeof(int64_t) + size);
    reply_number(c, tcpstore_key_count(t));
    tcpstore_each_key(t, reply_key, c);
    return ERR_OK;
}

static enum err_code pairs_set(struct tcpstore_table *t, const struct tcpstore_request *r, struct err *e)
{
    struct tcpstore_piece list = r->list;

    for (uint64_t i = 0; i < r->count; i++) {
        struct tcpstore_piece key = tcpstore_list_take(&list), value = tcpstore_list_take(&list);

        if (tcpstore_set(t, key, value, e))
            return e->code;
    }
    return ERR_OK;
}

static enum err_code keys_await(struct tcpstore_conversation *c, struct tcpstore_table *t,
                                const struct tcpstore_request *r, struct err *e)
{
    if (!tcpstore_all_there(t, r->list, r->count))
        return tcpstore_wait(t, &c->waiter, r->list, r->count, e);
    buf_putc(&c->out, STOP_WAITING);
    return ERR_OK;
}

static enum err_code request_obey(struct tcpstore_conversation *c, struct tcpstore_table *t,
                                  const struct tcpstore_request *r, struct err *e)
{
    struct tcpstore_piece value;
    bool complete;
    int64_t sum;

    switch (r->command) {
    case TCPSTORE_VALIDATE:
        return ERR_OK;
    case TCPSTORE_SET:
        return tcpstore_set(t, r->key, r->value, e);
    case TCPSTORE_APPEND:
        return tcpstore_append(t, r->key, r->value, e);
    case TCPSTORE_MULTI_SET:
        return pairs_set(t, r, e);
    case TCPSTORE_QUEUE_PUSH:
        return tcpstore_push(t, r->key, r->value, e);
    case TCPSTORE_WAIT:
        return keys_await(c, t, r, e);
    case TCPSTORE_MULTI_GET:
        return reply_values(c, t, r, e);
    case TCPSTORE_COMPARE_SET:
        if (tcpstore_compare_set(t, r->key, r->expected, r->value, &value, e))
            return e->code;
        reply_piece(c, value);
        return ERR_OK;
    case TCPSTORE_ADD:
        if (tcpstore_add(t, r->key, r->number, &sum, e))
            return e->code;
        reply_number(c, sum);
        return ERR_OK;
    case TCPSTORE_GET: /* clients wait for a key before they get it, so a missing one was deleted in between */
        reply_piece(c, tcpstore_get(t, r->key));
        return ERR_OK;
    case TCPSTORE_CHECK:
        buf_putc(&c->out, tcpstore_all_there(t, r->list, r->count) ? READY : NOT_READY);
        return ERR_OK;
    case TCPSTORE_CANCEL_WAIT:
        buf_putc(&c->out, WAIT_CANCELED);
        return ERR_OK;
    case TCPSTORE_GETNUMKEYS:
        reply_number(c, tcpstore_key_count(t));
        return ERR_OK;
    case TCPSTORE_DELETE_KEY:
        reply_number(c, tcpstore_delete(t, r->key));
        return ERR_OK;
    case TCPSTORE_PING:
        buf_append(&c->out, &r->number, 4);
        return ERR_OK;
    case TCPSTORE_QUEUE_POP:
        reply_popped(c, t, r->key);
        return ERR_OK;
    case TCPSTORE_LIST_KEYS:
        return reply_keys(c, t, e);
    case TCPSTORE_BARRIER:
        if (tcpstore_barrier(t, &c->waiter, r->key, r->number, &complete, e))
            return e->code;
        if (complete)
            buf_putc(&c->out, STOP_WAITING);
        return ERR_OK;
    case TCPSTORE_QUEUE_LEN:
        reply_number(c, tcpstore_queue_length(t, r->key));
        return ERR_OK;
    }
    return err_set(e, ERR_INTERNAL, "unknown command %d", (int)r->command);
}

static size_t values_size(const struct tcpstore_table *t, const struct tcpstore_request *r)
{
    struct tcpstore_piece list = r->list;
    size_t size = 0;

    for (uint64_t i = 0; i < r->count; i++)
        size += sizeof(uint64_t) + tcpstore_get(t, tcpstore_list_take(&list)).size;
    return size;
}

/* An upper bound of the bytes of the reply, for the requests whose reply can be large; 0 for the others. */
static size_t reply_bound(const struct tcpstore_table *t, const struct tcpstore_request *r)
{
    size_t size = 0;

    switch (r->command) {
    case TCPSTORE_GET:
        return sizeof(uint64_t) + tcpstore_get(t, r->key).size;
    case TCPSTORE_MULTI_GET:
        return values_size(t, r);
    case TCPSTORE_COMPARE_SET: /* the reply is one of these three */
        return sizeof(uint64_t) + tcpstore_get(t, r->key).size + r->expected.size + r->value.size;
    case TCPSTORE_QUEUE_POP:
        return 2 * sizeof(uint64_t) + tcpstore_queue_first(t, r->key).size;
    case TCPSTORE_LIST_KEYS:
        tcpstore_each_key(t, add_key_size, &size);
        return sizeof(int64_t) + size;
    default:
        return 0;
    }
}

static bool reply_must_wait(const struct tcpstore_table *t, const struct tcpstore_request *r, size_t room)
{
    size_t size;

    if (room >= (size_t)TCPSTORE_REQUEST_MAX) /* no reply is larger */
        return false;
    size = reply_bound(t, r);
    /* a reply above the limit of its command is never built, so it need not wait for room */
    return size > TCPSTORE_OUT_PAUSE && size > room && size <= (size_t)TCPSTORE_REQUEST_MAX;
}

enum err_code tcpstore_converse(struct tcpstore_conversation *c, struct tcpstore_table *t, size_t room,
                                struct err *e)
{
    enum err_code code = ERR_OK;
    struct tcpstore_request r;
    size_t done = 0, used = 1;

    c->held = false;
    while (!code && used && c->in.len > done && c->in.len - done >= c->parser.want &&
           c->out.len < TCPSTORE_OUT_PAUSE) {
        code = tcpstore_request_parse(&c->parser, c->in.data + done, c->in.len - done, &r, &used, e);
        if (code || !used)
            continue;
        /* A client of the plain dialect gives up waiting without a word. Its next request shows that it has, and a
         * late answer to the wait would be taken for the answer to that request. */
        tcpstore_unwait(t, &c->waiter);
        c->asked |= r.command != TCPSTORE_VALIDATE && r.command != TCPSTORE_PING;
        c->held = reply_must_wait(t, &r, room);
        if (c->held)
            break;
        code = request_obey(c, t, &r, e);
        done += used;
        c->parser.want = 1;
    }
    buf_consume(&c->in, done);
    if (!c->in.len && c->in.cap > IN_KEEP)
        buf_release(&c->in);
    return code;
}

void tcpstore_conversation_woken(void *ctx, struct tcpstore_waiter *waiter)
{
    struct tcpstore_conversation *c = (struct tcpstore_conversation *)waiter;

    (void)ctx;
    buf_putc(&c->out, STOP_WAITING);
}

void tcpstore_conversation_release(struct tcpstore_conversation *c, struct tcpstore_table *t)
{
    tcpstore_unwait(t, &c->waiter);
    buf_release(&c->in);
    buf_release(&c->out);
}
