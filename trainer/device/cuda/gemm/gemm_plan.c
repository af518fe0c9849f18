/* Describes products to cuBLASLt: see gemm_plan.h. */
#include "trainer/device/cuda/gemm/gemm_plan.h"

#include "trainer/device/device.h"

void gemm_plan_release(struct gemm_plan *p)
{
    if (p->product)
        (void)cublasLtMatmulDescDestroy(p->product);
    if (p->first)
        (void)cublasLtMatrixLayoutDestroy(p->first);
    if (p->second)
        (void)cublasLtMatrixLayoutDestroy(p->second);
    if (p->result)
        (void)cublasLtMatrixLayoutDestroy(p->result);
    *p = (struct gemm_plan){0};
}

static cudaDataType_t gemm_cuda_type(int32_t type)
{
    return type == DEVICE_BF16 ? CUDA_R_16BF : CUDA_R_32F;
}

static cublasStatus_t descriptor_set(cublasLtMatmulDesc_t d, cublasLtMatmulDescAttributes_t what,
                                     const void *value, size_t bytes)
{
    return cublasLtMatmulDescSetAttribute(d, what, value, bytes);
}

static bool has_bias(const struct gemm_shape *s)
{
    return s->epilogue == CUBLASLT_EPILOGUE_BIAS || s->epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS ||
           s->epilogue == CUBLASLT_EPILOGUE_BGRADA;
}

static bool writes_aux(const struct gemm_shape *s)
{
    return s->epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS;
}

static bool has_aux(const struct gemm_shape *s)
{
    return writes_aux(s) || s->epilogue == CUBLASLT_EPILOGUE_DGELU;
}

/* Sets the pointers of the epilogue, which differ from call to call with the same plan. */
static cublasStatus_t set_pointers(cublasLtMatmulDesc_t d, const struct gemm_call *c)
{
    cublasStatus_t status = CUBLAS_STATUS_SUCCESS;
    if (has_bias(&c->shape))
        status = descriptor_set(d, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &c->bias, sizeof(c->bias));
    if (status == CUBLAS_STATUS_SUCCESS && has_aux(&c->shape))
        status = descriptor_set(d, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, &c->aux, sizeof(c->aux));
    return status;
}

static cublasStatus_t describe_product(struct gemm_plan *p, const struct gemm_call *c)
{
    const struct gemm_shape *s = &c->shape;
    /* b is cuBLASLt's first factor: see the top of the file. */
    int32_t first = s->trans_b ? CUBLAS_OP_T : CUBLAS_OP_N, second = s->trans_a ? CUBLAS_OP_T : CUBLAS_OP_N;
    cublasStatus_t status = cublasLtMatmulDescCreate(&p->product, CUBLAS_COMPUTE_32F, CUDA_R_32F);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = descriptor_set(p->product, CUBLASLT_MATMUL_DESC_TRANSA, &first, sizeof(first));
    if (status == CUBLAS_STATUS_SUCCESS)
        status = descriptor_set(p->product, CUBLASLT_MATMUL_DESC_TRANSB, &second, sizeof(second));
    if (status == CUBLAS_STATUS_SUCCESS)
        status = descriptor_set(p->product, CUBLASLT_MATMUL_DESC_EPILOGUE, &s->epilogue, sizeof(s->epilogue));
    if (status == CUBLAS_STATUS_SUCCESS && has_aux(s))
        status = descriptor_set(p->product, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &s->n, sizeof(s->n));
    return status == CUBLAS_STATUS_SUCCESS ? set_pointers(p->product, c) : status;
}

/* A row-major (rows,cols) matrix is a (cols,rows) one for cuBLASLt. */
static cublasStatus_t describe_matrix(cublasLtMatrixLayout_t *out, int32_t type, int64_t rows, int64_t cols)
{
    return cublasLtMatrixLayoutCreate(out, gemm_cuda_type(type), (uint64_t)cols, (uint64_t)rows, cols);
}

