/* Snapshots of which each node has a part: what the members of a generation have offered, and what follows from it for the
 * snapshot from which a generation starts. */
#include <inttypes.h>
#include <string.h>

#include "base/mem.h"
#include "tests/sim/sim.h"

static struct told *told_of(struct sim *sim, int64_t job, int64_t spawn)
{
    for (size_t i = 0; i < sim->told_count; i++)
        if (sim->told[i].job == job && sim->told[i].spawn == spawn)
            return &sim->told[i];
    sim->told = array_grow(sim->told, sim->told_count, &sim->told_cap, sizeof(*sim->told));
    return &sim->told[sim->told_count++];
}

void parts_told(struct sim *sim, const struct request *join)
{
    struct told *t = told_of(sim, join->from.job, join->from.spawn);

    *t = (struct told){.machine = join->from.machine,
                       .job = join->from.job,
                       .spawn = join->from.spawn,
                       .generation = join->generation,
                       .count = join->offer_count};
    for (size_t i = 0; i < join->offer_count; i++) {
        t->offers[i].generation = join->offers[i].offer.job == t->job ? join->offers[i].offer.generation : -1;
        t->offers[i].step = join->offers[i].offer.step;
    }
}

const struct copy *parts_find(const struct sim *sim, int64_t job, int64_t generation, int64_t step)
{
    for (size_t i = sim->parted_count; i-- > 0;)
        if (sim->parted[i].job == job && sim->parted[i].generation == generation &&
            sim->parted[i].step == step)
            return &sim->parted[i];
    return NULL;
}

/* Records that are lost may have had another generation of this number, with other workers. */
static bool still_member(const struct sim *sim, const struct told *t)
{
    const struct records *r = &sim->durable.r;

    for (size_t i = r->rank_count; i-- > 0;)
        if (r->ranks[i].job == t->job && r->ranks[i].generation == t->generation &&
            r->ranks[i].spawn == t->spawn)
            return true;
    return false;
}

/* -1: no worker on the machine joined the generation. 0: none of them offered the snapshot. 1: one did. */
static int machine_offers(const struct sim *sim, int machine, int64_t job, int64_t of, int64_t generation,
                          int64_t step)
{
    int found = -1;

    for (size_t i = 0; i < sim->told_count; i++) {
        const struct told *t = &sim->told[i];
        if (t->machine != machine || t->job != job || t->generation != of || !still_member(sim, t))
            continue;
        found = found < 0 ? 0 : found;
        for (size_t k = 0; k < t->count; k++)
            if (t->offers[k].generation == generation && t->offers[k].step == step)
                found = 1;
    }
    return found;
}

/* A machine with workers in generation `of` wrote parts of the snapshot, and offered none. *any: some machine offers it. */
static bool machine_lacks_parts(const struct sim *sim, int64_t job, int64_t of, int64_t generation,
                                int64_t step, bool *any)
{
    const struct copy *parted = parts_find(sim, job, generation, step);

    *any = false;
    for (int i = 0; i < sim->machine_count; i++) {
        int offers = machine_offers(sim, i, job, of, generation, step);
        if (!offers && parted && parted->homes >> i & 1)
            return true;
        *any |= offers > 0;
    }
    return false;
}

/* The step of a committed snapshot that members of this generation offer, and of which no part is missing; -1: none. */
static int64_t whole_offer(const struct sim *sim, int64_t job, int64_t generation)
{
    const struct records *r = &sim->durable.r;
    const struct job_record *record = durable_job(&sim->durable, job);
    bool any;

    for (size_t i = 0; record && i < r->snapshot_count; i++)
        if (r->snapshots[i].job == job && r->snapshots[i].generation > record->scratch_generation &&
            !machine_lacks_parts(sim, job, generation, r->snapshots[i].generation, r->snapshots[i].step,
                                 &any) &&
            any)
            return r->snapshots[i].step;
    return -1;
}

void parts_check_wait(struct sim *sim, const struct change *c)
{
    const struct job_record *job = c->kind == CHANGE_JOB_MOVE ? durable_job(&sim->durable, c->id) : NULL;

    if (!job || c->to != JOB_RECOVERING || strncmp(c->text, "waits for its snapshots", 23) != 0)
        return;
    int64_t step = whole_offer(sim, job->id, job->generation);
    if (step >= 0)
        sim_fail(sim, "job %" PRId64 ": step %" PRId64 " is whole, but it %s", job->id, step, c->text);
}

void parts_check_start(struct sim *sim, const struct proc *p, const struct reply *reply)
{
    const struct copy *parted =
        reply->source_rank >= 0 ? parts_find(sim, p->job, reply->source_generation, reply->step) : NULL;
    const struct records *r = &sim->durable.r;
    bool any;

    if (!parted)
        return;
    if (machine_lacks_parts(sim, p->job, p->generation, parted->generation, parted->step, &any))
        sim_fail(sim,
                 "job %" PRId64 " generation %" PRId64 " starts from step %" PRId64
                 ", of which a node lacks parts",
                 p->job, p->generation, parted->step);
    for (size_t i = 0; p->rank == 0 && i < r->snapshot_count; i++)
        if (r->snapshots[i].job == p->job &&
            parts_find(sim, p->job, r->snapshots[i].generation, r->snapshots[i].step) &&
            (r->snapshots[i].generation > parted->generation ||
             (r->snapshots[i].generation == parted->generation && r->snapshots[i].step > parted->step))) {
            sim->gone_back++;
            return;
        }
}
