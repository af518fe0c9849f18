#include "trainer/engine/state.h"

#include <math.h>
#include <string.h>

#include "base/job/balance.h"
#include "base/log.h"
#include "trainer/engine/share.h"

size_t state_bytes(const struct engine *n)
{
    return snapshot_floats(&n->layout) * sizeof(float);
}

/* A state is the parameters, then the optimizer's moments, then the kept arrays of the strategy
 * (describe_kept). */
void state_out(const struct engine *n, float *state)
{
    size_t count = n->model->count, bytes = count * sizeof(float), at = count + n->optim->whole_floats;
    BUG_ON(n->partial || n->await);
    n->device->ops->download(n->device, state, n->params.data, bytes);
    if (n->optim->floats > 0 && n->optim->floats == n->optim->whole_floats)
        n->device->ops->download(n->device, state + count, n->optim->state, n->optim->floats * sizeof(float));
    for (size_t i = 0; i < n->extra_count; i++)
        if (n->extras[i].kept) {
            n->device->ops->download(n->device, state + at, n->extra[i].data, bytes);
            at += count;
        }
}

/* moments: those of a whole state, in host memory. */
static void moments_in(struct engine *n, const float *moments)
{
    const struct optim *o = n->optim;
    if (o->floats > 0 && !o->part)
        n->device->ops->upload(n->device, o->state, moments, o->floats * sizeof(float));
    struct optim_array arrays[OPTIM_MOMENTS];
    const size_t count = o->part ? optim_arrays(o, arrays) : 0;
    for (size_t i = 0; i < count; i++)
        if (arrays[i].count > 0)
            n->device->ops->upload(n->device, o->state + arrays[i].own,
                                   moments + arrays[i].at + arrays[i].first, arrays[i].count * sizeof(float));
}

void state_moment_out(const struct engine *n, const struct optim_array *a, float *array)
{
    if (a->count > 0)
        n->device->ops->copy(n->device, array + a->first, n->optim->state + a->own, a->count * sizeof(float));
}

void state_moment_in(struct engine *n, const struct optim_array *a, const float *array)
{
    if (a->count > 0)
        n->device->ops->copy(n->device, n->optim->state + a->own, array + a->first, a->count * sizeof(float));
}

/* Adds what the optimizer has of a moment of a tensor, which begins at float `from` of a whole state's moments. */
static void range_add(const struct optim *o, const struct snapshot_range *range, size_t from,
                      struct snapshot_ranges *out)
{
    struct optim_array arrays[OPTIM_MOMENTS];
    const size_t count = optim_arrays(o, arrays), end = from + range->count;
    for (size_t i = 0; i < count; i++) {
        const size_t begin = arrays[i].at + arrays[i].first, stop = begin + arrays[i].count;
        const size_t lo = from > begin ? from : begin, hi = end < stop ? end : stop;
        struct snapshot_range own = *range;
        if (lo >= hi)
            continue;
        own.first = lo - from;
        own.count = hi - lo;
        own.at = arrays[i].own + (lo - begin);
        divided_add(out, &own);
    }
}

void state_ranges(const struct engine *n, struct snapshot_ranges *out)
{
    *out = (struct snapshot_ranges){.floats = n->optim->floats};
    for (size_t moment = 0; moment < n->optim->state_count; moment++)
        for (size_t i = 0; i < n->layout.tensor_count; i++) {
            const struct snapshot_range whole = {
                .moment = moment, .tensor = i, .count = n->layout.tensors[i].count};
            const size_t at = n->places[moment * n->layout.tensor_count + i];
            if (at != SNAPSHOT_NONE)
                range_add(n->optim, &whole, at - n->model->count, out);
        }
}

void state_in(struct engine *n, const float *state)
{
    size_t count = n->model->count, bytes = count * sizeof(float), at = count + n->optim->whole_floats;
    n->device->ops->upload(n->device, n->params.data, state, bytes);
    moments_in(n, state + count);
    for (size_t i = 0; i < n->extra_count; i++)
        if (n->extras[i].kept) {
            n->device->ops->upload(n->device, n->extra[i].data, state + at, bytes);
            at += count;
        }
}

