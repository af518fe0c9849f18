#ifndef DDP_TRAINER_DEVICE_CUDA_KERNELS_MUON_H
#define DDP_TRAINER_DEVICE_CUDA_KERNELS_MUON_H

#include "trainer/device/cuda/kernels/workspace.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The parts of a Muon update (device.h) around its matrix products. x, to and from are dense, of a matrix's rows and
 * columns or of its smaller side squared. */

/* m = momentum m + d; u (rows,cols) = d + momentum m */
cudaError_t cuda_muon_direction(cudaStream_t stream, const struct device_muon *h,
                                const struct device_matrix *t, float *u, const float *g, float *m);
/* x of `type` = u / (sqrt(squares) + 1e-7) */
cudaError_t cuda_muon_normalize(cudaStream_t stream, enum device_type type, void *x, const float *u,
                                const double *squares, size_t n);
/* to = by_to to + by_from from, all of `type` */
cudaError_t cuda_muon_combine(cudaStream_t stream, enum device_type type, void *to, float by_to,
                              const void *from, float by_from, size_t n);
/* p = (1 - lr weight_decay) p - lr scale x */
cudaError_t cuda_muon_apply(cudaStream_t stream, const struct device_muon *h, const struct device_matrix *t,
                            float *p, const void *x);

#ifdef __cplusplus
}
#endif

#endif
