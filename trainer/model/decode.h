#ifndef DDP_TRAINER_MODEL_DECODE_H
#define DDP_TRAINER_MODEL_DECODE_H

#include <stdint.h>

#include "base/err.h"
#include "trainer/model/model.h"

/* A gpt model read token by token: keys and values of what was read stay, so that a token costs one row of
 * every matrix product and not the whole context. Computes in fp32 in the host's memory, without dropout.
 * Borrows the model of the spec and its parameters for its life. One thread. */

struct decoder;
MUST_CHECK enum err_code decoder_open(struct decoder **out, const struct train_spec *spec, struct model *m,
                                      const float *params, struct err *e);
void decoder_close(struct decoder *d); /* NULL is fine */

/* Reads n tokens behind those that were read; together no more than the context. logits (last,vocabulary): of
 * the last `last` of them, what follows each; last <= n. */
void decoder_feed(struct decoder *d, const int32_t *token, int64_t n, float *logits, int64_t last);
void decoder_reset(struct decoder *d);             /* forgets all */
int64_t decoder_position(const struct decoder *d); /* how many were read */

#endif
