#include "trainer/engine/packed.h"

#include <stdlib.h>

#include "base/mem.h"

#define LINE 16 /* floats: where a piece begins, as tensors do */

/* Floats that a piece takes in the packed array; never more than its parameters do. */
static size_t piece_floats(const struct packed_piece *piece)
{
    const size_t lines = ((piece->count + 1) / 2 + LINE - 1) / LINE * LINE;
    return piece->half && lines < piece->count ? lines : piece->count;
}

/* Adds [from, end) to the part of `rank`, which is the last one so far. Adjacent tensors of one kind are one piece, unless there is a
 * cut between them. */
static void packed_add(struct packed *p, int rank, size_t from, size_t end, bool half, bool cut)
{
    const bool begins = cut || p->piece_count == p->first[rank];
    struct packed_piece *last = begins ? NULL : &p->pieces[p->piece_count - 1];
    if (from >= end)
        return;
    if (!last || last->half != half) {
        p->pieces = array_grow(p->pieces, p->piece_count, &p->piece_cap, sizeof(*p->pieces));
        last = &p->pieces[p->piece_count++];
        *last = (struct packed_piece){.from = from, .at = p->offsets[rank + 1], .half = half};
    }
    last->count = end - last->from;
    p->offsets[rank + 1] = last->at + piece_floats(last);
}

static void packed_add_cut(struct packed *p, int rank, size_t from, size_t end, bool half, const size_t *cuts,
                           size_t cut_count)
{
    bool cut = false;
    for (size_t i = 0; i < cut_count; i++) {
        if (cuts[i] < from || cuts[i] >= end)
            continue;
        packed_add(p, rank, from, cuts[i], half, cut);
        cut = true;
        from = cuts[i];
    }
    packed_add(p, rank, from, end, half, cut);
}

bool packed_open(struct packed *p, const struct engine *n, int rank, int world_size, const size_t *cuts,
                 size_t cut_count)
{
    const struct model *m = n->model;
    const size_t world = (size_t)world_size;
    size_t *parts;
    *p = (struct packed){.rank = rank, .world_size = world_size};
    if (!n->optim->part || !m->narrowed || world_size == 1)
        return false;
    p->offsets = xcalloc(world + 1, sizeof(*p->offsets));
    p->first = xcalloc(world + 1, sizeof(*p->first));
    parts = xcalloc(world + 1, sizeof(*parts));
    (void)engine_divide(n, world_size, parts);
    for (int r = 0; r < world_size; r++) {
        p->offsets[r + 1] = p->offsets[r];
        p->first[r] = p->piece_count;
        for (size_t i = 0; i < m->tensor_count; i++) {
            const struct model_tensor *t = &m->tensors[i];
            const size_t next = i + 1 < m->tensor_count ? t[1].offset : m->count; /* with the gap */
            const size_t from = t->offset > parts[r] ? t->offset : parts[r];
            packed_add_cut(p, r, from, next < parts[r + 1] ? next : parts[r + 1], t->narrow_only, cuts,
                           cut_count);
        }
    }
    p->first[world] = p->piece_count;
    BUG_ON(p->offsets[world] > m->count); /* the tail behind the gradients is still needed */
    free(parts);
    return true;
}

void packed_release(struct packed *p)
{
    free(p->offsets);
    free(p->pieces);
    free(p->first);
    *p = (struct packed){0};
}

static void *narrowed_at(const struct engine *n, size_t at)
{
    return (char *)n->model->narrowed + at * device_size(DEVICE_BF16);
}

size_t packed_at(const struct packed *p, size_t cut)
{
    for (size_t i = 0; i < p->piece_count; i++)
        if (p->pieces[i].from >= cut)
            return p->pieces[i].at;
    return p->offsets[p->world_size];
}

void packed_put(struct packed *p, struct engine *n)
{
    const struct device_ops *ops = n->device->ops;
    p->own_narrowed = n->optim->narrowed != NULL;
    for (size_t i = p->first[p->rank]; i < p->first[p->rank + 1]; i++) {
        const struct packed_piece *piece = &p->pieces[i];
        float *to = n->grads.data + piece->at;
        if (piece->half && p->own_narrowed)
            ops->copy(n->device, to, narrowed_at(n, piece->from), piece->count * device_size(DEVICE_BF16));
        else if (piece->half)
            ops->narrow(n->device, to, n->params.data + piece->from, piece->count);
        else
            ops->copy(n->device, to, n->params.data + piece->from, piece->count * sizeof(float));
    }
}

void packed_take(const struct packed *p, struct engine *n, size_t lo, size_t hi)
{
    const struct device_ops *ops = n->device->ops;
    for (size_t i = 0; i < p->piece_count; i++) {
        const struct packed_piece *piece = &p->pieces[i];
        if (piece->from < lo || piece->from >= hi)
            continue;
        const float *from = n->grads.data + piece->at;
        const bool own = i >= p->first[p->rank] && i < p->first[p->rank + 1];
        if (own && p->own_narrowed)
            continue;
        if (piece->half) {
            ops->copy(n->device, narrowed_at(n, piece->from), from, piece->count * device_size(DEVICE_BF16));
            continue;
        }
        if (!own)
            ops->copy(n->device, n->params.data + piece->from, from, piece->count * sizeof(float));
        ops->narrow(n->device, narrowed_at(n, piece->from), from, piece->count);
    }
}
