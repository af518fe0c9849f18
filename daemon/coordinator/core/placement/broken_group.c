/* The connections between the ranks of a train job are lost, but no rank is: their relay died, or the network between
 * their nodes failed for a moment.
 *
 * The happy path: each rank's collective fails, and the rank says so in Watch. When the last member has said it, the
 * generation fails without a culprit, and all members are survivors (survivors.c). They keep their processes and join the next
 * generation, in which they connect anew: directly, by another relay, or by the same one when it is back. Its Joins are
 * answered with the relay that is there then (service/relays.c).
 *
 * Failure modes: a rank that computes notices nothing until its next collective. The others are told to wait for it, and ask
 * again every few seconds whether they still are to. A rank that is dead or hangs says nothing either; then the others
 * wait until its node reports it, or end after a while (trainer/generations.c). If the next group breaks, too, before it has made a step, that
 * counts as a generation in vain, and after a few of them the failure is charged (survivors_may_go_on). Members of which one
 * cannot stay end by themselves, and that is charged as before. */
#include "daemon/coordinator/core/placement/broken_group.h"

#include "daemon/coordinator/core/generation_end.h"
#include "daemon/coordinator/core/placement/survivors.h"

/* What a member says is to be expected soon: its program runs, as far as its node knows. */
static bool member_computes(const struct spawn *s)
{
    return s->stays && !s->r.revoked && spawn_reachable(s) && !s->idle_since && !s->proc_state;
}

bool broken_group_waits(const struct spawn *s)
{
    const struct generation *g = s->rank->generation;

    if (!spawn_is_member(s) || g->r.state != GENERATION_RUNNING || s->broken_generation != g->r.number)
        return false;
    for (int i = 0; i < g->r.world_size; i++)
        if (g->ranks[i].spawn->broken_generation != g->r.number && !member_computes(g->ranks[i].spawn))
            return false;
    return true;
}

static bool all_members_said(const struct generation *g)
{
    for (int i = 0; i < g->r.world_size; i++) {
        const struct spawn *s = g->ranks[i].spawn;
        if (s->broken_generation != g->r.number || !survivors_include(g, s, NULL, false))
            return false;
    }
    return true;
}

void broken_group_review(struct core *core, struct job *job)
{
    struct generation *g = job_current(job);

    if (g->r.state == GENERATION_RUNNING && job->r.state == JOB_RUNNING && all_members_said(g))
        generation_fail(core, g,
                        &(struct failure_cause){
                            .charged = true,
                            .exit_code = 125,
                            .text = "the connections between the ranks were lost, and no rank has ended"});
}
