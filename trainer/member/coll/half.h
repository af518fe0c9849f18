#ifndef DDP_TRAINER_MEMBER_COLL_HALF_H
#define DDP_TRAINER_MEMBER_COLL_HALF_H

#include <stddef.h>

/* bf16 in place of floats: the arithmetic of sums that cross the wire as bf16. Halves lie packed in memory of floats; no address
 * needs to be aligned. Every instruction set gives the same bits. */

/* In place: rounds `count` floats at `data` to nearest even, and packs them at the start of that memory. */
void half_narrow(void *data, size_t count);
/* In place, the reverse for halves [lo, hi): their floats get to places lo to hi. Memory below 2 lo bytes stays as it is. */
void half_widen(void *data, size_t lo, size_t hi);
/* out[k][i] = in[0][i] + in[1][i] + ... for lo <= i < hi and every k: added up as floats in that order, and rounded once. */
void half_sum(void *const *in, int ins, void *const *out, int outs, size_t lo, size_t hi);
/* data[i] = got[i] + data[i], rounded */
void half_add(void *data, const void *got, size_t count);

#endif
