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
 * write counts as a failed attempt. Deadlines are compared with the time of the last look at the sockets: a process that did not
 * run for some seconds first reads what has come meanwhile. A connector has another 5 s for the acceptor's proof, since the acceptor
 * keeps the connection and may not listen any more.
 *
 * If the group has a relay, a rank that is not reached directly within a second is asked for there, by both ends, and the
 * same handshake follows through the relay. The connector has one attempt for a peer at a time, directly and by the relay in
 * turn: two connections could end with each side keeping another one. As long as a direct connection exists, however slow
 * its handshake is, it makes no attempt by the relay. */
#include "trainer/member/coll/handshake.h"
#include "trainer/member/coll/listener.h"
#include "trainer/member/coll/relay_path.h"
#include "trainer/member/coll/shake.h"

#include "base/clock.h"
#include "base/crypto/id.h"
#include "base/mem.h"
#include "base/net/tcp_listen.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define GRACE_MS 250
#define MAX_PENDING 64
#define MAX_ATTEMPTS 32
#define REACHED_MOST 3 /* direct attempts at a peer before one by the relay */

/* The connection to one rank, attempt after attempt. */
struct attempt {
    struct shake shake;
    int peer;          /* place of the rank in m->to; -1: none */
    int64_t retry_at;  /* time of the next attempt */
    bool by_relay;     /* the way of the next attempt */
    int failures;      /* of direct attempts, see out_failed */
    char problem[512]; /* why the last direct attempt failed */
    char relay_problem[512];
};

/* The acceptor's side at the relay: it waits there for one rank. */
struct asking {
    struct shake shake;
    int64_t retry_at;
    char problem[512];
};

struct meeting {
    struct coll_handshake *m;
    struct attempt out[MAX_ATTEMPTS];
    struct shake in[MAX_PENDING];
    struct asking *asking; /* by place in m->from; NULL: the relay is not asked */
    int asking_count;
    int next;                    /* place in m->to of the first rank that no attempt was made for */
    int out_missing, in_missing; /* connections that do not exist yet */
    int64_t looked;              /* all that had come by this time was read; 0: nothing was */
    struct pollfd *poll;
};

