/* Trainers whose rounds close at a quorum, and checks for each round that closes. An exchange is one event here: it is made when
 * all members of the generation have arrived at it and none holds. */
#include <inttypes.h>

#include "tests/sim/sim.h"

#define ROUND_STEPS 3
#define HOLD_MS 10000

static bool stands_at(const struct proc *p, const struct proc *other)
{
    return p->job == other->job && p->generation == other->generation && p->state == PROC_RUNNING &&
           p->ready && !p->hung && !p->stuck && !p->leaving && !p->holds && !p->severed &&
           p->arrived == other->arrived;
}

/* The processes that stand at the exchange, and the newest of their steps. */
static int count_standing(const struct sim *sim, const struct proc *me, int64_t *step)
{
    int count = 0;

    *step = 0;
    for (int i = 0; i < sim->machine_count; i++)
        for (size_t k = 0; k < sim->machines[i].proc_count; k++) {
            const struct proc *p = sim->machines[i].procs[k];
            if (!stands_at(p, me))
                continue;
            count++;
            *step = p->step > *step ? p->step : *step;
        }
    return count;
}

/* An exchange brings all members to one step, however many of the round's steps each has made. */
static void make_exchange(struct sim *sim, struct machine *m, struct proc *p, int64_t step)
{
    p->worked_until = p->wrote_at = sim->now;
    p->exchanges = p->arrived;
    p->arrived = 0;
    p->round_steps = 0;
    p->step = step;
    if (!worker_serve_step(sim, m, p))
        worker_plan_step(sim, m, p);
}

/* The process begins the exchange, which takes place if it is the last one. */
static void begin_exchange(struct sim *sim, struct machine *m, struct proc *me)
{
    const struct proc at = *me;
    int64_t step;

    if (at.severed)
        worker_lose_group(sim, m, me);
    if (count_standing(sim, &at, &step) < at.world_size)
        return;
    for (int i = 0; i < sim->machine_count; i++)
        for (size_t k = 0; k < sim->machines[i].proc_count; k++)
            if (stands_at(sim->machines[i].procs[k], &at))
                make_exchange(sim, &sim->machines[i], sim->machines[i].procs[k], step);
}

static void hold_no_longer(struct sim *sim, struct machine *m, struct proc *p)
{
    p->holds = false;
    worker_send_watch(sim, m, p);
    begin_exchange(sim, m, p);
}

/* No answer arrived. */
static void hold_is_over(struct sim *sim, struct item *item)
{
    struct proc *p;
    struct machine *m = worker_machine(sim, item, &p);

    if (p && !p->leaving && p->ready && p->holds && item->d == p->exchanges)
        hold_no_longer(sim, m, p);
}

static void proc_arrives(struct sim *sim, struct item *item)
{
    struct proc *p;
    struct machine *m = worker_machine(sim, item, &p);

    if (!p || p->leaving || !p->ready || item->d != p->formed || p->arrived)
        return;
    p->arrived = p->exchanges + 1;
    p->holds = p->hold_from && p->arrived >= p->hold_from;
    worker_send_watch(sim, m, p);
    if (p->holds)
        worker_plan(sim, m, p, HOLD_MS, hold_is_over)->d = p->exchanges;
    else
        begin_exchange(sim, m, p);
}

bool quorum_round_ends(struct sim *sim, struct machine *m, struct proc *p)
{
    if (p->round_steps < ROUND_STEPS)
        return false;
    const int64_t after = sim_chance(sim, 0.05) ? sim_range(sim, 0, 20000) : sim_range(sim, 0, 300);
    p->worked_until = sim->now + after;
    worker_plan(sim, m, p, after, proc_arrives)->d = p->formed;
    return true;
}

void quorum_heard(struct sim *sim, struct machine *m, struct proc *p, int64_t hold_from)
{
    p->hold_from = hold_from;
    if (!hold_from && p->holds)
        hold_no_longer(sim, m, p);
}

/* It waits to come back. */
static void come_back(struct sim *sim, struct machine *m, struct proc *p)
{
    p->arrived = p->exchanges + 1;
    p->holds = true;
    worker_send_watch(sim, m, p);
}

/* It has made the rest of its round. */
static void late_round_ends(struct sim *sim, struct item *item)
{
    struct proc *p;
    struct machine *m = worker_machine(sim, item, &p);

    if (p && !p->leaving && p->late)
        come_back(sim, m, p);
}

void quorum_is_late(struct sim *sim, struct machine *m, struct proc *p, bool stands)
{
    p->late = true;
    if (stands)
        come_back(sim, m, p);
    else {
        const int64_t after = sim_range(sim, 1, 15000);
        p->worked_until = sim->now + after;
        worker_plan(sim, m, p, after, late_round_ends);
    }
}

