#include "trainer/moments.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/host_memory.h"
#include "base/log.h"
#include "base/mem.h"
#include "trainer/engine/state.h"
#include "trainer/member/link/watch.h"
#include "trainer/parameters.h"
#include "trainer/peer_loss.h"

/* Floats that ranks gather at once, so that they can say how far they are: within the coordinator's minute also over a link of 1
 * Mbit/s. Pieces of a large world are larger, because each costs as many messages as there are ranks. */
#define PIECE_FLOATS ((size_t)1 << 20)
#define PIECE_FLOATS_OF_RANK ((size_t)1 << 14)
#define TELL_MS 5000 /* time between two reports to the coordinator */

struct gathering {
    struct trainer *t;
    bool told;         /* the coordinator is told how far the ranks are */
    size_t *from, *to; /* of each rank's part, in this piece */
    size_t floats;     /* gathered so far */
    int64_t told_ms;
};

static void gathering_open(struct gathering *g, struct trainer *t, bool told)
{
    const size_t world = (size_t)t->formation.world_size;
    *g = (struct gathering){.t = t, .told = told && world > 1};
    g->from = xcalloc(2 * world, sizeof(*g->from));
    g->to = g->from + world;
}

static void gathering_tell(struct gathering *g)
{
    const int64_t now = clock_mono_ns() / 1000000;
    if (!g->told || (g->told_ms && now - g->told_ms < TELL_MS))
        return;
    g->told_ms = now;
    link_set_gathered(g->t->link, 1 + (int64_t)(g->floats * sizeof(float)));
}

/* Piece i of n of the parts between these cuts. Each rank sends a piece of its part, so that all links are busy. */
static enum err_code piece_gather(struct gathering *g, float *data, const size_t *cuts, size_t i, size_t n,
                                  struct err *e)
{
    struct coll_group *group = g->t->formation.group;
    gathering_tell(g);
    for (int r = 0; r < g->t->formation.world_size; r++) {
        const size_t part = cuts[r + 1] - cuts[r];
        g->from[r] = cuts[r] + part / n * i + (i < part % n ? i : part % n);
        g->to[r] = g->from[r] + part / n + (i < part % n);
        g->floats += g->to[r] - g->from[r];
    }
    return coll_gather_ranges(group, data, g->from, g->to, e) || coll_join(group, e) ? e->code : ERR_OK;
}

static enum err_code array_gather(struct gathering *g, float *data, const size_t *cuts, struct err *e)
{
    const size_t world = (size_t)g->t->formation.world_size, whole = cuts[world],
                 most = world * PIECE_FLOATS_OF_RANK > PIECE_FLOATS ? world * PIECE_FLOATS_OF_RANK
                                                                    : PIECE_FLOATS,
                 n = whole / most + 1;
    for (size_t i = 0; i < n && world > 1; i++)
        if (piece_gather(g, data, cuts, i, n, e))
            return e->code;
    return ERR_OK;
}

/* As parameters_complete. */
static enum err_code parameters_gather(struct gathering *g, struct err *e)
{
    struct engine *n = &g->t->engine;
    if (n->partial && array_gather(g, n->params.data, g->t->gather.parts, e))
        return e->code;
    n->partial = false;
    return ERR_OK;
}

static enum err_code arrays_gather(struct gathering *g, float *moments, struct err *e)
{
    struct engine *n = &g->t->engine;
    const int world = g->t->formation.world_size;
    struct optim_array arrays[OPTIM_MOMENTS];
    const size_t array_count = optim_arrays(n->optim, arrays);
    size_t *parts = xcalloc((size_t)world + 1, sizeof(*parts)),
           *cuts = xcalloc((size_t)world + 1, sizeof(*cuts));
    enum err_code code = ERR_OK;
    (void)engine_divide(n, world, parts);
    for (size_t i = 0; !code && i < array_count; i++) {
        for (int r = 0; r <= world; r++)
            cuts[r] = optim_array_cut(n->optim, i, parts[r]);
        state_moment_out(n, &arrays[i], n->grads.data);
        code = array_gather(g, n->grads.data, cuts, e);
        if (!code && moments)
            n->device->ops->download(n->device, moments + arrays[i].at, n->grads.data,
                                     arrays[i].whole * sizeof(float));
    }
    free(parts);
    free(cuts);
    return code;
}

