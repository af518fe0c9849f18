#include "trainer/choose_sync.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "trainer/engine/digest.h"
#include "trainer/engine/state.h"
#include "trainer/engine/step.h"
#include "trainer/keep.h"
#include "trainer/live.h"
#include "trainer/member/link/watch.h"
#include "trainer/peer_loss.h"
#include "trainer/round/live_round.h"

#define PASSES_MOST 5
#define PASSES_MS 300.0     /* passes are repeated until they took this long */
#define PASS_LONG_MS 2000.0 /* a first pass that takes longer is not repeated */
#define PROBE_FIRST 4096    /* floats of the first timed all-reduce */
#define PROBE_MS 200.0      /* an all-reduce that takes this long says enough */
#define PROBE_GROWTH 16.0   /* from one timed all-reduce to the next, at most */

static double ms_since(int64_t ns)
{
    return (double)(clock_mono_ns() - ns) / 1e6;
}

/* ---- how long a step computes */

/* Computes the gradients of the next step, which the step itself computes again. */
static enum err_code pass_time(struct trainer *t, double *ms, struct err *e)
{
    struct engine *n = &t->engine;
    struct step s;
    int64_t began = clock_mono_ns();
    step_begin(n, &s);
    struct step_route route = {.divisor = s.local > 0 ? s.local : 1, .carrier = n->grads.data};
    if (step_backward(n, &s, &route, e) || n->device->ops->wait(n->device, e))
        return e->code;
    engine_take_shard(n, 0);
    *ms = ms_since(began);
    return ERR_OK;
}

/* The first pass touches memory for the first time, so it counts only if it takes long. */
static enum err_code compute_time(struct trainer *t, double *mean_ms, struct err *e)
{
    double ms, sum = 0.0;
    int count = 0;
    if (coll_barrier(t->formation.group, e) || pass_time(t, mean_ms, e))
        return e->code;
    while (*mean_ms < PASS_LONG_MS && count < PASSES_MOST && sum < PASSES_MS) {
        if (pass_time(t, &ms, e))
            return e->code;
        sum += ms;
        count++;
    }
    *mean_ms = count ? sum / count : *mean_ms;
    return ERR_OK;
}

/* ---- how long an all-reduce takes */

/* The largest of the ranks' numbers. */
static enum err_code largest_of(struct trainer *t, double *x, struct err *e)
{
    int world = t->formation.world_size;
    double *all = xcalloc((size_t)world, sizeof(*all));
    enum err_code code = coll_allgather(t->formation.group, x, sizeof(*x), all, e);
    for (int r = 0; !code && r < world; r++)
        *x = fmax(*x, all[r]);
    free(all);
    return code;
}

static enum err_code probe_once(struct trainer *t, size_t floats, double *ms, struct err *e)
{
    struct device *d = t->engine.device;
    if (coll_barrier(t->formation.group, e))
        return e->code;
    int64_t began = clock_mono_ns();
    if (coll_allreduce(t->formation.group, t->engine.grads.data, floats, e) || d->ops->wait(d, e))
        return e->code;
    *ms = ms_since(began);
    return largest_of(t, ms, e);
}

/* The shortest of some times, because other processes of the node can only make it longer. */
static enum err_code probe_time(struct trainer *t, size_t floats, double *least_ms, struct err *e)
{
    double ms, sum = 0.0;
    *least_ms = INFINITY;
    for (int i = 0; i < PASSES_MOST && sum < PROBE_MS / 4; i++) {
        if (probe_once(t, floats, &ms, e))
            return e->code;
        *least_ms = fmin(*least_ms, ms);
        sum += ms;
    }
    return ERR_OK;
}

/* Sums growing parts of the gradients until that takes PROBE_MS, and draws a line through the last two times: what an
 * all-reduce costs besides its bytes, and what a switch lets pass at once, then count once. */
static enum err_code link_time(struct trainer *t, struct sync_facts *f, struct err *e)
{
    size_t all = t->engine.params.count, floats = all < PROBE_FIRST ? all : PROBE_FIRST, before = 0;
    double ms, before_ms = 0.0;
    struct device *d = t->engine.device;
    d->ops->zero(d, t->engine.grads.data, all * sizeof(float));
    if (probe_once(t, floats, &ms, e)) /* the first one opens the connections' windows */
        return e->code;
    for (;;) {
        if (probe_time(t, floats, &ms, e))
            return e->code;
        if (floats == all || ms >= PROBE_MS)
            break;
        before = floats;
        before_ms = ms;
        double grown = (double)floats * fmin(fmax(2.0 * PROBE_MS / ms, 2.0), PROBE_GROWTH);
        floats = grown < (double)all ? (size_t)grown : all;
    }
    double slope =
        before && ms > before_ms ? (ms - before_ms) / (double)(floats - before) : ms / (double)floats;
    f->allreduce_ms = ms + slope * (double)(all - floats);
    return ERR_OK;
}

