/* Graphs: operations recorded from a stream, which are queued again in the same order. */
#include <stdlib.h>

#include "base/mem.h"
#include "stream.h"

struct CUgraphExec_st {
    struct operations operations;
};

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode)
{
    runtime_enter();
    (void)mode;
    cudaError_t error = call_check();
    if (error)
        return runtime_leave(error);
    cudaGraph_t g = xcalloc(1, sizeof *g);
    operations_init(&g->operations);
    g->origin = stream;
    error = stream_capture(stream, g);
    if (error)
        free(g);
    return runtime_leave(error);
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *out)
{
    runtime_enter();
    cudaGraph_t g = stream ? stream->capture : NULL;
    *out = NULL;
    if (!g || g->origin != stream)
        return runtime_leave(cudaErrorStreamCaptureUnmatched);
    stream_capture_end(g);
    cudaError_t error = call_check();
    if (!error && g->invalid)
        error = cudaErrorStreamCaptureInvalidated;
    if (!error) {
        *out = g;
        return runtime_leave(cudaSuccess);
    }
    operations_drop(&g->operations);
    free(g);
    return runtime_leave(error);
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, enum cudaStreamCaptureStatus *out)
{
    runtime_enter();
    *out = cudaStreamCaptureStatusNone;
    if (stream_is_captured(stream))
        *out = stream->capture->invalid ? cudaStreamCaptureStatusInvalidated : cudaStreamCaptureStatusActive;
    return runtime_leave(call_check());
}

cudaError_t cudaGraphGetNodes(cudaGraph_t graph, void *nodes, size_t *count)
{
    runtime_enter();
    (void)nodes;
    *count = 0;
    for (const struct operation *o = graph->operations.first; o; o = o->next)
        ++*count;
    return runtime_leave(call_check());
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *out, cudaGraph_t graph, unsigned long long flags)
{
    runtime_enter();
    (void)flags;
    cudaError_t error = call_check();
    if (error)
        return runtime_leave(error);
    cudaGraphExec_t exec = xcalloc(1, sizeof *exec);
    operations_init(&exec->operations);
    operations_copy(&exec->operations, &graph->operations);
    *out = exec;
    return runtime_leave(cudaSuccess);
}

cudaError_t cudaGraphUpload(cudaGraphExec_t exec, cudaStream_t stream)
{
    runtime_enter();
    (void)exec;
    (void)stream;
    return runtime_leave(call_check());
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream)
{
    runtime_enter();
    cudaError_t error = call_check();
    for (const struct operation *o = exec->operations.first; o && !error; o = o->next)
        error = stream_put(stream, operation_create(o->name, o->run, o->closure, o->bytes));
    return runtime_leave(error);
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
    runtime_enter();
    operations_drop(&graph->operations);
    free(graph);
    return runtime_leave(cudaSuccess);
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec)
{
    runtime_enter();
    operations_drop(&exec->operations);
    free(exec);
    return runtime_leave(cudaSuccess);
}
