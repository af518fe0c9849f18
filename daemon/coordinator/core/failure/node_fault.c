#include "daemon/coordinator/core/failure/node_fault.h"

#include <string.h>

#include "base/worker/exits.h"
#include "daemon/coordinator/core/placement/capacity.h"
#include "daemon/coordinator/core/placement/survivors.h"

/* Generations in a row that faults of nodes may end while no rank goes on. Beyond that the job itself may be at fault. */
#define TRIES 5

static bool is_final_error(const struct spawn *s, const struct spawn_fact *fact)
{
    if (!fact || fact->lost || fact->signal || fact->stopped)
        return false;
    if (fact->not_started) /* no such directory, no such command */
        return !fact->node_trouble && !fact->no_account && !fact->port_busy;
    if (s->job->spec.kind != JOB_TRAIN)
        return false;
    /* A trainer that does not understand its arguments or the job file, because it is an older one, does not join. */
    return fact->code == EXIT_NO_RESTART || (fact->code == EXIT_USAGE && s->joined_as != s->rank);
}

/* Whether ranks on other nodes continue from earlier generations. This shows that the job itself is sound. */
static bool others_go_on(const struct generation *g, const struct spawn *s)
{
    for (int i = 0; i < g->r.world_size; i++) {
        const struct spawn *other = g->ranks[i].spawn;
        if (strcmp(other->r.node, s->r.node) != 0 && other->r.first_generation < g->r.number &&
            survivors_include(g, other, s, false))
            return true;
    }
    return false;
}

static bool generation_has_run(const struct generation *g)
{
    const struct spawn *first = g->ranks[0].spawn;

    return g->job->spec.kind == JOB_TRAIN ? g->r.has_key : first && first->r.pid;
}

/* Whether this node's fault ended the generation, by what its records say (generation_end.c). */
static bool ended_by_fault_of(const struct generation *g, const char *node)
{
    const struct spawn *s = g->r.failed_spawn ? job_find_spawn(g->job, g->r.failed_spawn) : NULL;

    return s && g->r.state == GENERATION_CLOSED && !strcmp(s->r.node, node);
}

/* Whether an earlier generation of the job has run, and had no rank on this node. */
static bool has_run_without(const struct generation *g, const char *node)
{
    for (size_t i = 0; i < g->job->generation_count; i++) {
        const struct generation *before = g->job->generations[i];
        if (before->r.number < g->r.number && generation_has_run(before) &&
            !generation_has_node(before, node))
            return true;
    }
    return false;
}

static bool was_left_out(const struct generation *g, const char *node)
{
    for (size_t i = 0; i < g->job->generation_count; i++)
        if (ended_by_fault_of(g->job->generations[i], node))
            return true;
    return false;
}

/* Counts the generations before this one that faults of nodes have ended in a row. */
static bool tries_are_used(const struct generation *g)
{
    const struct job *job = g->job;
    int count = 0;

    for (size_t i = job->generation_count; i-- > 0;) {
        const struct generation_record *before = &job->generations[i]->r;
        if (before->number == g->r.number)
            continue;
        if (before->state != GENERATION_CLOSED || !before->failed_spawn)
            break;
        count++;
    }
    return count >= TRIES;
}

static int64_t count_other_nodes(const struct core *core, const struct job *job, const char *node)
{
    int64_t count = 0;
    int gpus_each;

    for (size_t i = 0; i < core->node_count; i++)
        capacity_count(core->nodes[i]); /* there may have been no placement pass yet */
    const enum slot_kind kind = capacity_slot_kind(core, job);
    for (size_t i = 0; i < core->node_count; i++)
        count += strcmp(core->nodes[i]->r.name, node) != 0 && capacity_expected(core->nodes[i]) &&
                 capacity_procs(job, core->nodes[i], kind, &gpus_each) > 0;
    return count;
}

bool node_fault_ended(const struct core *core, const struct spawn *s, const struct spawn_fact *fact)
{
    const struct generation *g = s->rank->generation;

    /* A worker that has made a step found its data and its program there. */
    if (!is_final_error(s, fact) || s->r.first_generation != g->r.number || s->rank->r.state == RANK_TRAINING)
        return false;
    /* If other ranks continue, the job is sound and may wait for a node. If none does, the job may fail on each node, one after
     * the other, and on each of them again and again. So it fails when too few nodes are left, or after TRIES tries. */
    const int64_t left = count_other_nodes(core, s->job, s->r.node);
    if (others_go_on(g, s))
        return left > 0;
    if (tries_are_used(g))
        return false;
    return was_left_out(g, s->r.node) ? left > 0
                                      : has_run_without(g, s->r.node) && left >= s->job->spec.nodes_min;
}
