/* Decides which jobs run on which nodes. A job gets all its ranks or none. Jobs that were stopped on purpose
 * come first, then those that recover from a failure, then the others by priority and age.
 *
 * The first job that cannot be placed now, but could on an emptier cluster, is the head. It reserves the
 * nodes that it will use and keeps to them, so what becomes free there stays free for it. Other jobs may
 * use those nodes only if that leaves enough room for the head. So no job waits for ever
 * behind smaller or younger ones, and small jobs do not wait for a big one that does not need their slots.
 * Recovering jobs all reserve nodes, because they have had them before.
 *
 * Each pass begins with empty counts and plans everything anew (capacity.h); only a job's targets, which make
 * it keep to the same nodes, survive from pass to pass. */
#include "daemon/coordinator/core/placement/placement.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"
#include "base/text.h"
#include "daemon/coordinator/core/emit.h"
#include "daemon/coordinator/core/failure/restart_rule.h"
#include "daemon/coordinator/core/generation_end.h"
#include "daemon/coordinator/core/generation_form.h"
#include "daemon/coordinator/core/model.h"
#include "daemon/coordinator/core/placement/capacity.h"
#include "daemon/coordinator/core/placement/compatibility.h"
#include "daemon/coordinator/core/placement/elastic.h"
#include "daemon/coordinator/core/placement/handover.h"
#include "daemon/coordinator/core/placement/round_close.h"
#include "daemon/coordinator/core/placement/survivors.h"
#include "daemon/coordinator/core/placement/too_small.h"
#include "daemon/coordinator/core/placement/world_size.h"
#include "daemon/coordinator/core/placement/yielding.h"
#include "daemon/coordinator/core/snapshots/lost_snapshots.h"
#include "daemon/coordinator/core/wish.h"

/* Jobs that one pass tries behind the head: bounds the time of a pass. Those that the cluster is too small for do not count. */
#define BEHIND_HEAD 200

/* Returns a worker of an older generation that must be dead before the next generation starts, or NULL. A
 * command may write anywhere, so all its workers must be dead. A trainer on a lost node can do no harm, since
 * only the current generation can commit, so only workers on reachable nodes are waited for. A trainer that
 * may be a member of the next generation, too, is not waited for, once it has said to this coordinator that it
 * stays. */
static const struct spawn *spawn_holding_back(const struct job *job)
{
    for (size_t i = 0; i < job->spawn_count; i++)
        if (!job->spawns[i]->r.dead && (!spawn_is_between(job->spawns[i]) || job->spawns[i]->stays_unsaid) &&
            (job->spec.kind == JOB_COMMAND || spawn_reachable(job->spawns[i])))
            return job->spawns[i];
    return NULL;
}

static void set_waits(struct job *job, const char *text)
{
    job->too_small.capacity = 0;
    if (job->waits && !strcmp(job->waits, text))
        return;
    text_set(&job->waits, "%s", text);
    job->changed = true;
}

/* Says what a job with reserved nodes still lacks: "waits for 4 slots on box2: job 9 holds them". */
static void explain_blocked(struct job *job, const struct placement_choice *targets, size_t count,
                            enum slot_kind kind, struct buf *text)
{
    int64_t missing = 0;
    const struct job *holder = NULL;
    const struct node *full = NULL;
    bool others = false;

    for (size_t i = 0; i < count; i++) {
        const struct node *node = targets[i].node;
        int free_now = capacity_usable(node) ? capacity_available(node, kind) : 0;
        full = wish_has_room(node, job) ? full : node;
        missing += free_now < capacity_units(&targets[i])
                       ? capacity_units(&targets[i]) - (free_now > 0 ? free_now : 0)
                       : 0;
        for (size_t k = 0; k < node->spawn_count; k++) {
            const struct job *of = node->spawns[k]->job;
            if (of == job || free_now >= capacity_units(&targets[i]))
                continue;
            others |= holder && holder != of;
            holder = holder ? holder : of;
        }
    }
    if (!count) {
        buf_puts(text, "waits for slots that are reserved for jobs before it");
        return;
    }
    if (!missing && full) {
        buf_printf(
            text,
            "waits for jobs on %s to end: with this one, the job files and environments of its jobs have "
            "more than %d MiB",
            full->r.name, WISH_REQUESTS >> 20);
        return;
    }
    if (missing)
        buf_printf(text, "waits for %s", capacity_text(missing, kind).text);
    else /* a worker's GPUs are all different */
        buf_puts(text, "waits for free slots on more GPUs");
    if (count == 1)
        buf_printf(text, " on %s", targets[0].node->r.name);
    job->holder = holder && !others ? holder->r.id : 0;
    if (holder)
        buf_printf(text, ": job %" PRId64 "%s %s", holder->r.id, others ? " and others hold" : " holds",
                   missing == 1 ? "it" : "them");
}

