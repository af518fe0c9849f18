/* Committed snapshots: which process may commit, and which snapshot a generation starts from. Only a member
 * of the current generation may commit, so two generations can never both add to a job's history. A snapshot with
 * parts is committed when all ranks have called; until then they are told to call again. A generation starts from such a
 * snapshot only if none of its nodes lacks parts that it wrote (offered_parts.c). */
#include "daemon/coordinator/core/snapshots/snapshots.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "daemon/coordinator/core/emit.h"
#include "daemon/coordinator/core/internal_event.h"
#include "daemon/coordinator/core/model.h"
#include "daemon/coordinator/core/snapshots/offered_parts.h"
#include "daemon/coordinator/core/snapshots/pending_parts.h"

#define LINEAGE_DEPTH 100
#define KEEP 256 /* records of a job's snapshots; the files are the trainer's to keep or delete */

static struct snapshot_record *find_snapshot(const struct job *job, int64_t generation, int64_t step)
{
    for (size_t i = 0; i < job->snapshot_count; i++)
        if (job->snapshots[i].generation == generation && job->snapshots[i].step == step)
            return &job->snapshots[i];
    return NULL;
}

static bool snapshot_is_older(const struct snapshot_record *a, const struct snapshot_record *b)
{
    return a->generation != b->generation ? a->generation < b->generation : a->step < b->step;
}

const struct snapshot_record *snapshots_newest(const struct job *job)
{
    const struct snapshot_record *best = NULL;

    for (size_t i = 0; i < job->snapshot_count; i++) {
        const struct snapshot_record *s = &job->snapshots[i];
        if (s->generation > job->r.scratch_generation && (!best || snapshot_is_older(best, s)))
            best = s;
    }
    return best;
}

size_t core_committed_snapshots(const struct core *core, int64_t id, const struct snapshot_record **out,
                                size_t most)
{
    const struct job *job = core_find_job(core, id);
    size_t count = 0;

    for (size_t i = 0; job && i < job->snapshot_count; i++) {
        const struct snapshot_record *s = &job->snapshots[i];
        size_t at = count;
        while (at > 0 && snapshot_is_older(out[at - 1], s))
            at--;
        if (s->generation <= job->r.scratch_generation || at == most)
            continue;
        count += count < most;
        memmove(out + at + 1, out + at, (count - at - 1) * sizeof(struct snapshot_record *));
        out[at] = s;
    }
    return count;
}

/* The newest snapshot of the job, or else of the jobs that it continues. */
static const struct snapshot_record *newest_of_lineage(const struct core *core, const struct job *job)
{
    const struct job *of = job;

    for (int depth = 0; of && depth < LINEAGE_DEPTH; depth++) {
        const struct snapshot_record *newest = snapshots_newest(of);
        if (newest)
            return newest;
        if (of->r.scratch_generation)
            return NULL; /* the user began the job from scratch: what it continued does not count */
        of = of->r.continues ? core_find_job(core, of->r.continues) : NULL;
    }
    return NULL;
}

const struct snapshot_record *snapshots_expected(const struct core *core, const struct job *job)
{
    if (job->spec.kind != JOB_TRAIN || job->spec.train.resume == RESUME_NEVER)
        return NULL;
    return newest_of_lineage(core, job);
}

/* Fixed here, so that all ranks get the same path: one may commit before another has started. */
void snapshots_give_path(const struct core *core, struct generation *g)
{
    const struct snapshot_record *newest = newest_of_lineage(core, g->job);

    if (g->job->spec.kind != JOB_COMMAND || !newest)
        return;
    g->r.source_generation = newest->generation;
    g->r.source_step = newest->step;
    text_set(&g->r.source_path, "%s", newest->path);
}

bool snapshots_from_scratch(const struct core *core, const struct generation *g)
{
    const struct job *of = g->job;

    if (g->job->spec.kind != JOB_COMMAND || g->r.source_path)
        return false;
    for (int depth = 0; of && depth < LINEAGE_DEPTH; depth++) {
        /* The restart applies to later generations, not to the one that it ends. */
        if (of->r.scratch_generation && (of != g->job || g->r.number > of->r.scratch_generation))
            return true;
        of = of->r.continues ? core_find_job(core, of->r.continues) : NULL;
    }
    return false;
}

