#ifndef DDP_TRAINER_DEVICE_CPU_DROPOUT_H
#define DDP_TRAINER_DEVICE_CPU_DROPOUT_H

#include "trainer/device/cpu/vec.h"
#include "trainer/device/device.h"

/* Computes 64 elements of a dropout mask, each 0 or 1 / (1 - p): see struct device_dropout. */

#define DROPOUT_CHUNK 64

/* Philox4x32-7: sixteen counters that differ in their first word. */
VEC_INLINE void dropout_philox(uint32_t out[4][LANES], uint32_t first, uint32_t line, uint64_t sample,
                               uint64_t key)
{
    uint32_t a[LANES], b[LANES], c[LANES], d[LANES];
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
    for (int i = 0; i < LANES; i++) {
        a[i] = first + (uint32_t)i;
        b[i] = line;
        c[i] = (uint32_t)sample;
        d[i] = (uint32_t)(sample >> 32);
    }
    for (int round = 0; round < 7; round++) {
        for (int i = 0; i < LANES; i++) {
            uint64_t p = (uint64_t)a[i] * 0xd2511f53u, q = (uint64_t)c[i] * 0xcd9e8d57u;
            uint32_t next = (uint32_t)(q >> 32) ^ b[i] ^ k0;
            c[i] = (uint32_t)(p >> 32) ^ d[i] ^ k1;
            b[i] = (uint32_t)q;
            d[i] = (uint32_t)p;
            a[i] = next;
        }
        k0 += 0x9e3779b9u;
        k1 += 0xbb67ae85u;
    }
    memcpy(out[0], a, sizeof(a));
    memcpy(out[1], b, sizeof(b));
    memcpy(out[2], c, sizeof(c));
    memcpy(out[3], d, sizeof(d));
}

/* Writes elements from, ..., from + 63 of a line's mask; `from` is a multiple of 64. */
static __attribute__((noinline, unused)) void dropout_mask(float mask[DROPOUT_CHUNK],
                                                           const struct device_dropout *h, int64_t row,
                                                           int64_t line, int64_t from)
{
    uint32_t words[4][LANES];
    double limit = (double)h->p * 4294967296.0;
    uint32_t least = limit < 4294967295.0 ? (uint32_t)limit : 4294967295u;
    float kept = 1.0f / (1.0f - h->p);
    dropout_philox(words, (uint32_t)(from / 4), (uint32_t)line, (uint64_t)h->sample[row], h->key);
    for (int w = 0; w < 4; w++)
        for (int i = 0; i < LANES; i++)
            mask[w * LANES + i] = words[w][i] < least ? 0.0f : kept;
}

#endif
