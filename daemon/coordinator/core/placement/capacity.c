#include "daemon/coordinator/core/placement/capacity.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "daemon/coordinator/core/model.h"
#include "daemon/coordinator/core/nodes/accounts.h"
#include "daemon/coordinator/core/nodes/inventory.h"
#include "daemon/coordinator/core/placement/gpu_choice.h"
#include "daemon/coordinator/core/placement/handover.h"
#include "daemon/coordinator/core/placement/left_out.h"
#include "daemon/coordinator/core/placement/survivors.h"
#include "daemon/coordinator/core/wish.h"

bool capacity_usable(const struct node *node)
{
    return node->r.state == NODE_ALIVE && node->session && node->synced && !node->rest_until;
}

bool capacity_expected(const struct node *node)
{
    return !node->r.drain &&
           (node->r.state == NODE_ALIVE || node->r.state == NODE_SUSPECT || node->r.state == NODE_JOINING);
}

bool capacity_can_train(const struct node *node)
{
    return !node->nccl || strcmp(node->nccl, "none") != 0;
}

bool capacity_lacks_nccl(const struct node *node)
{
    return node->nccl && strcmp(node->nccl, "missing") == 0;
}

static int gpu_share_limit(const struct node *node)
{
    return node->gpu_slots > 0 ? node->gpu_slots : 1;
}

void capacity_count(struct node *node)
{
    memset(&node->place, 0, sizeof(node->place));
    gpu_choice_clear(node);
    node->place.cpu_total = node->r.cpu_slots;
    for (size_t i = 0; i < node->gpu_count; i++)
        node->place.gpus += node->gpus[i].healthy;
    node->place.gpu_total = node->place.gpus * gpu_share_limit(node);
    for (size_t i = 0; i < node->spawn_count; i++) {
        node->place.cpu_busy += node->spawns[i]->r.cpu_slot >= 0;
        for (size_t k = 0; k < node->gpu_count; k++)
            for (char **uuid = node->spawns[i]->r.gpu_uuids; uuid && *uuid; uuid++)
                node->place.gpu_busy += node->gpus[k].healthy && !strcmp(*uuid, node->gpus[k].uuid);
    }
}

int capacity_procs(const struct job *job, const struct node *node, enum slot_kind kind, int *gpus_each)
{
    const struct job_spec *spec = &job->spec;
    int gpus = node->place.gpus, procs = 0;
    int given = spec->procs == JOB_PROCS_NUMBER ? (int)spec->procs_per_node : 0; /* 0: what the node has */

    if (node->procs)
        given = node->procs; /* each host of `ddpctl run` may say how many workers it has */
    *gpus_each = 0;
    if (spec->only_nodes && !names_contain(spec->only_nodes, node->r.name))
        return 0;
    if (accounts_problem(node, job) || left_out_problem(job, node))
        return 0;
    if (kind == SLOT_CPU) {
        procs = given ? given : node->place.cpu_total;
        return procs <= node->place.cpu_total ? procs : 0;
    }
    /* a command brings its own libraries; a trainer needs the node's */
    if (spec->kind == JOB_TRAIN && !capacity_can_train(node))
        return 0;
    if (spec->gpus_per_proc == JOB_GPUS_ALL) {
        procs = given ? given : 1;
        *gpus_each = gpus / procs;
    } else {
        *gpus_each = (int)spec->gpus_per_proc;
        procs = given ? given : (*gpus_each > 0 ? gpus / *gpus_each : 0);
    }
    /* A process needs different GPUs, so there must be as many. Several processes may share GPUs, so all
     * together need only so many places on GPUs. */
    bool fits = *gpus_each > 0 && *gpus_each <= gpus && procs * *gpus_each <= node->place.gpu_total;
    /* Several ranks that train on GPUs need NCCL, one rank does not. */
    if (spec->kind == JOB_TRAIN && capacity_lacks_nccl(node) && (procs > 1 || spec->nodes_min > 1))
        fits = false;
    return fits ? procs : 0;
}

int capacity_sick_gpus(const struct core *core)
{
    int count = 0;

    for (size_t i = 0; i < core->node_count; i++)
        for (size_t k = 0; capacity_expected(core->nodes[i]) && k < core->nodes[i]->gpu_count; k++)
            count += !core->nodes[i]->gpus[k].healthy;
    return count;
}

struct text capacity_text(int64_t count, enum slot_kind kind)
{
    return text_counted(count, kind == SLOT_GPU ? "GPU" : "slot");
}

int capacity_units(const struct placement_choice *c)
{
    return c->gpus_each ? c->procs * c->gpus_each : c->procs;
}

static int slots_total(const struct node *node, enum slot_kind kind)
{
    return kind == SLOT_GPU ? node->place.gpu_total : node->place.cpu_total;
}

