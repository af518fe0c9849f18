#ifndef DDP_TRAINER_DATA_DATASET_H
#define DDP_TRAINER_DATA_DATASET_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/job.h"

/* Data sets: a vtable. Samples are numbered from 0; whoever holds one may gather any of them in any order, so
 * every rank opens the whole set and the sampler says which samples are its own. Read-only once open; any
 * thread. */

struct dataset;
struct dataset_ops {
    void (*free)(struct dataset *d);
    /* Sample index[i] into row i of x (rows,in), and of y (rows,out) or of label (rows). */
    void (*gather)(const struct dataset *d, const int64_t *index, int64_t rows, float *x, float *y,
                   int32_t *label);
};

struct dataset {
    const struct dataset_ops *ops;
    int64_t count;
    int64_t in, out;     /* widths of a sample and of its target; with labels, out is the number of classes */
    enum loss_type loss; /* LOSS_CROSS_ENTROPY: targets are labels; LOSS_MSE: values */
    size_t bytes;
};

/* Both splits; *test is never NULL. */
MUST_CHECK enum err_code dataset_open(struct dataset **train, struct dataset **test,
                                      const struct train_spec *spec, struct err *e);
void dataset_free(struct dataset *d); /* NULL is fine */
void dataset_gather(const struct dataset *d, const int64_t *index, int64_t rows, float *x, float *y,
                    int32_t *label);

#endif
