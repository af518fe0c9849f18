#include "trainer/resume.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "trainer/engine/describe.h"
#include "trainer/engine/state.h"
#include "trainer/moments.h"
#include "trainer/resume_divided.h"
#include "trainer/resume_parts.h"
#include "trainer/snapshot/parts.h"

/* ---- what this rank could load */

/* Returns the snapshot's job number, or 0 if it belongs to another cluster. */
static int64_t offer_job(const struct trainer *t, const struct snapshot_found *f)
{
    return strcmp(f->cluster, link_place(t->link)->cluster) ? 0 : f->job;
}

#define OFFERS_MOST 64 /* of one Join: the coordinator refuses more */

/* One rank of each node offers the snapshots in snapshot.dir, because all ranks of the node see the same. The
 * coordinator chooses. Uncommitted snapshots of other clusters are not offered, since nobody can vouch for
 * them; nor does a standalone worker offer uncommitted ones, since it is never restarted. */
enum err_code resume_find(struct trainer *t, struct resume_offers *out, struct err *e)
{
    struct snapshot_list *found = &out->found;
    *out = (struct resume_offers){0};
    if (!t->snapshot_dir || t->config->local_rank != 0)
        return ERR_OK;
    if (snapshot_scan(t->snapshot_dir, found, e)) {
        if (!link_has_coordinator(t->link))
            return err_wrap(e, "snapshot.dir");
        /* The coordinator knows whether the job has snapshots there. */
        log_warn("snapshot_dir_unreadable", "why=%s", LOG_Q(e->msg));
        found->unusable = strv_append(found->unusable, e->msg);
        out->unreadable = *e;
        *e = (struct err){0};
    }
    if (t->spec->resume == RESUME_NEVER || (t->config->standalone && t->spec->resume == RESUME_AUTO))
        return ERR_OK;
    out->offers = xcalloc(found->count + 1, sizeof(*out->offers));
    /* Committed ones first: failed snapshots may be many, and only the coordinator knows whether one of them
     * counts after all. */
    for (int committed = 1; committed >= 0; committed--)
        for (size_t i = 0; i < found->count && out->count < OFFERS_MOST; i++) {
            const struct snapshot_found *f = &found->items[i];
            if (f->committed != committed || (!committed && (t->config->standalone || !offer_job(t, f))))
                continue;
            out->offers[out->count++] =
                (struct link_offer){offer_job(t, f), f->generation, f->step,      f->digest, f->path,
                                    f->committed,    (int)f->parts, f->elsewhere, f->divided};
        }
    return ERR_OK;
}

/* A run that starts from scratch beside another run's snapshots would sooner or later replace them. The
 * coordinator refuses this at submit for the snapshots that it knows; this check is for the others. */
enum err_code resume_check(const struct trainer *t, const struct resume_offers *o, struct err *e)
{
    const struct snapshot_list *found = &o->found;
    /* A start from scratch might ignore snapshots that cannot be seen. */
    if (o->unreadable.code && t->formation.info.source_rank < 0) {
        *e = o->unreadable;
        return err_wrap(e, "snapshot.dir");
    }
    if (t->spec->resume == RESUME_CONTINUE || t->formation.info.source_rank >= 0 ||
        t->formation.info.scratch_generation) /* the snapshots in the directory are moved aside later */
        return ERR_OK;
    for (size_t i = 0; i < found->count; i++) {
        const struct snapshot_found *f = &found->items[i];
        if (f->committed && (t->config->standalone || offer_job(t, f) != link_place(t->link)->job))
            return err_set(
                e, ERR_FAILED_PRECONDITION,
                "%s holds snapshots of another run (step %lld): to continue that run, use --set train.resume=continue; "
                "to start a new one, use --set train.snapshot.dir=%s2",
                t->spec->snapshot.dir, (long long)f->step, t->spec->snapshot.dir);
    }
    return ERR_OK;
}

void resume_take_source(struct trainer *t, const struct resume_offers *o)
{
    const struct link_group *info = &t->formation.info;
    t->source_unread = false;
    for (size_t i = 0; i < o->found.count && t->formation.rank == info->source_rank; i++)
        if (info->source.path && !strcmp(o->found.items[i].path, info->source.path))
            t->source_unread = !o->found.items[i].read;
}

void resume_release(struct resume_offers *o)
{
    snapshot_list_release(&o->found);
    free(o->offers);
}

/* ---- from another run's parameters, or the seed */

