#include "daemon/coordinator/service/metrics/metrics_shares.h"

#include <stdlib.h>

#include "base/mem.h"
#include "base/worker/usage.h"

struct source {
    int64_t key;
    size_t count, dropped;
};

static int64_t point_source(const struct metric_point *p)
{
    return p->job * 2 + usage_is_metric(p->metric.name);
}

static int compare_keys(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static int compare_sources(const void *a, const void *b)
{
    return compare_keys(&((const struct source *)a)->key, &((const struct source *)b)->key);
}

static int compare_counts(const void *a, const void *b)
{
    const size_t x = *(const size_t *)a, y = *(const size_t *)b;
    return (x > y) - (x < y);
}

/* The sources of the points, by key. */
static size_t sources_count(struct source *sources, const struct metric_point *points, size_t count)
{
    int64_t *keys = xcalloc(count + 1, sizeof *keys);
    size_t n = 0;
    for (size_t i = 0; i < count; i++)
        keys[i] = point_source(&points[i]);
    qsort(keys, count, sizeof *keys, compare_keys);
    for (size_t i = 0; i < count; i++) {
        if (n == 0 || sources[n - 1].key != keys[i])
            sources[n++] = (struct source){.key = keys[i]};
        sources[n - 1].count++;
    }
    free(keys);
    return n;
}

/* The largest number of points of each source with which all together have at most `most`. */
static size_t sources_share(const struct source *sources, size_t n, size_t most)
{
    size_t *counts = xcalloc(n + 1, sizeof *counts), left = most, share = most;
    for (size_t i = 0; i < n; i++)
        counts[i] = sources[i].count;
    qsort(counts, n, sizeof *counts, compare_counts);
    for (size_t i = 0; i < n; i++) {
        share = left / (n - i);
        if (counts[i] > share)
            break;
        left -= counts[i];
    }
    free(counts);
    return share;
}

size_t metrics_shares_cut(struct metric_point *points, size_t count, size_t most)
{
    if (count <= most)
        return count;
    struct source *sources = xcalloc(count, sizeof *sources);
    const size_t n = sources_count(sources, points, count), share = sources_share(sources, n, most);
    size_t kept = 0;
    for (size_t i = 0; i < count; i++) {
        const struct source wanted = {.key = point_source(&points[i])};
        struct source *s = bsearch(&wanted, sources, n, sizeof *sources, compare_sources);
        if (s->dropped + share < s->count)
            s->dropped++;
        else
            points[kept++] = points[i];
    }
    free(sources);
    return kept;
}
