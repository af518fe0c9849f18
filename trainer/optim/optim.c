#include "trainer/optim/optim.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

static void add_run(struct optim *o, size_t offset, size_t count, bool decay, bool matrix)
{
    if (count == 0)
        return;
    struct optim_run *last = o->run_count ? &o->runs[o->run_count - 1] : NULL;
    if (last && last->decay == decay && last->matrix == matrix) {
        last->count += count;
        return;
    }
    o->runs = array_grow(o->runs, o->run_count, &o->run_cap, sizeof(*o->runs));
    o->runs[o->run_count++] =
        (struct optim_run){.offset = offset, .count = count, .decay = decay, .matrix = matrix};
}

/* Only the last run may be cut: special tensors come in rising order. Those that touch are one run. */
static void cut_run(struct optim *o, size_t offset, size_t count, bool decay, bool matrix)
{
    struct optim_run last = o->runs[--o->run_count];
    size_t end = last.offset + last.count;
    BUG_ON(!last.decay || last.matrix || offset < last.offset || offset + count > end);
    add_run(o, last.offset, offset - last.offset, true, false);
    add_run(o, offset, count, decay, matrix);
    add_run(o, offset + count, end - offset - count, true, false);
}

static const struct optim_ops *const all_ops[] = {
    [OPTIMIZER_SGD] = &optim_sgd, [OPTIMIZER_ADAMW] = &optim_adamw, [OPTIMIZER_MUON] = &optim_muon};

void optim_tune(struct optim *o, const struct train_spec *spec)
{
    o->momentum = spec->optimizer.momentum;
    o->beta1 = spec->optimizer.betas[0];
    o->beta2 = spec->optimizer.betas[1];
    o->eps = spec->optimizer.eps;
    o->weight_decay = spec->optimizer.weight_decay;
    o->clip = spec->optimizer.clip;
    o->adamw_rate = spec->optimizer.adamw_lr / spec->optimizer.lr;
}

void optim_open(struct optim **out, const struct train_spec *spec, size_t count, struct device *device)
{
    const struct optim_ops *ops = all_ops[spec->optimizer.type];
    struct optim *o = xcalloc(1, sizeof(*o));
    *o = (struct optim){
        .ops = ops,
        .device = device,
        .count = count,
        .whole = count,
        .nesterov = spec->optimizer.nesterov,
        .kept = device_kept(device, spec->precision == PRECISION_BF16 ? DEVICE_BF16 : DEVICE_F32),
        .state_count = ops->state_count,
    };
    optim_tune(o, spec);
    /* Plain SGD has no moments, neither in memory nor in snapshots. */
    if (ops == &optim_sgd && o->momentum == 0.0)
        o->state_count = 0;
    add_run(o, 0, count, true, false);
    *out = o;
}

void optim_free(struct optim *o)
{
    if (!o)
        return;
    o->device->ops->free(o->device, o->state);
    o->device->ops->free(o->device, o->measure);
    o->device->ops->free(o->device, o->sums);
    o->device->ops->free(o->device, o->room);
    device_ranges_close(&o->ranges, o->device);
    free(o->matrices);
    free(o->blocks);
    free(o->whole_runs);
    free(o->runs);
    free(o);
}

/* Second moments lie behind the first ones. */
static size_t place_seconds(struct optim_run *runs, size_t run_count, size_t at)
{
    for (size_t i = 0; i < run_count; i++)
        if (!runs[i].matrix) {
            runs[i].second = at;
            at += runs[i].count;
        }
    return at;
}

/* Returns the floats of a state of these runs. */
static size_t place_moments(const struct optim *o, struct optim_run *runs, size_t run_count, size_t count)
{
    return o->ops->update_matrices ? place_seconds(runs, run_count, count) : o->state_count * count;
}

static void keep_matrices(struct optim *o, size_t first, size_t end)
{
    size_t kept = 0;
    for (size_t i = 0; i < o->matrix_count; i++) {
        struct device_matrix t = o->matrices[i];
        if (t.offset < first || t.offset >= end)
            continue;
        t.offset -= first;
        o->matrices[kept++] = t;
    }
    o->matrix_count = kept;
}

