#include "base/digest.h"

#include <string.h>

#include "base/random.h"

/* Each word is multiplied by its own odd number, so a change of a single word always changes the sum. The sum of
 * a block is folded into the digest by a bijection. Four sums at a time use the processor's multipliers fully. */

#define STEP 0x9e3779b1u

static uint64_t digest64_fold(uint64_t digest, uint64_t sum)
{
    return random_mix(digest * 0x9e3779b97f4a7c15u + sum);
}

uint64_t digest64_sum(const void *data, size_t count)
{
    const unsigned char *words = data;
    uint64_t a = 0, b = 0, c = 0, d = 0;
    uint32_t factor = STEP, w[4];
    size_t i = 0;

    for (; i + 4 <= count; i += 4, factor += 4 * STEP) {
        memcpy(w, words + 4 * i, sizeof(w));
        a += (uint64_t)w[0] * (factor | 1);
        b += (uint64_t)w[1] * ((factor + STEP) | 1);
        c += (uint64_t)w[2] * ((factor + 2 * STEP) | 1);
        d += (uint64_t)w[3] * ((factor + 3 * STEP) | 1);
    }
    for (; i < count; i++, factor += STEP) {
        memcpy(w, words + 4 * i, sizeof(w[0]));
        a += (uint64_t)w[0] * (factor | 1);
    }
    return a + b + c + d;
}

uint64_t digest64_begin(uint64_t before, size_t size)
{
    return digest64_fold(before, size);
}

uint64_t digest64_add(uint64_t digest, const void *data, size_t size)
{
    const unsigned char *at = data;
    size_t words = size / 4, rest = size % 4;

    for (size_t done = 0; done < words; done += DIGEST_BLOCK)
        digest = digest64_fold(
            digest, digest64_sum(at + 4 * done, words - done < DIGEST_BLOCK ? words - done : DIGEST_BLOCK));
    if (rest) {
        unsigned char last[4] = {0};

        memcpy(last, at + 4 * words, rest);
        digest = digest64_fold(digest, digest64_sum(last, 1));
    }
    return digest;
}

uint64_t digest64(uint64_t before, const void *data, size_t size)
{
    return digest64_add(digest64_begin(before, size), data, size);
}

uint64_t digest64_sums(uint64_t before, const uint64_t *sums, size_t size)
{
    uint64_t digest = digest64_fold(before, size);

    for (size_t done = 0; done < size / 4; done += DIGEST_BLOCK)
        digest = digest64_fold(digest, *sums++);
    return digest;
}
