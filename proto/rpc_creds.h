#ifndef DDP_PROTO_RPC_CREDS_H
#define DDP_PROTO_RPC_CREDS_H

#include <stdbool.h>

#include <grpc/grpc.h>

#include "base/crypto/pem_watch.h"
#include "base/err.h"
#include "proto/rpc_tls.h"

/* rpc_tls_files as gRPC's credentials; inside proto/ only. */

/* Whether ca, cert or key have changed since the last look. */
bool rpc_tls_changed(const struct rpc_tls_files *files, struct pem_watch *watch);

struct rpc_tls_source; /* a server's files; must live longer than the credentials that are made from them */
struct rpc_tls_source *rpc_tls_source_create(const struct rpc_tls_files *files);
void rpc_tls_source_free(struct rpc_tls_source *source);
MUST_CHECK enum err_code rpc_creds_server(struct rpc_tls_source *source, grpc_server_credentials **out,
                                          struct err *e);
MUST_CHECK enum err_code rpc_creds_client(const struct rpc_tls_files *files, grpc_channel_credentials **out,
                                          struct err *e);

#endif
