/* Arrays in the memory of a device that is not the host's. Sums over ranks of such arrays are staged here:
 * down to an array of the host's, summed there as any other, and up again. */
#include "trainer/member/coll/internal.h"

enum err_code away_alloc(struct coll_group *g, struct coll_array *a, struct err *e)
{
    void *memory = NULL;

    if (g->device->ops->alloc(g->device, a->count * sizeof(float), &memory, e))
        return e->code;
    a->away = memory;
    return ERR_OK;
}

void away_free(struct coll_group *g, struct coll_array *a)
{
    if (a->away)
        g->device->ops->free(g->device, a->away);
}

/* Only what has come from the device goes into the others' sums. */
enum err_code away_allreduce(struct coll_group *g, const struct coll_array *a, size_t at, size_t count,
                             struct err *e)
{
    const struct device_ops *ops = g->device->ops;
    float *staged;

    if (g->layout.world_size == 1)
        return ERR_OK;
    staged = a->maps[g->layout.local] + at;
    ops->download(g->device, staged, a->away + at, count * sizeof(float));
    if (ops->wait(g->device, e) || g->ops->allreduce(g, a, at, count, e))
        return e->code;
    ops->upload(g->device, a->away + at, staged, count * sizeof(float));
    return ERR_OK;
}
