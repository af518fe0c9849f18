/* Compares the plugin's attention kernels with the CPU device: the same dropout masks, the same sums up to rounding,
 * nothing written outside of the outputs, and the same bits in a second run and from a recorded graph. Linked with
 * CUDA for machines with a GPU, and with the emulated CUDA for all others. Exit 77: no GPU. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bf16.h"
#include "trainer/device/cuda/attention.h"
#include "trainer/device/cuda/kernels/attention_plain.h"

#define GUARD 64 /* number of elements behind each output; the kernels must not change them */

static const struct shape {
    int64_t rows, heads, context, size;
    float dropout;
} shapes[] = {
    {1, 1, 1, 8, 0.0f},
    {2, 3, 7, 16, 0.0f},
    {1, 2, 64, 32, 0.0f},
    {2, 2, 129, 64, 0.0f},
    {6, 1, 8, 16, 0.0f},
    {1, 1, 70, 80, 0.0f},
    {1, 1, 65, 128, 0.0f},
    {2, 2, 129, 16, 0.2f},
    {1, 2, 100, 64, 0.5f},
    {1, 1, 75, 96, 0.1f},
    {1, 2, 40, 12, 0.1f},
    {1, 1, 33, 200, 0.0f},
    {1, 1, 5, 256, 0.3f},
    {3, 1, 17, 5, 0.0f},
    {1, 1, 193, 24, 0.3f},
    /* contexts for which cuDNN is used in all versions but the refused ones */
    {2, 2, 128, 64, 0.0f},
    {1, 1, 256, 128, 0.0f},
};

struct arrays {
    float *qkv, *d_o, *o, *lse, *dqkv; /* float on the host, also where the device has bf16 */
};
struct problem {
    struct device_attention h;
    int64_t tokens, width, lines;
    enum device_type type;
    int64_t *sample; /* on the host */
};

static int failures;

static uint32_t random_state = 1;
static float random_float(void)
{
    random_state = random_state * 1664525u + 1013904223u;
    return (float)(random_state >> 8) / 8388608.0f - 1.0f;
}

static void must(bool ok, const char *what)
{
    if (ok)
        return;
    (void)fprintf(stderr, "attention: %s\n", what);
    exit(1);
}

static float *new_floats(int64_t n)
{
    float *p = aligned_alloc(64, ((size_t)n * sizeof(float) + 63) / 64 * 64);
    must(p, "no memory");
    memset(p, 0, (size_t)n * sizeof(float));
    return p;
}

/* ---- the reference */

static void compute_on_cpu(const struct problem *p, struct arrays *a)
{
    struct device *d = NULL;
    struct err e;
    must(!device_open(&d, DEVICE_CPU, 0, 1, 1, &e), "no CPU device");
    struct device_attention h = p->h;
    struct device_sizes sizes = {.n = h.n, .heads = h.heads, .type = DEVICE_F32};
    must(!d->ops->reserve(d, &sizes, &e), e.msg);
    h.kept = DEVICE_F32;
    h.qkv = a->qkv;
    h.o = a->o;
    h.lse = a->lse;
    h.dropout.sample = p->sample;
    d->ops->attention(d, &h);
    d->ops->attention_grad(d, &h, a->d_o, a->dqkv);
    must(!d->ops->wait(d, &e), e.msg);
    device_close(d);
}

/* ---- the GPU */

static void *to_gpu(const float *from, int64_t n, enum device_type type)
{
    size_t size = device_size(type);
    uint8_t *staged = malloc((size_t)(n + GUARD) * size);
    void *p = NULL;
    must(staged && cudaMalloc(&p, (size_t)(n + GUARD) * size) == cudaSuccess, "no GPU memory");
    memset(staged, 0xff, (size_t)(n + GUARD) * size); /* all bits set are a NaN */
    for (int64_t i = 0; from && i < n; i++)
        if (type == DEVICE_BF16)
            ((uint16_t *)(void *)staged)[i] = bf16_from_float(from[i]);
        else
            ((float *)(void *)staged)[i] = from[i];
    must(cudaMemcpy(p, staged, (size_t)(n + GUARD) * size, cudaMemcpyHostToDevice) == cudaSuccess, "copy");
    free(staged);
    return p;
}

