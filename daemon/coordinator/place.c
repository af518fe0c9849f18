/* Who runs where. All ranks of a job or none; jobs that were stopped on purpose first, then those that
 * recover from a failure, then by priority, then by age.
 *
 * The first job that cannot be placed now, but could on an emptier cluster, keeps places: it picks the nodes
 * it will use and sticks to them, and what becomes free there stays free for it. Others may still run on
 * those nodes as far as the kept places remain possible without theirs. So nobody waits for ever behind jobs
 * that are smaller or younger, and small jobs do not wait for a big one that does not need their slots.
 * Recovering jobs all keep places. */
#include "daemon/coordinator/core.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"
#include "daemon/coordinator/state.h"

#define BEHIND_HEAD 200 /* jobs that one pass tries past the first blocked one */

#define NO_FORMER (1 << 20) /* the order of nodes that had no part in the last generation, from here on */

enum mode { MODE_CPU, MODE_GPU };

static bool usable(const struct node *node)
{
    return node->r.state == NODE_ALIVE && node->session && node->synced && !node->rest_until;
}

/* Not now, but as things stand soon again. */
static bool expected(const struct node *node)
{
    return !node->r.drain &&
           (node->r.state == NODE_ALIVE || node->r.state == NODE_SUSPECT || node->r.state == NODE_JOINING);
}

static void count_node(struct node *node)
{
    memset(&node->place, 0, sizeof(node->place));
    node->place.cpu_total = node->r.cpu_slots;
    for (size_t i = 0; i < node->gpu_count; i++)
        node->place.gpu_total += node->gpus[i].healthy;
    for (size_t i = 0; i < node->spawn_count; i++) {
        node->place.cpu_busy += node->spawns[i]->r.cpu_slot >= 0;
        for (size_t k = 0; k < node->gpu_count; k++)
            for (char **uuid = node->spawns[i]->r.gpu_uuids; uuid && *uuid; uuid++)
                node->place.gpu_busy += node->gpus[k].healthy && !strcmp(*uuid, node->gpus[k].uuid);
    }
}

/* How many processes the job has on this node, and of how many GPUs each; 0: the node is none for it. */
static int procs_on(const struct job_spec *spec, const struct node *node, enum mode mode, int *gpus_each)
{
    int gpus = node->place.gpu_total, procs = 0;
    int given = spec->procs == JOB_PROCS_NUMBER ? (int)spec->procs_per_node : 0; /* 0: what the node has */

    if (node->procs)
        given = node->procs;
    *gpus_each = 0;
    if (mode == MODE_CPU) {
        procs = given ? given : node->place.cpu_total;
        return procs <= node->place.cpu_total ? procs : 0;
    }
    if (spec->gpus_per_proc == JOB_GPUS_ALL) {
        procs = given ? given : 1;
        *gpus_each = gpus / procs;
    } else {
        *gpus_each = (int)spec->gpus_per_proc;
        procs = given ? given : (*gpus_each > 0 ? gpus / *gpus_each : 0);
    }
    return *gpus_each > 0 && procs * *gpus_each <= gpus ? procs : 0;
}

static int units(const struct place_choice *c)
{
    return c->gpus_each ? c->procs * c->gpus_each : c->procs;
}

static int total(const struct node *node, enum mode mode)
{
    return mode == MODE_GPU ? node->place.gpu_total : node->place.cpu_total;
}

static int kept(const struct node *node, enum mode mode)
{
    return mode == MODE_GPU ? node->place.gpu_kept : node->place.cpu_kept;
}

static int available(const struct node *node, enum mode mode)
{
    int busy = mode == MODE_GPU ? node->place.gpu_busy - node->place.gpu_covered
                                : node->place.cpu_busy - node->place.cpu_covered;
    return total(node, mode) - busy - kept(node, mode);
}

/* Where the node stood in the job's last generation: a layout is repeated where it can be. Those of a run
 * that had no part in it follow by order of joining. */
