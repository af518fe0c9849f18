#include "trainer/resume_parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "trainer/engine/state.h"
#include "trainer/round/round_stop.h"

/* Which part each rank takes, and who reads it. Every rank makes the same plan. */
struct parts_plan {
    int ranks, parts;
    bool *has; /* by rank, then by part: lies in the rank's snapshot.dir. All ranks of a node see the same */
    int *part, *reader; /* by rank */
    bool *whole;        /* by rank: takes the part as its own; else the moments alone */
    bool *done;         /* by rank: has its part */
    int dropped, missing, moved;
    struct snapshot_behind behind; /* of this rank's part */
};

static void plan_release(struct parts_plan *p)
{
    free(p->has);
    free(p->part);
    free(p->reader);
    free(p->whole);
    free(p->done);
}

/* The first rank that could read the part: the rank itself, or the lowest of all. -1: none. */
static int plan_reader(const struct parts_plan *p, int rank, int part)
{
    if (p->has[rank * p->parts + part])
        return rank;
    for (int r = 0; r < p->ranks; r++)
        if (p->has[r * p->parts + part])
            return r;
    return -1;
}

static enum err_code plan_look(struct trainer *t, const struct snapshot_place *place, struct parts_plan *p,
                               struct err *e)
{
    bool *mine = xcalloc((size_t)p->parts, sizeof(*mine));
    for (int part = 0; part < p->parts; part++)
        mine[part] = t->snapshot_dir && snapshot_part_exists(t->snapshot_dir, place, part);
    enum err_code code =
        coll_allgather(t->formation.group, mine, (size_t)p->parts * sizeof(*mine), p->has, e);
    free(mine);
    return code;
}

/* Nobody has the part. It must be somewhere if its node takes part, or if another part of its directory is here. */
static bool part_must_exist(const struct trainer *t, const struct parts_plan *p,
                            const struct snapshot_part *parts, int part)
{
    bool one_directory = true;
    for (int i = 0; i < p->parts; i++) {
        one_directory &= parts[i].home == parts[part].home;
        if (parts[i].home == parts[part].home && plan_reader(p, 0, i) >= 0)
            return true;
    }
    for (int r = 0; r < p->ranks; r++)
        if (t->formation.info.peers[r].node && !strcmp(t->formation.info.peers[r].node, parts[part].node))
            return true;
    return one_directory;
}

static enum err_code part_is_missing(const struct trainer *t, const struct snapshot_place *place,
                                     const struct snapshot_part *parts, int part, struct err *e)
{
    CLEANUP(free_text) char *dir = snapshot_parts_dir(t->snapshot_dir ? t->snapshot_dir : "", place);
    return err_set(
        e, ERR_NOT_FOUND,
        "%s/rank-%05d.safetensors of step %lld is missing: rank %d wrote it on '%.64s'; bring it back, or "
        "see in `ddpctl why` how the job can continue without it",
        dir, part, (long long)place->step, part, parts[part].node);
}

/* The part that a rank takes instead of one that nobody has. -1: there is none. */
static int plan_substitute(const struct parts_plan *p, int rank, int wanted)
{
    for (int i = 0; i < p->parts; i++) {
        int part = (wanted + i) % p->parts;
        if (plan_reader(p, rank, part) >= 0)
            return part;
    }
    return -1;
}

static enum err_code plan_make(const struct trainer *t, const struct snapshot_place *place,
                               const struct snapshot_part *parts, struct parts_plan *p, struct err *e)
{
    bool differ = !sync_votes_each_step(t->formation.sync);
    p->missing = p->moved = 0;
    for (int r = 0; r < p->ranks; r++) {
        int wanted = differ ? r % p->parts : 0;
        int part = plan_substitute(p, r, wanted);
        if (part < 0 || (part != wanted && part_must_exist(t, p, parts, wanted)))
            return part_is_missing(t, place, parts, wanted, e);
        p->missing += part != wanted;
        p->part[r] = part;
        p->whole[r] = differ && part == r;
        p->reader[r] = plan_reader(p, r, part);
        p->moved += p->reader[r] != r;
    }
    p->dropped = p->parts > p->ranks ? p->parts - p->ranks : 0;
    return ERR_OK;
}

