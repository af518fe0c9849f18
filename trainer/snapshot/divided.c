#include "trainer/snapshot/divided.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/digest.h"
#include "base/mem.h"
#include "trainer/snapshot/tensors.h"

void divided_add(struct snapshot_ranges *r, const struct snapshot_range *range)
{
    r->list = array_grow(r->list, r->count, &r->cap, sizeof(*r->list));
    r->list[r->count++] = *range;
}

void divided_release(struct snapshot_ranges *r)
{
    free(r->list);
    *r = (struct snapshot_ranges){0};
}

size_t divided_floats(const struct snapshot_ranges *r)
{
    size_t sum = 0;
    for (size_t i = 0; i < r->count; i++)
        sum += r->list[i].count;
    return sum;
}

size_t divided_parameters_before(const struct snapshot_layout *l, size_t offset)
{
    size_t sum = 0;
    for (size_t i = 0; i < l->tensor_count && l->tensors[i].offset < offset; i++) {
        const struct snapshot_tensor *t = &l->tensors[i];
        sum += offset - t->offset < t->count ? offset - t->offset : t->count;
    }
    return sum;
}

/* ---- writing */

uint64_t divided_digest(const struct snapshot_ranges *ranges, const float *moments)
{
    uint64_t all = 0;
    for (size_t i = 0; i < ranges->count; i++)
        all = digest64(all, moments + ranges->list[i].at, ranges->list[i].count * sizeof(float));
    return all;
}

static void range_describe(struct safetensor *out, const struct snapshot_layout *l,
                           const struct snapshot_range *r, const float *moments)
{
    const struct snapshot_tensor *t = &l->tensors[r->tensor];
    const bool whole = r->count == t->count;
    int length = snprintf(out->name, sizeof(out->name), "%s.%s", t->name, l->moments[r->moment]);
    out->dims = whole ? t->dims : 1;
    if (whole)
        memcpy(out->shape, t->shape, (size_t)t->dims * sizeof(*t->shape));
    else
        length = snprintf(out->name, sizeof(out->name), "%s.%s[%zu:%zu]", t->name, l->moments[r->moment],
                          r->first, r->first + r->count);
    if (!whole)
        out->shape[0] = (int64_t)r->count;
    BUG_ON(length < 0 || (size_t)length >= sizeof(out->name));
    out->data = moments + r->at;
}

enum err_code divided_write(const char *path, const struct snapshot_layout *l,
                            const struct snapshot_place *place, const struct snapshot_ranges *ranges,
                            const float *moments, struct err *e)
{
    struct safetensor *tensors = xcalloc(ranges->count + 1, sizeof(*tensors));
    for (size_t i = 0; i < ranges->count; i++)
        range_describe(&tensors[i], l, &ranges->list[i], moments);
    enum err_code code = snapshot_write_described(path, tensors, ranges->count, place, 0, l->check, e);
    free(tensors);
    return code;
}

/* ---- reading */

static bool range_has_moment(const struct snapshot_layout *l, const char *name, size_t length,
                             struct snapshot_range *out)
{
    for (size_t i = 0; i < l->tensor_count; i++) {
        const size_t tensor = strlen(l->tensors[i].name);
        if (tensor >= length || strncmp(name, l->tensors[i].name, tensor) != 0 || name[tensor] != '.')
            continue;
        for (size_t m = 0; m < l->moment_count; m++) {
            const char *moment = l->moments[m];
            if (strlen(moment) != length - tensor - 1 ||
                strncmp(name + tensor + 1, moment, strlen(moment)) != 0)
                continue;
            out->tensor = i;
            out->moment = m;
            return snapshot_tensor_place(l, i, (int)m) != SNAPSHOT_NONE;
        }
    }
    return false;
}

/* Whether the file's tensor is a range of a moment of this layout. */
static bool range_parse(const struct snapshot_layout *l, const struct safetensor *t,
                        struct snapshot_range *out)
{
    const char *cut = strchr(t->name, '[');
    unsigned long long from = 0, to = 0;
    int end = 0;
    *out = (struct snapshot_range){0};
    if (!range_has_moment(l, t->name, cut ? (size_t)(cut - t->name) : strlen(t->name), out))
        return false;
    const struct snapshot_tensor *of = &l->tensors[out->tensor];
    out->count = of->count;
    if (!cut)
        return t->dims == of->dims && !memcmp(t->shape, of->shape, (size_t)of->dims * sizeof(*of->shape));
    if (sscanf(cut, "[%llu:%llu]%n", &from, &to, &end) != 2 || !end || cut[end] || from >= to ||
        to > of->count || t->dims != 1 || t->shape[0] != (int64_t)(to - from))
        return false;
    out->first = (size_t)from;
    out->count = (size_t)(to - from);
    return true;
}

enum err_code divided_parse(struct divided_file *d, const struct snapshot_layout *l, struct err *e)
{
    const char *path = d->f->path;
    for (size_t i = 0; i < d->f->count; i++) {
        const struct safetensor *t = &d->f->tensors[i];
        struct snapshot_range range;
        if (t->type != SAFETENSORS_F32)
            return err_set(e, ERR_DATA_LOSS, "%s: tensor '%s' is not of type F32: damaged or converted", path,
                           t->name);
        if (!range_parse(l, t, &range))
            return err_set(e, ERR_FAILED_PRECONDITION,
                           "%s: tensor '%s' is no moment of the job's model and optimizer", path, t->name);
        divided_add(&d->ranges, &range);
    }
    return ERR_OK;
}

enum err_code divided_open(struct divided_file *d, const char *path, const struct snapshot_layout *l,
                           struct err *e)
{
    *d = (struct divided_file){0};
    return safetensors_open(&d->f, path, e) ? e->code : divided_parse(d, l, e);
}

void divided_close(struct divided_file *d)
{
    safetensors_close(d->f);
    divided_release(&d->ranges);
    *d = (struct divided_file){0};
}

enum err_code divided_next(struct divided_file *d, const struct snapshot_part *want,
                           const struct snapshot_range **range, float *data, struct err *e)
{
    *range = NULL;
    if (d->next == d->ranges.count)
        return snapshot_part_check(d->f, d->digest, want, e);
    const struct safetensor *t = &d->f->tensors[d->next];
    if (safetensors_read(d->f, t->name, t->dims, t->shape, data, e))
        return e->code;
    *range = &d->ranges.list[d->next++];
    d->digest = digest64(d->digest, data, (*range)->count * sizeof(*data));
    return ERR_OK;
}

size_t divided_take(const struct snapshot_ranges *need, const struct snapshot_range *range, const float *data,
                    float *moments)
{
    size_t sum = 0;
    for (size_t i = 0; i < need->count; i++) {
        const struct snapshot_range *n = &need->list[i];
        const size_t from = n->first > range->first ? n->first : range->first, n_end = n->first + n->count,
                     range_end = range->first + range->count, end = n_end < range_end ? n_end : range_end;
        if (n->moment != range->moment || n->tensor != range->tensor || from >= end)
            continue;
        memcpy(moments + n->at + (from - n->first), data + (from - range->first),
               (end - from) * sizeof(*data));
        sum += end - from;
    }
    return sum;
}
