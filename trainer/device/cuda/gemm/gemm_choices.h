#ifndef DDP_TRAINER_DEVICE_CUDA_GEMM_GEMM_CHOICES_H
#define DDP_TRAINER_DEVICE_CUDA_GEMM_GEMM_CHOICES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"

/* The choices: which algorithm computes which product. A snapshot keeps them as a text (algorithms.txt):
 *
 *     ddp algorithms 1
 *     device NVIDIA H200, CUDA 13.0
 *     library cuBLASLt 130100
 *     768 3072 32768 1 0 1 0 1 0 1 256 256 256 0 0 00000000000000170000000000000000...
 *
 * After three lines of head, each line is one choice: the numbers of the shape, in the order of struct gemm_shape, then
 * the algorithm as 128 digits, or `apart`. An algorithm is valid only for the version of the library and the kind of
 * GPU that chose it. */

/* (m,n) = (m,k) (k,n). Compared as bytes, so it has no padding. */
struct gemm_shape {
    int64_t m, n, k;
    int32_t adds, untuned, type, out, trans_a, trans_b, epilogue;
    uint32_t align_a, align_b, align_c, align_aux, align_bias; /* of the addresses; 0: not used */
};
_Static_assert(sizeof(struct gemm_shape) == 72, "a shape has no padding");

enum { GEMM_ALGORITHM_WORDS = 8, GEMM_CHOICES_MOST = 256 };
struct gemm_choice {
    struct gemm_shape shape;
    bool apart; /* two steps: the product, then a kernel for the epilogue */
    uint64_t algorithm[GEMM_ALGORITHM_WORDS];
};
struct gemm_choices {
    struct gemm_choice *items; /* at most GEMM_CHOICES_MOST */
    size_t count, cap;
};
void gemm_choices_release(struct gemm_choices *c);
const struct gemm_choice *gemm_choices_find(const struct gemm_choices *c, const struct gemm_shape *shape);
/* Adds a choice or replaces that of the same shape. Ignored if there are GEMM_CHOICES_MOST others. */
void gemm_choices_put(struct gemm_choices *c, const struct gemm_choice *choice);

void gemm_choices_print(const struct gemm_choices *c, const char *device, size_t library, struct buf *out);
/* On success, replaces the content of `out`. FAILED_PRECONDITION: the algorithms were chosen on another kind of device
 * or by another version of the library. DATA_LOSS: the text is damaged. */
MUST_CHECK enum err_code gemm_choices_parse(struct gemm_choices *out, const char *device, size_t library,
                                            const char *text, size_t size, struct err *e);

#endif
