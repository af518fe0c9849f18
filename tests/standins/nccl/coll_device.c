#include "tests/standins/nccl/coll_device.h"

#include <string.h>
#include <time.h>

#include "trainer/device/cuda/nccl/nccl.h"

struct test_device test_device;

cudaStream_t cuda_stream(struct device *d)
{
    return d == &test_device.base ? test_device.stream : NULL;
}

enum err_code cuda_first_error(struct device *d, struct err *e)
{
    (void)d;
    (void)e;
    return ERR_OK;
}

enum err_code test_device_alloc(struct device *d, size_t bytes, void **out, struct err *e)
{
    (void)d;
    if (cudaMalloc(out, bytes) || cudaMemset(*out, 0, bytes))
        return err_set(e, ERR_RESOURCE_EXHAUSTED, "no memory");
    return ERR_OK;
}

static void test_device_free(struct device *d, void *p)
{
    (void)d;
    cudaFree(p);
}

enum err_code test_device_wait(struct device *d, struct err *e)
{
    (void)d;
    while (cudaStreamQuery(test_device.stream) == cudaErrorNotReady) {
        if (test_device.check && test_device.check(test_device.arg, e))
            return e->code;
        nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
    }
    return ERR_OK;
}

void test_device_upload(struct device *d, void *to, const void *from, size_t bytes)
{
    (void)d;
    cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, test_device.stream);
}

void test_device_download(struct device *d, void *to, const void *from, size_t bytes)
{
    struct err e = {0};

    cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, test_device.stream);
    if (test_device_wait(d, &e))
        memset(to, 0, bytes);
}

static void test_device_watch(struct device *d, enum err_code (*check)(void *arg, struct err *e), void *arg)
{
    (void)d;
    test_device.check = check;
    test_device.arg = arg;
}

static void test_device_copy(struct device *d, void *to, const void *from, size_t bytes)
{
    (void)d;
    cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, test_device.stream);
}

static void test_device_scale(struct device *d, float *x, size_t n, float by)
{
    float host[TEST_DEVICE_SCALES];

    test_device_download(d, host, x, n * sizeof(float));
    for (size_t i = 0; i < n; i++)
        host[i] *= by;
    test_device_upload(d, x, host, n * sizeof(float));
}

static const struct device_ops test_device_ops = {
    .name = "cuda",
    .copy = test_device_copy,
    .scale = test_device_scale,
    .wait = test_device_wait,
    .alloc = test_device_alloc,
    .free = test_device_free,
    .upload = test_device_upload,
    .download = test_device_download,
    .watch = test_device_watch,
};

bool test_device_open(void)
{
    test_device.base = (struct device){.ops = &test_device_ops, .comm = &nccl_comm_ops, .name = "test"};
    return cudaStreamCreateWithFlags(&test_device.stream, cudaStreamNonBlocking) == cudaSuccess;
}
