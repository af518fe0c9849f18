/* A collective on the ring is one incoming and one outgoing byte stream. Each is a list of pieces of the
 * caller's memory: a header (which call the sender believes this is), then chunks. The data sent in step s +
 * 1 is the data received (and added) in step s. Therefore the outgoing position may be ahead of the incoming
 * one by exactly the data that this rank has at the start: its header and its first chunk. There is no other
 * order between the two streams, so both directions stay busy, and no step waits for the end of a message.
 *
 * All-reduce over N nodes: in step s node i sends chunk i - s and receives chunk i - s - 1 (mod N). In steps
 * 0 to N - 2 it adds the received data to its own; later it stores the received data. A chunk is overwritten
 * only by its final sum. The final sum has passed through this node before, so the overwritten data was sent
 * already.
 *
 * Failure: end of file or reset on either socket. A rank that sees a failure shuts down both of its sockets,
 * so the failure goes round the ring at once. The next node's socket carries no data backwards: if it is
 * readable, it is closed, and if there is something left to send, that means that the peer has died. */
#include "trainer/member/coll/ring.h"
#include "trainer/member/coll/listener.h"

#include "base/clock.h"
#include "base/mem.h"
#include "trainer/member/coll/handshake.h"
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

enum ring_kind { RING_ALLREDUCE = 1, RING_BROADCAST, RING_ALLGATHER };

struct header {
    uint32_t magic, kind;
    uint64_t sequence, size;
};

struct piece {
    char *data;
    size_t size;
    bool add; /* incoming floats are added to the floats at `data` */
};

/* One direction: the pieces of a call, and the current position. */
struct stream {
    struct piece *pieces;
    int count, at;
    size_t offset;      /* position in pieces[at] */
    size_t done, total; /* bytes done, and bytes of all pieces, including the header */
};

struct ring {
    int out, in;
    uint64_t sequence;
    struct header mine, theirs;
    struct stream send, receive;
    size_t lead; /* bytes that may be sent before anything is received */
    char *scratch;
    size_t carry; /* bytes of an incomplete float, at the start of scratch */
    struct pollfd *poll;
    int polled;
};

/* ---- the plan of a call */

static void stream_add(struct stream *s, void *data, size_t size, bool add)
{
    if (!size)
        return;
    s->pieces[s->count++] = (struct piece){data, size, add};
    s->total += size;
}

static void plan_start(struct ring *r, enum ring_kind kind, uint64_t size)
{
    r->mine = (struct header){MAGIC, (uint32_t)kind, r->sequence++, size};
    r->send = (struct stream){.pieces = r->send.pieces};
    r->receive = (struct stream){.pieces = r->receive.pieces};
    r->carry = 0;
    r->lead = sizeof(struct header);
    stream_add(&r->send, &r->mine, sizeof(r->mine), false);
    stream_add(&r->receive, &r->theirs, sizeof(r->theirs), false);
}

/* ---- sending */

static size_t ring_send_limit(const struct ring *r)
{
    size_t got = r->receive.done > sizeof(struct header) ? r->receive.done - sizeof(struct header) : 0;
    size_t limit = r->lead + got;

    return limit < r->send.total ? limit : r->send.total;
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
static int send_some(struct ring *r)
{
    size_t allowed = ring_send_limit(r) - r->send.done, offset = r->send.offset;
    struct iovec iov[2];
    struct msghdr m = {.msg_iov = iov};
    ssize_t n;

    if (allowed > SEND_MOST)
        allowed = SEND_MOST;
    /* At most two pieces at a time: the rest of the current one, and the next one. */
    for (int i = r->send.at; allowed && m.msg_iovlen < 2; i++, offset = 0) {
        const struct piece *p = &r->send.pieces[i];
        size_t size = p->size - offset < allowed ? p->size - offset : allowed;

        iov[m.msg_iovlen++] = (struct iovec){p->data + offset, size};
        allowed -= size;
    }
    if (!m.msg_iovlen)
        return 0;
    n = sendmsg(r->out, &m, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0)
        return errno == EAGAIN || errno == EINTR ? 0 : -1;
    stream_advance(&r->send, (size_t)n);
    return 1;
}

/* ---- receiving */

/* Adds the whole floats in scratch, and keeps the bytes of an incomplete last one. */
static void add_scratch(struct ring *r, size_t n)
{
    struct piece *p = &r->receive.pieces[r->receive.at];
    size_t have = r->carry + n, whole = have & ~(sizeof(float) - 1);

    coll_add((float *)(void *)(p->data + r->receive.offset), (const float *)(const void *)r->scratch,
             whole / sizeof(float));
    r->carry = have - whole;
    memmove(r->scratch, r->scratch + whole, r->carry);
    stream_advance(&r->receive, whole);
}

static int receive_target(struct ring *r, struct iovec iov[2])
{
    size_t offset = r->receive.offset;
    int n = 0;

    for (int i = r->receive.at; n < 2 && i < r->receive.count; i++, offset = 0) {
        struct piece *p = &r->receive.pieces[i];
        size_t left = p->size - offset;

        if (p->add) {
            size_t carry = n ? 0 : r->carry;

            iov[n++] = (struct iovec){r->scratch + carry, (left < SCRATCH ? left : SCRATCH) - carry};
            return n;
        }
        iov[n++] = (struct iovec){p->data + offset, left};
    }
    return n;
}

static int receive_some(struct ring *r)
{
    struct iovec iov[2];
    int count = receive_target(r, iov);
    ssize_t n = count ? readv(r->in, iov, count) : 0;
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

        if (r->receive.pieces[r->receive.at].add)
            add_scratch(r, part);
        else
            stream_advance(&r->receive, part);
        left -= part;
    }
    return 1;
}

