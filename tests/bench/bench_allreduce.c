/* One round: N processes all-reduce each size for a while. Prints a line for each size: bytes, median and best
 * microseconds of a call, and microseconds of CPU time of a call, measured by rank 0. With --kind copy it measures the machine's memory with N
 * processes at once: nanoseconds to copy a MiB, with memcpy and without the caches.
 *
 *   bench_allreduce --kind shm|tcp|copy --ranks N [--ms PER_SIZE] [--sizes BYTES,...] */
#include <getopt.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/mem.h"
#include "trainer/member/coll/coll.h"
#include "trainer/member/coll/sum.h"

#define MAX_RANKS 16
#define MAX_SIZES 32
#define MAX_CALLS 100000

static struct options {
    const char *kind;
    int ranks, sizes;
    int64_t ms;
    size_t size[MAX_SIZES];
} opt = {.kind = "shm", .ranks = 2, .ms = 300};

static char directory[] = "/tmp/ddp-bench-XXXXXX";
static struct coll_listener *listeners[MAX_RANKS];
static struct coll_peer peers[MAX_RANKS];
static uint8_t addresses[MAX_RANKS][512];

_Noreturn static void die(const char *what)
{
    fprintf(stderr, "bench_allreduce: %s\n", what);
    exit(1);
}

static int times_compare(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

    return (x > y) - (x < y);
}

static int64_t cpu_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void print_times(size_t bytes, int64_t *times, size_t count, int64_t cpu)
{
    qsort(times, count, sizeof(*times), times_compare);
    printf("%zu %.3f %.3f %.3f\n", bytes, (double)times[count / 2] / 1e3, (double)times[0] / 1e3,
           (double)cpu / 1e3 / (double)count);
    fflush(stdout);
}

/* Rank 0 measures one call and decides how many calls fit the time. */
static size_t agree_calls(struct coll_group *g, int rank, float *data, size_t count)
{
    struct err e = {0};
    int64_t start, took, calls;

    for (int i = 0; i < 3; i++) {
        start = clock_mono_ns();
        if (coll_allreduce(g, data, count, &e))
            die(e.msg);
        took = clock_mono_ns() - start;
    }
    calls = opt.ms * 1000000 / (took + 1);
    calls = calls < 7 ? 7 : calls > MAX_CALLS ? MAX_CALLS : calls;
    if (coll_broadcast(g, &calls, sizeof(calls), 0, &e))
        die(e.msg);
    (void)rank;
    return (size_t)calls;
}

static void size_measure(struct coll_group *g, int rank, float *data, size_t bytes, int64_t *times)
{
    size_t count = bytes / sizeof(float), calls = agree_calls(g, rank, data, count);
    int64_t cpu;
    struct err e = {0};

    if (coll_barrier(g, &e))
        die(e.msg);
    cpu = cpu_ns();
    for (size_t i = 0; i < calls; i++) {
        int64_t start = clock_mono_ns();

        if (coll_allreduce(g, data, count, &e))
            die(e.msg);
        times[i] = clock_mono_ns() - start;
    }
    if (rank == 0)
        print_times(bytes, times, calls, cpu_ns() - cpu);
}

static void rank_pin(int rank)
{
    cpu_set_t set;

    CPU_ZERO(&set);
    CPU_SET((size_t)(rank % (int)sysconf(_SC_NPROCESSORS_ONLN)), &set);
    sched_setaffinity(0, sizeof(set), &set);
}

static void run_rank(int rank)
{
    struct coll_config config = {
        .job = 1, .generation = 1, .rank = rank, .world_size = opt.ranks, .peers = peers};
    int64_t *times = xcalloc(MAX_CALLS, sizeof(*times));
    struct coll_group *g;
    struct err e = {0};
    float *data;

    if (strcmp(opt.kind, "tcp")) /* TCP is compared with Gloo, whose processes are not pinned either */
        rank_pin(rank);
    if (coll_open(&g, listeners[rank], &config, &e) ||
        coll_alloc(g, opt.size[opt.sizes - 1] / sizeof(float), &data, &e))
        die(e.msg);
    for (int i = 0; i < opt.sizes; i++)
        size_measure(g, rank, data, opt.size[i], times);
    coll_close(g);
    free(times);
}

