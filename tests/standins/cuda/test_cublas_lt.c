/* Compares the stand-in for cuBLASLt with plain sums in double precision. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <cublasLt.h>

#include "emulate.h"

struct setup {
    cudaDataType_t in, out;
    int m, n, k;
    cublasOperation_t trans_a, trans_b;
    cublasLtEpilogue_t epilogue;
    float beta;
};

static float number_drawn(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return (float)((int)(*state >> 24) - 128) / 64.0f; /* exact in bf16 */
}

static size_t size_of(cudaDataType_t type)
{
    return type == CUDA_R_16BF ? 2 : 4;
}

static void element_put(void *to, cudaDataType_t type, size_t i, float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    if (type == CUDA_R_32F)
        ((float *)to)[i] = x;
    else
        ((uint16_t *)to)[i] = (uint16_t)(bits >> 16);
}

static double element_get(const void *from, cudaDataType_t type, size_t i)
{
    uint32_t bits;
    float x;
    if (type == CUDA_R_32F)
        return (double)((const float *)from)[i];
    bits = (uint32_t)((const uint16_t *)from)[i] << 16;
    memcpy(&x, &bits, sizeof x);
    return (double)x;
}

struct array {
    void *host, *device;
    cudaDataType_t type;
    size_t bytes;
};

static struct array array_new(cudaDataType_t type, size_t count, uint32_t *state)
{
    struct array a = {calloc(count, size_of(type)), NULL, type, count * size_of(type)};
    for (size_t i = 0; i < count; i++)
        element_put(a.host, type, i, number_drawn(state));
    assert_int_equal(cudaMalloc(&a.device, a.bytes), cudaSuccess);
    assert_int_equal(cudaMemcpy(a.device, a.host, a.bytes, cudaMemcpyHostToDevice), cudaSuccess);
    return a;
}

static void array_fetch(struct array *a)
{
    assert_int_equal(cudaMemcpy(a->host, a->device, a->bytes, cudaMemcpyDeviceToHost), cudaSuccess);
}

static void array_free(struct array *a)
{
    cudaFree(a->device);
    free(a->host);
}

