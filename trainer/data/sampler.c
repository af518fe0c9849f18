#include "trainer/data/sampler.h"

#include "base/random.h"

#define ROUNDS 4

static int64_t ceil_div(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

/* The number of positions in an epoch. With pad, it is a multiple of the number of ranks. */
static int64_t epoch_positions(const struct sampler *s)
{
    return s->pad ? ceil_div(s->samples, s->world_size) * s->world_size : s->samples;
}

int64_t sampler_steps(const struct sampler *s)
{
    return ceil_div(epoch_positions(s), s->global);
}

int64_t sampler_steps_left(const struct sampler *s, const struct cursor *c)
{
    int64_t left = epoch_positions(s) - c->position;
    return left > 0 ? ceil_div(left, s->global) : 0;
}

int64_t sampler_global_samples(const struct sampler *s, const struct cursor *c)
{
    int64_t left = epoch_positions(s) - c->position;
    return left < s->global ? left : s->global;
}

static int64_t micro_size(const struct sampler *s)
{
    return ceil_div(s->global, s->accumulate);
}

int64_t sampler_max_rows(const struct sampler *s)
{
    return ceil_div(micro_size(s), s->world_size);
}

int64_t sampler_micro_batches(const struct sampler *s)
{
    if (!s->bounds)
        return s->accumulate;
    return ceil_div(s->bounds[s->rank + 1] - s->bounds[s->rank], sampler_max_rows(s));
}

/* The part of a step of `whole` samples that lies before a bound of a whole step. By bounds, so that rounding loses none. */
static int64_t bound_of(const struct sampler *s, int64_t whole, int rank)
{
    return s->bounds[rank] * whole / s->global;
}

static void bounded_batch(const struct sampler *s, const struct cursor *c, int64_t micro,
                          struct sampler_batch *out)
{
    int64_t whole = sampler_global_samples(s, c);
    int64_t from = bound_of(s, whole, s->rank), mine = bound_of(s, whole, s->rank + 1) - from;
    int64_t size = ceil_div(mine, sampler_micro_batches(s)), left = mine - micro * size;
    out->first = c->position + from + micro * size;
    out->stride = 1;
    out->count = left < size ? left : size;
    if (out->count < 0)
        out->count = 0;
}

void sampler_batch(const struct sampler *s, const struct cursor *c, int64_t micro, struct sampler_batch *out)
{
    if (s->bounds) {
        bounded_batch(s, c, micro, out);
        return;
    }
    int64_t size = micro_size(s), whole = sampler_global_samples(s, c);
    int64_t from = micro * size, to = from + size < whole ? from + size : whole;
    int64_t mine = to - from - s->rank;
    out->first = c->position + from + s->rank;
    out->stride = s->world_size;
    out->count = mine > 0 ? ceil_div(mine, s->world_size) : 0;
}

int64_t sampler_local_samples(const struct sampler *s, const struct cursor *c)
{
    int64_t total = 0;
    struct sampler_batch b;
    for (int64_t i = 0; i < sampler_micro_batches(s); i++) {
        sampler_batch(s, c, i, &b);
        total += b.count;
    }
    return total;
}

void sampler_indices(const struct sampler *s, const struct cursor *c, const struct sampler_batch *b,
                     int64_t *index)
{
    for (int64_t i = 0; i < b->count; i++)
        index[i] = sampler_permute(s, c->epoch, (b->first + i * b->stride) % s->samples);
}

bool sampler_advance(const struct sampler *s, struct cursor *c)
{
    c->position += sampler_global_samples(s, c);
    if (c->position < epoch_positions(s))
        return false;
    c->epoch++;
    c->position = 0;
    return true;
}

static uint64_t feistel_permute(uint64_t x, int half_bits, uint64_t key)
{
    uint64_t mask = ((uint64_t)1 << half_bits) - 1;
    uint64_t left = x >> half_bits, right = x & mask;
    for (uint64_t round = 0; round < ROUNDS; round++) {
        uint64_t next = left ^ (random_mix(right + key + round * 0x9e3779b97f4a7c15u) & mask);
        left = right;
        right = next;
    }
    return left << half_bits | right;
}

int64_t sampler_permute(const struct sampler *s, int64_t epoch, int64_t position)
{
    if (!s->shuffle)
        return position;
    int half_bits = 1;
    while (half_bits < 31 && ((int64_t)1 << (2 * half_bits)) < s->samples)
        half_bits++;
    struct random r = random_stream(s->seed, (uint64_t)epoch);
    uint64_t key = random_u64(&r), x = (uint64_t)position;
    do
        x = feistel_permute(x, half_bits, key);
    while (x >= (uint64_t)s->samples);
    return (int64_t)x;
}