enum err_code moments_gather(struct trainer *t, float *moments, struct err *e)
{
    struct gathering g;
    gathering_open(&g, t, false);
    const enum err_code code = arrays_gather(&g, moments, e);
    free(g.from);
    return code;
}

enum err_code moments_spread(struct trainer *t, const float *moments, int from, struct err *e)
{
    struct engine *n = &t->engine;
    struct optim_array arrays[OPTIM_MOMENTS];
    const size_t array_count = optim_arrays(n->optim, arrays);
    for (size_t i = 0; i < array_count; i++) {
        const struct optim_array *a = &arrays[i];
        if (t->formation.rank == from)
            n->device->ops->upload(n->device, n->grads.data, moments + a->at, a->whole * sizeof(float));
        if (coll_broadcast_floats(t->formation.group, n->grads.data, a->whole, from, e))
            return e->code;
        state_moment_in(n, a, n->grads.data);
    }
    return n->device->ops->wait(n->device, e);
}

/* ---- between two generations */

/* malloc grants memory that is not there, and the kernel kills the process that uses it. */
static float *room_allocate(size_t bytes)
{
    struct host_memory memory;
    host_memory_read(&memory);
    if (fault_hit("moments.hold") || (memory.available && bytes > (size_t)memory.available))
        return NULL;
    return malloc(bytes);
}

/* Allocates *room on ranks that want it; NULL on the others. *all_have: no rank lacks the memory that it wants. */
static enum err_code hold_agree(struct trainer *t, bool wants, float **room, bool *all_have, struct err *e)
{
    const struct formation *f = &t->formation;
    const size_t bytes = (t->engine.optim->whole_floats + 1) * sizeof(**room);
    *room = wants ? room_allocate(bytes) : NULL;
    const bool mine = !wants || *room;
    bool *all = xcalloc((size_t)f->world_size, sizeof(*all));
    enum err_code code = coll_allgather(f->group, &mine, sizeof(mine), all, e);
    *all_have = true;
    for (int r = 0; !code && r < f->world_size; r++)
        *all_have &= all[r];
    free(all);
    return code;
}

static enum err_code hold_gather(struct trainer *t, float *room, struct err *e)
{
    struct engine *n = &t->engine;
    struct gathering g;
    if (t->formation.world_size > 1)
        log_info("gathers_moments", "rank=%d step=%lld bytes=%zu", t->formation.rank, (long long)n->step,
                 n->optim->whole_floats * sizeof(float));
    gathering_open(&g, t, true);
    const enum err_code code =
        parameters_gather(&g, e) || arrays_gather(&g, room, e) || n->device->ops->wait(n->device, e) ? e->code
                                                                                                     : ERR_OK;
    free(g.from);
    return code;
}

enum err_code moments_hold(struct trainer *t, struct err *e)
{
    struct engine *n = &t->engine;
    float *room = NULL;
    bool all_have = true;
    moments_release(t);
    if (!n->optim->part || t->no_room)
        return ERR_OK;
    enum err_code code = sync_join(t->formation.sync, e) || parameters_await(t, e) ? e->code : ERR_OK;
    /* One rank of each node holds all moments, so it does not matter which nodes stay. */
    if (!code)
        code = hold_agree(t, t->config->local_rank == 0, &room, &all_have, e);
    if (!code && !all_have) {
        log_warn("moments_not_held", "rank=%d step=%lld why=\"a rank has no memory for them\"",
                 t->formation.rank, (long long)n->step);
        t->no_room = true;
        link_set_stays(t->link, trainer_stays(t), peer_loss_wake);
    } else if (!code) {
        code = hold_gather(t, room, e);
    }
    if (code || !all_have) {
        free(room);
        return code;
    }
    t->held = (struct held_moments){room, n->step};
    return ERR_OK;
}

bool moments_held(const struct trainer *t)
{
    return t->held.data && t->held.step == t->engine.step && t->engine.whole;
}

void moments_release(struct trainer *t)
{
    free(t->held.data);
    t->held = (struct held_moments){0};
}

void moments_leave(struct trainer *t)
{
    struct engine *n = &t->engine;
    if (n->optim && n->optim->part && !moments_held(t))
        n->whole = false;
}
