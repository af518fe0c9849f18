#include "client/cmd/usage_table.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/worker/usage.h"
#include "client/text/format.h"
#include "client/text/table.h"

static const struct table_column columns[] = {
    {"RANK", true},
    {"CPU", true, .optional = true},
    {"MOST MEMORY", true, .optional = true},
    {"READS/S", true, .optional = true},
    {"WRITES/S", true, .optional = true},
    {"GPU", true, .optional = true},
    {"MOST GPU MEMORY", true, .optional = true},
    {"WATTS", true, .optional = true},
    {"MOST °C", true, .optional = true},
};

/* All points of a rank and a metric. */
struct usage_sum {
    double sum, most; /* sum: each value times its weight */
    double weight;    /* of all points; 0: there are none */
};
struct usage_row {
    int rank;
    struct usage_sum sums[USAGE_METRICS];
};
struct usage_rows {
    struct usage_row *list;
    size_t count, cap;
};

static void usage_rows_release(struct usage_rows *r)
{
    free(r->list);
}

/* Points come by name, then by rank, so the row is most often the one after the last. */
static struct usage_row *usage_row_of(struct usage_rows *r, int rank, size_t *hint)
{
    for (size_t i = 0; i < r->count; i++) {
        size_t at = (*hint + i) % r->count;

        if (r->list[at].rank != rank)
            continue;
        *hint = at;
        return &r->list[at];
    }
    r->list = array_grow(r->list, r->count, &r->cap, sizeof(*r->list));
    r->list[r->count] = (struct usage_row){.rank = rank};
    *hint = r->count;
    return &r->list[r->count++];
}

static int usage_row_compare(const void *a, const void *b)
{
    const struct usage_row *x = a, *y = b;

    return (x->rank > y->rank) - (x->rank < y->rank);
}

/* For how many seconds a point stands. The coordinator keeps fewer points of the start of a long run than of its end, so each counts
 * with its distance to the next point or to the one before, whichever is nearer: the longer one may be a pause, in which nothing
 * was measured. The step of a point is in seconds. */
static double usage_weight(Ddp__V1__MetricPoint *const *points, size_t count, size_t i)
{
    const double before = i ? (double)points[i]->step - (double)points[i - 1]->step : INFINITY;
    const double after = i + 1 < count ? (double)points[i + 1]->step - (double)points[i]->step : INFINITY;
    const double nearest = fmin(before, after);

    return isfinite(nearest) && nearest > 0 ? nearest : 1; /* else it is the only point */
}

static void usage_sum_take(struct usage_sum *s, Ddp__V1__MetricPoint *const *points, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const double value = points[i]->value, weight = usage_weight(points, count, i);

        if (!isfinite(value))
            continue;
        s->most = s->weight > 0 ? fmax(s->most, value) : value;
        s->sum += weight * value;
        s->weight += weight;
    }
}

static void usage_rows_take(struct usage_rows *r, const Ddp__V1__GetMetricsReply *reply)
{
    size_t hint = 0;

    for (size_t i = 0, end; i < reply->n_points; i = end) {
        const Ddp__V1__MetricPoint *p = reply->points[i];
        int metric = 0;

        for (end = i + 1; end < reply->n_points && reply->points[end]->rank == p->rank &&
                          strcmp(reply->points[end]->name, p->name) == 0;)
            end++;
        while (metric < USAGE_METRICS && strcmp(p->name, usage_names[metric]) != 0)
            metric++;
        if (metric < USAGE_METRICS) /* else one of a newer coordinator */
            usage_sum_take(&usage_row_of(r, p->rank, &hint)->sums[metric], reply->points + i, end - i);
    }
    if (r->count)
        qsort(r->list, r->count, sizeof(*r->list), usage_row_compare);
}

static struct text usage_value_text(int metric, const struct usage_sum *s)
{
    const double mean = s->sum / s->weight;
    struct text out = {""};

    switch (metric) {
    case USAGE_CPU:
    case USAGE_GPU:
        return fmt_percent(mean);
    case USAGE_MEMORY:
    case USAGE_GPU_MEMORY:
        return text_bytes((int64_t)s->most);
    case USAGE_READ:
    case USAGE_WRITE:
        return text_bytes((int64_t)mean);
    default:
        snprintf(out.text, sizeof(out.text), "%.0f", metric == USAGE_GPU_CELSIUS ? s->most : mean);
        return out;
    }
}

void usage_table_print(const Ddp__V1__GetMetricsReply *reply, struct buf *out)
{
    CLEANUP(usage_rows_release) struct usage_rows rows = {0};
    CLEANUP(table_release) struct table *t = table_new(columns, ARRAY_LEN(columns));
    struct term plain = {0};

    usage_rows_take(&rows, reply);
    for (size_t i = 0; i < rows.count; i++) {
        table_cell(t, STYLE_NONE, text_count(rows.list[i].rank).text);
        for (int m = 0; m < USAGE_METRICS; m++) {
            const struct usage_sum *s = &rows.list[i].sums[m];
            table_cell(t, STYLE_NONE, s->weight > 0 ? usage_value_text(m, s).text : "");
        }
        table_end_row(t);
    }
    if (rows.count)
        table_print(t, &plain, out);
}
