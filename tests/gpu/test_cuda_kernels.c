/* Tests how the device launches its kernels: the size of grids, and what depends on the kind of GPU. Runs on the emulated
 * GPU, which has 132 multiprocessors. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "tests/standins/cuda/emulate.h"
#include "trainer/device/cuda/cuda.h"

static struct device *open_gpu(void)
{
    struct device *d = NULL;
    struct err e = {0};
    emulated_restart(0, 0);
    if (cuda_open(&d, &e))
        fail_msg("%s", e.msg);
    return d;
}

static void *gpu_memory(struct device *d, int64_t floats)
{
    void *p = NULL;
    struct err e = {0};
    assert_int_equal(d->ops->alloc(d, (size_t)floats * sizeof(float), &p, &e), ERR_OK);
    return p;
}

static void close_gpu(struct device *d)
{
    struct err e = {0};
    if (d->ops->wait(d, &e))
        fail_msg("%s", e.msg);
    device_close(d);
}

/* With fewer blocks some multiprocessors are idle; with a few more than fit, most of them are idle at the end. */
static void the_gradient_of_a_norm_fills_every_multiprocessor(void **state)
{
    static const struct {
        int64_t width;
        const char *kernel;
    } cases[] = {{48, "norm_grad_kernel"},
                 {768, "norm_grad_kernel"},
                 {1600, "norm_grad_kernel"},
                 {3000, "norm_grad_kernel"},
                 {5000, "norm_grad_wide_kernel"}};
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct device *d = open_gpu();
        int64_t tokens = 1100, width = cases[i].width, n = tokens * width;
        struct device_norm_grad h = {.n = {1, tokens, width},
                                     .dy = gpu_memory(d, n),
                                     .x = gpu_memory(d, n),
                                     .stats = gpu_memory(d, 2 * tokens),
                                     .gain = gpu_memory(d, width),
                                     .set = true,
                                     .dx = gpu_memory(d, n),
                                     .dgain = gpu_memory(d, width),
                                     .dshift = gpu_memory(d, width)};
        d->ops->norm_grad(d, &h);
        close_gpu(d);
        unsigned grid = emulated_grid(cases[i].kernel);
        assert_true(grid >= 132);
        assert_int_equal(grid % 132, 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_gradient_of_a_norm_fills_every_multiprocessor),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