static enum err_code plan_open(struct trainer *t, const struct snapshot_place *place,
                               const struct snapshot_part *parts, struct parts_plan *p, struct err *e)
{
    *p = (struct parts_plan){.ranks = t->formation.world_size, .parts = (int)place->parts};
    size_t ranks = (size_t)p->ranks;
    p->has = xcalloc(ranks * (size_t)p->parts, sizeof(*p->has));
    p->part = xcalloc(ranks, sizeof(*p->part));
    p->reader = xcalloc(ranks, sizeof(*p->reader));
    p->whole = xcalloc(ranks, sizeof(*p->whole));
    p->done = xcalloc(ranks, sizeof(*p->done));
    return plan_look(t, place, p, e) ? e->code : plan_make(t, place, parts, p, e);
}

/* ---- reading */

/* A copy that could not be read does not count, for any rank of its node: another node may have a good one. */
static void plan_strike(const struct trainer *t, struct parts_plan *p, int rank, int part)
{
    const struct link_peer *peers = t->formation.info.peers;
    for (int r = 0; r < p->ranks; r++)
        if (peers[r].node_rank == peers[rank].node_rank)
            p->has[r * p->parts + part] = false;
}

bool parts_copy_is_bad(const struct err *found)
{
    return found->code && found->code != ERR_FAILED_PRECONDITION && found->code != ERR_RESOURCE_EXHAUSTED;
}

/* What a part holds beside the state. */
struct part_numbers {
    int64_t samples;
    struct snapshot_behind behind;
};

static void take_part(struct trainer *t, const struct snapshot_place *place, struct parts_plan *p,
                      const float *state, const struct part_numbers *numbers, struct sync_state *round)
{
    bool whole = p->whole[t->formation.rank];
    p->behind = whole ? numbers->behind : (struct snapshot_behind){0};
    state_in_own(&t->engine, state, whole && place->own_params, whole);
    round->local_samples = whole ? numbers->samples : 0;
    round->rank = p->part[t->formation.rank];
    round->world_size = whole ? p->parts : 0;
}

/* One part, from the rank that has it to a rank that does not; all ranks pass it on. *found: the error of the rank that
 * reads it. */
static enum err_code move_part(struct trainer *t, const struct snapshot_place *place,
                               const struct snapshot_part *parts, struct parts_plan *p, int to, float *state,
                               struct sync_state *round, struct err *found, struct err *e)
{
    struct formation *f = &t->formation;
    int part = p->part[to], from = p->reader[to];
    struct part_numbers numbers = {0};
    *found = (struct err){0};
    if (f->rank == from && snapshot_part_read(t->snapshot_dir, &t->engine.layout, place, part, &parts[part],
                                              state, &numbers.samples, &numbers.behind, found))
        log_error("snapshot_unreadable", "why=%s", LOG_Q(found->msg));
    if (coll_broadcast(f->group, found, sizeof(*found), from, e))
        return e->code;
    if (found->code)
        return ERR_OK;
    if (coll_broadcast(f->group, &numbers, sizeof(numbers), from, e) ||
        coll_broadcast(f->group, state, state_bytes(&t->engine), from, e))
        return e->code;
    if (f->rank == to)
        take_part(t, place, p, state, &numbers, round);
    if (f->rank == from)
        log_info("part_moved", "part=%d from_rank=%d to_rank=%d", part, from, to);
    return ERR_OK;
}

/* Every rank reads the part that is in its own directory. all: the errors, by rank. */
static enum err_code read_own_part(struct trainer *t, const struct snapshot_place *place,
                                   const struct snapshot_part *parts, struct parts_plan *p, float *state,
                                   struct sync_state *round, struct err *all, struct err *e)
{
    int rank = t->formation.rank, part = p->part[rank];
    struct err found = {0};
    struct part_numbers numbers = {0};
    if (!p->done[rank] && p->reader[rank] == rank) {
        if (snapshot_part_read(t->snapshot_dir, &t->engine.layout, place, part, &parts[part], state,
                               &numbers.samples, &numbers.behind, &found))
            log_error("snapshot_unreadable", "why=%s", LOG_Q(found.msg));
        else
            take_part(t, place, p, state, &numbers, round);
    }
    return coll_allgather(t->formation.group, &found, sizeof(found), all, e);
}