static void from_gpu(float *to, const void *from, int64_t n, enum device_type type, const char *what)
{
    size_t size = device_size(type);
    uint8_t *staged = malloc((size_t)(n + GUARD) * size);
    must(staged &&
             cudaMemcpy(staged, from, (size_t)(n + GUARD) * size, cudaMemcpyDeviceToHost) == cudaSuccess,
         "copy back");
    for (int64_t i = 0; i < n; i++)
        to[i] = type == DEVICE_BF16 ? float_from_bf16(((uint16_t *)(void *)staged)[i])
                                    : ((float *)(void *)staged)[i];
    for (size_t i = (size_t)n * size; i < (size_t)(n + GUARD) * size; i++)
        if (staged[i] != 0xff) {
            (void)printf("  %s: written behind its end\n", what);
            failures++;
            break;
        }
    free(staged);
}

enum way { WAY_CHOSEN, WAY_RECORDED, WAY_PLAIN };
static cudaStream_t stream;

/* attention_reserve was not called for this shape, so it is recorded without cuDNN: cuDNN cannot load its kernels
 * during a capture. */
static void check_unprepared_shape(const struct device_attention *h)
{
    struct err e;
    cudaGraph_t graph;
    struct attention *fresh = NULL;
    must(!attention_open(&fresh, stream, &e), "open");
    must(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal) == cudaSuccess, "no capture");
    must(!attention_forward(fresh, h, &e), e.msg);
    must(cudaStreamEndCapture(stream, &graph) == cudaSuccess, "the capture failed");
    must(strncmp(attention_path(fresh), "cuDNN", 5) != 0, "cuDNN prepared itself while work was recorded");
    (void)cudaGraphDestroy(graph);
    attention_free(fresh);
}

/* Reserves memory, records both passes in a graph and runs it twice. */
static void run_recorded(struct attention *a, const struct device_attention *h, const void *d_o, void *dqkv)
{
    struct err e;
    cudaGraph_t graph;
    cudaGraphExec_t run;
    struct device_sizes sizes = {.n = h->n, .heads = h->heads, .type = h->kept};
    check_unprepared_shape(h);
    must(!attention_reserve(a, &sizes, &e), e.msg);
    attention_settle(a);
    must(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal) == cudaSuccess, "no capture");
    must(!attention_forward(a, h, &e) && !attention_backward(a, h, d_o, dqkv, &e), e.msg);
    must(cudaStreamEndCapture(stream, &graph) == cudaSuccess, "the capture failed");
    must(cudaGraphInstantiate(&run, graph, 0) == cudaSuccess, "no graph");
    for (int i = 0; i < 2; i++)
        must(cudaGraphLaunch(run, stream) == cudaSuccess, "no launch");
    must(cudaStreamSynchronize(stream) == cudaSuccess, "the graph failed");
    (void)cudaGraphExecDestroy(run);
    (void)cudaGraphDestroy(graph);
}

static void compute_on_gpu(const struct problem *p, enum way way, const struct arrays *in, struct arrays *out,
                           struct attention *a)
{
    struct device_attention h = p->h;
    struct err e;
    int64_t *sample = NULL;
    size_t bytes = (size_t)h.n.rows * sizeof(*sample);
    must(cudaMalloc((void **)&sample, bytes) == cudaSuccess, "no GPU memory");
    must(cudaMemcpy(sample, p->sample, bytes, cudaMemcpyHostToDevice) == cudaSuccess, "copy");
    void *qkv = to_gpu(in->qkv, p->tokens * 3 * p->width, p->type);
    void *d_o = to_gpu(in->d_o, p->tokens * p->width, p->type);
    void *dqkv = to_gpu(NULL, p->tokens * 3 * p->width, p->type);
    float *delta = to_gpu(NULL, p->lines, DEVICE_F32);
    h.kept = p->type;
    h.dropout.sample = sample;
    h.qkv = qkv;
    h.o = to_gpu(NULL, p->tokens * p->width, p->type);
    h.lse = to_gpu(NULL, p->lines, DEVICE_F32);
    if (way == WAY_CHOSEN) {
        must(!attention_forward(a, &h, &e), e.msg);
        must(!attention_backward(a, &h, d_o, dqkv, &e), e.msg);
    } else if (way == WAY_RECORDED) {
        run_recorded(a, &h, d_o, dqkv);
    } else {
        must(attention_plain_forward(stream, &h) == cudaSuccess, "plain forward");
        must(attention_plain_backward(stream, &h, d_o, dqkv, delta) == cudaSuccess, "plain backward");
    }
    must(cudaDeviceSynchronize() == cudaSuccess, "the kernels failed");
    from_gpu(out->o, h.o, p->tokens * p->width, p->type, "o");
    from_gpu(out->lse, h.lse, p->lines, DEVICE_F32, "lse");
    from_gpu(out->dqkv, dqkv, p->tokens * 3 * p->width, p->type, "dqkv");
    void *all[] = {sample, qkv, d_o, dqkv, delta, h.o, h.lse};
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        (void)cudaFree(all[i]);
}

