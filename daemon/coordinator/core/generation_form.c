/* Forms a generation on the nodes that placement chose: ranks, a spawn with a token for each rank, slots or
 * GPUs, and a port for the master. Placement has made sure that all of it is there, so running out of slots
 * is a bug.
 *
 * A rank is given to the survivor of the last generation that had this local rank on this node (survivors.c). It
 * keeps its token, its slot, its GPUs and its logs. All other ranks get new spawns. A survivor that gets no rank
 * is stopped. */
#include "daemon/coordinator/core/generation_form.h"
#include "daemon/coordinator/core/generation_stop.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"
#include "daemon/coordinator/core/emit.h"
#include "daemon/coordinator/core/generation_end.h"
#include "daemon/coordinator/core/generation_thin.h"
#include "daemon/coordinator/core/internal_event.h"
#include "daemon/coordinator/core/model.h"
#include "daemon/coordinator/core/placement/capacity.h"
#include "daemon/coordinator/core/placement/gpu_choice.h"
#include "daemon/coordinator/core/placement/survivors.h"
#include "daemon/coordinator/core/snapshots/snapshot_faults.h"
#include "daemon/coordinator/core/snapshots/snapshots.h"

static bool cpu_slot_taken(const struct node *node, int slot)
{
    for (size_t i = 0; i < node->spawn_count; i++)
        if (node->spawns[i]->r.cpu_slot == slot)
            return true;
    return false;
}

static int lowest_free_cpu_slot(const struct node *node)
{
    int slot = 0;

    while (cpu_slot_taken(node, slot))
        slot++;
    BUG_ON(slot >= node->r.cpu_slots);
    return slot;
}

/* Whether the spawn was rank 0 of a generation with this port: it may hold the port until it ends, also as a
 * member of a later generation. */
static bool spawn_leased_port(const struct spawn *s, int port)
{
    for (size_t i = s->job->generation_count; i-- > 0;) {
        const struct generation *g = s->job->generations[i];
        if (g->r.number < s->r.first_generation)
            break; /* it did not exist then */
        if (g->ranks[0].spawn == s && g->r.master_port == port)
            return true;
    }
    return false;
}

static bool master_port_taken(const struct node *node, int port)
{
    for (size_t i = 0; i < node->spawn_count; i++)
        if (spawn_leased_port(node->spawns[i], port))
            return true;
    return false;
}

/* Goes round through the node's port range, so that a port is not used again soon: connections of the last
 * generation may still be closing. Returns 0 if the node offers no range. */
static int next_master_port(struct node *node)
{
    int span = node->r.port_last - node->r.port_first + 1, port = 0;

    if (node->r.port_first <= 0 || span <= 0)
        return 0;
    for (int tries = 0; tries < span; tries++) {
        port = node->r.port_first + node->next_port++ % span;
        node->next_port %= span;
        if (!master_port_taken(node, port))
            break;
    }
    return port;
}

static struct spawn *form_spawn(struct core *core, struct generation *g, const struct placement_choice *c,
                                int local_rank)
{
    struct spawn_record record = {
        .job = g->r.job,
        .spawn = g->job->r.next_spawn++,
        .first_generation = g->r.number,
        .first_local_rank = local_rank,
        .node = c->node->r.name,
        .cpu_slot = -1,
    };
    if (c->gpus_each)
        record.gpu_uuids = gpu_choice_take(g->job, c->node, c->gpus_each);
    else
        record.cpu_slot = lowest_free_cpu_slot(c->node);
    core->env.random(core->env.ctx, record.token, sizeof(record.token));
    digest_sha256(record.token_hash, record.token, sizeof(record.token));
    struct spawn *s = job_add_spawn(core, g->job, &record);
    strv_free(record.gpu_uuids);
    emit_spawn(core, s, CHANGE_SPAWN_INSERT);
    return s;
}

/* What it did in the last generation does not count in the new one: it may have been idle and silent because it
 * waited for the others, and it must reach its exchange again. But if it stays idle or silent, its node does not
 * report that again. */
static struct spawn *take_survivor(const struct core *core, struct spawn *s)
{
    s->idle_since = s->idle_since ? core->now.boot_ms : 0;
    s->silent_since = s->silent_since ? core->now.boot_ms : 0;
    s->arrived = 0;
    s->holds = false;
    s->node->wish_dirty = true;
    return s;
}

/* place: rank, node and local rank. */
static void give_rank(struct core *core, struct rank *r, struct spawn *s, const struct rank_record *place)
{
    struct rank_record record = *place;

    rank_give(r, s);
    record.job = r->generation->r.job;
    record.generation = r->generation->r.number;
    record.spawn = s->r.spawn;
    record.state = RANK_ASSIGNED;
    rank_record_copy(&r->r, &record);
    emit_rank(core, r, CHANGE_RANK_INSERT);
}

