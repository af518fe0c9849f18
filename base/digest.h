#ifndef DDP_BASE_DIGEST_H
#define DDP_BASE_DIGEST_H

#include <stddef.h>
#include <stdint.h>

/* A fast 64-bit digest that detects accidental differences between two arrays, but no forgery. It finds the step
 * at which two runs differ, damaged memory, and changed files. Any change of one 32-bit word changes the digest.
 * It is the same on all machines of one byte order, for every number of threads and instruction set. Any
 * thread. */

/* Continues from `before` (0 at the start). Pieces give the same digest if they have the same sizes. All but the
 * last must be whole 32-bit words. */
uint64_t digest64(uint64_t before, const void *data, size_t size);

/* The same digest of an array that comes in pieces: begins with the size of all of them, and then adds one after the other. All
 * but the last must be whole blocks of DIGEST_BLOCK words. */
uint64_t digest64_begin(uint64_t before, size_t size);
uint64_t digest64_add(uint64_t digest, const void *data, size_t size);

/* The same digest from the sums of the blocks of DIGEST_BLOCK words. The sums can be computed in parallel. size:
 * a multiple of 4. A block's sum: word i times (2654435761 (i + 1) mod 2^32 | 1), in 64 bits. */
#define DIGEST_BLOCK 1024
uint64_t digest64_sums(uint64_t before, const uint64_t *sums, size_t size);
uint64_t digest64_sum(const void *words, size_t count); /* count: at most DIGEST_BLOCK */

#endif
