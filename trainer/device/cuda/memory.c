/* Device memory: one cudaMalloc for each allocation, because a trainer makes few large ones and keeps them.
 *
 * cudaFree waits inside CUDA for all work on the GPU. If that includes an NCCL sum whose peer hangs, nothing ends the
 * wait. So nothing is freed between the first collective and the end of the communicator: not here, and not by the
 * trainer, which frees its memory after its group is closed (device.h). */
#include <stdlib.h>

#include "base/mem.h"
#include "trainer/device/cuda/cuda.h"
#include "trainer/device/cuda/error.h"
#include "trainer/device/cuda/memory.h"

static void block_record(struct cuda_device *c, void *memory, size_t bytes)
{
    struct cuda_block *b = xcalloc(1, sizeof(*b));
    *b = (struct cuda_block){c->blocks, memory, bytes};
    c->blocks = b;
}

static enum err_code block_allocate(size_t bytes, void **out, struct err *e)
{
    size_t left = 0, whole = 0;
    cudaError_t code = cudaMalloc(out, bytes ? bytes : 1); /* each allocation has an address of its own */
    if (code == cudaSuccess)
        return ERR_OK;
    if (code != cudaErrorMemoryAllocation)
        return cuda_error(code, "allocating GPU memory", e);
    (void)cudaGetLastError();
    (void)cudaMemGetInfo(&left, &whole);
    return err_set(e, ERR_RESOURCE_EXHAUSTED, "out of GPU memory: %zu MiB needed, %zu of %zu MiB are free",
                   (bytes + 1048575) >> 20, left >> 20, whole >> 20);
}

enum err_code cuda_alloc(struct device *d, size_t bytes, void **out, struct err *e)
{
    struct cuda_device *c = cuda_of(d);
    void *memory = NULL;
    if (block_allocate(bytes, &memory, e))
        return e->code;
    cudaError_t code = cudaMemsetAsync(memory, 0, bytes, c->stream);
    if (code != cudaSuccess) {
        cuda_error(code, "zeroing GPU memory", e);
        (void)cudaFree(memory);
        return e->code;
    }
    block_record(c, memory, bytes);
    d->bytes += bytes;
    *out = memory;
    return ERR_OK;
}

void cuda_free(struct device *d, void *p)
{
    struct cuda_device *c = cuda_of(d);
    for (struct cuda_block **at = &c->blocks; p && *at; at = &(*at)->next) {
        struct cuda_block *b = *at;
        if (b->memory != p)
            continue;
        *at = b->next;
        d->bytes -= b->bytes;
        cuda_ok(c, cudaFree(p), "freeing GPU memory"); /* waits for the work that uses it */
        free(b);
        return;
    }
    BUG_ON(p); /* not allocated here, or freed before */
}

void cuda_free_all(struct cuda_device *c)
{
    while (c->blocks)
        cuda_free(&c->base, c->blocks->memory);
    (void)cudaFree(c->work.memory);
    c->work = (struct cuda_workspace){0};
}

/* The former workspace stays among the blocks until the device is closed: recorded graphs may use it, and freeing it
 * would wait for the GPU (see above). */
enum err_code cuda_work_grow(struct cuda_device *c, size_t bytes, struct err *e)
{
    void *memory = NULL;
    if (bytes <= c->work.bytes)
        return ERR_OK;
    if (block_allocate(bytes, &memory, e))
        return e->code;
    if (c->work.memory)
        block_record(c, c->work.memory, 0);
    c->base.workspace += bytes;
    c->work.memory = memory;
    c->work.bytes = bytes;
    return ERR_OK;
}
