#include "trainer/engine/divide.h"

#include <stdlib.h>

#include "base/mem.h"

#define BLOCKS_MOST                                                                                          \
    512 /* of the whole arrays: the last ones may be empty, so more ranks than this have empty parts */

static size_t rounded_up(size_t x, size_t to)
{
    return (x + to - 1) / to * to;
}

/* Adds blocks for the parameters up to `end`. */
static void blocks_add(struct divide *d, size_t end, size_t block, size_t *cap)
{
    for (size_t at = d->blocks[d->block_count]; at < end;) {
        at = end - at < block ? end : at + block;
        d->blocks = array_grow(d->blocks, ++d->block_count, cap, sizeof(*d->blocks));
        d->blocks[d->block_count] = at;
    }
}

/* ---- muon: a piece is a block, or all blocks of a tensor of matrices, which one rank updates */

struct pieces {
    size_t *blocks, *floats; /* by piece: the number of its blocks, and of the floats of its state */
    size_t count, cap, floats_cap;
};

static void piece_add(struct pieces *p, size_t blocks, size_t floats)
{
    p->blocks = array_grow(p->blocks, p->count, &p->cap, sizeof(*p->blocks));
    p->floats = array_grow(p->floats, p->count, &p->floats_cap, sizeof(*p->floats));
    p->blocks[p->count] = blocks;
    p->floats[p->count++] = floats;
}

/* A matrix has one moment, other parameters have two. The gap behind a matrix goes with it. */
static void pieces_take(struct pieces *p, const struct divide *d, size_t from, bool matrix)
{
    for (size_t i = from; i < d->block_count && !matrix; i++)
        piece_add(p, 1, 2 * (d->blocks[i + 1] - d->blocks[i]));
    if (matrix)
        piece_add(p, d->block_count - from, d->blocks[d->block_count] - d->blocks[from]);
}

/* Fills one rank after the other up to `most` floats. Returns how many ranks that takes; first: NULL, or gets their blocks. */
static size_t ranks_fill(const struct pieces *p, size_t most, size_t *first)
{
    size_t rank = 0, floats = 0, block = 0;
    for (size_t i = 0; i < p->count; i++) {
        if (floats + p->floats[i] > most) {
            rank++;
            floats = 0;
            if (first)
                first[rank] = block;
        }
        floats += p->floats[i];
        block += p->blocks[i];
    }
    return rank + 1;
}

/* The least `most` for which the ranks suffice, by bisection. */
static void pieces_divide(const struct pieces *p, struct divide *d, size_t world)
{
    size_t low = 0, high = 0;
    for (size_t i = 0; i < p->count; i++) {
        low = p->floats[i] > low ? p->floats[i] : low;
        high += p->floats[i];
    }
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (ranks_fill(p, middle, NULL) <= world)
            high = middle;
        else
            low = middle + 1;
    }
    for (size_t used = ranks_fill(p, low, d->first); used <= world; used++)
        d->first[used] = d->block_count;
}

static void divide_matrices(struct divide *d, const struct model *m, size_t block, size_t world)
{
    struct pieces p = {0};
    size_t cap = 1;
    for (size_t i = 0, from; i <= m->tensor_count; i++) {
        const struct model_tensor *t = i < m->tensor_count ? &m->tensors[i] : NULL;
        if (t && t->matrices == 0)
            continue;
        from = d->block_count;
        blocks_add(d, t ? t->offset : m->count, block, &cap);
        pieces_take(&p, d, from, false);
        from = d->block_count;
        if (t) {
            blocks_add(d, i + 1 < m->tensor_count ? t[1].offset : m->count, block, &cap);
            pieces_take(&p, d, from, true);
        }
    }
    pieces_divide(&p, d, world);
    free(p.blocks);
    free(p.floats);
}

/* ---- */

/* A block begins as the kernels like it. The blocks of a large model are whole pieces of a CPU's sum of squares. */
void divide_open(struct divide *d, const struct model *m, const struct train_spec *spec, int world_size)
{
    const size_t count = m->count, world = (size_t)world_size;
    const size_t block =
        rounded_up((count + BLOCKS_MOST - 1) / BLOCKS_MOST, count < BLOCKS_MOST * (size_t)4096 ? 64 : 4096);
    size_t cap = 1;
    *d = (struct divide){.blocks = xcalloc(1, sizeof(*d->blocks)),
                         .first = xcalloc(world + 1, sizeof(*d->first))};
    if (spec->optimizer.type == OPTIMIZER_MUON) {
        divide_matrices(d, m, block, world);
        return;
    }
    blocks_add(d, count, block, &cap);
    const size_t each = rounded_up(d->block_count, world) / world;
    for (size_t r = 0; r <= world; r++)
        d->first[r] = r * each < d->block_count ? r * each : d->block_count;
}

void divide_release(struct divide *d)
{
    free(d->blocks);
    free(d->first);
}

size_t divide_most(const struct divide *d, int world_size)
{
    size_t most = 0;
    for (int r = 0; r < world_size; r++)
        most = d->first[r + 1] - d->first[r] > most ? d->first[r + 1] - d->first[r] : most;
    return most;
}
