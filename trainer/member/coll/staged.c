/* Sums of arrays in device memory, if the device has no collectives of its own: downloads to host memory,
 * sums there like any other array, and uploads again. */
#include "trainer/member/coll/staged.h"
#include "trainer/member/coll/group.h"

enum err_code staged_allreduce(struct coll_group *g, const struct coll_array *a, size_t at, size_t count,
                               enum device_type wire, struct err *e)
{
    const struct device_ops *ops = g->device->ops;
    float *staged;

    if (g->layout.world_size == 1)
        return ERR_OK;
    staged = a->maps[g->layout.local] + at;
    ops->download(g->device, staged, a->on_device + at, count * sizeof(float));
    /* If the download failed, its zeros must not enter the other ranks' sums. */
    if (ops->wait(g->device, e) ||
        (wire == DEVICE_BF16 ? g->ops->allreduce_bf16 : g->ops->allreduce)(g, a, at, count, e))
        return e->code;
    ops->upload(g->device, a->on_device + at, staged, count * sizeof(float));
    return ERR_OK;
}

enum err_code staged_reduce_scatter(struct coll_group *g, const struct coll_array *a, size_t at,
                                    const size_t *offsets, enum device_type wire, struct err *e)
{
    const struct device_ops *ops = g->device->ops;
    const int world = g->layout.world_size, rank = g->layout.rank;
    float *staged;

    if (world == 1)
        return ERR_OK;
    staged = a->maps[g->layout.local] + at;
    ops->download(g->device, staged, a->on_device + at, offsets[world] * sizeof(float));
    if (ops->wait(g->device, e) ||
        (wire == DEVICE_BF16 ? g->ops->reduce_scatter_bf16 : g->ops->reduce_scatter)(g, a, at, offsets, e))
        return e->code;
    ops->upload(g->device, a->on_device + at + offsets[rank], staged + offsets[rank],
                (offsets[rank + 1] - offsets[rank]) * sizeof(float));
    return ERR_OK;
}

enum err_code staged_gather(struct coll_group *g, const struct coll_array *a, size_t at, const size_t *from,
                            const size_t *to, struct err *e)
{
    const struct device_ops *ops = g->device->ops;
    const int world = g->layout.world_size, rank = g->layout.rank;
    float *staged;

    if (world == 1)
        return ERR_OK;
    staged = a->maps[g->layout.local] + at;
    ops->download(g->device, staged + from[rank], a->on_device + at + from[rank],
                  (to[rank] - from[rank]) * sizeof(float));
    if (ops->wait(g->device, e) || g->ops->gather(g, a, at, from, to, e))
        return e->code;
    for (int r = 0; r < world; r++)
        if (r != rank && to[r] > from[r])
            ops->upload(g->device, a->on_device + at + from[r], staged + from[r],
                        (to[r] - from[r]) * sizeof(float));
    return ERR_OK;
}