static int slots_reserved(const struct node *node, enum slot_kind kind)
{
    return kind == SLOT_GPU ? node->place.gpu_reserved : node->place.cpu_reserved;
}

int capacity_available(const struct node *node, enum slot_kind kind)
{
    int busy = kind == SLOT_GPU ? node->place.gpu_busy - node->place.gpu_covered
                                : node->place.cpu_busy - node->place.cpu_covered;
    return slots_total(node, kind) - busy - slots_reserved(node, kind);
}

int capacity_yielding(const struct job *job, const struct node *node, enum slot_kind kind)
{
    int units = 0;

    for (size_t i = 0; i < node->spawn_count; i++) {
        const struct spawn *s = node->spawns[i];
        if (handover_yields(s->job, job))
            units += kind == SLOT_CPU ? s->r.cpu_slot >= 0 : (int)strv_len(s->r.gpu_uuids);
    }
    return units;
}

/* Returns the node's rank in the job's last generation, so that the same layout is used again if possible.
 * Nodes that had no part in it follow; the nodes of `ddpctl run` follow in the order in which they joined. */
int capacity_former_order(const struct job *job, const struct node *node)
{
    const struct generation *g = job_current(job);

    for (int i = 0; g && i < g->r.world_size; i++)
        if (!strcmp(g->ranks[i].r.node, node->r.name))
            return g->ranks[i].r.node_rank;
    return NO_FORMER_RANK + node->turn;
}

/* Best fit: former nodes first, then the fullest that fits, so that whole nodes stay free for jobs that need
 * them. */
static int compare_fit(const void *a, const void *b)
{
    const struct placement_choice *x = a, *y = b;

    if (x->order != y->order)
        return x->order < y->order ? -1 : 1;
    if (x->available != y->available)
        return x->available < y->available ? -1 : 1;
    return strcmp(x->node->r.name, y->node->r.name);
}

/* The order of nodes to reserve: nodes that were reserved before, then nodes of the last generation, then the
 * emptiest nodes, where the wait is shortest. */
static int compare_to_reserve(const void *a, const void *b)
{
    const struct placement_choice *x = a, *y = b;

    if (x->order != y->order)
        return x->order < y->order ? -1 : 1;
    if (x->available != y->available)
        return x->available > y->available ? -1 : 1;
    return strcmp(x->node->r.name, y->node->r.name);
}

/* How many of the job's own processes hold a slot of this GPU. Survivors are not counted: they keep their slots. */
static int gpu_holders_of_job(const struct job *job, const struct node *node, const char *uuid)
{
    int count = 0;

    for (size_t i = 0; i < node->spawn_count; i++)
        if (node->spawns[i]->job == job && !spawn_is_between(node->spawns[i]))
            for (char **held = node->spawns[i]->r.gpu_uuids; held && *held; held++)
                count += !strcmp(*held, uuid);
    return count;
}

/* Whether the free places lie on enough different GPUs. A process needs different GPUs, so one GPU serves
 * each process at most once; counting it that often at most is necessary and also sufficient. leaving: a job
 * whose slots count as free, or NULL. */
static bool enough_distinct_gpus(const struct job *leaving, const struct node *node,
                                 const struct placement_choice *c)
{
    int most = 0;

    if (c->gpus_each < 2 || gpu_share_limit(node) == 1)
        return true;
    for (size_t i = 0; i < node->gpu_count; i++) {
        int left = gpu_share_limit(node) - inventory_holders(node, node->gpus[i].uuid);
        if (leaving)
            left += gpu_holders_of_job(leaving, node, node->gpus[i].uuid);
        if (node->gpus[i].healthy && left > 0)
            most += left < c->procs ? left : c->procs;
    }
    return most >= capacity_units(c);
}

/* Slots that the job's own processes hold on the node. They are free when the job is placed, except those of survivors,
 * which keep theirs. */
static int slots_held_by(const struct job *job, const struct node *node, bool with_survivors)
{
    int held = 0;

    for (size_t i = 0; i < node->spawn_count; i++) {
        const struct spawn *s = node->spawns[i];
        if (s->job == job && (with_survivors || !spawn_is_between(s)))
            held += s->r.gpu_uuids ? (int)strv_len(s->r.gpu_uuids) : 1;
    }
    return held;
}

static bool node_is_there(const struct node *node, enum capacity_when when)
{
    if (when == CAPACITY_NOW)
        return capacity_usable(node);
    /* a node that rests will not be back soon */
    return capacity_expected(node) && !(when == CAPACITY_AGAIN && node->rest_until);
}

/* Whether the node has room for the job's new processes; survivors need none. */
static bool node_has_room(const struct job *job, const struct placement_choice *c, enum slot_kind kind,
                          enum capacity_when when)
{
    struct placement_choice fresh = *c;

