/* The ends of a ring are the nodes, or on GPUs the ranks. In a reduce-scatter or a gather each link of the ring carries all of the data
 * except the part of one end: that of the end that sends (reduce-scatter) or receives (gather) on this link. So a bucket that one end owns
 * crosses the other links as a whole. An all-reduce divides each bucket among the ends instead. */
#include "trainer/sizes_exchange.h"

#include <stdlib.h>

#include "base/mem.h"
#include "trainer/engine/divide.h"
#include "trainer/engine/packed.h"
#include "trainer/gather_cut.h"
#include "trainer/member/sync/bucket_cut.h"

struct exchange {
    struct plan_sizes *out;
    size_t bucket_cap, piece_cap;
    const size_t *parts; /* shard: optimizer; NULL: there are none */
    int ends, ranks_of_end;
    double float_bytes; /* of a gradient on the wire */
    double done;        /* the part of backward that is over */
};

/* Floats of [at, end) that this end owns. */
static double part_floats(const struct exchange *x, int end_number, size_t at, size_t end)
{
    const size_t from = x->parts[end_number * x->ranks_of_end],
                 to = x->parts[(end_number + 1) * x->ranks_of_end];
    const size_t lo = from > at ? from : at, hi = to < end ? to : end;
    return hi > lo ? (double)(hi - lo) : 0;
}

static void bucket_note(void *arg, size_t at, size_t end)
{
    struct exchange *x = arg;
    struct plan_sizes *s = x->out;
    const double floats = (double)(end - at), ends = x->ends;
    double link = 2 * (ends - 1) / ends * floats, least = floats;
    for (int i = 0; x->parts && i < x->ends; i++) {
        const double part = part_floats(x, i, at, end);
        least = part < least ? part : least;
    }
    if (x->parts)
        link = floats - least;
    s->buckets = array_grow(s->buckets, s->bucket_count, &x->bucket_cap, sizeof(*s->buckets));
    s->buckets[s->bucket_count++] =
        (struct plan_exchange){x->done, floats * x->float_bytes, link * x->float_bytes};
}

/* beside: buckets are exchanged during the backward pass, as it completes them. */
static void buckets_take(struct exchange *x, const struct engine *n, const struct model_unit *units,
                         size_t count, bool beside)
{
    const size_t floats = n->model->count + TAIL_FLOATS;
    /* If nothing is exchanged during the backward pass, each rank sums its part of the whole array at once (allreduce.c). */
    struct bucket_cut cut = {
        .bucket = x->parts && !beside ? floats : BUCKET_FLOATS, .put = bucket_note, .arg = x};
    size_t end = floats;
    for (size_t i = count; i-- > 0; end = units[i].begin) {
        x->done += units[i].work;
        bucket_cut_piece(&cut, units[i].begin, end - units[i].begin);
    }
    bucket_cut_end(&cut);
}

/* The fraction of the forward pass that does not need parameters from `from` on. */
static double needed_at(const struct model_unit *units, size_t count, size_t from)
{
    double done = 0;
    for (size_t i = 0; i < count && units[i].need <= from; i++)
        done += units[i].work;
    return done;
}

static void pieces_take(struct exchange *x, const struct engine *n, const struct model_unit *units,
                        size_t count)
{
    const size_t floats = n->model->count, world = (size_t)(x->ends * x->ranks_of_end),
                 lanes = x->ends == 2 ? 2 : 1;
    struct plan_sizes *s = x->out;
    struct packed packed;
    size_t *cuts;
    double float_bytes = sizeof(float);
    if (packed_open(&packed, n, 0, (int)world, NULL, 0)) {
        float_bytes *= (double)packed.offsets[world] / (double)floats;
        packed_release(&packed);
    }
    const size_t pieces = gather_cut(floats, lanes, x->parts[world / 2], &cuts);
    for (size_t i = 0; i < pieces; i++) {
        double sum = 0, least = (double)floats, at = 1;
        for (int end = 0; end < x->ends; end++) {
            double part = 0;
            for (size_t l = 0; l < lanes; l++)
                part += part_floats(x, end, cuts[l * (pieces + 1) + i], cuts[l * (pieces + 1) + i + 1]);
            sum += part;
            least = part < least ? part : least;
        }
        for (size_t l = 0; l < lanes; l++) {
            const double needed = needed_at(units, count, cuts[l * (pieces + 1) + i]);
            at = needed < at ? needed : at;
        }
        s->pieces = array_grow(s->pieces, s->piece_count, &x->piece_cap, sizeof(*s->pieces));
        s->pieces[s->piece_count++] =
            (struct plan_exchange){at, sum * float_bytes, (sum - least) * float_bytes};
    }
    free(cuts);
}

void sizes_exchange(const struct engine *n, int world, int per_node, bool gpu, struct plan_sizes *out)
{
    const bool divided = n->spec->shard == SHARD_OPTIMIZER && world > 1, beside = gpu || per_node < world;
    const bool half = n->spec->sync.type == SYNC_ALLREDUCE && n->spec->sync.wire == WIRE_BF16;
    const size_t count = model_units(n->model, NULL);
    struct model_unit *units = xcalloc(count, sizeof(*units));
    size_t *parts = xcalloc((size_t)world + 1, sizeof(*parts));
    struct exchange x = {.out = out,
                         .ends = gpu ? world : world / per_node,
                         .ranks_of_end = gpu ? 1 : per_node,
                         .float_bytes = half ? 2 : 4};
    model_units(n->model, units);
    if (divided) {
        (void)engine_divide(n, world, parts);
        x.parts = parts;
    }
    buckets_take(&x, n, units, count, beside);
    if (divided && beside)
        pieces_take(&x, n, units, count);
    free(units);
    free(parts);
}
