/* Calls by parts: the two halves of an all-reduce. */
#include "trainer/device/comm.h"
#include "trainer/member/coll/coll.h"
#include "trainer/member/coll/group.h"
#include "trainer/member/coll/staged.h"

#include "base/mem.h"

static void check_offsets(const struct coll_group *g, const size_t *offsets)
{
    BUG_ON(offsets[0] != 0);
    for (int r = 0; r < g->layout.world_size; r++)
        BUG_ON(offsets[r] > offsets[r + 1]);
}

static enum err_code scatter_start(struct coll_group *g, float *data, const size_t *offsets,
                                   enum device_type wire, struct err *e)
{
    const bool half = wire == DEVICE_BF16;
    struct comm *c = atomic_load(&g->comm);
    size_t at = 0;
    const struct coll_array *a = coll_find_array(g, data, offsets[g->layout.world_size], &at);

    BUG_ON(!a);
    check_offsets(g, offsets);
    if (coll_call_begin(g, e))
        return e->code;
    BUG_ON(half && !g->bf16);
    if (c)
        return (half ? g->device->comm->reduce_scatter_bf16 : g->device->comm->reduce_scatter)(c, data,
                                                                                               offsets, e)
                   ? coll_comm_failed(g, e)
                   : ERR_OK;
    if (a->on_device)
        return staged_reduce_scatter(g, a, at, offsets, wire, e);
    return (half ? g->ops->reduce_scatter_bf16 : g->ops->reduce_scatter)(g, a, at, offsets, e);
}

enum err_code coll_reduce_scatter(struct coll_group *g, float *data, const size_t *offsets, struct err *e)
{
    return scatter_start(g, data, offsets, DEVICE_F32, e);
}

enum err_code coll_reduce_scatter_bf16(struct coll_group *g, float *data, const size_t *offsets,
                                       struct err *e)
{
    return scatter_start(g, data, offsets, DEVICE_BF16, e);
}

enum err_code coll_gather_ranges(struct coll_group *g, float *data, const size_t *from, const size_t *to,
                                 struct err *e)
{
    struct comm *c = atomic_load(&g->comm);
    size_t at = 0, end = 0;

    for (int r = 0; r < g->layout.world_size; r++) {
        BUG_ON(from[r] > to[r]);
        end = to[r] > end ? to[r] : end;
    }
    const struct coll_array *a = coll_find_array(g, data, end, &at);
    BUG_ON(!a);
    if (coll_call_begin(g, e))
        return e->code;
    if (c)
        return g->device->comm->gather(c, data, from, to, e) ? coll_comm_failed(g, e) : ERR_OK;
    return a->on_device ? staged_gather(g, a, at, from, to, e) : g->ops->gather(g, a, at, from, to, e);
}

enum err_code coll_gather(struct coll_group *g, float *data, const size_t *offsets, struct err *e)
{
    check_offsets(g, offsets);
    return coll_gather_ranges(g, data, offsets, offsets + 1, e);
}

enum err_code coll_mark(struct coll_group *g, int mark, struct err *e)
{
    struct comm *c = atomic_load(&g->comm);

    BUG_ON(mark < 0 || mark >= COMM_MARKS);
    return c && g->device->comm->mark(c, mark, e) ? coll_comm_failed(g, e) : ERR_OK;
}

enum err_code coll_join_mark(struct coll_group *g, int mark, struct err *e)
{
    struct comm *c = atomic_load(&g->comm);

    BUG_ON(mark < 0 || mark >= COMM_MARKS);
    return c && g->device->comm->join_mark(c, mark, e) ? coll_comm_failed(g, e) : ERR_OK;
}
