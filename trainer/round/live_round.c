#include "trainer/round/live_round.h"

#include <math.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "trainer/engine/digest.h"
#include "trainer/engine/share.h"

enum part {
    PART_KEEPS,  /* has made as many exchanges as the newest rank */
    PART_STARTS, /* was cut off between the last step of all-reduce and the first step of the first round */
    PART_BEHIND,
    PART_LATE,    /* was late; its change enters the next exchange */
    PART_COUNTED, /* was late; its change is part of an exchange that it has not applied */
    PART_DROPPED, /* was late for too many exchanges, or its last exchange does not count */
    PART_NEW,
};

int live_round_newest(const struct live_claim *all, int world)
{
    int newest = -1;
    for (int r = 0; r < world; r++) {
        const struct live_claim *c = &all[r], *best = newest < 0 ? NULL : &all[newest];
        if (c->whole && c->apart &&
            (!best || c->exchanges > best->exchanges ||
             (c->exchanges == best->exchanges &&
              (c->step > best->step || (c->step == best->step && c->samples > best->samples)))))
            newest = r;
    }
    return newest;
}

bool live_has_rounds(const struct trainer *t)
{
    return t->formation.info.live && t->in_round;
}

int64_t live_late_samples(int64_t samples, int64_t age)
{
    return age < 62 ? samples >> age : 0;
}

/* Whether the exchange of this number, which both ranks have applied, was made in the same generation. */
static bool exchange_is_common(const struct live_claim *c, const struct live_claim *newest, int64_t number)
{
    const int64_t at = number % LIVE_ROUNDS_KEPT;
    return number == 0 ||
           (newest->exchanges - number < LIVE_ROUNDS_KEPT && c->made_in[at] == newest->made_in[at]);
}

/* For a rank with a state within a round, in a job with a quorum. */
static enum part part_of_late(const struct live_claim *c, const struct live_claim *newest)
{
    const int64_t age = newest->exchanges - c->exchanges, next = c->exchanges + 1;
    if (!exchange_is_common(c, newest, c->exchanges))
        return PART_DROPPED;
    if (age > 0 && age < LIVE_ROUNDS_KEPT && c->sent &&
        c->sent_in == newest->made_in[next % LIVE_ROUNDS_KEPT])
        return age == 1 ? PART_BEHIND : PART_COUNTED;
    return age == 0 ? PART_KEEPS : age <= LIVE_LATE_MOST ? PART_LATE : PART_DROPPED;
}

/* A rank that has not made the last step of all-reduce before the rounds has no part in any round. */
static enum part part_of(const struct trainer *t, const struct live_claim *c, const struct live_claim *newest)
{
    bool at_start = newest->exchanges == 0 && c->step == newest->step - newest->round_steps;
    if (!c->whole || (!c->apart && !at_start))
        return PART_NEW;
    if (!c->apart)
        return PART_STARTS;
    if (t->spec->sync.quorum)
        return part_of_late(c, newest);
    if (c->exchanges == newest->exchanges)
        return PART_KEEPS;
    /* Its change is part of the last exchange only if it was sent in the generation that made this exchange. */
    return c->exchanges + 1 == newest->exchanges && c->sent &&
                   c->sent_in == newest->made_in[newest->exchanges % LIVE_ROUNDS_KEPT]
               ? PART_BEHIND
               : PART_NEW;
}

/* ---- what members have in common */

static struct state_array shared_model(struct trainer *t)
{
    return (struct state_array){sync_shared_array(t->formation.sync), t->engine.model->count};
}

/* Outer momentum, if the strategy has it. */
static struct state_array outer_momentum(const struct trainer *t)
{
    const struct engine *n = &t->engine;
    for (size_t i = 0; i < n->extra_count; i++)
        if (n->extras[i].kept && !n->extras[i].own)
            return (struct state_array){n->extra[i].data, n->model->count};
    return (struct state_array){0};
}

void live_round_digests(struct trainer *t, uint64_t *model, uint64_t *momentum)
{
    const struct state_array arrays[] = {shared_model(t), outer_momentum(t)};
    uint64_t *digests[] = {model, momentum};
    for (size_t i = 0; i < ARRAY_LEN(arrays); i++)
        *digests[i] = arrays[i].data ? digest_array(&t->engine, arrays[i].data, arrays[i].count) : 0;
}

