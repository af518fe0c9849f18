/* Collectives of one node. All-reduce is direct: every rank maps all arrays; rank r adds up the r-th part of
 * all arrays in rank order and writes the sum to all of them. Each array is read once and written once,
 * whatever the number of ranks. One rank computes each part, so all ranks get the same bits. Small arrays go
 * through mailboxes: this takes one barrier instead of two, and every rank adds up everything in the same
 * order. With `tree`, sums are taken in the tree's order. */
#include "trainer/member/coll/shared_memory.h"
#include "trainer/member/coll/group.h"
#include "trainer/member/coll/half_calls.h"
#include "trainer/member/coll/shm.h"
#include "trainer/member/coll/sum.h"

#include "base/digest.h"
#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

#define LINE 16 /* floats */
#define LINE_BYTES (LINE * sizeof(float))

void coll_slice(size_t at, size_t count, int n, int i, size_t *lo, size_t *hi)
{
    size_t begin = at / LINE * LINE, end = at + count, lines = (end - begin + LINE - 1) / LINE;
    size_t from = begin + lines * (size_t)i / (size_t)n * LINE,
           to = begin + lines * (size_t)(i + 1) / (size_t)n * LINE;

    *lo = from < at ? at : from;
    *hi = to > end ? end : to;
    if (*lo > *hi)
        *lo = *hi;
}

bool coll_streams(const struct coll_group *g, size_t count)
{
    return (size_t)g->layout.locals * count * sizeof(float) > g->cache;
}

void shared_memory_sum(struct coll_group *g, float *const *in, float *const *out, int outs, size_t lo,
                       size_t hi, bool stream)
{
    if (g->tree)
        coll_sum_tree(in, g->layout.locals, out, outs, lo, hi);
    else
        coll_sum(in, g->layout.locals, out, outs, lo, hi, stream);
}

enum err_code shared_memory_meet(struct coll_group *g, const struct coll_array *array, size_t at,
                                 size_t count, struct err *e)
{
    struct shm_intent intent = {SHM_ALLREDUCE, (uint64_t)(array - g->arrays), at, count};

    shm_begin(g);
    return shm_meet(g, &intent, e);
}

static enum err_code reduce_mail(struct coll_group *g, const struct coll_array *array, size_t at,
                                 size_t count, struct err *e)
{
    struct shm_intent intent = {SHM_ALLREDUCE, (uint64_t)(array - g->arrays), at, count};
    float *data = array->maps[g->layout.local] + at;
    float **mail = xmalloc((size_t)g->layout.locals * sizeof(*mail));
    enum err_code rc;

    shm_begin(g);
    for (int i = 0; i < g->layout.locals; i++)
        mail[i] = shm_mail(g, i);
    memcpy(mail[g->layout.local], data, count * sizeof(float));
    rc = shm_meet(g, &intent, e);
    if (!rc)
        shared_memory_sum(g, mail, &data, 1, 0, count, false);
    free(mail);
    return rc;
}

static enum err_code shared_memory_allreduce(struct coll_group *g, const struct coll_array *array, size_t at,
                                             size_t count, struct err *e)
{
    int n = g->layout.locals;
    size_t lo, hi;

    if (count * sizeof(float) <= SHM_MAIL) {
        g->bytes += (size_t)(n - 1) * count * sizeof(float);
        return reduce_mail(g, array, at, count, e);
    }
    if (shared_memory_meet(g, array, at, count, e))
        return e->code;
    coll_slice(at, count, n, g->layout.local, &lo, &hi);
    shared_memory_sum(g, array->maps, array->maps, n, lo, hi, coll_streams(g, count));
    g->bytes += (size_t)(n - 1) * (hi - lo) * sizeof(float);
    return shm_barrier(g, e);
}

uint64_t coll_parts_digest(const struct coll_group *g, const size_t *from, const size_t *to)
{
    const size_t bytes = (size_t)g->layout.world_size * sizeof(*from);

    return digest64(digest64(0, from, bytes), to, bytes);
}

size_t coll_parts_floats(const struct coll_group *g, const size_t *from, const size_t *to)
{
    size_t sum = 0;

    for (int r = 0; r < g->layout.world_size; r++)
        sum += to[r] - from[r];
    return sum;
}

enum err_code shared_memory_meet_parts(struct coll_group *g, uint64_t kind, const struct coll_array *array,
                                       size_t at, const size_t *from, const size_t *to, struct err *e)
{
    struct shm_intent intent = {kind, (uint64_t)(array - g->arrays), at, coll_parts_digest(g, from, to)};

    shm_begin(g);
    return shm_meet(g, &intent, e);
}

/* Each rank adds up its own part of all arrays, and nobody else writes there. */
static enum err_code ranks_reduce_scatter(struct coll_group *g, const struct coll_array *array, size_t at,
                                          const size_t *offsets, struct err *e)
{
    const int n = g->layout.locals, local = g->layout.local;
    const size_t lo = at + offsets[local], hi = at + offsets[local + 1];

    if (shared_memory_meet_parts(g, SHM_SCATTER, array, at, offsets, offsets + 1, e))
        return e->code;
    shared_memory_sum(g, array->maps, &array->maps[local], 1, lo, hi, coll_streams(g, offsets[n]));
    g->bytes += (size_t)(n - 1) * (hi - lo) * sizeof(float);
    return shm_barrier(g, e);
}