/* There are enough nodes, but no choice of them gives a world size that the job can have. */
static void explain_no_world_size(const struct core *core, const struct job *job, enum slot_kind kind,
                                  const struct placement_choice *list, size_t count, struct buf *text)
{
    const struct node *first = list[0].node;
    const bool one = count == 1;

    buf_printf(text, "waits for nodes with a world size that divides its %" PRId64 " shards: the %zu that %s",
               job->spec.train.shards, count, one ? "fits" : "fit");
    if (lost_snapshots_on_node(job, first) && compatibility_leaves_out(core, job, kind, first))
        buf_printf(text, " and %s NCCL %s as on %s, where its snapshots are,", one ? "has" : "have",
                   first->nccl, first->r.name);
    buf_puts(text, one ? " does not" : " do not");
}

/* Nodes that ask for a node rank (ddpctl run --node-rank) get it if the group has so many nodes. The others
 * fill the remaining node ranks in their order. */
static void assign_seats(struct placement_choice *list, size_t count)
{
    struct placement_choice *seated = xcalloc(count, sizeof(*seated));
    size_t next = 0;

    for (int pass = 0; pass < 2; pass++)
        for (size_t i = 0; i < count; i++) {
            size_t seat = (size_t)list[i].node->seat;
            /* two nodes may ask for the same rank: the first one in the list gets it */
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

/* The nodes that could take the job, all with the same version of NCCL where it needs that. */
static size_t compatible_candidates(const struct core *core, const struct job *job, enum slot_kind kind,
                                    enum capacity_when when, struct placement_choice *list)
{
    size_t count = capacity_candidates(core, job, kind, when, list);

    if (!compatibility_matters(job, kind))
        return count;
    /* Nodes with the job's snapshots come first in the list. If there is one, the others must go with it,
     * even if another version has more nodes. */
    if (count && lost_snapshots_on_node(job, list[0].node))
        return compatibility_keep_with(list[0].node, list, count);
    return compatibility_keep_largest(list, count);
}

/* How many nodes to reserve for a job: the fewest that it can run on, but for a job that was stopped to grow
 * as many as it was stopped for. */
static size_t count_to_reserve(const struct job *job)
{
    size_t wanted = job->drained_ms ? strv_len(job->targets) : 0, most = (size_t)job->spec.nodes_max;

    if (wanted > most)
        wanted = most;
    return wanted > (size_t)job->spec.nodes_min ? wanted : (size_t)job->spec.nodes_min;
}

/* Chooses the nodes to reserve. If no choice of so few nodes gives a possible world size, up to nodes_max are
 * taken. */
static size_t choose_to_reserve(const struct job *job, struct placement_choice *list, size_t count)
{
    const int64_t min = job->spec.nodes_min;
    size_t kept = world_size_choose(&job->spec, min, (int64_t)count_to_reserve(job), 0, list, count);

    return kept ? kept : world_size_choose(&job->spec, min, job->spec.nodes_max, 0, list, count);
}

static bool job_has_gpus(const struct job *job)
{
    const struct generation *g = job_current(job);

    return g && g->ranks[0].spawn && g->ranks[0].spawn->r.gpu_uuids;
}

/* Events for what a user would wonder about later: the job runs on CPUs now, or its nodes compute
 * differently. */
static void say_device_change(struct core *core, const struct job *job, enum slot_kind kind, bool had_gpus,
                              const struct placement_choice *list, size_t count)
{
    CLEANUP(free_text)
    char *differ = compatibility_matters(job, kind) ? compatibility_difference(list, count) : NULL;

    if (had_gpus && kind == SLOT_CPU)
        emit_event(core, job, "leaves_gpus",
                   "continues on CPUs because too few GPUs are available; run `ddpctl restart %" PRId64
                   "` when there are enough",
                   job->r.id);
    if (differ)
        emit_event(core, job, "plugins_differ", "%s: its bits may depend on which node a rank runs on",
                   differ);
}

static bool keeps_survivors(const struct placement_choice *list, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (list[i].kept)
            return true;
    return false;
}

/* The nodes on which the job can run now; 0: none. If it has survivors, some of them go on there. */
static size_t choose_now(const struct core *core, const struct job *job, enum slot_kind kind,
                         struct placement_choice *list)
{
    size_t count = compatible_candidates(core, job, kind, CAPACITY_NOW, list);

    count = world_size_choose(&job->spec, job->spec.nodes_min, job->spec.nodes_max, 0, list, count);
    return survivors_wait(job) && !keeps_survivors(list, count) ? 0 : count;
}

/* Survivors hold their slots, so they are kept only if the job will be placed with some of them as soon as its own
 * old workers are dead and nodes that are expected have connected, and only for a limited time. */
static bool survivors_go_on_soon(const struct core *core, const struct job *job, enum slot_kind kind,
                                 struct placement_choice *list)
{
    size_t count = compatible_candidates(core, job, kind, CAPACITY_AGAIN, list);

    count = world_size_choose(&job->spec, job->spec.nodes_min, job->spec.nodes_max, 0, list, count);
    /* Until the nodes have reported their jobs, nobody knows where a held job will run. */
    return job->survivors_until && (job->held || keeps_survivors(list, count));
}

/* A node that is lost cannot report the end of its processes. */
static void explain_old_spawn(const struct core *core, const struct spawn *old, struct buf *text)
{
    const struct node *node = core_find_node(core, old->r.node);

    buf_printf(text, "waits until rank %d of generation %" PRId64 " is known dead on %s", old->rank->r.rank,
               old->rank->r.generation, old->r.node);
    if (node && node->r.state == NODE_LOST)
        buf_printf(text, ": when its lease has run out, or after `ddpctl forget %s`", old->r.node);
}

/* Whether nothing but the nodes decides that the job cannot run: it has never started, and nothing else is waited for. */
static bool job_is_fresh(const struct core *core, const struct job *job)
{
    return job->r.state == JOB_QUEUED && !job_current(job) && !job->held && !job->lost.found &&
           core->now.boot_ms >= job->not_before;
}

/* Whether the job asks for more than the cluster has; then it says so in its status. */
static bool job_never_fits(const struct core *core, struct job *job)
{
    CLEANUP(buf_release) struct buf text = {0};

    if (!job_is_fresh(core, job))
        return false;
    if (too_small_still(core, job))
        return true;
    if (!too_small_explain(core, job, capacity_slot_kind(core, job), &text))
        return false;
    job->holder = 0;
    set_waits(job, text.data);
    too_small_keep(core, job);
    return true;
}

enum place_result { PLACED, BLOCKED, TOO_SMALL };

/* Places the job; else reserves nodes for it, if it may, and says what it waits for. TOO_SMALL: no cluster
 * state that is in sight would do, so it must not block others. */
static enum place_result place_job(struct core *core, struct job *job, bool may_keep, const struct job *head,
                                   struct placement_choice *list)
{
    enum slot_kind kind = capacity_slot_kind(core, job);
    const struct spawn *old = spawn_holding_back(job);
    bool ready = !old && core->now.boot_ms >= job->not_before;
    size_t count = ready ? choose_now(core, job, kind, list) : 0;

    if (!count && survivors_wait(job) && !survivors_go_on_soon(core, job, kind, list)) {
        generation_give_up_survivors(core, job, "the job cannot be placed on the free nodes now");
        if (job->r.state != JOB_RECOVERING)
            return TOO_SMALL; /* its restarts are used up */
        old = spawn_holding_back(job);
        ready = !old && core->now.boot_ms >= job->not_before;
        count = ready ? choose_now(core, job, kind, list) : 0;
    }
    /* It could run, but only on nodes without its snapshots: there it would wait for them again. */
    bool elsewhere = count && !lost_snapshots_has_place(job, list, count);
    if (count && !elsewhere) {
        assign_seats(list, count);
        for (size_t i = 0; i < count; i++)
            capacity_take(list[i].node, &list[i]);
        bool had_gpus = job_has_gpus(job);
        generation_form(core, job, list, count);
        say_device_change(core, job, kind, had_gpus, list, count);
        return PLACED;
    }
    CLEANUP(buf_release) struct buf text = {0};
    job->holder = 0;
    /* Not now: which nodes would it run on if other jobs ended? */
    size_t fitting = compatible_candidates(core, job, kind, CAPACITY_LATER, list);
    bool enough = fitting && fitting >= (size_t)job->spec.nodes_min;
    count = choose_to_reserve(job, list, fitting);
    if (elsewhere && !lost_snapshots_has_place(job, list, count))
        count = 0; /* nodes without its snapshots are no use to it, so others may have them */
    /* The order matters: the first reason that holds explains why the later ones cannot be judged yet. */
    if (old && spawn_is_between(old))
        buf_printf(&text, "waits until %s says whether rank %d of generation %" PRId64 " still runs",
                   old->r.node, old->rank->r.rank, old->rank->r.generation);
    else if (old)
        explain_old_spawn(core, old, &text);
    else if (!ready && job->held)
        buf_puts(&text, "waits for the nodes to report their jobs: the coordinator's records were restored");
    else if (!ready)
        buf_puts(&text, "waits before the next restart");
    /* also if too few nodes are compatible with the nodes that have the snapshots */
    else if (elsewhere || (job->lost.found && !enough))
        lost_snapshots_explain_place(core, job, &text);
    else if (too_small_explain(core, job, kind, &text))
        ; /* it has written the reason */
    else if (head && !may_keep)
        buf_printf(&text, "waits behind job %" PRId64, head->r.id);
    else if (!count && enough)
        explain_no_world_size(core, job, kind, list, fitting, &text);
    else
        explain_blocked(job, list, count, kind, &text);
    set_waits(job, text.data);
    if (!count || !may_keep)
        return count ? BLOCKED : TOO_SMALL;
    strv_free(steal(job->targets));
    for (size_t i = 0; i < count; i++) {
        job->targets = strv_append(job->targets, list[i].node->r.name);
    }
    if (!old && ready)
        yielding_begin(core, job, list, count, kind);
    for (size_t i = 0; i < count; i++)
        capacity_reserve(job, list[i].node, &list[i]);
    return BLOCKED;
}

static bool job_drains(const struct job *job)
{
    return job->drained_ms && job->r.state == JOB_RECOVERING && generation_open(job_current(job));
}

/* A job that drains still holds its slots and is not placed yet. If the nodes that it was stopped for are free or its own, this
 * reserves them, so that no job that is handed over in this pass takes them. Returns whether they are reserved. */
static bool reserve_targets(const struct core *core, const struct job *job, struct placement_choice *list)
{
    size_t count = compatible_candidates(core, job, capacity_slot_kind(core, job), CAPACITY_AGAIN, list),
           kept = 0;

    for (size_t i = 0; i < count; i++)
        if (names_contain(job->targets, list[i].node->r.name))
            list[kept++] = list[i];
    if (!kept || kept < strv_len(job->targets))
        return false;
    kept = choose_to_reserve(job, list, kept); /* a user may have made the job smaller meanwhile */
    for (size_t i = 0; i < kept; i++)
        capacity_reserve(job, list[i].node, &list[i]);
    return true;
}

/* reserved: for each job, whether its targets are reserved. */
static void reserve_all_targets(const struct core *core, bool *reserved, struct placement_choice *list)
{
    for (size_t i = 0; i < core->job_count; i++)
        reserved[i] = job_drains(core->jobs[i]) && reserve_targets(core, core->jobs[i], list);
}

/* Reserves in advance the nodes on which the other jobs that drain will continue, so that no job of this pass takes these nodes. */
static void reserve_for_drained(const struct core *core, const bool *reserved, struct placement_choice *list)
{
    for (size_t i = 0; i < core->job_count; i++) {
        const struct job *job = core->jobs[i];
        if (reserved[i] || !job_drains(job))
            continue;
        size_t count = compatible_candidates(core, job, capacity_slot_kind(core, job), CAPACITY_LATER, list);
        count = choose_to_reserve(job, list, count);
        for (size_t k = 0; k < count; k++)
            capacity_reserve(job, list[k].node, &list[k]);
    }
}

/* The nodes on which a job whose members wait for a hand-over goes on; 0: none, or those that it has. */
static size_t choose_for_handover(const struct core *core, const struct job *job, enum slot_kind kind,
                                  struct placement_choice *list)
{
    const struct generation *g = job_current(job);
    size_t count = compatible_candidates(core, job, kind, CAPACITY_NOW, list), kept = 0, former = 0;
    int world_size = 0;

    for (size_t i = 0; i < count; i++)
        if (handover_allows(job, list[i].node))
            list[kept++] = list[i];
    count = world_size_choose(&job->spec, job->spec.nodes_min, handover_most_nodes(job), 0, list, kept);
    for (size_t i = 0; i < count; i++) {
        former += capacity_former_order(job, list[i].node) < NO_FORMER_RANK;
        world_size += list[i].procs;
    }
    if (former == count && count == (size_t)g->r.node_count && world_size == g->r.world_size)
        return 0;
    return keeps_survivors(list, count) ? count : 0;
}

static void hand_job_over(struct core *core, struct job *job, struct placement_choice *list)
{
    enum slot_kind kind = capacity_slot_kind(core, job);

    job->handover.planned = true;
    size_t count = choose_for_handover(core, job, kind, list);
    job->handover.planned = false;
    if (!count) {
        handover_give_up(core, job);
        return;
    }
    assign_seats(list, count);
    for (size_t i = 0; i < count; i++)
        capacity_take(list[i].node, &list[i]);
    bool had_gpus = job_has_gpus(job);
    handover_complete(core, job);
    generation_form(core, job, list, count);
    say_device_change(core, job, kind, had_gpus, list, count);
}

/* The nodes that are to join are kept free until the members are ready. */
static void reserve_for_handover(const struct core *core, const struct job *job,
                                 struct placement_choice *list)
{
    size_t count = compatible_candidates(core, job, capacity_slot_kind(core, job), CAPACITY_NOW, list);

    for (size_t i = 0; i < count; i++)
        if (names_contain(job->handover.joining, list[i].node->r.name))
            capacity_reserve(job, list[i].node, &list[i]);
}

/* Jobs whose members wait go first: they stand still. */
static void hand_jobs_over(struct core *core, struct placement_choice *list)
{
    handover_review(core);
    for (size_t i = 0; i < core->job_count; i++)
        if (core->jobs[i]->handover.number && !handover_ready(core->jobs[i]))
            reserve_for_handover(core, core->jobs[i], list);
    for (size_t i = 0; i < core->job_count; i++)
        if (handover_ready(core->jobs[i]))
            hand_job_over(core, core->jobs[i], list);
}

/* Nodes that could join a running job if it stopped for them. */
static size_t find_newcomers(const struct core *core, const struct job *job, struct placement_choice *list)
{
    const struct generation *g = job_current(job);
    enum slot_kind kind = job_has_gpus(job) ? SLOT_GPU : SLOT_CPU;
    size_t count = 0, kept = 0;

    /* The job started on CPUs, and GPUs may have come since. After a stop it would run on GPUs, which fewer
     * nodes may have, so this would not be growth. */
    if (kind == capacity_slot_kind(core, job))
        count = capacity_candidates(core, job, kind, CAPACITY_NOW, list);
    for (size_t i = 0; i < count; i++)
        if (capacity_former_order(job, list[i].node) >= NO_FORMER_RANK && !list[i].node->steady_ms)
            list[kept++] = list[i];
    if (compatibility_matters(job, kind))
        kept = compatibility_keep_with(g->ranks[0].spawn->node, list, kept);
    return world_size_choose(&job->spec, job->spec.nodes_min - g->r.node_count,
                             job->spec.nodes_max - g->r.node_count, g->r.world_size, list, kept);
}

int placement_compare_turns(const void *a, const void *b)
{
    const struct job *x = *(struct job *const *)a, *y = *(struct job *const *)b;
    bool rx = x->r.state == JOB_RECOVERING, ry = y->r.state == JOB_RECOVERING;

    if (rx != ry)
        return rx ? -1 : 1;
    /* a job that gave its nodes up by itself gets them first */
    if (x->drained_ms != y->drained_ms)
        return x->drained_ms > y->drained_ms ? -1 : 1;
    if (x->spec.priority != y->spec.priority)
        return x->spec.priority > y->spec.priority ? -1 : 1;
    return x->r.id < y->r.id ? -1 : 1;
}

/* Whether the job, if it stopped now, could start again on the nodes that it has. Else stopping would lose
 * nodes. */
static bool job_can_return(const struct job *job)
{
    const struct generation *g = job_current(job);
    enum slot_kind kind = job_has_gpus(job) ? SLOT_GPU : SLOT_CPU;

    for (int i = 0; i < g->r.world_size; i++) {
        const struct node *node = g->ranks[i].spawn->node;
        if (!node || !capacity_usable(node) || !capacity_fits_again(job, node, kind))
            return false;
    }
    return true;
}

/* Offers the nodes that no job waits for to running jobs. Returns the number of jobs that should stop for
 * their offer now; they are the first ones of `turn`. */
static size_t offer_growth(struct core *core, struct job **turn, struct placement_choice *list)
{
    size_t count = 0, due = 0;

    for (size_t i = 0; i < core->job_count; i++)
        if (core->jobs[i]->r.state == JOB_RUNNING)
            turn[count++] = core->jobs[i];
    if (count)
        qsort(turn, count, sizeof(*turn), placement_compare_turns);
    for (size_t i = 0; i < count; i++) {
        struct job *job = turn[i];
        bool may = elastic_wants_nodes(core, job) && job_can_return(job);
        size_t more = may ? find_newcomers(core, job, list) : 0;
        if (elastic_offer(core, job, list, more))
            turn[due++] = job;
        /* a node is offered to one job only: two that stopped for the same node would both lose time */
        for (size_t k = 0; k < more; k++)
            capacity_take(list[k].node, &list[k]);
    }
    for (size_t i = 0; i < core->job_count; i++)
        core->jobs[i]->grow.asked = false; /* the user meant what was free in this pass */
    return due;
}

/* A job on hold keeps no nodes from others. */
static void explain_hold(struct job *job)
{
    CLEANUP(free_text)
    char *text = xasprintf("on hold: `ddpctl release %" PRId64 "` lets it start", job->r.id);

    set_waits(job, text);
    job->holder = 0;
    strv_free(steal(job->targets));
}

bool placement_wants(const struct job *job)
{
    const struct generation *g = job_current(job);

    if (lost_snapshots_waits(job))
        return false; /* a generation without snapshots would only wait again; nodes are asked instead */
    if (restart_rule_waits(job))
        return false; /* it ends when its workers have ended */
    if (job->spec.hold && job->r.state == JOB_QUEUED)
        return false; /* until its user releases it */
    return job->r.state == JOB_QUEUED || (job->r.state == JOB_RECOVERING && !(g && generation_open(g)));
}

void placement_run(struct core *core)
{
    struct job **turn = xcalloc(core->job_count + 1, sizeof(struct job *));
    struct placement_choice *list = xcalloc(core->node_count + 1, sizeof(*list));
    bool *reserved = xcalloc(core->job_count + 1, sizeof(*reserved));
    const struct job *head = NULL;
    size_t count = 0, behind = 0;

    core->placement_due = false;
    round_close_all(core);
    for (size_t i = 0; i < core->node_count; i++)
        capacity_count(core->nodes[i]);
    too_small_review(core);
    reserve_all_targets(core, reserved, list);
    hand_jobs_over(core, list);
    reserve_for_drained(core, reserved, list);
    for (size_t i = 0; i < core->job_count; i++)
        if (placement_wants(core->jobs[i]))
            turn[count++] = core->jobs[i];
        else if (core->jobs[i]->spec.hold && core->jobs[i]->r.state == JOB_QUEUED)
            explain_hold(core->jobs[i]);
    if (count)
        qsort(turn, count, sizeof(*turn), placement_compare_turns);
    for (size_t i = 0; i < count && behind < BEHIND_HEAD; i++) {
        bool recovering = turn[i]->r.state == JOB_RECOVERING;
        /* Such a job costs next to nothing while the nodes stay as they are, so those behind it are tried, however many
         * of them there are. */
        if (job_never_fits(core, turn[i]))
            continue;
        enum place_result result = place_job(core, turn[i], recovering || !head, head, list);
        if (result == BLOCKED && !recovering && !head)
            head = turn[i];
        behind += head != NULL;
    }
    size_t due = offer_growth(core, turn, list);
    /* the pass knows what it has formed itself; only growth below asks for another one */
    core->placement_due = false;
    for (size_t i = 0; i < due; i++)
        elastic_grow(core, turn[i]);
    free(turn);
    free(list);
    free(reserved);
}