/* ---- comparing */

/* Returns |x - y| / |y| (Euclidean norms) over columns first to first + n - 1; ld: elements of a row. */
static double relative_error(const float *x, const float *y, int64_t rows, int64_t ld, int64_t first,
                             int64_t n)
{
    double error = 0.0, whole = 0.0;
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = first; j < first + n; j++) {
            double d = (double)x[i * ld + j] - y[i * ld + j];
            error += d * d;
            whole += (double)y[i * ld + j] * y[i * ld + j];
        }
    return sqrt(error / (whole + 1e-30));
}

/* With a context of one key, queries and keys have no gradient. Their errors are then relative to the gradients of
 * the values, because the reference is 0. */
static void compare_arrays(const char *what, const struct problem *p, const struct arrays *x,
                           const struct arrays *y)
{
    int64_t w = p->width, t = p->tokens;
    double limit = p->type == DEVICE_BF16 ? 8e-3 : 2e-5;
    double error[] = {relative_error(x->o, y->o, t, w, 0, w),
                      relative_error(x->lse, y->lse, p->lines, 1, 0, 1),
                      relative_error(x->dqkv, y->dqkv, t, 3 * w, 0, 2 * w),
                      relative_error(x->dqkv, y->dqkv, t, 3 * w, 2 * w, w)};
    bool ok = true;
    if (p->h.n.context == 1)
        error[2] = relative_error(x->dqkv, y->dqkv, t, 3 * w, 0, 3 * w);
    for (size_t i = 0; i < 4; i++)
        ok = ok && error[i] <= (i == 2 ? 2.5 * limit : limit);
    (void)printf("%s %-5s %s  o %.1e  lse %.1e  dq,dk %.1e  dv %.1e\n", ok ? "ok  " : "FAIL",
                 p->type == DEVICE_BF16 ? "bf16" : "float", what, error[0], error[1], error[2], error[3]);
    failures += !ok;
}

static void fill_random(float *x, int64_t n, enum device_type type)
{
    for (int64_t i = 0; i < n; i++) {
        x[i] = random_float() * 2.0f;
        if (type == DEVICE_BF16)
            x[i] = float_from_bf16(bf16_from_float(x[i]));
    }
}

static struct arrays arrays_of(const struct problem *p)
{
    return (struct arrays){new_floats(p->tokens * 3 * p->width), new_floats(p->tokens * p->width),
                           new_floats(p->tokens * p->width), new_floats(p->lines),
                           new_floats(p->tokens * 3 * p->width)};
}

static void arrays_release(struct arrays *a)
{
    free(a->qkv), free(a->d_o), free(a->o), free(a->lse), free(a->dqkv);
}

static bool arrays_equal(const struct problem *p, const struct arrays *x, const struct arrays *y)
{
    size_t w = (size_t)(p->tokens * p->width) * sizeof(float);
    return memcmp(x->o, y->o, w) == 0 && memcmp(x->dqkv, y->dqkv, 3 * w) == 0 &&
           memcmp(x->lse, y->lse, (size_t)p->lines * sizeof(float)) == 0;
}

