#ifndef DDP_PROTO_RPC_STATUS_H
#define DDP_PROTO_RPC_STATUS_H

#include <stddef.h>

#include "base/err.h"

/* struct err carries gRPC's numbers, so the mapping is about the edges: codes that do not exist, texts that
 * are not UTF-8 or too long, and calls that end as CANCELLED although nobody cancelled them. Any thread. */

/* A received status as an error; text need not end in NUL. Returns the code (ERR_OK leaves an empty message).
 */
enum err_code rpc_status_read(int status, const char *text, size_t len, struct err *e);

/* As rpc_status_read, for a call's own end: CANCELLED that this side did not ask for (a call that crossed a
 * server's GOAWAY) means UNAVAILABLE. */
enum err_code rpc_status_of_call(int status, const char *text, size_t len, int asked, struct err *e);

/* The number that goes on the wire for e->code. */
int rpc_status_code(const struct err *e);

#endif