void optim_take_part(struct optim *o, const size_t *blocks, size_t count)
{
    const size_t first = blocks[0], end = blocks[count];
    size_t kept = 0;
    BUG_ON(end > o->whole);
    o->whole_runs = xcalloc(o->run_count + 1, sizeof(*o->whole_runs));
    memcpy(o->whole_runs, o->runs, o->run_count * sizeof(*o->runs));
    o->whole_run_count = o->run_count;
    o->whole_floats = place_moments(o, o->whole_runs, o->whole_run_count, o->whole);
    for (size_t i = 0; i < o->run_count; i++) {
        struct optim_run run = o->runs[i];
        size_t lo = run.offset > first ? run.offset : first, hi = run.offset + run.count;
        hi = hi < end ? hi : end;
        if (lo >= hi)
            continue;
        run.offset = lo - first;
        run.count = hi - lo;
        o->runs[kept++] = run;
    }
    o->run_count = kept;
    keep_matrices(o, first, end);
    o->blocks = xcalloc(count + 1, sizeof(*o->blocks));
    for (size_t i = 0; i <= count; i++)
        o->blocks[i] = blocks[i] - first;
    o->block_count = count;
    o->first = first;
    o->count = end - first;
    o->part = true;
}

void optim_exempt(struct optim *o, size_t offset, size_t count)
{
    cut_run(o, offset, count, false, false);
}

void optim_matrix(struct optim *o, size_t offset, int64_t rows, int64_t cols, int side_by_side,
                  bool out_first)
{
    int64_t width = cols / side_by_side, out = out_first ? rows : width, in = out_first ? width : rows;
    if (!o->ops->update_matrices)
        return;
    cut_run(o, offset, (size_t)(rows * cols), true, true);
    for (int i = 0; i < side_by_side; i++) {
        o->matrices = array_grow(o->matrices, o->matrix_count, &o->matrix_cap, sizeof(*o->matrices));
        o->matrices[o->matrix_count++] = (struct device_matrix){
            .offset = offset + (size_t)(i * width),
            .rows = rows,
            .cols = width,
            .stride = cols,
            .scale = (float)sqrt(fmax(1.0, (double)out / (double)in)),
        };
    }
}

/* ---- memory */

static double matrix_work(const struct device_matrix *t)
{
    return (double)t->rows * (double)t->cols * (double)(t->rows < t->cols ? t->rows : t->cols);
}

static int compare_matrices(const void *a, const void *b)
{
    const struct device_matrix *x = a, *y = b;
    if (matrix_work(x) != matrix_work(y))
        return matrix_work(x) > matrix_work(y) ? -1 : 1;
    return x->offset < y->offset ? -1 : 1;
}

static enum err_code alloc_some(struct optim *o, size_t bytes, const char *what, void **out, struct err *e)
{
    return bytes > 0 ? device_alloc(o->device, bytes, what, out, e) : ERR_OK;
}

/* A device that takes all of AdamW's runs at once gets a table of them. */
static enum err_code open_ranges(struct optim *o, struct err *e)
{
    struct device_range *items = xcalloc(o->run_count + 1, sizeof(*items));
    size_t count = 0;
    for (size_t i = 0; i < o->run_count && o->ops != &optim_sgd && o->device->ops->adamw_ranges; i++) {
        const struct optim_run *run = &o->runs[i];
        if (!run->matrix)
            items[count++] =
                (struct device_range){.offset = run->offset,
                                      .count = run->count,
                                      .second = o->ops->update_matrices ? run->second : run->offset,
                                      .decays = run->decay};
    }
    enum err_code code = device_ranges_open(&o->ranges, o->device, items, count, e);
    free(items);
    return code;
}

bool optim_narrow_to(struct optim *o, void *bf16)
{
    const bool can = o->device->narrows || (o->ops == &optim_adamw && o->ranges.count > 0 && !o->part);
    o->narrowed = can && bf16 ? (uint16_t *)bf16 + o->first : NULL;
    return o->narrowed && o->count == o->whole;
}

