#ifndef DDP_TESTS_NUM_GPT_REFERENCE_H
#define DDP_TESTS_NUM_GPT_REFERENCE_H

#include "trainer/model/gpt.h"

/* GPT-2's forward pass once more, in double precision and straight from the formulas: plain loops, whole
 * score matrices, masks of dropout element by element. Parameters lie as in the model's flat arrays. */

/* The sum of the rows' losses. dropping: with the masks of training. */
double reference_loss(const struct model *m, const struct gpt_shape *s, const double *params,
                      const struct model_batch *b, bool dropping);
/* The same, and logits (rows,context,vocab). */
double reference_logits(const struct model *m, const struct gpt_shape *s, const double *params,
                        const struct model_batch *b, double *logits);

/* 0 or 1 / (1 - p): element i of line l of a row's mask. */
double reference_kept(const struct device_dropout *h, int64_t row, int64_t line, int64_t i);

double reference_activation(enum device_activation kind, double x);

#endif
