/* The pairwise exchange: in step s every rank sends to the rank s places after it while it receives from the rank s
 * places before it. A late rank directly delays only the two ranks that exchange with it in this step.
 *
 * Failure: each rank talks to each other rank in every exchange. So each sees a lost peer at the latest in the step
 * in which it meets this peer, or a rank that has ended its group because of it. */
#include "trainer/member/coll/pairs.h"

#include "base/mem.h"
#include "trainer/member/coll/flow.h"
#include "trainer/member/coll/handshake.h"
#include "trainer/member/coll/listener.h"
#include "trainer/member/coll/ring.h"
#include "trainer/member/coll/shm.h"

#include <stdlib.h>
#include <string.h>

struct pairs {
    int count;
    struct flow *flows[]; /* by s - 1 */
};

static void pairs_free(struct pairs *p)
{
    for (int i = 0; p && i < p->count; i++)
        flow_close(p->flows[i]);
    free(p);
}

/* Connects with all ranks at once: `to` and `from` by s - 1. A peer that is lost meanwhile is seen at the
 * connections that the group has already: no rank closes them in order before all ranks have met again
 * (coll.c, pairs_open_all). */
static enum err_code pairs_meet(struct coll_group *g, struct coll_handshake *meet, struct err *e)
{
    int count, ends[2];
    const int *links = shm_links(g, &count);
    int *watched = xcalloc((size_t)count + 2, sizeof(*watched));
    enum err_code rc;

    for (int i = 0; i < count; i++)
        watched[i] = links[i];
    for (int i = 0, n = ring_ends(g, ends); i < n; i++)
        watched[count++] = ends[i];
    meet->watched = watched;
    meet->watched_count = count;
    rc = coll_handshake_run(meet, e);
    free(watched);
    return rc;
}

static enum err_code pairs_connect(struct coll_group *g, struct pairs *p, struct coll_listener *listener,
                                   int64_t deadline, struct err *e)
{
    int n = g->layout.world_size, rank = g->layout.rank;
    int *all = xcalloc(4 * (size_t)p->count, sizeof(*all)), *to = all, *from = to + p->count;
    int *out = from + p->count, *in = out + p->count;
    struct coll_handshake meet = {
        .group = g,
        .purpose = COLL_HANDSHAKE_PAIR,
        .listener = coll_listener_tcp(listener),
        .to = to,
        .out = out,
        .to_count = p->count,
        .from = from,
        .in = in,
        .from_count = p->count,
        .deadline = deadline,
    };
    enum err_code rc;

    for (int s = 1; s < n; s++) {
        to[s - 1] = (rank + s) % n;
        from[s - 1] = (rank + n - s) % n;
    }
    rc = pairs_meet(g, &meet, e);
    for (int i = 0; i < p->count; i++)
        p->flows[i] = flow_over(g, out[i], in[i]);
    free(all);
    return rc;
}

enum err_code pairs_open(struct coll_group *g, struct coll_listener *listener, int64_t deadline,
                         struct err *e)
{
    int count = g->layout.world_size - 1;
    struct pairs *p = xcalloc(1, sizeof(*p) + (size_t)count * sizeof(struct flow *));

    p->count = count;
    if (pairs_connect(g, p, listener, deadline, e)) {
        coll_fail(g);
        pairs_free(p);
        return e->code;
    }
    atomic_store(&g->pairs, p);
    /* An abort before the store did not reach the connections, so it is passed on now. */
    if (atomic_load(&g->stop.set)) {
        coll_fail(g);
        return coll_stopped(e);
    }
    return ERR_OK;
}

void pairs_abort(struct coll_group *g)
{
    struct pairs *p = atomic_load(&g->pairs);

    for (int i = 0; p && i < p->count; i++)
        flow_abort(p->flows[i]);
}

void pairs_close(struct coll_group *g)
{
    pairs_free(atomic_load(&g->pairs));
    atomic_store(&g->pairs, NULL);
}

enum err_code pairs_exchange(struct coll_group *g, const char *mine, const size_t *offsets, char *out,
                             struct err *e)
{
    const struct pairs *p = atomic_load(&g->pairs);
    int n = g->layout.world_size, rank = g->layout.rank;
    size_t part = offsets[rank + 1] - offsets[rank];

    if (part)
        memcpy(out + (size_t)rank * part, mine + offsets[rank], part);
    for (int s = 1; s < n; s++) {
        struct flow *f = p->flows[s - 1];
        int to = (rank + s) % n, from = (rank + n - s) % n;

        flow_start(f, FLOW_EXCHANGE, offsets[n]);
        flow_send(f, mine + offsets[to], offsets[to + 1] - offsets[to], FLOW_OWN);
        flow_receive(f, out + (size_t)from * part, part, FLOW_STORE);
        if (flow_run(g, f, e))
            return e->code;
    }
    return ERR_OK;
}