static void try_shape(const struct shape *s, enum device_type type, struct attention *a)
{
    struct problem p = {.tokens = s->rows * s->context, .width = s->heads * s->size, .type = type};
    p.lines = s->rows * s->heads * s->context;
    p.h = (struct device_attention){.n = {s->rows, s->context, p.width}, .heads = s->heads};
    p.h.dropout.p = s->dropout;
    p.h.dropout.key = 0x0123456789abcdefu;
    p.sample = calloc((size_t)s->rows, sizeof(*p.sample));
    must(p.sample, "no memory");
    for (int64_t i = 0; i < s->rows; i++)
        p.sample[i] = 5000000000 + i * 77;
    struct arrays want = arrays_of(&p), got = arrays_of(&p), again = arrays_of(&p);
    fill_random(want.qkv, p.tokens * 3 * p.width, type);
    fill_random(want.d_o, p.tokens * p.width, type);
    compute_on_cpu(&p, &want);
    char what[96];
    for (int i = 0; i < 2; i++) {
        enum way way = i ? WAY_PLAIN : WAY_CHOSEN;
        compute_on_gpu(&p, way, &want, &got, a);
        const char *path = way == WAY_PLAIN ? "plain" : attention_path(a);
        (void)snprintf(what, sizeof(what), "(%lld,%lld,%lld,%lld) p %.1f %-12s", (long long)s->rows,
                       (long long)s->heads, (long long)s->context, (long long)s->size, (double)s->dropout,
                       path);
        compare_arrays(what, &p, &got, &want);
        if (way == WAY_CHOSEN && strcmp(path, "plain") == 0)
            break;
    }
    compute_on_gpu(&p, WAY_CHOSEN, &want, &got, a);
    compute_on_gpu(&p, s->dropout > 0.0f ? WAY_CHOSEN : WAY_RECORDED, &want, &again, a);
    if (!arrays_equal(&p, &got, &again)) {
        (void)printf("FAIL %s: other bits the second time\n", what);
        failures++;
    }
    arrays_release(&want);
    arrays_release(&got);
    arrays_release(&again);
    free(p.sample);
}

/* An empty batch does nothing and is not an error. */
static void try_nothing(struct attention *a)
{
    struct err e = {0};
    for (int bf16 = 0; bf16 < 2; bf16++) {
        struct device_attention h = {.n = {0, 64, 64}, .heads = 2, .kept = bf16 ? DEVICE_BF16 : DEVICE_F32};
        must(!attention_forward(a, &h, &e) && !attention_backward(a, &h, NULL, NULL, &e), e.msg);
        must(cudaGetLastError() == cudaSuccess, "no rows left an error");
    }
}

/* cuDNN is never used for a backward pass with dropout, so no workspace is reserved for it. */
static void try_dropout_room(void)
{
    /* a context for which cuDNN is used */
    struct device_sizes sizes = {.n = {4, 128, 64}, .heads = 2, .type = DEVICE_BF16, .dropout = true};
    const char *most =
        getenv("DDP_CUDNN_WORKSPACE_MB"); /* 0: one row at a time, which needs almost no workspace */
    size_t own = 4 * 2 * 128 * sizeof(float), held[2];
    struct err e;
    for (int i = 0; i < 2; i++, sizes.dropout = false) {
        struct attention *a = NULL;
        must(!attention_open(&a, stream, &e) && !attention_reserve(a, &sizes, &e), e.msg);
        attention_settle(a);
        held[i] = attention_bytes(a);
        if (i == 1 && strncmp(attention_library(a), "cuDNN 9", 7) == 0 && !(most && strcmp(most, "0") == 0))
            must(held[1] > held[0], "with dropout as much is reserved as without");
        attention_free(a);
    }
    must(held[0] >= own, "the sums have no room");
}

int main(void)
{
    int count = 0;
    struct err e;
    if (cudaGetDeviceCount(&count) != cudaSuccess || count == 0) {
        (void)printf("skipped: no GPU\n");
        return 77;
    }
    struct attention *a = NULL;
    must(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess, "no stream");
    must(!attention_open(&a, stream, &e), "open");
    (void)printf("%s\n", attention_library(a));
    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
        try_shape(&shapes[i], DEVICE_F32, a);
        try_shape(&shapes[i], DEVICE_BF16, a);
    }
    try_nothing(a);
    try_dropout_room();
    attention_free(a);
    (void)cudaStreamDestroy(stream);
    (void)printf("%d failed\n", failures);
    return failures != 0;
}
