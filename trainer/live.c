#include "trainer/live.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "trainer/member/link/watch.h"
#include "trainer/moments.h"
#include "trainer/peer_loss.h"
#include "trainer/round/live_round.h"

#define FLOATS_AT_ONCE ((size_t)1 << 20)

/* From device to device, by the device's own collectives if it has some. */
static enum err_code share_on_device(struct trainer *t, const struct state_array *array, int root, bool here,
                                     struct err *e)
{
    struct device *d = t->engine.device;
    if (!here && !t->room &&
        device_alloc(d, FLOATS_AT_ONCE * sizeof(float), "a part of the state", &t->room, e))
        return e->code;
    for (size_t at = 0, n; at < array->count; at += n) {
        n = array->count - at < FLOATS_AT_ONCE ? array->count - at : FLOATS_AT_ONCE;
        if (coll_broadcast_floats(t->formation.group, here ? array->data + at : t->room, n, root, e))
            return e->code;
    }
    return ERR_OK;
}

enum err_code live_share_array(struct trainer *t, const struct state_array *array, int root, bool take,
                               struct err *e)
{
    struct device *d = t->engine.device;
    bool source = t->formation.rank == root;
    if (!d->host)
        return share_on_device(t, array, root, source || take, e);
    size_t most = array->count < FLOATS_AT_ONCE ? array->count : FLOATS_AT_ONCE;
    /* Not in place: a rank that keeps what it has takes part, too. */
    float *room = xcalloc(most, sizeof(*room));
    enum err_code code = ERR_OK;
    for (size_t at = 0, n; !code && at < array->count; at += n) {
        n = array->count - at < FLOATS_AT_ONCE ? array->count - at : FLOATS_AT_ONCE;
        if (source)
            memcpy(room, array->data + at, n * sizeof(float));
        code = coll_broadcast(t->formation.group, room, n * sizeof(float), root, e);
        if (!code && take && !source)
            memcpy(array->data + at, room, n * sizeof(float));
    }
    free(room);
    return code;
}

/* The group that is over may have taken its last snapshot with it. If so, the next one is due at once. */
static bool snapshot_is_lost(const struct trainer *t)
{
    const struct link_group *g = &t->formation.info;
    for (size_t i = 0; i < g->committed_count; i++)
        if (g->committed[i].step == t->last_snapshot_step)
            return false;
    return t->last_snapshot_step >= 0;
}

/* The same if it was that of the best evaluation, or if the group broke between this evaluation and its snapshot. Its
 * parameters may be gone, so the next evaluation is due at once, and is the best. */
static bool best_is_lost(const struct trainer *t)
{
    const struct engine *n = &t->engine;
    if (!t->spec->snapshot.keep_best || !n->best_step)
        return false;
    return n->best_step == t->last_snapshot_step ? snapshot_is_lost(t) : n->best_step == n->step;
}

static void run_put(const struct trainer *t, struct live_run *run)
{
    int64_t now = clock_boot_ms();
    bool lost = snapshot_is_lost(t), best_lost = best_is_lost(t);
    state_place(&t->engine, &run->place);
    if (best_lost)
        run->place.best_step = 0;
    run->choice = t->chosen;
    run->snapshot_age_ms = now - t->last_snapshot_ms;
    run->eval_age_ms = now - t->last_eval_ms;
    run->last_snapshot_step = lost ? -1 : t->last_snapshot_step;
    run->snapshot_due = t->snapshot_due || lost;
    run->eval_due = t->eval_due || best_lost;
    run->round = t->round;
    run->round_timed = live_round_timed(t);
    run->round_counted = t->round_counted;
    run->served = t->served;
    memcpy(run->made_in, t->made_in, sizeof(run->made_in));
}

static enum err_code run_take(struct trainer *t, const struct live_run *run, struct err *e)
{
    int64_t now = clock_boot_ms();
    t->last_snapshot_ms = now - run->snapshot_age_ms;
    t->last_eval_ms = now - run->eval_age_ms;
    t->last_snapshot_step = run->last_snapshot_step;
    t->snapshot_due = run->snapshot_due && t->snapshot_dir;
    t->eval_due = run->eval_due;
    /* A rank that lost its group in an evaluation may not know that it was the best. All must keep the same snapshots. */
    state_take_best(&t->engine, &run->place);
    state_take_portions(&t->engine, &run->place);
    if (t->spec->sync.type != SYNC_AUTO)
        return ERR_OK;
    /* trainer_choose_sync measures the link again, and in a world of another size also the step. Ranks hold the same
     * state, so nothing has to be made equal here, and the comparison of places can still find a bit that differs. */
    if (run->choice.facts.world_size == t->formation.world_size) {
        if (trainer_open_sync(t, &run->choice.sync, e))
            return e->code;
        t->facts = run->choice.facts;
    }
    t->chosen = run->choice;
    link_set_stays(t->link, trainer_stays(t), peer_loss_wake);
    return ERR_OK;
}

