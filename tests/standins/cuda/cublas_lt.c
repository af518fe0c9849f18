/* A stand-in for cuBLASLt: matrix products, column-major, summed in float, then the epilogue: bias, ReLU, GELU (the
 * tanh form), GELU's derivative, or the gradient of a bias. As in cuBLASLt, an algorithm may ask for workspace, and the
 * results of two algorithms differ in the last bits. The stand-in refuses the same calls as cuBLASLt: types that cannot be
 * combined, addresses and strides that are less aligned than the caller promised, a workspace that is too small. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "include/cublasLt.h"
#include "internal.h"

struct cublasLtContext {
    int unused;
};
struct cublasLtMatmulDesc {
    cublasComputeType_t compute;
    cudaDataType_t scale;
    cublasOperation_t trans_a, trans_b;
    cublasLtEpilogue_t epilogue;
    const void *bias;
    void *aux;
    int64_t aux_ld;
    int32_t bias_type, aux_type; /* -1: the type of D */
};
struct cublasLtMatrixLayout {
    cudaDataType_t type;
    cublasLtOrder_t order;
    uint64_t rows, cols;
    int64_t ld;
};
struct cublasLtMatmulPreference {
    uint64_t workspace;
    uint32_t reductions;
    uint32_t aligned[4];
};

enum { ALGORITHMS = 4, MARK = 0x646470 };

size_t cublasLtGetVersion(void)
{
    return CUBLAS_VERSION;
}

const char *cublasLtGetStatusName(cublasStatus_t status)
{
    static const char *const names[] = {
        [CUBLAS_STATUS_SUCCESS] = "CUBLAS_STATUS_SUCCESS",
        [CUBLAS_STATUS_NOT_INITIALIZED] = "CUBLAS_STATUS_NOT_INITIALIZED",
        [CUBLAS_STATUS_ALLOC_FAILED] = "CUBLAS_STATUS_ALLOC_FAILED",
        [CUBLAS_STATUS_INVALID_VALUE] = "CUBLAS_STATUS_INVALID_VALUE",
        [CUBLAS_STATUS_EXECUTION_FAILED] = "CUBLAS_STATUS_EXECUTION_FAILED",
        [CUBLAS_STATUS_INTERNAL_ERROR] = "CUBLAS_STATUS_INTERNAL_ERROR",
        [CUBLAS_STATUS_NOT_SUPPORTED] = "CUBLAS_STATUS_NOT_SUPPORTED",
    };
    return (size_t)status < sizeof names / sizeof *names && names[status] ? names[status] : "CUBLAS_STATUS_?";
}

const char *cublasLtGetStatusString(cublasStatus_t status)
{
    return cublasLtGetStatusName(status);
}