void state_in_own(struct engine *n, const float *state, bool params, bool extras)
{
    size_t count = n->model->count, bytes = count * sizeof(float), at = count + n->optim->whole_floats;
    if (params)
        n->device->ops->upload(n->device, n->params.data, state, bytes);
    moments_in(n, state + count);
    for (size_t i = 0; i < n->extra_count; i++) {
        if (!n->extras[i].kept)
            continue;
        if (extras && n->extras[i].own)
            n->device->ops->upload(n->device, n->extra[i].data, state + at, bytes);
        at += count;
    }
}

/* The places of a snapshot's arrays in device memory. */
size_t state_arrays(const struct engine *n, struct state_array out[STATE_ARRAYS_MAX])
{
    size_t count = 0;
    out[count++] = (struct state_array){n->params.data, n->model->count};
    if (n->optim->floats > 0 && !n->optim->part)
        out[count++] = (struct state_array){n->optim->state, n->optim->floats};
    for (size_t i = 0; i < n->extra_count; i++)
        if (n->extras[i].kept)
            out[count++] = (struct state_array){n->extra[i].data, n->model->count};
    return count;
}

bool state_can_fetch(const struct engine *n)
{
    return n->device->host || n->device->ops->fetch;
}

enum err_code state_fetch(const struct engine *n, const struct state_array *array, float *to, struct err *e)
{
    const size_t bytes = array->count * sizeof(float);
    if (!n->device->host)
        return n->device->ops->fetch(n->device, to, array->data, bytes, e);
    memcpy(to, array->data, bytes);
    return ERR_OK;
}

void state_forget(struct engine *n)
{
    struct state_array arrays[STATE_ARRAYS_MAX];
    size_t count = state_arrays(n, arrays);
    for (size_t i = 0; i < count; i++)
        n->device->ops->zero(n->device, arrays[i].data, arrays[i].count * sizeof(float));
    n->partial = false;
    if (n->optim->part && n->optim->floats > 0)
        n->device->ops->zero(n->device, n->optim->state, n->optim->floats * sizeof(float));
    share_leave(n);
    engine_take_portions(n, NULL);
    n->step = n->samples = n->optim->steps = n->best_step = n->step_samples = n->fewest_updates = 0;
    n->cursor = (struct cursor){0};
    n->loss = n->lr = n->grad_norm = n->val_loss = n->val_acc = n->best_loss = NAN;
    n->val_step = -1;
    n->whole = false;
}

/* ---- the place in the run */

/* Pieces for which there is no room are left out by a run that resumes. After a round there is about one for each rank. */
static void place_put_deal(const struct engine *n, struct snapshot_place *out)
{
    out->dealt = true;
    out->dealt_epoch = n->deal.next.epoch;
    out->dealt_position = n->deal.next.position;
    for (size_t i = 0; i < n->deal.count && i < SNAPSHOT_PIECES; i++) {
        const struct deal_piece *p = &n->deal.pieces[i];
        out->pieces[i] = (struct snapshot_piece){p->epoch, p->position, p->count};
        out->piece_count++;
    }
}

static void place_get_deal(struct engine *n, const struct snapshot_place *place)
{
    struct deal_piece pieces[SNAPSHOT_PIECES];
    struct cursor next = {place->dealt_epoch, place->dealt_position};
    /* Dealt and not taken. What is not in a piece was lost at this resume or an earlier one. */
    int64_t lost = (next.epoch - place->epoch) * n->sampler.samples + next.position - place->position;
    for (int64_t i = 0; i < place->piece_count; i++) {
        pieces[i] =
            (struct deal_piece){place->pieces[i].epoch, place->pieces[i].position, place->pieces[i].count};
        lost -= pieces[i].count;
    }
    if (lost > 0 && n->sampler.rank == 0)
        log_warn("samples_left_out", "step=%lld samples=%lld pieces_most=%d", (long long)place->step,
                 (long long)lost, SNAPSHOT_PIECES);
    deal_start(&n->deal, &next, pieces, (size_t)place->piece_count);
}

static void place_put_portions(const struct engine *n, struct snapshot_place *out)
{
    if (!n->sampler.bounds || n->sampler.world_size > SNAPSHOT_PORTIONS)
        return;
    for (int r = 0; r < n->sampler.world_size; r++)
        out->portions[out->portion_count++] = n->sampler.bounds[r + 1] - n->sampler.bounds[r];
}