bool snapshots_source_older(const struct generation *g, const struct snapshot_record *expected)
{
    if (expected->job != g->r.job) /* generation numbers of different jobs cannot be compared */
        return g->r.source_step < expected->step;
    return g->r.source_generation != expected->generation ? g->r.source_generation < expected->generation
                                                          : g->r.source_step < expected->step;
}

bool snapshots_has_node(const struct snapshot_record *snapshot, const char *node)
{
    return names_contain(snapshot->nodes, node);
}

/* Takes the digest, the path and the bytes of all ranks. */
static struct snapshot_record *add_snapshot_of_parts(struct core *core, struct job *job)
{
    struct pending_parts *p = &job->parts;

    job->snapshots =
        array_grow(job->snapshots, job->snapshot_count, &job->snapshot_cap, sizeof(*job->snapshots));
    struct snapshot_record *snapshot = &job->snapshots[job->snapshot_count++];
    *snapshot = (struct snapshot_record){
        .job = job->r.id,
        .generation = p->generation,
        .step = p->step,
        .bytes = p->bytes,
        .committed_ms = core->now.wall_ms,
        .digest = steal(p->digest),
        .path = steal(p->path),
        .nodes = steal(p->nodes),
    };
    pending_parts_forget(job);
    return snapshot;
}

static struct snapshot_record *add_snapshot(struct job *job, const struct core_event *event, int64_t wall_ms)
{
    job->snapshots =
        array_grow(job->snapshots, job->snapshot_count, &job->snapshot_cap, sizeof(*job->snapshots));
    struct snapshot_record *snapshot = &job->snapshots[job->snapshot_count++];
    *snapshot = (struct snapshot_record){
        .job = job->r.id,
        .generation = event->snapshot.generation,
        .step = event->snapshot.step,
        .bytes = event->snapshot.bytes,
        .committed_ms = wall_ms,
        .digest = xstrdup(event->snapshot.digest),
        .path = xstrdup(event->snapshot.path),
    };
    return snapshot;
}

static void drop_oldest_snapshot(struct core *core, struct job *job)
{
    size_t oldest = 0;

    if (job->snapshot_count <= KEEP)
        return;
    for (size_t i = 1; i < job->snapshot_count; i++)
        if (snapshot_is_older(&job->snapshots[i], &job->snapshots[oldest]))
            oldest = i;
    emit_snapshot(core, &job->snapshots[oldest], CHANGE_SNAPSHOT_DELETE);
    snapshot_record_release(&job->snapshots[oldest]);
    job->snapshots[oldest] = job->snapshots[--job->snapshot_count];
}

static bool spawn_had_rank_in(const struct spawn *s, int64_t generation)
{
    const struct generation *g = job_find_generation(s->job, generation);

    for (int i = 0; g && i < g->r.world_size; i++)
        if (g->ranks[i].spawn == s)
            return true;
    return false;
}

static void keep_snapshot_record(struct core *core, struct job *job, struct snapshot_record *snapshot)
{
    emit_snapshot(core, snapshot, CHANGE_SNAPSHOT_PUT);
    drop_oldest_snapshot(core, job);
    job->changed = true;
}

static enum err_code check_commit(const struct core_event *event, const struct spawn *s,
                                  const struct snapshot_record *known, struct err *e)
{
    const char *digest = event->snapshot.digest, *path = event->snapshot.path;
    const struct generation *g = s->rank->generation; /* the newest one that has the caller */
    bool parts = event->snapshot.parts > 0;
    bool part_alone = parts && digest && !*digest; /* the caller did not write the shared files */
    bool same = known && digest && (part_alone || !strcmp(known->digest, digest));

    if (!digest || strlen(digest) > 128 || !path || strlen(path) > 4096 || event->snapshot.step < 0 ||
        (!part_alone && (!*digest || *path != '/')))
        return err_set(e, ERR_INVALID_ARGUMENT, "a snapshot needs a step, a digest and an absolute path");
    if (spawn_had_rank_in(s, event->snapshot.generation) && same &&
        (parts || snapshots_has_node(known, s->r.node)))
        return ERR_OK; /* the commit is repeated because its reply was lost, perhaps after the generation
                          ended */
    if (event->snapshot.generation != g->r.number || !spawn_is_member(s))
        return err_set(e, ERR_ABORTED,
                       "generation %" PRId64 " can no longer commit; the current generation is %" PRId64,
                       event->snapshot.generation, s->job->r.generation);
    if (g->r.state == GENERATION_FORMING || g->r.state == GENERATION_READY)
        return err_set(e, ERR_FAILED_PRECONDITION, "generation %" PRId64 " is not running yet", g->r.number);
    /* All ranks must commit the same bytes for a step. Different ones mean that their models have diverged.
     */
    if (known && !same)
        return err_set(e, ERR_FAILED_PRECONDITION, "step %" PRId64 " was committed with digest %s, not %s",
                       event->snapshot.step, known->digest, digest);
    return ERR_OK;
}

