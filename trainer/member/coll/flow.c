/* A call is one incoming and one outgoing byte stream. Each is a list of pieces of the caller's memory: a header
 * (which call the sender believes this is), then data. A piece to send is this rank's own data, or data that this
 * call receives, of which each byte can be sent as soon as it was received (and added). There is no other order between the two
 * streams, so both directions stay busy, and no step waits for the end of a message.
 *
 * Failure: end of file or reset on either socket. A rank that sees a failure ends its group, which shuts all of its
 * sockets down, so the failure reaches its peers at once. The socket to the next rank carries no data backwards: if it
 * is readable, it is closed, and if there is something left to send, that means that the peer has died. */
#include "trainer/member/coll/flow.h"
#include "trainer/member/coll/listener.h"

#include "base/clock.h"
#include "base/mem.h"
#include "trainer/member/coll/busy_poll.h"
#include "trainer/member/coll/half.h"
#include "trainer/member/coll/send_buffer.h"
#include "trainer/member/coll/shm.h"
#include "trainer/member/coll/sum.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#define SCRATCH (256u * 1024)
#define SEND_MOST (512u * 1024) /* at a time, so that receiving goes on in between */
#define MAGIC 0x64647072u

struct header {
    uint32_t magic, kind;
    uint64_t sequence, size;
};

struct piece {
    char *data;
    size_t size;
    size_t from; /* to send: the incoming position of its first byte, or FLOW_OWN */
    enum flow_use use;
};

/* One direction: the pieces of a call, and the current position. */
struct stream {
    struct piece *pieces;
    size_t count, cap, at;
    size_t offset;      /* position in pieces[at] */
    size_t done, total; /* bytes done, and bytes of all pieces, including the header */
};

struct flow {
    int out, in;
    uint64_t sequence;
    struct header mine, theirs;
    struct stream send, receive;
    char *scratch;
    size_t carry; /* bytes of an incomplete element, at the start of scratch */
    struct pollfd *poll;
    int polled;
    struct busy_poll busy;
};

/* ---- the plan of a call */

static void stream_add(struct stream *s, const struct piece *p)
{
    if (!p->size)
        return;
    s->pieces = array_grow(s->pieces, s->count, &s->cap, sizeof(*s->pieces));
    s->pieces[s->count++] = *p;
    s->total += p->size;
}

static void stream_start(struct stream *s)
{
    *s = (struct stream){.pieces = s->pieces, .cap = s->cap};
}

void flow_start(struct flow *f, enum flow_kind kind, uint64_t size)
{
    f->mine = (struct header){MAGIC, (uint32_t)kind, f->sequence++, size};
    stream_start(&f->send);
    stream_start(&f->receive);
    f->carry = 0;
    flow_send(f, &f->mine, sizeof(f->mine), FLOW_OWN);
    flow_receive(f, &f->theirs, sizeof(f->theirs), FLOW_STORE);
}

void flow_send(struct flow *f, const void *data, size_t size, size_t from)
{
    stream_add(&f->send, &(struct piece){.data = (void *)(uintptr_t)data, .size = size, .from = from});
}

size_t flow_receive(struct flow *f, void *data, size_t size, enum flow_use use)
{
    const size_t position = f->receive.total;

    stream_add(&f->receive, &(struct piece){.data = data, .size = size, .use = use});
    return position;
}

/* ---- sending */

/* How many of the piece's bytes this rank has. */
static size_t piece_ready(const struct flow *f, const struct piece *p)
{
    size_t got;

    if (p->from == FLOW_OWN)
        return p->size;
    got = f->receive.done > p->from ? f->receive.done - p->from : 0;
    return got < p->size ? got : p->size;
}

static bool flow_can_send(const struct flow *f)
{
    return f->send.at < f->send.count && piece_ready(f, &f->send.pieces[f->send.at]) > f->send.offset;
}

static void stream_advance(struct stream *s, size_t n)
{
    s->done += n;
    while (n) {
        size_t left = s->pieces[s->at].size - s->offset, part = n < left ? n : left;

        s->offset += part;
        n -= part;
        if (s->offset == s->pieces[s->at].size) {
            s->at++;
            s->offset = 0;
        }
    }
}

/* Sends as much as possible. Returns 1 if it sent something, 0 if it could not send now, -1 if the peer is
 * gone. */
