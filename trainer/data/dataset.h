#ifndef DDP_TRAINER_DATA_DATASET_H
#define DDP_TRAINER_DATA_DATASET_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/job/job.h"
#include "trainer/data/vocabulary.h"

/* Data sets: a table of functions. Samples are numbered from 0. Any sample can be gathered at any time and in
 * any order: every rank opens the whole set, and the sampler decides which samples belong to which rank.
 * Read-only after opening; any thread. */

/* Where a batch is written, in host memory: x (rows,in) and y (rows,out); or x and label (rows); or, for
 * windows, token and label, both (rows,in). Fields that the data set does not write may be NULL. */
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

/* Identifies the bytes that a data set was made of, of both splits: ranks train together, and a run continues, only with the
 * same data. Only that of the training split is set. */
struct dataset_mark {
    int64_t bytes; /* size of the files; 0: the data does not come from files */
    uint64_t digest;
};

struct dataset {
    const struct dataset_ops *ops;
    int64_t count;
    /* Width of a sample and of its target. If targets are labels, out is the number of classes. */
    int64_t in, out;
    bool windows; /* true: a sample is `in` tokens, each with a label, and out is the number of symbols */
    enum loss_type loss; /* LOSS_CROSS_ENTROPY: targets are labels; LOSS_MSE: values */
    size_t bytes;        /* memory used; does not include files that are read sample by sample */
    const struct vocabulary *vocabulary; /* of text, owned by the set; else NULL */
    struct dataset_mark mark;
};

/* Opens the training and the validation split; *test is never NULL. NOT_FOUND, DATA_LOSS or
 * FAILED_PRECONDITION (the file is too short, or its symbols do not fit the model); the message names the
 * file. */
MUST_CHECK enum err_code dataset_open(struct dataset **train, struct dataset **test,
                                      const struct train_spec *spec, struct err *e);
void dataset_free(struct dataset *d); /* NULL is fine */
/* A digest of what ranks that train together must read alike: the mark, the shape of the samples, and the numbers of the
 * symbols. */
uint64_t dataset_digest(const struct dataset *d);
/* Copies sample index[i] to row i. DATA_LOSS: the file holds an invalid value; the message names its
 * position. */
MUST_CHECK enum err_code dataset_gather(const struct dataset *d, const int64_t *index, int64_t rows,
                                        const struct dataset_rows *out, struct err *e);

#endif