/* Nobody changes its part before all ranks have copied it. */
static enum err_code ranks_gather(struct coll_group *g, const struct coll_array *array, size_t at,
                                  const size_t *from, const size_t *to, struct err *e)
{
    const int n = g->layout.locals, local = g->layout.local;
    const bool stream = coll_streams(g, coll_parts_floats(g, from, to));
    float *mine = array->maps[local];

    if (shared_memory_meet_parts(g, SHM_GATHER, array, at, from, to, e))
        return e->code;
    for (int i = 1; i < n; i++) {
        int other = (local + i) % n;

        coll_sum(&array->maps[other], 1, &mine, 1, at + from[other], at + to[other], stream);
        g->bytes += (to[other] - from[other]) * sizeof(float);
    }
    return shm_barrier(g, e);
}

static size_t size_min(size_t a, size_t b)
{
    return a < b ? a : b;
}

enum err_code shared_memory_broadcast(struct coll_group *g, void *data, size_t size, int root, struct err *e)
{
    for (size_t at = 0; at < size || at == 0; at += SHM_STAGE) {
        size_t part = size_min(size - at, SHM_STAGE);
        struct shm_intent intent = {SHM_BROADCAST, (uint64_t)root, at, size};

        shm_begin(g);
        if (g->layout.local == root && part)
            memcpy(shm_stage(g), (char *)data + at, part);
        if (shm_meet(g, &intent, e))
            return e->code;
        if (g->layout.local != root && part) {
            memcpy((char *)data + at, shm_stage(g), part);
            g->bytes += part;
        }
    }
    return ERR_OK;
}

/* Each rank has a place of `most` bytes: its mailbox or, for more, its part of the staging area, which takes
 * more in one meeting. */
struct gather_places {
    bool staged;
    size_t most;
};

static struct gather_places gather_plan(const struct coll_group *g, size_t size)
{
    size_t part = SHM_STAGE / (size_t)g->layout.locals / LINE_BYTES * LINE_BYTES;

    if (size > SHM_MAIL && part > SHM_MAIL)
        return (struct gather_places){.staged = true, .most = part};
    return (struct gather_places){.most = SHM_MAIL};
}

static char *gather_place(struct coll_group *g, const struct gather_places *p, int local)
{
    return p->staged ? (char *)shm_stage(g) + (size_t)local * p->most : shm_mail(g, local);
}

enum err_code shared_memory_allgather(struct coll_group *g, const void *mine, size_t size, char *out,
                                      struct err *e)
{
    struct gather_places p = gather_plan(g, size);

    for (size_t at = 0; at < size || at == 0; at += p.most) {
        size_t part = size_min(size - at, p.most);
        struct shm_intent intent = {SHM_ALLGATHER, 0, at, size};

        shm_begin(g);
        if (part)
            memcpy(gather_place(g, &p, g->layout.local), (const char *)mine + at, part);
        if (shm_meet(g, &intent, e))
            return e->code;
        for (int i = 0; part && i < g->layout.locals; i++)
            memcpy(out + (size_t)i * size + at, gather_place(g, &p, i), part);
        g->bytes += (size_t)(g->layout.locals - 1) * part;
    }
    return ERR_OK;
}

/* All data passes through the rank's place, piece by piece. Each rank reads its own part of each piece alone. */
static enum err_code ranks_exchange(struct coll_group *g, const void *mine, const size_t *offsets, void *out,
                                    struct err *e)
{
    int n = g->layout.locals, local = g->layout.local;
    size_t size = offsets[n], begin = offsets[local], end = offsets[local + 1];
    struct gather_places p = gather_plan(g, size);

    for (size_t at = 0; at < size || at == 0; at += p.most) {
        size_t part = size_min(size - at, p.most), lo = begin > at ? begin : at,
               hi = size_min(end, at + part);
        struct shm_intent intent = {SHM_EXCHANGE, 0, at, size};

        shm_begin(g);
        if (part)
            memcpy(gather_place(g, &p, local), (const char *)mine + at, part);
        if (shm_meet(g, &intent, e))
            return e->code;
        if (lo >= hi)
            continue;
        for (int i = 0; i < n; i++)
            memcpy((char *)out + (size_t)i * (end - begin) + (lo - begin), gather_place(g, &p, i) + (lo - at),
                   hi - lo);
        g->bytes += (size_t)(n - 1) * (hi - lo);
    }
    return ERR_OK;
}

static enum err_code ranks_broadcast(struct coll_group *g, void *data, size_t size, int root, struct err *e)
{
    return shared_memory_broadcast(g, data, size, g->layout.local_of[root], e);
}

static enum err_code ranks_allgather(struct coll_group *g, const void *mine, size_t size, void *out,
                                     struct err *e)
{
    return shared_memory_allgather(g, mine, size, out, e); /* on one node, local ranks are ranks */
}

static enum err_code ranks_barrier(struct coll_group *g, struct err *e)
{
    struct shm_intent intent = {.kind = SHM_BARRIER};

    shm_begin(g);
    return shm_meet(g, &intent, e);
}

const struct coll_ops coll_shared_memory_ops = {
    .name = "shm",
    .overlaps = false,
    .allreduce = shared_memory_allreduce,
    .reduce_scatter = ranks_reduce_scatter,
    .allreduce_bf16 = half_allreduce,
    .reduce_scatter_bf16 = half_reduce_scatter,
    .gather = ranks_gather,
    .broadcast = ranks_broadcast,
    .allgather = ranks_allgather,
    .exchange = ranks_exchange,
    .barrier = ranks_barrier,
};
