#ifndef DDP_TRAINER_DATA_WINDOWS_H
#define DDP_TRAINER_DATA_WINDOWS_H

#include "trainer/data/dataset.h"

/* Text and tokens for a language model: a sample is a window of spec->model.context symbols, and the labels
 * are the symbols that follow each.
 *
 * Training takes windows at every position: n symbols make n - context samples, sample i starting at i.
 * Validation takes windows that touch and do not overlap, in order: (n - 1) / context of them, so that each
 * symbol but the first is judged once. The splits are the first `split` of the file and the rest, or path and
 * val_path. */
MUST_CHECK enum err_code windows_open_pair(struct dataset **train, struct dataset **test,
                                           const struct train_spec *spec, struct err *e);

#endif
