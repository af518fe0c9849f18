/* Measures the two rates that limit all operations of a device: bytes copied per second (read and written), and bf16
 * matrix products of random numbers.
 *
 *     gpu_rates [--quick]
 *
 * Exit 77: no GPU. */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "trainer/device/device.h"

enum { COPIES = 20, ROUNDS = 5 };

/* Sets *rate to the bytes per second of the fastest round. */
static enum err_code copies_measure(struct device *d, size_t bytes, double *rate, struct err *e)
{
    void *from = NULL, *to = NULL;
    *rate = 0.0;
    if (device_alloc(d, bytes, "what is copied", &from, e) || device_alloc(d, bytes, "the copy", &to, e))
        return e->code;
    for (int round = 0; round <= ROUNDS; round++) {
        int64_t began = clock_mono_ns();
        for (int i = 0; i < COPIES; i++)
            d->ops->copy(d, to, from, bytes);
        if (d->ops->wait(d, e))
            return e->code;
        double now = 2.0 * (double)bytes * COPIES / ((double)(clock_mono_ns() - began) * 1e-9);
        if (round > 0 && now > *rate) /* the first round warms up */
            *rate = now;
    }
    d->ops->free(d, from);
    d->ops->free(d, to);
    return ERR_OK;
}

int main(int argc, char **argv)
{
    struct device *d = NULL;
    struct err e = {0};
    double copied = 0.0, flops = 0.0;
    bool quick = argc > 1 && strcmp(argv[1], "--quick") == 0;
    enum err_code code = device_open(&d, DEVICE_CUDA, 0, 1, 1, &e);
    if (code) {
        (void)fprintf(stderr, "gpu_rates: %s\n", e.msg);
        return code == ERR_UNAVAILABLE ? 77 : 1;
    }
    (void)printf("device: %s\n", d->name);
    if (copies_measure(d, quick ? (size_t)1 << 20 : (size_t)1 << 30, &copied, &e) ||
        device_peak(d, DEVICE_BF16, &flops, &e)) {
        (void)fprintf(stderr, "gpu_rates: %s\n", e.msg);
        return 1;
    }
    (void)printf("copy_gb_s=%.6g\nbf16_tflops=%.6g\n", copied / 1e9, flops / 1e12);
    device_close(d);
    return 0;
}