/* In a world of another size, or with another global batch, ranks begin with equal numbers and measure again. */
void state_take_portions(struct engine *n, const struct snapshot_place *place)
{
    int64_t sum = 0;
    for (int64_t r = 0; r < place->portion_count; r++)
        sum += place->portions[r];
    bool fits = n->spec->balance == BALANCE_SPEED && sum <= BALANCE_SAMPLES_MOST &&
                place->portion_count == n->sampler.world_size && sum == n->sampler.global;
    engine_take_portions(n, fits ? place->portions : NULL);
}

void state_place(const struct engine *n, struct snapshot_place *out)
{
    *out = (struct snapshot_place){
        .step = n->step,
        .epoch = n->cursor.epoch,
        .position = n->cursor.position,
        .seed = n->spec->seed,
        .updates = n->share.given ? n->fewest_updates : n->optim->steps,
        .samples = n->samples,
        .step_samples = n->step_samples,
        .judged = n->val_step == n->step,
        .val_loss = n->val_loss,
        .best_step = n->best_step,
        .best_loss = n->best_loss,
        .data_bytes = n->train->mark.bytes,
        .data_digest = n->train->mark.digest,
        .epoch_samples = n->train->count,
        .shuffled = n->spec->data.shuffle,
    };
    if (n->share.given || n->deal.count) /* the second: it has resumed, and has begun no round yet */
        place_put_deal(n, out);
    place_put_portions(n, out);
}

/* The cursor counts positions in the order that seed, shuffle and number of samples give. */
static enum err_code check_order(const struct engine *n, const struct snapshot_place *place, struct err *e)
{
    long long step = place->step;
    if (place->seed != n->spec->seed)
        return err_set(
            e, ERR_FAILED_PRECONDITION,
            "the snapshot of step %lld has seed %lld, but the job file has seed %lld, which gives another "
            "order of the data: set seed: %lld, or start a new run with init_from",
            step, (long long)place->seed, (long long)n->spec->seed, (long long)place->seed);
    if (!place->epoch_samples) /* an older snapshot, which does not say */
        return ERR_OK;
    if (place->shuffled != n->spec->data.shuffle)
        return err_set(
            e, ERR_FAILED_PRECONDITION,
            "the snapshot of step %lld is from a run with another train.data.shuffle: set it to %s, or start "
            "a new run with init_from",
            step, place->shuffled ? "true" : "false");
    if (place->epoch_samples != n->train->count)
        return err_set(
            e, ERR_FAILED_PRECONDITION,
            "the snapshot of step %lld is from a run with %lld training samples, but the data now has "
            "%lld: set the same split and context, or start a new run with init_from",
            step, (long long)place->epoch_samples, (long long)n->train->count);
    return ERR_OK;
}

enum err_code state_check_data(const struct engine *n, const struct snapshot_place *place, struct err *e)
{
    const struct dataset_mark *mark = &n->train->mark;
    /* Earlier versions wrote no mark of images and labels. */
    const bool unmarked = !place->data_bytes && !n->train->windows;
    if (unmarked ||
        (place->data_bytes == mark->bytes && (!mark->bytes || place->data_digest == mark->digest)))
        return check_order(n, place, e);
    return err_set(
        e, ERR_FAILED_PRECONDITION,
        "the data is not the data of the snapshot of step %lld (%lld bytes then, %lld now%s): to start a new "
        "run from its parameters with other data, set init_from",
        (long long)place->step, (long long)place->data_bytes, (long long)mark->bytes,
        place->data_bytes == mark->bytes ? ", changed" : "");
}

void state_take_best(struct engine *n, const struct snapshot_place *place)
{
    n->best_step = place->best_step;
    n->best_loss = place->best_step ? place->best_loss : (double)NAN;
}

void state_take_place(struct engine *n, const struct snapshot_place *place)
{
    n->step = place->step;
    n->samples = place->samples;
    n->cursor = (struct cursor){place->epoch, place->position};
    n->step_samples = place->step_samples;
    if (place->dealt)
        place_get_deal(n, place);
    state_take_portions(n, place);
    engine_leave_spent_epoch(n);
    n->optim->steps = place->updates;
    state_take_best(n, place);
}