cublasStatus_t gemm_plan_describe(struct gemm_plan *p, const struct gemm_call *c)
{
    const struct gemm_shape *s = &c->shape;
    cublasStatus_t status = describe_product(p, c);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = describe_matrix(&p->first, s->type, s->trans_b ? s->n : s->k, s->trans_b ? s->k : s->n);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = describe_matrix(&p->second, s->type, s->trans_a ? s->k : s->m, s->trans_a ? s->m : s->k);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = describe_matrix(&p->result, s->out, s->m, s->n);
    return status;
}

/* How an algorithm may add the parts of a sum that it splits. COMPUTE_TYPE: a kernel of its own adds them in float.
 * INPLACE: the thread blocks add to the result one after the other, in an order that counters fix (cublasLt.h). This is
 * allowed only where the result is float, because the result is rounded after each part. In both cases the order does
 * not depend on which block ends first, as it would with atomic additions; gpu_ops --repeat checks that. */
static cublasStatus_t preference_set(cublasLtMatmulPreference_t pref, const struct gemm_shape *s)
{
    size_t room = GEMM_WORKSPACE_BYTES;
    uint32_t reduction = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE |
                         (s->out == DEVICE_F32 ? CUBLASLT_REDUCTION_SCHEME_INPLACE : 0);
    const struct {
        cublasLtMatmulPreferenceAttributes_t what;
        const void *value;
        size_t bytes;
    } wanted[] = {
        {CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &room, sizeof(room)},
        {CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &reduction, sizeof(reduction)},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, &s->align_b, sizeof(s->align_b)},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, &s->align_a, sizeof(s->align_a)},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, &s->align_c, sizeof(s->align_c)},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, &s->align_c, sizeof(s->align_c)},
    };
    cublasStatus_t status = CUBLAS_STATUS_SUCCESS;
    for (size_t i = 0; status == CUBLAS_STATUS_SUCCESS && i < sizeof(wanted) / sizeof(wanted[0]); i++)
        status = cublasLtMatmulPreferenceSetAttribute(pref, wanted[i].what, wanted[i].value, wanted[i].bytes);
    return status;
}

cublasStatus_t gemm_plan_candidates(cublasLtHandle_t lib, const struct gemm_plan *p,
                                    cublasLtMatmulHeuristicResult_t *found, int *count)
{
    cublasLtMatmulPreference_t pref = NULL;
    cublasStatus_t status = cublasLtMatmulPreferenceCreate(&pref);
    *count = 0;
    if (status == CUBLAS_STATUS_SUCCESS)
        status = preference_set(pref, &p->shape);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = cublasLtMatmulAlgoGetHeuristic(lib, p->product, p->first, p->second, p->result, p->result,
                                                pref, GEMM_CANDIDATES, found, count);
    if (pref)
        (void)cublasLtMatmulPreferenceDestroy(pref);
    int good = 0;
    for (int i = 0; status == CUBLAS_STATUS_SUCCESS && i < *count; i++)
        if (found[i].state == CUBLAS_STATUS_SUCCESS)
            found[good++] = found[i];
    *count = good;
    return status;
}

bool gemm_plan_fits(cublasLtHandle_t lib, const struct gemm_plan *p)
{
    cublasLtMatmulHeuristicResult_t result;
    return cublasLtMatmulAlgoCheck(lib, p->product, p->first, p->second, p->result, p->result, &p->algorithm,
                                   &result) == CUBLAS_STATUS_SUCCESS &&
           result.workspaceSize <= GEMM_WORKSPACE_BYTES;
}

cublasStatus_t gemm_plan_launch(cublasLtHandle_t lib, const struct gemm_plan *p, const struct gemm_call *c,
                                const cublasLtMatmulAlgo_t *algorithm, void *workspace, cudaStream_t stream)
{
    const float one = 1.0f, beta = c->shape.adds ? 1.0f : 0.0f;
    cublasStatus_t status = set_pointers(p->product, c);
    if (status != CUBLAS_STATUS_SUCCESS)
        return status;
    return cublasLtMatmul(lib, p->product, &one, c->b, p->first, c->a, p->second, &beta, c->c, p->result,
                          c->c, p->result, algorithm, workspace, GEMM_WORKSPACE_BYTES, stream);
}
