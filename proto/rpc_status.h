#ifndef DDP_PROTO_RPC_STATUS_H
#define DDP_PROTO_RPC_STATUS_H

#include <stddef.h>

#include "base/err.h"

/* struct err has gRPC's codes, so only exceptions are mapped: codes that do not exist, texts that are too long or not
 * UTF-8, and calls that end with CANCELLED although nobody cancelled them. Any thread. */

/* Makes an error from a received status; text need not end in NUL. Returns the code (ERR_OK leaves an empty message).
 */
enum err_code rpc_status_read(int status, const char *text, size_t len, struct err *e);

/* As rpc_status_read, for the end of a call: CANCELLED becomes UNAVAILABLE if this side did not cancel the call, which
 * then crossed a server's GOAWAY. */
enum err_code rpc_status_of_call(int status, const char *text, size_t len, int asked, struct err *e);

/* The number that is sent for e->code. */
int rpc_status_code(const struct err *e);

#endif
