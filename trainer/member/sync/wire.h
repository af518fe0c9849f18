#ifndef DDP_TRAINER_MEMBER_SYNC_WIRE_H
#define DDP_TRAINER_MEMBER_SYNC_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/job/job.h"

/* What is sent in place of floats. bf16: the upper half, rounded to nearest even. int8 and int4: blocks of
 * WIRE_BLOCK floats, each with a scale s = max|x| / 127 (int4: / 7) in bf16, and codes rint(x / s). A call
 * takes floats of one tensor from the start of a block, so that no block holds floats of two tensors.
 *
 * Every rank decodes the same values q from a rank's codes. The rank itself keeps the error x - q and adds
 * it to its next delta (error feedback: Seide et al., Interspeech 2014; Karimireddy et al., arXiv
 * 1901.09847). Any thread. */

#define WIRE_BLOCK 64

size_t wire_bytes(enum wire_type wire, size_t count);
/* False: a value is not finite, or too large for bf16; `out` is then not to be sent. */
MUST_CHECK bool wire_encode(enum wire_type wire, const float *x, size_t count, uint8_t *out);
/* sum += weight q */
void wire_add(enum wire_type wire, const uint8_t *codes, size_t count, float weight, float *sum);
/* Returns the sum of q^2, with the same bits on all machines. */
double wire_squares(enum wire_type wire, const uint8_t *codes, size_t count);
/* x -= q */
void wire_subtract(enum wire_type wire, const uint8_t *codes, size_t count, float *x);

#endif