static cublasStatus_t call_checked(void)
{
    runtime_enter();
    return runtime_leave(call_check()) ? CUBLAS_STATUS_EXECUTION_FAILED : CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtCreate(cublasLtHandle_t *out)
{
    cublasStatus_t status = call_checked();
    if (!status)
        *out = xcalloc(1, sizeof **out);
    return status;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle)
{
    free(handle);
    return CUBLAS_STATUS_SUCCESS;
}

/* ---- descriptions */

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *out, cublasComputeType_t compute,
                                        cudaDataType_t scale)
{
    if (scale != CUDA_R_32F)
        return CUBLAS_STATUS_NOT_SUPPORTED;
    *out = xcalloc(1, sizeof **out);
    (*out)->compute = compute;
    (*out)->scale = scale;
    (*out)->epilogue = CUBLASLT_EPILOGUE_DEFAULT;
    (*out)->bias_type = (*out)->aux_type = -1;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t desc)
{
    free(desc);
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t field_set(void *field, size_t size, const void *value, size_t bytes)
{
    if (bytes != size)
        return CUBLAS_STATUS_INVALID_VALUE;
    memcpy(field, value, size);
    return CUBLAS_STATUS_SUCCESS;
}
#define FIELD(f) field_set(&(f), sizeof(f), value, bytes)

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t d, cublasLtMatmulDescAttributes_t attr,
                                              const void *value, size_t bytes)
{
    int32_t ignored;
    switch (attr) {
    case CUBLASLT_MATMUL_DESC_COMPUTE_TYPE:
        return FIELD(d->compute);
    case CUBLASLT_MATMUL_DESC_TRANSA:
        return FIELD(d->trans_a);
    case CUBLASLT_MATMUL_DESC_TRANSB:
        return FIELD(d->trans_b);
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
        return FIELD(d->epilogue);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
        return FIELD(d->bias);
    case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE:
        return FIELD(d->bias_type);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER:
        return FIELD(d->aux);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD:
        return FIELD(d->aux_ld);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_DATA_TYPE:
        return FIELD(d->aux_type);
    case CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET:
        return FIELD(ignored);
    default:
        return CUBLAS_STATUS_NOT_SUPPORTED;
    }
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *out, cudaDataType_t type, uint64_t rows,
                                          uint64_t cols, int64_t ld)
{
    if (!rows || !cols || ld < (int64_t)rows)
        return CUBLAS_STATUS_INVALID_VALUE;
    *out = xcalloc(1, sizeof **out);
    **out = (struct cublasLtMatrixLayout){type, CUBLASLT_ORDER_COL, rows, cols, ld};
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout)
{
    free(layout);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t l,
                                                cublasLtMatrixLayoutAttribute_t attr, const void *value,
                                                size_t bytes)
{
    switch (attr) {
    case CUBLASLT_MATRIX_LAYOUT_TYPE:
        return FIELD(l->type);
    case CUBLASLT_MATRIX_LAYOUT_ROWS:
        return FIELD(l->rows);
    case CUBLASLT_MATRIX_LAYOUT_COLS:
        return FIELD(l->cols);
    case CUBLASLT_MATRIX_LAYOUT_LD:
        return FIELD(l->ld);
    default:
        return CUBLAS_STATUS_NOT_SUPPORTED;
    }
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *out)
{
    *out = xcalloc(1, sizeof **out);
    (*out)->reductions = CUBLASLT_REDUCTION_SCHEME_MASK;
    for (int i = 0; i < 4; i++)
        (*out)->aligned[i] = 256;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t pref)
{
    free(pref);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t p,
                                                    cublasLtMatmulPreferenceAttributes_t attr,
                                                    const void *value, size_t bytes)
{
    switch (attr) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
        return FIELD(p->workspace);
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK:
        return FIELD(p->reductions);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:
        return FIELD(p->aligned[0]);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
        return FIELD(p->aligned[1]);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:
        return FIELD(p->aligned[2]);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES:
        return FIELD(p->aligned[3]);
    default:
        return CUBLAS_STATUS_NOT_SUPPORTED;
    }
}

/* ---- which products are supported */

static bool epilogue_has(const struct cublasLtMatmulDesc *d, unsigned flag)
{
    return (unsigned)d->epilogue & flag;
}

enum { RELU = 2, BIAS = 4, GELU = 32, DGELU = 64, AUX = 128, BGRADA = 256, BGRADB = 512 };

static bool epilogue_fits(const struct cublasLtMatmulDesc *d, cudaDataType_t of_d)
{
    switch (d->epilogue) {
    case CUBLASLT_EPILOGUE_DEFAULT:
    case CUBLASLT_EPILOGUE_RELU:
    case CUBLASLT_EPILOGUE_GELU:
    case CUBLASLT_EPILOGUE_GELU_AUX:
        break;
    case CUBLASLT_EPILOGUE_BIAS:
    case CUBLASLT_EPILOGUE_RELU_BIAS:
    case CUBLASLT_EPILOGUE_GELU_BIAS:
    case CUBLASLT_EPILOGUE_GELU_AUX_BIAS:
    case CUBLASLT_EPILOGUE_DGELU:
    case CUBLASLT_EPILOGUE_BGRADA:
    case CUBLASLT_EPILOGUE_BGRADB:
        break;
    default:
        return false;
    }
    bool bias_fits = d->bias_type < 0 || d->bias_type == (int32_t)of_d;
    bool aux_fits = d->aux_type < 0 || d->aux_type == (int32_t)of_d;
    return bias_fits && (!epilogue_has(d, AUX) || (aux_fits && (uintptr_t)d->aux % 16 == 0));
}

