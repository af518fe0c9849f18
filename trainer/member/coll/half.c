/* Each loop works on a block of local arrays, so that the compiler makes vector code of it although the arrays in memory overlap. */
#include "trainer/member/coll/half.h"

#include <stdint.h>
#include <string.h>

#define BLOCK 256
#define HALF sizeof(uint16_t)

#define HALF_INLINE static inline __attribute__((always_inline))

/* NAN stays NAN, whatever its lower bits. */
HALF_INLINE void block_round(uint16_t *to, const float *x)
{
    for (int i = 0; i < BLOCK; i++) {
        uint32_t bits, rounded;

        memcpy(&bits, &x[i], sizeof(bits));
        rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
        to[i] = (uint16_t)((bits & 0x7fffffff) > 0x7f800000 ? (bits >> 16 | 0x40) : rounded);
    }
}

HALF_INLINE void block_floats(float *to, const uint16_t *x)
{
    for (int i = 0; i < BLOCK; i++) {
        uint32_t bits = (uint32_t)x[i] << 16;

        memcpy(&to[i], &bits, sizeof(bits));
    }
}

HALF_INLINE size_t block_size(size_t left)
{
    return left < BLOCK ? left : BLOCK;
}

HALF_INLINE void narrow_blocks(char *data, size_t count)
{
    for (size_t at = 0; at < count; at += BLOCK) {
        size_t n = block_size(count - at);
        float x[BLOCK] = {0};
        uint16_t halves[BLOCK];

        memcpy(x, data + at * sizeof(float), n * sizeof(float));
        block_round(halves, x);
        memcpy(data + at * HALF, halves, n * HALF);
    }
}

/* From the end, because a float lies above the half that it comes from. */
HALF_INLINE void widen_blocks(char *data, size_t lo, size_t hi)
{
    while (hi > lo) {
        size_t n = block_size(hi - lo);
        uint16_t halves[BLOCK] = {0};
        float x[BLOCK];

        hi -= n;
        memcpy(halves, data + hi * HALF, n * HALF);
        block_floats(x, halves);
        memcpy(data + hi * sizeof(float), x, n * sizeof(float));
    }
}

HALF_INLINE void sum_blocks(void *const *in, int ins, void *const *out, int outs, size_t lo, size_t hi)
{
    for (size_t at = lo; at < hi; at += BLOCK) {
        size_t n = block_size(hi - at);
        uint16_t halves[BLOCK] = {0};
        float sum[BLOCK], x[BLOCK];

        memcpy(halves, (const char *)in[0] + at * HALF, n * HALF);
        block_floats(sum, halves);
        for (int r = 1; r < ins; r++) {
            memcpy(halves, (const char *)in[r] + at * HALF, n * HALF);
            block_floats(x, halves);
            for (int i = 0; i < BLOCK; i++)
                sum[i] += x[i];
        }
        block_round(halves, sum);
        for (int k = 0; k < outs; k++)
            memcpy((char *)out[k] + at * HALF, halves, n * HALF);
    }
}

#if defined(__x86_64__)
__attribute__((target("avx2"))) static void narrow_wide(char *data, size_t count)
{
    narrow_blocks(data, count);
}
__attribute__((target("avx2"))) static void widen_wide(char *data, size_t lo, size_t hi)
{
    widen_blocks(data, lo, hi);
}
__attribute__((target("avx2"))) static void sum_wide(void *const *in, int ins, void *const *out, int outs,
                                                     size_t lo, size_t hi)
{
    sum_blocks(in, ins, out, outs, lo, hi);
}
#define WIDE __builtin_cpu_supports("avx2")
#else
#define WIDE 0
#define narrow_wide narrow_blocks
#define widen_wide widen_blocks
#define sum_wide sum_blocks
#endif

void half_narrow(void *data, size_t count)
{
    if (WIDE)
        narrow_wide(data, count);
    else
        narrow_blocks(data, count);
}

void half_widen(void *data, size_t lo, size_t hi)
{
    if (WIDE)
        widen_wide(data, lo, hi);
    else
        widen_blocks(data, lo, hi);
}

void half_sum(void *const *in, int ins, void *const *out, int outs, size_t lo, size_t hi)
{
    if (WIDE)
        sum_wide(in, ins, out, outs, lo, hi);
    else
        sum_blocks(in, ins, out, outs, lo, hi);
}

void half_add(void *data, const void *got, size_t count)
{
    void *const in[2] = {(void *)(uintptr_t)got, data};

    half_sum(in, 2, &data, 1, 0, count);
}
