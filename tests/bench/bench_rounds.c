#include "tests/bench/bench_rounds.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "base/mem.h"

static int64_t clock_ns(clockid_t which)
{
    struct timespec t;

    clock_gettime(which, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static int times_compare(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

    return (x > y) - (x < y);
}

/* Rank 0 measures a call and decides how many calls fit the time. */
static int64_t calls_agree(const struct bench_rounds *b, const struct bench_peer *peer, float *data,
                           size_t count)
{
    int64_t took = 0, calls;

    for (int i = 0; i < 3; i++) {
        const int64_t start = clock_ns(CLOCK_MONOTONIC);

        peer->sum(peer->of, data, count);
        took = clock_ns(CLOCK_MONOTONIC) - start;
    }
    calls = b->ms * 1000000 / (took + 1);
    calls = calls < 7 ? 7 : calls > BENCH_MAX_CALLS ? BENCH_MAX_CALLS : calls;
    peer->share(peer->of, &calls);
    return calls;
}

#define HUGE_PAGE ((size_t)2 << 20)

/* Memory as our own arrays have: in huge pages where the kernel has some, and touched. */
static float *array_open(size_t bytes)
{
    const size_t size = (bytes + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
    float *data = aligned_alloc(HUGE_PAGE, size);

    if (!data)
        exit(1);
    madvise(data, size, MADV_HUGEPAGE);
    memset(data, 0, size);
    return data;
}

void bench_rounds_run(const struct bench_rounds *b, const struct bench_peer *peer, int rank)
{
    int64_t *times = xcalloc(BENCH_MAX_CALLS, sizeof(*times));
    float *data = array_open(b->size[b->sizes - 1]);

    for (int i = 0; i < b->sizes; i++) {
        const size_t count = b->size[i] / sizeof(float);
        const int64_t calls = calls_agree(b, peer, data, count), cpu = clock_ns(CLOCK_PROCESS_CPUTIME_ID);

        for (int64_t k = 0; k < calls; k++) {
            const int64_t start = clock_ns(CLOCK_MONOTONIC);

            peer->sum(peer->of, data, count);
            times[k] = clock_ns(CLOCK_MONOTONIC) - start;
        }
        const int64_t used = clock_ns(CLOCK_PROCESS_CPUTIME_ID) - cpu;

        qsort(times, (size_t)calls, sizeof(*times), times_compare);
        if (rank == 0)
            printf("%zu %.3f %.3f %.3f\n", b->size[i], (double)times[calls / 2] / 1e3, (double)times[0] / 1e3,
                   (double)used / 1e3 / (double)calls);
        fflush(stdout);
    }
    free(data);
    free(times);
}

void bench_rounds_read(struct bench_rounds *b, int argc, char **argv)
{
    static const struct option longs[] = {{"ranks", 1, 0, 'n'}, {"ms", 1, 0, 't'}, {"sizes", 1, 0, 's'}, {0}};
    int c;

    *b = (struct bench_rounds){.ranks = 2, .ms = 300};
    while ((c = getopt_long(argc, argv, "", longs, NULL)) != -1) {
        if (c == 'n')
            b->ranks = atoi(optarg);
        else if (c == 't')
            b->ms = atoll(optarg);
        else if (c == 's')
            for (char *at = strtok(optarg, ","); at && b->sizes < BENCH_MAX_SIZES; at = strtok(NULL, ","))
                b->size[b->sizes++] = strtoull(at, NULL, 10);
        else
            exit(2);
    }
    for (size_t s = 4096, given = (size_t)b->sizes; !given && s <= (256u << 20); s *= 4)
        b->size[b->sizes++] = s;
}
