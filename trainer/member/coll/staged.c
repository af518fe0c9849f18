/* Arrays in the memory of a device that is not the host's. Sums over ranks of such arrays are staged here:
 * down to an array of the host's, summed there as any other, and up again. */
#include "trainer/member/coll/staged.h"
#include "trainer/member/coll/group.h"

enum err_code staged_allreduce(struct coll_group *g, const struct coll_array *a, size_t at, size_t count,
                               struct err *e)
{
    const struct device_ops *ops = g->device->ops;
    float *staged;

    if (g->layout.world_size == 1)
        return ERR_OK;
    staged = a->maps[g->layout.local] + at;
    ops->download(g->device, staged, a->on_device + at, count * sizeof(float));
    /* Only what has come from the device goes into the others' sums. */
    if (ops->wait(g->device, e) || g->ops->allreduce(g, a, at, count, e))
        return e->code;
    ops->upload(g->device, a->on_device + at, staged, count * sizeof(float));
    return ERR_OK;
}
