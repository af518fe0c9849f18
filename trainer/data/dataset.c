#include "trainer/data/dataset.h"

#include "base/digest.h"
#include "trainer/data/idx.h"
#include "trainer/data/synthetic.h"
#include "trainer/data/windows.h"

enum err_code dataset_open(struct dataset **train, struct dataset **test, const struct train_spec *spec,
                           struct err *e)
{
    if (spec->data.type == DATA_TEXT || spec->data.type == DATA_TOKENS)
        return windows_open_pair(train, test, spec, e);
    if (spec->data.type == DATA_IDX)
        return idx_open_pair(train, test, spec->data.dir, e);
    int64_t held_out = spec->data.samples / 8 > 0 ? spec->data.samples / 8 : 1;
    *train = synthetic_open(spec->data.samples, spec->data.in, spec->data.out, 0);
    *test = synthetic_open(held_out, spec->data.in, spec->data.out, spec->data.samples);
    return ERR_OK;
}

void dataset_free(struct dataset *d)
{
    if (d)
        d->ops->free(d);
}

uint64_t dataset_digest(const struct dataset *d)
{
    const int64_t shape[] = {d->count, d->in, d->out};
    const struct vocabulary *v = d->vocabulary;
    uint64_t digest = digest64(d->mark.digest, &d->mark.bytes, sizeof(d->mark.bytes));
    digest = digest64(digest, shape, sizeof(shape));
    /* The mark covers only some pages of a large text, so two of them may have one mark, and number symbols differently. */
    return v && v->symbols ? digest64(digest, v->symbols, (size_t)v->count * sizeof(*v->symbols)) : digest;
}

enum err_code dataset_gather(const struct dataset *d, const int64_t *index, int64_t rows,
                             const struct dataset_rows *out, struct err *e)
{
    return d->ops->gather(d, index, rows, out, e);
}
