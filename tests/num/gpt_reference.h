#ifndef DDP_TESTS_NUM_GPT_REFERENCE_H
#define DDP_TESTS_NUM_GPT_REFERENCE_H

#include "trainer/model/gpt.h"

/* GPT-2's forward pass in double precision, written directly from the formulas: plain loops, whole score
 * matrices, dropout masks element by element. Parameters have the layout of the model's flat arrays. */

/* Returns the sum of the rows' losses. dropping: applies the dropout masks of training. */
double reference_loss(const struct model *m, const struct gpt_shape *s, const double *params,
                      const struct model_batch *b, bool dropping);
/* The same; also writes logits (rows,context,vocab). */
double reference_logits(const struct model *m, const struct gpt_shape *s, const double *params,
                        const struct model_batch *b, double *logits);

/* Returns element i of a line of a row's dropout mask: 0 or 1 / (1 - p). */
double reference_kept(const struct device_dropout *h, int64_t row, int64_t line, int64_t i);

double reference_activation(enum device_activation kind, double x);

#endif
