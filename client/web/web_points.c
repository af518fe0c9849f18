#include "client/web/web_points.h"

#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"
#include "base/thinning.h"

static bool points_are_named(const char *names, const char *name)
{
    const size_t len = strlen(name);
    while (names && *names) {
        const size_t item = strcspn(names, ",");
        if (item == len && memcmp(names, name, len) == 0)
            return true;
        names += item + (names[item] == ',');
    }
    return !names;
}

static bool points_are_of_one_series(const Ddp__V1__MetricPoint *a, const Ddp__V1__MetricPoint *b)
{
    return a->rank == b->rank && strcmp(a->name, b->name) == 0;
}

/* The number of points from `first` on that belong to its series. The coordinator sends series one after the other. */
static size_t points_series_length(Ddp__V1__MetricPoint *const *points, size_t first, size_t count)
{
    size_t end = first + 1;
    while (end < count && points_are_of_one_series(points[first], points[end]))
        end++;
    return end - first;
}

struct point_choice {
    const char *names;
    int64_t from_step;
    size_t buckets;
};

static void points_choose_series(const struct point_choice *c, Ddp__V1__MetricPoint *const *points,
                                 size_t count, bool *keep)
{
    const bool named = points_are_named(c->names, points[0]->name);
    size_t skipped = 0;
    while (skipped < count && (!named || points[skipped]->step < c->from_step))
        keep[skipped++] = false;
    const size_t rest = count - skipped;
    if (!rest)
        return;
    double *values = xmalloc(rest * sizeof(*values));
    for (size_t i = 0; i < rest; i++)
        values[i] = points[skipped + i]->value;
    thinning_choose(values, rest, c->buckets, keep + skipped);
    free(values);
}

void web_points_choose(Ddp__V1__GetMetricsReply *reply, const char *names, int64_t from_step, size_t buckets)
{
    const struct point_choice choice = {names, from_step, buckets};
    const size_t count = reply->n_points;
    Ddp__V1__MetricPoint **left_out = xmalloc((count + 1) * sizeof(Ddp__V1__MetricPoint *));
    bool *keep = xcalloc(count + 1, sizeof(*keep));
    size_t kept = 0, others = 0;
    for (size_t i = 0, length; i < count; i += length) {
        length = points_series_length(reply->points, i, count);
        points_choose_series(&choice, reply->points + i, length, keep + i);
    }
    for (size_t i = 0; i < count; i++) {
        if (keep[i])
            reply->points[kept++] = reply->points[i];
        else
            left_out[others++] = reply->points[i];
    }
    /* The message's owner frees n_points of them. */
    for (size_t i = 0; i < others; i++)
        ddp__v1__metric_point__free_unpacked(left_out[i], NULL);
    reply->n_points = kept;
    free(left_out);
    free(keep);
}

static void points_print_column(struct jout *o, const char *key, Ddp__V1__MetricPoint *const *points,
                                size_t count)
{
    jout_open(o, key, '[');
    for (size_t i = 0; i < count; i++) {
        if (*key == 'v')
            jout_real(o, NULL, points[i]->value);
        else
            jout_int(o, NULL, *key == 's' ? points[i]->step : points[i]->time_ms);
    }
    jout_close(o, ']');
}

static bool points_are_captured(const Ddp__V1__GetMetricsReply *reply, const Ddp__V1__MetricPoint *p)
{
    for (size_t i = 0; i < reply->n_captured && !p->rank; i++)
        if (strcmp(reply->captured[i], p->name) == 0)
            return true;
    return false;
}

void web_points_print_series(const Ddp__V1__GetMetricsReply *reply, int64_t job, struct buf *out)
{
    struct jout o = {.buf = out};
    jout_open(&o, NULL, '{');
    jout_int(&o, "job", job);
    jout_open(&o, "series", '[');
    for (size_t i = 0, length; i < reply->n_points; i += length) {
        Ddp__V1__MetricPoint *const *points = reply->points + i;
        length = points_series_length(reply->points, i, reply->n_points);
        jout_open(&o, NULL, '{');
        jout_text(&o, "name", points[0]->name);
        jout_int(&o, "rank", points[0]->rank);
        if (points_are_captured(reply, points[0]))
            jout_bool(&o, "captured", true);
        points_print_column(&o, "step", points, length);
        points_print_column(&o, "time_ms", points, length);
        points_print_column(&o, "value", points, length);
        jout_close(&o, '}');
    }
    jout_close(&o, ']');
    jout_close(&o, '}');
    buf_putc(out, '\n');
}
