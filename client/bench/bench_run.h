#ifndef DDP_CLIENT_BENCH_BENCH_RUN_H
#define DDP_CLIENT_BENCH_BENCH_RUN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"

/* How fast this machine trains: runs ddp-trainer on random tokens for some seconds. */

/* A GPT of one of the sizes that `ddpctl bench` measures. */
struct bench_size {
    const char *name; /* as in --sizes */
    int layers, heads, width, context, vocab;
    int rows; /* sequences a step */
    /* The shares of the matrix rate that a CPU reaches which has nothing else to do; the slowest of those that were measured
     * (tests/bench/gpt), with a tenth taken off. */
    double usual_fp32, usual_bf16;
};
extern const struct bench_size bench_sizes[]; /* ended by a name that is NULL */
const struct bench_size *bench_size_find(const char *name, size_t len);

struct bench_result {
    char device[32]; /* "cpu:avx2", "cuda:0" */
    int threads;
    int64_t parameters, steps; /* steps that were measured */
    /* Medians over the steps. */
    double ms_per_step, tokens_per_s;
    double gflops; /* 1e9 floating-point operations a second */
    double share;  /* gflops as a share of the rate of one large matrix product, measured at the start */
};

/* Trains for `seconds` after the first step, and for at least BENCH_STEPS steps. The precision is "fp32" or "bf16".
 * CANCELLED: the user interrupted it (client/interrupts.h). */
#define BENCH_STEPS 3
MUST_CHECK enum err_code bench_run(const struct bench_size *size, const char *precision, const char *device,
                                   int64_t seconds, struct bench_result *out, struct err *e);

/* Takes the trainer's line about sizes (in its log) and its reports (a JSON object a line). For tests, and for bench_run. */
struct bench_steps {
    double *values[4]; /* of each step: ms_per_step, tokens_per_s, gflops, peak_share */
    size_t count, cap[4];
    int64_t parameters;
};
MUST_CHECK enum err_code bench_steps_add(struct bench_steps *s, const char *line, size_t len, struct err *e);
void bench_steps_result(const struct bench_steps *s, struct bench_result *out);
void bench_steps_release(struct bench_steps *s);
void bench_device_read(const char *log, struct bench_result *out);

#endif
