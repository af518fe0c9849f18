#ifndef DDP_PROTO_RPC_CORE_H
#define DDP_PROTO_RPC_CORE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <grpc/grpc.h>
#include <uv.h>

#include "base/err.h"

/* What the RPC server and the RPC clients share. Private to proto/.
 *
 * A tag is one outstanding operation. gRPC synchronises the thread that starts an operation with the thread that
 * receives its completion, but ThreadSanitizer cannot see that code. So each tag synchronises them with one atomic,
 * too: released before the operation starts, acquired when it has completed. */
struct rpc_tag {
    void (*done)(struct rpc_tag *tag, bool ok); /* on the loop's thread */
    void *owner;
    struct rpc_tag *next;
    bool ok;
    atomic_uint order;
};
void rpc_tag_arm(struct rpc_tag *tag);
void rpc_tag_home(struct rpc_tag *tag);

/* Starts a batch; a refusal by gRPC is a bug of this program. */
void rpc_batch(grpc_call *call, const grpc_op *ops, size_t count, struct rpc_tag *tag);

/* A completion queue, the thread that waits in it, and the hand-over of completions to a libuv loop.
 *
 * An operation that completes while it is started, as most sends do, does not take the way through the thread, which would
 * wake the thread and then the loop. gRPC leaves it to the caller, and an idle handle delivers it in the loop's next turn. */
struct rpc_cq {
    grpc_completion_queue *queue;
    pthread_t thread;
    uv_async_t wake;
    pthread_mutex_t lock; /* over first, last, ended */
    struct rpc_tag *first, *last;
    bool ended;
    /* of the loop's thread */
    uv_idle_t idle;
    struct rpc_tag *done_first, *done_last; /* completed while they were started */
    unsigned closing;                       /* handles that are being closed */
    void (*on_closed)(void *user);
    void *closed_user;
};
void rpc_cq_init(struct rpc_cq *cq);
void rpc_cq_start(struct rpc_cq *cq, uv_loop_t *loop);
/* From now on no operation may be started. The outstanding ones are still delivered, then the thread ends, then
 * on_closed is called. */
void rpc_cq_close(struct rpc_cq *cq, void (*on_closed)(void *user), void *user);
/* rpc_batch for a call on this queue. Loop thread, and the queue was started. */
void rpc_cq_batch(struct rpc_cq *cq, grpc_call *call, const grpc_op *ops, size_t count, struct rpc_tag *tag);
void rpc_cq_release(struct rpc_cq *cq); /* for a queue whose thread was never started */

/* Initializes gRPC; calls are counted, and the first one sets up gRPC's log. A server logs gRPC's own errors as
 * warnings, a client as debug lines. */
void rpc_grpc_enter(bool server);
void rpc_grpc_leave(void);

gpr_timespec rpc_deadline(int64_t timeout_ms); /* that much from now, CLOCK_MONOTONIC; negative: never */
int64_t rpc_deadline_left_ms(gpr_timespec deadline);

/* Copies a checked message to a slice or buffer. */
MUST_CHECK enum err_code rpc_pack_buffer(const void *message, grpc_byte_buffer **out, size_t *size,
                                         struct err *e);
/* Unpacks and destroys *buffer. */
MUST_CHECK enum err_code rpc_unpack_buffer(const void *type, grpc_byte_buffer **buffer, void **out,
                                           struct err *e);
char *rpc_slice_text(grpc_slice slice); /* the caller frees */

#endif
