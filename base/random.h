#ifndef DDP_BASE_RANDOM_H
#define DDP_BASE_RANDOM_H

#include <stdint.h>

/* Random numbers that are the same on every machine: SplitMix64 (Steele, Lea and Flood, OOPSLA 2014). A seed
 * and a number select a stream, so that callers do not depend on each other's order of draws. */

struct random {
    uint64_t state;
};

static inline uint64_t random_mix(uint64_t z)
{
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static inline uint64_t random_u64(struct random *r)
{
    return random_mix(r->state += 0x9e3779b97f4a7c15u);
}

static inline struct random random_stream(uint64_t seed, uint64_t number)
{
    uint64_t key = random_mix(seed + 0x9e3779b97f4a7c15u);
    return (struct random){random_mix(key ^ random_mix(number + 0xd1b54a32d192ed03u))};
}

static inline float random_float(struct random *r) /* [0, 1), 24 bits */
{
    return (float)(random_u64(r) >> 40) * 0x1p-24f;
}

#endif
