/* A device that has only the launchers of kernels.h: copies are synchronous, there is one stream, and the workspace
 * has the size that the kernels ask for. */
#include "ops.h"

#include <stdio.h>
#include <stdlib.h>

#include "trainer/device/cuda/kernels/kernels.h"

static struct cuda_workspace room;
static cudaError_t failure;

static void keep_error(cudaError_t code)
{
    if (failure == cudaSuccess)
        failure = code;
}

static enum err_code wait(struct device *d, struct err *e)
{
    (void)d;
    keep_error(cudaDeviceSynchronize());
    if (failure == cudaSuccess)
        return ERR_OK;
    return err_set(e, ERR_INTERNAL, "CUDA: %s", cudaGetErrorString(failure));
}

static enum err_code alloc(struct device *d, size_t bytes, void **out, struct err *e)
{
    (void)d;
    if (cudaMalloc(out, bytes) == cudaSuccess && cudaMemset(*out, 0, bytes) == cudaSuccess)
        return ERR_OK;
    return err_set(e, ERR_RESOURCE_EXHAUSTED, "no GPU memory");
}

static void release(struct device *d, void *p)
{
    (void)d;
    keep_error(cudaFree(p));
}

static void upload(struct device *d, void *to, const void *from, size_t bytes)
{
    (void)d;
    keep_error(cudaMemcpy(to, from, bytes, cudaMemcpyHostToDevice));
}

static void download(struct device *d, void *to, const void *from, size_t bytes)
{
    (void)d;
    keep_error(cudaDeviceSynchronize());
    keep_error(cudaMemcpy(to, from, bytes, cudaMemcpyDeviceToHost));
}

static void close_device(struct device *d)
{
    keep_error(cudaFree(room.memory));
    free(d);
}

static enum err_code reserve(struct device *d, const struct device_sizes *sizes, struct err *e)
{
    size_t bytes = cuda_workspace_bytes(sizes);
    (void)d;
    if (bytes != room.bytes) {
        keep_error(cudaFree(room.memory));
        room.memory = NULL;
        room.bytes = bytes;
        if (cudaMalloc(&room.memory, bytes) != cudaSuccess)
            return err_set(e, ERR_RESOURCE_EXHAUSTED, "no GPU memory");
    }
    keep_error(cudaMemset(room.memory, 0xff, room.bytes));
    return ERR_OK;
}

