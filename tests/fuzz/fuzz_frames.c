#include <stdint.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "proto/rpc_frames.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* The first byte says whether the connection has TLS, whether it is admitted, and into how large pieces the
 * rest is cut. However the bytes are cut, they get the same action, and no more bytes pass than were offered.
 */

static size_t carry_pieces(struct rpc_frames *f, const uint8_t *data, size_t size, size_t piece,
                           bool admitted, enum rpc_frames_action *action)
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
    const size_t a = carry_pieces(&whole, data, size, size ? size : 1, admitted, &first);
    const size_t b = carry_pieces(&cut, data, size, piece, admitted, &second);
    /* The two may differ by the start of one frame: of a frame that may not pass, those bytes pass that
     * arrive before its head is complete. */
    BUG_ON(first != second || (a > b ? a - b : b - a) > 24);
    return 0;
}
