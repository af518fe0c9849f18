/* How two ranks connect. The acceptor sends a random challenge at once. The connector answers with its
 * identity, a challenge of its own, and an HMAC-SHA256 under the generation's key over all of these. The
 * acceptor checks the HMAC, and sends an HMAC of its own: with the same key, over the same fields, under
 * another label. The connector checks that.
 *
 *   acceptor  -> connector  challenge (32 random bytes)
 *   connector -> acceptor   job, generation, from, to, purpose, its challenge, HMAC("connect" ...)
 *   acceptor  -> connector  HMAC("accept" ...)
 *
 * A process without the key sees 32 random bytes, and then a closed connection. A handshake may take 5 s, and
 * 64 may run at the same time. If all places are taken, a new connection replaces the oldest handshake, if
 * that is older than 250 ms. So a silent or slow stranger delays a peer by at most that time, and peers on a
 * busy machine do not replace each other. A connector whose attempt fails retries until the group's deadline,
 * so a replaced peer loses one attempt only. A connector makes 32 attempts at a time: while all ranks advance
 * evenly, peers take half of the places. Messages are far smaller than a socket's buffer, so a short
 * write counts as a failed attempt. */
#include "trainer/member/coll/handshake.h"
#include "trainer/member/coll/listener.h"

#include "base/clock.h"
#include "base/id.h"
#include "base/mem.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define HANDSHAKE_MS 5000
#define GRACE_MS 250
#define MAX_PENDING 64
#define MAX_ATTEMPTS 32
#define NONCE 32
#define MAC DIGEST_BYTES
#define FIELDS 28 /* bytes of job and generation (8 each), from, to and purpose (4 each), all big-endian */
#define HELLO (FIELDS + NONCE + MAC)

enum shake_state { SHAKE_CONNECTING, SHAKE_CHALLENGE, SHAKE_HELLO, SHAKE_PROOF };

struct shake {
    int fd; /* -1: unused */
    enum shake_state state;
    int64_t deadline;
    uint8_t accept_nonce[NONCE], hello[HELLO], in[HELLO];
    size_t got, want;
};

/* The connection to one rank, attempt after attempt. */
struct attempt {
    struct shake shake;
    int peer;          /* place of the rank in m->to; -1: none */
    int64_t retry_at;  /* time of the next attempt */
    char problem[512]; /* why the last attempt failed */
};

struct meeting {
    struct coll_handshake *m;
    struct attempt out[MAX_ATTEMPTS];
    struct shake in[MAX_PENDING];
    int next;                    /* place in m->to of the first rank that no attempt was made for */
    int out_missing, in_missing; /* connections that do not exist yet */
    struct pollfd *poll;
};

static void field_put(uint8_t *at, uint64_t value, int bytes)
{
    for (int i = bytes - 1; i >= 0; i--, value >>= 8)
        at[i] = (uint8_t)value;
}

static void write_fields(uint8_t out[FIELDS], const struct coll_group *g, int from, int to, int purpose)
{
    field_put(out, (uint64_t)g->job, 8);
    field_put(out + 8, (uint64_t)g->generation, 8);
    field_put(out + 16, (uint64_t)from, 4);
    field_put(out + 20, (uint64_t)to, 4);
    field_put(out + 24, (uint64_t)purpose, 4);
}

/* Computes the HMAC over the label, the fields and both challenges. s->hello holds the fields and the
 * connector's challenge. */
static void make_mac(uint8_t out[MAC], const char *label, const struct coll_group *g, const struct shake *s)
{
    uint8_t text[8 + FIELDS + 2 * NONCE] = {0};

    memcpy(text, label, strlen(label));
    memcpy(text + 8, s->hello, FIELDS + NONCE);
    memcpy(text + 8 + FIELDS + NONCE, s->accept_nonce, NONCE);
    digest_hmac(out, g->key, sizeof(g->key), text, sizeof(text));
}

static bool send_whole(int fd, const void *data, size_t size)
{
    return send(fd, data, size, MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)size;
}

static void shake_expect(struct shake *s, enum shake_state state, size_t want)
{
    s->state = state;
    s->got = 0;
    s->want = want;
}

static int steal_fd(int *fd)
{
    int taken = *fd;

    *fd = -1;
    return taken;
}

static void shake_drop(struct shake *s)
{
    close_fd(&s->fd);
    s->fd = -1;
}

