/* Survivors: workers of a train job that go on in the job's next generation with the state that they have in
 * memory.
 *
 * The happy path: a rank of a running generation dies. The other ranks lose their group, but they stay: they
 * have said so in Join or Watch. The generation fails; they keep their tokens and their slots, and their Watch
 * says that they are to wait. Placement forms the next generation at once: each survivor gets the rank that has
 * its local rank on its node, and new processes (replacements) get the other ranks. All join, and the survivor
 * with the newest state broadcasts it. So no file is read, no completed step is lost, and nothing is charged.
 *
 * With `shard: optimizer` a lost rank takes its moments with it. Then no survivor has a state when it joins, and all ranks, in the same
 * processes, begin at the newest snapshot (rendezvous.c, choose_source). This does not count as a restart either.
 *
 * Failure modes: if the job cannot be placed as soon as its old workers are dead, its survivors are stopped, since
 * they must not hold slots that others wait for (placement.c). The same happens to a survivor that gets no rank
 * (generation_form.c), or whose job is stopped (generation_end.c). A survivor may be in a computation that takes
 * longer than join_timeout; the generation waits for it while its node says that it uses the CPU, at most for stall_timeout
 * without a line from it (stall.c). When no survivor goes on, the failure counts
 * as a restart after all, and the job continues from its last snapshot. A survivor may turn out to be dead: then
 * the next generation fails too. max_replacements bounds how often survivors may go on in a day. */
#include "daemon/coordinator/core/placement/survivors.h"

#include "base/mem.h"
#include "base/worker/exits.h"

#define DAY_MS (INT64_C(24) * 3600 * 1000)
/* Generations in a row that survivors may continue although none of them has reported a new step. Beyond that the
 * failure is probably the job's own, and an ordinary restart, which waits before it starts, is the better answer. */
#define IN_VAIN_MOST 3

static bool survivor_lost_gpu(const struct spawn *s)
{
    for (size_t i = 0; i < s->node->gpu_count; i++)
        if (s->node->gpus[i].lost && names_contain(s->r.gpu_uuids, s->node->gpus[i].uuid))
            return true;
    return false;
}

/* It has not joined its generation so far, because its program has not come to a point where it learns of that. A node
 * that is not connected says nothing; it either comes back or is lost soon. */
static bool survivor_computes(const struct generation *g, const struct spawn *s)
{
    return s->joined_as != s->rank && s->r.first_generation < g->r.number && s->stays && !s->r.revoked &&
           spawn_reachable(s) && !s->idle_since && !s->proc_state;
}

bool survivors_still_compute(const struct generation *g)
{
    bool any = false;

    for (int i = 0; i < g->r.world_size; i++) {
        const struct spawn *s = g->ranks[i].spawn;
        if (s->joined_as == s->rank)
            continue;
        if (!survivor_computes(g, s))
            return false;
        any = true;
    }
    return any;
}

bool survivors_include(const struct generation *g, const struct spawn *s, const struct spawn *culprit,
                       bool late)
{
    bool rank_0 = s == g->ranks[0].spawn;

    if (g->job->spec.kind != JOB_TRAIN || !(s->stays || s->stays_unsaid) || s->r.revoked ||
        !spawn_reachable(s))
        return false;
    if (g->job->r.scratch_generation >= g->r.number)
        return false; /* the user wants the job to begin anew, without the state of this generation */
    /* It hangs, or its device is gone: it could not take part in the next generation. */
    if (s == culprit || survivor_lost_gpu(s))
        return false;
    /* A generation that did not form waited for those that have not joined, or for rank 0's bootstrap id. */
    if (late && !survivor_computes(g, s) &&
        (s->joined_as != s->rank || (g->r.state == GENERATION_READY && rank_0)))
        return false;
    /* A new process of a generation that has not run has no state. A new process starts as fast as this
     * one could join again. */
    return g->r.state == GENERATION_RUNNING || s->r.first_generation < g->r.number;
}

bool survivors_bring_state(const struct generation *g)
{
    for (int i = 0; g->r.state != GENERATION_RUNNING && i < g->r.world_size; i++)
        if (survivors_include(g, g->ranks[i].spawn, NULL, false))
            return true;
    return false;
}

bool survivors_wait(const struct job *job)
{
    for (size_t i = 0; i < job->spawn_count; i++)
        if (spawn_is_between(job->spawns[i]) && !spawn_is_late(job->spawns[i]))
            return true;
    return false;
}

/* The records tell: a failure that survivors outlived is followed by a generation with a member from before. */
static bool generation_was_continued(const struct generation *g, const struct generation *next)
{
    for (int i = 0; g->r.state == GENERATION_FAILED && i < next->r.world_size; i++)
        if (next->ranks[i].spawn->r.first_generation <= g->r.number)
            return true;
    return false;
}

int64_t survivors_count_replacements(const struct core *core, const struct job *job)
{
    int64_t count = 0;

    for (size_t i = 1; i < job->generation_count; i++)
        count += core->now.wall_ms - job->generations[i - 1]->r.closed_ms < DAY_MS &&
                 generation_was_continued(job->generations[i - 1], job->generations[i]);
    return count;
}

/* The step that generation i must pass to make progress. Survivors without a state begin at a snapshot again, and then repeat steps
 * that failed generations had already made. Such steps are no progress. With a state they can repeat one step of the generation before. */
static int64_t steps_before(const struct job *job, size_t i)
{
    const struct generation_record *g = &job->generations[i]->r;
    int64_t most = g->source_rank >= 0 ? g->source_step : 0;

    for (size_t left = core_generation_is_live(g) ? 1 : i; i-- > 0 && left-- > 0;) {
        const struct generation_record *before = &job->generations[i]->r;
        if (before->state != GENERATION_FAILED || job->r.scratch_generation >= before->number)
            break;
        if (before->has_step && before->last_step > most)
            most = before->last_step;
    }
    return most;
}

bool survivors_may_go_on(const struct job *job, const struct spawn *culprit)
{
    int in_vain = 0;
    int64_t reached = 0; /* steps that the next generation began with: not each one is reported */

    /* It could go on, and has waited in vain for word of a lost peer. So have the others, who end now, too: nobody is
     * lost, but the group is broken. */
    if (culprit && culprit->stays && culprit->r.exit_known && !culprit->r.signal &&
        culprit->r.code == EXIT_PEER_LOST)
        return false;
    for (size_t i = job->generation_count; i-- > 0; in_vain++) {
        const struct generation_record *g = &job->generations[i]->r;
        int64_t from = steps_before(job, i);
        if (g->state == GENERATION_CLOSED || (g->has_step && g->last_step > from) || reached > from)
            break;
        reached = from;
    }
    return in_vain <= IN_VAIN_MOST;
}

struct spawn *survivors_find(const struct job *job, const struct node *node, int local_rank, int gpus_each)
{
    for (size_t i = 0; i < node->spawn_count; i++) {
        struct spawn *s = node->spawns[i];
        /* its environment has its local rank, and its device is fixed as well */
        if (s->job == job && spawn_is_between(s) && !survivor_lost_gpu(s) &&
            s->r.first_local_rank == local_rank && strv_len(s->r.gpu_uuids) == (size_t)gpus_each)
            return s;
    }
    return NULL;
}

int survivors_on_node(const struct job *job, const struct node *node, int procs, int gpus_each)
{
    int count = 0;

    if (!survivors_wait(job))
        return 0;
    for (int local = 0; local < procs; local++)
        count += survivors_find(job, node, local, gpus_each) != NULL;
    return count;
}
