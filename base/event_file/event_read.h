#ifndef DDP_BASE_EVENT_FILE_EVENT_READ_H
#define DDP_BASE_EVENT_FILE_EVENT_READ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Reads TensorBoard event files (event_write.h) in pieces, while a program writes them. The bytes are not trusted. Any
 * thread. */

#define EVENT_DATA_MOST (1 << 20) /* bytes of a record that is read; a longer one holds images or a graph */
#define EVENT_TAG 128             /* bytes of a tag with its NUL; a curve with a longer one is left out */

enum event_piece {
    EVENT_MORE,    /* the record is not complete: read more bytes and try again */
    EVENT_DATA,    /* a record; its checksums are right */
    EVENT_LONG,    /* a record of more than EVENT_DATA_MOST bytes, all of it to be skipped */
    EVENT_DAMAGED, /* bytes that are no record, or a record whose checksum is wrong */
};

struct event_record {
    uint64_t size; /* of the whole piece: the next record follows it */
    const uint8_t *data;
    size_t len;
};
/* Looks at the first record of `bytes`. A damaged piece ends where the next good record begins, or else with the bytes. */
enum event_piece event_record_next(const uint8_t *bytes, size_t len, struct event_record *out);

struct event_scalar {
    double wall_s; /* when the program wrote it, since 1970 UTC */
    int64_t step;
    char tag[EVENT_TAG];
    double value; /* NaN: not a number, or not finite */
};
/* Calls fn with each scalar of an Event message, whether it is written as a number or as a tensor with one element.
 * Returns false if the message is not well-formed; fn may have been called before. */
bool event_scalars(const uint8_t *data, size_t len, void (*fn)(void *ctx, const struct event_scalar *scalar),
                   void *ctx);

#endif
