#include "client/export/export_points.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

static int series_compare_key(const struct export_series *s, const char *name, int rank)
{
    const int order = strcmp(s->name, name);

    return order ? order : s->rank < rank ? -1 : s->rank > rank;
}

/* The place of the series, or where it belongs. */
static size_t series_place(const struct export_points *all, const char *name, int rank)
{
    size_t low = 0, high = all->series_count;

    while (low < high) {
        const size_t middle = (low + high) / 2;
        if (series_compare_key(all->series[middle], name, rank) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static struct export_series *series_find_or_add(struct export_points *all, const char *name, int rank)
{
    const size_t at = series_place(all, name, rank);

    if (at < all->series_count && series_compare_key(all->series[at], name, rank) == 0)
        return all->series[at];
    all->series = array_grow(all->series, all->series_count, &all->series_cap, sizeof(*all->series));
    memmove(all->series + at + 1, all->series + at, (all->series_count - at) * sizeof(*all->series));
    all->series_count++;
    all->series[at] = xcalloc(1, sizeof(**all->series));
    *all->series[at] = (struct export_series){.name = xstrdup(name), .rank = rank};
    return all->series[at];
}

bool export_is_captured(const Ddp__V1__GetMetricsReply *reply, const char *name, int rank)
{
    for (size_t i = 0; i < reply->n_captured && !rank; i++)
        if (strcmp(reply->captured[i], name) == 0)
            return true;
    return false;
}

void export_points_take(struct export_points *all, const Ddp__V1__GetMetricsReply *reply)
{
    struct export_series *s = NULL;

    for (size_t i = 0; i < reply->n_points; i++) {
        const Ddp__V1__MetricPoint *p = reply->points[i];

        if (!s || series_compare_key(s, p->name, p->rank) != 0) { /* the points come in the order of series */
            s = series_find_or_add(all, p->name, p->rank);
            s->captured = export_is_captured(reply, p->name, p->rank);
        }
        all->points = array_grow(all->points, all->count, &all->cap, sizeof(*all->points));
        all->points[all->count++] = (struct export_point){s, p->step, p->time_ms, p->value};
    }
}

static int point_by_time(const void *left, const void *right)
{
    const struct export_point *a = left, *b = right;

    if (a->time_ms != b->time_ms)
        return a->time_ms < b->time_ms ? -1 : 1;
    if (a->step != b->step)
        return a->step < b->step ? -1 : 1;
    if (a->series->rank != b->series->rank)
        return a->series->rank < b->series->rank ? -1 : 1;
    return strcmp(a->series->name, b->series->name);
}

void export_points_sort(struct export_points *all)
{
    if (all->count)
        qsort(all->points, all->count, sizeof(*all->points), point_by_time);
}

void export_points_done(struct export_points *all)
{
    all->after = all->newest;
    all->count = 0;
}

void export_points_release(struct export_points *all)
{
    for (size_t i = 0; i < all->series_count; i++) {
        free(all->series[i]->name);
        free(all->series[i]);
    }
    free(all->series);
    free(all->points);
    *all = (struct export_points){0};
}
