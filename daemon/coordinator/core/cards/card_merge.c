/* Merges our records of a job with those of a card; adopt.c says when. */
#include "daemon/coordinator/core/cards/card_merge.h"

#include <stdlib.h>
#include <string.h>

#include "base/job/job.h"
#include "base/mem.h"
#include "daemon/coordinator/core/cards/card.h"
#include "daemon/coordinator/core/model.h"

static const struct rank_record *records_rank(const struct records *r, int64_t generation, int rank)
{
    for (size_t i = 0; i < r->rank_count; i++)
        if (r->ranks[i].generation == generation && r->ranks[i].rank == rank)
            return &r->ranks[i];
    return NULL;
}

const struct spawn_record *card_merge_find_spawn(const struct records *r, int64_t spawn)
{
    for (size_t i = 0; i < r->spawn_count; i++)
        if (r->spawns[i].spawn == spawn)
            return &r->spawns[i];
    return NULL;
}

static const struct generation_record *records_generation(const struct records *r, int64_t number)
{
    for (size_t i = 0; i < r->generation_count; i++)
        if (r->generations[i].number == number)
            return &r->generations[i];
    return NULL;
}

static bool generation_is_whole(const struct records *r, const struct generation_record *g)
{
    for (int i = 0; i < g->world_size; i++) {
        const struct rank_record *rank = records_rank(r, g->number, i);
        const struct spawn_record *spawn = rank ? card_merge_find_spawn(r, rank->spawn) : NULL;
        if (!spawn || spawn->first_generation > g->number || !spawn->node || !rank->node)
            return false;
    }
    return g->world_size > 0;
}

bool card_merge_is_sound(const struct records *card)
{
    const struct job_record *job = card->jobs;
    struct job_spec spec = {0};
    struct err e;

    if (card->job_count != 1 || job->id < 1 || !job->request_id || !job->job_file || !job->name)
        return false;
    if (job->generation && !records_generation(card, job->generation))
        return false;
    for (size_t i = 0; i < card->generation_count; i++)
        if (!generation_is_whole(card, &card->generations[i]))
            return false;
    bool parsed = job_parse(&spec, job->job_file, strlen(job->job_file), "job file", &e) == ERR_OK;
    job_release(&spec);
    return parsed;
}

static int64_t records_stage(const struct records *r)
{
    return card_stage(r->jobs, records_generation(r, r->jobs[0].generation));
}

static bool ranks_differ_in_spawn(const struct records *ours, const struct rank_record *own,
                                  const struct records *card, const struct rank_record *theirs)
{
    return own->spawn != theirs->spawn || memcmp(card_merge_find_spawn(ours, own->spawn)->token,
                                                 card_merge_find_spawn(card, theirs->spawn)->token,
                                                 sizeof(((struct spawn_record *)0)->token)) != 0;
}

/* Whether a generation of this number was formed twice: once by the lost records, and once again by us. They
 * cannot be merged. All ranks are compared: some spawns may have been members of both, since they have
 * outlived the generation before. */
bool card_merge_has_forked(const struct records *ours, const struct records *card)
{
    for (size_t i = 0; i < card->generation_count; i++) {
        const struct generation_record *theirs = &card->generations[i];
        const struct generation_record *own = records_generation(ours, theirs->number);
        if (!own)
            continue;
        /* the same spawns may even hold the same ranks in both, but at another time */
        if (own->world_size != theirs->world_size || own->created_ms != theirs->created_ms)
            return true;
        for (int rank = 0; rank < own->world_size; rank++)
            if (ranks_differ_in_spawn(ours, records_rank(ours, own->number, rank), card,
                                      records_rank(card, own->number, rank)))
                return true;
    }
    return false;
}

/* A tune changes the job file within a stage, so the stage does not tell whose file is the later one: the revision does. */
static void merge_revisions(struct job_record *out, const struct job_record *ours,
                            const struct job_record *card)
{
    if (ours->revision != card->revision) {
        const struct job_record *later = ours->revision > card->revision ? ours : card;
        free(out->job_file);
        out->job_file = xstrdup(later->job_file);
        out->revision = later->revision;
        out->revision_used = later->revision_used;
    } else if (out->revision_used < ours->revision_used) {
        out->revision_used = ours->revision_used;
    } else if (out->revision_used < card->revision_used) {
        out->revision_used = card->revision_used;
    }
}

static void merge_job(struct job_record *out, const struct job_record *ours, const struct job_record *card,
                      bool newer)
{
    job_record_copy(out, newer ? card : ours);
    if (!ours || !card)
        return;
    if (out->next_spawn < ours->next_spawn)
        out->next_spawn = ours->next_spawn;
    if (out->next_spawn < card->next_spawn)
        out->next_spawn = card->next_spawn;
    if (out->restarts_used < ours->restarts_used)
        out->restarts_used = ours->restarts_used;
    if (out->generation <
        ours->generation) /* we had formed a later generation before the card said that the job has ended */
        out->generation = ours->generation;
    merge_revisions(out, ours, card);
}

static void append_generation(struct records *out, const struct records *from,
                              const struct generation_record *g)
{
    generation_record_copy(&out->generations[out->generation_count++], g);
    for (int i = 0; i < g->world_size; i++)
        rank_record_copy(&out->ranks[out->rank_count++], records_rank(from, g->number, i));
}

/* The card knows a later generation than this one, so this one has ended. */
static void close_superseded(struct generation_record *g, int64_t now)
{
    if (sm_terminal(&generation_sm, g->state))
        return;
    g->state = GENERATION_CLOSED;
    g->closed_ms = now;
    free(g->reason);
    g->reason = xstrdup("ended after the backup");
}

static int compare_generations(const void *a, const void *b)
{
    const struct generation_record *x = a, *y = b;

    return (x->number > y->number) - (x->number < y->number);
}

