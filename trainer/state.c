/* The state that survives a process: taken from a snapshot by one rank and given to all, and put into
 * snapshots.
 *
 * Where ranks hold the same (all-reduce, or a world of one), a snapshot is one state. With averaging each
 * rank has parameters and moments of its own until the round ends, and moments even then: so every rank's are
 * broadcast to the writers, which keep them beside their mean. The same world size then goes on bit for bit,
 * in mid-round too; another world size starts a round from the mean. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "trainer/trainer.h"

/* ---- one state: parameters, then moments and the like, in host memory */

/* What a snapshot keeps besides parameters: the optimizer's moments, then the strategy's arrays. */
static size_t snapshot_states(const struct trainer *t)
{
    return t->layout.moment_count;
}

static const float *snapshot_array(const struct trainer *t, size_t i)
{
    size_t moments = t->optim->state_count;
    return i < moments ? t->optim->state + i * t->model->count : sync_kept_array(t->sync, i - moments);
}

static void state_out(const struct trainer *t, float *state)
{
    const struct device_ops *ops = t->device->ops;
    size_t count = t->model->count;
    ops->download(t->device, state, t->params, count * sizeof(float));
    for (size_t i = 0; i < snapshot_states(t); i++)
        ops->download(t->device, state + (i + 1) * count, snapshot_array(t, i), count * sizeof(float));
}

static void state_in(struct trainer *t, const float *state)
{
    const struct device_ops *ops = t->device->ops;
    size_t count = t->model->count;
    ops->upload(t->device, t->params, state, count * sizeof(float));
    for (size_t i = 0; i < snapshot_states(t); i++)
        ops->upload(t->device, (float *)(uintptr_t)snapshot_array(t, i), state + (i + 1) * count,
                    count * sizeof(float));
}

/* ---- restoring */

enum err_code trainer_agree(struct trainer *t, int root, const struct err *found, struct err *e)
{
    struct err told = *found;
    if (coll_broadcast(t->group, &told, sizeof(told), root, e))
        return e->code;
    if (told.code)
        *e = told;
    return told.code;
}

static enum err_code share_state(struct trainer *t, float *state, struct err *found, struct err *e)
{
    if (trainer_agree(t, t->group_info.source_rank, found, e))
        return e->code;
    return coll_broadcast(t->group, state, snapshot_floats(&t->layout) * sizeof(float),
                          t->group_info.source_rank, e);
}

static enum err_code restore_same(struct trainer *t, const char *path, float *state, struct err *e)
{
    struct err found = {0};
    if (t->rank == t->group_info.source_rank && snapshot_read(path, &t->layout, state, &found))
        log_error("snapshot_unreadable", "why=%s", LOG_Q(found.msg));
    if (share_state(t, state, &found, e))
        return e->code;
    state_in(t, state);
    return ERR_OK;
}

static enum err_code restore_parts(struct trainer *t, const char *path, const struct snapshot_place *place,
                                   float *state, struct err *e)
{
    bool source = t->rank == t->group_info.source_rank;
    struct sync_state round = {.steps = place->round_steps, .global_samples = place->round_samples};
    for (int r = 0; r < t->world_size; r++) {
        struct err found = {0};
        int64_t samples = 0;
        if (source && snapshot_read_part(path, &t->layout, r, state, &samples, &found))
            log_error("snapshot_unreadable", "why=%s", LOG_Q(found.msg));
        if (share_state(t, state, &found, e) ||
            coll_broadcast(t->group, &samples, sizeof(samples), t->group_info.source_rank, e))
            return e->code;
        if (r != t->rank)
            continue;
        state_in(t, state);
        round.local_samples = samples;
    }
    sync_load(t->sync, &round);
    return ERR_OK;
}

static void take_place(struct trainer *t, const struct snapshot_place *place)
{
    t->step = place->step;
    t->samples = place->samples;
    t->cursor = (struct cursor){place->epoch, place->position};
    if (sampler_steps_left(&t->sampler, &t->cursor) == 0)
        t->cursor = (struct cursor){place->epoch + 1, 0};
    t->optim->steps = place->updates;
    t->best_step = place->best_step;
    t->best_loss = place->best_step ? place->best_loss : (double)NAN;
    t->last_snapshot_step = place->step;
    t->resumed = true;
}

