/* Graphs: operations recorded from a stream, which are queued again in the same order. */
#include <stdlib.h>

#include "base/mem.h"
#include "stream.h"

struct CUgraphExec_st {
    struct operations operations;
};

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode)
{
    enter();
    (void)mode;
    cudaError_t error = call_check();
    if (error)
        return leave(error);
    cudaGraph_t g = xcalloc(1, sizeof *g);
    operations_init(&g->operations);
    g->origin = stream;
    error = stream_capture(stream, g);
    if (error)
        free(g);
    return leave(error);
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *out)
{
    enter();
    cudaGraph_t g = stream ? stream->capture : NULL;
    *out = NULL;
    if (!g || g->origin != stream)
        return leave(cudaErrorStreamCaptureUnmatched);
    stream_capture_end(g);
    cudaError_t error = call_check();
    if (!error && g->invalid)
        error = cudaErrorStreamCaptureInvalidated;
    if (!error) {
        *out = g;
        return leave(cudaSuccess);
    }
    operations_drop(&g->operations);
    free(g);
    return leave(error);
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, enum cudaStreamCaptureStatus *out)
{
    enter();
    *out = cudaStreamCaptureStatusNone;
    if (stream_is_captured(stream))
        *out = stream->capture->invalid ? cudaStreamCaptureStatusInvalidated : cudaStreamCaptureStatusActive;
    return leave(call_check());
}

cudaError_t cudaGraphGetNodes(cudaGraph_t graph, void *nodes, size_t *count)
{
    enter();
    (void)nodes;
    *count = 0;
    for (const struct operation *o = graph->operations.first; o; o = o->next)
        ++*count;
    return leave(call_check());
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *out, cudaGraph_t graph, unsigned long long flags)
{
    enter();
    (void)flags;
    cudaError_t error = call_check();
    if (error)
        return leave(error);
    cudaGraphExec_t exec = xcalloc(1, sizeof *exec);
    operations_init(&exec->operations);
    operations_copy(&exec->operations, &graph->operations);
    *out = exec;
    return leave(cudaSuccess);
}

cudaError_t cudaGraphUpload(cudaGraphExec_t exec, cudaStream_t stream)
{
    enter();
    (void)exec;
    (void)stream;
    return leave(call_check());
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream)
{
    enter();
    cudaError_t error = call_check();
    for (const struct operation *o = exec->operations.first; o && !error; o = o->next)
        error = stream_put(stream, operation_create(o->name, o->run, o->closure, o->bytes));
    return leave(error);
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
    enter();
    operations_drop(&graph->operations);
    free(graph);
    return leave(cudaSuccess);
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec)
{
    enter();
    operations_drop(&exec->operations);
    free(exec);
    return leave(cudaSuccess);
}
