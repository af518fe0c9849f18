#ifndef DDP_TESTS_STANDINS_NCCL_COLL_DEVICE_H
#define DDP_TESTS_STANDINS_NCCL_COLL_DEVICE_H

#include <stdbool.h>
#include <stddef.h>

#include "trainer/device/cuda/cuda_stream.h"

/* The part of a CUDA device that groups need: memory and one stream of the emulated runtime, and NCCL's collectives. There is one
 * in each process. */
#define TEST_DEVICE_SCALES 5000 /* the most floats that `scale` takes */

struct test_device {
    struct device base;
    cudaStream_t stream;
    enum err_code (*check)(void *arg, struct err *e);
    void *arg;
};
extern struct test_device test_device;

bool test_device_open(void); /* false: no stream */
enum err_code test_device_alloc(struct device *d, size_t bytes, void **out, struct err *e);
enum err_code test_device_wait(struct device *d, struct err *e);
void test_device_upload(struct device *d, void *to, const void *from, size_t bytes);
void test_device_download(struct device *d, void *to, const void *from, size_t bytes);

#endif