static void form_ranks(struct core *core, struct generation *g, const struct placement_choice *chosen,
                       size_t count)
{
    int rank = 0;

    for (size_t n = 0; n < count; n++)
        for (int local = 0; local < chosen[n].procs; local++, rank++) {
            struct spawn *old = survivors_find(g->job, chosen[n].node, local, chosen[n].gpus_each);
            give_rank(
                core, &g->ranks[rank],
                old ? take_survivor(core, old) : form_spawn(core, g, &chosen[n], local),
                &(struct rank_record){
                    .rank = rank, .node_rank = (int)n, .local_rank = local, .node = chosen[n].node->r.name});
        }
}

/* No later generation may have these spawns: they would hold their slots without being anybody's members. */
static void stop_left_out(struct core *core, const struct job *job, bool ready)
{
    struct generation *last = NULL;

    for (size_t i = 0; i < job->spawn_count; i++) {
        struct spawn *s = job->spawns[i];
        if (!spawn_is_between(s))
            continue;
        s->r.revoked = true;
        emit_spawn(core, s, CHANGE_SPAWN_PUT);
        last = s->rank->generation;
        /* One that waits for a hand-over hears of it in Watch and ends by itself. Else it is in a call to its peers. */
        generation_stop_spawns(core, last, ready ? CORE_STOP_SNAPSHOT : CORE_STOP_TERM);
    }
    if (last)
        raise_generation_ended(core, last, "the next generation has no rank for this worker");
}

/* The generation without its ranks. */
static struct generation *begin_generation(struct core *core, struct job *job, struct node *first,
                                           int node_count, int world_size)
{
    struct generation_record record = {
        .job = job->r.id,
        .number = job_newest_generation(job) + 1,
        .state = GENERATION_FORMING,
        .node_count = node_count,
        .world_size = world_size,
        /* on one node, loopback works whatever the node's address or firewall is */
        .master_addr = node_count == 1 ? (char *)"127.0.0.1" : first->r.address,
        .master_port = next_master_port(first),
        .source_rank = -1,
        .created_ms = core->now.wall_ms,
    };

    if (survivors_wait(job)) /* at least one of them gets a rank (placement.c) */
        generation_forgive(core, job);
    struct generation *g = job_add_generation(job, &record);
    g->born_ms = core->now.boot_ms;
    snapshots_give_path(core, g);
    g->join_at = core->now.boot_ms + job->spec.join_timeout_ms;
    job->pace.boot_ms = 0; /* the pace is measured anew, from this generation's first report */
    job->round.exchange = job->round.met_at = job->round.close_at = job->round.formed_at = 0;
    job->grow.asked = false;
    job->drained_ms = 0; /* the nodes that were reserved for it are its own again */
    core_wake(core, g->join_at);
    core->generations++;
    job->r.generation = record.number;
    emit_generation(core, g, CHANGE_GENERATION_INSERT);
    return g;
}

/* nodes: "box1 (4), box2 (4)" */
static void end_forming(struct core *core, struct generation *g, const char *nodes)
{
    struct job *job = g->job;

    raise_generation_formed(core, g);
    generation_thin(core, job);
    snapshot_faults_formed(job);
    emit_job(core, job, CHANGE_JOB_PUT);
    emit_event(core, job, "generation_formed", "generation %" PRId64 " on %s", g->r.number, nodes);
    emit_job_move(core, job, JOB_STARTING, nodes);
}

void generation_form(struct core *core, struct job *job, const struct placement_choice *chosen, size_t count)
{
    CLEANUP(buf_release) struct buf text = {0};
    int world_size = 0;

    for (size_t i = 0; i < count; i++) {
        world_size += chosen[i].procs;
        buf_printf(&text, "%s%s (%d)", i ? ", " : "", chosen[i].node->r.name, chosen[i].procs);
    }
    struct generation *g = begin_generation(core, job, chosen[0].node, (int)count, world_size);
    form_ranks(core, g, chosen, count);
    stop_left_out(core, job, job->handed.generation == g->r.number);
    end_forming(core, g, text.data);
}

/* Members of one node follow each other. Returns how many nodes there are. */
static int count_nodes(struct spawn *const *members, int count, struct buf *names)
{
    int nodes = 0;

    for (int i = 0, here = 1; i < count; i++, here++) {
        if (i + 1 < count && members[i + 1]->node == members[i]->node)
            continue;
        buf_printf(names, "%s%s (%d)", nodes++ ? ", " : "", members[i]->r.node, here);
        here = 0;
    }
    return nodes;
}

void generation_form_with(struct core *core, struct job *job, struct spawn *const *members, int count)
{
    CLEANUP(buf_release) struct buf names = {0};
    const int nodes = count_nodes(members, count, &names);
    struct generation *g = begin_generation(core, job, members[0]->node, nodes, count);

    for (int i = 0, node = 0; i < count; i++) {
        node += i && members[i]->node != members[i - 1]->node;
        give_rank(core, &g->ranks[i], take_survivor(core, members[i]),
                  &(struct rank_record){.rank = i,
                                        .node_rank = node,
                                        .local_rank = members[i]->r.first_local_rank,
                                        .node = members[i]->r.node});
    }
    end_forming(core, g, names.data);
}