/* compute_ms: as an earlier generation has measured it; 0: not known */
static enum err_code facts_measure(struct trainer *t, double compute_ms, struct sync_facts *f, struct err *e)
{
    const struct formation *m = &t->formation;
    size_t all = t->engine.params.count;
    bool behind = coll_overlaps(m->group) || t->engine.device->comm;
    *f = (struct sync_facts){.compute_ms = compute_ms,
                             .bytes = (double)(all * sizeof(float)),
                             .overlap = sync_overlap((double)all, behind),
                             .steps = engine_total_steps(&t->engine),
                             .world_size = m->world_size,
                             .nodes = 1};
    for (int r = 0; r < m->world_size; r++)
        f->nodes = m->info.peers[r].node_rank >= f->nodes ? m->info.peers[r].node_rank + 1 : f->nodes;
    if (m->world_size < 2)
        return ERR_OK;
    if (!compute_ms && (compute_time(t, &f->compute_ms, e) || largest_of(t, &f->compute_ms, e)))
        return e->code;
    return link_time(t, f, e);
}

/* ---- going on by a choice */

static enum err_code moments_equal(struct trainer *t, bool *equal, struct err *e)
{
    struct device *d = t->engine.device;
    int world = t->formation.world_size;
    uint64_t mine = digest_moments(&t->engine), *all = xcalloc((size_t)world, sizeof(*all));
    enum err_code code = d->ops->wait(d, e);
    if (!code)
        code = coll_allgather(t->formation.group, &mine, sizeof(mine), all, e);
    *equal = true;
    for (int r = 1; !code && r < world; r++)
        *equal &= all[r] == all[0];
    free(all);
    return code;
}

/* Ranks that were cut off within a round are at different steps of it, and all-reduce has no place where the others catch up. So they
 * go to the step of the newest rank, and do not make those that they lack. *settled: no rank has an open round. */
static enum err_code round_meet(struct trainer *t, struct sync_state *round, bool *settled, struct err *e)
{
    struct engine *n = &t->engine;
    const int world = t->formation.world_size;
    struct claim {
        int64_t step, samples;
        bool settled;
    } mine = {n->step, round->local_samples, sync_settled(t->formation.sync)},
      *all = xcalloc((size_t)world, sizeof(*all));
    struct {
        struct snapshot_place place;
        struct sync_state round;
        bool owed;
    } newest = {.round = *round, .owed = t->owed};
    int64_t samples = 0;
    int source = 0;
    bool equal = true;
    state_place(n, &newest.place);
    enum err_code code = coll_allgather(t->formation.group, &mine, sizeof(mine), all, e);
    *settled = true;
    for (int r = 0; !code && r < world; r++) {
        samples += all[r].samples;
        *settled &= all[r].settled;
        equal &= all[r].step == all[0].step;
        source = all[r].step > all[source].step ? r : source;
    }
    free(all);
    if (code || equal)
        return code;
    if (coll_broadcast(t->formation.group, &newest, sizeof(newest), source, e))
        return e->code;
    if (n->step < newest.place.step) {
        log_warn("steps_left_out",
                 "rank=%d step=%lld steps=%lld why=\"all-reduce goes on at the step of the newest rank\"",
                 t->formation.rank, (long long)n->step, (long long)(newest.place.step - n->step));
        state_take_place(n, &newest.place);
        live_round_take_place(round, &newest.round);
        t->owed = newest.owed;
        t->behind = 0;
    }
    round->global_samples = samples; /* without those of the steps that ranks lack */
    return ERR_OK;
}

/* Ends the open round in fp32, whatever the wire. The wire that the round was made with is not always known, and no later
 * round could send what rounding loses now: the parameters take in what earlier exchanges have lost. */
static enum err_code round_end(struct trainer *t, struct err *e)
{
    struct sync_spec exact = t->sync;
    struct sync_state round;
    bool settled;
    if (t->sync.type == SYNC_ALLREDUCE)
        return ERR_OK;
    sync_save(t->formation.sync, &round);
    if (round_meet(t, &round, &settled, e) || settled)
        return e->code;
    t->engine.whole = false;
    exact.wire = WIRE_FP32;
    if (sync_take_feedback(t->formation.sync, &round, e) || trainer_open_sync(t, &exact, e))
        return e->code;
    sync_load(t->formation.sync, &round);
    sync_at_step(t->formation.sync, t->engine.step,
                 engine_total_steps(&t->engine)); /* for the outer momentum */
    return sync_settle(t->formation.sync, e);
}

