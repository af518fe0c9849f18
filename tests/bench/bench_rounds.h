#ifndef DDP_TESTS_BENCH_BENCH_ROUNDS_H
#define DDP_TESTS_BENCH_BENCH_ROUNDS_H

#include <stddef.h>
#include <stdint.h>

/* The options and the measuring of bench_allreduce, for the programs that measure the all-reduce of other libraries:
 *
 *   PROGRAM --ranks N [--ms PER_SIZE] [--sizes BYTES,...] */

#define BENCH_MAX_SIZES 32
#define BENCH_MAX_CALLS 100000

struct bench_rounds {
    int ranks, sizes;
    int64_t ms;
    size_t size[BENCH_MAX_SIZES];
};
void bench_rounds_read(struct bench_rounds *b, int argc, char **argv);

/* All ranks make the same calls. sum: sum over the ranks, in place. share: rank 0's number gets to all. */
struct bench_peer {
    void *of;
    void (*sum)(void *of, float *data, size_t count);
    void (*share)(void *of, int64_t *number);
};
/* Rank 0 prints a line for each size: bytes, median and best microseconds of a call, microseconds of its CPU time. */
void bench_rounds_run(const struct bench_rounds *b, const struct bench_peer *peer, int rank);

#endif