/* Rank 0 reads the parameters. All ranks get them, or all ranks get the same error. */
static enum err_code start_from_model(struct trainer *t, struct err *e)
{
    struct err found = {0};
    size_t count = t->engine.model->count;
    bool source = t->formation.rank == 0;
    float *params = source ? calloc(count, sizeof(float)) : NULL;
    if (source && !params)
        (void)err_set(&found, ERR_RESOURCE_EXHAUSTED, "a copy of the parameters: out of memory");
    if (params && describe_read_initial(&t->engine, params, &found))
        log_error("init_failed", "why=%s", LOG_Q(found.msg));
    enum err_code code = formation_agree(&t->formation, 0, &found, e);
    if (code == ERR_OK && source)
        t->engine.device->ops->upload(t->engine.device, t->engine.params.data, params, count * sizeof(float));
    if (code == ERR_OK)
        code = coll_broadcast_floats(t->formation.group, t->engine.params.data, count, 0, e);
    free(params);
    return code;
}

/* Every rank draws the same parameters. A billion take seconds, so this is done only if they are needed. */
static void start_from_seed(struct trainer *t)
{
    model_init(t->engine.model, t->engine.params.data, (uint64_t)t->spec->seed);
    if (t->formation.rank == 0)
        log_info("init", "seed=%lld", (long long)t->spec->seed);
}

static enum err_code start_fresh(struct trainer *t, struct err *e)
{
    if (t->spec->init_from && start_from_model(t, e))
        return e->code;
    if (!t->spec->init_from)
        start_from_seed(t);
    sync_start(t->formation.sync);
    t->engine.whole = true;
    return ERR_OK;
}

/* ---- from a snapshot without parts.json (all-reduce, or a world of one): one state. Earlier versions put the mean of
 * ranks that differ there, and the parts beside it. */

/* Host memory for a state, once it is needed. Only the ranks that read a file, or a part, need it. */
static enum err_code state_room(const struct trainer *t, float **state, struct err *e)
{
    if (!*state)
        *state = calloc(snapshot_floats(&t->engine.layout), sizeof(float));
    return *state ? ERR_OK : err_set(e, ERR_RESOURCE_EXHAUSTED, "a copy of the state: out of memory");
}

/* From the source's device to the others'. moments: also those of an optimizer that has all of them. */
static enum err_code state_spread(struct trainer *t, bool moments, struct err *e)
{
    struct state_array arrays[STATE_ARRAYS_MAX];
    size_t count = state_arrays(&t->engine, arrays);
    for (size_t i = 0; i < count; i++)
        if ((moments || arrays[i].data != t->engine.optim->state) &&
            coll_broadcast_floats(t->formation.group, arrays[i].data, arrays[i].count,
                                  t->formation.info.source_rank, e))
            return e->code;
    return t->engine.device->ops->wait(t->engine.device, e);
}

static enum err_code share_state(struct trainer *t, float *state, struct err *found, struct err *e)
{
    if (formation_agree(&t->formation, t->formation.info.source_rank, found, e))
        return e->code;
    return coll_broadcast(t->formation.group, state, state_bytes(&t->engine), t->formation.info.source_rank,
                          e);
}

/* apart: the moments are not in the shared files. */
static enum err_code restore_shared(struct trainer *t, const char *path, bool apart, float **state,
                                    struct err *e)
{
    bool source = t->formation.rank == t->formation.info.source_rank;
    struct err found = {0};
    if (source && (state_room(t, state, &found) || snapshot_read(path, &t->engine.layout, *state, &found)))
        log_error("snapshot_unreadable", "why=%s", LOG_Q(found.msg));
    if (formation_agree(&t->formation, t->formation.info.source_rank, &found, e))
        return e->code;
    if (source)
        state_in(&t->engine, *state);
    if (state_spread(t, !apart, e) || (!apart && t->engine.optim->part &&
                                       moments_spread(t, source ? *state + t->engine.model->count : NULL,
                                                      t->formation.info.source_rank, e)))
        return e->code;
    sync_start(t->formation.sync);
    return ERR_OK;
}

static enum err_code restore_same(struct trainer *t, const char *path, float **state, struct err *e)
{
    return restore_shared(t, path, false, state, e);
}

static enum err_code restore_old_parts(struct trainer *t, const char *path,
                                       const struct snapshot_place *place, float **room, struct err *e)
{
    bool source = t->formation.rank == t->formation.info.source_rank;
    struct sync_state round = {.steps = place->round_steps, .global_samples = place->round_samples};
    if (restore_same(t, path, room, e) || state_room(t, room, e)) /* the shared model */
        return e->code;
    float *state = *room;
    for (int r = 0; r < t->formation.world_size; r++) {
        struct err found = {0};
        int64_t samples = 0;
        if (source && snapshot_read_part(path, &t->engine.layout, r, state, &samples, &found))
            log_error("snapshot_unreadable", "why=%s", LOG_Q(found.msg));
        if (share_state(t, state, &found, e) ||
            coll_broadcast(t->formation.group, &samples, sizeof(samples), t->formation.info.source_rank, e))
            return e->code;
        /* All ranks take part in the broadcast of every part, but each keeps its own part only. */
        if (r != t->formation.rank)
            continue;
        state_in(&t->engine, state);
        round.local_samples = samples;
    }
    sync_load(t->formation.sync, &round);
    return ERR_OK;
}