    if (when == CAPACITY_LATER)
        return slots_total(c->node, kind) - slots_reserved(c->node, kind) >= capacity_units(c);
    fresh.procs -= c->kept;
    if (!wish_has_room(c->node, job))
        return false;
    const bool again = when == CAPACITY_AGAIN;
    const int own = again ? slots_held_by(job, c->node, false) : 0;
    return capacity_available(c->node, kind) + own >= capacity_units(&fresh) &&
           enough_distinct_gpus(again ? job : NULL, c->node, &fresh) &&
           gpu_choice_respects_reserved(job, c->node, fresh.procs, c->gpus_each,
                                        again); /* the costly test is last */
}

size_t capacity_candidates(const struct core *core, const struct job *job, enum slot_kind kind,
                           enum capacity_when when, struct placement_choice *out)
{
    bool later = when == CAPACITY_LATER;
    size_t count = 0;

    for (size_t i = 0; i < core->node_count; i++) {
        struct node *node = core->nodes[i];
        struct placement_choice c = {.node = node};
        if (names_contain(job->lost.avoid, node->r.name))
            continue; /* the user has resized the job, so that it continues without this node */
        if (!node_is_there(node, when))
            continue;
        c.procs = capacity_procs(job, node, kind, &c.gpus_each);
        if (!c.procs)
            continue;
        c.kept = later ? 0 : survivors_on_node(job, node, c.procs, c.gpus_each);
        c.available = capacity_available(node, kind);
        if (later)
            c.available += capacity_yielding(job, node, kind);
        c.order = capacity_former_order(job, node);
        if (names_contain(job->lost.found, node->r.name))
            c.order -= 1 << 23; /* the job's snapshots are there, and it cannot continue without them */
        /* a waiting job keeps to the nodes that it has picked, or it would wait for each in turn */
        if (later && names_contain(job->targets, node->r.name))
            c.order -= 1 << 21;
        if (later && !capacity_usable(node))
            c.order += 1 << 22; /* the node may never become usable: a busy one is the better bet */
        if (node_has_room(job, &c, kind, when))
            out[count++] = c;
    }
    if (count)
        qsort(out, count, sizeof(*out), later ? compare_to_reserve : compare_fit);
    return count;
}

bool capacity_feasible(const struct core *core, const struct job *job, enum slot_kind kind)
{
    int gpus_each;
    int64_t count = 0;

    for (size_t i = 0; i < core->node_count; i++)
        count +=
            capacity_expected(core->nodes[i]) && capacity_procs(job, core->nodes[i], kind, &gpus_each) > 0;
    return count >= job->spec.nodes_min;
}

enum slot_kind capacity_slot_kind(const struct core *core, const struct job *job)
{
    const struct job_spec *spec = &job->spec;

    if (spec->device == JOB_DEVICE_CUDA || spec->procs == JOB_PROCS_GPU)
        return SLOT_GPU;
    if (spec->device == JOB_DEVICE_CPU || spec->procs == JOB_PROCS_CPU)
        return SLOT_CPU;
    /* `auto`: on GPUs wherever the cluster could have enough of them, even if the job must wait for these */
    return capacity_feasible(core, job, SLOT_GPU) ? SLOT_GPU : SLOT_CPU;
}

void capacity_take(struct node *node, const struct placement_choice *c)
{
    struct placement_choice fresh = *c;

    fresh.procs -= c->kept; /* what survivors hold is busy already */
    if (c->gpus_each)
        node->place.gpu_busy += capacity_units(&fresh);
    else
        node->place.cpu_busy += capacity_units(&fresh);
}

/* A job that takes all GPUs of a node may need more GPUs than it holds: one that was sick when its generation
 * formed is healthy again, and other jobs hold it. */
bool capacity_fits_again(const struct job *job, const struct node *node, enum slot_kind kind)
{
    struct placement_choice c = {0};

    c.procs = capacity_procs(job, node, kind, &c.gpus_each);
    int busy = kind == SLOT_GPU ? node->place.gpu_busy : node->place.cpu_busy;
    return c.procs && slots_total(node, kind) - busy + slots_held_by(job, node, true) >= capacity_units(&c) &&
           enough_distinct_gpus(job, node, &c);
}

void capacity_reserve(const struct job *job, struct node *node, const struct placement_choice *c)
{
    /* What the job holds there counts as busy now, and the same slots are reserved for it: they must not be
     * subtracted twice. */
    int held = slots_held_by(job, node, true), covered = held < capacity_units(c) ? held : capacity_units(c);

    if (c->gpus_each) {
        node->place.gpu_reserved += capacity_units(c);
        node->place.gpu_covered += covered;
        gpu_choice_reserve(node, job, c->procs, c->gpus_each);
    } else {
        node->place.cpu_reserved += capacity_units(c);
        node->place.cpu_covered += covered;
    }
}
