#ifndef DDP_TESTS_STANDINS_CUDA_STREAM_H
#define DDP_TESTS_STANDINS_CUDA_STREAM_H

#include "internal.h"

/* What streams, events and graphs share. */

struct CUstream_st {
    cudaStream_t next;
    struct operations queue;
    cudaGraph_t capture; /* what is told is written down */
    bool ordinary;       /* waits for the default stream */
    bool running;        /* its first operation is */
};

struct CUgraph_st {
    struct operations operations;
    bool invalid;
    cudaStream_t origin;
};
void operations_init(struct operations *list);
void operations_add(struct operations *list, struct operation *o);
void operations_copy(struct operations *to, const struct operations *from);
void operations_drop(struct operations *list);

/* Runs what there is until done(what); the stream is the one that it is about, NULL: no one's. */
cudaError_t stream_wait(bool (*done)(const void *what), const void *what, cudaStream_t stream);
/* A question lets some time pass. */
void stream_pass_time(cudaStream_t stream);
/* One at a time; the graph is written to from here on, and no longer. */
cudaError_t stream_capture(cudaStream_t stream, cudaGraph_t graph);
void stream_capture_end(cudaGraph_t graph);

#endif