static double gelu_of(double x)
{
    return 0.5 * x * (1.0 + tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
}

static double gelu_slope(double x)
{
    double t = tanh(0.7978845608028654 * (x + 0.044715 * x * x * x));
    return 0.5 * (1.0 + t) + 0.5 * x * (1.0 - t * t) * 0.7978845608028654 * (1.0 + 0.134145 * x * x);
}

static cublasLtMatmulDesc_t desc_of(const struct setup *s, const struct array *bias, const struct array *aux)
{
    cublasLtMatmulDesc_t d;
    int64_t ld = s->m;
    assert_int_equal(cublasLtMatmulDescCreate(&d, CUBLAS_COMPUTE_32F, CUDA_R_32F), CUBLAS_STATUS_SUCCESS);
    cublasLtMatmulDescSetAttribute(d, CUBLASLT_MATMUL_DESC_TRANSA, &s->trans_a, sizeof s->trans_a);
    cublasLtMatmulDescSetAttribute(d, CUBLASLT_MATMUL_DESC_TRANSB, &s->trans_b, sizeof s->trans_b);
    cublasLtMatmulDescSetAttribute(d, CUBLASLT_MATMUL_DESC_EPILOGUE, &s->epilogue, sizeof s->epilogue);
    cublasLtMatmulDescSetAttribute(d, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias->device, sizeof bias->device);
    cublasLtMatmulDescSetAttribute(d, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, &aux->device,
                                   sizeof aux->device);
    cublasLtMatmulDescSetAttribute(d, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &ld, sizeof ld);
    return d;
}

static cublasLtMatrixLayout_t layout_create(cudaDataType_t type, int rows, int cols)
{
    cublasLtMatrixLayout_t l;
    assert_int_equal(cublasLtMatrixLayoutCreate(&l, type, (uint64_t)rows, (uint64_t)cols, rows),
                     CUBLAS_STATUS_SUCCESS);
    return l;
}

static void product_compare(const struct setup *s, const struct array *a, const struct array *b,
                            const struct array *before, const struct array *d, const struct array *bias,
                            const struct array *aux)
{
    bool biased = s->epilogue & 4, activated = s->epilogue & 32;
    for (int j = 0; j < s->n; j++)
        for (int i = 0; i < s->m; i++) {
            size_t at = (size_t)j * (size_t)s->m + (size_t)i;
            double sum =
                s->beta != 0.0f ? (double)s->beta * element_get(before->host, before->type, at) : 0.0;
            for (int l = 0; l < s->k; l++)
                sum += element_get(a->host, a->type, (size_t)(s->trans_a ? i * s->k + l : l * s->m + i)) *
                       element_get(b->host, b->type, (size_t)(s->trans_b ? l * s->n + j : j * s->k + l));
            if (biased)
                sum += element_get(bias->host, bias->type, (size_t)i);
            if (s->epilogue == CUBLASLT_EPILOGUE_DGELU)
                sum *= gelu_slope(element_get(aux->host, aux->type, at));
            double room = s->out == CUDA_R_16BF ? 0.005 * fabs(sum) + 1e-5 : 1e-4;
            if (s->epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS)
                assert_true(fabs(element_get(aux->host, aux->type, at) - sum) <= room);
            assert_true(fabs(element_get(d->host, d->type, at) - (activated ? gelu_of(sum) : sum)) <= room);
        }
}

/* The gradient of a bias: the sums of a's rows or of b's columns over k. It is stored, whatever was there before. */
static void bias_gradient_compare(const struct setup *s, const struct array *a, const struct array *b,
                                  const struct array *bias)
{
    bool of_a = s->epilogue == CUBLASLT_EPILOGUE_BGRADA;
    for (int i = 0; i < (of_a ? s->m : s->n); i++) {
        double sum = 0.0;
        for (int l = 0; l < s->k; l++)
            sum += of_a ? element_get(a->host, a->type, (size_t)(s->trans_a ? i * s->k + l : l * s->m + i))
                        : element_get(b->host, b->type, (size_t)(s->trans_b ? l * s->n + i : i * s->k + l));
        assert_true(fabs(element_get(bias->host, bias->type, (size_t)i) - sum) <=
                    (s->out == CUDA_R_16BF ? 0.005 * fabs(sum) + 1e-5 : 1e-4));
    }
}

static void setup_run(const struct setup *s)
{
    uint32_t state = 7;
    size_t mn = (size_t)s->m * (size_t)s->n;
    struct array a = array_new(s->in, (size_t)s->m * (size_t)s->k, &state);
    struct array b = array_new(s->in, (size_t)s->n * (size_t)s->k, &state);
    bool graded = s->epilogue == CUBLASLT_EPILOGUE_BGRADA || s->epilogue == CUBLASLT_EPILOGUE_BGRADB;
    size_t biases = (size_t)(s->epilogue == CUBLASLT_EPILOGUE_BGRADB ? s->n : s->m);
    struct array bias = array_new(s->out, biases, &state), aux = array_new(s->out, mn, &state);
    uint32_t same = state;
    struct array before = array_new(s->out, mn, &state);
    cublasLtHandle_t lt;
    cublasLtMatmulPreference_t pref;
    cublasLtMatmulHeuristicResult_t found[8];
    int count = 0;
    uint64_t room = 1 << 20;
    float one = 1.0f;
    void *workspace;
    assert_int_equal(cudaMalloc(&workspace, room), cudaSuccess);
    assert_int_equal(cublasLtCreate(&lt), CUBLAS_STATUS_SUCCESS);
    cublasLtMatmulPreferenceCreate(&pref);
    cublasLtMatmulPreferenceSetAttribute(pref, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &room, sizeof room);
    /* In place, parts of a sum are rounded to the type of the result. */
    uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE |
                          (s->out == CUDA_R_32F ? CUBLASLT_REDUCTION_SCHEME_INPLACE : 0);
    cublasLtMatmulPreferenceSetAttribute(pref, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &reductions,
                                         sizeof reductions);
    cublasLtMatmulDesc_t desc = desc_of(s, &bias, &aux);
    cublasLtMatrixLayout_t la =
        s->trans_a ? layout_create(s->in, s->k, s->m) : layout_create(s->in, s->m, s->k);
    cublasLtMatrixLayout_t lb =
        s->trans_b ? layout_create(s->in, s->n, s->k) : layout_create(s->in, s->k, s->n);
    cublasLtMatrixLayout_t ld = layout_create(s->out, s->m, s->n);
    assert_int_equal(cublasLtMatmulAlgoGetHeuristic(lt, desc, la, lb, ld, ld, pref, 8, found, &count),
                     CUBLAS_STATUS_SUCCESS);
    assert_true(count >= 1);
    for (int i = 0; i < count; i++) {
        state = same;
        struct array d = array_new(s->out, mn, &state);
        assert_int_equal(cublasLtMatmul(lt, desc, &one, a.device, la, b.device, lb, &s->beta, d.device, ld,
                                        d.device, ld, &found[i].algo, workspace, room, NULL),
                         CUBLAS_STATUS_SUCCESS);
        array_fetch(&d);
        array_fetch(&aux);
        product_compare(s, &a, &b, &before, &d, &bias, &aux);
        if (graded) {
            array_fetch(&bias);
            bias_gradient_compare(s, &a, &b, &bias);
        }
        array_free(&d);
    }
    cublasLtMatrixLayoutDestroy(la);
    cublasLtMatrixLayoutDestroy(lb);
    cublasLtMatrixLayoutDestroy(ld);
    cublasLtMatmulDescDestroy(desc);
    cublasLtMatmulPreferenceDestroy(pref);
    cublasLtDestroy(lt);
    cudaFree(workspace);
    struct array *all[] = {&a, &b, &bias, &aux, &before};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        array_free(all[i]);
    assert_int_equal(emulated_device_bytes(), 0);
}

static void test_products(void **unused)
{
    (void)unused;
    const cudaDataType_t f = CUDA_R_32F, h = CUDA_R_16BF;
    const cublasOperation_t no = CUBLAS_OP_N, yes = CUBLAS_OP_T;
    const struct setup setups[] = {
        {f, f, 5, 3, 7, no, no, CUBLASLT_EPILOGUE_DEFAULT, 0.0f},
        {f, f, 16, 9, 33, yes, no, CUBLASLT_EPILOGUE_DEFAULT, 1.0f},
        {f, f, 16, 9, 33, no, yes, CUBLASLT_EPILOGUE_BIAS, 0.0f},
        {h, f, 24, 8, 40, yes, yes, CUBLASLT_EPILOGUE_DEFAULT, 1.0f},
        {h, h, 24, 8, 40, no, no, CUBLASLT_EPILOGUE_BIAS, 0.0f},
        {h, h, 32, 5, 16, yes, no, CUBLASLT_EPILOGUE_GELU_AUX_BIAS, 0.0f},
        {h, h, 32, 5, 16, yes, no, CUBLASLT_EPILOGUE_DGELU, 0.0f},
        {h, f, 24, 8, 40, no, yes, CUBLASLT_EPILOGUE_BGRADA, 1.0f},
        {h, f, 24, 8, 40, yes, no, CUBLASLT_EPILOGUE_BGRADB, 0.0f},
        {f, f, 9, 16, 33, no, yes, CUBLASLT_EPILOGUE_BGRADB, 1.0f},
        {h, h, 24, 8, 40, yes, yes, CUBLASLT_EPILOGUE_BGRADA, 0.0f},
        {h, h, 1, 1, 1, no, no, CUBLASLT_EPILOGUE_DEFAULT, 0.0f},
    };
    for (unsigned seed = 0; seed < 3; seed++)
        for (size_t i = 0; i < sizeof setups / sizeof *setups; i++) {
            emulated_restart(seed, 0);
            setup_run(&setups[i]);
        }
}

/* The stand-in refuses these calls, as the real library does. */
static void test_refusals(void **unused)
{
    (void)unused;
    emulated_restart(0, 0);
    struct setup s = {CUDA_R_32F, CUDA_R_16BF, 8, 8, 8, CUBLAS_OP_N, CUBLAS_OP_N, CUBLASLT_EPILOGUE_DEFAULT,
                      0.0f};
    struct array none = {0};
    float one = 1.0f, zero = 0.0f, here[64] = {0};
    int count;
    cublasLtHandle_t lt;
    cublasLtMatmulPreference_t pref;
    cublasLtMatmulHeuristicResult_t found;
    cublasLtCreate(&lt);
    cublasLtMatmulPreferenceCreate(&pref);
    cublasLtMatmulDesc_t desc = desc_of(&s, &none, &none);
    cublasLtMatrixLayout_t f = layout_create(CUDA_R_32F, 8, 8), h = layout_create(CUDA_R_16BF, 8, 8),
                           odd = layout_create(CUDA_R_32F, 8, 9);
    assert_int_not_equal(cublasLtMatmulAlgoGetHeuristic(lt, desc, f, f, h, h, pref, 1, &found, &count), 0);
    assert_int_not_equal(cublasLtMatmulAlgoGetHeuristic(lt, desc, f, h, f, f, pref, 1, &found, &count), 0);
    assert_int_not_equal(cublasLtMatmulAlgoGetHeuristic(lt, desc, odd, f, f, f, pref, 1, &found, &count), 0);
    assert_int_equal(cublasLtMatmulAlgoGetHeuristic(lt, desc, f, f, f, f, pref, 1, &found, &count), 0);
    /* a, b and c are in host memory */
    assert_int_not_equal(
        cublasLtMatmul(lt, desc, &one, here, f, here, f, &zero, here, f, here, f, &found.algo, NULL, 0, NULL),
        0);
    cublasLtMatrixLayout_t bad;
    assert_int_not_equal(cublasLtMatrixLayoutCreate(&bad, CUDA_R_32F, 8, 8, 7), 0);
    cublasLtMatrixLayoutDestroy(f);
    cublasLtMatrixLayoutDestroy(h);
    cublasLtMatrixLayoutDestroy(odd);
    cublasLtMatmulDescDestroy(desc);
    cublasLtMatmulPreferenceDestroy(pref);
    cublasLtDestroy(lt);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_products),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
