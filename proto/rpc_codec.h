#ifndef DDP_PROTO_RPC_CODEC_H
#define DDP_PROTO_RPC_CODEC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <protobuf-c/protobuf-c.h>

#include "base/buf.h"
#include "base/err.h"

/* Messages to bytes and back, for data that may come from an attacker. Both ways every string is valid UTF-8
 * without NUL; unpacking allocates at most RPC_UNPACK_SPARE + RPC_UNPACK_FACTOR times the bytes it was given
 * and goes no deeper than RPC_DEPTH messages. Any thread. */

#define RPC_UNPACK_SPARE ((size_t)64 * 1024)
#define RPC_UNPACK_FACTOR 16
#define RPC_DEPTH 16

/* *out is the caller's, released with rpc_free. INVALID_ARGUMENT: not such a message, names the field where
 * it can; RESOURCE_EXHAUSTED: would allocate too much. */
MUST_CHECK enum err_code rpc_unpack(const ProtobufCMessageDescriptor *type, const void *data, size_t len,
                                    void **out, struct err *e);
void rpc_free(void *message);            /* any unpacked message; NULL is fine */
void rpc_release(void *message_pointer); /* for CLEANUP on a message pointer of any type */

/* Appends the bytes. INTERNAL when a string of it is not UTF-8 (the field is named). */
MUST_CHECK enum err_code rpc_pack(const void *message, struct buf *out, struct err *e);

/* The check of rpc_pack alone, and the size the bytes will have. */
MUST_CHECK enum err_code rpc_pack_check(const void *message, size_t *size, struct err *e);

bool rpc_utf8_valid(const void *text, size_t len); /* NUL counts as invalid */
/* Makes foreign text (a worker's stderr, a file name) fit for a string field: each bad byte becomes '?'. In
 * place. */
char *rpc_utf8_clean(char *text);

#endif
