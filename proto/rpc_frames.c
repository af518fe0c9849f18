#include "proto/rpc_frames.h"

#include <string.h>

#define MAGIC_BYTES 24
static const uint8_t magic[MAGIC_BYTES + 1] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/* RFC 9113, 6 */
enum { DATA = 0, HEADERS = 1, RST_STREAM = 3, SETTINGS = 4, WINDOW_UPDATE = 8, CONTINUATION = 9 };
enum { HEAD_BYTES = 9, TLS_HANDSHAKE = 0x16, TLS_MAJOR = 3 };

/* The number of frames of a kind that may come at once, and per second. Before its first call is answered a gRPC client opens
 * a few streams and resets those that it cancels. It sends one SETTINGS, an acknowledgement, a ping now
 * and then, and a window update for each piece that it has read. */
struct allowance_limit {
    int64_t burst, rate;
};
static const struct allowance_limit bytes_allowed = {256 * 1024, 128 * 1024};
static const struct allowance_limit streams_allowed = {64, 16};
static const struct allowance_limit resets_allowed = {64, 8};
static const struct allowance_limit odd_allowed = {400, 50};
#define CONTINUATION_COST 50
static const struct allowance_limit late_resets_allowed = {1000, 200};

static void allowance_refill(struct rpc_allowance *a, const struct allowance_limit *of, int64_t now)
{
    /* Only whole units are added; the time that is left over counts at the next refill. */
    const int64_t more = (now - a->refilled_ms) * of->rate / 1000;

    if (a->left + more >= of->burst) {
        a->left = of->burst;
        a->refilled_ms = now;
    } else if (more > 0) {
        a->left += more;
        a->refilled_ms += more * 1000 / of->rate;
    }
}

void rpc_frames_init(struct rpc_frames *f, bool tls, int64_t now)
{
    *f = (struct rpc_frames){.tls = tls,
                             .bytes = {bytes_allowed.burst, now},
                             .streams = {streams_allowed.burst, now},
                             .resets = {resets_allowed.burst, now},
                             .odd = {odd_allowed.burst, now},
                             .late_resets = {late_resets_allowed.burst, now}};
}

bool rpc_frames_begins(const uint8_t *data, size_t len, bool tls, bool *enough)
{
    if (tls) {
        *enough = len >= 2;
        return (len < 1 || data[0] == TLS_HANDSHAKE) && (len < 2 || data[1] == TLS_MAJOR);
    }
    *enough = len >= MAGIC_BYTES;
    return memcmp(data, magic, len < MAGIC_BYTES ? len : MAGIC_BYTES) == 0;
}

static uint32_t head_payload(const uint8_t *head)
{
    return (uint32_t)head[0] << 16 | (uint32_t)head[1] << 8 | head[2];
}

bool rpc_frames_asks(const uint8_t *data, size_t len)
{
    for (size_t at = MAGIC_BYTES; at + HEAD_BYTES <= len; at += HEAD_BYTES + head_payload(data + at))
        if (data[at + 3] != SETTINGS && data[at + 3] != WINDOW_UPDATE)
            return true;
    return false;
}

static enum rpc_frames_action head_check(struct rpc_frames *f, bool admitted, const char **why)
{
    const uint8_t kind = f->head[3];

    if (kind == RST_STREAM) {
        struct rpc_allowance *left = admitted ? &f->late_resets : &f->resets;
        if (left->left > 0) {
            left->left--;
            return RPC_FRAMES_PASS;
        }
        /* Opening and resetting streams costs the server much and the client nothing (rapid reset). An
         * admitted client may cancel many calls for good reasons, so it is only slowed down. */
        *why = "resets";
        return admitted ? RPC_FRAMES_WAIT : RPC_FRAMES_ABUSE;
    }
    if (admitted)
        return RPC_FRAMES_PASS;
    if (kind == HEADERS) {
        /* Many calls at once are slow to be admitted, but legitimate. */
        if (f->streams.left <= 0)
            return RPC_FRAMES_WAIT;
        f->streams.left--;
        return RPC_FRAMES_PASS;
    }
    if (kind == DATA && f->payload > 0)
        return RPC_FRAMES_PASS; /* limited by its bytes instead */
    /* Headers that need a CONTINUATION are larger than any that gRPC accepts. */
    f->odd.left -= kind == CONTINUATION ? CONTINUATION_COST : 1;
    if (f->odd.left >= 0)
        return RPC_FRAMES_PASS;
    *why = kind == WINDOW_UPDATE  ? "window updates"
           : kind == CONTINUATION ? "endless headers"
                                  : "control frames";
    return RPC_FRAMES_ABUSE;
}

static size_t size_min(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Takes the header of a frame. A header that must wait is not taken, so it is offered again later. */
static enum rpc_frames_action head_take(struct rpc_frames *f, const uint8_t *data, size_t len, bool admitted,
                                        size_t *taken, const char **why)
{
    const size_t had = f->head_len, more = size_min(len, HEAD_BYTES - had);
    enum rpc_frames_action action;

    memcpy(f->head + had, data, more);
    *taken = more;
    f->head_len = had + more;
    if (f->head_len < HEAD_BYTES)
        return RPC_FRAMES_PASS;
    f->payload = head_payload(f->head);
    action = head_check(f, admitted, why);
    if (action == RPC_FRAMES_PASS) {
        f->head_len = 0;
    } else {
        f->head_len = had;
        f->payload = 0;
        *taken = 0;
    }
    return action;
}

static enum rpc_frames_action preface_take(struct rpc_frames *f, const uint8_t *data, size_t len,
                                           size_t *taken)
{
    const size_t more = size_min(len, MAGIC_BYTES - f->magic);

    *taken = 0;
    if (memcmp(data, magic + f->magic, more) != 0)
        return RPC_FRAMES_FOREIGN;
    f->magic += more;
    *taken = more;
    return RPC_FRAMES_PASS;
}

static enum rpc_frames_action piece_take(struct rpc_frames *f, const uint8_t *data, size_t len, bool admitted,
                                         size_t *taken, const char **why)
{
    if (f->tls) {
        *taken = len;
    } else if (f->magic < MAGIC_BYTES) {
        return preface_take(f, data, len, taken);
    } else if (f->payload) {
        *taken = size_min(len, f->payload);
        f->payload -= (uint32_t)*taken;
    } else {
        return head_take(f, data, len, admitted, taken, why);
    }
    return RPC_FRAMES_PASS;
}

enum rpc_frames_action rpc_frames_feed(struct rpc_frames *f, const uint8_t *data, size_t len, bool admitted,
                                       int64_t now, size_t *passed, const char **why)
{
    enum rpc_frames_action action = RPC_FRAMES_PASS;
    size_t room = len;

    *passed = 0;
    allowance_refill(&f->bytes, &bytes_allowed, now);
    allowance_refill(&f->streams, &streams_allowed, now);
    allowance_refill(&f->resets, &resets_allowed, now);
    allowance_refill(&f->odd, &odd_allowed, now);
    allowance_refill(&f->late_resets, &late_resets_allowed, now);
    if (!admitted)
        room = size_min(len, (size_t)f->bytes.left);
    while (action == RPC_FRAMES_PASS && *passed < room) {
        size_t taken = 0;

        action = piece_take(f, data + *passed, room - *passed, admitted, &taken, why);
        *passed += taken;
    }
    if (!admitted)
        f->bytes.left -= (int64_t)*passed;
    return action == RPC_FRAMES_PASS && *passed < len ? RPC_FRAMES_WAIT : action;
}
