/* A world of one. */
#include "trainer/member/coll/group.h"

#include <string.h>

static enum err_code single_allreduce(struct coll_group *g, const struct coll_array *array, size_t at,
                                      size_t count, struct err *e)
{
    (void)g, (void)array, (void)at, (void)count, (void)e;
    return ERR_OK;
}

static enum err_code single_parts(struct coll_group *g, const struct coll_array *array, size_t at,
                                  const size_t *offsets, struct err *e)
{
    (void)g, (void)array, (void)at, (void)offsets, (void)e;
    return ERR_OK;
}

static enum err_code single_gather(struct coll_group *g, const struct coll_array *array, size_t at,
                                   const size_t *from, const size_t *to, struct err *e)
{
    (void)g, (void)array, (void)at, (void)from, (void)to, (void)e;
    return ERR_OK;
}

static enum err_code single_broadcast(struct coll_group *g, void *data, size_t size, int root, struct err *e)
{
    (void)g, (void)data, (void)size, (void)root, (void)e;
    return ERR_OK;
}

static enum err_code single_allgather(struct coll_group *g, const void *mine, size_t size, void *out,
                                      struct err *e)
{
    (void)g, (void)e;
    if (size && out != mine)
        memcpy(out, mine, size);
    return ERR_OK;
}

static enum err_code single_exchange(struct coll_group *g, const void *mine, const size_t *offsets, void *out,
                                     struct err *e)
{
    return single_allgather(g, (const char *)mine + offsets[0], offsets[1] - offsets[0], out, e);
}

static enum err_code single_barrier(struct coll_group *g, struct err *e)
{
    (void)g, (void)e;
    return ERR_OK;
}

const struct coll_ops coll_single_ops = {
    .name = "solo",
    .overlaps = false,
    .allreduce = single_allreduce,
    .reduce_scatter = single_parts,
    .allreduce_bf16 = single_allreduce,
    .reduce_scatter_bf16 = single_parts,
    .gather = single_gather,
    .broadcast = single_broadcast,
    .allgather = single_allgather,
    .exchange = single_exchange,
    .barrier = single_barrier,
};