/* The source's state. A rank that has it already keeps its own, so that a comparison finds a bit that differs. */
static enum err_code state_share(struct trainer *t, const struct snapshot_place *place, bool take,
                                 struct err *e)
{
    struct engine *n = &t->engine;
    struct state_array arrays[STATE_ARRAYS_MAX];
    size_t count = state_arrays(n, arrays);
    if (take)
        n->whole = false;
    for (size_t i = 0; i < count; i++)
        if (live_share_array(t, &arrays[i], t->formation.info.source_rank, take, e))
            return e->code;
    if (n->device->ops->wait(n->device, e))
        return e->code;
    if (take) {
        n->partial = false; /* these parameters came as floats */
        state_take_place(n, place);
    }
    n->whole = true;
    return ERR_OK;
}

/* shard: optimizer. The world size may have changed, and with it the part of each rank. */
static enum err_code parts_share(struct trainer *t, int source, struct err *e)
{
    struct engine *n = &t->engine;
    const bool held = moments_held(t);
    if (t->formation.rank == source && !held)
        return err_set(e, ERR_INTERNAL, "rank %d is the source, but it does not hold the moments", source);
    n->whole = held; /* without them, this rank depends on the source until it has its part */
    if (moments_spread(t, t->held.data, source, e))
        return e->code;
    n->whole = true;
    return ERR_OK;
}

/* Of ranks that make each step together: all do again what some rank has not done. Of ranks that were cut off within a round:
 * no rank gets to a step that others must reach, too (an evaluation, an exchange), before these have done what was due before
 * it. So a rank owes only what lies behind all that any rank has done. */
static bool work_is_owed(const struct trainer *t, const struct live_claim *all, int64_t step)
{
    bool missed = false;
    int64_t served = -1;
    for (int r = 0; r < t->formation.world_size; r++) {
        missed |= all[r].step == step && all[r].served_step != step;
        served = all[r].whole && all[r].served_step > served ? all[r].served_step : served;
    }
    return live_has_rounds(t) ? t->engine.step > served : missed;
}

static enum err_code share_from(struct trainer *t, const struct live_claim *all, int source, bool rounds,
                                struct err *e)
{
    const struct formation *f = &t->formation;
    const int64_t step = all[source].step, before = all[f->rank].step;
    struct live_run run = {0};
    bool missing = false;
    for (int r = 0; r < f->world_size; r++)
        missing |= all[r].step != step;
    if (!step && !rounds)
        return err_set(e, ERR_INTERNAL, "the coordinator names rank %d as the source, but it has no state",
                       source);
    if (f->rank == source)
        run_put(t, &run);
    if (coll_broadcast(f->group, &run, sizeof(run), source, e) ||
        (!rounds && missing && state_share(t, &run.place, before != step, e)) ||
        (t->engine.optim->part && parts_share(t, source, e)) || run_take(t, &run, e) ||
        (rounds && live_round_share(t, all, source, &run, e)))
        return e->code;
    t->owed = work_is_owed(t, all, step);
    if (!t->owed) /* also on a rank that has taken the state, which a later generation would ask otherwise */
        t->served_step = t->engine.step;
    log_info("went_on", "rank=%d step=%lld from=%s", f->rank, (long long)t->engine.step,
             before == t->engine.step ? "memory" : "peer");
    return ERR_OK;
}

enum err_code live_share(struct trainer *t, struct err *e)
{
    const struct formation *f = &t->formation;
    struct live_claim mine = {.whole = t->engine.whole,
                              .step = t->engine.whole ? t->engine.step : 0,
                              .served_step = t->served_step,
                              .apart = t->round.apart,
                              .sent = t->round.sent.begun,
                              .exchanges = t->round.rounds,
                              .round_steps = live_round_timed(t) ? 0 : t->round.steps,
                              .samples = t->engine.samples,
                              .dealt = t->engine.share.most > 0,
                              .sent_in = t->sent_in};
    memcpy(mine.made_in, t->made_in, sizeof(mine.made_in));
    struct live_claim *all = xcalloc((size_t)f->world_size, sizeof(*all));
    enum err_code code = coll_allgather(f->group, &mine, sizeof(mine), all, e);
    if (!code) {
        int newest = live_round_newest(all, f->world_size);
        code = share_from(t, all, newest < 0 ? f->info.source_rank : newest, newest >= 0, e);
    }
    free(all);
    return code;
}
