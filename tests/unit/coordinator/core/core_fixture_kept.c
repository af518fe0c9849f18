#include "tests/unit/coordinator/core/core_fixture_kept.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

#define KEEP(array, count, cap, kind, fresh, same)                                                           \
    do {                                                                                                     \
        size_t at_ = 0;                                                                                      \
        while (at_ < (count) && !(same))                                                                     \
            at_++;                                                                                           \
        if (at_ < (count)) {                                                                                 \
            kind##_release(&(array)[at_]);                                                                   \
        } else {                                                                                             \
            (array) = array_grow((array), (count), &(cap), sizeof(*(array)));                                \
            (count)++;                                                                                       \
        }                                                                                                    \
        kind##_copy(&(array)[at_], fresh);                                                                   \
    } while (0)

static void keep_move(struct records *r, const struct change *c)
{
    for (size_t i = 0; c->kind == CHANGE_JOB_MOVE && i < r->job_count; i++)
        if (r->jobs[i].id == c->id)
            r->jobs[i].state = (enum job_state)c->to;
    for (size_t i = 0; c->kind == CHANGE_NODE_MOVE && i < r->node_count; i++)
        if (!strcmp(r->nodes[i].name, c->name))
            r->nodes[i].state = (enum node_state)c->to;
    for (size_t i = 0; c->kind == CHANGE_GENERATION_MOVE && i < r->generation_count; i++)
        if (r->generations[i].job == c->id && r->generations[i].number == c->generation_number)
            r->generations[i].state = (enum generation_state)c->to;
    for (size_t i = 0; c->kind == CHANGE_RANK_MOVE && i < r->rank_count; i++)
        if (r->ranks[i].job == c->id && r->ranks[i].generation == c->generation_number &&
            r->ranks[i].rank == c->rank_number)
            r->ranks[i].state = (enum rank_state)c->to;
}

#define KEEP_OTHERS(array, count, kind, same)                                                                \
    do {                                                                                                     \
        size_t kept_ = 0;                                                                                    \
        for (size_t at_ = 0; at_ < (count); at_++) {                                                         \
            if (same)                                                                                        \
                kind##_release(&(array)[at_]);                                                               \
            else                                                                                             \
                (array)[kept_++] = (array)[at_];                                                             \
        }                                                                                                    \
        (count) = kept_;                                                                                     \
    } while (0)

static void kept_job_forget(struct records *r, int64_t job)
{
    KEEP_OTHERS(r->jobs, r->job_count, job_record, r->jobs[at_].id == job);
    KEEP_OTHERS(r->generations, r->generation_count, generation_record, r->generations[at_].job == job);
    KEEP_OTHERS(r->ranks, r->rank_count, rank_record, r->ranks[at_].job == job);
    KEEP_OTHERS(r->spawns, r->spawn_count, spawn_record, r->spawns[at_].job == job);
    KEEP_OTHERS(r->snapshots, r->snapshot_count, snapshot_record, r->snapshots[at_].job == job);
}

