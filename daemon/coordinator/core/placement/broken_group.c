/* The connections between the ranks of a train job are lost, but no rank is lost: a relay died, or the network between nodes
 * failed for a moment.
 *
 * The happy path: each rank's collective fails, and the rank reports this in Watch. When all members have reported it, the
 * generation fails without a rank that is the cause, and all members are survivors (survivors.c). They keep their processes
 * and join the next generation, where they connect again: directly, through another relay, or through the same relay when
 * it is back. The answer to Join names the relay that is available then (service/relays.c).
 *
 * Failure modes:
 * - A rank that computes notices the loss only at its next collective. The others are told to wait for it, and ask again
 *   every few seconds.
 * - A rank that is dead or hangs reports nothing either. The others wait until its node reports it, or exit after a while
 *   (trainer/generations.c).
 * - If the next group also breaks before it has made a step, it counts as a generation without progress. After a few of
 *   these the failure is charged (survivors_may_go_on).
 * - If one of the members cannot stay, all members exit, and the failure is charged. */
#include "daemon/coordinator/core/placement/broken_group.h"

#include "daemon/coordinator/core/generation_end.h"
#include "daemon/coordinator/core/placement/survivors.h"

/* Whether the member is likely to report soon: as far as its node knows, its program is running. */
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
