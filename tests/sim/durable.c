/* The fake store: applies a list of changes completely or not at all, as the real store does. It checks that records are
 * inserted, replaced and removed as they may be, and asks rules.c about each change. A broken rule fails the run. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"
#include "tests/sim/sim.h"

#define PEACE_MS 20000 /* time after the last fault until all nodes are back */

/* Searches from the newest entry, because most changes concern new entries. */
#define FIND(array, count, condition)                                                                        \
    for (size_t i_ = (count); i_-- > 0;)                                                                     \
        if ((array)[i_].condition)                                                                           \
            return &(array)[i_];                                                                             \
    return NULL

struct job_record *durable_job(const struct durable *d, int64_t id)
{
    FIND(d->r.jobs, d->r.job_count, id == id);
}

static struct node_record *find_node(const struct durable *d, const char *name)
{
    for (size_t i = 0; i < d->r.node_count; i++)
        if (!strcmp(d->r.nodes[i].name, name))
            return &d->r.nodes[i];
    return NULL;
}

struct generation_record *durable_generation(const struct durable *d, int64_t job, int64_t number)
{
    FIND(d->r.generations, d->r.generation_count, job == job && d->r.generations[i_].number == number);
}

struct spawn_record *durable_spawn(const struct durable *d, int64_t job, int64_t spawn)
{
    FIND(d->r.spawns, d->r.spawn_count, job == job && d->r.spawns[i_].spawn == spawn);
}

/* Returns the spawn's rank in the newest generation that it is a member of. */
static const struct rank_record *newest_rank(const struct durable *d, int64_t job, int64_t spawn)
{
    const struct rank_record *found = NULL;

    for (size_t i = 0; i < d->r.rank_count; i++)
        if (d->r.ranks[i].job == job && d->r.ranks[i].spawn == spawn &&
            (!found || d->r.ranks[i].generation > found->generation))
            found = &d->r.ranks[i];
    return found;
}

const struct generation_record *durable_generation_of(const struct durable *d, const struct spawn_record *s)
{
    const struct rank_record *rank = newest_rank(d, s->job, s->spawn);

    return rank ? durable_generation(d, s->job, rank->generation) : NULL;
}

static struct rank_record *find_rank(const struct durable *d, int64_t job, int64_t generation, int rank)
{
    FIND(d->r.ranks, d->r.rank_count,
         job == job && d->r.ranks[i_].generation == generation && d->r.ranks[i_].rank == rank);
}

static struct snapshot_record *find_snapshot(const struct durable *d, const struct snapshot_record *s)
{
    FIND(d->r.snapshots, d->r.snapshot_count,
         job == s->job && d->r.snapshots[i_].generation == s->generation &&
             d->r.snapshots[i_].step == s->step);
}

#define MISSING(what)                                                                                        \
    do {                                                                                                     \
        sim_fail(sim, "change %d: no such " what, c->kind);                                                  \
        return;                                                                                              \
    } while (0)

#define REPLACE(found, kept, kind, fresh)                                                                    \
    do {                                                                                                     \
        kept keep_ = (kept)(found)->state;                                                                   \
        kind##_release(found);                                                                               \
        kind##_copy(found, fresh);                                                                           \
        (found)->state = keep_;                                                                              \
    } while (0)

#define APPEND(array, count, cap, kind, fresh)                                                               \
    do {                                                                                                     \
        (array) = array_grow((array), (count), &(cap), sizeof(*(array)));                                    \
        kind##_copy(&(array)[(count)++], fresh);                                                             \
    } while (0)