#define OPERATION(name, parameters, ...)                                                                     \
    static void name parameters                                                                              \
    {                                                                                                        \
        (void)d;                                                                                             \
        keep_error(cuda_##name(__VA_ARGS__));                                                                \
    }

OPERATION(narrow, (struct device * d, void *to, const float *x, size_t n), NULL, to, x, n)
OPERATION(bias_grad,
          (struct device * d, enum device_type type, float *db, const void *dy, int64_t rows, int64_t cols),
          NULL, &room, type, db, dy, rows, cols)
OPERATION(activate, (struct device * d, enum device_activation kind, float *y, const float *x, size_t n),
          NULL, kind, y, x, n)
OPERATION(activate_grad,
          (struct device * d, enum device_activation kind, float *dx, const float *dy, const float *x,
           size_t n),
          NULL, kind, dx, dy, x, n)
static void bias_activate_grad(struct device *d, enum device_activation kind, enum device_type type,
                               enum device_type kept, void *dz, void *a, float *dbias, const void *da,
                               const void *z, int64_t rows, int64_t cols)
{
    (void)d;
    keep_error(type == kept
                   ? cuda_bias_activate_grad(NULL, &room, kind, type, dz, a, dbias, da, z, rows, cols)
                   : cudaErrorInvalidValue);
}
OPERATION(embed,
          (struct device * d, const struct device_embedding *h, const float *wte, const float *wpe, float *x),
          NULL, h, wte, wpe, x)
OPERATION(embed_grad,
          (struct device * d, const struct device_embedding *h, float *dwte, float *dwpe, void *dx), NULL,
          &room, h, dwte, dwpe, dx)
OPERATION(norm, (struct device * d, const struct device_norm *h), NULL, h)
OPERATION(norm_grad, (struct device * d, const struct device_norm_grad *h), NULL, &room, h)
OPERATION(cross_entropy, (struct device * d, const struct device_classes *h), NULL, &room, h)
OPERATION(mse,
          (struct device * d, float *dx, const float *x, const float *y, int64_t rows, int64_t cols,
           float scale, struct device_tally *tally),
          NULL, &room, dx, x, y, rows, cols, scale, tally)
OPERATION(tally_mean, (struct device * d, float *to, const struct device_tally *tally, double divisor), NULL,
          to, tally, divisor)
OPERATION(sum_squares, (struct device * d, const float *x, size_t n, double *out), NULL, &room, x, n, out)
OPERATION(digest, (struct device * d, uint64_t *sums, const float *x, size_t n), NULL, sums, x, n)
OPERATION(clip_scale, (struct device * d, float *scale, const double *squares, double clip), NULL, scale,
          squares, clip)
OPERATION(scale, (struct device * d, float *x, size_t n, float by), NULL, x, n, by)
OPERATION(add, (struct device * d, float *y, const float *x, size_t n), NULL, y, x, n)
OPERATION(sgd, (struct device * d, const struct device_sgd *h, float *p, const float *g, float *v, size_t n),
          NULL, h, p, g, v, n)
OPERATION(adamw,
          (struct device * d, const struct device_adamw *h, float *p, const float *g, float *m, float *v,
           size_t n),
          NULL, h, p, g, m, v, n)

OPERATION(adamw_ranges,
          (struct device * d, const struct device_adamw *h, const struct device_ranges *ranges, float *p,
           const float *g, float *m, float *v, void *narrowed),
          NULL, h, ranges, p, g, m, v, narrowed)
OPERATION(zero_ranges, (struct device * d, const struct device_ranges *ranges, float *x), NULL, ranges, x)

static const struct device_ops operations = {
    .name = "kernels",
    .close = close_device,
    .wait = wait,
    .alloc = alloc,
    .free = release,
    .upload = upload,
    .download = download,
    .reserve = reserve,
    .narrow = narrow,
    .bias_grad = bias_grad,
    .activate = activate,
    .activate_grad = activate_grad,
    .bias_activate_grad = bias_activate_grad,
    .embed = embed,
    .embed_grad = embed_grad,
    .norm = norm,
    .norm_grad = norm_grad,
    .cross_entropy = cross_entropy,
    .mse = mse,
    .tally_mean = tally_mean,
    .sum_squares = sum_squares,
    .digest = digest,
    .clip_scale = clip_scale,
    .scale = scale,
    .add = add,
    .sgd = sgd,
    .adamw = adamw,
    .adamw_ranges = adamw_ranges,
    .zero_ranges = zero_ranges,
};

enum err_code ops_launchers_open(struct device **out, struct err *e)
{
    int count = 0;
    cudaError_t code = cudaGetDeviceCount(&count);
    if (code != cudaSuccess || count == 0)
        return err_set(e, ERR_UNAVAILABLE, "no GPU: %s", cudaGetErrorString(code));
    keep_error(cudaDeviceGetAttribute(&room.multiprocessors, cudaDevAttrMultiProcessorCount, 0));
    struct device *d = calloc(1, sizeof(*d));
    if (!d)
        return err_set(e, ERR_RESOURCE_EXHAUSTED, "no memory");
    d->ops = &operations;
    d->kept = DEVICE_BF16;
    (void)snprintf(d->name, sizeof(d->name), "kernels");
    *out = d;
    return ERR_OK;
}

void ops_bias_activate(enum device_activation kind, enum device_type type, void *a, void *z,
                       const float *bias, int64_t rows, int64_t cols)
{
    keep_error(cuda_bias_activate(NULL, kind, type, a, z, bias, rows, cols));
}
