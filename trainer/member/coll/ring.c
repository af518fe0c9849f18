/* All-reduce over N nodes: in step s node i sends chunk i - s and receives chunk i - s - 1 (mod N). In steps
 * 0 to N - 2 it adds the received data to its own; later it stores the received data. A chunk is overwritten
 * only by its final sum. The final sum has passed through this node before, so the overwritten data was sent
 * already.
 *
 * The data sent in step s + 1 is the data received (and added) in step s; flow.c says how that is kept in order, and
 * how failures are detected. A rank that sees a failure shuts down both of its sockets, so the failure goes round the
 * ring at once. */
#include "trainer/member/coll/ring.h"

#include "trainer/member/coll/flow.h"

#include <poll.h>

static char *ring_chunk(char *data, size_t count, enum device_type type, int nodes, int index, size_t *size)
{
    size_t n = (size_t)nodes, i = (size_t)((index % nodes + nodes) % nodes);
    size_t lo = count / n * i + (i < count % n ? i : count % n);

    *size = (count / n + (i < count % n)) * device_size(type);
    return data + lo * device_size(type);
}

enum err_code ring_allreduce(struct coll_group *g, void *data, size_t count, enum device_type type,
                             struct err *e)
{
    struct flow *f = g->ring;
    int nodes = g->layout.nodes, node = g->layout.node;
    const bool half = type == DEVICE_BF16;
    size_t size;

    flow_start(f, half ? FLOW_ALLREDUCE_BF16 : FLOW_ALLREDUCE, count);
    for (int s = 0; s < 2 * nodes - 2; s++) {
        char *at = ring_chunk(data, count, type, nodes, node - s, &size);

        flow_send(f, at, size, s == 0);
        at = ring_chunk(data, count, type, nodes, node - s - 1, &size);
        flow_receive(f, at, size, s >= nodes - 1 ? FLOW_STORE : half ? FLOW_ADD_BF16 : FLOW_ADD);
    }
    return flow_run(g, f, e);
}

enum err_code ring_broadcast(struct coll_group *g, void *data, size_t size, int root_node, struct err *e)
{
    struct flow *f = g->ring;
    int nodes = g->layout.nodes, distance = (g->layout.node - root_node + nodes) % nodes;

    flow_start(f, FLOW_BROADCAST, size);
    if (distance < nodes - 1)
        flow_send(f, data, size, distance == 0);
    if (distance > 0)
        flow_receive(f, data, size, FLOW_STORE);
    return flow_run(g, f, e);
}

enum err_code ring_allgather(struct coll_group *g, char *data, const size_t *offsets, struct err *e)
{
    struct flow *f = g->ring;
    int nodes = g->layout.nodes, node = g->layout.node;

    flow_start(f, FLOW_ALLGATHER, offsets[nodes]);
    for (int s = 0; s < nodes - 1; s++) {
        int out = (node - s + nodes) % nodes, in = (node - s - 1 + nodes) % nodes;

        flow_send(f, data + offsets[out], offsets[out + 1] - offsets[out], s == 0);
        flow_receive(f, data + offsets[in], offsets[in + 1] - offsets[in], FLOW_STORE);
    }
    return flow_run(g, f, e);
}

/* ---- forming */

enum err_code ring_open(struct coll_group *g, struct coll_listener *listener, int64_t deadline, struct err *e)
{
    const struct coll_layout *l = &g->layout;
    const struct flow_config config = {
        .purpose = COLL_HANDSHAKE_RING,
        .to = coll_layout_rank(l, (l->node + 1) % l->nodes, l->local),
        .from = coll_layout_rank(l, (l->node + l->nodes - 1) % l->nodes, l->local),
        .pieces = 2 * (size_t)l->world_size,
        .listener = listener,
        .deadline = deadline,
    };

    return flow_open(&g->ring, g, &config, e);
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
