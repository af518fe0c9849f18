#ifndef DDP_TRAINER_DATA_DATASET_H
#define DDP_TRAINER_DATA_DATASET_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/job/job.h"
#include "trainer/data/vocabulary.h"

/* Data sets: a vtable. Samples are numbered from 0; whoever holds one may gather any of them in any order, so
 * every rank opens the whole set and the sampler says which samples are its own. Read-only once open; any
 * thread. */

/* Where a batch goes, host memory: x (rows,in) and y (rows,out), or x and label (rows), or, of windows, token
 * and label, both (rows,in). What a set does not fill may be NULL. */
struct dataset_rows {
    float *x, *y;
    int32_t *token, *label;
};

struct dataset;
struct dataset_ops {
    void (*free)(struct dataset *d);
    enum err_code (*gather)(const struct dataset *d, const int64_t *index, int64_t rows,
                            const struct dataset_rows *out, struct err *e);
};

/* Which bytes a set was made of: a run goes on with the same, or not at all. */
struct dataset_mark {
    int64_t bytes; /* 0: not kept in files that could change */
    uint64_t digest;
};

struct dataset {
    const struct dataset_ops *ops;
    int64_t count;
    int64_t in, out;     /* widths of a sample and of its target; with labels, out is the number of classes */
    bool windows;        /* a sample is `in` tokens, each with a label; out is the number of symbols */
    enum loss_type loss; /* LOSS_CROSS_ENTROPY: targets are labels; LOSS_MSE: values */
    size_t bytes;        /* of memory; not of files that are read sample by sample */
    const struct vocabulary *vocabulary; /* of text, owned by the set; else NULL */
    struct dataset_mark mark;
};

/* Both splits; *test is never NULL. NOT_FOUND, DATA_LOSS and FAILED_PRECONDITION (too short, symbols that do
 * not fit the model) name the file. */
MUST_CHECK enum err_code dataset_open(struct dataset **train, struct dataset **test,
                                      const struct train_spec *spec, struct err *e);
void dataset_free(struct dataset *d); /* NULL is fine */
/* Sample index[i] into row i. DATA_LOSS: the file holds what cannot be, named with its place. */
MUST_CHECK enum err_code dataset_gather(const struct dataset *d, const int64_t *index, int64_t rows,
                                        const struct dataset_rows *out, struct err *e);

#endif
