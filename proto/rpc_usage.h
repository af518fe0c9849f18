#ifndef DDP_PROTO_RPC_USAGE_H
#define DDP_PROTO_RPC_USAGE_H

#include "base/worker/usage.h"
#include "proto/ddp.pb-c.h"

/* struct usage as a message. */
void rpc_usage_pack(const struct usage *u, Ddp__V1__Usage *out);
void rpc_usage_unpack(const Ddp__V1__Usage *m, struct usage *out); /* values below 0 become NaN */

#endif