static void apply_job(struct sim *sim, const struct change *c)
{
    struct durable *d = &sim->durable;
    struct job_record *job = durable_job(d, c->kind == CHANGE_JOB_MOVE ? c->id : c->job->id);

    if (c->kind == CHANGE_JOB_INSERT) {
        for (size_t i = 0; i < d->r.job_count; i++)
            if (!strcmp(d->r.jobs[i].request_id, c->job->request_id))
                sim_fail(sim, "request %s made a second job", c->job->request_id);
        bool adopted = c->job->generation > 0; /* a new job has no generation */
        if (!adopted && c->job->id < d->r.next_job)
            sim_fail(sim, "job id %" PRId64 " is used again", c->job->id);
        if (c->job->id >= d->r.next_job)
            d->r.next_job = c->job->id + 1;
        if (adopted) {
            d->adopting = c->job->id;
            sim->adopted++;
        }
        sim->requests =
            array_grow(sim->requests, sim->request_count, &sim->request_cap, sizeof(*sim->requests));
        sim->requests[sim->request_count].job = c->job->id;
        sim->requests[sim->request_count++].index = atoi(c->job->request_id + 1);
        APPEND(d->r.jobs, d->r.job_count, d->job_cap, job_record, c->job);
        return;
    }
    if (!job)
        MISSING("job");
    if (c->kind == CHANGE_JOB_MOVE) {
        rules_check_move(sim, &job_sm, c, (int)job->state);
        job->state = (enum job_state)c->to;
        free(job->reason);
        job->reason = xstrdup(c->text);
        sim_say(sim, "job %" PRId64 " %s: %s", job->id, sm_name(&job_sm, c->to), c->text);
        if (c->to == JOB_SUCCEEDED)
            rules_check_success(sim, job);
    } else {
        if (c->job->generation < job->generation)
            sim_fail(sim, "job %" PRId64 ": generation shrinks", job->id);
        REPLACE(job, enum job_state, job_record, c->job);
    }
}

/* The record of an ended job has its last progress, so no progress may come later. */
static void apply_progress(struct sim *sim, const struct change *c)
{
    struct job_record *job = durable_job(&sim->durable, c->id);

    if (!job)
        MISSING("job");
    if (sm_terminal(&job_sm, (int)job->state))
        sim_fail(sim, "job %" PRId64 " has ended and still makes progress", c->id);
    free(job->progress);
    job->progress = xstrdup(c->text);
}

static void apply_node(struct sim *sim, const struct change *c)
{
    struct durable *d = &sim->durable;
    bool named = c->kind == CHANGE_NODE_MOVE || c->kind == CHANGE_NODE_DELETE;
    struct node_record *node = find_node(d, named ? c->name : c->node->name);

    if (c->kind == CHANGE_NODE_INSERT) {
        if (node)
            sim_fail(sim, "node %s is inserted twice", c->node->name);
        APPEND(d->r.nodes, d->r.node_count, d->node_cap, node_record, c->node);
        return;
    }
    if (!node)
        MISSING("node");
    if (c->kind == CHANGE_NODE_DELETE) {
        node_record_release(node);
        *node = d->r.nodes[--d->r.node_count];
    } else if (c->kind == CHANGE_NODE_MOVE) {
        rules_check_move(sim, &node_sm, c, (int)node->state);
        if (c->to == NODE_LOST)
            rules_check_loss(sim, node->name);
        node->state = (enum node_state)c->to;
        sim_say(sim, "node %s %s: %s", node->name, sm_name(&node_sm, c->to), c->text);
    } else {
        REPLACE(node, enum node_state, node_record, c->node);
    }
}

bool durable_open(enum generation_state state)
{
    return state != GENERATION_CLOSED && state != GENERATION_FAILED;
}

static void keep_resize(struct sim *sim, const struct change *c)
{
    long long nodes;

    if (c->to == GENERATION_DRAINING && sscanf(c->text, "resize to %lld", &nodes) == 1) {
        bool peace = !sim->faults && sim->now > sim->faults_end + PEACE_MS;
        client_job(sim, c->id)->resize_to = peace ? nodes : 0;
        sim->resizes++;
    }
}

static void apply_generation(struct sim *sim, const struct change *c)
{
    struct durable *d = &sim->durable;
    bool moves = c->kind == CHANGE_GENERATION_MOVE;
    struct generation_record *g = durable_generation(d, moves ? c->id : c->generation->job,
                                                     moves ? c->generation_number : c->generation->number);

    if (c->kind == CHANGE_GENERATION_INSERT) {
        for (size_t i = 0; i < d->r.generation_count; i++) {
            const struct generation_record *other = &d->r.generations[i];
            if (other->job == c->generation->job && durable_open(other->state) &&
                durable_open(c->generation->state))
                sim_fail(sim, "job %" PRId64 ": generation %" PRId64 " while %" PRId64 " is open", other->job,
                         c->generation->number, other->number);
            if (other->job == c->generation->job && other->number >= c->generation->number)
                sim_fail(sim, "job %" PRId64 ": the new generation is not above generation %" PRId64,
                         other->job, other->number);
        }
        /* A card brings generations as they were on the nodes, so only those that the core makes are checked. */
        if (d->adopting != c->generation->job)
            rules_check_generation(sim, c->generation);
        APPEND(d->r.generations, d->r.generation_count, d->generation_cap, generation_record, c->generation);
        return;
    }
    if (!g)
        MISSING("generation");
    if (moves) {
        rules_check_move(sim, &generation_sm, c, (int)g->state);
        g->state = (enum generation_state)c->to;
        keep_resize(sim, c);
    } else {
        /* The key may not change, because members may have it already. */
        if (g->has_key && memcmp(g->key, c->generation->key, sizeof(g->key)) != 0)
            sim_fail(sim, "job %" PRId64 " generation %" PRId64 ": its key changes", g->job, g->number);
        if (!g->has_key && c->generation->has_key) {
            rules_check_source(sim, c->generation);
            sim->lives += core_generation_is_live(c->generation);
        }
        REPLACE(g, enum generation_state, generation_record, c->generation);
    }
}

