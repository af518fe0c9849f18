#include "trainer/member/coll/sum.h"

#include <stdint.h>
#include <string.h>

typedef void sum_fn(float *const *in, int ins, float *const *out, int outs, size_t lo, size_t hi);

static void sum_plain(float *const *in, int ins, float *const *out, int outs, size_t lo, size_t hi)
{
    for (size_t i = lo; i < hi; i++) {
        float sum = in[0][i];

        for (int r = 1; r < ins; r++)
            sum += in[r][i];
        for (int k = 0; k < outs; k++)
            out[k][i] = sum;
    }
}

#if defined(__x86_64__)
#include <immintrin.h>

/* Adds four vectors of W floats at a time, and the rest by sum_plain. A STORE that streams needs aligned
 * addresses. */
#define DEFINE_SUM(name, isa, V, W, LOAD, ADD, STORE)                                                        \
    __attribute__((target(isa))) static void name(float *const *in, int ins, float *const *out, int outs,    \
                                                  size_t lo, size_t hi)                                      \
    {                                                                                                        \
        size_t i = lo;                                                                                       \
                                                                                                             \
        for (; i + 4 * (W) <= hi; i += 4 * (W)) {                                                            \
            V a = LOAD(in[0] + i), b = LOAD(in[0] + i + (W));                                                \
            V c = LOAD(in[0] + i + 2 * (W)), d = LOAD(in[0] + i + 3 * (W));                                  \
                                                                                                             \
            for (int r = 1; r < ins; r++) {                                                                  \
                const float *x = in[r] + i;                                                                  \
                                                                                                             \
                a = ADD(a, LOAD(x));                                                                         \
                b = ADD(b, LOAD(x + (W)));                                                                   \
                c = ADD(c, LOAD(x + 2 * (W)));                                                               \
                d = ADD(d, LOAD(x + 3 * (W)));                                                               \
            }                                                                                                \
            for (int k = 0; k < outs; k++) {                                                                 \
                float *y = out[k] + i;                                                                       \
                                                                                                             \
                STORE(y, a);                                                                                 \
                STORE(y + (W), b);                                                                           \
                STORE(y + 2 * (W), c);                                                                       \
                STORE(y + 3 * (W), d);                                                                       \
            }                                                                                                \
        }                                                                                                    \
        sum_plain(in, ins, out, outs, i, hi);                                                                \
    }

DEFINE_SUM(sum_512, "avx512f", __m512, 16, _mm512_loadu_ps, _mm512_add_ps, _mm512_storeu_ps)
DEFINE_SUM(stream_512, "avx512f", __m512, 16, _mm512_loadu_ps, _mm512_add_ps, _mm512_stream_ps)
DEFINE_SUM(sum_256, "avx", __m256, 8, _mm256_loadu_ps, _mm256_add_ps, _mm256_storeu_ps)
DEFINE_SUM(stream_256, "avx", __m256, 8, _mm256_loadu_ps, _mm256_add_ps, _mm256_stream_ps)
DEFINE_SUM(sum_128, "sse2", __m128, 4, _mm_loadu_ps, _mm_add_ps, _mm_storeu_ps)
DEFINE_SUM(stream_128, "sse2", __m128, 4, _mm_loadu_ps, _mm_add_ps, _mm_stream_ps)

static sum_fn *sum_choose(bool stream)
{
    if (__builtin_cpu_supports("avx512f"))
        return stream ? stream_512 : sum_512;
    if (__builtin_cpu_supports("avx"))
        return stream ? stream_256 : sum_256;
    return stream ? stream_128 : sum_128;
}

static void stream_done(void)
{
    _mm_sfence(); /* the barrier's atomics do not order streamed stores */
}
#else
static sum_fn *sum_choose(bool stream)
{
    (void)stream;
    return sum_plain;
}

static void stream_done(void)
{
}
#endif

void coll_sum(float *const *in, int ins, float *const *out, int outs, size_t lo, size_t hi, bool stream)
{
    size_t head;

    if (!stream) {
        sum_choose(false)(in, ins, out, outs, lo, hi);
        return;
    }
    head = lo + ((64 - ((uintptr_t)(out[0] + lo) & 63)) & 63) / sizeof(float);
    head = head < hi ? head : hi;
    sum_plain(in, ins, out, outs, lo, head);
    sum_choose(true)(in, ins, out, outs, head, hi);
    stream_done();
}

#define PART 512 /* floats that one level of the tree adds up at a time */
#define LEVELS 11

/* Returns the sum of in[k][at, at + n) over k < ins. It lies in `room`, or in the array itself if there is
 * only one. */
static const float *tree_part(float *const *in, int ins, size_t at, size_t n, float *room)
{
    const float *left, *right;
    int half = 1;

    if (ins == 1)
        return in[0] + at;
    while (2 * half < ins)
        half *= 2;
    left = tree_part(in, half, at, n, room);
    right = tree_part(in + half, ins - half, at, n, room + PART);
    for (size_t i = 0; i < n; i++)
        room[i] = left[i] + right[i];
    return room;
}

void coll_sum_tree(float *const *in, int ins, float *const *out, int outs, size_t lo, size_t hi)
{
    float room[LEVELS * PART];

    for (size_t at = lo; at < hi; at += PART) {
        size_t n = hi - at < PART ? hi - at : PART;
        const float *sum = tree_part(in, ins, at, n, room);

        for (int k = 0; k < outs; k++)
            if (sum != out[k] + at)
                memcpy(out[k] + at, sum, n * sizeof(float));
    }
}

void coll_add(float *data, const float *got, size_t count)
{
    float *const in[2] = {(float *)(uintptr_t)got, data};

    sum_choose(false)(in, 2, &data, 1, 0, count);
}
