#include "layers.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/random.h"

const struct cpu_set *sets;
int set_count;
const int64_t contexts[CONTEXTS] = {1, 7, 64, 129};
const int64_t samples[3] = {4, ((int64_t)1 << 40) + 5, 77};

float *noise_array(size_t n, float scale, uint64_t seed)
{
    float *x = xcalloc(n + 16, sizeof(float));
    struct random r = random_stream(seed, n);
    for (size_t i = 0; i < n; i++)
        x[i] = scale * (2.0f * random_float(&r) - 1.0f);
    return x;
}

struct device *open_device(int set)
{
    struct device *d = NULL;
    struct err e = {0};
    assert_int_equal(device_open(&d, DEVICE_CPU, 0, 1, 0, &e), ERR_OK);
    cpu_of(d)->set = sets[set];
    return d;
}

void close_device(struct device *d)
{
    struct err e = {0};
    assert_int_equal(d->ops->wait(d, &e), ERR_OK);
    device_close(d);
}

void same_as_first(float **first, const float *x, size_t n)
{
    if (!*first) {
        *first = xcalloc(n, sizeof(float));
        memcpy(*first, x, n * sizeof(float));
    }
    assert_memory_equal(*first, x, n * sizeof(float));
}

void all_near(const float *got, const double *want, size_t n, double tolerance, const char *what)
{
    double most = 0.0;
    for (size_t i = 0; i < n; i++)
        most = fmax(most, fabs(want[i]));
    for (size_t i = 0; i < n; i++)
        if (!(fabs((double)got[i] - want[i]) <= tolerance * (most + 1e-3)))
            fail_msg("%s[%zu] = %.9g, should be %.9g", what, i, (double)got[i], want[i]);
}

float float_of_bf16(uint16_t half)
{
    uint32_t bits = (uint32_t)half << 16;
    float x;
    memcpy(&x, &bits, sizeof(x));
    return x;
}

double *array_widened(const float *x, size_t n)
{
    double *w = xcalloc(n, sizeof(double));
    for (size_t i = 0; i < n; i++)
        w[i] = (double)x[i];
    return w;
}

bool multiplies_bf16(void)
{
    struct device *d = open_device(set_count - 1);
    const bool half = cpu_of(d)->half != NULL;
    close_device(d);
    return half;
}
