#include <stdint.h>
#include <string.h>

#include "base/err.h"
#include "base/event_file/event_read.h"
#include "base/mem.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void scalar_check(void *ctx, const struct event_scalar *scalar)
{
    (void)ctx;
    BUG_ON(!memchr(scalar->tag, 0, EVENT_TAG) || !scalar->tag[0]);
}

/* The input is an event file, and also a message without a record around it. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *at = data;

    (void)event_scalars(data, size, scalar_check, NULL);
    for (size_t left = size;;) {
        struct event_record r;
        enum event_piece piece = event_record_next(at, left, &r);

        if (piece == EVENT_MORE || r.size > left)
            return 0;
        BUG_ON(!r.size);
        if (piece == EVENT_DATA)
            (void)event_scalars(r.data, r.len, scalar_check, NULL);
        at += r.size;
        left -= r.size;
    }
}