static int64_t deadline_sooner(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int steal_fd(int *fd)
{
    int taken = *fd;

    *fd = -1;
    return taken;
}

/* The connection from one rank to another that is being made. */
static struct shake_pair pair_of(const struct coll_handshake *m, int from, int to)
{
    return (struct shake_pair){from, to, (int)m->purpose};
}

/* ---- the connector */

/* A peer that cannot be reached is asked for at the relay at once. One that was reached but did not complete the handshake
 * may be busy with strangers, so it gets further attempts; another machine may have its private address here. */
static void out_failed(const struct coll_handshake *m, struct attempt *o, const char *why)
{
    snprintf(o->by_relay ? o->relay_problem : o->problem, sizeof(o->problem), "%s", why);
    if (o->shake.fd >= 0)
        shake_drop(&o->shake);
    o->retry_at = clock_boot_ms() + 20;
    if (!o->by_relay)
        o->failures += o->shake.state == SHAKE_CONNECTING ? REACHED_MOST : 1;
    o->by_relay = !o->by_relay && o->failures >= REACHED_MOST && m->purpose != COLL_HANDSHAKE_NODE &&
                  relay_path_known(m->group);
}

static void out_start(const struct coll_handshake *m, struct attempt *o)
{
    const struct coll_address *to = &m->group->layout.addresses[m->to[o->peer]];
    int64_t limit = relay_path_known(m->group) && !o->by_relay ? RELAY_DIRECT_MS : SHAKE_MS;
    struct err e = {0};
    enum err_code rc;

    o->shake.state = SHAKE_CONNECTING;
    o->shake.by_relay = o->by_relay;
    o->shake.deadline = clock_boot_ms() + limit;
    if (m->purpose == COLL_HANDSHAKE_NODE)
        rc = coll_connect_unix(&o->shake.fd, to, &e);
    else if (o->by_relay)
        rc = relay_path_connect(&o->shake.fd, m->group, &e);
    else
        rc = coll_connect_tcp(&o->shake.fd, to, &e);
    if (rc) {
        o->shake.fd = -1;
        out_failed(m, o, e.msg);
    }
}

static void out_at_relay(const struct coll_handshake *m, struct attempt *o)
{
    struct shake_pair pair = pair_of(m, m->group->layout.rank, m->to[o->peer]);
    struct shake *s = &o->shake;
    const char *why;

    switch (shake_at_relay(s, m->group, RELAY_CONNECTOR, &pair, &why)) {
    case AT_RELAY_PAIRED:
        s->deadline = clock_boot_ms() + SHAKE_MS;
        shake_expect(s, SHAKE_CHALLENGE, SHAKE_NONCE_BYTES);
        break;
    case AT_RELAY_FAILED:
        out_failed(m, o, why);
        break;
    case AT_RELAY_WAITING:
        break;
    }
}

static void out_challenged(const struct coll_handshake *m, struct attempt *o)
{
    struct shake *s = &o->shake;
    struct coll_group *g = m->group;
    struct shake_pair pair = pair_of(m, g->layout.rank, m->to[o->peer]);

    memcpy(s->accept_nonce, s->in, SHAKE_NONCE_BYTES);
    shake_write_fields(s->hello, g, &pair);
    id_random(s->hello + SHAKE_FIELDS, SHAKE_NONCE_BYTES);
    shake_make_mac(s->hello + SHAKE_FIELDS + SHAKE_NONCE_BYTES, "connect", g, s);
    if (!shake_send(s->fd, s->hello, SHAKE_HELLO_BYTES))
        out_failed(m, o, "it closed the connection");
    else {
        s->deadline = clock_boot_ms() + SHAKE_MS;
        shake_expect(s, SHAKE_PROOF, SHAKE_MAC_BYTES);
    }
}

static void out_proved(struct meeting *t, struct attempt *o)
{
    uint8_t mac[SHAKE_MAC_BYTES];

    shake_make_mac(mac, "accept", t->m->group, &o->shake);
    if (!secret_equal(mac, o->shake.in, SHAKE_MAC_BYTES)) {
        out_failed(t->m, o, "it does not know the key of this generation");
        return;
    }
    tcp_tune(o->shake.fd);
    t->m->out[o->peer] = steal_fd(&o->shake.fd);
    relay_path_keep(t->m->group, RELAY_CONNECTOR, t->m->to[o->peer], o->shake.by_relay);
    t->out_missing--;
    o->peer = -1;
}

static void out_progress(struct meeting *t, struct attempt *o)
{
    int rc;

    if (o->shake.state == SHAKE_CONNECTING) {
        rc = shake_connected(&o->shake);
        if (rc)
            out_failed(t->m, o, strerror(rc));
        return;
    }
    if (o->shake.state == SHAKE_AT_RELAY || o->shake.state == SHAKE_PAIRED) {
        out_at_relay(t->m, o);
        return;
    }
    rc = shake_read(&o->shake);
    if (rc < 0)
        out_failed(t->m, o,
                   o->shake.state == SHAKE_PROOF ? "it refused this rank's proof of the generation's key"
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

    return s->fd < 0 ? 0 : s->deadline - SHAKE_MS + GRACE_MS;
}

static void in_challenge(struct shake *s)
{
    s->deadline = clock_boot_ms() + SHAKE_MS;
    id_random(s->accept_nonce, SHAKE_NONCE_BYTES);
    if (shake_send(s->fd, s->accept_nonce, SHAKE_NONCE_BYTES))
        shake_expect(s, SHAKE_HELLO, SHAKE_HELLO_BYTES);
    else
        shake_drop(s);
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
        s->by_relay = false;
        in_challenge(s);
    }
}

/* Checks a hello. Returns the place of the peer that it names in m->from, or -1 if the hello is not valid. */
static int in_verify(const struct meeting *t, const struct shake *s)
{
    const struct coll_group *g = t->m->group;
    uint8_t fields[SHAKE_FIELDS], mac[SHAKE_MAC_BYTES];

    shake_make_mac(mac, "connect", g, s);
    if (!secret_equal(mac, s->hello + SHAKE_FIELDS + SHAKE_NONCE_BYTES, SHAKE_MAC_BYTES))
        return -1;
    for (int i = 0; i < t->m->from_count; i++) {
        struct shake_pair pair = pair_of(t->m, t->m->from[i], g->layout.rank);

        shake_write_fields(fields, g, &pair);
        if (!memcmp(fields, s->hello, SHAKE_FIELDS))
            return i;
    }
    return -1;
}

/* A peer that connects twice has given up its first connection, so its newest connection is used. */
static void in_progress(struct meeting *t, struct shake *s)
{
    int rc = shake_read(s), who = -1;
    uint8_t mac[SHAKE_MAC_BYTES];

    if (rc == 0)
        return;
    if (rc > 0) {
        memcpy(s->hello, s->in, SHAKE_HELLO_BYTES);
        who = in_verify(t, s);
    }
    if (who >= 0)
        shake_make_mac(mac, "accept", t->m->group, s);
    /* A connection without the key gets no answer, so it learns nothing from the failure. */
    if (who < 0 || !shake_send(s->fd, mac, SHAKE_MAC_BYTES)) {
        shake_drop(s);
        return;
    }
    tcp_tune(s->fd);
    if (t->m->in[who] >= 0)
        close(t->m->in[who]);
    else
        t->in_missing--;
    t->m->in[who] = steal_fd(&s->fd);
    relay_path_keep(t->m->group, RELAY_ACCEPTOR, t->m->from[who], s->by_relay);
}

/* ---- the acceptor at the relay */

static void asking_failed(struct asking *a, const char *why)
{
    snprintf(a->problem, sizeof(a->problem), "%s", why);
    shake_drop(&a->shake);
}

static void asking_start(const struct coll_handshake *m, struct asking *a)
{
    int64_t now = clock_boot_ms();
    struct err e = {0};

    a->shake.state = SHAKE_CONNECTING;
    a->shake.by_relay = true;
    a->shake.deadline = now + SHAKE_MS;
    a->retry_at = now + RELAY_DIRECT_MS;
    if (relay_path_connect(&a->shake.fd, m->group, &e)) {
        a->shake.fd = -1;
        asking_failed(a, e.msg);
    }
}

static void asking_progress(struct meeting *t, int from)
{
    const struct coll_handshake *m = t->m;
    struct asking *a = &t->asking[from];
    struct shake_pair pair = pair_of(m, m->from[from], m->group->layout.rank);
    const char *why;
    int rc;

    switch (a->shake.state) {
    case SHAKE_CONNECTING:
        rc = shake_connected(&a->shake);
        if (rc)
            asking_failed(a, strerror(rc));
        break;
    case SHAKE_AT_RELAY:
    case SHAKE_PAIRED:
        switch (shake_at_relay(&a->shake, m->group, RELAY_ACCEPTOR, &pair, &why)) {
        case AT_RELAY_PAIRED:
            in_challenge(&a->shake);
            break;
        case AT_RELAY_FAILED:
            asking_failed(a, why);
            break;
        case AT_RELAY_WAITING:
            break;
        }
        break;
    default:
        in_progress(t, &a->shake);
    }
}

/* Asks for ranks that have not connected in time, and stops asking for those that have. Returns the time when something is
 * due again. */
static int64_t run_asking_timers(struct meeting *t, int64_t now, int64_t next)
{
    for (int i = 0; i < t->asking_count; i++) {
        struct asking *a = &t->asking[i];

        if (t->m->in[i] >= 0) {
            shake_drop(&a->shake);
            continue;
        }
        if (a->shake.fd >= 0 && a->shake.deadline <= now)
            asking_failed(a, a->shake.state == SHAKE_PAIRED ? "the peer did not come" : "it does not answer");
        if (a->shake.fd < 0 && a->retry_at <= now)
            asking_start(t->m, a);
        next = deadline_sooner(next, a->shake.fd >= 0 ? a->shake.deadline : a->retry_at);
    }
    return next;
}

static void asking_init(struct meeting *t)
{
    const struct coll_handshake *m = t->m;
    int64_t now = clock_boot_ms();

    if (m->purpose == COLL_HANDSHAKE_NODE || !relay_path_known(m->group) || !m->from_count)
        return;
    t->asking_count = m->from_count;
    t->asking = xcalloc((size_t)t->asking_count, sizeof(*t->asking));
    for (int i = 0; i < t->asking_count; i++) {
        t->asking[i].shake.fd = -1;
        t->asking[i].retry_at =
            now + (relay_path_used(m->group, RELAY_ACCEPTOR, m->from[i]) ? 0 : RELAY_DIRECT_MS);
    }
}

/* ---- the loop */

/* Drops attempts that are late, and starts those that are due. Returns the time when something is due again. */
static int64_t run_attempt_timers(struct meeting *t, int64_t now, int64_t next)
{
    for (int i = 0; i < MAX_ATTEMPTS; i++) {
        struct attempt *o = &t->out[i];

        if (o->peer < 0 && t->next < t->m->to_count) {
            *o = (struct attempt){.shake.fd = -1, .peer = t->next++};
            o->by_relay = relay_path_used(t->m->group, RELAY_CONNECTOR, t->m->to[o->peer]);
        }
        if (o->peer < 0)
            continue;
        if (o->shake.fd >= 0 && o->shake.deadline <= now) {
            o->failures +=
                REACHED_MOST; /* what keeps silent for so long is another machine, or the network drops bytes */
            out_failed(t->m, o,
                       o->shake.state == SHAKE_PAIRED ? "the peer did not come" : "it does not answer");
        }
        if (o->shake.fd < 0 && o->retry_at <= now)
            out_start(t->m, o);
        next = deadline_sooner(next, o->shake.fd >= 0 ? o->shake.deadline : o->retry_at);
    }
    return next;
}

/* Drops handshakes that are late. Returns the time when something is due again. */
static int64_t run_timers(struct meeting *t)
{
    int64_t now = t->looked, next = t->m->deadline;

    for (int i = 0; i < MAX_PENDING; i++) {
        if (t->in[i].fd >= 0 && t->in[i].deadline <= now)
            shake_drop(&t->in[i]);
        if (t->in[i].fd >= 0)
            next = deadline_sooner(next, t->in[i].deadline);
    }
    return run_asking_timers(t, now, run_attempt_timers(t, now, next));
}

/* Appends why the relay did not help. */
static enum err_code peer_missing_at_relay(const struct coll_handshake *m, const char *why, struct err *e)
{
    struct err direct = *e;

    if (!why[0])
        return e->code;
    return err_set(e, direct.code, "%s; by relay %s:%u: %s", direct.msg, m->group->relay.address.host,
                   m->group->relay.address.port, why);
}

static enum err_code peers_missing(struct meeting *t, struct err *e)
{
    const struct coll_handshake *m = t->m;
    const struct coll_address *a = m->group->layout.addresses;

    for (int i = 0; i < MAX_ATTEMPTS; i++) {
        const struct attempt *o = &t->out[i];

        if (o->peer >= 0) {
            err_set(e, ERR_DEADLINE_EXCEEDED, "no connection to rank %d at %s: %s", m->to[o->peer],
                    m->purpose == COLL_HANDSHAKE_NODE ? a[m->to[o->peer]].path : a[m->to[o->peer]].host,
                    o->problem[0] ? o->problem : "no time left");
            return peer_missing_at_relay(m, o->relay_problem, e);
        }
    }
    for (int i = 0; i < m->from_count; i++)
        if (m->in[i] < 0) {
            err_set(e, ERR_DEADLINE_EXCEEDED, "rank %d did not connect", m->from[i]);
            return peer_missing_at_relay(m, t->asking ? t->asking[i].problem : "", e);
        }
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

static void poll_fill_shake(struct pollfd *out, const struct shake *s)
{
    *out = (struct pollfd){.fd = s->fd, .events = s->state == SHAKE_CONNECTING ? POLLOUT : POLLIN};
}

static void poll_fill(struct meeting *t, bool room)
{
    struct pollfd *p = t->poll;

    p[POLL_STOP] = (struct pollfd){.fd = t->m->group->stop.event, .events = POLLIN};
    p[POLL_LISTENER] = (struct pollfd){.fd = t->in_missing && room ? t->m->listener : -1, .events = POLLIN};
    for (int i = 0; i < MAX_ATTEMPTS; i++)
        poll_fill_shake(&p[POLL_OUT + i], &t->out[i].shake);
    for (int i = 0; i < MAX_PENDING; i++)
        p[POLL_IN + i] = (struct pollfd){.fd = t->in[i].fd, .events = POLLIN};
    for (int i = 0; i < t->m->watched_count; i++)
        p[POLL_WATCHED + i] = (struct pollfd){.fd = t->m->watched[i], .events = POLLRDHUP};
    for (int i = 0; i < t->asking_count; i++)
        poll_fill_shake(&p[POLL_WATCHED + t->m->watched_count + i], &t->asking[i].shake);
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
    nfds_t count = (nfds_t)(POLL_WATCHED + t->m->watched_count + t->asking_count);

    if (t->looked >= t->m->deadline)
        return peers_missing(t, e);
    if (room > now)
        next = deadline_sooner(next, room);
    poll_fill(t, room <= now);
    t->looked = now;
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
    for (int i = 0; i < t->asking_count; i++)
        if (p[POLL_WATCHED + t->m->watched_count + i].revents)
            asking_progress(t, i);
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
    asking_init(t);
    t->poll = xcalloc((size_t)(POLL_WATCHED + m->watched_count + t->asking_count), sizeof(*t->poll));
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
    for (int i = 0; i < t->asking_count; i++)
        shake_drop(&t->asking[i].shake);
    free(t->asking);
    free(t->poll);
    free(t);
    return rc;
}
