#ifndef DDP_TESTS_UNIT_RELAY_RELAY_CLIENT_H
#define DDP_TESTS_UNIT_RELAY_RELAY_CLIENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/net/relay_hello.h"

/* What a rank does at a relay on loopback, with blocking sockets that give up after 30 s. */

int relay_client_knock(uint16_t port, uint8_t nonce[RELAY_NONCE]); /* connects, and reads the nonce */
/* Asks with the key's ticket; `pair` makes the name. Returns before the peer has come. */
int relay_client_ask(uint16_t port, const uint8_t key[RELAY_KEY], int64_t generation, int pair,
                     enum relay_end end);
bool relay_client_paired(int fd); /* waits; false: the relay closed the connection */
bool relay_client_closed(int fd); /* waits until the connection is at its end, and reads what comes before */

#endif