static void remove_generation(struct sim *sim, const struct change *c)
{
    struct records *r = &sim->durable.r;
    const struct job_record *job = durable_job(&sim->durable, c->id);
    size_t left = 0;

    for (size_t i = 0; i < r->spawn_count; i++) {
        const struct spawn_record *s = &r->spawns[i];
        const struct generation_record *last =
            s->job == c->id && !s->dead ? durable_generation_of(&sim->durable, s) : NULL;
        if (last && last->number == c->generation_number)
            sim_fail(sim,
                     "job %" PRId64 ": generation %" PRId64 " is removed, the last one of spawn %" PRId64,
                     c->id, c->generation_number, s->spawn);
    }
    for (size_t i = 0; i < r->rank_count; i++)
        if (r->ranks[i].job == c->id && r->ranks[i].generation == c->generation_number)
            rank_record_release(&r->ranks[i]);
        else
            r->ranks[left++] = r->ranks[i];
    r->rank_count = left;
    left = 0;
    for (size_t i = 0; i < r->generation_count; i++) {
        struct generation_record *g = &r->generations[i];
        if (g->job != c->id || g->number != c->generation_number) {
            r->generations[left++] = *g;
            continue;
        }
        if (g->charged || durable_open(g->state) || g->number >= job->generation)
            sim_fail(sim, "job %" PRId64 ": generation %" PRId64 " is removed too early", c->id,
                     c->generation_number);
        sim->thinned++;
        generation_record_release(g);
    }
    if (left == r->generation_count)
        sim_fail(sim, "job %" PRId64 ": generation %" PRId64 " is removed twice", c->id,
                 c->generation_number);
    r->generation_count = left;
}

static void apply_rank(struct sim *sim, const struct change *c)
{
    struct durable *d = &sim->durable;
    bool moves = c->kind == CHANGE_RANK_MOVE;
    struct rank_record *rank =
        find_rank(d, moves ? c->id : c->rank->job, moves ? c->generation_number : c->rank->generation,
                  moves ? c->rank_number : c->rank->rank);

    if (c->kind == CHANGE_RANK_INSERT) {
        if (rank)
            sim_fail(sim, "a rank is inserted twice");
        APPEND(d->r.ranks, d->r.rank_count, d->rank_cap, rank_record, c->rank);
        return;
    }
    if (!rank)
        MISSING("rank");
    if (moves) {
        rules_check_move(sim, &rank_sm, c, (int)rank->state);
        rank->state = (enum rank_state)c->to;
    } else {
        REPLACE(rank, enum rank_state, rank_record, c->rank);
    }
}

enum gpu_state durable_gpu(const struct durable *d, const char *node, const char *uuid)
{
    CLEANUP(json_release) json_t *list = NULL;
    const struct node_record *r = find_node(d, node);
    struct err e;

    if (!r || !r->gpus || json_parse(r->gpus, strlen(r->gpus), 1 << 20, &list, &e))
        return GPU_SICK;
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *gpu = json_array_get(list, i);
        if (!strcmp(json_get_text(gpu, "uuid", ""), uuid))
            return json_get_bool(gpu, "lost", false)      ? GPU_LOST
                   : json_get_bool(gpu, "healthy", false) ? GPU_WELL
                                                          : GPU_SICK;
    }
    return GPU_SICK;
}