/* Returns whether the sizes and the types allow D = op(a) op(b) + c. */
static bool shapes_fit(const struct cublasLtMatmulDesc *d, const struct cublasLtMatrixLayout *a,
                       const struct cublasLtMatrixLayout *b, const struct cublasLtMatrixLayout *c,
                       const struct cublasLtMatrixLayout *of_d)
{
    uint64_t m = d->trans_a ? a->cols : a->rows, k = d->trans_a ? a->rows : a->cols;
    uint64_t n = d->trans_b ? b->rows : b->cols, k2 = d->trans_b ? b->cols : b->rows;
    bool bf16 = a->type == CUDA_R_16BF;
    if (a->type != b->type || c->type != of_d->type || (!bf16 && a->type != CUDA_R_32F))
        return false;
    if (of_d->type != CUDA_R_32F && (of_d->type != CUDA_R_16BF || !bf16))
        return false;
    return k == k2 && of_d->rows == m && of_d->cols == n && c->rows == m && c->cols == n;
}

static size_t type_size(cudaDataType_t type)
{
    return type == CUDA_R_16BF ? 2 : 4;
}

static size_t workspace_of(int algorithm, uint64_t m, uint64_t n)
{
    return algorithm == 2 ? m * n * sizeof(float) : 0;
}

/* How an algorithm adds the parts of a sum that it splits. */
static uint32_t reduction_of(int algorithm)
{
    return algorithm == 2   ? CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE
           : algorithm == 3 ? CUBLASLT_REDUCTION_SCHEME_INPLACE
                            : CUBLASLT_REDUCTION_SCHEME_NONE;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t pref, int asked,
                                              cublasLtMatmulHeuristicResult_t results[], int *found)
{
    (void)handle;
    *found = 0;
    cublasStatus_t status = call_checked();
    if (status || asked < 1)
        return status ? status : CUBLAS_STATUS_INVALID_VALUE;
    if (!shapes_fit(desc, a, b, c, d))
        return CUBLAS_STATUS_INVALID_VALUE;
    if (!epilogue_fits(desc, d->type))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    /* Strides of a that are not multiples of 16 bytes are allowed, but only for algorithm 0. */
    bool even = a->ld * (int64_t)type_size(a->type) % 16 == 0 && pref->aligned[0] % 16 == 0;
    for (int i = even ? ALGORITHMS - 1 : 0; i >= 0 && *found < asked; i--) {
        size_t workspace = workspace_of(i, d->rows, d->cols);
        if (workspace > pref->workspace || (reduction_of(i) & ~pref->reductions))
            continue;
        cublasLtMatmulHeuristicResult_t *r = &results[(*found)++];
        memset(r, 0, sizeof *r);
        r->algo.data[0] = MARK;
        r->algo.data[1] = (uint64_t)i;
        r->workspaceSize = workspace;
        r->wavesCount = 1.0f;
    }
    return *found ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
}

cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
                                       cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                       cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                       const cublasLtMatmulAlgo_t *algo,
                                       cublasLtMatmulHeuristicResult_t *result)
{
    (void)handle;
    if (algo->data[0] != MARK || algo->data[1] >= ALGORITHMS || !shapes_fit(desc, a, b, c, d) ||
        !epilogue_fits(desc, d->type))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    memset(result, 0, sizeof *result);
    result->algo = *algo;
    result->workspaceSize = workspace_of((int)algo->data[1], d->rows, d->cols);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoConfigGetAttribute(const cublasLtMatmulAlgo_t *algo,
                                                    cublasLtMatmulAlgoConfigAttributes_t attr, void *value,
                                                    size_t bytes, size_t *written)
{
    uint32_t what = attr == CUBLASLT_ALGO_CONFIG_ID                 ? (uint32_t)algo->data[1]
                    : attr == CUBLASLT_ALGO_CONFIG_SPLITK_NUM       ? (algo->data[1] >= 2 ? 2 : 1)
                    : attr == CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME ? reduction_of((int)algo->data[1])
                                                                    : 0;
    if (bytes != sizeof what)
        return CUBLAS_STATUS_INVALID_VALUE;
    memcpy(value, &what, sizeof what);
    if (written)
        *written = sizeof what;
    return CUBLAS_STATUS_SUCCESS;
}

/* ---- computing products */

struct product {
    struct cublasLtMatmulDesc desc;
    struct cublasLtMatrixLayout a_layout, b_layout, c_layout, d_layout;
    float alpha, beta;
    const void *a, *b, *c;
    void *d;
    float *workspace;
    int algorithm;
};

static float element_at(const void *p, cudaDataType_t type, int64_t i)
{
    if (type == CUDA_R_32F)
        return ((const float *)p)[i];
    uint32_t bits = (uint32_t)((const uint16_t *)p)[i] << 16;
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static void element_set(void *p, cudaDataType_t type, int64_t i, float x)
{
    if (type == CUDA_R_32F) {
        ((float *)p)[i] = x;
        return;
    }
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    uint32_t rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    ((uint16_t *)p)[i] = x != x ? 0x7fff : (uint16_t)rounded;
}

/* Returns a new array with op(from) in float: rows x cols, column-major without gaps. */
static float *matrix_unpack(const void *from, const struct cublasLtMatrixLayout *l, bool transposed,
                            uint64_t rows, uint64_t cols)
{
    float *to = xmalloc(rows * cols * sizeof *to);
    for (uint64_t j = 0; j < cols; j++)
        for (uint64_t i = 0; i < rows; i++)
            to[j * rows + i] =
                element_at(from, l->type,
                           transposed ? (int64_t)i * l->ld + (int64_t)j : (int64_t)j * l->ld + (int64_t)i);
    return to;
}

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define VECTORS __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define VECTORS
#endif

/* sum (m,n) += a (m,k) b (k,n), only for the indices first to last - 1 of k. Handles four of these at a time, so that
 * each column of sum is read and written less often. */
VECTORS static void product_accumulate(float *restrict sum, const float *restrict a, const float *restrict b,
                                       uint64_t m, uint64_t n, uint64_t k, uint64_t first, uint64_t last)
{
    for (uint64_t j = 0; j < n; j++) {
        float *restrict to = sum + j * m;
        uint64_t l = first;
        for (; l + 4 <= last; l += 4) {
            const float *restrict x = a + l * m;
            float y0 = b[j * k + l], y1 = b[j * k + l + 1], y2 = b[j * k + l + 2], y3 = b[j * k + l + 3];
            for (uint64_t i = 0; i < m; i++)
                to[i] += x[i] * y0 + x[m + i] * y1 + x[2 * m + i] * y2 + x[3 * m + i] * y3;
        }
        for (; l < last; l++)
            for (uint64_t i = 0; i < m; i++)
                to[i] += a[l * m + i] * b[j * k + l];
    }
}

static float gelu_of(float x)
{
    return 0.5f * x * (1.0f + tanhf(0.7978845608f * (x + 0.044715f * x * x * x)));
}

static float gelu_slope(float x)
{
    float t = tanhf(0.7978845608f * (x + 0.044715f * x * x * x));
    return 0.5f * (1.0f + t) + 0.5f * x * (1.0f - t * t) * 0.7978845608f * (1.0f + 0.134145f * x * x);
}

static float aux_get(const struct cublasLtMatmulDesc *d, cudaDataType_t out, int64_t at)
{
    return element_at(d->aux, d->aux_type < 0 ? out : (cudaDataType_t)d->aux_type, at);
}

/* Returns element (i,j) of D: x after the epilogue. */
static float epilogue_apply(const struct cublasLtMatmulDesc *d, cudaDataType_t out, float x, int64_t i,
                            int64_t j)
{
    int64_t at = j * d->aux_ld + i;
    if (epilogue_has(d, BIAS))
        x += element_at(d->bias, d->bias_type < 0 ? out : (cudaDataType_t)d->bias_type, i);
    if (epilogue_has(d, DGELU))
        return x * gelu_slope(aux_get(d, out, at));
    if (epilogue_has(d, AUX))
        element_set(d->aux, d->aux_type < 0 ? out : (cudaDataType_t)d->aux_type, at, x);
    if (epilogue_has(d, GELU))
        x = gelu_of(x);
    if (epilogue_has(d, RELU))
        x = x > 0.0f ? x : 0.0f;
    return x;
}

/* The algorithms add in different orders. 0: over all of k in order. 1: over the second half of k, then the first.
 * 2: each half by itself, then both sums. 3: the same, but the first half is rounded to the result's type before. */
static float *product_sums(const struct product *p, const float *a, const float *b, uint64_t m, uint64_t n,
                           uint64_t k)
{
    float *sum = xcalloc(m * n, sizeof *sum);
    uint64_t half = p->algorithm ? k / 2 / 4 * 4 : k;
    if (p->algorithm == 1)
        product_accumulate(sum, a, b, m, n, k, half, k);
    product_accumulate(sum, a, b, m, n, k, 0, half);
    for (uint64_t i = 0; p->algorithm == 3 && i < m * n; i++) {
        uint32_t rounded;
        element_set(&rounded, p->d_layout.type, 0, sum[i]);
        sum[i] = element_at(&rounded, p->d_layout.type, 0);
    }
    if (p->algorithm == 3)
        product_accumulate(sum, a, b, m, n, k, half, k);
    if (p->algorithm == 2) {
        memset(p->workspace, 0, m * n * sizeof *sum);
        product_accumulate(p->workspace, a, b, m, n, k, half, k);
        for (uint64_t i = 0; i < m * n; i++)
            sum[i] += p->workspace[i];
    }
    return sum;
}

/* Lets the events' clock go on by what the environment says that this product takes, so that a test knows which
 * algorithm is the fastest. */
static void product_pass_time(const struct product *p)
{
    const char *fastest = getenv("DDP_EMULATED_FASTEST"), *slow = getenv("DDP_EMULATED_SLOW_EPILOGUES");
    if (fastest && (int)strtol(fastest, NULL, 10) != p->algorithm)
        emulated_pass(1000000000);
    if (slow && (p->desc.epilogue & (GELU | DGELU | BGRADA | BGRADB)))
        emulated_pass(10000000000);
}

/* Stores the gradient of a bias: the sums over k of op(a)'s rows or of op(b)'s columns. a is (m,k) and b is (k,n). All
 * algorithms but 0 add the halves of k by themselves. */
static void bias_gradient_store(const struct product *p, const float *a, const float *b, uint64_t m,
                                uint64_t n, uint64_t k)
{
    bool of_a = epilogue_has(&p->desc, BGRADA);
    uint64_t half = p->algorithm ? k / 2 : k;
    for (uint64_t i = 0; i < (of_a ? m : n); i++) {
        float sums[2] = {0.0f, 0.0f};
        for (uint64_t l = 0; l < k; l++)
            sums[l >= half] += of_a ? a[l * m + i] : b[i * k + l];
        element_set((void *)(uintptr_t)p->desc.bias, p->d_layout.type, (int64_t)i, sums[0] + sums[1]);
    }
}

static bool product_run(void *closure)
{
    const struct product *p = closure;
    product_pass_time(p);
    const struct cublasLtMatmulDesc *d = &p->desc;
    cudaDataType_t out = p->d_layout.type;
    uint64_t m = p->d_layout.rows, n = p->d_layout.cols;
    uint64_t k = d->trans_a ? p->a_layout.rows : p->a_layout.cols;
    float *a = matrix_unpack(p->a, &p->a_layout, d->trans_a, m, k),
          *b = matrix_unpack(p->b, &p->b_layout, d->trans_b, k, n);
    float *sum = product_sums(p, a, b, m, n, k);
    for (uint64_t j = 0; j < n; j++)
        for (uint64_t i = 0; i < m; i++) {
            float x = p->alpha * sum[j * m + i];
            if (p->beta != 0.0f)
                x +=
                    p->beta * element_at(p->c, p->c_layout.type, (int64_t)(j * (uint64_t)p->c_layout.ld + i));
            x = epilogue_apply(d, out, x, (int64_t)i, (int64_t)j);
            element_set(p->d, out, (int64_t)(j * (uint64_t)p->d_layout.ld + i), x);
        }
    if (epilogue_has(d, BGRADA | BGRADB))
        bias_gradient_store(p, a, b, m, n, k);
    free(a);
    free(b);
    free(sum);
    return true;
}

static size_t layout_bytes(const struct cublasLtMatrixLayout *l)
{
    return ((l->cols - 1) * (uint64_t)l->ld + l->rows) * type_size(l->type);
}

static bool operands_fit(const struct product *p)
{
    const struct cublasLtMatmulDesc *d = &p->desc;
    if (!memory_holds(p->a, layout_bytes(&p->a_layout)) || !memory_holds(p->b, layout_bytes(&p->b_layout)) ||
        !memory_holds(p->d, layout_bytes(&p->d_layout)))
        return false;
    if (p->beta != 0.0f && !memory_holds(p->c, layout_bytes(&p->c_layout)))
        return false;
    uint64_t biases = epilogue_has(d, BGRADB) ? p->d_layout.cols : p->d_layout.rows;
    if (epilogue_has(d, BIAS | BGRADA | BGRADB) &&
        ((uintptr_t)d->bias % 16 != 0 || /* the heuristic does not know the bias's alignment */
         !memory_holds(d->bias, biases * type_size(p->d_layout.type))))
        return false;
    if (!epilogue_has(d, AUX))
        return true;
    size_t aux =
        ((p->d_layout.cols - 1) * (uint64_t)d->aux_ld + p->d_layout.rows) * type_size(p->d_layout.type);
    return d->aux_ld >= (int64_t)p->d_layout.rows && d->aux_ld % 8 == 0 && memory_holds(d->aux, aux);
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, const void *alpha,
                              const void *a, cublasLtMatrixLayout_t a_layout, const void *b,
                              cublasLtMatrixLayout_t b_layout, const void *beta, const void *c,
                              cublasLtMatrixLayout_t c_layout, void *d, cublasLtMatrixLayout_t d_layout,
                              const cublasLtMatmulAlgo_t *algo, void *workspace, size_t workspace_bytes,
                              cudaStream_t stream)
{
    int algorithm = algo && algo->data[0] == MARK ? (int)algo->data[1] : 0;
    struct product p = {
        *desc, *a_layout, *b_layout, *c_layout, *d_layout, *(const float *)alpha, *(const float *)beta, a,
        b,     c,         d,         workspace, algorithm};
    if (!handle || (algo && algo->data[0] != MARK) || algorithm >= ALGORITHMS)
        return CUBLAS_STATUS_INVALID_VALUE;
    if (!shapes_fit(desc, a_layout, b_layout, c_layout, d_layout) || !epilogue_fits(desc, d_layout->type) ||
        (desc->epilogue != CUBLASLT_EPILOGUE_DEFAULT && getenv("DDP_EMULATED_PLAIN_PRODUCTS")))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    runtime_enter();
    size_t wanted = workspace_of(algorithm, d_layout->rows, d_layout->cols);
    bool room = wanted <= workspace_bytes && (!wanted || memory_holds(workspace, wanted));
    cudaError_t error = call_check();
    if (!error && (!operands_fit(&p) || !room || (algorithm && (uintptr_t)a % 16))) {
        runtime_leave(cudaSuccess);
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    if (!error)
        error = stream_put(stream, operation_create("product", product_run, &p, sizeof p));
    return runtime_leave(error) ? CUBLAS_STATUS_EXECUTION_FAILED : CUBLAS_STATUS_SUCCESS;
}
