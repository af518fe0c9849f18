#include "trainer/compare.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"
#include "trainer/engine/digest.h"
#include "trainer/parameters.h"
#include "trainer/round/live_round.h"

/* Returns how many ranks have the same digest as rank r. */
static int digest_holders(const uint64_t *all, int world, int r)
{
    int n = 0;
    for (int i = 0; i < world; i++)
        n += all[i] == all[r];
    return n;
}

/* Returns a rank of the largest group of ranks with equal digests. Returns -1 if no group is larger than all
 * others. */
static int digest_majority(const uint64_t *all, int world)
{
    int best = 0;
    for (int r = 1; r < world; r++)
        if (digest_holders(all, world, r) > digest_holders(all, world, best))
            best = r;
    for (int r = 0; r < world; r++)
        if (all[r] != all[best] && digest_holders(all, world, r) == digest_holders(all, world, best))
            return -1;
    return best;
}

/* Appends the ranks whose digest differs from that of rank `right`, as "rank 2 (box1), rank 3 (box2)". If
 * right is -1, appends all ranks. */
static void list_odd(const struct trainer *t, const uint64_t *all, int right, struct buf *out)
{
    for (int r = 0; r < t->formation.world_size; r++) {
        if (right >= 0 && all[r] == all[right])
            continue;
        buf_puts(out, out->len ? ", " : "");
        formation_name_rank(&t->formation, r, out);
    }
}

/* Compares the digests of all ranks (`all`, by rank). DATA_LOSS on the ranks that differ from the majority,
 * or on all ranks if there is no majority: a restart of this process would not help. ABORTED on the other
 * ranks. */
static enum err_code compare_digests(struct trainer *t, const uint64_t *all, struct err *e)
{
    CLEANUP(buf_release) struct buf odd = {0};
    int right = digest_majority(all, t->formation.world_size);
    bool mine = right < 0 || all[t->formation.rank] != all[right];
    if (digest_holders(all, t->formation.world_size, 0) == t->formation.world_size) {
        t->agreed_step = t->engine.step;
        return ERR_OK;
    }
    list_odd(t, all, right, &odd);
    err_set(e, mine ? ERR_DATA_LOSS : ERR_ABORTED, "%.120s: parameters differ from %s at step %lld", odd.data,
            right < 0 ? "each other" : "the other ranks'", (long long)t->engine.step);
    if (t->agreed_step >= 0)
        snprintf(e->msg + strlen(e->msg), sizeof(e->msg) - strlen(e->msg), ", they were equal at step %lld",
                 (long long)t->agreed_step);
    snprintf(e->msg + strlen(e->msg), sizeof(e->msg) - strlen(e->msg), " (silent corruption)");
    return e->code;
}

enum err_code trainer_compare(struct trainer *t, struct err *e)
{
    if (sync_join(t->formation.sync, e))
        return e->code;
    if (!sync_settled(t->formation.sync) || t->digest_step == t->engine.step)
        return ERR_OK;
    if (parameters_complete(t, e))
        return e->code;
    t->digest = digest_params(&t->engine);
    t->digest_step = t->engine.step;
    if (t->engine.device->ops->wait(t->engine.device, e))
        return e->code;
    uint64_t *all = xcalloc((size_t)t->formation.world_size, sizeof(*all));
    enum err_code code = coll_allgather(t->formation.group, &t->digest, sizeof(t->digest), all, e);
    if (!code)
        code = compare_digests(t, all, e);
    free(all);
    return code;
}

/* ---- of a group that has just formed */

/* What ranks must have in common to train together, and the samples that they add up. */
struct run_place {
    int64_t step, epoch, position, updates, round_steps;
    uint64_t digest, moments; /* of what ranks must hold the same of: parameters and moments; else 0 */
    int64_t local_samples, late_samples;
    struct share_range range;
};

static const struct {
    const char *name;
    size_t offset;
} place_numbers[] = {
    {"at step", offsetof(struct run_place, step)},
    {"in epoch", offsetof(struct run_place, epoch)},
    {"at data position", offsetof(struct run_place, position)},
    {"at optimizer step", offsetof(struct run_place, updates)},
    {"at round step", offsetof(struct run_place, round_steps)},
};

static long long place_number(const struct run_place *p, size_t i)
{
    return *(const int64_t *)(const void *)((const char *)p + place_numbers[i].offset);
}

