#include <stdint.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "proto/rpc_frames.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* The first byte: TLS or not, admitted or not, and how the rest is cut into pieces. Cut or whole, the same
 * bytes get the same action, and no more passes than was offered. */

static size_t carry(struct rpc_frames *f, const uint8_t *data, size_t size, size_t piece, bool admitted,
                    enum rpc_frames_action *action)
{
    size_t at = 0;

    *action = RPC_FRAMES_PASS;
    while (at < size && *action == RPC_FRAMES_PASS) {
        const size_t len = size - at < piece ? size - at : piece;
        const char *why = NULL;
        size_t passed = len + 1;

        *action = rpc_frames_feed(f, data + at, len, admitted, 5, &passed, &why);
        BUG_ON(passed > len || (*action == RPC_FRAMES_PASS && passed != len));
        BUG_ON(*action == RPC_FRAMES_ABUSE && (!why || admitted));
        at += passed;
    }
    return at;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct rpc_frames whole, cut;
    enum rpc_frames_action first, second;
    bool enough;

    if (size == 0)
        return 0;
    const bool tls = data[0] & 1, admitted = data[0] & 2;
    const size_t piece = 1 + (data[0] >> 2);
    data++;
    size--;
    rpc_frames_begins(data, size, tls, &enough);
    rpc_frames_asks(data, size);
    rpc_frames_init(&whole, tls, 0);
    rpc_frames_init(&cut, tls, 0);
    const size_t a = carry(&whole, data, size, size ? size : 1, admitted, &first);
    const size_t b = carry(&cut, data, size, piece, admitted, &second);
    /* the head of a frame that may not pass goes as far as it was there before the action */
    BUG_ON(first != second || (a > b ? a - b : b - a) > 24);
    return 0;
}