static void keep_change(struct core_fixture *f, const struct change *c)
{
    struct records *r = &f->kept;

    switch (c->kind) {
    case CHANGE_JOB_INSERT:
        if (r->next_job <= c->job->id)
            r->next_job = c->job->id + 1;
        /* fall through */
    case CHANGE_JOB_PUT:
        KEEP(r->jobs, r->job_count, f->job_cap, job_record, c->job, r->jobs[at_].id == c->job->id);
        break;
    case CHANGE_NODE_INSERT:
    case CHANGE_NODE_PUT:
        KEEP(r->nodes, r->node_count, f->node_cap, node_record, c->node,
             !strcmp(r->nodes[at_].name, c->node->name));
        break;
    case CHANGE_NODE_DELETE:
        for (size_t i = 0; i < r->node_count; i++)
            if (!strcmp(r->nodes[i].name, c->name)) {
                node_record_release(&r->nodes[i]);
                r->nodes[i] = r->nodes[--r->node_count];
            }
        break;
    case CHANGE_GENERATION_INSERT:
    case CHANGE_GENERATION_PUT:
        KEEP(r->generations, r->generation_count, f->generation_cap, generation_record, c->generation,
             r->generations[at_].job == c->generation->job &&
                 r->generations[at_].number == c->generation->number);
        break;
    case CHANGE_GENERATION_DELETE:
        for (size_t i = r->generation_count; i-- > 0;)
            if (r->generations[i].job == c->id && r->generations[i].number == c->generation_number) {
                generation_record_release(&r->generations[i]);
                r->generation_count--;
                memmove(&r->generations[i], &r->generations[i + 1],
                        (r->generation_count - i) * sizeof(*r->generations));
            }
        for (size_t i = r->rank_count; i-- > 0;)
            if (r->ranks[i].job == c->id && r->ranks[i].generation == c->generation_number) {
                rank_record_release(&r->ranks[i]);
                r->rank_count--;
                memmove(&r->ranks[i], &r->ranks[i + 1], (r->rank_count - i) * sizeof(*r->ranks));
            }
        break;
    case CHANGE_RANK_INSERT:
    case CHANGE_RANK_PUT:
        KEEP(r->ranks, r->rank_count, f->rank_cap, rank_record, c->rank,
             r->ranks[at_].job == c->rank->job && r->ranks[at_].generation == c->rank->generation &&
                 r->ranks[at_].rank == c->rank->rank);
        break;
    case CHANGE_SPAWN_INSERT:
    case CHANGE_SPAWN_PUT:
        KEEP(r->spawns, r->spawn_count, f->spawn_cap, spawn_record, c->spawn,
             r->spawns[at_].job == c->spawn->job && r->spawns[at_].spawn == c->spawn->spawn);
        break;
    case CHANGE_SNAPSHOT_PUT:
        KEEP(r->snapshots, r->snapshot_count, f->snapshot_cap, snapshot_record, c->snapshot,
             r->snapshots[at_].job == c->snapshot->job && r->snapshots[at_].step == c->snapshot->step &&
                 r->snapshots[at_].generation == c->snapshot->generation);
        break;
    case CHANGE_SNAPSHOT_DELETE:
        for (size_t i = 0; i < r->snapshot_count; i++)
            if (r->snapshots[i].job == c->snapshot->job && r->snapshots[i].step == c->snapshot->step &&
                r->snapshots[i].generation == c->snapshot->generation) {
                snapshot_record_release(&r->snapshots[i]);
                r->snapshots[i] = r->snapshots[--r->snapshot_count];
            }
        break;
    case CHANGE_EVENT: {
        char *longer = xasprintf("%s%s\n", f->events, c->event->text);
        free(f->events);
        f->events = longer;
        break;
    }
    case CHANGE_JOB_PROGRESS:
        for (size_t i = 0; i < r->job_count; i++)
            if (r->jobs[i].id == c->id) {
                free(r->jobs[i].progress);
                r->jobs[i].progress = xstrdup(c->text);
            }
        break;
    case CHANGE_JOB_FORGET:
        kept_job_forget(r, c->id);
        break;
    case CHANGE_LOST_NUMBER_REMOVED:
        r->removed = array_grow(r->removed, r->removed_count, &f->removed_cap, sizeof(*r->removed));
        r->removed[r->removed_count++] = c->id;
        break;
    case CHANGE_META:
        if (!strcmp(c->name, "restored"))
            r->age = (enum records_age)c->id;
        if (!strcmp(c->name, "gap_from"))
            r->gap_from = c->id;
        if (!strcmp(c->name, "clock_ms"))
            r->clock_ms = c->id;
        if (!strcmp(c->name, "gap_to"))
            r->gap_to = r->next_job = c->id;
        break;
    default:
        keep_move(r, c);
    }
}

void fixture_keep_changes(struct core_fixture *f)
{
    for (; f->kept_from < f->out.change_count; f->kept_from++)
        keep_change(f, &f->out.changes[f->kept_from]);
}