static enum err_code place_differs(const struct trainer *t, const struct run_place *all, int rank,
                                   struct err *e)
{
    const bool rounds = live_has_rounds(t);
    CLEANUP(buf_release) struct buf who = {0};
    formation_name_rank(&t->formation, rank, &who);
    for (size_t i = 0; i < ARRAY_LEN(place_numbers); i++) {
        long long theirs = place_number(&all[rank], i), first = place_number(&all[0], i);
        if (theirs != first)
            return err_set(e, ERR_FAILED_PRECONDITION,
                           "ranks are at different places of the run: %.120s is %s %lld, rank 0 %s %lld",
                           who.data, place_numbers[i].name, theirs, place_numbers[i].name, first);
    }
    if (all[rank].digest != all[0].digest)
        return err_set(e, ERR_FAILED_PRECONDITION,
                       "ranks hold different %s: those of %.120s at step %lld differ from rank 0's",
                       rounds ? "shared models" : "parameters", who.data, (long long)all[rank].step);
    if (all[rank].moments != all[0].moments)
        return err_set(e, ERR_FAILED_PRECONDITION,
                       "ranks hold different %s: those of %.120s at step %lld differ from rank 0's",
                       rounds ? "outer momenta" : "moments of the optimizer", who.data,
                       (long long)all[rank].step);
    return ERR_OK;
}

/* Ranks at different speeds differ in their steps: of the optimizer, and of the round. Ranks that were cut off within a round
 * differ in all, but not in where they will be after the steps that the newest of them has made. */
static struct run_place place_of(const struct trainer *t, const struct engine_ahead *ahead)
{
    const struct engine *n = &t->engine;
    bool unlike = n->share.given;
    return (struct run_place){.step = n->step + t->behind,
                              .epoch = ahead->cursor.epoch,
                              .position = ahead->cursor.position,
                              .updates = unlike ? n->fewest_updates : n->optim->steps + t->behind,
                              .round_steps = unlike ? 0 : t->round.steps + t->behind,
                              .local_samples = t->round.local_samples + ahead->local,
                              .late_samples = t->late_samples,
                              .range = share_range(n)};
}

/* Weights are the present ranks' shares of the exchange. In a round of a given time, the samples of a lost rank are dealt again.
 * Only samples that counted already, because the group went on within the round before, are lost. */
static void samples_sum(struct trainer *t, const struct run_place *all, const struct engine_ahead *ahead)
{
    int64_t present = 0;
    int64_t back = 0;
    t->round.global_samples = 0;
    for (int r = 0; r < t->formation.world_size; r++) {
        t->round.global_samples += all[r].local_samples;
        present += all[r].local_samples - all[r].range.taken - all[r].late_samples;
        back += all[r].late_samples;
    }
    t->samples_lost += t->brought ? t->brought - present : 0;
    t->samples_back += back;
    t->round_counted = t->engine.share.given ? t->round.global_samples : 0;
    t->round.global_samples -= ahead->global;
}

/* The same, for fragments that have been sent in this round of all of them. */
static enum err_code fragments_sum(struct trainer *t, struct err *e)
{
    const size_t count = t->sync.type == SYNC_DILOCO ? (size_t)t->sync.fragments : 0;
    const size_t ranks = (size_t)t->formation.world_size;
    if (count < 2)
        return ERR_OK;
    int64_t *mine = xcalloc(count, sizeof(*mine)), *all = xcalloc(count * ranks, sizeof(*all));
    for (size_t f = 0; f < count; f++)
        mine[f] = t->round.seen[f].local;
    enum err_code code = coll_allgather(t->formation.group, mine, count * sizeof(*mine), all, e);
    for (size_t f = 0; !code && f < count; f++) {
        t->round.seen[f].global = 0;
        for (size_t r = 0; r < ranks; r++)
            t->round.seen[f].global += all[r * count + f];
    }
    free(mine);
    free(all);
    return code;
}

enum err_code trainer_compare_places(struct trainer *t, struct err *e)
{
    struct engine *n = &t->engine;
    const struct formation *f = &t->formation;
    size_t ranks = (size_t)f->world_size;
    const bool rounds = live_has_rounds(t);
    struct engine_ahead ahead;
    engine_look_ahead(n, t->behind, &ahead);
    struct run_place mine = place_of(t, &ahead);
    /* In an open round ranks differ, and at step 0 trainer_restore has not set the parameters yet. */
    const bool equal = n->step > 0 && t->round.steps == 0 && !t->round.uneven && !n->share.given && !rounds;
    if (equal)
        mine.digest = digest_params(n);
    if (equal && !sync_ranks_differ(f->sync) && !n->optim->part)
        mine.moments = digest_moments(n);
    if (rounds)
        live_round_digests(t, &mine.digest, &mine.moments);
    if (n->device->ops->wait(n->device, e))
        return e->code;
    struct run_place *all = xcalloc(ranks, sizeof(*all));
    struct share_range *ranges = xcalloc(ranks, sizeof(*ranges));
    enum err_code code = fragments_sum(t, e);
    if (!code)
        code = coll_allgather(f->group, &mine, sizeof(mine), all, e);
    for (int r = 0; !code && r < f->world_size; r++) {
        code = place_differs(t, all, r, e);
        ranges[r] = all[r].range;
    }
    if (!code)
        samples_sum(t, all, &ahead);
    if (!code && n->share.given)
        share_cut_off(n, ranges, f->world_size);
    free(ranges);
    free(all);
    if (!code && equal) { /* trainer_compare need not do it again */
        t->digest = mine.digest;
        t->digest_step = t->agreed_step = n->step;
    }
    return code;
}