/* Notes whether the rank has its part now. Returns an error that no other copy of the part can repair. */
static enum err_code note_read(const struct trainer *t, struct parts_plan *p, int rank,
                               const struct err *found, struct err *last, struct err *e)
{
    p->done[rank] = !found->code;
    if (!found->code)
        return ERR_OK;
    *last = *found;
    if (parts_copy_is_bad(found)) {
        plan_strike(t, p, p->reader[rank], p->part[rank]);
        return ERR_OK;
    }
    *e = *found;
    return e->code;
}

/* Reads by the present plan, each rank that has no part yet. all: room for one error a rank. */
static enum err_code read_by_plan(struct trainer *t, const struct snapshot_place *place,
                                  const struct snapshot_part *parts, struct parts_plan *p, float *state,
                                  struct sync_state *round, struct err *all, struct err *last, struct err *e)
{
    if (read_own_part(t, place, parts, p, state, round, all, e))
        return e->code;
    for (int r = 0; r < p->ranks; r++)
        if (!p->done[r] && p->reader[r] == r && note_read(t, p, r, &all[r], last, e))
            return e->code;
    for (int to = 0; to < p->ranks; to++) {
        struct err found;
        if (p->done[to] || p->reader[to] == to)
            continue;
        if (move_part(t, place, parts, p, to, state, round, &found, e) ||
            note_read(t, p, to, &found, last, e))
            return e->code;
    }
    return ERR_OK;
}

/* Until every rank has its part. Each plan but the last one strikes a copy, so there is an end. */
static enum err_code read_parts(struct trainer *t, const struct snapshot_place *place,
                                const struct snapshot_part *parts, struct parts_plan *p, float *state,
                                struct sync_state *round, struct err *e)
{
    struct err *all = xcalloc((size_t)p->ranks, sizeof(*all)), last = {0};
    enum err_code code = ERR_OK;
    for (bool left = true; left && !code;) {
        code = read_by_plan(t, place, parts, p, state, round, all, &last, e);
        left = false;
        for (int r = 0; r < p->ranks; r++)
            left |= !p->done[r];
        if (!code && left && plan_make(t, place, parts, p, e)) {
            *e = last; /* which says more than that there is no other copy */
            code = e->code;
        }
    }
    free(all);
    return code;
}

/* ---- ranks that were stopped at different steps of a round */

/* Steps of the present round, or of the present fragment's round, at the snapshot's place. */
static int64_t steps_of_round(const struct snapshot_place *place)
{
    return place->turn ? place->turn_steps : place->round_steps;
}

/* Whether the rank reaches the snapshot's place if it makes the steps by which it is behind. False if a step takes other
 * samples now. Also false for rounds of a given time, and for `sync: auto`, which may choose all-reduce: there all ranks
 * begin at the same place. */
static bool own_place_fits(struct trainer *t, const struct snapshot_place *place,
                           const struct snapshot_behind *behind, struct engine_ahead *ahead)
{
    struct engine *n = &t->engine;
    const struct cursor newest = n->cursor;
    if (behind->steps < 1 || behind->steps >= steps_of_round(place) || t->spec->sync.type == SYNC_AUTO ||
        t->sync.every_ms)
        return false;
    if (place->turn && t->spec->sync.type != SYNC_DILOCO) /* a fragment's round is not one of `average` */
        return false;
    if (place->step - behind->steps <
        t->sync.warm) /* `warm` is longer now: ranks make those steps together */
        return false;
    struct snapshot_place own = *place;
    own.dealt = false; /* that has been taken over already */
    own.step -= behind->steps;
    own.updates -= behind->steps;
    own.epoch = behind->epoch;
    own.position = behind->position;
    own.samples = behind->samples;
    state_take_place(n, &own);
    engine_look_ahead(n, behind->steps, ahead);
    if (ahead->cursor.epoch == newest.epoch && ahead->cursor.position == newest.position &&
        own.samples + ahead->global == place->samples)
        return true;
    own = *place;
    own.dealt = false;
    state_take_place(n, &own);
    return false;
}

