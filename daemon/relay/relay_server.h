#ifndef DDP_DAEMON_RELAY_RELAY_SERVER_H
#define DDP_DAEMON_RELAY_RELAY_SERVER_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/net/relay_hello.h"

/* The relay joins ranks that cannot reach each other: both connect to it, and it copies the bytes of each to the other. It
 * sees the ring's handshake and its tensors as bytes only. A thread of its own does all the work, so the loop of the daemon
 * that it is part of never waits for bulk data. The functions here belong to one thread, that daemon's. */

struct relay_server;

/* Zeros mean the defaults. */
struct relay_options {
    const char *address; /* HOST:PORT, where ranks connect; as in tcp_bind_host */
    uint8_t key[RELAY_KEY];
    size_t links;     /* most pairs, and most ranks that wait; 1,024, or a quarter of the open files */
    size_t strangers; /* most connections that have not shown a ticket; 256 */
    int hello_ms;     /* time for showing it; 5,000 */
    int wait_ms;      /* time that a rank may wait for its peer; 60,000 */
    int flush_ms;     /* time for the last bytes after the sender has closed; 10,000 */
};

/* Since relay_server_open; `now` counts what is there at this moment. */
struct relay_traffic {
    uint64_t bytes;         /* received from ranks to be copied */
    uint64_t links;         /* pairs that were joined */
    uint64_t refused;       /* connections that ended without a valid ticket, or for lack of a place */
    uint64_t links_now;     /* pairs */
    uint64_t strangers_now; /* connections without a ticket */
    uint64_t buffered_now;  /* bytes that were received and not sent yet */
};

/* INVALID_ARGUMENT: the address. Other errors: it cannot listen there. */
MUST_CHECK enum err_code relay_server_open(struct relay_server **out, const struct relay_options *options,
                                           struct err *e);
void relay_server_close(struct relay_server *server); /* closes all connections; NULL is fine */
uint16_t relay_server_port(const struct relay_server *server);
void relay_server_count(const struct relay_server *server, struct relay_traffic *out);

#endif
