#ifndef DDP_TRAINER_MODEL_MLP_H
#define DDP_TRAINER_MODEL_MLP_H

#include "trainer/model/model.h"

/* Linear layers with an activation between them; with one layer, the linear model. Tensors are
 * "layers.<i>.weight" (out,in) and "layers.<i>.bias" (out); with one layer, "weight" and "bias". sizes: the
 * widths of all layers, the input first; max_rows: largest number of rows in a batch. */
MUST_CHECK enum err_code mlp_open(struct model **out, const int64_t *sizes, size_t size_count,
                                  enum device_activation activation, enum loss_type loss, int64_t max_rows,
                                  struct device *device, struct err *e);

#endif
