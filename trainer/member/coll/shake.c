#include "trainer/member/coll/shake.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/mem.h"
#include "trainer/member/coll/relay_path.h"

static void field_put(uint8_t *at, uint64_t value, int bytes)
{
    for (int i = bytes - 1; i >= 0; i--, value >>= 8)
        at[i] = (uint8_t)value;
}

void shake_write_fields(uint8_t out[SHAKE_FIELDS], const struct coll_group *g, const struct shake_pair *pair)
{
    field_put(out, (uint64_t)g->job, 8);
    field_put(out + 8, (uint64_t)g->generation, 8);
    field_put(out + 16, (uint64_t)pair->from, 4);
    field_put(out + 20, (uint64_t)pair->to, 4);
    field_put(out + 24, (uint64_t)pair->purpose, 4);
}

void shake_make_mac(uint8_t out[SHAKE_MAC_BYTES], const char *label, const struct coll_group *g,
                    const struct shake *s)
{
    uint8_t text[8 + SHAKE_FIELDS + 2 * SHAKE_NONCE_BYTES] = {0};

    memcpy(text, label, strlen(label));
    memcpy(text + 8, s->hello, SHAKE_FIELDS + SHAKE_NONCE_BYTES);
    memcpy(text + 8 + SHAKE_FIELDS + SHAKE_NONCE_BYTES, s->accept_nonce, SHAKE_NONCE_BYTES);
    digest_hmac(out, g->key, sizeof(g->key), text, sizeof(text));
}

bool shake_send(int fd, const void *data, size_t size)
{
    return send(fd, data, size, MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)size;
}

void shake_expect(struct shake *s, enum shake_state state, size_t want)
{
    s->state = state;
    s->got = 0;
    s->want = want;
}

void shake_drop(struct shake *s)
{
    close_fd(&s->fd);
    s->fd = -1;
}

int shake_read(struct shake *s)
{
    ssize_t n = recv(s->fd, s->in + s->got, s->want - s->got, MSG_DONTWAIT);

    if (n < 0)
        return errno == EAGAIN || errno == EINTR ? 0 : -1;
    s->got += (size_t)n;
    return n == 0 ? -1 : s->got == s->want;
}

int shake_connected(struct shake *s)
{
    int why = 0;
    socklen_t size = sizeof(why);

    if (getsockopt(s->fd, SOL_SOCKET, SO_ERROR, &why, &size))
        return errno;
    if (!why) {
        s->deadline = clock_boot_ms() + SHAKE_MS;
        shake_expect(s, s->by_relay ? SHAKE_AT_RELAY : SHAKE_CHALLENGE, SHAKE_NONCE_BYTES);
    }
    return why;
}

enum at_relay shake_at_relay(struct shake *s, const struct coll_group *g, enum relay_end end,
                             const struct shake_pair *pair, const char **why)
{
    int rc = shake_read(s);

    if (rc < 0) {
        *why = s->state == SHAKE_AT_RELAY ? "it closed the connection"
                                          : "it refused this rank, or the peer did not come";
        return AT_RELAY_FAILED;
    }
    if (!rc)
        return AT_RELAY_WAITING;
    if (s->state == SHAKE_PAIRED) {
        *why = "it is not a relay";
        return s->in[0] == RELAY_PAIRED ? AT_RELAY_PAIRED : AT_RELAY_FAILED;
    }
    *why = "it closed the connection";
    if (!relay_path_ask(s, g, end, pair))
        return AT_RELAY_FAILED;
    s->deadline = clock_boot_ms() + RELAY_PEER_MS;
    shake_expect(s, SHAKE_PAIRED, 1);
    return AT_RELAY_WAITING;
}
