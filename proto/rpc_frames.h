#ifndef DDP_PROTO_RPC_FRAMES_H
#define DDP_PROTO_RPC_FRAMES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Counts the frames that an HTTP/2 client sends, and says how many bytes of them may pass. Only the nine-byte
 * header of each frame is read. New streams, resets, pings and settings cost a server far more than they cost
 * a client, so an unauthenticated client may send only a few of them.
 *
 * A client that exceeds a limit is treated in one of two ways. Traffic that a well-behaved client might send
 * too (many calls at once, a large first message) waits. Traffic that no well-behaved client sends (hundreds
 * of resets, pings or empty frames) ends the connection. For an admitted client only resets are limited: they
 * wait.
 *
 * No clock and no memory of its own. Any thread, but only one at a time. Times are in milliseconds. */

struct rpc_allowance { /* a burst limit and a rate per second */
    int64_t left, refilled_ms;
};

struct rpc_frames {
    bool tls;     /* the content is encrypted: only bytes are counted */
    size_t magic; /* bytes of the preface that have come */
    uint8_t head[9];
    size_t head_len;
    uint32_t payload; /* of the frame that is passing, still to come */
    struct rpc_allowance bytes, streams, resets, odd, late_resets;
};

enum rpc_frames_action {
    RPC_FRAMES_PASS,   /* all of it */
    RPC_FRAMES_WAIT,   /* the rest must be offered again later */
    RPC_FRAMES_ABUSE,  /* close: *why names it */
    RPC_FRAMES_FOREIGN /* close: that is not HTTP/2, or not TLS */
};

void rpc_frames_init(struct rpc_frames *f, bool tls, int64_t now);
/* Whether these first bytes of a connection may be HTTP/2 (or TLS). *enough: the bytes suffice to decide. */
bool rpc_frames_begins(const uint8_t *data, size_t len, bool tls, bool *enough);
/* Whether a client with these first bytes asks for something that gRPC must answer, most likely a call. */
bool rpc_frames_asks(const uint8_t *data, size_t len);
/* *passed: how many bytes may pass; less than len if the result is WAIT or means to close. */
enum rpc_frames_action rpc_frames_feed(struct rpc_frames *f, const uint8_t *data, size_t len, bool admitted,
                                       int64_t now, size_t *passed, const char **why);

#endif
