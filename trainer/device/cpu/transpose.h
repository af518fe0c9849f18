#ifndef DDP_TRAINER_DEVICE_CPU_TRANSPOSE_H
#define DDP_TRAINER_DEVICE_CPU_TRANSPOSE_H

#include "trainer/device/cpu/vec.h"

/* Exchanges the off-diagonal n x n parts of each 2n x 2n square. */
#define TRANSPOSE_PARTS(r, n, first, second)                                                                 \
    _Pragma("GCC unroll 16") for (int i_ = 0; i_ < LANES; i_++) if (!(i_ & (n)))                             \
    {                                                                                                        \
        vf a_ = r[i_], b_ = r[i_ + (n)];                                                                     \
        r[i_] = __builtin_shufflevector(a_, b_, first);                                                      \
        r[i_ + (n)] = __builtin_shufflevector(a_, b_, second);                                               \
    }
#define TRANSPOSE_FIRST_8 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23
#define TRANSPOSE_SECOND_8 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31
#define TRANSPOSE_FIRST_4 0, 1, 2, 3, 16, 17, 18, 19, 8, 9, 10, 11, 24, 25, 26, 27
#define TRANSPOSE_SECOND_4 4, 5, 6, 7, 20, 21, 22, 23, 12, 13, 14, 15, 28, 29, 30, 31
#define TRANSPOSE_FIRST_2 0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29
#define TRANSPOSE_SECOND_2 2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31
#define TRANSPOSE_FIRST_1 0, 16, 2, 18, 4, 20, 6, 22, 8, 24, 10, 26, 12, 28, 14, 30
#define TRANSPOSE_SECOND_1 1, 17, 3, 19, 5, 21, 7, 23, 9, 25, 11, 27, 13, 29, 15, 31

/* Transposes sixteen rows of sixteen 32-bit values. */
VEC_INLINE void vec_transpose(vf r[LANES])
{
    TRANSPOSE_PARTS(r, 8, TRANSPOSE_FIRST_8, TRANSPOSE_SECOND_8)
    TRANSPOSE_PARTS(r, 4, TRANSPOSE_FIRST_4, TRANSPOSE_SECOND_4)
    TRANSPOSE_PARTS(r, 2, TRANSPOSE_FIRST_2, TRANSPOSE_SECOND_2)
    TRANSPOSE_PARTS(r, 1, TRANSPOSE_FIRST_1, TRANSPOSE_SECOND_1)
}

#endif