/* ---- running */

static enum err_code ring_peer_gone(struct coll_group *g, struct err *e)
{
    coll_fail(g);
    return coll_stopped(e);
}

/* The peers on this node are watched, too: if one of them dies, the group ends. */
static enum err_code wait_ready(struct coll_group *g, struct err *e)
{
    struct ring *r = g->ring;
    bool blocked = r->send.done < ring_send_limit(r), sending = r->send.done < r->send.total;
    int64_t start = clock_mono_ns();

    r->poll[1] = (struct pollfd){.fd = r->receive.done < r->receive.total ? r->in : -1, .events = POLLIN};
    r->poll[2] =
        (struct pollfd){.fd = sending ? r->out : -1, .events = (short)(blocked ? POLLIN | POLLOUT : POLLIN)};
    if (poll(r->poll, (nfds_t)r->polled, -1) < 0 && errno != EINTR)
        return err_sys(e, errno == EINVAL ? EMFILE : errno, "poll"); /* EINVAL: more than ulimit -n */
    g->wait_ns += (uint64_t)(clock_mono_ns() - start);
    if (r->poll[0].revents)
        return ring_peer_gone(g, e);
    for (int i = 3; i < r->polled; i++)
        if (r->poll[i].revents)
            return ring_peer_gone(g, e);
    return r->poll[2].revents & POLLIN ? ring_peer_gone(g, e) : ERR_OK;
}

static enum err_code check_header(struct coll_group *g, struct err *e)
{
    const struct header *a = &g->ring->mine, *b = &g->ring->theirs;

    if (!memcmp(a, b, sizeof(*a)))
        return ERR_OK;
    coll_fail(g);
    return err_set(
        e, ERR_FAILED_PRECONDITION,
        "ranks disagree: this one is in call %llu of kind %u with size %llu, the previous node's in call "
        "%llu of kind %u with size %llu",
        (unsigned long long)a->sequence, a->kind, (unsigned long long)a->size,
        (unsigned long long)b->sequence, b->kind, (unsigned long long)b->size);
}

static enum err_code ring_run(struct coll_group *g, struct err *e)
{
    struct ring *r = g->ring;
    bool checked = false;

    while (r->send.done < r->send.total || r->receive.done < r->receive.total) {
        int sent = send_some(r), got = receive_some(r);

        if (sent < 0 || got < 0 || atomic_load(&g->stop.set))
            return ring_peer_gone(g, e);
        /* The header is checked before the call can end, so ranks in different calls get an error and not
         * wrong sums. */
        if (!checked && r->receive.done >= sizeof(struct header)) {
            if (check_header(g, e))
                return e->code;
            checked = true;
        }
        if (!sent && !got && wait_ready(g, e))
            return e->code;
    }
    g->bytes += r->send.total;
    return ERR_OK;
}

/* ---- the collectives */

static char *ring_chunk(float *data, size_t count, int nodes, int index, size_t *size)
{
    size_t n = (size_t)nodes, i = (size_t)((index % nodes + nodes) % nodes);
    size_t lo = count / n * i + (i < count % n ? i : count % n);

    *size = (count / n + (i < count % n)) * sizeof(float);
    return (char *)(data + lo);
}

