#ifndef DDP_TESTS_STANDINS_CUDA_STREAM_H
#define DDP_TESTS_STANDINS_CUDA_STREAM_H

#include "internal.h"

/* Shared by streams, events and graphs. */

struct CUstream_st {
    cudaStream_t next;
    struct operations queue;
    cudaGraph_t capture; /* NULL, or the graph in which operations are recorded during a capture */
    bool ordinary;       /* it waits for the default stream */
    bool running;        /* its first operation is running */
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

/* Runs queued operations until done(what). stream: the stream that the caller waits for, or NULL. */
cudaError_t stream_wait(bool (*done)(const void *what), const void *what, cudaStream_t stream);
/* A query of a stream or an event calls this, so that programs which poll make progress. */
void stream_pass_time(cudaStream_t stream);
/* Begins and ends the recording of a stream into a graph. Only one stream is recorded at a time. */
cudaError_t stream_capture(cudaStream_t stream, cudaGraph_t graph);
void stream_capture_end(cudaGraph_t graph);

#endif
