#ifndef DDP_TESTS_UNIT_TCPSTORE_REQUEST_BYTES_H
#define DDP_TESTS_UNIT_TCPSTORE_REQUEST_BYTES_H

#include <stdint.h>
#include <string.h>

#include "base/buf.h"
#include "daemon/tcpstore/request.h"
#include "tests/unit/base/check.h"

/* Requests as PyTorch's clients write them, appended to a buffer. The first bytes of those of 2.1 and later: */
#define VALIDATE_BYTES "\x00\xce\xf7\x85\x3c"

static inline void put_u64(struct buf *b, uint64_t number)
{
    buf_append(b, &number, sizeof(number));
}

static inline void put_piece(struct buf *b, const char *text)
{
    put_u64(b, strlen(text));
    buf_puts(b, text);
}

/* texts end with NULL */
static inline void put_request(struct buf *b, int command, const char *const *texts)
{
    buf_putc(b, (char)command);
    for (; *texts; texts++)
        put_piece(b, *texts);
}

#define TEXTS(...) ((const char *const[]){__VA_ARGS__, NULL})

static inline struct tcpstore_piece piece_of(const char *text)
{
    return (struct tcpstore_piece){text, strlen(text)};
}

static inline void check_piece(struct tcpstore_piece piece, const char *text)
{
    assert_int_equal(piece.size, strlen(text));
    if (piece.size)
        assert_memory_equal(piece.data, text, piece.size);
}

#endif