static enum err_code mark_as(const char *path, const char *digest, const struct snapshot_place *place,
                             struct err *e)
{
    CLEANUP(snapshot_files_release) struct snapshot_files files = {0};
    if (snapshot_sum(path, &files, e))
        return e->code;
    if (strcmp(files.digest, digest))
        return err_set(e, ERR_DATA_LOSS, "%s: the files are not the ones that were committed", path);
    return snapshot_mark_committed(&files, place, e);
}

/* A snapshot that the coordinator knows as committed, although the crash came before COMMITTED.json. */
static void mark(const struct trainer *t, const char *path, const struct snapshot_place *place)
{
    struct err e = {0};
    if (t->rank == t->group_info.source_rank && !t->group_info.source.committed &&
        mark_as(path, t->group_info.source.digest, place, &e))
        log_warn("snapshot_mark_failed", "why=%s", LOG_Q(e.msg));
}

/* The cursor and the permutation belong to the data: other data is another run. */
static enum err_code check_data(const struct trainer *t, const struct snapshot_place *place, struct err *e)
{
    const struct dataset_mark *mark = &t->train->mark;
    if (place->data_bytes == mark->bytes && (!mark->bytes || place->data_digest == mark->digest))
        return ERR_OK;
    return err_set(
        e, ERR_FAILED_PRECONDITION,
        "the data is not what the snapshot of step %lld was trained on (%lld bytes then, %lld now%s), "
        "init_from starts from its parameters with other data",
        (long long)place->step, (long long)place->data_bytes, (long long)mark->bytes,
        place->data_bytes == mark->bytes ? ", changed" : "");
}

static enum err_code restore_from(struct trainer *t, const char *path, float *state, struct err *e)
{
    struct snapshot_place place = {0};
    struct err found = {0};
    if (t->rank == t->group_info.source_rank &&
        (snapshot_read_place(path, &place, &found) || trainer_check_dir(t, path, &found)))
        log_error("snapshot_unreadable", "why=%s", LOG_Q(found.msg));
    if (trainer_agree(t, t->group_info.source_rank, &found, e) ||
        coll_broadcast(t->group, &place, sizeof(place), t->group_info.source_rank, e))
        return e->code;
    if (check_data(t, &place, e))
        return e->code;
    bool parts = place.parts == t->world_size && sync_ranks_differ(t->sync);
    if (parts ? restore_parts(t, path, &place, state, e) : restore_same(t, path, state, e))
        return e->code;
    take_place(t, &place);
    mark(t, path, &place);
    log_info("resumed", "rank=%d step=%lld epoch=%lld position=%lld from=%s", t->rank, (long long)t->step,
             (long long)t->cursor.epoch, (long long)t->cursor.position, LOG_Q(path ? path : "peer"));
    return ERR_OK;
}

enum err_code trainer_restore(struct trainer *t, struct err *e)
{
    if (t->group_info.source_rank < 0)
        return trainer_start(t, e);
    float *state = calloc(snapshot_floats(&t->layout), sizeof(float));
    if (!state)
        return err_set(e, ERR_RESOURCE_EXHAUSTED, "a copy of the state: out of memory");
    enum err_code code = restore_from(t, t->group_info.source.path, state, e);
    free(state);
    return code;
}

/* ---- taking a snapshot */

/* At a round's end parameters are equal, and one state is enough for an optimizer without moments. */
static bool snapshot_wants_parts(const struct trainer *t)
{
    return sync_ranks_differ(t->sync) && (snapshot_states(t) > 0 || !sync_settled(t->sync));
}

