#ifndef DDP_TRAINER_DEVICE_CUDA_GEMM_GEMM_H
#define DDP_TRAINER_DEVICE_CUDA_GEMM_GEMM_H

#include <cuda_runtime_api.h>
#include <stddef.h>

#include "base/err.h"
#include "trainer/device/cuda/gemm/gemm_plan.h"
#include "trainer/device/cuda/gemm/gemm_time.h"
#include "trainer/device/device.h"

/* Matrix products by cuBLASLt on one stream. Sums are float. Float factors are multiplied as floats, not as TF32.
 *
 * If there is a choice for a shape, its algorithm is used. Otherwise the first algorithm in cuBLASLt's own order is
 * used, which is the same in every process. So a run with the same choices repeats bit for bit. A choice is either
 * measured, between gemm_choose(true) and gemm_choose(false), or read from a text that another process has printed. If
 * an algorithm splits a sum, the parts are added in float and in a fixed order. */

struct gemm;
/* device: the name of the kind of GPU; borrowed. DDP_CUDA_TUNE: see docs/howto/gpu.md. */
MUST_CHECK enum err_code gemm_open(struct gemm **out, cudaStream_t stream, const char *device, struct err *e);
void gemm_close(struct gemm *g); /* call it when the stream is idle; NULL is fine */
cudaStream_t gemm_stream(const struct gemm *g);

MUST_CHECK enum err_code gemm_product(struct gemm *g, const struct device_product *h, struct err *e);

/* ---- for layers */

uint32_t gemm_alignment(const void *p); /* the largest power of two that divides the address, at most 256 */
struct gemm_call gemm_call_of(const struct device_product *h);
/* UNIMPLEMENTED: cuBLASLt has no algorithm for this call, or gemm_decide has found two steps to be faster. */
MUST_CHECK enum err_code gemm_run(struct gemm *g, const struct gemm_call *c, struct err *e);
/* Whether algorithms are being chosen and it is not known yet whether one product is faster than two steps. */
bool gemm_undecided(struct gemm *g, const struct gemm_call *c);
/* Measures both: way 0 is one product (gemm_run of c), way 1 is two steps. Keeps the faster. */
void gemm_decide(struct gemm *g, const struct gemm_call *c, gemm_way_fn *run, void *arg);

/* ---- choices: as in device.h */

bool gemm_chooses(const struct gemm *g); /* DDP_CUDA_TUNE asks for choices */
void gemm_choose(struct gemm *g, bool on);
void gemm_print_choices(const struct gemm *g, struct buf *out);
MUST_CHECK enum err_code gemm_take_choices(struct gemm *g, const char *text, size_t size, struct err *e);

#endif
