#ifndef DDP_TRAINER_MODEL_DECODE_H
#define DDP_TRAINER_MODEL_DECODE_H

#include <stdint.h>

#include "base/err.h"
#include "trainer/model/model.h"

/* Reads a gpt model's tokens one after the other, to generate text. The keys and values of tokens that were
 * read are kept, so a token costs one row of every matrix product and not the whole context. Computes in fp32
 * in host memory, without dropout. Borrows the model and its parameters for its life. One thread. */

struct decoder;
MUST_CHECK enum err_code decoder_open(struct decoder **out, const struct train_spec *spec, struct model *m,
                                      const float *params, struct err *e);
void decoder_close(struct decoder *d); /* NULL is fine */

/* Reads n tokens after those that were read before; all together at most the context. Writes the logits of
 * what follows each of the last `last` tokens: logits (last,vocabulary); last <= n. */
void decoder_feed(struct decoder *d, const int32_t *token, int64_t n, float *logits, int64_t last);
void decoder_reset(struct decoder *d);             /* forgets all tokens */
int64_t decoder_position(const struct decoder *d); /* number of tokens that were read */

#endif
