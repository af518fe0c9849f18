/* If all ranks have the same state (all-reduce, or a world of one), a snapshot is that state. If each rank
 * has a state of its own (parameters until the round ends, moments even then), all states are broadcast to
 * the writers, which write them beside the shared model and the mean of the moments. */
#include "trainer/keep.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "trainer/engine/state.h"
#include "trainer/member/link/commit.h"
#include "trainer/member/link/watch.h"
#include "trainer/progress.h"

/* ---- who writes: rank 0, and where snapshot.dir is not shared the first rank of every other node */

static enum err_code choose_writer(struct trainer *t, bool *writer, struct err *e)
{
    CLEANUP(free_text)
    char *mark = xasprintf("%s/.shared-j%lld-g%lld", t->snapshot_dir, (long long)link_place(t->link)->job,
                           (long long)t->formation.info.generation);
    *writer = t->formation.rank == 0;
    if (t->formation.rank == 0 &&
        (file_mkdirs(t->snapshot_dir, 0755, e) || file_write_atomic(mark, "", 0, 0644, e)))
        return err_wrap(e, "snapshot.dir");
    if (coll_barrier(t->formation.group, e))
        return e->code;
    if (t->formation.rank != 0 && t->config->local_rank == 0)
        *writer = !file_exists(mark);
    if (coll_barrier(t->formation.group, e))
        return e->code;
    if (t->formation.rank == 0)
        unlink(mark);
    return ERR_OK;
}

static enum err_code commit_snapshot(void *arg, const struct snapshot_place *place,
                                     const struct snapshot_files *files, struct err *e)
{
    struct trainer *t = arg;
    struct link_snapshot s = {
        .step = place->step, .bytes = files->bytes, .digest = files->digest, .path = files->path};
    return link_commit_snapshot(t->link, &s, e);
}

static void tell_failed_snapshot(void *arg, const struct snapshot_place *place, const struct err *why)
{
    const struct trainer *t = arg;
    link_snapshot_failure(t->link, place->step, why);
}

/* If the user restarted the job from scratch, moves its former snapshots to another directory. */
static enum err_code set_aside(const struct trainer *t, struct err *e)
{
    struct snapshot_place own = {.job = link_place(t->link)->job};
    if (!t->formation.info.scratch_generation)
        return ERR_OK;
    snprintf(own.cluster, sizeof(own.cluster), "%s", link_place(t->link)->cluster);
    return snapshot_set_aside(t->snapshot_dir, &own, t->formation.info.scratch_generation, e);
}

enum err_code keep_open(struct trainer *t, struct err *e)
{
    bool writer = false;
    /* Ranks that write no snapshots broadcast their state, too, from a copy in host memory. */
    if (sync_ranks_differ(t->formation.sync)) {
        t->scratch = calloc(snapshot_floats(&t->engine.layout), sizeof(float));
        if (!t->scratch)
            return err_set(e, ERR_RESOURCE_EXHAUSTED,
                           "a copy of one rank's state (%zu floats): out of memory",
                           snapshot_floats(&t->engine.layout));
    }
    if (!t->snapshot_dir)
        return ERR_OK;
    if (choose_writer(t, &writer, e))
        return e->code;
    if (!writer)
        return ERR_OK;
    /* Done before this generation writes its first snapshot. */
    if (set_aside(t, e))
        return err_wrap(e, "snapshot.dir");
    struct saver_config config = {
        .dir = t->snapshot_dir,
        .keep = t->spec->snapshot.keep,
        .keep_best = t->spec->snapshot.keep_best,
        .after = t->formation.info.scratch_generation,
        .layout = &t->engine.layout,
        .max_parts = sync_ranks_differ(t->formation.sync) ? t->formation.world_size : 0,
        .commit = commit_snapshot,
        .failed = tell_failed_snapshot,
        .arg = t,
    };
    return saver_open(&t->saver, &config, e);
}

void keep_close(struct trainer *t)
{
    saver_close(t->saver);
    t->saver = NULL;
    free(t->scratch);
    t->scratch = NULL;
}

size_t keep_bytes(const struct trainer *t)
{
    size_t staged = t->saver ? saver_bytes(t->saver) : 0;
    return staged + (t->scratch ? state_bytes(&t->engine) : 0);
}

/* ---- taking a snapshot */

/* Whether a snapshot needs the states of all ranks. At the end of a round parameters are equal, so one state
 * is enough for an optimizer without moments. */
static bool snapshot_wants_parts(const struct trainer *t)
{
    return sync_ranks_differ(t->formation.sync) &&
           (state_has_moments(&t->engine) || !sync_settled(t->formation.sync));
}

