#include "daemon/coordinator/core/placement/capacity.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "daemon/coordinator/core/accounts.h"
#include "daemon/coordinator/core/inventory.h"
#include "daemon/coordinator/core/lost_snapshots.h"
#include "daemon/coordinator/core/model.h"
#include "daemon/coordinator/core/placement/compatibility.h"

bool room_usable(const struct node *node)
{
    return node->r.state == NODE_ALIVE && node->session && node->synced && !node->rest_until;
}

/* Not now, but as things stand soon again. */
bool room_expected(const struct node *node)
{
    return !node->r.drain &&
           (node->r.state == NODE_ALIVE || node->r.state == NODE_SUSPECT || node->r.state == NODE_JOINING);
}

static int slots_of(const struct node *node)
{
    return node->gpu_slots > 0 ? node->gpu_slots : 1;
}

void room_count(struct node *node)
{
    memset(&node->place, 0, sizeof(node->place));
    node->place.cpu_total = node->r.cpu_slots;
    for (size_t i = 0; i < node->gpu_count; i++)
        node->place.gpus += node->gpus[i].healthy;
    node->place.gpu_total = node->place.gpus * slots_of(node);
    for (size_t i = 0; i < node->spawn_count; i++) {
        node->place.cpu_busy += node->spawns[i]->r.cpu_slot >= 0;
        for (size_t k = 0; k < node->gpu_count; k++)
            for (char **uuid = node->spawns[i]->r.gpu_uuids; uuid && *uuid; uuid++)
                node->place.gpu_busy += node->gpus[k].healthy && !strcmp(*uuid, node->gpus[k].uuid);
    }
}

/* How many processes the job has on this node, and of how many GPUs each; 0: the node is none for it. */
int room_procs(const struct job *job, const struct node *node, enum room_mode mode, int *gpus_each)
{
    const struct job_spec *spec = &job->spec;
    int gpus = node->place.gpus, procs = 0;
    int given = spec->procs == JOB_PROCS_NUMBER ? (int)spec->procs_per_node : 0; /* 0: what the node has */

    if (node->procs)
        given = node->procs;
    *gpus_each = 0;
    if (accounts_problem(node, job))
        return 0;
    if (mode == ROOM_CPU) {
        procs = given ? given : node->place.cpu_total;
        return procs <= node->place.cpu_total ? procs : 0;
    }
    if (spec->kind == JOB_TRAIN && !alike_can_train(node))
        return 0;
    if (spec->gpus_per_proc == JOB_GPUS_ALL) {
        procs = given ? given : 1;
        *gpus_each = gpus / procs;
    } else {
        *gpus_each = (int)spec->gpus_per_proc;
        procs = given ? given : (*gpus_each > 0 ? gpus / *gpus_each : 0);
    }
    bool fits = *gpus_each > 0 && *gpus_each <= gpus && procs * *gpus_each <= node->place.gpu_total;
    return fits ? procs : 0;
}

int room_sick(const struct core *core)
{
    int count = 0;

    for (size_t i = 0; i < core->node_count; i++)
        for (size_t k = 0; room_expected(core->nodes[i]) && k < core->nodes[i]->gpu_count; k++)
            count += !core->nodes[i]->gpus[k].healthy;
    return count;
}

int room_units(const struct place_choice *c)
{
    return c->gpus_each ? c->procs * c->gpus_each : c->procs;
}

static int total(const struct node *node, enum room_mode mode)
{
    return mode == ROOM_GPU ? node->place.gpu_total : node->place.cpu_total;
}

static int kept(const struct node *node, enum room_mode mode)
{
    return mode == ROOM_GPU ? node->place.gpu_kept : node->place.cpu_kept;
}

int room_available(const struct node *node, enum room_mode mode)
{
    int busy = mode == ROOM_GPU ? node->place.gpu_busy - node->place.gpu_covered
                                : node->place.cpu_busy - node->place.cpu_covered;
    return total(node, mode) - busy - kept(node, mode);
}

/* Where the node stood in the job's last generation: a layout is repeated where it can be. Those of a run
 * that had no part in it follow by order of joining. */
int room_former_order(const struct job *job, const struct node *node)
{
    const struct generation *g = job_current(job);

    for (int i = 0; g && i < g->r.world_size; i++)
        if (!strcmp(g->ranks[i].r.node, node->r.name))
            return g->ranks[i].r.node_rank;
    return ROOM_NO_FORMER + node->turn;
}

static bool is_target(const struct job *job, const struct node *node)
{
    for (char **name = job->targets; name && *name; name++)
        if (!strcmp(*name, node->r.name))
            return true;
    return false;
}

/* Former nodes first, then the fullest that fits: whole nodes stay free for those who need them. */
static int by_fit(const void *a, const void *b)
{
    const struct place_choice *x = a, *y = b;

    if (x->order != y->order)
        return x->order < y->order ? -1 : 1;
    if (x->available != y->available)
        return x->available < y->available ? -1 : 1;
    return strcmp(x->node->r.name, y->node->r.name);
}

