/* A job runs with fewer ranks than it wants in three cases: survivors wait for replacements (survivors.c), a round closed without
 * late ranks (quorum.c), or an elastic job has fewer nodes than it may have. This is also the order in which they are
 * reported, because the first two are short. A job whose ranks all start again has no running members, and its state says so. */
#include "daemon/coordinator/core/placement/presence.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"
#include "base/text.h"
#include "daemon/coordinator/core/model.h"
#include "daemon/coordinator/core/placement/quorum.h"
#include "daemon/coordinator/core/placement/survivors.h"
#include "daemon/coordinator/core/placement/world_size.h"

#define GENERATIONS_BACK 8 /* in which a node that the job had is looked for */

/* Whether the rank's process was a member of an earlier generation, and is one now or will be in the next generation. */
static bool member_goes_on(const struct generation *g, int i)
{
    const struct spawn *s = g->ranks[i].spawn;

    return generation_open(g) ? s->r.first_generation < g->r.number : spawn_is_between(s);
}

static bool member_is_present(const struct generation *g, int i)
{
    enum rank_state state = g->ranks[i].r.state;

    return g->r.state == GENERATION_RUNNING || member_goes_on(g, i) ||
           (generation_open(g) && (state == RANK_JOINED || state == RANK_TRAINING));
}

static bool some_go_on(const struct generation *g)
{
    for (int i = 0; i < g->r.world_size; i++)
        if (member_goes_on(g, i))
            return true;
    return false;
}

static int ranks_of_largest_node(const struct generation *g)
{
    int most = 0;

    for (int i = 0; i < g->r.world_size; i++)
        if (g->ranks[i].r.local_rank >= most)
            most = g->ranks[i].r.local_rank + 1;
    return most;
}

static int64_t nodes_wanted(const struct job *job)
{
    int64_t nodes = job->spec.nodes_max;

    while (nodes > job->spec.nodes_min && !world_size_possible(&job->spec, nodes, nodes))
        nodes--;
    return nodes;
}

/* A node that the job used before, and no longer uses because the node is drained or gone. */
static const struct node *node_left(const struct core *core, const struct job *job)
{
    const struct generation *now = job_current(job);

    for (size_t back = 1; back < job->generation_count && back <= GENERATIONS_BACK; back++) {
        const struct generation *g = job->generations[job->generation_count - 1 - back];
        for (int i = 0; i < g->r.world_size; i++) {
            const struct node *node = core_find_node(core, g->ranks[i].r.node);
            if (node && (node->r.drain || node_gone(node)) && !generation_has_node(now, node->r.name))
                return node;
        }
    }
    return NULL;
}

/* "rank 2 on box3 is being replaced", "ranks 2, 3 on box3 join" */
static void say_absent_ranks(const struct job *job, const struct generation *g, struct buf *out)
{
    bool joins = generation_open(g) && job->handed.generation == g->r.number;
    int count = 0, first = -1;
    CLEANUP(buf_release) struct buf numbers = {0};

    for (int i = 0; i < g->r.world_size; i++) {
        if (member_is_present(g, i))
            continue;
        first = first < 0 ? i : first;
        if (++count <= 3)
            buf_printf(&numbers, "%s%d", count > 1 ? ", " : "", i);
    }
    if (!count)
        return;
    buf_printf(out, "rank%s %s%s on %s", text_plural(count), numbers.data, count > 3 ? " and others" : "",
               g->ranks[first].r.node);
    for (int i = first; i < g->r.world_size; i++)
        if (!member_is_present(g, i) && strcmp(g->ranks[i].r.node, g->ranks[first].r.node) != 0) {
            buf_puts(out, " and other nodes");
            break;
        }
    if (joins)
        buf_puts(out, count > 1 ? " join" : " joins");
    else
        buf_puts(out, count > 1 ? " are being replaced" : " is being replaced");
}

/* The last exchange that is known to be complete. While members arrive at one exchange, it is the exchange before. As long as
 * no member has arrived anywhere, it is the exchange for which the generation was formed. */