void snapshots_commit(struct core *core, const struct core_event *event)
{
    struct job *job = core_find_job(core, event->member.job);
    struct spawn *s = job ? job_find_spawn(job, event->member.spawn) : NULL;
    struct err e = {0};

    if (!s) {
        emit_fail(core, event->call, ERR_NOT_FOUND, "there is no spawn %" PRId64 " of job %" PRId64,
                  event->member.spawn, event->member.job);
        return;
    }
    if (job_may_lack_generation(job, event->snapshot.generation)) {
        emit_not_yet(core, event->call, job, event->snapshot.generation);
        return;
    }
    struct snapshot_record *known = find_snapshot(job, event->snapshot.generation, event->snapshot.step);
    if (check_commit(event, s, known, &e) != ERR_OK) {
        emit_fail(core, event->call, e.code, "%s", e.msg);
        return;
    }
    if (event->snapshot.parts) {
        bool complete = true;
        if (!known && pending_parts_take(job, s, event, &complete, &e)) {
            emit_fail(core, event->call, e.code, "%s", e.msg);
            return;
        }
        if (!complete) {
            struct core_effect *effect = emit_effect(core, EFFECT_REPLY);
            effect->call = event->call;
            effect->pending = true;
            return;
        }
        if (!known)
            keep_snapshot_record(core, job, add_snapshot_of_parts(core, job));
    } else {
        if (!known)
            known = add_snapshot(job, event, core->now.wall_ms);
        /* each node that has the files commits them; the records say where to look for them */
        if (!snapshots_has_node(known, s->r.node)) {
            known->nodes = strv_append(known->nodes, s->r.node);
            keep_snapshot_record(core, job, known);
        }
    }
    raise_snapshot_committed(core, s, event->snapshot.step);
    emit_ok(core, event->call);
}

/* A later commit of the same step replaces the earlier one. */
enum err_code snapshots_commit_path(struct core *core, struct spawn *s, const struct spawn_asks *asks,
                                    struct err *e)
{
    struct job *job = s->job;
    const int64_t generation = s->rank->r.generation;
    const struct snapshot_record *newest = snapshots_newest(job);

    if (!asks->path || *asks->path != '/' || strlen(asks->path) > 4096 || asks->step < 0)
        return err_set(e, ERR_INVALID_ARGUMENT, "a snapshot needs a step and an absolute path");
    if (!spawn_is_member(s))
        return err_set(e, ERR_ABORTED,
                       "generation %" PRId64 " can no longer commit; the current generation is %" PRId64,
                       generation, job->r.generation);
    if (newest && newest->generation == generation && newest->step > asks->step)
        return err_set(e, ERR_INVALID_ARGUMENT,
                       "step %" PRId64 " comes before step %" PRId64 ", which this generation has committed",
                       asks->step, newest->step);
    struct snapshot_record *known = find_snapshot(job, generation, asks->step);
    if (!known) {
        const struct core_event event = {
            .snapshot = {.generation = generation, .step = asks->step, .digest = "", .path = asks->path}};
        known = add_snapshot(job, &event, core->now.wall_ms);
    }
    text_set(&known->path, "%s", asks->path);
    known->bytes = asks->bytes;
    known->committed_ms = core->now.wall_ms;
    if (!snapshots_has_node(known, s->r.node))
        known->nodes = strv_append(known->nodes, s->r.node);
    keep_snapshot_record(core, job, known);
    raise_snapshot_committed(core, s, asks->step);
    return ERR_OK;
}

struct candidate {
    bool own; /* of this job, not of a job that it continues */
    int64_t generation, step;
};