/* A rank that was stopped before the newest one goes on at its own step. If its place does not fit, it keeps its parameters
 * and goes on at the newest rank's step. */
static void take_own_place(struct trainer *t, const struct snapshot_place *place,
                           struct snapshot_behind *behind, struct engine_ahead *ahead,
                           struct sync_state *round)
{
    if (!own_place_fits(t, place, behind, ahead)) {
        if (behind->steps) /* their samples do not count for this rank any more */
            log_warn("steps_left_out", "rank=%d step=%lld steps=%lld why=\"other samples, or another round\"",
                     t->formation.rank, (long long)(place->step - behind->steps), (long long)behind->steps);
        *behind = (struct snapshot_behind){0};
        *ahead = (struct engine_ahead){0};
    }
    round->steps -= behind->steps;
    round->turn_steps -= place->turn ? behind->steps : 0;
}

/* Ranks continue at different steps. Snapshots that wait for the end of the round are due for all. */
static void go_on_apart(struct trainer *t, const struct snapshot_place *place, struct sync_state *round)
{
    t->apart = true;
    t->snapshot_due = t->snapshot_dir && t->spec->snapshot.every.count > 0;
    round->least = steps_of_round(place);
}

/* Whether the snapshot is of a stop within a round: all ranks stopped before the evaluation that was due after their last
 * step. The only other snapshots within a round are those of the best evaluation, which was made. */
static bool was_stopped_within(const struct trainer *t, const struct snapshot_place *place)
{
    return round_stop_meets(t) && steps_of_round(place) > 0 && place->best_step != place->step;
}

/* The samples of an exchange are those of the ranks that are here, when all have come to the newest rank's step. */
static enum err_code load_round(struct trainer *t, const struct snapshot_place *place,
                                struct snapshot_behind *behind, struct sync_state *round, struct err *e)
{
    const struct formation *f = &t->formation;
    struct engine_ahead ahead;
    struct part_numbers mine, *all = xcalloc((size_t)f->world_size, sizeof(*all));
    take_own_place(t, place, behind, &ahead, round);
    mine = (struct part_numbers){round->local_samples + ahead.local, *behind};
    enum err_code code = coll_allgather(f->group, &mine, sizeof(mine), all, e);
    bool apart = false;
    for (int r = 0; !code && r < f->world_size; r++) {
        round->global_samples += all[r].samples;
        apart |= all[r].behind.steps > 0;
    }
    round->global_samples -= ahead.global;
    free(all);
    if (!code && apart)
        go_on_apart(t, place, round);
    if (!code)
        t->owed = apart || was_stopped_within(t, place);
    if (!code)
        sync_load(f->sync, round);
    return code;
}

static void say_changes(const struct trainer *t, const struct parts_plan *p)
{
    if (t->formation.rank == 0 && (p->dropped || p->missing || p->parts != p->ranks))
        log_warn(
            "ranks_changed",
            "parts=%d ranks=%d dropped=%d lost=%d what=\"each rank without a part starts from the shared model "
            "and another rank's moments\"",
            p->parts, p->ranks, p->dropped, p->missing);
}

enum err_code restore_parts(struct trainer *t, const struct snapshot_place *place,
                            const struct snapshot_part *parts, float *state, struct err *e)
{
    CLEANUP(plan_release) struct parts_plan p;
    struct sync_state round = {.steps = place->round_steps,
                               .turn = place->turn,
                               .turn_steps = place->turn_steps,
                               .fragments = place->fragments,
                               .uneven = place->own_params};
    if (plan_open(t, place, parts, &p, e) || read_parts(t, place, parts, &p, state, &round, e))
        return e->code;
    say_changes(t, &p);
    return sync_votes_each_step(t->formation.sync) ? ERR_OK : load_round(t, place, &p.behind, &round, e);
}
