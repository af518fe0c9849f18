#include "daemon/coordinator/core/model.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "daemon/coordinator/core/internal_event.h"
#include "daemon/coordinator/core/nodes/inventory.h"

struct job *core_find_job(const struct core *core, int64_t id)
{
    size_t low = 0, high = core->job_count;

    while (low < high) {
        size_t mid = (low + high) / 2;
        if (core->jobs[mid]->r.id < id)
            low = mid + 1;
        else
            high = mid;
    }
    return low < core->job_count && core->jobs[low]->r.id == id ? core->jobs[low] : NULL;
}

struct job *core_find_request(const struct core *core, const char *request_id)
{
    for (size_t i = core->job_count; i-- > 0;)
        if (!strcmp(core->jobs[i]->r.request_id, request_id))
            return core->jobs[i];
    return NULL;
}

static size_t find_node_index(const struct core *core, const char *name)
{
    size_t low = 0, high = core->node_count;

    while (low < high) {
        size_t mid = (low + high) / 2;
        if (strcmp(core->nodes[mid]->r.name, name) < 0)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

struct node *core_find_node(const struct core *core, const char *name)
{
    size_t at = find_node_index(core, name);
    return at < core->node_count && !strcmp(core->nodes[at]->r.name, name) ? core->nodes[at] : NULL;
}

struct generation *job_find_generation(const struct job *job, int64_t number)
{
    for (size_t i = job->generation_count; i-- > 0;)
        if (job->generations[i]->r.number == number)
            return job->generations[i];
    return NULL;
}

struct generation *job_current(const struct job *job)
{
    return job->generation_count ? job->generations[job->generation_count - 1] : NULL;
}

struct spawn *job_find_spawn(const struct job *job, int64_t number)
{
    size_t low = 0, high = job->spawn_count;

    while (low < high) {
        size_t mid = (low + high) / 2;
        if (job->spawns[mid]->r.spawn < number)
            low = mid + 1;
        else
            high = mid;
    }
    return low < job->spawn_count && job->spawns[low]->r.spawn == number ? job->spawns[low] : NULL;
}

bool core_generation_is_live(const struct generation_record *g)
{
    /* every snapshot has a digest */
    return g->source_rank >= 0 && !(g->source_digest && *g->source_digest);
}

bool generation_open(const struct generation *g)
{
    return !sm_terminal(&generation_sm, g->r.state);
}

bool generation_has_node(const struct generation *g, const char *node)
{
    for (int i = 0; i < g->r.world_size; i++)
        if (!strcmp(g->ranks[i].r.node, node))
            return true;
    return false;
}

bool generation_has_living(const struct generation *g)
{
    for (int i = 0; i < g->r.world_size; i++)
        if (g->ranks[i].spawn && rank_is_held(&g->ranks[i]) && !g->ranks[i].spawn->r.dead)
            return true;
    return false;
}

void rank_give(struct rank *rank, struct spawn *s)
{
    rank->spawn = s;
    if (s->rank && s->rank->generation->r.number >= rank->generation->r.number)
        return;
    s->rank = rank;
    s->samples = 0; /* its portion of another group; it reports that of the new one, if it has one */
    s->sample_ms = 0;
}

bool rank_is_held(const struct rank *rank)
{
    return rank->spawn->rank == rank;
}

bool spawn_is_member(const struct spawn *s)
{
    const struct generation *g = s->rank->generation;

    return !s->r.revoked && g == job_current(s->job) && generation_open(g);
}

bool spawn_is_between(const struct spawn *s)
{
    /* A command cannot change its generation: its process knows the first one by its environment only. */
    return !s->r.dead && !s->r.revoked && s->job->spec.kind == JOB_TRAIN &&
           (!generation_open(s->rank->generation) || s->job->handover.planned);
}

bool spawn_is_late(const struct spawn *s)
{
    return spawn_is_between(s) && !generation_open(s->rank->generation) &&
           generation_open(job_current(s->job));
}

size_t job_request_bytes(const struct job *job)
{
    size_t bytes = job->r.job_file ? strlen(job->r.job_file) + 1 : 0; /* NULL: only its place is looked for */

    for (char **entry = job->r.env; entry && *entry; entry++)
        bytes += strlen(*entry) + 1;
    return bytes;
}

bool job_finished(const struct job *job)
{
    return sm_terminal(&job_sm, job->r.state);
}

bool job_may_lack_generation(const struct job *job, int64_t generation)
{
    return job->held && generation > job->r.generation;
}

int64_t job_newest_generation(const struct job *job)
{
    int64_t newest = job->r.generation;

    for (size_t i = 0; i < job->spawn_count; i++)
        if (!job->spawns[i]->r.revoked && job->spawns[i]->named > newest)
            newest = job->spawns[i]->named;
    return newest;
}

bool job_keeps_state(const struct job *job)
{
    return job->spec.kind == JOB_TRAIN && job->spec.train.snapshot.dir &&
           job->spec.train.resume != RESUME_NEVER;
}

bool node_gone(const struct node *node)
{
    return node->r.state == NODE_LOST || node->r.state == NODE_LEFT;
}

bool spawn_reachable(const struct spawn *s)
{
    return !s->r.dead && s->node && !node_gone(s->node);
}

struct job *core_add_job(struct core *core, const struct job_record *record)
{
    struct job *job = xcalloc(1, sizeof(*job));
    size_t at = core->job_count;

    while (at > 0 && core->jobs[at - 1]->r.id >= record->id)
        at--;
    BUG_ON(at < core->job_count && core->jobs[at]->r.id == record->id);
    job_record_copy(&job->r, record);
    core->jobs = array_grow(core->jobs, core->job_count, &core->job_cap, sizeof(struct job *));
    memmove(core->jobs + at + 1, core->jobs + at, (core->job_count - at) * sizeof(*core->jobs));
    core->jobs[at] = job;
    core->job_count++;
    return job;
}

void spawn_drop_offers(struct spawn *s)
{
    for (size_t i = 0; i < s->offer_count; i++) {
        free((char *)s->offers[i].digest);
        free((char *)s->offers[i].path);
        free(s->elsewhere[i].list);
    }
    free(steal(s->offers));
    free(steal(s->elsewhere));
    strv_free(steal(s->unusable));
    s->offer_count = 0;
}

static void free_spawn(struct spawn *s)
{
    spawn_drop_offers(s);
    free(s->asked.error);
    spawn_record_release(&s->r);
    free(s);
}

void generation_free(struct generation *g)
{
    for (int i = 0; i < g->r.world_size; i++)
        rank_record_release(&g->ranks[i].r);
    free(g->ranks);
    name_table_release(&g->offer_nodes);
    generation_record_release(&g->r);
    free(g);
}

static void free_job(struct job *job)
{
    for (size_t i = 0; i < job->generation_count; i++)
        generation_free(job->generations[i]);
    for (size_t i = 0; i < job->spawn_count; i++)
        free_spawn(job->spawns[i]);
    for (size_t i = 0; i < job->snapshot_count; i++)
        snapshot_record_release(&job->snapshots[i]);
    free(job->generations);
    free(job->spawns);
    free(job->snapshots);
    free(job->waits);
    free(job->capture_note);
    strv_free(job->targets);
    strv_free(job->grow.nodes);
    free(job->handover.why);
    strv_free(job->handover.joining);
    strv_free(job->handover.leaving);
    free(job->handed.why);
    free(job->lost.said);
    strv_free(job->lost.found);
    strv_free(job->lost.lacks);
    strv_free(job->lost.avoid);
    for (size_t i = 0; i < job->left_out_count; i++) {
        free(job->left_out[i].node);
        free(job->left_out[i].why);
    }
    free(job->left_out);
    for (size_t i = 0; i < job->snapshot_fault_count; i++) {
        free(job->snapshot_faults[i].node);
        free(job->snapshot_faults[i].why);
    }
    free(job->snapshot_faults);
    free(job->went_back);
    free(job->parts.there);
    free(job->parts.digest);
    free(job->parts.path);
    strv_free(job->parts.nodes);
    job_release(&job->spec);
    job_record_release(&job->r);
    free(job);
}

static void drop_watchers(struct core *core, const struct job *job)
{
    size_t left = 0;

    for (size_t i = 0; i < core->watcher_count; i++)
        if (core->watchers[i].spawn->job != job)
            core->watchers[left++] = core->watchers[i];
    core->watcher_count = left;
}

void core_remove_job(struct core *core, struct job *job)
{
    size_t at = 0;

    drop_watchers(core, job);
    while (core->jobs[at] != job)
        at++;
    memmove(core->jobs + at, core->jobs + at + 1, (core->job_count - at - 1) * sizeof(*core->jobs));
    core->job_count--;
    for (size_t i = 0; !core->rehearses && i < job->spawn_count; i++)
        token_table_remove(&core->tokens, job->spawns[i]);
    free_job(job);
}

struct node *core_add_node(struct core *core, const struct node_record *record)
{
    size_t at = find_node_index(core, record->name);
    struct node *node = xcalloc(1, sizeof(*node));

    node_record_copy(&node->r, record);
    node->revision = ++core->revision;
    node->beat_ms = core->config.heartbeat_ms;
    node->silence_ms = core->config.node_timeout_ms;
    core->nodes = array_grow(core->nodes, core->node_count, &core->node_cap, sizeof(struct node *));
    memmove(core->nodes + at + 1, core->nodes + at, (core->node_count - at) * sizeof(*core->nodes));
    core->nodes[at] = node;
    core->node_count++;
    return node;
}

static void free_node(struct node *node)
{
    inventory_free(node);
    free(node->nccl);
    free(node->plugin);
    strv_free(node->accounts);
    node_record_release(&node->r);
    free(node->spawns);
    free(node->cards);
    free(node->reserved);
    free(node);
}

void core_remove_node(struct core *core, struct node *node)
{
    size_t at = find_node_index(core, node->r.name);

    BUG_ON(core->nodes[at] != node || node->spawn_count);
    memmove(core->nodes + at, core->nodes + at + 1, (core->node_count - at - 1) * sizeof(*core->nodes));
    core->node_count--;
    for (size_t i = 0; i < core->job_count; i++)
        for (size_t k = 0; k < core->jobs[i]->spawn_count; k++)
            if (core->jobs[i]->spawns[k]->node == node)
                core->jobs[i]->spawns[k]->node = NULL;
    free_node(node);
}

void node_expect(struct core *core, struct node *node)
{
    const int64_t counted = node->heard_ms + node->deaf_ms;
    const int64_t most = core->now.boot_ms - counted + core->config.node_timeout_ms;

    node->beat_ms = core->config.heartbeat_ms;
    if (node->silence_ms <= most)
        return;
    node->silence_ms = most;
    core_wake(core, counted + most * 3 / 4);
}

struct generation *job_add_generation(struct job *job, const struct generation_record *record)
{
    struct generation *g = xcalloc(1, sizeof(*g));

    BUG_ON(job->generation_count && job_current(job)->r.number >= record->number);
    generation_record_copy(&g->r, record);
    g->job = job;
    g->ranks = xcalloc((size_t)record->world_size, sizeof(*g->ranks));
    for (int i = 0; i < record->world_size; i++)
        g->ranks[i].generation = g;
    job->generations = array_grow(job->generations, job->generation_count, &job->generation_cap,
                                  sizeof(struct generation *));
    job->generations[job->generation_count++] = g;
    return g;
}

struct spawn *job_add_spawn(struct core *core, struct job *job, const struct spawn_record *record)
{
    struct spawn *s = xcalloc(1, sizeof(*s));

    BUG_ON(job->spawn_count && job->spawns[job->spawn_count - 1]->r.spawn >= record->spawn);
    spawn_record_copy(&s->r, record);
    s->asked.commit = record->last_commit;
    s->job = job;
    s->node = core_find_node(core, record->node);
    job->spawns = array_grow(job->spawns, job->spawn_count, &job->spawn_cap, sizeof(struct spawn *));
    job->spawns[job->spawn_count++] = s;
    if (!core->rehearses) /* the spawns of a rehearsal all have the same token, and nobody looks for it */
        token_table_add(&core->tokens, s);
    if (!s->r.dead && s->node) {
        struct node *node = s->node;
        node->spawns = array_grow(node->spawns, node->spawn_count, &node->spawn_cap, sizeof(struct spawn *));
        node->spawns[node->spawn_count++] = s;
        if (node->spawn_count == 1) {
            core->busy_count++;
            node_expect(core, node); /* the wish makes its agent send a heartbeat at once */
        }
        node->wish_dirty = true;
        node_add_card(node, s->r.job); /* the node may run a spawn of the job */
    }
    return s;
}

struct node_card *node_find_card(const struct node *node, int64_t job)
{
    for (size_t i = 0; i < node->card_count; i++)
        if (node->cards[i].job == job)
            return &node->cards[i];
    return NULL;
}

struct node_card *node_add_card(struct node *node, int64_t job)
{
    struct node_card *card = node_find_card(node, job);

    if (card)
        return card;
    node->cards = array_grow(node->cards, node->card_count, &node->card_cap, sizeof(*node->cards));
    node->cards[node->card_count] = (struct node_card){.job = job, .acked = -1};
    return &node->cards[node->card_count++];
}

void node_drop_spawn(struct core *core, struct node *node, const struct spawn *spawn)
{
    size_t at = 0;

    while (at < node->spawn_count && node->spawns[at] != spawn)
        at++;
    BUG_ON(at == node->spawn_count);
    memmove(node->spawns + at, node->spawns + at + 1, (node->spawn_count - at - 1) * sizeof(*node->spawns));
    node->spawn_count--;
    core->busy_count -= node->spawn_count == 0;
    node->wish_dirty = true;
}

bool names_contain(char *const *names, const char *name)
{
    for (; names && *names; names++)
        if (!strcmp(*names, name))
            return true;
    return false;
}

void core_capacity_changed(struct core *core)
{
    core->placement_due = true;
    core->queue_revision++;
}

void core_await_nodes(struct core *core)
{
    for (size_t i = 0; i < core->node_count; i++)
        core->nodes[i]->return_by = core->now.boot_ms + core->config.return_ms;
}

void core_wake(struct core *core, int64_t at)
{
    if (at > 0 && at < core->wake_at)
        core->wake_at = at;
}

void core_free(struct core *core)
{
    if (!core)
        return;
    for (size_t i = 0; i < core->job_count; i++)
        free_job(core->jobs[i]);
    for (size_t i = 0; i < core->node_count; i++)
        free_node(core->nodes[i]);
    token_table_release(&core->tokens);
    free(core->jobs);
    free(core->nodes);
    free(core->sessions);
    free(core->watchers);
    free(core->removed);
    for (size_t i = core->internal_first; i < core->internal_count; i++)
        internal_event_release(&core->internal[i]);
    free(core->internal);
    free(core);
}