/* Ranks that made local steps hold their own parameters and moments. The state is not whole while that changes: a group
 * that is lost meanwhile leaves a mixture. */
static enum err_code ranks_equalize(struct trainer *t, struct err *e)
{
    const bool whole = t->engine.whole;
    bool equal;
    if (round_end(t, e) || moments_equal(t, &equal, e))
        return e->code;
    if (!equal) {
        const struct state_array moments = {t->engine.optim->state, t->engine.optim->floats};
        t->engine.whole = false;
        if (live_share_array(t, &moments, 0, true, e))
            return e->code;
    }
    t->engine.whole = whole;
    return ERR_OK;
}

/* Outer momentum and error feedback (own) belong to rounds that are over. */
static void extras_clear(struct engine *n, bool all)
{
    for (size_t i = 0; i < n->extra_count; i++)
        if (n->extras[i].kept && (all || n->extras[i].own))
            n->device->ops->zero(n->device, n->extra[i].data, n->extra[i].count * sizeof(float));
}

enum err_code trainer_adopt_sync(struct trainer *t, const struct sync_spec *spec, struct err *e)
{
    struct formation *f = &t->formation;
    bool from_rounds = t->sync.type != SYNC_ALLREDUCE, to_rounds = spec->type != SYNC_ALLREDUCE;
    struct sync_state round = {0};
    if (sync_join(f->sync, e) || (!to_rounds && ranks_equalize(t, e)))
        return e->code;
    /* fp32 loses nothing by rounding, so what an earlier wire has lost would be added much later. */
    if (from_rounds != to_rounds || spec->wire == WIRE_FP32)
        extras_clear(&t->engine, from_rounds != to_rounds);
    sync_save(f->sync, &round);
    if (trainer_open_sync(t, spec, e))
        return e->code;
    if (from_rounds && to_rounds)
        sync_load(f->sync, &round);
    else
        sync_start(f->sync);
    t->engine.narrowed = false; /* the strategy may have changed the parameters */
    return ERR_OK;
}

/* Of the values that choices differ in. */
static bool choice_is_same(const struct sync_spec *a, const struct sync_spec *b)
{
    return a->type == b->type && (a->type == SYNC_ALLREDUCE || (a->every == b->every && a->wire == b->wire));
}

/* Whether the newest rank has made the run's last step. All ranks must decide the same before they make collective calls, and within
 * a round each may be at another step. */
static bool run_is_made(struct trainer *t)
{
    struct engine_ahead ahead;
    if (t->spec->steps)
        return t->engine.step + t->behind >= t->spec->steps;
    engine_look_ahead(&t->engine, t->behind, &ahead);
    return ahead.cursor.epoch >= t->spec->epochs;
}

enum err_code trainer_choose_sync(struct trainer *t, struct err *e)
{
    CLEANUP(buf_release) struct buf said = {0};
    struct sync_spec chosen;
    if (t->spec->sync.type != SYNC_AUTO || run_is_made(t))
        return ERR_OK;
    /* A generation that continues from memory with the same number of ranks continues with the earlier choice, and knows how long a step
     * takes. But its link may be another one, or may have become faster or slower. */
    const bool known = t->facts.world_size > 0;
    if (facts_measure(t, t->facts.compute_ms, &t->facts, e))
        return e->code;
    sync_choose(&t->facts, &chosen);
    /* Rank 0 decides, so that nothing depends on how each rank's CPU rounds. */
    if (coll_broadcast(t->formation.group, &chosen, sizeof(chosen), 0, e))
        return e->code;
    const bool stays = known && choice_is_same(&chosen, &t->sync);
    if (!stays && trainer_adopt_sync(t, &chosen, e))
        return e->code;
    t->chosen = (struct live_choice){chosen, t->facts};
    link_set_stays(t->link, trainer_stays(t), peer_loss_wake);
    sync_print_choice(&said, &t->facts, &chosen);
    if (t->formation.rank == 0)
        log_info("sync_chosen", "what=%s", LOG_Q(said.data));
    if (stays)
        return ERR_OK;
    /* Who writes snapshots follows from whether ranks differ. */
    keep_close(t);
    if (keep_open(t, e))
        return e->code;
    trainer_take_sizes(t);
    return ERR_OK;
}
