/* Matrix products by cuBLASLt, whose matrices are column-major. The same memory read that way is the transpose, so a
 * row-major c = a b is computed as c' = b' a': b is its first factor, and the columns of c are its rows. Descriptors
 * and the algorithm are kept for each shape; a model has about twenty. */
#include "trainer/device/cuda/gemm.h"
#include "trainer/device/cuda/error.h"

#include <cublasLt.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "trainer/device/cuda/cuda.h"
#include "trainer/device/cuda/gemm_time.h"

enum { KEPT = 128, CANDIDATES = 8 };
#define WORKSPACE_BYTES ((size_t)32 << 20)
#define ALIGNMENT 256 /* a larger alignment makes no difference to cuBLASLt */

/* The key of a plan: (m,n) = (m,k) (k,n). Compared as bytes, so it has no padding. */
struct shape {
    int64_t m, n, k;
    int32_t adds, untuned, type, out, trans_a, trans_b, epilogue;
    uint32_t align_a, align_b, align_c, align_aux, align_bias;
};
_Static_assert(sizeof(struct shape) == 72, "a shape has no padding");
struct plan {
    struct shape shape;
    bool declined; /* cuBLASLt has no algorithm for it */
    cublasLtMatmulDesc_t product;
    cublasLtMatrixLayout_t first, second, result; /* b, a, c */
    cublasLtMatmulAlgo_t algorithm;
};
struct gemm {
    cublasLtHandle_t lib;
    cudaStream_t stream;
    void *workspace;
    struct gemm_timer *timer; /* NULL: the first algorithm is taken */
    struct plan plan[KEPT];
    size_t count, oldest;
};
/* A product to run. bias and aux belong to the epilogue: aux is z, the input of the activation. */
struct call {
    struct shape shape;
    const void *a, *b, *bias;
    void *c, *aux;
};

static enum err_code gemm_fail(struct err *e, const char *what, cublasStatus_t status)
{
    enum err_code code = status == CUBLAS_STATUS_ALLOC_FAILED ? ERR_RESOURCE_EXHAUSTED : ERR_INTERNAL;
    cudaError_t cause =
        cudaGetLastError(); /* if CUDA itself failed, its error says more than cuBLASLt's status */
    if (cause != cudaSuccess)
        return cuda_error(cause, what, e);
    return err_set(e, code, "cuBLASLt: %s: %s", what, cublasLtGetStatusString(status));
}

/* ---- plans */

