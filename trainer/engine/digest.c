#include "trainer/engine/digest.h"

#include <stdlib.h>

#include "base/digest.h"
#include "base/mem.h"

#define PIECE ((size_t)1 << 18) /* floats that are downloaded at a time; a multiple of a digest's block */

static size_t digest_block_count(size_t floats)
{
    return (floats + DIGEST_BLOCK - 1) / DIGEST_BLOCK;
}

enum err_code digest_open(struct engine *n, struct err *e)
{
    void *memory = NULL;
    if (!n->device->ops->digest)
        return ERR_OK;
    if (device_alloc(n->device, digest_block_count(n->model->count) * sizeof(uint64_t), "sums of a digest",
                     &memory, e))
        return e->code;
    n->block_sums = memory;
    return ERR_OK;
}

void digest_close(struct engine *n)
{
    n->device->ops->free(n->device, n->block_sums);
}

static uint64_t digest_by_sums(struct engine *n)
{
    const struct device_ops *ops = n->device->ops;
    size_t count = n->model->count, sum_count = digest_block_count(count);
    uint64_t all = 0, *sums = xcalloc(sum_count, sizeof(*sums));
    ops->digest(n->device, n->block_sums, n->params.data, count);
    ops->download(n->device, sums, n->block_sums, sum_count * sizeof(*sums));
    for (size_t at = 0; at < count; at += PIECE)
        all = digest64_sums(all, sums + at / DIGEST_BLOCK,
                            (count - at < PIECE ? count - at : PIECE) * sizeof(float));
    free(sums);
    return all;
}

/* Sums in pieces, also in host memory, because the digest must not depend on the device. */
uint64_t digest_array(struct engine *n, const float *array, size_t count)
{
    const struct device_ops *ops = n->device->ops;
    float *room = n->device->host ? NULL : xcalloc(PIECE, sizeof(*room));
    uint64_t all = 0;
    for (size_t at = 0; at < count; at += PIECE) {
        size_t part = count - at < PIECE ? count - at : PIECE;
        if (room)
            ops->download(n->device, room, array + at, part * sizeof(float));
        all = digest64(all, room ? room : array + at, part * sizeof(float));
    }
    free(room);
    return all;
}

uint64_t digest_params(struct engine *n)
{
    BUG_ON(n->partial || n->await);
    return n->block_sums ? digest_by_sums(n) : digest_array(n, n->params.data, n->model->count);
}

uint64_t digest_moments(struct engine *n)
{
    return digest_array(n, n->optim->state, n->optim->floats);
}