static int send_some(struct flow *f)
{
    size_t most = SEND_MOST, offset = f->send.offset;
    struct iovec iov[2];
    struct msghdr m = {.msg_iov = iov};
    ssize_t n;

    /* At most two pieces at a time: the rest of the current one, and the next one if the current one is complete. */
    for (size_t i = f->send.at; most && m.msg_iovlen < 2 && i < f->send.count; i++, offset = 0) {
        const struct piece *p = &f->send.pieces[i];
        const size_t ready = piece_ready(f, p) - offset, size = ready < most ? ready : most;

        if (size)
            iov[m.msg_iovlen++] = (struct iovec){p->data + offset, size};
        if (offset + size < p->size)
            break;
        most -= size;
    }
    if (!m.msg_iovlen)
        return 0;
    n = sendmsg(f->out, &m, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0)
        return errno == EAGAIN || errno == EINTR ? 0 : -1;
    stream_advance(&f->send, (size_t)n);
    return 1;
}

/* ---- receiving */

/* Adds the whole elements in scratch, and keeps the bytes of an incomplete last one. */
static void add_scratch(struct flow *f, size_t n)
{
    struct piece *p = &f->receive.pieces[f->receive.at];
    size_t element = device_size(p->use == FLOW_ADD_BF16 ? DEVICE_BF16 : DEVICE_F32);
    size_t have = f->carry + n, whole = have & ~(element - 1);
    char *to = p->data + f->receive.offset;

    if (p->use == FLOW_ADD_BF16)
        half_add(to, f->scratch, whole / element);
    else
        coll_add((float *)(void *)to, (const float *)(const void *)f->scratch, whole / element);
    f->carry = have - whole;
    memmove(f->scratch, f->scratch + whole, f->carry);
    stream_advance(&f->receive, whole);
}

/* At most two pieces at a time, of which one goes through scratch. */
static int receive_target(struct flow *f, struct iovec iov[2])
{
    size_t offset = f->receive.offset;
    bool scratch = false;
    int n = 0;

    for (size_t i = f->receive.at; n < 2 && i < f->receive.count; i++, offset = 0) {
        struct piece *p = &f->receive.pieces[i];
        const bool store = p->use == FLOW_STORE;
        const size_t carry = store || n ? 0 : f->carry, left = p->size - offset - carry;

        if (store) {
            iov[n++] = (struct iovec){p->data + offset, left};
            continue;
        }
        if (scratch)
            break;
        scratch = true;
        iov[n++] = (struct iovec){f->scratch + carry, left < SCRATCH - carry ? left : SCRATCH - carry};
        if (left > SCRATCH - carry)
            break;
    }
    return n;
}

static int receive_some(struct flow *f)
{
    struct iovec iov[2];
    int count = receive_target(f, iov);
    ssize_t n = count ? readv(f->in, iov, count) : 0;
    size_t left;

    if (!count)
        return 0;
    if (n < 0)
        return errno == EAGAIN || errno == EINTR ? 0 : -1;
    /* End of file in the middle of a call: the peer died, or left the group. */
    if (n == 0)
        return -1;
    left = (size_t)n;
    for (int i = 0; i < count && left; i++) {
        size_t part = left < iov[i].iov_len ? left : iov[i].iov_len;

        if (f->receive.pieces[f->receive.at].use != FLOW_STORE)
            add_scratch(f, part);
        else
            stream_advance(&f->receive, part);
        left -= part;
    }
    return 1;
}

/* ---- running */

static enum err_code flow_peer_gone(struct coll_group *g, struct err *e)
{
    coll_fail(g);
    return coll_stopped(e);
}

/* The peers on this node are watched, too: if one of them dies, the group ends. */
static enum err_code wait_ready(struct coll_group *g, struct flow *f, struct err *e)
{
    bool blocked = flow_can_send(f), sending = f->send.done < f->send.total;
    int64_t start = clock_mono_ns();

