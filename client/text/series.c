#include "client/text/series.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/text.h"

static int series_by_step(const void *left, const void *right)
{
    const Ddp__V1__MetricPoint *a = *(Ddp__V1__MetricPoint *const *)left,
                               *b = *(Ddp__V1__MetricPoint *const *)right;
    if (a->step != b->step)
        return a->step < b->step ? -1 : 1;
    if (a->rank != b->rank)
        return a->rank < b->rank ? -1 : 1;
    return a->time_ms > b->time_ms ? -1 : a->time_ms < b->time_ms; /* the newest first */
}

void series_take(struct series *out, const Ddp__V1__GetMetricsReply *reply, const char *name)
{
    size_t found = 0, room = reply->n_points + 1;
    const Ddp__V1__MetricPoint **points = xcalloc(room, sizeof(const Ddp__V1__MetricPoint *));
    for (size_t i = 0; i < reply->n_points; i++)
        if (strcmp(reply->points[i]->name, name) == 0)
            points[found++] = reply->points[i];
    qsort(points, found, sizeof(*points), series_by_step);
    *out = (struct series){xcalloc(room, sizeof(*out->steps)), xcalloc(room, sizeof(*out->values)), 0};
    for (size_t i = 0; i < found; i++) {
        if (i > 0 && points[i]->step == points[i - 1]->step) /* the first of a step is the one that counts */
            continue;
        out->steps[out->count] = points[i]->step;
        out->values[out->count++] = points[i]->value;
    }
    free(points);
}

void series_release(struct series *s)
{
    free(s->steps);
    free(s->values);
    *s = (struct series){0};
}

/* The index of the step, from `from` on; s->count: the step is missing. */
static size_t series_find_step(const struct series *s, int64_t step, size_t from)
{
    while (from < s->count && s->steps[from] < step)
        from++;
    return from < s->count && s->steps[from] == step ? from : s->count;
}

static bool series_digest_at(const struct series *high, const struct series *low, int64_t step, uint64_t *out)
{
    size_t h = series_find_step(high, step, 0), l = series_find_step(low, step, 0);
    if (h == high->count || l == low->count)
        return false;
    *out = (uint64_t)high->values[h] << 32 | (uint64_t)low->values[l];
    return true;
}

void series_compare(struct series_difference *out, const struct series high[2], const struct series low[2])
{
    *out = (struct series_difference){.last_same = -1};
    for (size_t i = 0; i < high[0].count && !out->differ; i++) {
        int64_t step = high[0].steps[i];
        if (!series_digest_at(&high[0], &low[0], step, &out->digests[0]) ||
            !series_digest_at(&high[1], &low[1], step, &out->digests[1]))
            continue;
        out->compared++;
        out->differ = out->digests[0] != out->digests[1];
        *(out->differ ? &out->step : &out->last_same) = step;
    }
}

void series_print_difference(const struct series_difference *p, const int64_t jobs[2], struct buf *out)
{
    buf_printf(out, "#%lld and #%lld ", (long long)jobs[0], (long long)jobs[1]);
    if (!p->differ) {
        buf_printf(out, "agree to step %s: %s of the parameters\n", text_count(p->last_same).text,
                   text_counted((int64_t)p->compared, "digest").text);
        return;
    }
    buf_printf(out, "differ at step %s: %016llx, %016llx", text_count(p->step).text,
               (unsigned long long)p->digests[0], (unsigned long long)p->digests[1]);
    if (p->last_same >= 0)
        buf_printf(out, "; they agree to step %s\n", text_count(p->last_same).text);
    else
        buf_puts(out, "; they never agreed\n");
}
