#include "tests/unit/trainer/member/sync/plain_device.h"

#include <stdlib.h>
#include <string.h>

#include "trainer/member/sync/squares.h"

void plain_scale(struct device *d, float *x, size_t n, float by)
{
    (void)d;
    for (size_t i = 0; i < n; i++)
        x[i] *= by;
}

void plain_add(struct device *d, float *y, const float *x, size_t n)
{
    (void)d;
    for (size_t i = 0; i < n; i++)
        y[i] += x[i];
}

void plain_copy(struct device *d, void *to, const void *from, size_t bytes)
{
    (void)d;
    memcpy(to, from, bytes);
}

void plain_zero(struct device *d, void *to, size_t bytes)
{
    (void)d;
    memset(to, 0, bytes);
}

enum err_code plain_wait(struct device *d, struct err *e)
{
    (void)d;
    (void)e;
    return ERR_OK;
}

static const struct device_ops plain_ops = {.name = "plain",
                                            .scale = plain_scale,
                                            .add = plain_add,
                                            .copy = plain_copy,
                                            .zero = plain_zero,
                                            .wait = plain_wait};
struct device plain_device = {.ops = &plain_ops, .host = true};

static enum err_code far_alloc(struct device *d, size_t bytes, void **out, struct err *e)
{
    (void)d;
    (void)e;
    *out = calloc(1, bytes);
    return ERR_OK;
}

static void far_free(struct device *d, void *p)
{
    (void)d;
    free(p);
}

static void far_sum_squares(struct device *d, const float *x, size_t n, double *out)
{
    (void)d;
    *out = squares_sum(x, n);
}

static const struct device_ops far_ops = {.name = "far",
                                          .alloc = far_alloc,
                                          .free = far_free,
                                          .upload = plain_copy,
                                          .download = plain_copy,
                                          .sum_squares = far_sum_squares,
                                          .scale = plain_scale,
                                          .add = plain_add,
                                          .copy = plain_copy,
                                          .zero = plain_zero,
                                          .wait = plain_wait};
struct device far_device = {.ops = &far_ops};