static void merge_generations(struct records *out, const struct records *ours, const struct records *card,
                              bool newer, int64_t now)
{
    for (size_t i = 0; i < ours->generation_count; i++) {
        const struct generation_record *own = &ours->generations[i],
                                       *theirs = records_generation(card, own->number);
        /* Of two records of one generation that of the newer side counts. But a generation that either side calls ended has
         * ended: a side may be newer only because its job is stopping. */
        const bool own_ended = sm_terminal(&generation_sm, (int)own->state);
        const bool their_end = theirs && sm_terminal(&generation_sm, (int)theirs->state);
        const bool take = theirs && (their_end == own_ended ? newer : their_end);
        append_generation(out, take ? card : ours, take ? theirs : own);
        if (newer && !theirs)
            close_superseded(&out->generations[out->generation_count - 1], now);
    }
    for (size_t i = 0; newer && i < card->generation_count; i++)
        if (!records_generation(ours, card->generations[i].number))
            append_generation(out, card, &card->generations[i]);
    if (out->generation_count)
        qsort(out->generations, out->generation_count, sizeof(*out->generations), compare_generations);
}

static void record_spawn_lost(struct spawn_record *s, int64_t now)
{
    s->lost = true;
    if (!s->ended_ms)
        s->ended_ms = now;
    if (!s->message)
        s->message = xstrdup("ended after the backup");
}

/* The newest generation that has the spawn as a member; 0: none. */
static int64_t newest_generation_of(const struct records *r, int64_t spawn)
{
    int64_t newest = 0;

    for (size_t i = 0; i < r->rank_count; i++)
        if (r->ranks[i].spawn == spawn && r->ranks[i].generation > newest)
            newest = r->ranks[i].generation;
    return newest;
}

/* The ranks that a dead spawn held last have ended with it. In the generations before, its rank keeps the
 * state in which the spawn went on. */
static void settle_record_ranks(struct records *out)
{
    for (size_t i = 0; i < out->rank_count; i++) {
        struct rank_record *rank = &out->ranks[i];
        const struct spawn_record *s = card_merge_find_spawn(out, rank->spawn);
        if (s->dead && !sm_terminal(&rank_sm, rank->state) &&
            newest_generation_of(out, s->spawn) == rank->generation)
            rank->state = s->lost ? RANK_LOST : RANK_EXITED;
    }
}

/* Death is final: a worker that either side calls dead is dead. A newer card has every living worker of the
 * generations that it knows, so a worker that is missing there is dead as well. */
static void merge_spawns(struct records *out, const struct records *ours, const struct records *card,
                         bool newer, int64_t now)
{
    for (size_t i = 0; i < ours->spawn_count; i++) {
        const struct spawn_record *own = &ours->spawns[i], *theirs = card_merge_find_spawn(card, own->spawn);
        struct spawn_record *s = &out->spawns[out->spawn_count++];
        bool take = theirs && !own->dead && (newer || theirs->dead);
        bool over = newer && !theirs && newest_generation_of(ours, own->spawn) <= card->jobs[0].generation;
        spawn_record_copy(s, take ? theirs : own);
        if (!own->dead && over)
            record_spawn_lost(s, now);
        s->dead = own->dead || (theirs ? theirs->dead : over);
        s->revoked = s->dead || own->revoked || (theirs && theirs->revoked);
        if (theirs) /* the snapshots of both sides are kept */
            s->last_commit = own->last_commit > theirs->last_commit ? own->last_commit : theirs->last_commit;
    }
    for (size_t i = 0; newer && i < card->spawn_count; i++)
        if (!card_merge_find_spawn(ours, card->spawns[i].spawn))
            spawn_record_copy(&out->spawns[out->spawn_count++], &card->spawns[i]);
    if (out->spawn_count)
        qsort(out->spawns, out->spawn_count, sizeof(*out->spawns), card_compare_spawns);
    settle_record_ranks(out);
}

void card_merge_end_spawn(struct records *merged, struct spawn_record *s, int64_t now_ms)
{
    record_spawn_lost(s, now_ms);
    s->dead = s->revoked = true;
    settle_record_ranks(merged);
}

static bool records_have_snapshot(const struct records *r, const struct snapshot_record *s)
{
    for (size_t i = 0; i < r->snapshot_count; i++)
        if (r->snapshots[i].generation == s->generation && r->snapshots[i].step == s->step)
            return true;
    return false;
}

static void merge_snapshots(struct records *out, const struct records *from)
{
    for (size_t i = 0; i < from->snapshot_count; i++)
        if (!records_have_snapshot(out, &from->snapshots[i]))
            snapshot_record_copy(&out->snapshots[out->snapshot_count++], &from->snapshots[i]);
}

void card_merge(struct records *out, const struct records *ours, const struct records *card, int64_t now)
{
    bool newer = !ours->job_count || records_stage(card) > records_stage(ours);

    *out = (struct records){0};
    out->jobs = xcalloc(1, sizeof(*out->jobs));
    out->generations =
        xcalloc(ours->generation_count + card->generation_count + 1, sizeof(*out->generations));
    out->ranks = xcalloc(ours->rank_count + card->rank_count + 1, sizeof(*out->ranks));
    out->spawns = xcalloc(ours->spawn_count + card->spawn_count + 1, sizeof(*out->spawns));
    out->snapshots = xcalloc(ours->snapshot_count + card->snapshot_count + 1, sizeof(*out->snapshots));
    out->job_count = 1;
    merge_job(out->jobs, ours->jobs, card->jobs, newer);
    merge_generations(out, ours, card, newer, now);
    merge_spawns(out, ours, card, newer, now);
    merge_snapshots(out, ours);
    merge_snapshots(out, card);
}
