#include "trainer/engine/share.h"

#include <stdlib.h>

#include "base/mem.h"

int64_t share_batch(const struct engine *n, int rank)
{
    struct sampler s = n->sampler;
    const struct cursor start = {0, 0};
    s.rank = rank;
    int64_t samples = sampler_local_samples(&s, &start);
    return samples > 0 ? samples : 1; /* fewer samples in a step than ranks */
}

/* The samples that all ranks together have to take until the end of the run. */
static int64_t samples_left(const struct engine *n)
{
    const struct train_spec *s = n->spec;
    const int64_t units = s->steps ? s->steps - n->step : s->epochs - n->cursor.epoch;
    const int64_t each = s->steps ? n->sampler.global : n->sampler.samples;
    int64_t left;
    if (units <= 0)
        return 0;
    if (__builtin_mul_overflow(units, each, &left))
        return INT64_MAX; /* `steps` or `epochs` of a run that is stopped by hand: no round has that many */
    left -= s->steps ? n->step_samples : n->cursor.position;
    return left > 0 ? left : 0;
}

void share_begin(struct engine *n, const int64_t *fits)
{
    struct engine_share *share = &n->share;
    int ranks = n->sampler.world_size, rank = n->sampler.rank;
    int64_t all = 0, *most = xcalloc((size_t)ranks, sizeof(*most)), fit = 0;
    if (!share->given) /* the first such round of this process: n->deal has what a snapshot said */
        n->fewest_updates = n->optim->steps;
    if (!share->given && !n->deal.count)
        deal_start(&n->deal, &n->cursor, NULL, 0);
    deal_limits(fits, ranks, samples_left(n), most);
    free(share->limits);
    *share = (struct engine_share){
        .given = true, .limits = most, .most = most[rank], .batch = share_batch(n, rank)};
    for (int r = 0; r < ranks; r++) {
        if (r < rank)
            share->first += most[r];
        all += most[r];
        fit += fits[r];
    }
    share->ratio = (double)fit / (double)fits[rank];
    deal_extend(&n->deal, n->sampler.samples, all);
    n->staged.rows = -1; /* that micro-batch was gathered for another place */
}

bool share_spent(const struct engine *n)
{
    return n->share.taken >= n->share.most;
}

double share_ahead(const struct engine *n)
{
    return n->share.given ? (double)n->share.taken * n->share.ratio : 0.0;
}

/* Moves what all ranks have in common by the samples that they have taken together. */
static void place_advance(struct engine *n, int64_t samples)
{
    n->samples += samples;
    n->step_samples += samples;
    n->step += n->step_samples / n->sampler.global;
    n->step_samples %= n->sampler.global;
    n->cursor.position += samples;
    while (n->cursor.position >= n->sampler.samples)
        n->cursor = (struct cursor){n->cursor.epoch + 1, n->cursor.position - n->sampler.samples};
    /* The last step of a run of epochs may have fewer samples. Without it the run would end at the step of the snapshot before. */
    if (!n->spec->steps && n->step_samples && engine_finished(n)) {
        n->step++;
        n->step_samples = 0;
    }
}

void share_end(struct engine *n, const struct share_count *all, bool *epoch_ended)
{
    struct engine_share *share = &n->share;
    int64_t epoch = n->cursor.epoch, samples = 0, end = 0;
    n->fewest_updates = all[0].updates;
    for (int r = 0; r < n->sampler.world_size; r++) {
        samples += all[r].taken;
        end += share->limits[r];
        if (all[r].updates < n->fewest_updates)
            n->fewest_updates = all[r].updates;
    }
    /* From the last rank on, so that the places of the others stay. */
    for (int r = n->sampler.world_size - 1; r >= 0; r--) {
        end -= share->limits[r];
        deal_remove(&n->deal, end, all[r].taken);
    }
    share->taken = share->most = 0;
    place_advance(n, samples);
    *epoch_ended = n->cursor.epoch > epoch;
}

struct share_range share_range(const struct engine *n)
{
    return (struct share_range){n->share.first, n->share.taken};
}

static int range_compare(const void *a, const void *b)
{
    const struct share_range *x = a, *y = b;
    return (x->first < y->first) - (x->first > y->first);
}

void share_cut_off(struct engine *n, struct share_range *all, int ranks)
{
    int64_t samples = 0;
    /* The last ones first, so that the places of the others stay. */
    qsort(all, (size_t)ranks, sizeof(*all), range_compare);
    for (int r = 0; r < ranks; r++) {
        deal_remove(&n->deal, all[r].first, all[r].taken);
        samples += all[r].taken;
    }
    n->share.taken = n->share.most = 0;
    place_advance(n, samples);
}

void share_take_row(struct engine *n, const struct deal *row, int64_t fewest)
{
    deal_start(&n->deal, &row->next, row->pieces, row->count);
    n->share.given = true;
    n->share.taken = n->share.most = 0;
    n->fewest_updates = fewest;
}

void share_leave(struct engine *n)
{
    if (!n->share.given && !n->deal.count && !n->step_samples)
        return;
    /* From here on ranks make equally many steps, and a snapshot has one count of them for all ranks. */
    if (n->share.given)
        n->optim->steps = n->fewest_updates;
    n->cursor = n->deal.next;
    engine_leave_spent_epoch(n);
    n->step_samples = 0;
    free(n->share.limits);
    n->share = (struct engine_share){0};
    deal_release(&n->deal);
}
