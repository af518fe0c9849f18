#include "daemon/coordinator/core/failure/node_fault.h"

#include <string.h>

#include "base/worker/exits.h"
#include "daemon/coordinator/core/placement/capacity.h"
#include "daemon/coordinator/core/placement/survivors.h"

/* Exit codes of a trainer that a restart would repeat. */
static bool is_final_code(int code)
{
    return code == EXIT_NO_RESTART || code == EXIT_USAGE;
}

static bool is_final_error(const struct spawn *s, const struct spawn_fact *fact)
{
    if (!fact || fact->lost || fact->signal)
        return false;
    if (fact->not_started) /* no such directory, no such command */
        return !fact->node_trouble && !fact->no_account && !fact->port_busy;
    return s->job->spec.kind == JOB_TRAIN && is_final_code(fact->code);
}

/* Whether ranks from earlier generations go on on other nodes: the job itself is sound. */
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

static bool generation_has_node(const struct generation *g, const char *node)
{
    for (int i = 0; i < g->r.world_size; i++)
        if (!strcmp(g->ranks[i].r.node, node))
            return true;
    return false;
}

static bool generation_has_run(const struct generation *g)
{
    const struct spawn *first = g->ranks[0].spawn;

    return g->job->spec.kind == JOB_TRAIN ? g->r.has_key : first && first->r.pid;
}

/* Whether this node's fault ended the generation, by what its records say. */
static bool ended_by_fault_of(const struct generation *g, const char *node)
{
    const struct spawn *s = g->r.failed_spawn ? job_find_spawn(g->job, g->r.failed_spawn) : NULL;

    return s && g->r.state == GENERATION_FAILED && !g->r.charged && !g->r.error && s->r.exit_known &&
           !strcmp(s->r.node, node) && !s->r.signal && (is_final_code(s->r.code) || !s->r.pid);
}

/* Whether the job has run elsewhere without this node. */
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
    /* If ranks go on, the job is sound, and may wait for a node. If not, all its nodes may fail one after the other, so
     * the job fails when too few are left. */
    const int64_t left = count_other_nodes(core, s->job, s->r.node);
    if (others_go_on(g, s) || was_left_out(g, s->r.node))
        return left > 0;
    return has_run_without(g, s->r.node) && left >= s->job->spec.nodes_min;
}