/* For what is to be kept: nodes picked before, then former ones, then the emptiest. */
static int by_hope(const void *a, const void *b)
{
    const struct place_choice *x = a, *y = b;

    if (x->order != y->order)
        return x->order < y->order ? -1 : 1;
    if (x->available != y->available)
        return x->available > y->available ? -1 : 1;
    return strcmp(x->node->r.name, y->node->r.name);
}

/* How many of the job's own processes hold a slot of this GPU. */
static int holders_of_job(const struct job *job, const struct node *node, const char *uuid)
{
    int count = 0;

    for (size_t i = 0; i < node->spawn_count; i++)
        for (char **held = node->spawns[i]->job == job ? node->spawns[i]->r.gpu_uuids : NULL; held && *held;
             held++)
            count += !strcmp(*held, uuid);
    return count;
}

/* A worker's GPUs are all different: what is free may lie on too few. One GPU serves each of the processes
 * once at most, and that so many then fit is also enough. leaving: a job whose slots count as free; or NULL.
 */
static bool distinct(const struct job *leaving, const struct node *node, const struct place_choice *c)
{
    int most = 0;

    if (c->gpus_each < 2 || slots_of(node) == 1)
        return true;
    for (size_t i = 0; i < node->gpu_count; i++) {
        int left = slots_of(node) - inventory_holders(node, node->gpus[i].uuid);
        if (leaving)
            left += holders_of_job(leaving, node, node->gpus[i].uuid);
        if (node->gpus[i].healthy && left > 0)
            most += left < c->procs ? left : c->procs;
    }
    return most >= room_units(c);
}

/* All nodes that could take the job's processes now; those of an emptier cluster when `later`. */
size_t room_candidates(const struct core *core, const struct job *job, enum room_mode mode, bool later,
                       struct place_choice *out)
{
    size_t count = 0;

    for (size_t i = 0; i < core->node_count; i++) {
        struct node *node = core->nodes[i];
        struct place_choice c = {.node = node};
        if (later ? !room_expected(node) : !room_usable(node))
            continue;
        c.procs = room_procs(job, node, mode, &c.gpus_each);
        if (!c.procs)
            continue;
        c.available = room_available(node, mode);
        c.order = room_former_order(job, node);
        if (lost_is_found(job, node))
            c.order -= 1 << 23; /* its snapshots are there: without them it cannot go on */
        if (later && is_target(job, node))
            c.order -= 1 << 21;
        if (later && !room_usable(node))
            c.order += 1 << 22; /* it may never be: better to wait where others will end */
        if ((later ? total(node, mode) - kept(node, mode) : c.available) < room_units(&c))
            continue;
        if (!later && !distinct(NULL, node, &c))
            continue;
        out[count++] = c;
    }
    if (count)
        qsort(out, count, sizeof(*out), later ? by_hope : by_fit);
    return count;
}

bool room_feasible(const struct core *core, const struct job *job, enum room_mode mode)
{
    int gpus_each;
    int64_t count = 0;

    for (size_t i = 0; i < core->node_count; i++)
        count += room_expected(core->nodes[i]) && room_procs(job, core->nodes[i], mode, &gpus_each) > 0;
    return count >= job->spec.nodes_min;
}

enum room_mode room_mode_of(const struct core *core, const struct job *job)
{
    const struct job_spec *spec = &job->spec;

    if (spec->device == JOB_DEVICE_CUDA || spec->procs == JOB_PROCS_GPU)
        return ROOM_GPU;
    if (spec->device == JOB_DEVICE_CPU || spec->procs == JOB_PROCS_CPU)
        return ROOM_CPU;
    return room_feasible(core, job, ROOM_GPU) ? ROOM_GPU : ROOM_CPU;
}

void room_take(struct node *node, const struct place_choice *c)
{
    if (c->gpus_each)
        node->place.gpu_busy += room_units(c);
    else
        node->place.cpu_busy += room_units(c);
}

/* What the job's own processes hold there will be free when it is placed. */
static int held_by(const struct job *job, const struct node *node)
{
    int held = 0;

    for (size_t i = 0; i < node->spawn_count; i++)
        if (node->spawns[i]->job == job)
            held += node->spawns[i]->r.gpu_uuids ? (int)strv_len(node->spawns[i]->r.gpu_uuids) : 1;
    return held;
}

/* A job that takes all GPUs of a node may need more of them than it holds: a GPU that was sick when its
 * generation formed is well again, and other jobs hold it. */
bool room_fits_again(const struct job *job, const struct node *node, enum room_mode mode)
{
    struct place_choice c = {0};

    c.procs = room_procs(job, node, mode, &c.gpus_each);
    int busy = mode == ROOM_GPU ? node->place.gpu_busy : node->place.cpu_busy;
    return c.procs && total(node, mode) - busy + held_by(job, node) >= room_units(&c) &&
           distinct(job, node, &c);
}

void room_keep(const struct job *job, struct node *node, const struct place_choice *c)
{
    int held = held_by(job, node), covered = held < room_units(c) ? held : room_units(c);

    if (c->gpus_each) {
        node->place.gpu_kept += room_units(c);
        node->place.gpu_covered += covered;
    } else {
        node->place.cpu_kept += room_units(c);
        node->place.cpu_covered += covered;
    }
}
