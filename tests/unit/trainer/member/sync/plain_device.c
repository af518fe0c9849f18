#include "tests/unit/trainer/member/sync/plain_device.h"

#include <string.h>

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
