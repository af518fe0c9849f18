#ifndef DDP_PROTO_RPC_LINK_H
#define DDP_PROTO_RPC_LINK_H

#include "proto/rpc_client.h"
#include "proto/rpc_core.h"
#include "proto/rpc_creds.h"

/* What every kind of client shares: the connection to the server, and the result of a call. Inside proto/
 * only. */

/* gRPC's channel, the header that goes with each call, and what the channel was made of. */
struct rpc_link {
    grpc_channel *grpc;
    char *target;
    struct rpc_channel_options options; /* the link owns its texts and files */
    struct rpc_tls_files files;
    struct pem_watch watch; /* of files */
    grpc_slice
        authorization; /* "Bearer ..."; a counted slice, since a connection may need it longer than the link exists */
    bool has_token;
    bool shared; /* another link owns the connection */
};
MUST_CHECK enum err_code rpc_link_open(struct rpc_link *link, const char *target,
                                       const struct rpc_channel_options *options, struct err *e);
/* Another token on the same connection, which has no TLS files and is closed later. */
MUST_CHECK enum err_code rpc_link_share(struct rpc_link *link, const struct rpc_link *with, const char *token,
                                        struct err *e);
void rpc_link_close(struct rpc_link *link);
/* Connects again if the TLS files have changed; keeps the present connection if the new files are invalid. No call
 * may be in progress. */
void rpc_link_refresh(struct rpc_link *link);

/* Finds the method; a name that the service does not have is a bug. */
const ProtobufCMethodDescriptor *rpc_link_method(const ProtobufCServiceDescriptor *service,
                                                 const char *method, const void *request);
grpc_call *rpc_link_call(struct rpc_link *link, grpc_completion_queue *queue,
                         const ProtobufCServiceDescriptor *service, const char *method,
                         gpr_timespec deadline);
/* Fills the op that sends the headers; *token is one element, to live until the batch has started. */
void rpc_link_headers(const struct rpc_link *link, grpc_op *op, grpc_metadata *token, unsigned flags);

/* The status with which a call ended for the client. */
struct rpc_result {
    grpc_metadata_array headers, trailers;
    grpc_status_code status;
    grpc_slice text;
};
void rpc_result_init(struct rpc_result *result);
void rpc_result_ops(struct rpc_result *result, grpc_op ops[2]); /* receive headers, receive status */
enum err_code rpc_result_read(const struct rpc_result *result, bool asked, struct err *e);
void rpc_result_release(struct rpc_result *result);

#endif