/* Members take what they lack. A rank that lacks nothing keeps its own, so that a comparison finds a bit that differs. */
static enum err_code arrays_share(struct trainer *t, const struct live_claim *all, int source, enum part mine,
                                  struct err *e)
{
    struct engine *n = &t->engine;
    const struct state_array shared[] = {shared_model(t), outer_momentum(t)};
    const struct state_array moments = {n->optim->state, n->optim->floats};
    bool shares = false, new_ranks = false, takes = mine >= PART_BEHIND;
    for (int r = 0; r < t->formation.world_size; r++) {
        const enum part part = part_of(t, &all[r], &all[source]);
        shares |= part >= PART_BEHIND;
        new_ranks |= part == PART_NEW;
    }
    /* If the source is lost from here on, this rank's arrays belong to different exchanges. */
    if (takes)
        n->whole = false;
    for (size_t i = 0; i < ARRAY_LEN(shared); i++)
        if (shares && shared[i].data && live_share_array(t, &shared[i], source, takes, e))
            return e->code;
    if (new_ranks && moments.count && live_share_array(t, &moments, source, mine == PART_NEW, e))
        return e->code;
    return n->device->ops->wait(n->device, e);
}

/* ---- what each member makes of it */

static void begin_at_shared(struct trainer *t)
{
    struct engine *n = &t->engine;
    const struct device_ops *ops = n->device->ops;
    const struct state_array model = shared_model(t);
    if (model.data)
        ops->copy(n->device, n->params.data, model.data, model.count * sizeof(float));
    for (size_t i = 0; i < n->extra_count; i++)
        if (n->extras[i].own)
            ops->zero(n->device, n->extra[i].data, n->extra[i].count * sizeof(float));
}

/* A new rank has the source's place in the round, and brings nothing to it yet. */
static struct sync_state round_of_new(const struct sync_state *source)
{
    struct sync_state out = *source;
    out.local_samples = 0;
    for (int f = 0; f < SYNC_FRAGMENTS_MOST; f++)
        out.seen[f].local = 0;
    out.sent.begun = false;
    out.rank = out.world_size = 0;
    return out;
}

/* The rank's change of its old shared model, g - theta, in place of its parameters. */
static void change_take_out(struct trainer *t)
{
    struct engine *n = &t->engine;
    const struct state_array model = shared_model(t);
    n->device->ops->scale(n->device, n->params.data, model.count, -1.0f);
    n->device->ops->add(n->device, n->params.data, model.data, model.count);
}

/* theta becomes the present shared model plus that change. */
static void change_put_back(struct trainer *t, float weight)
{
    struct engine *n = &t->engine;
    const struct state_array model = shared_model(t);
    n->device->ops->scale(n->device, n->params.data, model.count, -weight);
    n->device->ops->add(n->device, n->params.data, model.data, model.count);
}

/* The rank has the shared arrays now. It keeps its change, and the error feedback of the group in which it made the change. */
static void come_back(struct trainer *t, enum part mine, int64_t age, const struct sync_state *source)
{
    const struct sync_state before = t->round;
    const bool due = source->steps >= t->sync.every; /* the exchange comes before the next step */
    const int64_t counted = mine == PART_LATE && due ? live_late_samples(before.local_samples, age) : 0;
    t->round = round_of_new(source);
    t->round.rank = before.rank;
    t->round.world_size = before.world_size;
    t->round.local_samples = t->late_samples = counted;
    if (mine == PART_LATE)
        change_put_back(t, due ? 1.0f : ldexpf(1.0f, (int)-age));
    else
        begin_at_shared(t);
    if (mine == PART_DROPPED)
        log_warn("late_change_dropped", "rank=%d rounds=%lld samples=%lld why=\"the change is too old\"",
                 t->formation.rank, (long long)age, (long long)before.local_samples);
    else
        log_info("came_back", "rank=%d rounds=%lld samples=%lld counted=%lld", t->formation.rank,
                 (long long)age, (long long)(mine == PART_LATE ? before.local_samples : 0),
                 (long long)counted);
}

void live_round_take_place(struct sync_state *round, const struct sync_state *source)
{
    round->steps = source->steps;
    round->turn = source->turn;
    round->turn_steps = source->turn_steps;
}

/* ---- rounds of a given time */

bool live_round_timed(const struct trainer *t)
{
    return t->engine.share.given || (t->sync.every_ms > 0 && !t->round.steps);
}

void live_round_cut_short(struct trainer *t)
{
    struct sync_state *round = &t->round;
    if (!live_has_rounds(t) || t->round_timed == (t->sync.every_ms > 0))
        return;
    if (t->round_timed)
        share_leave(&t->engine);
    t->round_counted = round->least = 0;
    round->steps = round->turn_steps = round->global_samples > 0 ? t->sync.every : 0;
}

