/* Measures the time of a durable commit: one job per commit, on the disk of the given directory. A commit
 * needs two syncs, of the write-ahead log and of ddp.mark; a temporary cluster (`ddpctl run`) needs none. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/mem.h"
#include "store/store.h"

#define COMMITS 2000

static int by_value(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x < y ? -1 : x > y;
}

static void commits_measure(const char *dir, bool temporary)
{
    struct err e = {0};
    struct store *s = NULL;
    CLEANUP(free_text) char *state = xasprintf("%s/%s", dir, temporary ? "temporary" : "durable");
    int64_t *took = xcalloc(COMMITS, sizeof *took), sum = 0;
    char job_file[] = "nodes: 1\ncommand: [\"true\"]\n", name[] = "bench";

    if ((temporary ? store_open_temporary : store_open)(&s, state, &e) != ERR_OK) {
        fprintf(stderr, "bench_store: %s\n", e.msg);
        exit(1);
    }
    for (int i = 0; i < COMMITS; i++) {
        char request[32];
        snprintf(request, sizeof request, "r-%d", i);
        struct job_record job = {.id = i + 1, .request_id = request, .name = name, .job_file = job_file};
        struct change change = {.kind = CHANGE_JOB_INSERT, .job = &job};
        const int64_t start = clock_mono_ns();
        if (store_commit(s, &change, 1, &e) != ERR_OK) {
            fprintf(stderr, "bench_store: %s\n", e.msg);
            exit(1);
        }
        took[i] = clock_mono_ns() - start;
        sum += took[i];
    }
    qsort(took, COMMITS, sizeof *took, by_value);
    printf("%-9s  mean %6.1f us  p50 %6.1f us  p99 %7.1f us\n", temporary ? "temporary" : "durable",
           (double)sum / COMMITS / 1e3, (double)took[COMMITS / 2] / 1e3,
           (double)took[COMMITS * 99 / 100] / 1e3);
    free(took);
    store_close(s);
}

int main(int argc, char **argv)
{
    struct err e = {0};
    CLEANUP(free_text) char *dir = xasprintf("%s/ddp-bench-store-XXXXXX", argc > 1 ? argv[1] : "/tmp");

    if (!mkdtemp(dir)) {
        perror(dir);
        return 1;
    }
    commits_measure(dir, false);
    commits_measure(dir, true);
    if (file_remove_tree(dir, &e) != ERR_OK)
        fprintf(stderr, "bench_store: %s\n", e.msg);
    return 0;
}
