/* Events. Each record gives the event a new version; `done` is the last version that a stream has reached. */
#include <stdlib.h>

#include "base/clock.h"
#include "base/mem.h"
#include "stream.h"

struct CUevent_st {
    uint64_t recorded, done;
    unsigned pending; /* queued operations that record the event or wait for it */
    bool destroyed;
    cudaGraph_t capture; /* the graph, if the event was last recorded during a capture */
    int64_t when_ns;
};

static int64_t passed_ns; /* guarded by the runtime's lock, which running operations have */

void emulated_pass(int64_t ns)
{
    passed_ns += ns;
}

struct event_mention {
    cudaEvent_t event;
    uint64_t version;
};

static void event_forget(cudaEvent_t e)
{
    e->pending--;
    if (e->destroyed && !e->pending)
        free(e);
}

static bool event_record_run(void *closure)
{
    struct event_mention *m = closure;
    if (m->event->done < m->version)
        m->event->done = m->version;
    /* real time would let the machine's load choose between ways that the environment calls equally fast */
    m->event->when_ns = passed_ns + (getenv("DDP_EMULATED_FASTEST") ? 0 : clock_mono_ns());
    event_forget(m->event);
    return true;
}

static bool event_wait_run(void *closure)
{
    struct event_mention *m = closure;
    if (m->event->done < m->version)
        return false;
    event_forget(m->event);
    return true;
}

static bool event_is_done(const void *event)
{
    const struct CUevent_st *e = event;
    return e->done >= e->recorded;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *out, unsigned flags)
{
    runtime_enter();
    (void)flags;
    cudaError_t error = call_check();
    if (!error)
        *out = xcalloc(1, sizeof **out);
    runtime_handles += !error;
    return runtime_leave(error);
}

cudaError_t cudaEventCreate(cudaEvent_t *out)
{
    return cudaEventCreateWithFlags(out, cudaEventDefault);
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    runtime_enter();
    if (!event)
        return runtime_leave(cudaErrorInvalidResourceHandle);
    event->destroyed = true;
    runtime_handles--;
    if (!event->pending)
        free(event);
    return runtime_leave(call_check());
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    runtime_enter();
    cudaError_t error = call_check();
    if (error || !event)
        return runtime_leave(error ? error : cudaErrorInvalidResourceHandle);
    event->capture = stream ? stream->capture : NULL;
    if (event->capture) /* a graph runs its operations in the order of recording, so nothing must wait */
        return runtime_leave(cudaSuccess);
    struct event_mention m = {event, ++event->recorded};
    event->pending++;
    return runtime_leave(stream_put(stream, operation_create("event", event_record_run, &m, sizeof m)));
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags)
{
    runtime_enter();
    (void)flags;
    cudaError_t error = call_check();
    if (error || !event)
        return runtime_leave(error ? error : cudaErrorInvalidResourceHandle);
    if (event->capture && stream) {
        stream->capture = event->capture;
        return runtime_leave(cudaSuccess);
    }
    if (stream_is_captured(stream))
        return runtime_leave(stream_forbid_capture());
    struct event_mention m = {event, event->recorded};
    event->pending++;
    return runtime_leave(stream_put(stream, operation_create("wait", event_wait_run, &m, sizeof m)));
}

cudaError_t cudaEventQuery(cudaEvent_t event)
{
    runtime_enter();
    cudaError_t error = call_check();
    if (!error && event->capture)
        error = stream_forbid_capture();
    if (error)
        return runtime_leave(error);
    if (!event_is_done(event))
        stream_pass_time(NULL);
    error = call_check();
    if (error)
        return runtime_leave(error);
    return runtime_leave(event_is_done(event) ? cudaSuccess : cudaErrorNotReady);
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    runtime_enter();
    cudaError_t error = call_check();
    if (!error && event->capture)
        error = stream_forbid_capture();
    return runtime_leave(error ? error : stream_wait(event_is_done, event, NULL));
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t from, cudaEvent_t to)
{
    runtime_enter();
    cudaError_t error = call_check();
    if (!error && (!from->recorded || !to->recorded))
        error = cudaErrorInvalidResourceHandle;
    if (!error && !(event_is_done(from) && event_is_done(to)))
        error = cudaErrorNotReady;
    if (!error)
        *ms = (float)((double)(to->when_ns - from->when_ns) * 1e-6);
    return runtime_leave(error);
}
