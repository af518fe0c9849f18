#ifndef DDP_BASE_DIGEST_H
#define DDP_BASE_DIGEST_H

#include <stddef.h>
#include <stdint.h>

/* A fast 64-bit digest that tells two arrays apart, not an adversary's forgery: where two runs part, where
 * memory went wrong, whether a file is the one it was. Any change of one 32-bit word changes it. The same on
 * every machine of one byte order, whatever the number of threads or the instruction set. Any thread. */

/* Goes on from `before` (0 at the start); pieces that are whole 32-bit words, but the last, and in the same
 * cuts, give the same digest. */
uint64_t digest64(uint64_t before, const void *data, size_t size);

/* The same from the sums of its blocks of DIGEST_BLOCK words, which can be made anywhere, side by side; size:
 * a multiple of 4. A block's sum: word i times (2654435761 (i + 1) mod 2^32 | 1), in 64 bits. */
#define DIGEST_BLOCK 1024
uint64_t digest64_sums(uint64_t before, const uint64_t *sums, size_t size);
uint64_t digest64_sum(const void *words, size_t count); /* count: at most DIGEST_BLOCK */

#endif