enum err_code ring_allreduce(struct coll_group *g, float *data, size_t count, struct err *e)
{
    struct ring *r = g->ring;
    int nodes = g->layout.nodes, node = g->layout.node;
    size_t size;

    plan_start(r, RING_ALLREDUCE, count);
    for (int s = 0; s < 2 * nodes - 2; s++) {
        char *at = ring_chunk(data, count, nodes, node - s, &size);

        stream_add(&r->send, at, size, false);
        if (s == 0)
            r->lead += size;
        at = ring_chunk(data, count, nodes, node - s - 1, &size);
        stream_add(&r->receive, at, size, s < nodes - 1);
    }
    return ring_run(g, e);
}

enum err_code ring_broadcast(struct coll_group *g, void *data, size_t size, int root_node, struct err *e)
{
    struct ring *r = g->ring;
    int nodes = g->layout.nodes, distance = (g->layout.node - root_node + nodes) % nodes;

    plan_start(r, RING_BROADCAST, size);
    if (distance < nodes - 1)
        stream_add(&r->send, data, size, false);
    if (distance > 0)
        stream_add(&r->receive, data, size, false);
    else
        r->lead += size;
    return ring_run(g, e);
}

enum err_code ring_allgather(struct coll_group *g, char *data, const size_t *offsets, struct err *e)
{
    struct ring *r = g->ring;
    int nodes = g->layout.nodes, node = g->layout.node;

    plan_start(r, RING_ALLGATHER, offsets[nodes]);
    r->lead += offsets[node + 1] - offsets[node];
    for (int s = 0; s < nodes - 1; s++) {
        int out = (node - s + nodes) % nodes, in = (node - s - 1 + nodes) % nodes;

        stream_add(&r->send, data + offsets[out], offsets[out + 1] - offsets[out], false);
        stream_add(&r->receive, data + offsets[in], offsets[in + 1] - offsets[in], false);
    }
    return ring_run(g, e);
}

/* ---- forming */

static void set_poll(struct coll_group *g)
{
    struct ring *r = g->ring;
    int links;
    const int *fds = shm_links(g, &links);

    r->polled = 3 + links;
    r->poll = xcalloc((size_t)r->polled, sizeof(*r->poll));
    r->poll[0] = (struct pollfd){.fd = g->stop.event, .events = POLLIN};
    for (int i = 0; i < links; i++)
        r->poll[3 + i] = (struct pollfd){.fd = fds[i], .events = POLLIN};
}

enum err_code ring_open(struct coll_group *g, struct coll_listener *listener, int64_t deadline, struct err *e)
{
    const struct coll_layout *l = &g->layout;
    int from = coll_layout_rank(l, (l->node + l->nodes - 1) % l->nodes, l->local);
    struct ring *r = xcalloc(1, sizeof(*r));
    size_t pieces = 2 * (size_t)l->nodes + 1;
    struct coll_handshake meet = {
        .group = g,
        .purpose = COLL_HANDSHAKE_RING,
        .listener = coll_listener_tcp(listener),
        .to = coll_layout_rank(l, (l->node + 1) % l->nodes, l->local),
        .from = &from,
        .in = &r->in,
        .from_count = 1,
        .deadline = deadline,
    };
    enum err_code rc;

    r->out = r->in = -1;
    g->ring = r;
    /* If one connection failed, the other one is closed with the ring. */
    rc = coll_handshake_run(&meet, e);
    r->out = meet.out;
    r->send.pieces = xcalloc(pieces, sizeof(struct piece));
    r->receive.pieces = xcalloc(pieces, sizeof(struct piece));
    r->scratch = xmalloc(SCRATCH);
    set_poll(g);
    return rc;
}

void ring_abort(struct coll_group *g)
{
    if (!g->ring)
        return;
    if (g->ring->out >= 0)
        shutdown(g->ring->out, SHUT_RDWR);
    if (g->ring->in >= 0)
        shutdown(g->ring->in, SHUT_RDWR);
}

int ring_ends(const struct coll_group *g, int fds[2])
{
    if (!g->ring)
        return 0;
    fds[0] = g->ring->out;
    fds[1] = g->ring->in;
    return 2;
}

void ring_close(struct coll_group *g)
{
    struct ring *r = g->ring;

    if (!r)
        return;
    close_fd(&r->out);
    close_fd(&r->in);
    free(r->send.pieces);
    free(r->receive.pieces);
    free(r->scratch);
    free(r->poll);
    free(r);
    g->ring = NULL;
}