static bool candidate_is_newer(const struct candidate *a, const struct candidate *b)
{
    if (a->own != b->own)
        return a->own; /* the job's own snapshots are newer than those of the job that it continued */
    if (!a->own && a->step != b->step)
        return a->step > b->step; /* generation numbers of different jobs cannot be compared */
    if (a->generation != b->generation)
        return a->generation > b->generation;
    return a->step > b->step;
}

/* Whether another user's job of this cluster wrote the snapshot. Submit compares the owners of directories, but only by their
 * names, and before all jobs that use them have run. */
static bool belongs_to_other(const struct core *core, const struct job *job, const struct core_offer *offer)
{
    const struct job *writer = core_find_job(core, offer->job);

    return writer && strcmp(writer->r.user ? writer->r.user : "", job->r.user ? job->r.user : "") != 0;
}

/* Whether an offer may be loaded: this job or one that it continues has committed it, by our records or by
 * the COMMITTED.json beside it. Fills `out`, with the generation of our records where they know the snapshot.
 */
static bool offer_is_admissible(const struct core *core, const struct job *job,
                                const struct core_offer *offer, struct candidate *out)
{
    const struct job *of = job;

    if (!*offer->digest)
        return false; /* a source without a digest is a state in memory */
    for (int depth = 0; of && depth < LINEAGE_DEPTH; depth++) {
        *out = (struct candidate){of == job, offer->generation, offer->step};
        for (size_t i = 0; i < of->snapshot_count; i++)
            if (of->snapshots[i].step == offer->step && !strcmp(of->snapshots[i].digest, offer->digest)) {
                out->generation = of->snapshots[i].generation;
                if (out->generation > of->r.scratch_generation)
                    return true;
            }
        if (offer->committed && offer->job == of->r.id && offer->generation > of->r.scratch_generation)
            return true;
        if (of->r.scratch_generation)
            return false; /* the user began from scratch: nothing before that counts */
        of = of->r.continues ? core_find_job(core, of->r.continues) : NULL;
    }
    /* With `resume: continue` the user wants whatever the directory holds, of any job of this user. (An operator's job that continues
     * another user's has it in its lineage.) The snapshots of other clusters and of removed jobs belong to nobody here. */
    *out = (struct candidate){false, offer->generation, offer->step};
    return offer->committed && job->spec.train.resume == RESUME_CONTINUE &&
           !belongs_to_other(core, job, offer);
}

/* Offers of one snapshot, which have one digest, are judged once: broken has those that are not whole. */
static bool offer_is_whole(const struct generation *g, const struct core_offer *offer, char ***broken)
{
    if (names_contain(*broken, offer->digest))
        return false;
    char **lacking = offered_parts_lacking(g, offer->digest);
    if (!lacking)
        return true;
    strv_free(lacking);
    *broken = strv_append(*broken, offer->digest);
    return false;
}

const struct core_offer *snapshots_choose(struct core *core, struct generation *g)
{
    struct candidate best = {0}, newest_refused = {0};
    const struct core_offer *refused = NULL;
    char **broken = NULL;

    g->r.source_rank = -1;
    if (g->job->spec.train.resume == RESUME_NEVER)
        return NULL;
    for (int rank = 0; rank < g->r.world_size; rank++) {
        const struct spawn *s = g->ranks[rank].spawn;
        for (size_t i = 0; i < s->offer_count; i++) {
            struct candidate c;
            /* Of equal candidates the lowest rank's stays, so the choice does not depend on the order of
             * joins. */
            if (!offer_is_admissible(core, g->job, &s->offers[i], &c) ||
                (g->r.source_rank >= 0 && !candidate_is_newer(&c, &best)))
                continue;
            if (!offer_is_whole(g, &s->offers[i], &broken)) {
                if (!refused || candidate_is_newer(&c, &newest_refused)) {
                    newest_refused = c;
                    refused = &s->offers[i];
                }
                continue;
            }
            best = c;
            g->r.source_rank = rank;
            g->r.source_generation = c.generation;
            g->r.source_step = c.step;
            text_set(&g->r.source_digest, "%s", s->offers[i].digest);
            free(g->r.source_path);
            g->r.source_path = xstrdup(s->offers[i].path);
        }
    }
    strv_free(broken);
    return refused && g->r.source_rank >= 0 && !candidate_is_newer(&newest_refused, &best) ? NULL : refused;
}
