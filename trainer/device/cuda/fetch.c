/* Copies to the host beside computing, on a stream of its own, in pieces through pinned slots. The host's memory may
 * be ordinary. Two pieces are copied to their slots while a third one is emptied. The calling thread is not the
 * owner's, so it neither reads nor sets the device's error. The copied memory does not depend on a peer. If a GPU hangs
 * all the same, the copy fails after a while, so that the process can end. */
#include "trainer/device/cuda/fetch.h"

#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "trainer/device/cuda/error.h"
#include "trainer/device/cuda/transfer.h"

enum { FETCH_AHEAD = CUDA_FETCH_SLOTS - 1 }; /* pieces in flight while another one is emptied */
#define FETCH_PAUSE_NS 20000                 /* a piece takes 80,000 ns or more */
#define FETCH_PATIENCE_NS 60000000000        /* for a piece: other programs may use the GPU, too */

enum err_code cuda_fetch_open(struct cuda_device *c, struct err *e)
{
    cudaError_t code = cudaStreamCreateWithFlags(&c->fetch_stream, cudaStreamNonBlocking);
    c->fetch_patience_ns = FETCH_PATIENCE_NS;
    if (code != cudaSuccess)
        return cuda_error(code, "opening the GPU", e);
    return cuda_slots_open(c->fetch_slot, CUDA_FETCH_SLOTS, e);
}

void cuda_fetch_close(struct cuda_device *c)
{
    cuda_slots_close(c->fetch_slot, CUDA_FETCH_SLOTS);
    if (c->fetch_stream)
        (void)cudaStreamDestroy(c->fetch_stream);
}

static cudaError_t fetch_start(const struct cuda_device *c, const struct cuda_slot *s, const void *from,
                               size_t bytes)
{
    cudaError_t code = cudaMemcpyAsync(s->pinned, from, bytes, cudaMemcpyDeviceToHost, c->fetch_stream);
    return code == cudaSuccess ? cudaEventRecord(s->done, c->fetch_stream) : code;
}

/* Returns cudaErrorNotReady if the piece has not come in time. */
static cudaError_t fetch_end(const struct cuda_device *c, const struct cuda_slot *s, void *to, size_t bytes)
{
    const int64_t until = clock_mono_ns() + c->fetch_patience_ns;
    cudaError_t code;
    while ((code = cudaEventQuery(s->done)) == cudaErrorNotReady) {
        (void)cudaGetLastError(); /* CUDA remembers "not ready" as an error */
        if (clock_mono_ns() > until)
            return code;
        nanosleep(&(struct timespec){.tv_nsec = FETCH_PAUSE_NS}, NULL);
    }
    if (code == cudaSuccess)
        memcpy(to, s->pinned, bytes);
    return code;
}

enum err_code cuda_fetch(struct device *d, void *to_host, const void *from, size_t bytes, struct err *e)
{
    const struct cuda_device *c = cuda_of(d);
    const size_t pieces = (bytes + CUDA_SLOT_BYTES - 1) / CUDA_SLOT_BYTES;
    cudaError_t code = cudaSuccess;
    for (size_t i = 0; i < pieces + FETCH_AHEAD && code == cudaSuccess; i++) {
        const size_t next = i * CUDA_SLOT_BYTES, last = (i - FETCH_AHEAD) * CUDA_SLOT_BYTES;
        if (i < pieces)
            code = fetch_start(c, &c->fetch_slot[i % CUDA_FETCH_SLOTS], (const char *)from + next,
                               cuda_slot_piece(bytes, next));
        if (i >= FETCH_AHEAD && code == cudaSuccess)
            code = fetch_end(c, &c->fetch_slot[(i - FETCH_AHEAD) % CUDA_FETCH_SLOTS], (char *)to_host + last,
                             cuda_slot_piece(bytes, last));
    }
    if (code == cudaErrorNotReady)
        return err_set(e, ERR_INTERNAL, "copying the state from the GPU: nothing has come for %lld s",
                       (long long)(c->fetch_patience_ns / 1000000000));
    return code == cudaSuccess ? ERR_OK : cuda_error(code, "copying the state from the GPU", e);
}