static void socket_tune(int fd)
{
    /* A peer that does not answer counts as gone after 22 s. */
    int one = 1, idle = 10, interval = 3, probes = 4;

    /* On a unix socket the TCP options fail, and are not needed. */
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof(one));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof(idle));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof(interval));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof(probes));
}

/* Reads the bytes that the state needs. Returns 1 if all of them are there, 0 if some are missing, -1 on an
 * error. */
static int shake_read(struct shake *s)
{
    ssize_t n = recv(s->fd, s->in + s->got, s->want - s->got, MSG_DONTWAIT);

    if (n < 0)
        return errno == EAGAIN || errno == EINTR ? 0 : -1;
    s->got += (size_t)n;
    return n == 0 ? -1 : s->got == s->want;
}

/* ---- the connector */

static void out_failed(struct attempt *o, const char *why)
{
    snprintf(o->problem, sizeof(o->problem), "%s", why);
    if (o->shake.fd >= 0)
        shake_drop(&o->shake);
    o->retry_at = clock_boot_ms() + 20;
}

static void out_start(const struct coll_handshake *m, struct attempt *o)
{
    const struct coll_address *to = &m->group->layout.addresses[m->to[o->peer]];
    struct err e = {0};
    enum err_code rc;

    rc = m->purpose == COLL_HANDSHAKE_NODE ? coll_connect_unix(&o->shake.fd, to, &e)
                                           : coll_connect_tcp(&o->shake.fd, to, &e);
    if (rc) {
        o->shake.fd = -1;
        out_failed(o, e.msg);
        return;
    }
    o->shake.state = SHAKE_CONNECTING;
    o->shake.deadline = clock_boot_ms() + HANDSHAKE_MS;
}

static void out_connected(struct attempt *o)
{
    int why = 0;
    socklen_t size = sizeof(why);

    if (getsockopt(o->shake.fd, SOL_SOCKET, SO_ERROR, &why, &size) || why) {
        out_failed(o, strerror(why ? why : errno));
        return;
    }
    shake_expect(&o->shake, SHAKE_CHALLENGE, NONCE);
}

static void out_challenged(const struct coll_handshake *m, struct attempt *o)
{
    struct shake *s = &o->shake;
    struct coll_group *g = m->group;

    memcpy(s->accept_nonce, s->in, NONCE);
    write_fields(s->hello, g, g->layout.rank, m->to[o->peer], (int)m->purpose);
    id_random(s->hello + FIELDS, NONCE);
    make_mac(s->hello + FIELDS + NONCE, "connect", g, s);
    if (!send_whole(s->fd, s->hello, HELLO))
        out_failed(o, "it closed the connection");
    else
        shake_expect(s, SHAKE_PROOF, MAC);
}

static void out_proved(struct meeting *t, struct attempt *o)
{
    uint8_t mac[MAC];

    make_mac(mac, "accept", t->m->group, &o->shake);
    if (!secret_equal(mac, o->shake.in, MAC)) {
        out_failed(o, "it does not know the key of this generation");
        return;
    }
    socket_tune(o->shake.fd);
    t->m->out[o->peer] = steal_fd(&o->shake.fd);
    t->out_missing--;
    o->peer = -1;
}

static void out_progress(struct meeting *t, struct attempt *o)
{
    int rc;

    if (o->shake.state == SHAKE_CONNECTING) {
        out_connected(o);
        return;
    }
    rc = shake_read(&o->shake);
    if (rc < 0)
        out_failed(o, o->shake.state == SHAKE_PROOF ? "it refused this rank's proof of the generation's key"
                                                    : "it closed the connection");
    else if (rc && o->shake.state == SHAKE_CHALLENGE)
        out_challenged(t->m, o);
    else if (rc)
        out_proved(t, o);
}

/* ---- the acceptor */

static struct shake *in_oldest(struct meeting *t)
{
    struct shake *oldest = &t->in[0];

    for (int i = 0; i < MAX_PENDING; i++) {
        if (t->in[i].fd < 0)
            return &t->in[i];
        if (t->in[i].deadline < oldest->deadline)
            oldest = &t->in[i];
    }
    return oldest;
}

