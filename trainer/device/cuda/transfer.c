/* Copies between the host and the GPU through a ring of pinned slots. Each slot has an event, recorded behind the last
 * copy that used it. An upload has read the caller's memory when it returns; it waits only while the ring is full. A
 * download keeps two copies in flight while it empties a third slot. */
#include <string.h>

#include "trainer/device/cuda/cuda.h"
#include "trainer/device/cuda/error.h"
#include "trainer/device/cuda/transfer.h"

enum { AHEAD = 2 }; /* copies in flight of a download; less than CUDA_SLOTS */

enum err_code cuda_slots_open(struct cuda_slot *slots, int count, struct err *e)
{
    for (int i = 0; i < count; i++) {
        struct cuda_slot *s = &slots[i];
        cudaError_t code = cudaHostAlloc(&s->pinned, CUDA_SLOT_BYTES, cudaHostAllocDefault);
        if (code == cudaSuccess)
            code = cudaEventCreateWithFlags(&s->done, cudaEventDisableTiming);
        if (code != cudaSuccess)
            return cuda_error(code, "allocating pinned memory", e);
    }
    return ERR_OK;
}

void cuda_slots_close(struct cuda_slot *slots, int count)
{
    for (int i = 0; i < count; i++) {
        if (slots[i].done)
            (void)cudaEventDestroy(slots[i].done);
        if (slots[i].pinned)
            (void)cudaFreeHost(slots[i].pinned);
        slots[i] = (struct cuda_slot){0};
    }
}

size_t cuda_slot_piece(size_t bytes, size_t from)
{
    return bytes - from < CUDA_SLOT_BYTES ? bytes - from : CUDA_SLOT_BYTES;
}

/* The next slot of the ring, free to use; NULL after an error. CUDA reports an event that was never recorded as
 * completed, so a fresh slot does not wait. */
static struct cuda_slot *next_slot(struct cuda_device *c)
{
    struct cuda_slot *s = &c->slot[c->next_slot++ % CUDA_SLOTS];
    return cuda_await(c, s->done) ? s : NULL;
}

static bool slot_copy(struct cuda_device *c, const struct cuda_slot *s, void *to, const void *from,
                      size_t bytes, enum cudaMemcpyKind kind, const char *what)
{
    return cuda_ok(c, cudaMemcpyAsync(to, from, bytes, kind, c->stream), what) &&
           cuda_ok(c, cudaEventRecord(s->done, c->stream), what);
}

void cuda_upload(struct device *d, void *to, const void *from_host, size_t bytes)
{
    struct cuda_device *c = cuda_of(d);
    for (size_t from = 0; from < bytes && cuda_ready(c); from += CUDA_SLOT_BYTES) {
        size_t n = cuda_slot_piece(bytes, from);
        struct cuda_slot *s = next_slot(c);
        if (!s)
            return;
        memcpy(s->pinned, (const char *)from_host + from, n);
        slot_copy(c, s, (char *)to + from, s->pinned, n, cudaMemcpyHostToDevice, "copying to the GPU");
    }
}

static bool slot_drain(struct cuda_device *c, const struct cuda_slot *s, char *to, size_t bytes)
{
    if (!cuda_await(c, s->done))
        return false;
    memcpy(to, s->pinned, bytes);
    return true;
}

static bool transfer_fetch(struct cuda_device *c, char *to, const char *from, size_t bytes)
{
    struct cuda_slot *under_way[AHEAD + 1] = {0};
    size_t pieces = (bytes + CUDA_SLOT_BYTES - 1) / CUDA_SLOT_BYTES;
    /* Turn i starts the copy of piece i and empties the slot of piece i - AHEAD. */
    for (size_t i = 0; i < pieces + AHEAD; i++) {
        if (i < pieces) {
            size_t at = i * CUDA_SLOT_BYTES;
            struct cuda_slot *s = under_way[i % (AHEAD + 1)] = next_slot(c);
            if (!s || !slot_copy(c, s, s->pinned, from + at, cuda_slot_piece(bytes, at),
                                 cudaMemcpyDeviceToHost, "copying from the GPU"))
                return false;
        }
        size_t at = (i - AHEAD) * CUDA_SLOT_BYTES;
        if (i >= AHEAD &&
            !slot_drain(c, under_way[(i - AHEAD) % (AHEAD + 1)], to + at, cuda_slot_piece(bytes, at)))
            return false;
    }
    return true;
}

void cuda_download(struct device *d, void *to_host, const void *from, size_t bytes)
{
    struct cuda_device *c = cuda_of(d);
    if (!cuda_ready(c) || !transfer_fetch(c, to_host, from, bytes))
        memset(to_host, 0, bytes); /* the caller's next wait reports the error; until then it reads zeros */
}

void cuda_copy(struct device *d, void *to, const void *from, size_t bytes)
{
    struct cuda_device *c = cuda_of(d);
    if (cuda_ready(c) && to != from && bytes)
        cuda_ok(c, cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, c->stream), "copying");
}

void cuda_zero(struct device *d, void *to, size_t bytes)
{
    struct cuda_device *c = cuda_of(d);
    if (cuda_ready(c) && bytes)
        cuda_ok(c, cudaMemsetAsync(to, 0, bytes, c->stream), "zeroing");
}