static void plan_release(struct plan *p)
{
    if (p->product)
        (void)cublasLtMatmulDescDestroy(p->product);
    if (p->first)
        (void)cublasLtMatrixLayoutDestroy(p->first);
    if (p->second)
        (void)cublasLtMatrixLayoutDestroy(p->second);
    if (p->result)
        (void)cublasLtMatrixLayoutDestroy(p->result);
    *p = (struct plan){0};
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

static bool has_bias(const struct shape *s)
{
    return s->epilogue == CUBLASLT_EPILOGUE_BIAS || s->epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS;
}

static bool writes_aux(const struct shape *s)
{
    return s->epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS;
}

static bool has_aux(const struct shape *s)
{
    return writes_aux(s) || s->epilogue == CUBLASLT_EPILOGUE_DGELU;
}

/* Sets the pointers of the epilogue, which differ from call to call with the same plan. */
static cublasStatus_t set_pointers(cublasLtMatmulDesc_t d, const struct call *c)
{
    cublasStatus_t status = CUBLAS_STATUS_SUCCESS;
    if (has_bias(&c->shape))
        status = descriptor_set(d, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &c->bias, sizeof(c->bias));
    if (status == CUBLAS_STATUS_SUCCESS && has_aux(&c->shape))
        status = descriptor_set(d, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, &c->aux, sizeof(c->aux));
    return status;
}

static cublasStatus_t describe_product(struct plan *p, const struct call *c)
{
    const struct shape *s = &c->shape;
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

static cublasStatus_t plan_describe(struct plan *p, const struct call *c)
{
    const struct shape *s = &c->shape;
    cublasStatus_t status = describe_product(p, c);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = describe_matrix(&p->first, s->type, s->trans_b ? s->n : s->k, s->trans_b ? s->k : s->n);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = describe_matrix(&p->second, s->type, s->trans_a ? s->k : s->m, s->trans_a ? s->m : s->k);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = describe_matrix(&p->result, s->out, s->m, s->n);
    return status;
}

/* COMPUTE_TYPE: if an algorithm splits a sum, a kernel of its own adds the parts in float. Their order does not depend
 * on which block ends first, as it would with atomic additions. */
static cublasStatus_t preference_set(cublasLtMatmulPreference_t pref, const struct shape *s)
{
    size_t room = WORKSPACE_BYTES;
    uint32_t reduction = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
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

static cublasStatus_t plan_find_algorithms(struct gemm *g, const struct plan *p, const struct shape *s,
                                           cublasLtMatmulHeuristicResult_t *found, int *count)
{
    cublasLtMatmulPreference_t pref = NULL;
    cublasStatus_t status = cublasLtMatmulPreferenceCreate(&pref);
    *count = 0;
    if (status == CUBLAS_STATUS_SUCCESS)
        status = preference_set(pref, s);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = cublasLtMatmulAlgoGetHeuristic(g->lib, p->product, p->first, p->second, p->result, p->result,
                                                pref, CANDIDATES, found, count);
    if (pref)
        (void)cublasLtMatmulPreferenceDestroy(pref);
    /* Keep only the algorithms that can run, in cuBLASLt's order. */
    int good = 0;
    for (int i = 0; status == CUBLAS_STATUS_SUCCESS && i < *count; i++)
        if (found[i].state == CUBLAS_STATUS_SUCCESS)
            found[good++] = found[i];
    *count = good;
    return status;
}

static cublasStatus_t plan_launch(struct gemm *g, const struct plan *p, const struct call *c,
                                  const cublasLtMatmulAlgo_t *algorithm, void *workspace, cudaStream_t stream)
{
    const float one = 1.0f, beta = c->shape.adds ? 1.0f : 0.0f;
    return cublasLtMatmul(g->lib, p->product, &one, c->b, p->first, c->a, p->second, &beta, c->c, p->result,
                          c->c, p->result, algorithm, workspace, WORKSPACE_BYTES, stream);
}

/* ---- timing candidates */

struct trial {
    struct gemm *g;
    const struct plan *p;
    struct call call;
    const cublasLtMatmulHeuristicResult_t *found;
};

static bool try_one(void *arg, int way, void *result, void *aux, void *workspace, cudaStream_t stream)
{
    struct trial *t = arg;
    t->call.c = result;
    if (writes_aux(&t->call.shape))
        t->call.aux = aux;
    return set_pointers(t->p->product, &t->call) == CUBLAS_STATUS_SUCCESS &&
           plan_launch(t->g, t->p, &t->call, &t->found[way].algo, workspace, stream) == CUBLAS_STATUS_SUCCESS;
}

static int plan_time_algorithms(struct gemm *g, const struct plan *p, const struct call *c,
                                const cublasLtMatmulHeuristicResult_t *found, int count)
{
    const struct shape *s = &c->shape;
    struct trial t = {g, p, *c, found};
    size_t bytes = (size_t)(s->m * s->n) * device_size((enum device_type)s->out);
    struct gemm_trial trial = {bytes, writes_aux(s) ? bytes : 0, WORKSPACE_BYTES, count, try_one, &t};
    return gemm_timer_fastest(g->timer, &trial);
}

/* Nothing can be timed while the stream is being captured: captured work does not run. */
static bool may_time(const struct gemm *g, const struct shape *s)
{
    enum cudaStreamCaptureStatus capturing = cudaStreamCaptureStatusNone;
    return g->timer && !s->untuned && cudaStreamIsCapturing(g->stream, &capturing) == cudaSuccess &&
           capturing == cudaStreamCaptureStatusNone;
}

static enum err_code plan_make(struct gemm *g, const struct call *c, struct plan *out, struct err *e)
{
    cublasLtMatmulHeuristicResult_t found[CANDIDATES];
    int count = 0;
    struct plan p = {.shape = c->shape};
    cublasStatus_t status = plan_describe(&p, c);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = plan_find_algorithms(g, &p, &c->shape, found, &count);
    /* A shape that cuBLASLt declines is kept, too, so that it is not asked again. */
    if (status == CUBLAS_STATUS_NOT_SUPPORTED || (status == CUBLAS_STATUS_SUCCESS && count == 0)) {
        p.declined = true;
        *out = p;
        return ERR_OK;
    }
    if (status != CUBLAS_STATUS_SUCCESS) {
        plan_release(&p);
        return gemm_fail(e, "planning a product", status);
    }
    p.algorithm =
        found[count > 1 && may_time(g, &c->shape) ? plan_time_algorithms(g, &p, c, found, count) : 0].algo;
    *out = p;
    return ERR_OK;
}

static enum err_code plan_find(struct gemm *g, const struct call *c, struct plan **out, struct err *e)
{
    struct plan made;
    for (size_t i = 0; i < g->count; i++)
        if (!memcmp(&g->plan[i].shape, &c->shape, sizeof(c->shape))) {
            *out = &g->plan[i];
            return ERR_OK;
        }
    if (plan_make(g, c, &made, e))
        return e->code;
    *out = &g->plan[g->count < KEPT ? g->count++ : g->oldest++ % KEPT];
    plan_release(*out);
    **out = made;
    return ERR_OK;
}

static enum err_code gemm_decline(const struct shape *s, struct err *e)
{
    return err_set(e, ERR_UNIMPLEMENTED, "cuBLASLt: no algorithm for (%lld,%lld) times (%lld,%lld)",
                   (long long)s->m, (long long)s->k, (long long)s->k, (long long)s->n);
}

/* UNIMPLEMENTED: cuBLASLt has no algorithm for it. Sometimes it finds that out only at the launch, after it has
 * proposed one; the plan is then marked as declined. */
static enum err_code gemm_run(struct gemm *g, const struct call *c, struct err *e)
{
    struct plan *p = NULL;
    if (plan_find(g, c, &p, e))
        return e->code;
    if (p->declined)
        return gemm_decline(&c->shape, e);
    cublasStatus_t status = set_pointers(p->product, c);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = plan_launch(g, p, c, &p->algorithm, g->workspace, g->stream);
    if (status == CUBLAS_STATUS_NOT_SUPPORTED) {
        p->declined = true;
        return gemm_decline(&c->shape, e);
    }
    return status == CUBLAS_STATUS_SUCCESS ? ERR_OK : gemm_fail(e, "a product", status);
}

/* ---- what the device asks for */

/* The largest power of two that divides the address, at most ALIGNMENT. */
static uint32_t alignment_of(const void *p)
{
    uintptr_t at = (uintptr_t)p;
    uint32_t lowest = (uint32_t)(at & (~at + 1));
    return at % ALIGNMENT == 0 ? ALIGNMENT : lowest;
}

static struct call call_of(const struct device_product *h)
{
    return (struct call){
        .shape = {.m = h->m,
                  .n = h->n,
                  .k = h->k,
                  .type = (int32_t)h->type,
                  .out = (int32_t)h->out,
                  .trans_a = h->trans_a,
                  .trans_b = h->trans_b,
                  .epilogue = CUBLASLT_EPILOGUE_DEFAULT,
                  .adds = h->beta != 0.0f,
                  .untuned = h->untuned,
                  .align_a = alignment_of(h->a),
                  .align_b = alignment_of(h->b),
                  .align_c = alignment_of(h->c)},
        .a = h->a,
        .b = h->b,
        .c = h->c,
    };
}

enum err_code gemm_product(struct gemm *g, const struct device_product *h, struct err *e)
{
    struct call c = call_of(h);
    BUG_ON(h->beta != 0.0f && h->beta != 1.0f);
    if (h->m == 0 || h->n == 0 || (h->k == 0 && c.shape.adds))
        return ERR_OK;
    /* An empty sum is 0. cuBLASLt does not take k = 0. */
    if (h->k > 0)
        return gemm_run(g, &c, e);
    cudaError_t code = cudaMemsetAsync(h->c, 0, (size_t)(h->m * h->n) * device_size(h->out), g->stream);
    return code == cudaSuccess ? ERR_OK : cuda_error(code, "an empty product", e);
}

/* Computes a layer in one product, with the bias and the activation in its epilogue. UNIMPLEMENTED: one product cannot
 * do it. z, the input of the activation, is the epilogue's "aux" output. cuBLASLt's GELU is the tanh form, and its bias
 * has the type of the result. A bias must be 16-byte aligned, because cuBLASLt has chosen algorithms that read 16 bytes
 * of it at once wherever it lay (pytorch/pytorch#194497). */
static enum err_code gemm_run_fused(struct gemm *g, const struct device_linear *h,
                                    const struct device_product *product, struct err *e)
{
    struct call c = call_of(product);
    bool bf16 = h->kept == DEVICE_BF16;
    c.bias = bf16 ? h->typed : h->bias;
    if (!c.bias || alignment_of(c.bias) < 16 || h->type != h->kept ||
        (h->a && (h->kind != DEVICE_GELU_TANH || !bf16 || h->out % 8)))
        return err_set(e, ERR_UNIMPLEMENTED, "not in one product");
    c.shape.epilogue = h->a ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS : CUBLASLT_EPILOGUE_BIAS;
    c.shape.align_bias = alignment_of(c.bias);
    if (h->a) {
        c.c = h->a;
        c.aux = h->z;
        c.shape.align_c = alignment_of(h->a);
        c.shape.align_aux = alignment_of(h->z);
    }
    return gemm_run(g, &c, e);
}

enum err_code gemm_activation_grad(struct gemm *g, const struct device_activation_grad *h, struct err *e)
{
    const struct device_product product = {.type = h->type,
                                           .out = h->kept,
                                           .trans_b = true,
                                           .m = h->rows,
                                           .n = h->in,
                                           .k = h->out,
                                           .a = h->dy,
                                           .b = h->w,
                                           .c = h->dz};
    struct call c = call_of(&product);
    if (h->type != DEVICE_BF16 || h->kept != DEVICE_BF16 || h->kind != DEVICE_GELU_TANH || h->in % 8 ||
        h->rows == 0 || h->in == 0 || h->out == 0)
        return err_set(e, ERR_UNIMPLEMENTED, "not in one product");
    c.shape.epilogue = CUBLASLT_EPILOGUE_DGELU; /* multiplies by the slope of tanh GELU at aux */
    c.aux = (void *)h->z;                       /* DGELU only reads it */
    c.shape.align_aux = alignment_of(h->z);
    return gemm_run(g, &c, e);
}

enum err_code gemm_linear(struct gemm *g, const struct device_linear *h, struct err *e)
{
    struct err why = {0};
    struct device_product product = {.type = h->type,
                                     .out = h->kept,
                                     .trans_b = h->trans_w,
                                     .m = h->rows,
                                     .n = h->out,
                                     .k = h->in,
                                     .a = h->x,
                                     .b = h->w,
                                     .c = h->z};
    if (h->rows == 0 || h->out == 0)
        return ERR_OK;
    /* First in one product; if cuBLASLt cannot do that, a product and then a kernel for bias and activation. */
    if (h->in > 0 && gemm_run_fused(g, h, &product, &why) == ERR_OK)
        return ERR_OK;
    if (why.code != ERR_OK && why.code != ERR_UNIMPLEMENTED) {
        *e = why;
        return e->code;
    }
    if (gemm_product(g, &product, e))
        return e->code;
    cudaError_t code = cuda_bias_activate(g->stream, h->kind, h->type, h->a, h->z, h->bias, h->rows, h->out);
    return code == cudaSuccess ? ERR_OK : cuda_error(code, "a layer's bias", e);
}

/* ---- */

enum err_code gemm_open(struct gemm **out, cudaStream_t stream, struct err *e)
{
    struct gemm *g = xcalloc(1, sizeof(*g));
    const char *tune = getenv("DDP_CUDA_TUNE");
    g->stream = stream;
    if (tune && !strcmp(tune, "1") && gemm_timer_open(&g->timer, e)) {
        gemm_close(g);
        return e->code;
    }
    cublasStatus_t status = cublasLtCreate(&g->lib);
    cudaError_t code = cudaMalloc(&g->workspace, WORKSPACE_BYTES);
    if (status != CUBLAS_STATUS_SUCCESS || code != cudaSuccess) {
        gemm_close(g);
        return code == cudaSuccess ? gemm_fail(e, "opening the library", status)
                                   : cuda_error(code, "allocating the workspace of matrix products", e);
    }
    *out = g;
    return ERR_OK;
}

void gemm_close(struct gemm *g)
{
    if (!g)
        return;
    for (size_t i = 0; i < g->count; i++)
        plan_release(&g->plan[i]);
    if (g->lib)
        (void)cublasLtDestroy(g->lib);
    gemm_timer_close(g->timer);
    (void)cudaFree(g->workspace);
    free(g);
}

size_t gemm_bytes(const struct gemm *g)
{
    return WORKSPACE_BYTES + gemm_timer_bytes(g->timer);
}
