#ifndef DDP_TRAINER_DEVICE_CUDA_KERNELS_KERNELS_H
#define DDP_TRAINER_DEVICE_CUDA_KERNELS_KERNELS_H

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "trainer/device/device.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The kernels of device.h's operations, one launcher each: work for the stream, in device memory; what comes
 * back is cudaGetLastError(), or cudaErrorInvalidValue for what none of them takes: a norm's row above 2^20,
 * types that are not `type` and `kept` of one device (both float, or both bf16). Sums have a fixed order that
 * only shapes decide: the same bits every time. Any sizes; rows and arrays at 16-byte boundaries are faster.
 */

/* Room for partial sums, of the stream's work; at least cuda_workspace_bytes(NULL), which is enough for all
 * but cuda_embed_grad: that one wants the bytes of its sizes (n and vocab), and is cudaErrorInvalidValue
 * with less. At a 256-byte boundary. */
struct cuda_workspace {
    void *memory;
    size_t bytes;
};
size_t cuda_workspace_bytes(const struct device_sizes *sizes);

/* ---- flat.cu */
cudaError_t cuda_narrow(cudaStream_t stream, void *bf16, const float *x, size_t n);
cudaError_t cuda_activate(cudaStream_t stream, enum device_activation kind, float *y, const float *x,
                          size_t n);
cudaError_t cuda_activate_grad(cudaStream_t stream, enum device_activation kind, float *dx, const float *dy,
                               const float *x, size_t n);
cudaError_t cuda_scale(cudaStream_t stream, float *x, size_t n, float by);
cudaError_t cuda_add(cudaStream_t stream, float *y, const float *x, size_t n);

/* ---- dense.cu */
cudaError_t cuda_bias_grad(cudaStream_t stream, const struct cuda_workspace *w, enum device_type type,
                           float *db, const void *dy, int64_t rows, int64_t cols);
/* z += bias, both of a layer's (rows,cols) product, and a = f(z) unless a is NULL: what linear does behind
 * its product where that cannot. bias NULL: 0. */
cudaError_t cuda_bias_activate(cudaStream_t stream, enum device_activation kind, enum device_type type,
                               void *a, void *z, const float *bias, int64_t rows, int64_t cols);
cudaError_t cuda_bias_activate_grad(cudaStream_t stream, const struct cuda_workspace *w,
                                    enum device_activation kind, enum device_type type, void *dz, void *a,
                                    float *dbias, const void *da, const void *z, int64_t rows, int64_t cols);

/* ---- embed.cu */
cudaError_t cuda_embed(cudaStream_t stream, const struct device_embedding *h, const float *wte,
                       const float *wpe, float *x);
cudaError_t cuda_embed_grad(cudaStream_t stream, const struct cuda_workspace *w,
                            const struct device_embedding *h, float *dwte, float *dwpe, float *dx);

/* ---- norm.cu */
cudaError_t cuda_norm(cudaStream_t stream, const struct device_norm *h);
cudaError_t cuda_norm_grad(cudaStream_t stream, const struct cuda_workspace *w,
                           const struct device_norm_grad *h);

/* ---- loss.cu */
cudaError_t cuda_cross_entropy(cudaStream_t stream, const struct cuda_workspace *w,
                               const struct device_classes *h);
cudaError_t cuda_mse(cudaStream_t stream, const struct cuda_workspace *w, float *dx, const float *x,
                     const float *y, int64_t rows, int64_t cols, float scale, struct device_tally *tally);
cudaError_t cuda_tally_mean(cudaStream_t stream, float *to, const struct device_tally *tally, double divisor);

/* ---- optim.cu */
cudaError_t cuda_sum_squares(cudaStream_t stream, const struct cuda_workspace *w, const float *x, size_t n,
                             double *out);
cudaError_t cuda_clip_scale(cudaStream_t stream, float *scale, const double *squares, double clip);
cudaError_t cuda_sgd(cudaStream_t stream, const struct device_sgd *h, float *p, const float *g, float *v,
                     size_t n);
cudaError_t cuda_adamw(cudaStream_t stream, const struct device_adamw *h, float *p, const float *g, float *m,
                       float *v, size_t n);

/* ---- digest.cu; x at a 16-byte boundary */
cudaError_t cuda_digest(cudaStream_t stream, uint64_t *sums, const float *x, size_t n);

#ifdef __cplusplus
}
#endif

#endif
