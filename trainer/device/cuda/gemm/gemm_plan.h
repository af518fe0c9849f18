#ifndef DDP_TRAINER_DEVICE_CUDA_GEMM_GEMM_PLAN_H
#define DDP_TRAINER_DEVICE_CUDA_GEMM_GEMM_PLAN_H

#include <cublasLt.h>

#include "trainer/device/cuda/gemm/gemm_choices.h"

/* A plan: cuBLASLt's descriptions of a product, and the algorithm. cuBLASLt's matrices are column-major. Read that way,
 * the memory of a row-major matrix holds its transpose. So a row-major c = a b is computed as c' = b' a': for cuBLASLt,
 * b is the first factor, and the columns of c are rows. */

#define GEMM_WORKSPACE_BYTES                                                                                 \
    ((size_t)64 << 20) /* for the parts of split sums: 27 of (768,768), or 6 of (768,3072) */
enum { GEMM_CANDIDATES = 8 };

/* A product to run. bias and aux belong to the epilogue: aux is z, the input of the activation. BGRADA writes the column
 * sums of b to bias. */
struct gemm_call {
    struct gemm_shape shape;
    const void *a, *b, *bias;
    void *c, *aux;
};
struct gemm_plan {
    struct gemm_shape shape;
    bool declined; /* cuBLASLt has no algorithm for it, or two steps are faster than one product */
    bool compared; /* one product was compared with two steps, or there is no way in two steps */
    cublasLtMatmulDesc_t product;
    cublasLtMatrixLayout_t first, second, result; /* b, a, c */
    cublasLtMatmulAlgo_t algorithm;
};

cublasStatus_t gemm_plan_describe(struct gemm_plan *p,
                                  const struct gemm_call *c); /* on an error: release it */
void gemm_plan_release(struct gemm_plan *p);
/* The algorithms that can run, in cuBLASLt's order: at most GEMM_CANDIDATES. */
cublasStatus_t gemm_plan_candidates(cublasLtHandle_t lib, const struct gemm_plan *p,
                                    cublasLtMatmulHeuristicResult_t *found, int *count);
/* Whether the library accepts the plan's algorithm for its product. */
bool gemm_plan_fits(cublasLtHandle_t lib, const struct gemm_plan *p);
cublasStatus_t gemm_plan_launch(cublasLtHandle_t lib, const struct gemm_plan *p, const struct gemm_call *c,
                                const cublasLtMatmulAlgo_t *algorithm, void *workspace, cudaStream_t stream);

#endif
