#ifndef DDP_BASE_NET_RELAY_HELLO_H
#define DDP_BASE_NET_RELAY_HELLO_H

#include <stdbool.h>
#include <stdint.h>

/* How a rank asks a relay (daemon/relay) for the connection to a peer that it cannot reach:
 *
 *   relay -> rank   nonce (32 random bytes)
 *   rank -> relay   job, generation, end, name, HMAC-SHA256 under the generation's ticket over these and the nonce
 *   relay -> rank   RELAY_PAIRED, when the rank at the other end has asked with the same name; from here on the relay
 *                   copies bytes
 *
 * A ticket admits the members of one generation. The coordinator makes it from the relay's key, so the relay keeps no list
 * of them. The name is an HMAC under the generation's key, which the relay does not know: ranks alone can say who belongs
 * together, and prove it to each other through the relay. Any thread. */

#define RELAY_NONCE 32
#define RELAY_NAME 32
#define RELAY_KEY 32
#define RELAY_TICKET 32
#define RELAY_HELLO (8 + 8 + 1 + RELAY_NAME + 32)
#define RELAY_PAIRED 1 /* the byte that says so */

enum relay_end { RELAY_CONNECTOR, RELAY_ACCEPTOR };

struct relay_hello {
    int64_t job, generation;
    enum relay_end end;
    uint8_t name[RELAY_NAME];
};

void relay_make_ticket(uint8_t out[RELAY_TICKET], const uint8_t key[RELAY_KEY], int64_t job,
                       int64_t generation);
void relay_write_hello(uint8_t out[RELAY_HELLO], const struct relay_hello *hello,
                       const uint8_t ticket[RELAY_TICKET], const uint8_t nonce[RELAY_NONCE]);
/* False: the sender does not have the ticket of the generation that it names. */
bool relay_read_hello(struct relay_hello *out, const uint8_t in[RELAY_HELLO], const uint8_t key[RELAY_KEY],
                      const uint8_t nonce[RELAY_NONCE]);

#endif
