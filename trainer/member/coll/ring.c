/* All-reduce over N nodes: in step s node i sends chunk i - s and receives chunk i - s - 1 (mod N). In steps
 * 0 to N - 2 it adds the received data to its own; later it stores the received data. A chunk is overwritten
 * only by its final sum. The final sum has passed through this node before, so the overwritten data was sent
 * already.
 *
 * The data sent in step s + 1 is the data received (and added) in step s; flow.c sends it as it comes. A rank that sees
 * a failure shuts down both of its sockets, so the failure goes round the ring at once.
 *
 * On short paths a chunk is taken in blocks, and each block makes these steps alone: wave w of the two streams consists of
 * step s of block w - s, for all s. Then a sum is sent, and data that was sent is overwritten, while it is still in the CPU's
 * cache. But a rank may be ahead of the previous one by a wave at most, and a long path needs more bytes under way, so
 * there a chunk is one block. Blocks change no sum: its order depends on the chunk. */
#include "trainer/member/coll/ring.h"

#include "trainer/member/coll/flow.h"

#include "base/mem.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>

#define BLOCK ((size_t)256 * 1024)

/* An array in chunks, one for each node, in blocks. */
struct ring_blocks {
    char *data;
    size_t count, element; /* of the array: elements, and bytes of each */
    size_t nodes, most;    /* most: elements of a block */
};

/* All chunks have the same number of blocks, of which the last ones may be empty. */
static char *ring_block(const struct ring_blocks *b, int chunk, size_t block, size_t *size)
{
    const size_t nodes = b->nodes, i = ((size_t)chunk + nodes) % nodes, extra = b->count % nodes;
    const size_t lo = b->count / nodes * i + (i < extra ? i : extra), each = b->count / nodes + (i < extra);
    const size_t at = block * b->most < each ? block * b->most : each;

    *size = (each - at < b->most ? each - at : b->most) * b->element;
    return b->data + (lo + at) * b->element;
}

enum err_code ring_allreduce(struct coll_group *g, void *data, size_t count, enum device_type type,
                             struct err *e)
{
    struct flow *f = g->ring;
    const int nodes = g->layout.nodes, node = g->layout.node, steps = 2 * nodes - 2;
    const bool half = type == DEVICE_BF16;
    const size_t longest = (count + (size_t)nodes - 1) / (size_t)nodes;
    struct ring_blocks b = {data, count, device_size(type), (size_t)nodes, longest};
    size_t blocks = 1, size, *from = xcalloc((size_t)steps + 1, sizeof(*from));
    enum err_code code;

    if (g->ring_short && longest > BLOCK / b.element) {
        b.most = BLOCK / b.element;
        blocks = (longest + b.most - 1) / b.most;
    }
    /* The kind is compared between ranks: if one took blocks and the other did not, sums would be wrong. */
    flow_start(f,
               blocks > 1 ? half ? FLOW_ALLREDUCE_BLOCKS_BF16 : FLOW_ALLREDUCE_BLOCKS
               : half     ? FLOW_ALLREDUCE_BF16
                          : FLOW_ALLREDUCE,
               count);
    for (size_t wave = 0; wave < blocks + (size_t)steps - 1; wave++)
        /* from[s] is where step s - 1 of the same block comes in, which is in the wave before. */
        for (int s = steps - 1; s >= 0; s--) {
            const size_t block = wave - (size_t)s;

            if ((size_t)s > wave || block >= blocks)
                continue;
            char *at = ring_block(&b, (node - s) % nodes, block, &size);
            flow_send(f, at, size, s == 0 ? FLOW_OWN : from[s]);
            at = ring_block(&b, (node - s - 1) % nodes, block, &size);
            from[s + 1] = flow_receive(f, at, size,
                                       s >= nodes - 1 ? FLOW_STORE
                                       : half         ? FLOW_ADD_BF16
                                                      : FLOW_ADD);
        }
    code = flow_run(g, f, e);
    free(from);
    return code;
}

enum err_code ring_broadcast(struct coll_group *g, void *data, size_t size, int root_node, struct err *e)
{
    struct flow *f = g->ring;
    int nodes = g->layout.nodes, distance = (g->layout.node - root_node + nodes) % nodes;
    size_t from = FLOW_OWN;

    flow_start(f, FLOW_BROADCAST, size);
    if (distance > 0)
        from = flow_receive(f, data, size, FLOW_STORE);
    if (distance < nodes - 1)
        flow_send(f, data, size, from);
    return flow_run(g, f, e);
}

enum err_code ring_allgather(struct coll_group *g, char *data, const size_t *offsets, struct err *e)
{
    struct flow *f = g->ring;
    int nodes = g->layout.nodes, node = g->layout.node;
    size_t from = FLOW_OWN;

    flow_start(f, FLOW_ALLGATHER, offsets[nodes]);
    for (int s = 0; s < nodes - 1; s++) {
        int out = (node - s + nodes) % nodes, in = (node - s - 1 + nodes) % nodes;

        flow_send(f, data + offsets[out], offsets[out + 1] - offsets[out], from);
        from = flow_receive(f, data + offsets[in], offsets[in + 1] - offsets[in], FLOW_STORE);
    }
    return flow_run(g, f, e);
}

/* ---- forming */

/* All ranks of the ring must take the blocks in the same order. */
static enum err_code agree_on_path(struct coll_group *g, struct err *e)
{
    const size_t nodes = (size_t)g->layout.nodes;
    char *all = xcalloc(nodes, 1);
    size_t *offsets = xcalloc(nodes + 1, sizeof(*offsets));
    enum err_code code;

    for (size_t n = 0; n <= nodes; n++)
        offsets[n] = n;
    all[g->layout.node] = flow_is_short(g->ring);
    code = ring_allgather(g, all, offsets, e);
    g->ring_short = !code && !memchr(all, 0, nodes);
    free(all);
    free(offsets);
    return code;
}

enum err_code ring_open(struct coll_group *g, struct coll_listener *listener, int64_t deadline, struct err *e)
{
    const struct coll_layout *l = &g->layout;
    const struct flow_config config = {
        .purpose = COLL_HANDSHAKE_RING,
        .to = coll_layout_rank(l, (l->node + 1) % l->nodes, l->local),
        .from = coll_layout_rank(l, (l->node + l->nodes - 1) % l->nodes, l->local),
        .listener = listener,
        .deadline = deadline,
    };

    return flow_open(&g->ring, g, &config, e) ? e->code : agree_on_path(g, e);
}

void ring_abort(struct coll_group *g)
{
    flow_abort(g->ring);
}

int ring_ends(const struct coll_group *g, int fds[2])
{
    if (!g->ring)
        return 0;
    flow_ends(g->ring, fds);
    return 2;
}

bool ring_hung_up(const struct coll_group *g)
{
    struct pollfd ends[2];
    int fds[2] = {-1, -1};

    ring_ends(g, fds);
    for (int i = 0; i < 2; i++)
        ends[i] = (struct pollfd){.fd = fds[i], .events = POLLRDHUP};
    return poll(ends, 2, 0) > 0;
}

void ring_close(struct coll_group *g)
{
    flow_close(g->ring);
    g->ring = NULL;
}