static void apply_spawn(struct sim *sim, const struct change *c)
{
    struct durable *d = &sim->durable;
    struct spawn_record *s = durable_spawn(d, c->spawn->job, c->spawn->spawn);

    if (c->kind == CHANGE_SPAWN_INSERT) {
        if (s)
            sim_fail(sim, "a spawn is inserted twice");
        if (d->adopting != c->spawn->job)
            rules_check_spawn(sim, c->spawn);
        APPEND(d->r.spawns, d->r.spawn_count, d->spawn_cap, spawn_record, c->spawn);
        return;
    }
    if (!s)
        MISSING("spawn");
    if ((s->dead && !c->spawn->dead) || (s->revoked && !c->spawn->revoked))
        sim_fail(sim, "spawn %" PRId64 "/%" PRId64 " was dead or revoked and is not any more", s->job,
                 s->spawn);
    spawn_record_release(s);
    spawn_record_copy(s, c->spawn);
}

static void apply_snapshot(struct sim *sim, const struct change *c)
{
    struct durable *d = &sim->durable;
    struct snapshot_record *s = find_snapshot(d, c->snapshot);
    const struct generation_record *g = durable_generation(d, c->snapshot->job, c->snapshot->generation);
    const struct job_record *job = durable_job(d, c->snapshot->job);

    bool may = g && job && g->number == job->generation &&
               (g->state == GENERATION_RUNNING || g->state == GENERATION_DRAINING);
    if (!may && d->adopting != c->snapshot->job)
        sim_fail(sim, "job %" PRId64 ": generation %" PRId64 " commits a snapshot, but may not",
                 c->snapshot->job, c->snapshot->generation);
    if (g && g->source_rank >= 0 && c->snapshot->step < g->source_step)
        sim_fail(sim,
                 "job %" PRId64 ": a snapshot of step %" PRId64
                 " in a generation that began with step %" PRId64,
                 c->snapshot->job, c->snapshot->step, g->source_step);
    if (s && strcmp(s->digest, c->snapshot->digest) != 0)
        sim_fail(sim, "job %" PRId64 ": two digests of step %" PRId64, s->job, s->step);
    if (!s) {
        APPEND(d->r.snapshots, d->r.snapshot_count, d->snapshot_cap, snapshot_record, c->snapshot);
        return;
    }
    snapshot_record_release(s);
    snapshot_record_copy(s, c->snapshot);
}

#define KEEP_OTHERS(array, count, kind, condition)                                                           \
    do {                                                                                                     \
        size_t kept_ = 0;                                                                                    \
        for (size_t i_ = 0; i_ < (count); i_++)                                                              \
            if ((array)[i_].condition)                                                                       \
                kind##_release(&(array)[i_]);                                                                \
            else                                                                                             \
                (array)[kept_++] = (array)[i_];                                                              \
        (count) = kept_;                                                                                     \
    } while (0)

static void clear_job(struct durable *d, int64_t id)
{
    const struct job_record *job = durable_job(d, id);

    if (job && job->state == JOB_STOPPING && (job->goal == JOB_CANCELLED || job->kill) &&
        d->stopped_count < ARRAY_LEN(d->stopped))
        d->stopped[d->stopped_count++] = id;
    KEEP_OTHERS(d->r.jobs, d->r.job_count, job_record, id == id);
    KEEP_OTHERS(d->r.generations, d->r.generation_count, generation_record, job == id);
    KEEP_OTHERS(d->r.ranks, d->r.rank_count, rank_record, job == id);
    KEEP_OTHERS(d->r.spawns, d->r.spawn_count, spawn_record, job == id);
    KEEP_OTHERS(d->r.snapshots, d->r.snapshot_count, snapshot_record, job == id);
}

static void apply_meta(struct durable *d, const struct change *c)
{
    if (!strcmp(c->name, "epoch"))
        d->epoch = c->id;
    else if (!strcmp(c->name, "restored"))
        d->r.age = (enum records_age)c->id;
    else if (!strcmp(c->name, "gap_from"))
        d->r.gap_from = c->id;
    else if (!strcmp(c->name, "gap_to"))
        d->r.gap_to = d->r.next_job = c->id;
}