/* All ranks' states to all; `keep` (a writer that is free) stages them. */
static enum err_code gather_parts(struct trainer *t, bool keep, struct err *e)
{
    size_t bytes = snapshot_floats(&t->layout) * sizeof(float);
    for (int r = 0; r < t->world_size; r++) {
        float *at = keep ? saver_part(t->saver, r) : t->scratch;
        if (r == t->rank)
            state_out(t, at);
        if (t->device->ops->wait(t->device, e)) /* what did not come is not a state */
            return e->code;
        if (coll_broadcast(t->group, at, bytes, r, e))
            return e->code;
    }
    return ERR_OK;
}

/* In rank order and double precision: the same bits on every writer. */
static void stage_mean(struct trainer *t)
{
    float *mean = saver_state(t->saver);
    size_t floats = snapshot_floats(&t->layout);
    for (size_t i = 0; i < floats; i++) {
        double sum = 0.0;
        for (int r = 0; r < t->world_size; r++)
            sum += (double)saver_part(t->saver, r)[i];
        mean[i] = (float)(sum / t->world_size);
    }
}

static enum err_code stage_parts(struct trainer *t, bool keep, int64_t local_samples, struct err *e)
{
    int64_t *samples = keep ? saver_part_samples(t->saver) : NULL;
    CLEANUP(free_text) char *spare = NULL;
    if (!samples) {
        spare = xcalloc((size_t)t->world_size, sizeof(int64_t));
        samples = (int64_t *)(void *)spare;
    }
    if (gather_parts(t, keep, e) ||
        coll_allgather(t->group, &local_samples, sizeof(local_samples), samples, e))
        return e->code;
    if (keep)
        stage_mean(t);
    return ERR_OK;
}

static enum err_code stage(struct trainer *t, struct err *e)
{
    struct sync_state round = {0};
    if (sync_join(t->sync, e))
        return e->code;
    bool differ = snapshot_wants_parts(t), keep = t->saver && !saver_busy(t->saver);
    sync_save(t->sync, &round);
    if (differ && stage_parts(t, keep, round.local_samples, e))
        return e->code;
    if (!keep) {
        if (t->saver)
            log_info("snapshot_skipped", "step=%lld why=\"the one before is still being written\"",
                     (long long)t->step);
        return ERR_OK;
    }
    if (!differ)
        state_out(t, saver_state(t->saver));
    if (t->device->ops->wait(t->device, e))
        return e->code;
    struct snapshot_place place = {
        .job = link_place(t->link)->job,
        .generation = t->group_info.generation,
        .step = t->step,
        .epoch = t->cursor.epoch,
        .position = t->cursor.position,
        .seed = t->spec->seed,
        .updates = t->optim->steps,
        .samples = t->samples,
        .world_size = t->world_size,
        .round_steps = differ ? round.steps : 0,
        .round_samples = differ ? round.global_samples : 0,
        .parts = differ ? t->world_size : 0,
        .judged = t->val_step == t->step,
        .val_loss = t->val_loss,
        .best_step = t->best_step,
        .best_loss = t->best_loss,
        .data_bytes = t->train->mark.bytes,
        .data_digest = t->train->mark.digest,
    };
    snprintf(place.cluster, sizeof(place.cluster), "%s", link_place(t->link)->cluster);
    saver_submit(t->saver, &place);
    return ERR_OK;
}

void trainer_await_saver(struct trainer *t)
{
    struct err before = {0};
    if (t->saver && saver_wait(t->saver, &before))
        log_warn("snapshot_failed_before", "why=%s", LOG_Q(before.msg));
}

enum err_code trainer_snapshot(struct trainer *t, bool last, struct err *e)
{
    if (!t->snapshot_dir)
        return ERR_OK;
    if (last)
        trainer_await_saver(t);
    progress_saved(t);
    if (t->last_snapshot_step != t->step && stage(t, e))
        return e->code;
    t->last_snapshot_step = t->step;
    t->last_snapshot_ms = clock_boot_ms();
    if (!last || !t->saver)
        return ERR_OK;
    if (saver_wait(t->saver, e) && !(e->code == ERR_CANCELLED && link_given_up(t->link)))
        return err_wrap(e, "the last snapshot");
    progress_saved(t);
    return ERR_OK;
}
