#ifndef DDP_PROTO_RPC_RELAY_H
#define DDP_PROTO_RPC_RELAY_H

#include "proto/rpc_frames.h"
#include "proto/rpc_gate_state.h"

/* One TCP connection at the gate: its first bytes, its handover to gRPC, and afterwards the bytes in both directions.
 * Belongs to the gate's thread; inside proto/ only. */

struct rpc_pipe { /* bytes that were read and not written yet */
    uint8_t *data;
    size_t len, ready; /* ready: may be written; the rest exceeds a limit and waits */
    bool eof;          /* nothing more will be read */
};

struct rpc_relay {
    struct rpc_connection connection;
    struct rpc_gate *gate;
    struct rpc_tcp_listener *listener;
    struct rpc_relay *chain;       /* by number */
    struct rpc_relay *prev, *next; /* all of the gate */
    struct rpc_relay *tracked_prev, *tracked_next;
    uint64_t number;
    struct rpc_gate_socket tcp, back; /* back: the end towards gRPC; -1 before the handover */
    struct rpc_frames frames;
    struct rpc_pipe up, down; /* up: to gRPC */
    int64_t since_ms;         /* accepted, then handed over */
    int64_t ending_ms;        /* gRPC has closed it and the client still reads; 0: no */
    int64_t unread_ms;        /* since when gRPC has not read the same bytes; 0: it reads */
    bool fed;                 /* got bytes since the last check */
    bool tracked, is_closed, shut;
    bool refused; /* under the lock: a call of this connection was refused */
    atomic_bool admitted;
    char address[64];
};

/* Functions that return bool return false when the relay must be closed. */
struct rpc_relay *relay_open(struct rpc_gate *gate, struct rpc_tcp_listener *listener, int fd);
void relay_close(struct rpc_relay *relay, bool reset); /* freed at the end of the turn */
void relay_free(struct rpc_relay *relay);
bool relay_read_first(struct rpc_relay *relay,
                      enum rpc_stage *stage); /* reads the first bytes; *stage: how far it got */
enum relay_handover { RELAY_HANDED_OVER, RELAY_LATER, RELAY_FAILED };
enum relay_handover relay_hand_over(struct rpc_relay *relay, int64_t now);
bool relay_carry(struct rpc_relay *relay, bool up, bool down,
                 int64_t now); /* up, down: the directions that may move */
void relay_track_unread(struct rpc_relay *relay, bool wanted);
bool relay_is_unread(struct rpc_relay *relay, int64_t now); /* whether gRPC leaves bytes of it unread */

#endif
