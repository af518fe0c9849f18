#ifndef DDP_TRAINER_MEMBER_COLL_SHAKE_H
#define DDP_TRAINER_MEMBER_COLL_SHAKE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/crypto/id.h"
#include "base/net/relay_hello.h"
#include "trainer/member/coll/group.h"

/* One handshake on one nonblocking connection, direct or by a relay: its messages and the bytes that have come so far. The
 * order of the messages is told in handshake.c. */

#define SHAKE_MS 5000
#define SHAKE_NONCE_BYTES 32
#define SHAKE_MAC_BYTES DIGEST_BYTES
#define SHAKE_FIELDS                                                                                         \
    28 /* bytes of job and generation (8 each), from, to and purpose (4 each), all big-endian */
#define SHAKE_HELLO_BYTES (SHAKE_FIELDS + SHAKE_NONCE_BYTES + SHAKE_MAC_BYTES)

enum shake_state {
    SHAKE_CONNECTING,
    SHAKE_AT_RELAY, /* the relay's nonce is due */
    SHAKE_PAIRED,   /* the peer is to come to the relay */
    SHAKE_CHALLENGE,
    SHAKE_HELLO,
    SHAKE_PROOF
};

struct shake {
    int fd; /* -1: unused */
    enum shake_state state;
    bool by_relay;
    int64_t deadline;
    uint8_t accept_nonce[SHAKE_NONCE_BYTES], hello[SHAKE_HELLO_BYTES], in[SHAKE_HELLO_BYTES];
    size_t got, want;
};

void shake_expect(struct shake *s, enum shake_state state, size_t want);
void shake_drop(struct shake *s);
/* Returns true if the socket took all of the bytes. */
bool shake_send(int fd, const void *data, size_t size);
/* Reads the bytes that the state needs. Returns 1 if all of them are there, 0 if some are missing, -1 on an
 * error. */
int shake_read(struct shake *s);
/* Ends SHAKE_CONNECTING. Returns 0, or an errno. */
int shake_connected(struct shake *s);

/* Which connection of the group this is. */
struct shake_pair {
    int from, to, purpose;
};
void shake_write_fields(uint8_t out[SHAKE_FIELDS], const struct coll_group *g, const struct shake_pair *pair);
/* Computes the HMAC over the label, the fields and both challenges. s->hello holds the fields and the
 * connector's challenge. */
void shake_make_mac(uint8_t out[SHAKE_MAC_BYTES], const char *label, const struct coll_group *g,
                    const struct shake *s);

/* Goes on with a shake in SHAKE_AT_RELAY or SHAKE_PAIRED. *why is set if it failed. */
enum at_relay { AT_RELAY_WAITING, AT_RELAY_PAIRED, AT_RELAY_FAILED };
enum at_relay shake_at_relay(struct shake *s, const struct coll_group *g, enum relay_end end,
                             const struct shake_pair *pair, const char **why);

#endif