static void apply_change(struct sim *sim, const struct change *c)
{
    switch (c->kind) {
    case CHANGE_JOB_INSERT:
    case CHANGE_JOB_PUT:
    case CHANGE_JOB_MOVE:
        apply_job(sim, c);
        break;
    case CHANGE_NODE_INSERT:
    case CHANGE_NODE_PUT:
    case CHANGE_NODE_MOVE:
    case CHANGE_NODE_DELETE:
        apply_node(sim, c);
        break;
    case CHANGE_GENERATION_INSERT:
    case CHANGE_GENERATION_PUT:
    case CHANGE_GENERATION_MOVE:
        apply_generation(sim, c);
        break;
    case CHANGE_GENERATION_DELETE:
        remove_generation(sim, c);
        break;
    case CHANGE_RANK_INSERT:
    case CHANGE_RANK_PUT:
    case CHANGE_RANK_MOVE:
        apply_rank(sim, c);
        break;
    case CHANGE_SPAWN_INSERT:
    case CHANGE_SPAWN_PUT:
        apply_spawn(sim, c);
        break;
    case CHANGE_SNAPSHOT_PUT:
        apply_snapshot(sim, c);
        break;
    case CHANGE_SNAPSHOT_DELETE:
        sim_fail(sim, "a snapshot of job %" PRId64 " is removed too early", c->snapshot->job);
        break;
    case CHANGE_EVENT:
        sim_say(sim, "  job %" PRId64 ": %s", c->event->job, c->event->text);
        break;
    case CHANGE_JOB_PROGRESS:
        apply_progress(sim, c);
        break;
    case CHANGE_JOB_FORGET:
    case CHANGE_LOST_NUMBER_REMOVED:
        sim_fail(sim, "job %" PRId64 " is removed too early", c->id);
        break;
    case CHANGE_USER_PUT:
    case CHANGE_USER_DELETE:
    case CHANGE_AUDIT:
        sim_fail(sim, "the core changed users or the audit log, which belong to the service");
        break;
    case CHANGE_JOB_CLEAR:
        clear_job(&sim->durable, c->id);
        break;
    case CHANGE_META:
        apply_meta(&sim->durable, c);
        break;
    case CHANGE_NOTICE: /* rules_check_told looks at it together with its event */
        break;
    }
}

void durable_apply(struct sim *sim, const struct change *changes, size_t count)
{
    bool spawned = false, noded = false, ranked = false;

    sim->durable.adopting = 0;
    sim->durable.stopped_count = 0;
    for (size_t i = 0; i < count && !sim->failed; i++) {
        apply_change(sim, &changes[i]);
        spawned |= changes[i].kind == CHANGE_SPAWN_INSERT;
        noded |= changes[i].kind == CHANGE_NODE_PUT;
        ranked |= changes[i].kind == CHANGE_RANK_INSERT || changes[i].kind == CHANGE_GENERATION_INSERT;
    }
    sim->durable.commits++;
    rules_check_stops(sim);
    handover_check(sim, changes, count);
    group_check_broken(sim, changes, count);
    stuck_check(sim, changes, count);
    rules_check_told(sim, changes, count);
    if (count)
        invariants_check_jobs(sim);
    if (ranked)
        invariants_check_memberships(sim);
    if (noded)
        invariants_check_lost_gpus(sim);
    /* After a restore, until all nodes are back, two records may name the same slot. */
    if (spawned && sim->durable.r.age == RECORDS_NEW)
        invariants_check_slots(sim);
}

void durable_release(struct durable *d)
{
    records_release(&d->r);
}

#define COPY_ALL(array, count, cap, kind)                                                                    \
    do {                                                                                                     \
        to->r.array = xcalloc(from->r.count + 1, sizeof(*to->r.array));                                      \
        for (size_t i_ = 0; i_ < from->r.count; i_++)                                                        \
            kind##_copy(&to->r.array[i_], &from->r.array[i_]);                                               \
        to->r.count = from->r.count;                                                                         \
        to->cap = from->r.count + 1;                                                                         \
    } while (0)

void durable_copy(struct durable *to, const struct durable *from)
{
    records_release(&to->r);
    *to = (struct durable){.epoch = from->epoch, .commits = from->commits};
    to->r.age = from->r.age;
    to->r.next_job = from->r.next_job;
    to->r.gap_from = from->r.gap_from;
    to->r.gap_to = from->r.gap_to;
    COPY_ALL(jobs, job_count, job_cap, job_record);
    COPY_ALL(nodes, node_count, node_cap, node_record);
    COPY_ALL(generations, generation_count, generation_cap, generation_record);
    COPY_ALL(ranks, rank_count, rank_cap, rank_record);
    COPY_ALL(spawns, spawn_count, spawn_cap, spawn_record);
    COPY_ALL(snapshots, snapshot_count, snapshot_cap, snapshot_record);
}