enum err_code optim_alloc(struct optim *o, struct err *e)
{
    void *state = NULL, *measure = NULL, *sums = NULL;
    o->floats = place_moments(o, o->runs, o->run_count, o->count);
    if (!o->part)
        o->whole_floats = o->floats;
    /* Threads take the matrices in turn, so matrices of equal work belong together. */
    if (o->matrix_count > 0)
        qsort(o->matrices, o->matrix_count, sizeof(*o->matrices), compare_matrices);
    o->room_bytes = o->ops->room ? o->ops->room(o) : 0;
    if (alloc_some(o, sizeof(*o->measure), "a gradient's norm", &measure, e))
        return e->code;
    o->measure = measure;
    if (o->part && alloc_some(o, o->block_count * sizeof(*o->sums), "a part's norm", &sums, e))
        return e->code;
    o->sums = sums;
    const size_t before = o->device->bytes;
    if (alloc_some(o, o->floats * sizeof(float), "optimizer state", &state, e))
        return e->code;
    o->state = state;
    o->state_bytes = o->device->bytes - before;
    if (open_ranges(o, e))
        return e->code;
    return alloc_some(o, o->room_bytes, "matrices of the optimizer", &o->room, e);
}

/* The runs of the whole arrays. */
static const struct optim_run *whole_runs(const struct optim *o, size_t *count)
{
    *count = o->part ? o->whole_run_count : o->run_count;
    return o->part ? o->whole_runs : o->runs;
}

size_t optim_moment_at(const struct optim *o, size_t i, size_t offset)
{
    size_t count;
    const struct optim_run *run = whole_runs(o, &count);
    if (!o->ops->update_matrices)
        return i * o->whole + offset;
    while (offset >= run->offset + run->count)
        run++;
    if (run->matrix != (i == 0))
        return OPTIM_NONE;
    return i == 2 ? run->second + offset - run->offset : offset;
}

/* ---- the state by arrays */

size_t optim_arrays(const struct optim *o, struct optim_array out[OPTIM_MOMENTS])
{
    const size_t end = o->first + o->count;
    size_t count = 0;
    if (!o->ops->update_matrices) {
        for (; count < o->state_count; count++)
            out[count] =
                (struct optim_array){count * o->whole, o->whole, o->first, o->count, count * o->count};
        return count;
    }
    const size_t lo = optim_array_cut(o, 1, o->first);
    out[count++] = (struct optim_array){0, o->whole, o->first, o->count, 0};
    if (o->whole_floats > o->whole)
        out[count++] = (struct optim_array){o->whole, o->whole_floats - o->whole, lo,
                                            optim_array_cut(o, 1, end) - lo, o->count};
    return count;
}

size_t optim_array_cut(const struct optim *o, size_t i, size_t offset)
{
    size_t count, sum = 0;
    const struct optim_run *runs = whole_runs(o, &count);
    if (!o->ops->update_matrices || i == 0)
        return offset;
    for (size_t k = 0; k < count && runs[k].offset < offset; k++)
        if (!runs[k].matrix)
            sum += offset - runs[k].offset < runs[k].count ? offset - runs[k].offset : runs[k].count;
    return sum;
}

/* ---- the update */

void optim_part_squares(struct optim *o, const float *grads, double *out)
{
    const struct device_ops *ops = o->device->ops;
    for (size_t i = 0; i < o->block_count; i++)
        ops->sum_squares(o->device, grads + o->first + o->blocks[i], o->blocks[i + 1] - o->blocks[i],
                         o->sums + i);
    if (o->block_count > 0)
        ops->download(o->device, out, o->sums, o->block_count * sizeof(*out));
}

void optim_put_squares(struct optim *o, double squares)
{
    o->device->ops->upload(o->device, &o->measure->squares, &squares, sizeof(squares));
}

void optim_update(struct optim *o, float *params, const float *grads, double lr, bool measure)
{
    const struct device_ops *ops = o->device->ops;
    bool clip = o->clip > 0.0;
    o->steps++;
    params += o->first;
    grads += o->first;
    if ((clip || measure) && !o->part)
        ops->sum_squares(o->device, grads, o->count, &o->measure->squares);
    if (clip)
        ops->clip_scale(o->device, &o->measure->scale, &o->measure->squares, o->clip);
    const float *scale = clip ? &o->measure->scale : NULL;
    if (o->ranges.count > 0)
        optim_adamw_ranges(o, params, grads, o->ops->update_matrices ? lr * o->adamw_rate : lr, scale);
    for (size_t i = 0; i < o->run_count && o->ranges.count == 0; i++)
        o->ops->update(o, &o->runs[i], params, grads, lr, scale);
    if (o->ops->update_matrices)
        o->ops->update_matrices(o, params, grads, lr, scale);
}

double optim_norm(struct optim *o)
{
    double squares = 0.0;
    o->device->ops->download(o->device, &squares, &o->measure->squares, sizeof(squares));
    return sqrt(squares);
}