/* Takes over what the members have made. */
void quorum_joined(const struct sim *sim, struct proc *p, bool live)
{
    if (!live)
        p->exchanges = p->round_steps = 0;
    for (int i = 0; live && i < sim->machine_count; i++)
        for (size_t k = 0; k < sim->machines[i].proc_count; k++) {
            const struct proc *other = sim->machines[i].procs[k];
            if (other->job != p->job || other->generation != p->generation || !other->live ||
                other->exchanges < p->exchanges)
                continue;
            if (other->exchanges > p->exchanges || other->round_steps > p->round_steps)
                p->round_steps = other->round_steps;
            p->exchanges = other->exchanges;
        }
}

/* ---- checks */

static const struct rank_record *next_rank(const struct sim *sim, const struct change *end, size_t *at,
                                           int64_t ahead)
{
    const struct records *r = &sim->durable.r;

    for (; *at < r->rank_count; (*at)++)
        if (r->ranks[*at].job == end->id && r->ranks[*at].generation == end->generation_number + ahead)
            return &r->ranks[(*at)++];
    return NULL;
}

/* Whether the first end left the spawn out because it was late. Then the changes also hold its death, or the end of the
 * next generation, which dropped the spawn. */
static bool left_out_first(const struct change *changes, size_t count, const struct change *end,
                           int64_t spawn)
{
    bool formed = false, revoked = false;

    for (size_t i = 0; i < count; i++) {
        const struct change *c = &changes[i];
        if (c->kind == CHANGE_GENERATION_INSERT && c->generation->job == end->id &&
            c->generation->number == end->generation_number + 1)
            formed = true;
        else if (c->kind == CHANGE_SPAWN_PUT && c->spawn->job == end->id && c->spawn->spawn == spawn &&
                 formed) {
            if (c->spawn->dead)
                return true;
            revoked = c->spawn->revoked;
        } else if (c->kind == CHANGE_GENERATION_MOVE && c->id == end->id && c->to == GENERATION_CLOSED &&
                   c->generation_number == end->generation_number + 1)
            return revoked;
    }
    return false;
}

/* Counts members of the ended generation that are not in the next one and were not told to end: they are late. */
static int count_left_out(const struct sim *sim, const struct change *changes, size_t count_changes,
                          const struct change *end)
{
    const struct rank_record *rank;
    int count = 0;

    for (size_t at = 0; (rank = next_rank(sim, end, &at, 0));) {
        const struct spawn_record *s = durable_spawn(&sim->durable, end->id, rank->spawn);
        const bool told =
            (s->revoked || s->dead) && !left_out_first(changes, count_changes, end, rank->spawn);
        count += !handover_is_member(sim, end->id, end->generation_number + 1, rank->spawn) && !told;
    }
    return count;
}

/* Counts members of the next generation that were not in the ended one, but in an earlier one: they have come back. */
static int count_returned(struct sim *sim, const struct change *end)
{
    const struct rank_record *rank;
    int count = 0;

    for (size_t at = 0; (rank = next_rank(sim, end, &at, 1));) {
        const struct spawn_record *s = durable_spawn(&sim->durable, end->id, rank->spawn);
        const struct proc *p = handover_find_proc(sim, end->id, rank->spawn);
        if (s->first_generation > end->generation_number ||
            handover_is_member(sim, end->id, end->generation_number, rank->spawn))
            continue;
        count++;
        if (p && p->state == PROC_RUNNING && !p->leaving && !p->hung && !p->holds)
            sim_fail(sim, "job %" PRId64 ": spawn %" PRId64 " is taken back in the midst of a step", end->id,
                     rank->spawn);
    }
    return count;
}

/* A member that goes on has arrived at an exchange, or has just made one and not reported it yet. */
static void check_who_goes_on(struct sim *sim, const struct change *end)
{
    const struct rank_record *rank;

    for (size_t at = 0; (rank = next_rank(sim, end, &at, 0));) {
        const struct proc *p = handover_find_proc(sim, end->id, rank->spawn);
        if (p && p->state == PROC_RUNNING && p->generation == end->generation_number && !p->leaving &&
            !p->hung && handover_is_member(sim, end->id, end->generation_number + 1, rank->spawn) &&
            !p->arrived && !p->exchanges)
            sim_fail(sim,
                     "job %" PRId64 " generation %" PRId64 " closes a round to which rank %d has not come",
                     end->id, end->generation_number, rank->rank);
    }
}

bool quorum_check(struct sim *sim, const struct change *changes, size_t count, const struct change *end)
{
    const struct sim_job *job = client_job(sim, end->id);
    const struct generation_record *next =
        durable_generation(&sim->durable, end->id, end->generation_number + 1);
    const int left_out = count_left_out(sim, changes, count, end), returned = count_returned(sim, end);

    if (!left_out && !returned)
        return false;
    if (left_out && next->world_size < job->quorum)
        sim_fail(sim,
                 "job %" PRId64 " generation %" PRId64
                 ": a round closes with %d ranks, and its quorum is %" PRId64,
                 end->id, end->generation_number, next->world_size, job->quorum);
    check_who_goes_on(sim, end);
    sim->rounds_closed++;
    return true;
}