/* Broadcasts the states of all ranks to all ranks. keep: this rank is a writer and is free, so it stages
 * them. */
static enum err_code gather_parts(struct trainer *t, bool keep, struct err *e)
{
    size_t bytes = state_bytes(&t->engine);
    for (int r = 0; r < t->formation.world_size; r++) {
        float *at = keep ? saver_part(t->saver, r) : t->scratch;
        if (r == t->formation.rank)
            state_out(&t->engine, at);
        /* After an error the download is not a valid state. */
        if (t->engine.device->ops->wait(t->engine.device, e))
            return e->code;
        if (coll_broadcast(t->formation.group, at, bytes, r, e))
            return e->code;
    }
    return ERR_OK;
}

/* Sums in rank order and double precision, so that every writer gets the same bits. */
static void stage_mean(struct trainer *t)
{
    float *mean = saver_state(t->saver);
    size_t floats = snapshot_floats(&t->engine.layout);
    for (size_t i = 0; i < floats; i++) {
        double sum = 0.0;
        for (int r = 0; r < t->formation.world_size; r++)
            sum += (double)saver_part(t->saver, r)[i];
        mean[i] = (float)(sum / t->formation.world_size);
    }
}

static enum err_code stage_parts(struct trainer *t, bool keep, int64_t local_samples, struct err *e)
{
    int64_t *samples = keep ? saver_part_samples(t->saver) : NULL;
    CLEANUP(free_text) char *spare = NULL;
    if (!samples) {
        spare = xcalloc((size_t)t->formation.world_size, sizeof(int64_t));
        samples = (int64_t *)(void *)spare;
    }
    if (gather_parts(t, keep, e) ||
        coll_allgather(t->formation.group, &local_samples, sizeof(local_samples), samples, e))
        return e->code;
    if (keep)
        stage_mean(t);
    return ERR_OK;
}

static enum err_code stage_snapshot(struct trainer *t, struct err *e)
{
    struct sync_state round = {0};
    if (sync_join(t->formation.sync, e))
        return e->code;
    bool differ = snapshot_wants_parts(t), keep = t->saver && !saver_busy(t->saver);
    sync_save(t->formation.sync, &round);
    /* A rank that writes nothing still takes part: the writers need its state. */
    if (differ && stage_parts(t, keep, round.local_samples, e))
        return e->code;
    if (!keep) {
        if (t->saver)
            log_info("snapshot_skipped", "step=%lld why=\"the one before is still being written\"",
                     (long long)t->engine.step);
        return ERR_OK;
    }
    if (!differ)
        state_out(&t->engine, saver_state(t->saver));
    /* Parameters are those of the shared model, also within a round. */
    t->engine.device->ops->download(t->engine.device, saver_state(t->saver), sync_shared(t->formation.sync),
                                    t->engine.model->count * sizeof(float));
    /* Downloads of a device that failed leave zeros: such a state must not become a snapshot. */
    if (t->engine.device->ops->wait(t->engine.device, e))
        return e->code;
    struct snapshot_place place;
    state_place(&t->engine, &place);
    place.job = link_place(t->link)->job;
    place.generation = t->formation.info.generation;
    place.world_size = t->formation.world_size;
    place.round_steps = differ ? round.steps : 0;
    place.round_samples = differ ? round.global_samples : 0;
    place.parts = differ ? t->formation.world_size : 0;
    snprintf(place.cluster, sizeof(place.cluster), "%s", link_place(t->link)->cluster);
    saver_submit(t->saver, &place);
    return ERR_OK;
}

void keep_await(struct trainer *t)
{
    struct err before = {0};
    if (t->saver && saver_wait(t->saver, &before))
        log_warn("snapshot_failed_before", "why=%s", LOG_Q(before.msg));
}

enum err_code keep_snapshot(struct trainer *t, bool last, struct err *e)
{
    if (!t->snapshot_dir)
        return ERR_OK;
    if (last)
        keep_await(t);
    progress_saved(t);
    if (t->last_snapshot_step != t->engine.step && stage_snapshot(t, e))
        return e->code;
    t->last_snapshot_step = t->engine.step;
    t->last_snapshot_ms = clock_boot_ms();
    if (!last || !t->saver)
        return ERR_OK;
    if (saver_wait(t->saver, e) && !(e->code == ERR_CANCELLED && link_given_up(t->link)))
        return err_wrap(e, "the last snapshot");
    progress_saved(t);
    return ERR_OK;
}
