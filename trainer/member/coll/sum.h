#ifndef DDP_TRAINER_MEMBER_COLL_SUM_H
#define DDP_TRAINER_MEMBER_COLL_SUM_H

#include <stdbool.h>
#include <stddef.h>

/* The arithmetic of the all-reduce. Every instruction set gives the same bits: one addition for each element
 * and rank, in the order of `in`. */

/* out[k][i] = in[0][i] + in[1][i] + ... for lo <= i < hi and every k; an out may be one of `in`. stream:
 * writes past the caches, for arrays that do not fit them; then all `in` and `out` must have the same address
 * modulo 64. */
void coll_sum(float *const *in, int ins, float *const *out, int outs, size_t lo, size_t hi, bool stream);
/* The same as a binary tree: the tree's sum of the first h of `in` plus that of the others, where h is the
 * largest power of two below ins. ins <= 1024. */
void coll_sum_tree(float *const *in, int ins, float *const *out, int outs, size_t lo, size_t hi);
/* data[i] = got[i] + data[i] */
void coll_add(float *data, const float *got, size_t count);

#endif