static int64_t last_exchange(const struct job *job)
{
    return job->round.exchange > job->round.formed_at ? job->round.exchange - 1 : job->round.formed_at;
}

/* Writes "rank 2 on box3 is late (2 rounds, 1m05s)", or "ranks 2, 3 on box3 and other nodes are late (2 rounds, 1m05s)". The
 * rounds and the time are those of the rank that has been late the longest. A coordinator that has restarted does not know
 * the number of rounds and leaves it out. */
static void say_late_ranks(const struct core *core, const struct job *job, struct buf *out)
{
    const char *node = NULL;
    bool several_nodes = false;
    int64_t rounds = 0, since = INT64_MAX;
    int count = 0;
    CLEANUP(buf_release) struct buf numbers = {0};

    for (size_t i = 0; i < job->spawn_count; i++) {
        const struct spawn *s = job->spawns[i];
        if (!spawn_is_late(s))
            continue;
        several_nodes |= node && strcmp(node, s->r.node) != 0;
        node = node ? node : s->r.node;
        if (++count <= 3)
            buf_printf(&numbers, "%s%d", count > 1 ? ", " : "", s->rank->r.rank);
        since = s->rank->generation->r.closed_ms < since ? s->rank->generation->r.closed_ms : since;
        if (s->late_from && last_exchange(job) - s->late_from + 1 > rounds)
            rounds = last_exchange(job) - s->late_from + 1;
    }
    if (!count)
        return;
    buf_printf(out, "rank%s %s%s on %s%s %s late (", text_plural(count), numbers.data,
               count > 3 ? " and others" : "", node, several_nodes ? " and other nodes" : "",
               count > 1 ? "are" : "is");
    if (rounds)
        buf_printf(out, "%s, ", text_counted(rounds, "round").text);
    buf_printf(out, "%s)", text_duration(core->now.wall_ms > since ? core->now.wall_ms - since : 0).text);
}

/* "box3 joins", "box3 is drained", "waits for 2 nodes" */
static void say_absent_nodes(const struct core *core, const struct job *job, int64_t count, struct buf *out)
{
    const struct node *left = node_left(core, job);

    if (job->handover.number && job->handover.joining)
        buf_puts(out, job->handover.why);
    else if (job->grow.nodes)
        buf_printf(out, "%s%s will join", job->grow.nodes[0], job->grow.nodes[1] ? " and others" : "");
    else if (left)
        buf_printf(out, "%s is %s", left->r.name,
                   left->r.drain                ? "drained"
                   : left->r.state == NODE_LOST ? "lost"
                                                : "gone");
    else if (quorum_lacks_ranks(job))
        buf_puts(out, "a rank that was late has ended");
    else
        buf_printf(out, "waits for %s", count == 1 ? "a node" : text_counted(count, "node").text);
}

void presence_find(const struct core *core, const struct job *job, struct presence *out)
{
    const struct generation *g = job_current(job);
    CLEANUP(buf_release) struct buf why = {0};

    *out = (struct presence){0};
    if (job_finished(job) || job->r.state == JOB_STOPPING || !g ||
        (g->r.state != GENERATION_RUNNING && !some_go_on(g)))
        return;
    int64_t nodes = nodes_wanted(job) - g->r.node_count;
    for (int i = 0; i < g->r.world_size; i++)
        out->present += member_is_present(g, i);
    out->wanted = job->spec.train.sync.quorum
                      ? nodes_wanted(job) * job->spec.procs_per_node
                      : g->r.world_size + (nodes > 0 ? nodes * ranks_of_largest_node(g) : 0);
    say_absent_ranks(job, g, &why);
    if (!why.len)
        say_late_ranks(core, job, &why);
    if (!why.len && out->present < out->wanted)
        say_absent_nodes(core, job, nodes, &why);
    snprintf(out->missing, sizeof(out->missing), "%s", why.len ? why.data : "");
}
