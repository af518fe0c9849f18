/* In step s of a reduce-scatter node i sends chunk i - s - 1 and receives chunk i - s - 2 (mod N), which it adds to its own
 * data. After N - 1 steps its own chunk has come past all nodes. In step s of a gather it sends chunk i - s and receives chunk
 * i - s - 1. Both keep the order that flow.c needs: the data sent in step s + 1 is the data received in step s. */
#include "trainer/member/coll/ring_parts.h"

#include "trainer/member/coll/flow.h"

static void chunk_send(struct coll_group *g, char *data, const struct ring_chunks *c, enum device_type type,
                       int index, size_t from)
{
    const int n = g->layout.nodes, i = (index % n + n) % n;

    for (int k = c->first[i]; k < c->first[i + 1]; k++) {
        const size_t size = (c->ranges[k].hi - c->ranges[k].lo) * device_size(type);

        flow_send(g->ring, data + c->ranges[k].lo * device_size(type), size, from);
        from += from == FLOW_OWN ? 0 : size;
    }
}

/* Returns the incoming position of the chunk. */
static size_t chunk_receive(struct coll_group *g, char *data, const struct ring_chunks *c,
                            enum device_type type, int index, enum flow_use use)
{
    const int n = g->layout.nodes, i = (index % n + n) % n;
    size_t from = FLOW_OWN;

    for (int k = c->first[i]; k < c->first[i + 1]; k++) {
        const size_t position = flow_receive(g->ring, data + c->ranges[k].lo * device_size(type),
                                             (c->ranges[k].hi - c->ranges[k].lo) * device_size(type), use);

        from = k == c->first[i] ? position : from;
    }
    return from;
}

enum err_code ring_reduce_scatter(struct coll_group *g, void *data, const struct ring_chunks *c,
                                  enum device_type type, struct err *e)
{
    const bool half = type == DEVICE_BF16;
    const int nodes = g->layout.nodes, node = g->layout.node;
    size_t from = FLOW_OWN;

    flow_start(g->ring, half ? FLOW_SCATTER_BF16 : FLOW_SCATTER, c->digest);
    for (int s = 0; s < nodes - 1; s++) {
        chunk_send(g, data, c, type, node - s - 1, from);
        from = chunk_receive(g, data, c, type, node - s - 2, half ? FLOW_ADD_BF16 : FLOW_ADD);
    }
    return flow_run(g, g->ring, e);
}

enum err_code ring_gather(struct coll_group *g, float *data, const struct ring_chunks *c, struct err *e)
{
    const int nodes = g->layout.nodes, node = g->layout.node;
    size_t from = FLOW_OWN;

    flow_start(g->ring, FLOW_GATHER, c->digest);
    for (int s = 0; s < nodes - 1; s++) {
        chunk_send(g, (char *)data, c, DEVICE_F32, node - s, from);
        from = chunk_receive(g, (char *)data, c, DEVICE_F32, node - s - 1, FLOW_STORE);
    }
    return flow_run(g, g->ring, e);
}