/* ---- memory */

static int64_t copy_ns(float *to, float *from, size_t bytes, bool stream)
{
    int64_t start = clock_mono_ns();

    if (stream)
        coll_sum(&from, 1, &to, 1, 0, bytes / sizeof(float), true);
    else
        memcpy(to, from, bytes);
    return clock_mono_ns() - start;
}

static void run_copy(int rank)
{
    size_t bytes = (size_t)128 << 20;
    float *from = aligned_alloc(4096, bytes), *to = aligned_alloc(4096, bytes);
    int64_t times[2][9];

    rank_pin(rank);
    memset(from, 1, bytes);
    memset(to, 1, bytes);
    for (int i = 0; i < 18; i++)
        times[i % 2][i / 2] = copy_ns(to, from, bytes, i % 2);
    for (int k = 0; k < 2; k++)
        qsort(times[k], 9, sizeof(times[k][0]), times_compare);
    if (rank == 0)
        printf("memcpy %.3f\nstream %.3f\n", (double)times[0][4] / 128, (double)times[1][4] / 128);
    fflush(stdout);
    free(from);
    free(to);
}

/* ---- the processes */

static void listeners_open(void)
{
    struct err e = {0};
    bool near = !strcmp(opt.kind, "shm");

    if (!mkdtemp(directory))
        die("cannot make a directory in /tmp");
    for (int r = 0; r < opt.ranks; r++) {
        if (coll_listen(&listeners[r], "127.0.0.1", near ? directory : NULL, &e))
            die(e.msg);
        peers[r] = (struct coll_peer){.rank = r, .node_rank = near ? 0 : r, .address = addresses[r]};
        peers[r].address_size = coll_listener_address(listeners[r], addresses[r], sizeof(addresses[r]));
    }
}

static int run_all(void (*fn)(int))
{
    int failed = 0, status;

    for (int r = 0; r < opt.ranks; r++) {
        pid_t pid = fork();

        if (pid < 0)
            die("fork failed");
        if (pid == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            fn(r);
            _exit(0);
        }
    }
    while (wait(&status) > 0)
        failed |= status != 0;
    return failed;
}

static void read_sizes(char *text)
{
    for (char *at = strtok(text, ","); at && opt.sizes < MAX_SIZES; at = strtok(NULL, ","))
        opt.size[opt.sizes++] = strtoull(at, NULL, 10);
}

static void read_options(int argc, char **argv)
{
    static const struct option longs[] = {
        {"kind", 1, 0, 'k'}, {"ranks", 1, 0, 'n'}, {"ms", 1, 0, 't'}, {"sizes", 1, 0, 's'}, {0}};
    int c;

    while ((c = getopt_long(argc, argv, "", longs, NULL)) != -1) {
        if (c == 'k')
            opt.kind = optarg;
        else if (c == 'n')
            opt.ranks = atoi(optarg);
        else if (c == 't')
            opt.ms = atoll(optarg);
        else if (c == 's')
            read_sizes(optarg);
        else
            exit(2);
    }
    if (opt.ranks < 1 || opt.ranks > MAX_RANKS)
        die("--ranks must be 1 to 16");
    for (size_t s = 4096, given = (size_t)opt.sizes; !given && s <= (256u << 20); s *= 4)
        opt.size[opt.sizes++] = s;
}

int main(int argc, char **argv)
{
    struct err e = {0};
    int failed;

    read_options(argc, argv);
    if (!strcmp(opt.kind, "copy"))
        return run_all(run_copy);
    listeners_open();
    failed = run_all(run_rank);
    for (int r = 0; r < opt.ranks; r++)
        coll_listener_free(listeners[r]);
    if (file_remove_tree(directory, &e))
        die(e.msg);
    return failed;
}
