#include "trainer/data/dataset.h"

#include "trainer/data/idx.h"
#include "trainer/data/synthetic.h"

enum err_code dataset_open(struct dataset **train, struct dataset **test, const struct train_spec *spec,
                           struct err *e)
{
    struct dataset *a = NULL, *b = NULL;
    enum loss_type loss = spec->loss;
    if (spec->data.type == DATA_IDX) {
        loss = loss == LOSS_AUTO ? LOSS_CROSS_ENTROPY : loss;
        if (idx_open_pair(&a, &b, spec->data.dir, loss, e))
            return e->code;
    } else {
        loss = loss == LOSS_AUTO ? LOSS_MSE : loss;
        if (synthetic_open(&a, spec->data.samples, spec->data.in, spec->data.out, loss, 0, e))
            return e->code;
        int64_t held_out = spec->data.samples / 8 > 0 ? spec->data.samples / 8 : 1;
        if (synthetic_open(&b, held_out, spec->data.in, spec->data.out, loss, spec->data.samples, e)) {
            dataset_free(a);
            return e->code;
        }
    }
    *train = a;
    *test = b;
    return ERR_OK;
}

void dataset_free(struct dataset *d)
{
    if (d)
        d->ops->free(d);
}

void dataset_gather(const struct dataset *d, const int64_t *index, int64_t rows, float *x, float *y,
                    int32_t *label)
{
    d->ops->gather(d, index, rows, x, y, label);
}
