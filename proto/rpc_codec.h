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

/* The caller owns *out and releases it with rpc_free. INVALID_ARGUMENT: the bytes are not such a message; the text
 * names the field if it is known. RESOURCE_EXHAUSTED: the message would allocate too much. */
MUST_CHECK enum err_code rpc_unpack(const ProtobufCMessageDescriptor *type, const void *data, size_t len,
                                    void **out, struct err *e);
void rpc_free(void *message);            /* releases any unpacked message; does nothing for NULL */
void rpc_release(void *message_pointer); /* for CLEANUP on a message pointer of any type */

/* Appends the bytes. INTERNAL: a string of the message is not UTF-8; the text names the field. */
MUST_CHECK enum err_code rpc_pack(const void *message, struct buf *out, struct err *e);

/* Only checks the message as rpc_pack does, and returns the size of its bytes. */
MUST_CHECK enum err_code rpc_pack_check(const void *message, size_t *size, struct err *e);

bool rpc_utf8_valid(const void *text, size_t len); /* NUL counts as invalid */
/* Makes any text (a worker's stderr, a file name) valid for a string field: replaces each invalid byte by '?', in
 * place. */
char *rpc_utf8_clean(char *text);

#endif
