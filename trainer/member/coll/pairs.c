/* The pairwise exchange: in step s every rank sends to the rank s places after it while it receives from the rank s
 * places before it. A late rank directly delays only the two ranks that exchange with it in this step.
 *
 * Failure: each rank talks to each other rank in every exchange. So each sees a lost peer at the latest in the step
 * in which it meets this peer, or a rank that has ended its group because of it. */
#include "trainer/member/coll/pairs.h"

#include "base/mem.h"
#include "trainer/member/coll/flow.h"

#include <stdlib.h>
#include <string.h>

struct pairs {
    int count;
    struct flow *flows[]; /* by s - 1 */
};

enum err_code pairs_open(struct coll_group *g, struct coll_listener *listener, int64_t deadline,
                         struct err *e)
{
    int n = g->layout.world_size, rank = g->layout.rank;
    struct pairs *p = g->pairs = xcalloc(1, sizeof(*p) + (size_t)n * sizeof(*p->flows));

    for (int s = 1; s < n; s++) {
        const struct flow_config config = {
            .purpose = COLL_HANDSHAKE_PAIR,
            .to = (rank + s) % n,
            .from = (rank + n - s) % n,
            .pieces = 1,
            .listener = listener,
            .deadline = deadline,
        };

        p->count = s;
        if (flow_open(&p->flows[s - 1], g, &config, e))
            return e->code;
    }
    return ERR_OK;
}

void pairs_abort(struct coll_group *g)
{
    for (int i = 0; g->pairs && i < g->pairs->count; i++)
        flow_abort(g->pairs->flows[i]);
}

void pairs_close(struct coll_group *g)
{
    for (int i = 0; g->pairs && i < g->pairs->count; i++)
        flow_close(g->pairs->flows[i]);
    free(g->pairs);
    g->pairs = NULL;
}

enum err_code pairs_exchange(struct coll_group *g, const char *mine, const size_t *offsets, char *out,
                             struct err *e)
{
    int n = g->layout.world_size, rank = g->layout.rank;
    size_t part = offsets[rank + 1] - offsets[rank];

    if (part)
        memcpy(out + (size_t)rank * part, mine + offsets[rank], part);
    for (int s = 1; s < n; s++) {
        struct flow *f = g->pairs->flows[s - 1];
        int to = (rank + s) % n, from = (rank + n - s) % n;

        flow_start(f, FLOW_EXCHANGE, offsets[n]);
        flow_send(f, mine + offsets[to], offsets[to + 1] - offsets[to], true);
        flow_receive(f, out + (size_t)from * part, part, false);
        if (flow_run(g, f, e))
            return e->code;
    }
    return ERR_OK;
}