static int former_order(const struct job *job, const struct node *node)
{
    const struct generation *g = job_current(job);

    for (int i = 0; g && i < g->r.world_size; i++)
        if (!strcmp(g->ranks[i].r.node, node->r.name))
            return g->ranks[i].r.node_rank;
    return NO_FORMER + node->turn;
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

/* All nodes that could take the job's processes now; those of an emptier cluster when `later`. */
static size_t candidates(const struct core *core, const struct job *job, enum mode mode, bool later,
                         struct place_choice *out)
{
    size_t count = 0;

    for (size_t i = 0; i < core->node_count; i++) {
        struct node *node = core->nodes[i];
        struct place_choice c = {.node = node};
        if (later ? !expected(node) : !usable(node))
            continue;
        c.procs = procs_on(&job->spec, node, mode, &c.gpus_each);
        if (!c.procs)
            continue;
        c.available = available(node, mode);
        c.order = former_order(job, node);
        if (later && is_target(job, node))
            c.order -= 1 << 21;
        if (later && !usable(node))
            c.order += 1 << 22; /* it may never be: better to wait where others will end */
        if ((later ? total(node, mode) - kept(node, mode) : c.available) < units(&c))
            continue;
        out[count++] = c;
    }
    if (count)
        qsort(out, count, sizeof(*out), later ? by_hope : by_fit);
    return count;
}

static bool feasible(const struct core *core, const struct job *job, enum mode mode)
{
    int gpus_each;
    int64_t count = 0;

    for (size_t i = 0; i < core->node_count; i++)
        count += expected(core->nodes[i]) && procs_on(&job->spec, core->nodes[i], mode, &gpus_each) > 0;
    return count >= job->spec.nodes_min;
}

static enum mode mode_of(const struct core *core, const struct job *job)
{
    const struct job_spec *spec = &job->spec;

    if (spec->device == JOB_DEVICE_CUDA || spec->procs == JOB_PROCS_GPU)
        return MODE_GPU;
    if (spec->device == JOB_DEVICE_CPU || spec->procs == JOB_PROCS_CPU)
        return MODE_CPU;
    return feasible(core, job, MODE_GPU) ? MODE_GPU : MODE_CPU;
}

static void take(struct node *node, const struct place_choice *c)
{
    if (c->gpus_each)
        node->place.gpu_busy += units(c);
    else
        node->place.cpu_busy += units(c);
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

static void keep(const struct job *job, struct node *node, const struct place_choice *c)
{
    int held = held_by(job, node), covered = held < units(c) ? held : units(c);

    if (c->gpus_each) {
        node->place.gpu_kept += units(c);
        node->place.gpu_covered += covered;
    } else {
        node->place.cpu_kept += units(c);
        node->place.cpu_covered += covered;
    }
}

/* A spawn of an older generation that must be dead before the next one starts: anywhere for a command job,
 * where its node can still say so for a native one (the lost ones are fenced). NULL: none. */
static const struct spawn *holds_back(const struct job *job)
{
    for (size_t i = 0; i < job->spawn_count; i++)
        if (!job->spawns[i]->r.dead && (job->spec.kind == JOB_COMMAND || spawn_reachable(job->spawns[i])))
            return job->spawns[i];
    return NULL;
}

static void waits(struct job *job, const char *text)
{
    if (job->waits && !strcmp(job->waits, text))
        return;
    text_set(&job->waits, "%s", text);
    job->changed = true;
}

static const char *what(enum mode mode, int64_t count)
{
    if (mode == MODE_GPU)
        return count == 1 ? "GPU" : "GPUs";
    return count == 1 ? "slot" : "slots";
}

/* "waits for 4 slots on box2: job 9 holds them" */
static void explain_blocked(struct job *job, const struct place_choice *targets, size_t count, enum mode mode,
                            struct buf *text)
{
    int64_t missing = 0;
    const struct job *holder = NULL;
    bool others = false;

    for (size_t i = 0; i < count; i++) {
        const struct node *node = targets[i].node;
        int free_now = usable(node) ? available(node, mode) : 0;
        missing += free_now < units(&targets[i]) ? units(&targets[i]) - (free_now > 0 ? free_now : 0) : 0;
        for (size_t k = 0; k < node->spawn_count; k++) {
            const struct job *of = node->spawns[k]->job;
            if (of == job || free_now >= units(&targets[i]))
                continue;
            others |= holder && holder != of;
            holder = holder ? holder : of;
        }
    }
    buf_printf(text, "waits for %" PRId64 " %s", missing, what(mode, missing));
    if (count == 1)
        buf_printf(text, " on %s", targets[0].node->r.name);
    job->holder = holder && !others ? holder->r.id : 0;
    if (holder)
        buf_printf(text, ": job %" PRId64 "%s %s", holder->r.id, others ? " and others hold" : " holds",
                   missing == 1 ? "it" : "them");
}

static void explain_too_small(const struct core *core, const struct job *job, enum mode mode,
                              struct buf *text)
{
    int64_t fitting = 0, away = 0;
    int gpus_each;

    for (size_t i = 0; i < core->node_count; i++) {
        bool fits = procs_on(&job->spec, core->nodes[i], mode, &gpus_each) > 0;
        fitting += fits && expected(core->nodes[i]);
        away += fits && !expected(core->nodes[i]);
    }
    int64_t per_node = job->spec.procs == JOB_PROCS_NUMBER ? job->spec.procs_per_node : 1;
    if (mode == MODE_GPU && job->spec.gpus_per_proc > 0)
        per_node *= job->spec.gpus_per_proc;
    buf_printf(text, "waits for %" PRId64 " node%s with %" PRId64 " %s each: the cluster has %" PRId64,
               job->spec.nodes_min, job->spec.nodes_min == 1 ? "" : "s", per_node, what(mode, per_node),
               fitting);
    if (away)
        buf_printf(text, ", %" PRId64 " more %s lost or drained", away, away == 1 ? "is" : "are");
}

static void set_targets(struct job *job, const struct place_choice *chosen, size_t count)
{
    strv_free(steal(job->targets));
    for (size_t i = 0; i < count; i++)
        job->targets = strv_append(job->targets, chosen[i].node->r.name);
}

/* Nodes that want a node rank of their own get it, as far as there are so many; the others keep their order.
 */
static void take_seats(struct place_choice *list, size_t count)
{
    struct place_choice *seated = xcalloc(count, sizeof(*seated));
    size_t next = 0;

    for (int pass = 0; pass < 2; pass++)
        for (size_t i = 0; i < count; i++) {
            size_t seat = (size_t)list[i].node->seat;
            bool own =
                seat && seat <= count && (!seated[seat - 1].node || seated[seat - 1].node == list[i].node);
            if (pass == 0 && own)
                seated[seat - 1] = list[i];
            if (pass == 0 || own)
                continue;
            while (seated[next].node)
                next++;
            seated[next] = list[i];
        }
    memcpy(list, seated, count * sizeof(*list));
    free(seated);
}

/* How many nodes are kept for a job that cannot be placed now: as many as it was stopped for. */
static size_t to_keep(const struct job *job)
{
    size_t wanted = job->drained_ms ? strv_len(job->targets) : 0, most = (size_t)job->spec.nodes_max;

    if (wanted > most)
        wanted = most;
    return wanted > (size_t)job->spec.nodes_min ? wanted : (size_t)job->spec.nodes_min;
}

enum verdict { PLACED, BLOCKED, TOO_SMALL };

/* Places the job, or keeps places for it when it is a head or recovering, and says what it waits for. */
static enum verdict try_job(struct core *core, struct job *job, bool may_keep, const struct job *head,
                            struct place_choice *list)
{
    enum mode mode = mode_of(core, job);
    const struct spawn *old = holds_back(job);
    bool ready = !old && core->now.boot_ms >= job->not_before;
    size_t count = ready ? candidates(core, job, mode, false, list) : 0;

    if (count >= (size_t)job->spec.nodes_min && count > 0) {
        count = count > (size_t)job->spec.nodes_max ? (size_t)job->spec.nodes_max : count;
        take_seats(list, count);
        for (size_t i = 0; i < count; i++)
            take(list[i].node, &list[i]);
        form_generation(core, job, list, count);
        return PLACED;
    }
    CLEANUP(buf_release) struct buf text = {0};
    job->holder = 0;
    count = candidates(core, job, mode, true, list);
    bool small = count < (size_t)job->spec.nodes_min || count == 0;
    if (!small && count > to_keep(job))
        count = to_keep(job);
    if (old)
        buf_printf(&text, "waits until rank %d of generation %" PRId64 " is known dead on %s", old->r.rank,
                   old->r.generation, old->r.node);
    else if (!ready)
        buf_puts(&text, "waits a moment before the next restart");
    else if (!feasible(core, job, mode))
        explain_too_small(core, job, mode, &text);
    else if (head && !may_keep)
        buf_printf(&text, "waits behind job %" PRId64, head->r.id);
    else
        explain_blocked(job, list, small ? 0 : count, mode, &text);
    waits(job, text.data);
    if (small || !may_keep)
        return small ? TOO_SMALL : BLOCKED;
    set_targets(job, list, count);
    for (size_t i = 0; i < count; i++)
        keep(job, list[i].node, &list[i]);
    return BLOCKED;
}

/* What a job that was stopped on purpose goes on with stays free until it has stopped. */
static void keep_for_drained(const struct core *core, struct place_choice *list)
{
    for (size_t i = 0; i < core->job_count; i++) {
        const struct job *job = core->jobs[i];
        if (!job->drained_ms || job->r.state != JOB_RECOVERING || !generation_open(job_current(job)))
            continue;
        size_t count = candidates(core, job, mode_of(core, job), true, list);
        for (size_t k = 0; k < count && k < to_keep(job); k++)
            keep(job, list[k].node, &list[k]);
    }
}

/* Nodes that could take part in the job's running generation, if it stopped for them. */
static size_t newcomers(const struct core *core, const struct job *job, struct place_choice *list)
{
    const struct generation *g = job_current(job);
    enum mode mode = g->ranks[0].spawn->r.gpu_uuids ? MODE_GPU : MODE_CPU;
    size_t count = candidates(core, job, mode, false, list), kept = 0;
    size_t most = (size_t)(job->spec.nodes_max - g->r.node_count);

    for (size_t i = 0; i < count && kept < most; i++)
        if (former_order(job, list[i].node) >= NO_FORMER && !list[i].node->steady_ms)
            list[kept++] = list[i];
    return g->r.node_count + (int64_t)kept >= job->spec.nodes_min ? kept : 0;
}

static int by_turn(const void *a, const void *b)
{
    const struct job *x = *(struct job *const *)a, *y = *(struct job *const *)b;
    bool rx = x->r.state == JOB_RECOVERING, ry = y->r.state == JOB_RECOVERING;

    if (rx != ry)
        return rx ? -1 : 1;
    if (x->drained_ms != y->drained_ms)
        return x->drained_ms > y->drained_ms ? -1 : 1; /* what it gave up itself is its own first */
    if (x->spec.priority != y->spec.priority)
        return x->spec.priority > y->spec.priority ? -1 : 1;
    return x->r.id < y->r.id ? -1 : 1;
}

/* A job that stops now could start again where it is. */
static bool all_usable(const struct generation *g)
{
    for (int i = 0; i < g->r.world_size; i++)
        if (!g->ranks[i].spawn->node || !usable(g->ranks[i].spawn->node))
            return false;
    return true;
}

/* What nobody waits for is offered to running jobs. The first `due` of turn are to stop for it. */
static size_t offer_growth(struct core *core, struct job **turn, struct place_choice *list)
{
    size_t count = 0, due = 0;

    for (size_t i = 0; i < core->job_count; i++)
        if (core->jobs[i]->r.state == JOB_RUNNING)
            turn[count++] = core->jobs[i];
    if (count)
        qsort(turn, count, sizeof(*turn), by_turn);
    for (size_t i = 0; i < count; i++) {
        struct job *job = turn[i];
        bool may = resize_wants(core, job) && all_usable(job_current(job));
        size_t more = may ? newcomers(core, job, list) : 0;
        if (resize_offer(core, job, list, more))
            turn[due++] = job;
        for (size_t k = 0; k < more; k++)
            take(list[k].node, &list[k]);
    }
    return due;
}

static bool wants_place(const struct job *job)
{
    const struct generation *g = job_current(job);

    return job->r.state == JOB_QUEUED || (job->r.state == JOB_RECOVERING && !(g && generation_open(g)));
}

void place_run(struct core *core)
{
    struct job **turn = xcalloc(core->job_count + 1, sizeof(struct job *));
    struct place_choice *list = xcalloc(core->node_count + 1, sizeof(*list));
    const struct job *head = NULL;
    size_t count = 0, behind = 0;

    core->place_dirty = false;
    for (size_t i = 0; i < core->node_count; i++)
        count_node(core->nodes[i]);
    keep_for_drained(core, list);
    for (size_t i = 0; i < core->job_count; i++)
        if (wants_place(core->jobs[i]))
            turn[count++] = core->jobs[i];
    if (count)
        qsort(turn, count, sizeof(*turn), by_turn);
    for (size_t i = 0; i < count && behind < BEHIND_HEAD; i++) {
        bool recovering = turn[i]->r.state == JOB_RECOVERING;
        enum verdict verdict = try_job(core, turn[i], recovering || !head, head, list);
        if (verdict == BLOCKED && !recovering && !head)
            head = turn[i];
        behind += head != NULL;
    }
    size_t due = offer_growth(core, turn, list);
    core->place_dirty = false; /* what was formed just now needs no second pass */
    for (size_t i = 0; i < due; i++)
        resize_grow(core, turn[i]);
    free(turn);
    free(list);
}
