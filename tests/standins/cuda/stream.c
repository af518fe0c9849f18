/* Streams: queues of operations. Without a seed, every operation runs as soon as it can. With a seed, nothing
 * runs before the host waits or asks, and then operations run in any order that is allowed: streams that
 * nobody waits for run ahead or lag behind as far as events allow. So a missing wait for an event shows in
 * the numbers. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/err.h"
#include "base/mem.h"
#include "internal.h"
#include "stream.h"

enum { MOST_QUEUED = 4096 };

static struct {
    cudaStream_t all; /* without the default stream, which is always empty */
    size_t queued;
    cudaGraph_t capturing;
} streams;

/* ---- operations */

struct operation *operation_create(const char *name, emulated_run *run, const void *closure, size_t bytes)
{
    size_t size = (sizeof(struct operation) + bytes + 63) / 64 * 64;
    struct operation *o = aligned_alloc(64, size);
    BUG_ON(!o);
    o->next = NULL;
    o->run = run;
    o->name = name;
    o->bytes = bytes;
    if (bytes)
        memcpy(o->closure, closure, bytes);
    return o;
}

void operations_init(struct operations *list)
{
    list->first = NULL;
    list->last = &list->first;
}

void operations_add(struct operations *list, struct operation *o)
{
    *list->last = o;
    list->last = &o->next;
}

void operations_copy(struct operations *to, const struct operations *from)
{
    for (const struct operation *o = from->first; o; o = o->next)
        operations_add(to, operation_create(o->name, o->run, o->closure, o->bytes));
}

void operations_drop(struct operations *list)
{
    for (struct operation *next, *o = list->first; o; o = next) {
        next = o->next;
        free(o);
    }
    operations_init(list);
}

/* ---- running operations */

/* Runs the first operation of a stream. Returns false if there is none, or if it has not finished. */
static bool stream_advance(cudaStream_t s)
{
    struct operation *o = s->queue.first;
    if (!o || s->running)
        return false;
    memory_open();
    s->running = true;
    bool done = runtime_broken() || o->run(o->closure);
    s->running = false;
    if (!done)
        return false;
    s->queue.first = o->next;
    if (!o->next)
        s->queue.last = &s->queue.first;
    streams.queued--;
    free(o);
    return true;
}

static bool advance_any(cudaStream_t but)
{
    unsigned count = 0;
    for (cudaStream_t s = streams.all; s; s = s->next)
        count++;
    if (!count)
        return false;
    uint64_t skip = emulated_draw(count);
    for (unsigned pass = 0; pass < 2; pass++) { /* from the drawn stream to the last, then from the first */
        uint64_t i = 0;
        for (cudaStream_t s = streams.all; s; s = s->next, i++)
            if ((i >= skip) == (pass == 0) && s != but && stream_advance(s))
                return true;
    }
    return false;
}

static void advance_all(void)
{
    while (advance_any(NULL))
        ;
}

/* Runs operations of the stream until done(what) is true. The emulation's seed decides whether operations of other
 * streams run before these, after these, or in between. Returns false if no operation can run. */
static bool advance_until(bool (*done)(const void *), const void *what, cudaStream_t stream)
{
    enum { LAG, AHEAD, MIXED, POLICIES } policy = emulated_seed() ? emulated_draw(POLICIES) : MIXED;
    while (!done(what)) {
        bool others_first = policy == AHEAD || (policy == MIXED && emulated_draw(2));
        if (others_first && advance_any(stream))
            continue;
        if (stream && stream_advance(stream))
            continue;
        if (!advance_any(NULL))
            return false;
    }
    return true;
}

cudaError_t stream_wait(bool (*done)(const void *), const void *what, cudaStream_t stream)
{
    /* an operation of NCCL's stand-in waits for another process */
    while (!advance_until(done, what, stream)) {
        if (runtime_broken())
            break;
        runtime_leave(cudaSuccess);
        nanosleep(&(struct timespec){0, 50000}, NULL);
        runtime_enter();
    }
    return call_check();
}

static bool stream_is_idle(const void *stream)
{
    return !((cudaStream_t)stream)->queue.first;
}

static bool streams_are_idle(const void *unused)
{
    (void)unused;
    return !streams.queued;
}

cudaError_t stream_drain_all(void)
{
    cudaError_t error = stream_forbid_capture();
    return error ? error : stream_wait(streams_are_idle, NULL, NULL);
}

static bool ordinary_are_idle(const void *unused)
{
    (void)unused;
    for (cudaStream_t s = streams.all; s; s = s->next)
        if (s->ordinary && s->queue.first)
            return false;
    return true;
}

/* Runs an operation of the default stream at once, after all operations of ordinary streams. */
static cudaError_t default_put(struct operation *o)
{
    cudaError_t error = stream_wait(ordinary_are_idle, NULL, NULL);
    memory_open();
    while (!error && !runtime_broken() && !o->run(o->closure))
        error = stream_wait(ordinary_are_idle, NULL, NULL);
    free(o);
    return error ? error : call_check();
}

