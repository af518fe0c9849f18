/* Measures attention on this GPU by cuDNN, by our own fast kernels and by the plain ones. Prints a line for each
 * shape and implementation: milliseconds and TFLOP/s of the forward and the backward pass. Only half of the scores
 * count, because attention is causal, and the backward pass counts as 2.5 times the work of the forward pass. Exit
 * 77: no GPU. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "trainer/device/cuda/attention.h"
#include "trainer/device/cuda/kernels/attention_plain.h"

static const struct shape {
    int64_t rows, heads, context, size;
    float dropout;
} shapes[] = {
    {32, 12, 1024, 64, 0.0f}, {32, 12, 1024, 64, 0.1f}, {16, 16, 1024, 64, 0.0f}, {8, 20, 1024, 64, 0.0f},
    {8, 25, 1024, 64, 0.0f},  {4, 16, 2048, 128, 0.0f}, {4, 16, 2048, 80, 0.0f},  {2, 16, 4096, 128, 0.0f},
};

enum { WARM = 3, TIMES = 10 };

static cudaStream_t stream;

static void must(bool ok, const char *what)
{
    if (ok)
        return;
    (void)fprintf(stderr, "attention_bench: %s\n", what);
    exit(1);
}

/* Returns n bf16 numbers on the GPU, of both signs, from 0.5 to 1. */
static void *random_array(int64_t n)
{
    uint16_t *host = malloc((size_t)n * 2);
    void *p = NULL;
    must(host && cudaMalloc(&p, (size_t)n * 2) == cudaSuccess, "no memory");
    for (int64_t i = 0; i < n; i++)
        host[i] = (uint16_t)(0x3f00 + (uint64_t)i * 2654435761u % 128 + (uint64_t)i * 40503u % 2 * 0x8000u);
    must(cudaMemcpy(p, host, (size_t)n * 2, cudaMemcpyHostToDevice) == cudaSuccess, "copy");
    free(host);
    return p;
}

struct work {
    struct attention *a; /* NULL: the plain kernels */
    struct device_attention h;
    void *d_o, *dqkv;
    float *delta;
};

static void run_once(const struct work *w, bool backward)
{
    struct err e;
    if (!w->a) {
        must((backward ? attention_plain_backward(stream, &w->h, w->d_o, w->dqkv, w->delta)
                       : attention_plain_forward(stream, &w->h)) == cudaSuccess,
             "the plain kernels");
        return;
    }
    must(!(backward ? attention_backward(w->a, &w->h, w->d_o, w->dqkv, &e)
                    : attention_forward(w->a, &w->h, &e)),
         e.msg);
}

static double measure_ms(const struct work *w, bool backward)
{
    cudaEvent_t from, to;
    float ms = 0.0f;
    must(cudaEventCreate(&from) == cudaSuccess && cudaEventCreate(&to) == cudaSuccess, "event");
    for (int i = 0; i < WARM; i++)
        run_once(w, backward);
    must(cudaEventRecord(from, stream) == cudaSuccess, "event");
    for (int i = 0; i < TIMES; i++)
        run_once(w, backward);
    must(cudaEventRecord(to, stream) == cudaSuccess && cudaEventSynchronize(to) == cudaSuccess,
         "the kernels failed");
    must(cudaEventElapsedTime(&ms, from, to) == cudaSuccess, "event");
    (void)cudaEventDestroy(from);
    (void)cudaEventDestroy(to);
    return (double)ms / TIMES;
}

static void print_measurement(struct work *w, const struct shape *s, const char *way)
{
    double forward = measure_ms(w, false), backward = measure_ms(w, true);
    double work = 2.0 * (double)(s->rows * s->heads * s->context * s->context * s->size); /* 4 n^2 d / 2 */
    (void)printf("%3lld %3lld %5lld %4lld  p %.1f  %-14s %8.3f ms %6.1f  %8.3f ms %6.1f\n",
                 (long long)s->rows, (long long)s->heads, (long long)s->context, (long long)s->size,
                 (double)s->dropout, w->a ? attention_path(w->a) : way, forward, work / forward / 1e9,
                 backward, 2.5 * work / backward / 1e9);
}

static void try_shape(const struct shape *s, struct attention *chosen, struct attention *own)
{
    int64_t width = s->heads * s->size, tokens = s->rows * s->context;
    struct work w = {.h = {.n = {s->rows, s->context, width}, .heads = s->heads, .kept = DEVICE_BF16}};
    int64_t *sample = NULL;
    must(cudaMalloc((void **)&sample, (size_t)s->rows * sizeof(*sample)) == cudaSuccess &&
             cudaMemset(sample, 0, (size_t)s->rows * sizeof(*sample)) == cudaSuccess,
         "no memory");
    w.h.dropout = (struct device_dropout){.p = s->dropout, .key = 7, .sample = sample};
    w.h.qkv = random_array(tokens * 3 * width);
    w.h.o = random_array(tokens * width);
    w.h.lse = random_array(2 * s->heads * tokens);
    w.d_o = random_array(tokens * width);
    w.dqkv = random_array(tokens * 3 * width);
    w.delta = random_array(2 * s->heads * tokens);
    w.a = chosen;
    print_measurement(&w, s, "");
    w.a = own;
    if (s->dropout <= 0.0f)
        print_measurement(&w, s, "");
    w.a = NULL;
    print_measurement(&w, s, "plain");
    void *all[] = {sample, (void *)w.h.qkv, w.h.o, w.h.lse, w.d_o, w.dqkv, w.delta};
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        (void)cudaFree(all[i]);
}

int main(void)
{
    int count = 0;
    struct err e;
    struct attention *chosen = NULL, *own = NULL;
    if (cudaGetDeviceCount(&count) != cudaSuccess || count == 0) {
        (void)printf("skipped: no GPU\n");
        return 77;
    }
    must(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess, "stream");
    must(!attention_open(&chosen, stream, &e), "open");
    must(!setenv("DDP_CUDNN", "0", 1) && !attention_open(&own, stream, &e), "open");
    (void)printf("%s\n", attention_library(chosen));
    (void)printf("rows heads context size  dropout  way            forward  TFLOP/s   backward  TFLOP/s\n");
    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++)
        try_shape(&shapes[i], chosen, own);
    attention_free(chosen);
    attention_free(own);
    (void)cudaStreamDestroy(stream);
    return 0;
}