/* Whether the rank has taken samples of an open round, and has the place at which the round began. */
static bool claim_is_dealt(const struct trainer *t, const struct live_claim *c,
                           const struct live_claim *newest)
{
    return part_of(t, c, newest) == PART_KEEPS && c->samples == newest->samples && c->dealt;
}

/* The row of samples as ranks that are in the round have it; else that of the newest rank. A rank that is not in the round
 * takes the row and the place. A group may have ended while it formed: then some of its ranks have counted already what
 * all had taken, and others have not. */
static enum err_code timed_round_share(struct trainer *t, const struct live_claim *all, int source,
                                       const struct live_run *run, enum part mine, struct err *e)
{
    struct engine *n = &t->engine;
    const int rank = t->formation.rank, world = t->formation.world_size;
    int dealer = 0;
    while (dealer < world && !claim_is_dealt(t, &all[dealer], &all[source]))
        dealer++;
    dealer = dealer < world ? dealer : source;
    struct {
        bool given; /* even if the run has resumed, and a snapshot had the row */
        int64_t fewest;
        struct deal row;
    } head = {n->share.given || n->deal.count > 0, n->share.given ? n->fewest_updates : n->optim->steps,
              n->deal};
    if (coll_broadcast(t->formation.group, &head, sizeof(head), dealer, e))
        return e->code;
    struct deal_piece *pieces = xcalloc(head.row.count + 1, sizeof(*pieces));
    for (size_t i = 0; rank == dealer && i < head.row.count; i++)
        pieces[i] = n->deal.pieces[i];
    head.row.pieces = pieces;
    enum err_code code =
        coll_broadcast(t->formation.group, pieces, (head.row.count + 1) * sizeof(*pieces), dealer, e);
    if (!code && !claim_is_dealt(t, &all[rank], &all[source])) {
        int64_t updates = n->optim->steps;
        struct snapshot_place place = run->place;
        place.dealt = false;
        state_take_place(n, &place);
        if (mine != PART_NEW) /* it keeps its moments */
            n->optim->steps = updates;
        if (head.given)
            share_take_row(n, &head.row, head.fewest);
    }
    free(pieces);
    t->served = run->served;
    t->brought = run->round.shared ? run->round_counted : 0;
    return code;
}

enum err_code live_round_share(struct trainer *t, const struct live_claim *all, int source,
                               const struct live_run *run, struct err *e)
{
    struct engine *n = &t->engine;
    const struct formation *f = &t->formation;
    struct sync_state *round = &t->round;
    enum part mine = part_of(t, &all[f->rank], &all[source]);
    const bool late = mine == PART_LATE || mine == PART_COUNTED || mine == PART_DROPPED;
    const bool moved = round->rank != f->rank || round->world_size != f->world_size;
    const bool timed = run->round_timed, ends = timed != (t->sync.every_ms > 0);
    t->in_round = true;
    t->round_timed = timed;
    /* It was alone, and its parameters were the model. */
    if ((!run->round.shared && f->rank == source) || mine == PART_STARTS)
        sync_start(f->sync);
    if (mine == PART_LATE)
        change_take_out(t);
    if (arrays_share(t, all, source, mine, e))
        return e->code;
    if (late)
        come_back(t, mine, all[source].exchanges - all[f->rank].exchanges, &run->round);
    if (mine == PART_BEHIND) {
        sync_take_exchange(f->sync, round);
        sync_save(f->sync, round);
    }
    if (mine == PART_NEW) {
        begin_at_shared(t);
        *round = round_of_new(&run->round);
    }
    /* A round that ends here ends at the step of the newest rank. */
    if (!timed && (mine == PART_NEW || late || moved || ends)) {
        state_take_place(n, &run->place);
        live_round_take_place(round, &run->round);
    }
    round->apart = true;
    round->least = run->round.turn ? run->round.turn_steps : run->round.steps;
    if (!run->round.shared)
        round->local_samples = round->global_samples = 0;
    memcpy(t->made_in, run->made_in, sizeof(t->made_in));
    t->brought = run->round.shared ? run->round.global_samples : 0;
    if (timed && timed_round_share(t, all, source, run, mine, e))
        return e->code;
    t->behind = run->place.step > n->step ? run->place.step - n->step : 0;
    n->whole = true;
    return ERR_OK;
}