cudaError_t stream_put(cudaStream_t s, struct operation *o)
{
    if (!s)
        return default_put(o);
    if (s->capture) {
        operations_add(&s->capture->operations, o);
        return cudaSuccess;
    }
    operations_add(&s->queue, o);
    streams.queued++;
    if (!emulated_seed())
        advance_all();
    while (streams.queued > MOST_QUEUED && advance_any(NULL))
        ;
    return cudaSuccess;
}

cudaError_t emulated_enqueue(cudaStream_t stream, const char *name, emulated_run *run, const void *closure,
                             size_t bytes)
{
    runtime_enter();
    cudaError_t error = call_check();
    return runtime_leave(error ? error : stream_put(stream, operation_create(name, run, closure, bytes)));
}

bool stream_is_captured(cudaStream_t s)
{
    return s && s->capture;
}

cudaError_t stream_forbid_capture(void)
{
    if (!streams.capturing)
        return cudaSuccess;
    streams.capturing->invalid = true;
    return cudaErrorStreamCaptureUnsupported;
}

bool stream_is_known(cudaStream_t stream)
{
    cudaStream_t s = streams.all;
    while (s && s != stream)
        s = s->next;
    return !stream || s;
}

cudaError_t stream_capture(cudaStream_t stream, cudaGraph_t graph)
{
    if (!stream || streams.capturing)
        return cudaErrorStreamCaptureUnsupported;
    stream->capture = streams.capturing = graph;
    return cudaSuccess;
}

void stream_capture_end(cudaGraph_t graph)
{
    for (cudaStream_t s = streams.all; s; s = s->next)
        if (s->capture == graph)
            s->capture = NULL;
    streams.capturing = NULL;
}

/* ---- streams' calls */

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *out, unsigned flags)
{
    runtime_enter();
    cudaError_t error = call_check();
    if (error)
        return runtime_leave(error);
    cudaStream_t s = xcalloc(1, sizeof *s);
    runtime_handles++;
    operations_init(&s->queue);
    s->ordinary = !(flags & cudaStreamNonBlocking);
    s->next = streams.all;
    streams.all = s;
    *out = s;
    return runtime_leave(cudaSuccess);
}

cudaError_t cudaStreamCreate(cudaStream_t *out)
{
    return cudaStreamCreateWithFlags(out, cudaStreamDefault);
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *out, unsigned flags, int priority)
{
    (void)priority;
    return cudaStreamCreateWithFlags(out, flags);
}

cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    runtime_enter();
    if (!stream || !stream_is_known(stream))
        return runtime_leave(cudaErrorInvalidResourceHandle);
    stream_wait(stream_is_idle, stream, stream);
    cudaStream_t *at = &streams.all;
    while (*at != stream)
        at = &(*at)->next;
    *at = stream->next;
    free(stream);
    runtime_handles--;
    return runtime_leave(call_check());
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    runtime_enter();
    cudaError_t error = call_check();
    if (!error && !stream_is_known(stream))
        error = cudaErrorInvalidResourceHandle;
    if (!error && stream_is_captured(stream))
        error = stream_forbid_capture();
    if (error)
        return runtime_leave(error);
    return runtime_leave(stream ? stream_wait(stream_is_idle, stream, stream)
                                : stream_wait(ordinary_are_idle, NULL, NULL));
}

cudaError_t cudaDeviceSynchronize(void)
{
    runtime_enter();
    cudaError_t error = call_check();
    return runtime_leave(error ? error : stream_drain_all());
}

void stream_pass_time(cudaStream_t stream)
{
    uint64_t steps = emulated_seed() ? 1 + emulated_draw(16) : SIZE_MAX;
    for (uint64_t i = 0; i < steps; i++)
        if (!advance_any(emulated_seed() && emulated_draw(4) ? NULL : stream) &&
            !(stream && stream_advance(stream)))
            return;
}

cudaError_t cudaStreamQuery(cudaStream_t stream)
{
    runtime_enter();
    cudaError_t error = call_check();
    if (!error && stream_is_captured(stream))
        error = stream_forbid_capture();
    if (error)
        return runtime_leave(error);
    stream_pass_time(stream);
    error = call_check();
    if (error)
        return runtime_leave(error);
    return runtime_leave((stream ? stream_is_idle(stream) : ordinary_are_idle(NULL)) ? cudaSuccess
                                                                                     : cudaErrorNotReady);
}

static bool host_function_run(void *closure)
{
    struct {
        cudaHostFn_t fn;
        void *arg;
    } *call = closure;
    call->fn(call->arg);
    return true;
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t fn, void *arg)
{
    struct {
        cudaHostFn_t fn;
        void *arg;
    } call = {fn, arg};
    return emulated_enqueue(stream, "host function", host_function_run, &call, sizeof call);
}
