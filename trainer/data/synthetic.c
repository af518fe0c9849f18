#include "trainer/data/synthetic.h"

#include <stdlib.h>

#include "base/mem.h"
#include "base/random.h"

#define TEACHER_SEED 2048
#define SAMPLE_SEED 2049
#define NOISE 0.05f

struct synthetic {
    struct dataset base;
    int64_t first;
    float *weight; /* (out,in) */
    float *bias;   /* (out) */
};

static const struct synthetic *synthetic_of(const struct dataset *d)
{
    return (const struct synthetic *)(const void *)d;
}

static void synthetic_free(struct dataset *d)
{
    struct synthetic *s = (struct synthetic *)(void *)d;
    free(s->weight);
    free(s->bias);
    free(s);
}

static float teacher_output(const struct synthetic *s, const float *x, int64_t j)
{
    float sum = s->bias[j];
    for (int64_t k = 0; k < s->base.in; k++)
        sum += s->weight[j * s->base.in + k] * x[k];
    return sum;
}

static enum err_code synthetic_gather(const struct dataset *d, const int64_t *index, int64_t rows,
                                      const struct dataset_rows *out, struct err *e)
{
    const struct synthetic *s = synthetic_of(d);
    (void)e;
    for (int64_t i = 0; i < rows; i++) {
        struct random r = random_stream(SAMPLE_SEED, (uint64_t)(s->first + index[i]));
        float *row = out->x + i * d->in;
        for (int64_t k = 0; k < d->in; k++)
            row[k] = random_float(&r);
        for (int64_t j = 0; j < d->out; j++)
            out->y[i * d->out + j] = teacher_output(s, row, j) + NOISE * (2.0f * random_float(&r) - 1.0f);
    }
    return ERR_OK;
}

static const struct dataset_ops synthetic_ops = {.free = synthetic_free, .gather = synthetic_gather};

struct dataset *synthetic_open(int64_t count, int64_t in, int64_t width, int64_t first)
{
    struct synthetic *s = xcalloc(1, sizeof(*s));
    s->base =
        (struct dataset){.ops = &synthetic_ops, .count = count, .in = in, .out = width, .loss = LOSS_MSE};
    s->first = first;
    s->weight = xcalloc((size_t)(in * width), sizeof(float));
    s->bias = xcalloc((size_t)width, sizeof(float));
    struct random r = random_stream(TEACHER_SEED, 0);
    for (int64_t i = 0; i < in * width; i++)
        s->weight[i] = 2.0f * random_float(&r) - 1.0f;
    for (int64_t j = 0; j < width; j++)
        s->bias[j] = 2.0f * random_float(&r) - 1.0f;
    return &s->base;
}
