#ifndef DDP_PROTO_RPC_CHANNEL_STATE_H
#define DDP_PROTO_RPC_CHANNEL_STATE_H

#include <pthread.h>
#include <stdatomic.h>

#include "proto/rpc_link.h"

/* A channel's state, which its calls (rpc_channel.c) and its streams (rpc_stream.c) share. Inside proto/
 * only. */

/* Blocking calls in progress, so that rpc_channel_cancel reaches them. */
struct rpc_active {
    struct rpc_active *prev, *next;
    grpc_call *grpc;
    atomic_bool asked; /* cancelled by this side */
};
struct rpc_channel {
    struct rpc_link link;
    pthread_mutex_t lock; /* over active, pausing and the link's connection */
    struct rpc_active *active;
    int pausing; /* threads between two tries */
    atomic_bool cancelled;
};
/* Creates the call and lists it. */
void rpc_active_begin(struct rpc_channel *channel, struct rpc_active *active, grpc_completion_queue *queue,
                      const ProtobufCServiceDescriptor *service, const char *method, gpr_timespec deadline);
void rpc_active_remove(struct rpc_channel *channel, struct rpc_active *active);
void rpc_active_cancel(struct rpc_active *active);

/* Waits for one tag of a pluck queue; false: the deadline came first. */
bool rpc_pluck(grpc_completion_queue *queue, struct rpc_tag *tag, gpr_timespec deadline);

#endif