/* Returns the time when there is a place for one more handshake; 0: now. */
static int64_t in_room_at(struct meeting *t)
{
    struct shake *s = in_oldest(t);

    return s->fd < 0 ? 0 : s->deadline - HANDSHAKE_MS + GRACE_MS;
}

static void in_accept(struct meeting *t)
{
    while (in_room_at(t) <= clock_boot_ms()) {
        int fd = accept4(t->m->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        struct shake *s = in_oldest(t);

        if (fd >= 0 || errno == EMFILE || errno == ENFILE)
            shake_drop(s);
        if (fd < 0)
            return;
        s->fd = fd;
        s->deadline = clock_boot_ms() + HANDSHAKE_MS;
        id_random(s->accept_nonce, NONCE);
        if (send_whole(fd, s->accept_nonce, NONCE))
            shake_expect(s, SHAKE_HELLO, HELLO);
        else
            shake_drop(s);
    }
}

/* Checks a hello. Returns the place of the peer that it names in m->from, or -1 if the hello is not valid. */
static int in_verify(const struct meeting *t, const struct shake *s)
{
    const struct coll_group *g = t->m->group;
    uint8_t fields[FIELDS], mac[MAC];

    make_mac(mac, "connect", g, s);
    if (!secret_equal(mac, s->hello + FIELDS + NONCE, MAC))
        return -1;
    for (int i = 0; i < t->m->from_count; i++) {
        write_fields(fields, g, t->m->from[i], g->layout.rank, (int)t->m->purpose);
        if (!memcmp(fields, s->hello, FIELDS))
            return i;
    }
    return -1;
}

/* A peer that connects twice has given up its first connection, so its newest connection is used. */
static void in_progress(struct meeting *t, struct shake *s)
{
    int rc = shake_read(s), who = -1;
    uint8_t mac[MAC];

    if (rc == 0)
        return;
    if (rc > 0) {
        memcpy(s->hello, s->in, HELLO);
        who = in_verify(t, s);
    }
    if (who >= 0)
        make_mac(mac, "accept", t->m->group, s);
    /* A connection without the key gets no answer, so it learns nothing from the failure. */
    if (who < 0 || !send_whole(s->fd, mac, MAC)) {
        shake_drop(s);
        return;
    }
    socket_tune(s->fd);
    if (t->m->in[who] >= 0)
        close(t->m->in[who]);
    else
        t->in_missing--;
    t->m->in[who] = steal_fd(&s->fd);
}

/* ---- the loop */

static int64_t deadline_sooner(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Drops attempts that are late, and starts those that are due. Returns the time when something is due again. */
static int64_t run_attempt_timers(struct meeting *t, int64_t now, int64_t next)
{
    for (int i = 0; i < MAX_ATTEMPTS; i++) {
        struct attempt *o = &t->out[i];

        if (o->peer < 0 && t->next < t->m->to_count)
            *o = (struct attempt){.shake.fd = -1, .peer = t->next++};
        if (o->peer < 0)
            continue;
        if (o->shake.fd >= 0 && o->shake.deadline <= now)
            out_failed(o, "it does not answer");
        if (o->shake.fd < 0 && o->retry_at <= now)
            out_start(t->m, o);
        next = deadline_sooner(next, o->shake.fd >= 0 ? o->shake.deadline : o->retry_at);
    }
    return next;
}

/* Drops handshakes that are late. Returns the time when something is due again. */
static int64_t run_timers(struct meeting *t)
{
    int64_t now = clock_boot_ms(), next = t->m->deadline;

    for (int i = 0; i < MAX_PENDING; i++) {
        if (t->in[i].fd >= 0 && t->in[i].deadline <= now)
            shake_drop(&t->in[i]);
        if (t->in[i].fd >= 0)
            next = deadline_sooner(next, t->in[i].deadline);
    }
    return run_attempt_timers(t, now, next);
}

static enum err_code peers_missing(struct meeting *t, struct err *e)
{
    const struct coll_handshake *m = t->m;
    const struct coll_address *a = m->group->layout.addresses;

    for (int i = 0; i < MAX_ATTEMPTS; i++) {
        const struct attempt *o = &t->out[i];

        if (o->peer >= 0)
            return err_set(e, ERR_DEADLINE_EXCEEDED, "no connection to rank %d at %s: %s", m->to[o->peer],
                           m->purpose == COLL_HANDSHAKE_NODE ? a[m->to[o->peer]].path
                                                             : a[m->to[o->peer]].host,
                           o->problem[0] ? o->problem : "no time left");
    }
    for (int i = 0; i < m->from_count; i++)
        if (m->in[i] < 0)
            return err_set(e, ERR_DEADLINE_EXCEEDED, "rank %d did not connect", m->from[i]);
    return err_set(e, ERR_DEADLINE_EXCEEDED, "no time left");
}

/* The order of the places in t->poll. */
enum {
    POLL_STOP,
    POLL_LISTENER,
    POLL_OUT,
    POLL_IN = POLL_OUT + MAX_ATTEMPTS,
    POLL_WATCHED = POLL_IN + MAX_PENDING
};

static void poll_fill(struct meeting *t, bool room)
{
    struct pollfd *p = t->poll;

    p[POLL_STOP] = (struct pollfd){.fd = t->m->group->stop.event, .events = POLLIN};
    p[POLL_LISTENER] = (struct pollfd){.fd = t->in_missing && room ? t->m->listener : -1, .events = POLLIN};
    for (int i = 0; i < MAX_ATTEMPTS; i++) {
        const struct shake *s = &t->out[i].shake;

        p[POLL_OUT + i] =
            (struct pollfd){.fd = s->fd, .events = s->state == SHAKE_CONNECTING ? POLLOUT : POLLIN};
    }
    for (int i = 0; i < MAX_PENDING; i++)
        p[POLL_IN + i] = (struct pollfd){.fd = t->in[i].fd, .events = POLLIN};
    for (int i = 0; i < t->m->watched_count; i++)
        p[POLL_WATCHED + i] = (struct pollfd){.fd = t->m->watched[i], .events = POLLRDHUP};
}

static bool group_is_over(const struct meeting *t)
{
    if (t->poll[POLL_STOP].revents)
        return true;
    for (int i = 0; i < t->m->watched_count; i++)
        if (t->poll[POLL_WATCHED + i].revents)
            return true;
    return false;
}

static enum err_code meet_once(struct meeting *t, struct err *e)
{
    struct pollfd *p = t->poll;
    int64_t next = run_timers(t), room = in_room_at(t), now = clock_boot_ms();
    nfds_t count = (nfds_t)(POLL_WATCHED + t->m->watched_count);

    if (now >= t->m->deadline)
        return peers_missing(t, e);
    if (room > now)
        next = deadline_sooner(next, room);
    poll_fill(t, room <= now);
    if (poll(p, count, next > now ? (int)(next - now) : 0) < 0 && errno != EINTR)
        return err_sys(e, errno == EINVAL ? EMFILE : errno, "poll"); /* EINVAL: more than ulimit -n */
    if (group_is_over(t))
        return coll_stopped(e);
    for (int i = 0; i < MAX_ATTEMPTS; i++)
        if (p[POLL_OUT + i].revents)
            out_progress(t, &t->out[i]);
    for (int i = 0; i < MAX_PENDING; i++)
        if (p[POLL_IN + i].revents)
            in_progress(t, &t->in[i]);
    if (p[POLL_LISTENER].revents)
        in_accept(t);
    return ERR_OK;
}

enum err_code coll_handshake_run(struct coll_handshake *m, struct err *e)
{
    struct meeting *t = xcalloc(1, sizeof(*t));
    enum err_code rc = ERR_OK;

    t->m = m;
    t->out_missing = m->to_count;
    t->in_missing = m->from_count;
    t->poll = xcalloc((size_t)(POLL_WATCHED + m->watched_count), sizeof(*t->poll));
    for (int i = 0; i < m->to_count; i++)
        m->out[i] = -1;
    for (int i = 0; i < m->from_count; i++)
        m->in[i] = -1;
    for (int i = 0; i < MAX_ATTEMPTS; i++)
        t->out[i].shake.fd = t->out[i].peer = -1;
    for (int i = 0; i < MAX_PENDING; i++)
        t->in[i].fd = -1;
    while (!rc && (t->in_missing || t->out_missing))
        rc = meet_once(t, e);
    for (int i = 0; i < MAX_PENDING; i++)
        shake_drop(&t->in[i]);
    for (int i = 0; i < MAX_ATTEMPTS; i++)
        shake_drop(&t->out[i].shake);
    free(t->poll);
    free(t);
    return rc;
}