    f->poll[1] = (struct pollfd){.fd = f->receive.done < f->receive.total ? f->in : -1, .events = POLLIN};
    f->poll[2] =
        (struct pollfd){.fd = sending ? f->out : -1, .events = (short)(blocked ? POLLIN | POLLOUT : POLLIN)};
    if (busy_poll(&f->busy, f->poll, (nfds_t)f->polled) < 0 && errno != EINTR)
        return err_sys(e, errno == EINVAL ? EMFILE : errno, "poll"); /* EINVAL: more than ulimit -n */
    g->wait_ns += (uint64_t)(clock_mono_ns() - start);
    if (f->poll[0].revents)
        return flow_peer_gone(g, e);
    for (int i = 3; i < f->polled; i++)
        if (f->poll[i].revents)
            return flow_peer_gone(g, e);
    return f->poll[2].revents & POLLIN ? flow_peer_gone(g, e) : ERR_OK;
}

static enum err_code check_header(struct coll_group *g, const struct flow *f, struct err *e)
{
    const struct header *a = &f->mine, *b = &f->theirs;

    if (!memcmp(a, b, sizeof(*a)))
        return ERR_OK;
    coll_fail(g);
    return err_set(
        e, ERR_FAILED_PRECONDITION,
        "ranks exchange different things: this one makes call %llu (kind %u, size %llu), the rank before it call %llu (kind %u, "
        "size %llu); if all nodes have the same version of ddp, this is a bug",
        (unsigned long long)a->sequence, a->kind, (unsigned long long)a->size,
        (unsigned long long)b->sequence, b->kind, (unsigned long long)b->size);
}

enum err_code flow_run(struct coll_group *g, struct flow *f, struct err *e)
{
    bool checked = false;

    while (f->send.done < f->send.total || f->receive.done < f->receive.total) {
        int sent = send_some(f), got = receive_some(f);

        if (sent < 0 || got < 0 || atomic_load(&g->stop.set))
            return flow_peer_gone(g, e);
        /* The header is checked before the call can end, so ranks in different calls get an error and not
         * wrong sums. */
        if (!checked && f->receive.done >= sizeof(struct header)) {
            if (check_header(g, f, e))
                return e->code;
            checked = true;
        }
        if (!sent && !got && wait_ready(g, f, e))
            return e->code;
    }
    g->bytes += f->send.total;
    return ERR_OK;
}

/* ---- forming */

static void flow_set_poll(struct flow *f, struct coll_group *g)
{
    int links;
    const int *fds = shm_links(g, &links);

    f->polled = 3 + links;
    f->poll = xcalloc((size_t)f->polled, sizeof(*f->poll));
    f->poll[0] = (struct pollfd){.fd = g->stop.event, .events = POLLIN};
    for (int i = 0; i < links; i++)
        f->poll[3 + i] = (struct pollfd){.fd = fds[i], .events = POLLIN};
}

struct flow *flow_over(struct coll_group *g, int out, int in)
{
    struct flow *f = xcalloc(1, sizeof(*f));

    f->out = out;
    f->in = in;
    if (out >= 0)
        f->busy.on = send_buffer_limit(out);
    f->scratch = xmalloc(SCRATCH);
    flow_set_poll(f, g);
    return f;
}

enum err_code flow_open(struct flow **out, struct coll_group *g, const struct flow_config *c, struct err *e)
{
    int to = -1, from = -1;
    struct coll_handshake meet = {
        .group = g,
        .purpose = c->purpose,
        .listener = coll_listener_tcp(c->listener),
        .to = &c->to,
        .out = &to,
        .to_count = 1,
        .from = &c->from,
        .in = &from,
        .from_count = 1,
        .deadline = c->deadline,
    };
    enum err_code rc = coll_handshake_run(&meet, e);

    /* If one connection failed, the other one is closed with the flow. */
    *out = flow_over(g, to, from);
    return rc;
}

void flow_abort(struct flow *f)
{
    if (f && f->out >= 0)
        shutdown(f->out, SHUT_RDWR);
    if (f && f->in >= 0)
        shutdown(f->in, SHUT_RDWR);
}

bool flow_is_short(const struct flow *f)
{
    return f->busy.on;
}

void flow_ends(const struct flow *f, int fds[2])
{
    fds[0] = f->out;
    fds[1] = f->in;
}

void flow_close(struct flow *f)
{
    if (!f)
        return;
    close_fd(&f->out);
    close_fd(&f->in);
    free(f->send.pieces);
    free(f->receive.pieces);
    free(f->scratch);
    free(f->poll);
    free(f);
}