/* Marks a snapshot that the coordinator has committed, if a crash came before COMMITTED.json was written. */
static void mark_committed(const struct trainer *t, const char *path)
{
    struct err e = {0};
    if (t->formation.rank == t->formation.info.source_rank && !t->formation.info.source.committed &&
        snapshot_mark_digest(path, t->formation.info.source.digest, &e))
        log_warn("snapshot_mark_failed", "why=%s", LOG_Q(e.msg));
}

static enum err_code restore_state(struct trainer *t, const char *path, const struct snapshot_place *place,
                                   float **state, struct err *e)
{
    struct snapshot_part *parts = NULL;
    struct err found = {0};
    int source = t->formation.info.source_rank;
    bool listed = false;
    if (t->formation.rank == source && place->parts && snapshot_parts_read(path, place, &parts, &found))
        log_error("snapshot_unreadable", "why=%s", LOG_Q(found.msg));
    listed = parts != NULL;
    enum err_code code = formation_agree(&t->formation, source, &found, e);
    if (!code)
        code = coll_broadcast(t->formation.group, &listed, sizeof(listed), source, e);
    if (!code && listed && !parts)
        parts = xcalloc((size_t)place->parts, sizeof(*parts));
    if (!code && listed)
        code = coll_broadcast(t->formation.group, parts, (size_t)place->parts * sizeof(*parts), source, e);
    if (!code && listed && place->divided)
        code =
            restore_shared(t, path, true, state, e) || restore_divided(t, place, parts, e) ? e->code : ERR_OK;
    else if (!code && listed)
        code = restore_same(t, path, state, e) || state_room(t, state, e)
                   ? e->code
                   : restore_parts(t, place, parts, *state, e);
    else if (!code && place->parts == t->formation.world_size && sync_ranks_differ(t->formation.sync) &&
             !sync_votes_each_step(t->formation.sync))
        code = restore_old_parts(t, path, place, state, e);
    else if (!code)
        code = restore_same(t, path, state, e);
    free(parts);
    return code;
}

static enum err_code restore_from(struct trainer *t, const char *path, float **state, struct err *e)
{
    struct snapshot_place place = {0};
    struct err found = {0};
    if (t->formation.rank == t->formation.info.source_rank &&
        ((t->source_unread && snapshot_check_digest(path, t->formation.info.source.digest, &found)) ||
         snapshot_read_place(path, &place, &found) || describe_check_dir(&t->engine, path, &found)))
        log_error("snapshot_unreadable", "why=%s", LOG_Q(found.msg));
    if (formation_agree(&t->formation, t->formation.info.source_rank, &found, e) ||
        coll_broadcast(t->formation.group, &place, sizeof(place), t->formation.info.source_rank, e))
        return e->code;
    if (state_check_data(&t->engine, &place, e))
        return e->code;
    state_take_place(&t->engine, &place);
    /* `warm` may be longer now than the run is. Ranks then go on together, as they do with all-reduce. */
    sync_at_step(t->formation.sync, t->engine.step, engine_total_steps(&t->engine));
    if (restore_state(t, path, &place, state, e))
        return e->code;
    t->engine.whole = true;
    /* Ranks that resume at different steps reach that step one after the other, and the snapshot is not of it. */
    t->last_snapshot_step = t->apart ? -1 : place.step;
    t->resumed = true;
    mark_committed(t, path);
    log_info("resumed", "rank=%d step=%lld epoch=%lld position=%lld from=%s", t->formation.rank,
             (long long)t->engine.step, (long long)t->engine.cursor.epoch,
             (long long)t->engine.cursor.position, LOG_Q(path ? path : "peer"));
    return ERR_OK;
}

enum err_code trainer_restore(struct trainer *t, struct err *e)
{
    if (t->formation.info.live)
        return ERR_OK; /* trainer_form has brought the state */
    if (t->formation.info.source_rank < 0)
        return start_fresh(t, e);
    float *state = NULL;
    enum err_code code = restore_from(t, t->formation.info.source.path, &state, e);
    free(state);
    /* A file was lost or damaged after this rank had offered it, or it was offered unread. The next generation reads all of
     * it, and the coordinator then chooses a snapshot that is whole. So this error must not end the job, as these codes do. */
    if (code == ERR_NOT_FOUND || code == ERR_DATA_LOSS)
        code = e->code = ERR_INTERNAL;
    if (code == ERR_INTERNAL && t->snapshot_dir && t->config->local_rank == 0)
        snapshot_note_failure(t->snapshot_dir, t->formation.info.source.path, e->msg);
    return code;
}
