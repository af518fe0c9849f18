/* Captures work that is the same each time into a CUDA graph, which is then launched with one call. Capturing does not
 * execute the work. If a capture fails, the caller does the work again, and the device captures nothing any more. */
#include "trainer/device/cuda/graph.h"
#include "trainer/device/cuda/cuda.h"

static void graph_release(struct cuda_graph *g)
{
    if (g->run)
        (void)cudaGraphExecDestroy(g->run);
    *g = (struct cuda_graph){0};
}

void cuda_forget(struct cuda_device *c)
{
    for (unsigned i = 0; i < c->graphs; i++)
        graph_release(&c->graph[i]);
    c->graphs = c->oldest_graph = 0;
}

/* ThreadLocal: other threads may call CUDA during the capture. */
void cuda_record(struct device *d, uint64_t key)
{
    struct cuda_device *c = cuda_of(d);
    c->recording = 0;
    if (c->plain || !cuda_ready(c))
        return;
    size_t before = attention_bytes(c->attention);
    attention_settle(c->attention); /* during the recording, nothing can be loaded or allocated */
    c->base.workspace += attention_bytes(c->attention) - before;
    if (cudaStreamBeginCapture(c->stream, cudaStreamCaptureModeThreadLocal) == cudaSuccess) {
        c->recording = key;
        return;
    }
    (void)cudaGetLastError();
    c->plain = true;
}

static bool graph_store(struct cuda_device *c, cudaGraph_t graph)
{
    struct cuda_graph made = {.key = c->recording};
    if (cudaGraphInstantiate(&made.run, graph, 0) != cudaSuccess)
        return false;
    /* When all places are taken, the oldest recording makes room. */
    struct cuda_graph *at =
        &c->graph[c->graphs < CUDA_GRAPHS ? c->graphs++ : c->oldest_graph++ % CUDA_GRAPHS];
    graph_release(at);
    *at = made;
    return true;
}

bool cuda_recorded(struct device *d)
{
    struct cuda_device *c = cuda_of(d);
    cudaGraph_t graph = NULL;
    uint64_t key = c->recording;
    if (!key)
        return true; /* not recording: the work was started directly, or the device has an error */
    bool ok = cudaStreamEndCapture(c->stream, &graph) == cudaSuccess && graph && cuda_ready(c) &&
              graph_store(c, graph);
    if (graph)
        (void)cudaGraphDestroy(graph);
    c->recording = 0;
    if (ok)
        return cuda_replay(d, key);
    (void)cudaGetLastError();
    c->plain = true;
    if (!c->lost)
        c->first.code = ERR_OK; /* the error came from the capture; the caller repeats the work without it */
    return c->lost;
}

bool cuda_replay(struct device *d, uint64_t key)
{
    struct cuda_device *c = cuda_of(d);
    if (!cuda_ready(c))
        return true; /* nothing is started after an error, so the caller need not do the work either */
    for (unsigned i = 0; i < c->graphs; i++)
        if (c->graph[i].key == key) {
            cuda_ok(c, cudaGraphLaunch(c->graph[i].run, c->stream), "repeating recorded work");
            return true;
        }
    return false;
}
