#ifndef DDP_TRAINER_DATA_WINDOWS_H
#define DDP_TRAINER_DATA_WINDOWS_H

#include "trainer/data/dataset.h"

/* Text and tokens for a language model. A sample is a window of spec->model.context symbols; the label of
 * each symbol is the symbol that follows it.
 *
 * Training uses a window at every position: n symbols make n - context samples, and sample i starts at symbol
 * i. Validation uses adjacent windows that do not overlap, in order: (n - 1) / context samples, so that each
 * symbol except the first is a label once. The two splits are the first `split` part of the file and the
 * rest, or the files path and val_path. FAILED_PRECONDITION: a split is shorter than one window, or the file
 * has more symbols than the model. */
MUST_CHECK enum err_code windows_open_pair(struct dataset **train, struct dataset **test,
                                           const struct train_spec *spec, struct err *e);

#endif
