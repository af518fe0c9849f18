/* Builds the wish of a node from the records: one group for each job with workers there. A wish is whole, so
 * nothing about earlier ones is remembered but the revision in which a spawn was first wished for. */
#include "daemon/coordinator/core/wish.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "daemon/coordinator/core/cards/card.h"
#include "daemon/coordinator/core/emit.h"
#include "daemon/coordinator/core/model.h"
#include "daemon/coordinator/core/snapshots/snapshots.h"
#include "daemon/coordinator/core/worker_asks.h"

bool wish_has_room(const struct node *node, const struct job *job)
{
    size_t bytes;

    if (node->spawn_count < WISH_REQUESTS / WISH_REQUEST)
        return true; /* it has fewer jobs than would fill it */
    bytes = job_request_bytes(job);
    for (size_t i = 0; i < node->spawn_count; i++) {
        const struct job *other = node->spawns[i]->job;
        size_t first = 0;
        if (other == job)
            return true;
        while (node->spawns[first]->job != other)
            first++;
        bytes += first == i ? job_request_bytes(other) : 0;
    }
    return bytes <= WISH_REQUESTS;
}

static struct core_wish_group *find_group(struct core_wish *wish, int64_t job)
{
    for (size_t i = 0; i < wish->group_count; i++)
        if (wish->groups[i].job == job)
            return &wish->groups[i];
    return NULL;
}

static void describe_group(const struct core *core, struct core_wish_group *group, const struct generation *g,
                           const struct node *node)
{
    group->generation = g->r.number;
    group->world_size = g->r.world_size;
    group->node_count = g->r.node_count;
    group->master_addr = g->r.master_addr;
    group->master_port = g->r.master_port;
    group->resume_path = g->job->spec.kind == JOB_COMMAND ? g->r.source_path : NULL;
    group->from_scratch = snapshots_from_scratch(core, g);
    group->local_world_size = 0;
    for (int i = 0; i < g->r.world_size; i++)
        if (!strcmp(g->ranks[i].r.node, node->r.name)) {
            group->local_world_size++;
            group->node_rank = g->ranks[i].r.node_rank;
        }
}

static struct core_wish_group *add_group(struct core_wish *wish, const struct job *job, size_t most_spawns)
{
    struct core_wish_group *group = &wish->groups[wish->group_count++];

    *group = (struct core_wish_group){
        .job = job->r.id,
        .kind = job->spec.kind,
        .name = job->r.name,
        .job_file = job->r.job_file,
        .user = job->r.user,
        .env = job->r.env,
        .lease_ms = job->spec.lease_ms,
        .grace_ms = job->spec.grace_ms,
        .stall_timeout_ms = job->spec.stall_timeout_ms,
        .restart_count = job->r.restarts_used,
        .max_restarts = job->spec.max_restarts,
        .stop_signal = job->r.stop_signal,
    };
    snprintf(group->run_id, sizeof(group->run_id), "ddp-%" PRId64, job->r.id);
    group->spawns = xcalloc(most_spawns, sizeof(*group->spawns));
    return group;
}

static void answer_worker(struct core_wish_spawn *out, const struct spawn *s)
{
    const struct generation *g = s->rank->generation;

    out->answer.commit = s->asked.commit;
    out->answer.error = s->asked.error;
    out->answer.stale = s->asked.stale;
    out->answer.allowed = s->asked.promise;
    out->answer.stop_step = g->r.stop_step;
    out->answer.agrees = g->stop == CORE_STOP_SNAPSHOT && (g->r.stop_step || worker_asks_heeded(g));
}

enum err_code core_wish(const struct core *core, const char *name, struct core_wish *out, struct err *e)
{
    const struct node *node = core_find_node(core, name);

    if (!node)
        return err_set(e, ERR_NOT_FOUND, "there is no node %s", name);
    *out = (struct core_wish){.epoch = core->config.epoch, .revision = node->revision};
    out->groups = xcalloc(node->spawn_count + 1, sizeof(*out->groups));
    for (size_t i = 0; i < node->spawn_count; i++) {
        const struct spawn *s = node->spawns[i];
        struct core_wish_group *group = find_group(out, s->r.job);
        if (!group)
            group = add_group(out, s->job, node->spawn_count);
        /* Workers of an older generation may still be stopping there. The group describes the newest. */
        if (s->rank->r.generation > group->generation)
            describe_group(core, group, s->rank->generation, node);
        group->spawns[group->spawn_count++] = (struct core_wish_spawn){
            .spawn = s->r.spawn,
            .generation = s->rank->r.generation,
            .rank = s->rank->r.rank,
            .local_rank = s->rank->r.local_rank,
            .first_generation = s->r.first_generation,
            .first_local_rank = s->r.first_local_rank,
            .cpu_slot = s->r.cpu_slot,
            .token = s->r.token,
            .gpu_uuids = s->r.gpu_uuids,
            /* the stop of its generation is for the members that do not go on */
            .stop = spawn_is_between(s) ? CORE_STOP_NONE
                    : s->killed         ? CORE_STOP_KILL
                                        : s->rank->generation->stop,
            .keep_only = s->doubtful,
        };
        if (s->job->spec.kind == JOB_COMMAND)
            answer_worker(&group->spawns[group->spawn_count - 1], s);
    }
    out->cards = xcalloc(node->card_count + 1, sizeof(*out->cards));
    for (size_t i = 0; i < node->card_count; i++) {
        const struct node_card *card = &node->cards[i];
        const struct job *job = core_find_job(core, card->job);
        if (!card->revision || !card_due(core, node, card))
            continue; /* the node has this card already, or a later wish brings it */
        out->cards[out->card_count++] = (struct core_wish_card){
            .job = card->job,
            .progress = job ? card_progress(job, node->r.name) : 0,
            .ended = !job || job_finished(job),
            .drop = !job,
        };
    }
    return ERR_OK;
}

void core_wish_release(struct core_wish *wish)
{
    for (size_t i = 0; i < wish->group_count; i++)
        free(wish->groups[i].spawns);
    free(wish->groups);
    free(wish->cards);
    *wish = (struct core_wish){0};
}

static void flush_node_wish(struct core *core, struct node *node)
{
    node->wish_dirty = false;
    node->revision = ++core->revision;
    /* from this revision on, facts that leave the spawn out mean that it does not exist */
    for (size_t i = 0; i < node->spawn_count; i++)
        if (!node->spawns[i]->wished_revision)
            node->spawns[i]->wished_revision = node->revision;
    card_offer(core, node);
    /* without a session the wish is sent when the node says hello */
    if (node->session)
        emit_wish(core, node);
}

void wish_flush(struct core *core)
{
    for (size_t i = 0; i < core->node_count; i++)
        if (core->nodes[i]->wish_dirty)
            flush_node_wish(core, core->nodes[i]);
}
