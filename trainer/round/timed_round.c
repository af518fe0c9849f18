#include "trainer/round/timed_round.h"

#include <math.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/mem.h"
#include "trainer/engine/share.h"
#include "trainer/rank_number.h"

#define GROWTH_MOST 16 /* of the number of steps */
#define STEPS_MOST 1000000
#define FITS_MOST (INT64_C(1) << 30) /* samples, of all ranks: see deal_limits */

int64_t timed_round_fit(int64_t steps, int64_t ns, int64_t every_ms)
{
    double fit = ns > 0 ? (double)steps * (double)every_ms * 1e6 / (double)ns : INFINITY;
    double most = fmin((double)steps * GROWTH_MOST, STEPS_MOST);
    return llround(fmin(fmax(fit, 1.0), most));
}

/* For tests: DDP_TEST_ROUND_STEPS="73,36" gives rank 0 rounds of 73 steps and rank 1 rounds of 36, whatever the clock says.
 * Returns 0 if the clock decides. */
static int64_t fixed_steps(int rank)
{
    return rank_number("DDP_TEST_ROUND_STEPS", rank);
}

/* The first round of a generation has at most `every` steps: limits are twice the fits. */
static void fits_guess(const struct trainer *t, int64_t *fits)
{
    for (int r = 0; r < t->formation.world_size; r++)
        fits[r] = (t->sync.every + 1) / 2 * share_batch(&t->engine, r);
}

bool timed_round_begin(struct trainer *t)
{
    struct timed_round *round = &t->timed;
    int world = t->formation.world_size;
    if (!t->sync.every_ms || sync_votes_each_step(t->formation.sync)) {
        share_leave(&t->engine);
        return false;
    }
    if (round->open)
        return true;
    if (!round->counts) {
        round->counts = xcalloc((size_t)world, sizeof(*round->counts));
        round->fits = xcalloc((size_t)world, sizeof(*round->fits));
        fits_guess(t, round->fits);
    }
    share_begin(&t->engine, round->fits);
    /* The round's time begins here and not where the last round ended, as evaluations and snapshots come between them. */
    round->began_ns = clock_mono_ns();
    round->steps = 0;
    round->open = true;
    return true;
}

bool timed_round_step(struct trainer *t, const struct step *s)
{
    const struct engine_share *share = &t->engine.share;
    int64_t fixed = fixed_steps(t->formation.rank);
    t->timed.steps += s->local > 0;
    if (share->taken + s->local >= share->most)
        return true;
    /* A stop or a hand-over ends the round before its time is over. This step carries the vote for it, which the exchange then brings to
     * the others. */
    if (s->tail[TAIL_STOP] > 0.0f || s->tail[TAIL_SIGNAL] > 0.0f || s->tail[TAIL_HANDOVER] > 0.0f)
        return true;
    if (fixed)
        return t->timed.steps >= fixed;
    return clock_mono_ns() - t->timed.began_ns >= t->sync.every_ms * 1000000;
}

/* What this rank tells the others. */
static struct share_count count_mine(const struct trainer *t, const struct step *s)
{
    const struct engine *n = &t->engine;
    int rank = t->formation.rank;
    int64_t most = FITS_MOST / t->formation.world_size, fixed = fixed_steps(rank);
    int64_t made = t->timed.steps;
    int64_t fit = made ? timed_round_fit(made, clock_mono_ns() - t->timed.began_ns, t->sync.every_ms) : 0;
    struct share_count mine = {
        .taken = n->share.taken + s->local, .fit = fit * n->share.batch, .updates = n->optim->steps};
    /* One bad round must not limit the next one, so the number falls by half at most. */
    if (mine.fit < t->timed.fits[rank] / 2)
        mine.fit = t->timed.fits[rank] / 2;
    if (fixed)
        mine.fit = fixed * n->share.batch;
    mine.fit = mine.fit < most ? mine.fit : most;
    mine.fit = mine.fit > 1 ? mine.fit : 1;
    return mine;
}

enum err_code timed_round_count(struct trainer *t, struct step *s, struct err *e)
{
    struct share_count mine = count_mine(t, s), *all = t->timed.counts;
    int64_t began = clock_mono_ns();
    if (coll_allgather(t->formation.group, &mine, sizeof(mine), all, e))
        return e->code;
    const int64_t waited = clock_mono_ns() - began;
    const struct engine *n = &t->engine;
    s->global = 0;
    for (int r = 0; r < t->formation.world_size; r++) {
        s->global += all[r].taken;
        t->timed.fits[r] = all[r].fit;
    }
    sync_end_round(t->formation.sync, n->step + (n->step_samples + s->global) / n->sampler.global, waited);
    return ERR_OK;
}

void timed_round_end(struct trainer *t, bool *epoch_ended)
{
    share_end(&t->engine, t->timed.counts, epoch_ended);
    t->timed.open = false;
    t->round_counted = 0;
}

void timed_round_release(struct trainer *t)
{
    free(t->timed.counts);
    free(t->timed.fits);
    t->timed = (struct timed_round){0};
}
