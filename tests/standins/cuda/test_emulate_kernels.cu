#include "test_emulate_kernels.h"

#include "trainer/device/cuda/kernels/copy.cuh"
#include "trainer/device/cuda/kernels/launch.cuh"
#include "trainer/device/cuda/kernels/mma.cuh"

static __global__ void index_of(int *to, int n)
{
    int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    if (i < n)
        to[i] = i;
}

extern "C" void kernel_index(cudaStream_t stream, int *to, int n, int block)
{
    LAUNCH(index_of, dim3((unsigned)((n + block - 1) / block)), dim3((unsigned)block), 0, stream, to, n);
}

template <int THREADS>
static __global__ void __launch_bounds__(THREADS) sum_of(double *to, const float *x, int n)
{
    __shared__ double of_warp[THREADS / 32];
    double sum = 0.0;
    for (int i = (int)threadIdx.x; i < n; i += THREADS)
        sum += (double)x[i];
    for (int by = 16; by; by /= 2)
        sum += __shfl_xor_sync(0xffffffffu, sum, by);
    if (threadIdx.x % 32 == 0)
        of_warp[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int i = 1; i < THREADS / 32; i++)
            sum += of_warp[i];
        *to = sum;
    }
}

extern "C" void kernel_sum(cudaStream_t stream, double *to, const float *x, int n)
{
    LAUNCH(sum_of<256>, 1, 256, 0, stream, to, x, n);
}

static __global__ void reverse_of(int *x, int barrier)
{
    DYNAMIC_SHARED(int, kept);
    kept[threadIdx.x] = x[threadIdx.x];
    if (barrier)
        __syncthreads();
    x[threadIdx.x] = kept[blockDim.x - 1 - threadIdx.x];
}

extern "C" void kernel_reverse(cudaStream_t stream, int *x, int n, int barrier)
{
    LAUNCH(reverse_of, 1, (unsigned)n, sizeof(int) * (size_t)n, stream, x, barrier);
}

static __global__ void add_to(float *y, const float *x, int n)
{
    int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    if (i < n)
        y[i] += x[i];
}

extern "C" void kernel_add(cudaStream_t stream, float *y, const float *x, int n)
{
    LAUNCH(add_to, (unsigned)((n + 127) / 128), 128, 0, stream, y, x, n);
}

static __global__ void lanes_of(int *to)
{
    int lane = (int)threadIdx.x, half = lane / 16 * 16;
    unsigned mask = 0xffffu << half;
    to[lane] = __shfl_sync(0xffffffffu, lane, 5);
    to[32 + lane] = __shfl_xor_sync(0xffffffffu, lane, 3);
    to[64 + lane] = __shfl_down_sync(0xffffffffu, lane, 2);
    to[96 + lane] = __shfl_up_sync(0xffffffffu, lane, 1);
    to[128 + lane] = (int)__ballot_sync(0xffffffffu, lane % 3 == 0);
    __syncwarp();
    for (int i = 0; i < 1 + half / 16; i++) /* the first half warp exchanges once, the second half twice */
        to[160 + lane] = __shfl_sync(mask, lane, half + i);
    to[192 + lane] = __shfl_sync(0xffffffffu, lane, 1, 8);
}

extern "C" void kernel_lanes(cudaStream_t stream, int *to)
{
    LAUNCH(lanes_of, 1, 32, 0, stream, to);
}

static __global__ void product_of(float *c, const uint16_t *a, const uint16_t *b)
{
    alignas(16) __shared__ uint16_t left[16 * 16], right[16 * 8];
    int lane = (int)threadIdx.x, group = lane / 4, pair = lane % 4 * 2;
    for (int i = lane; i < 256; i += 32)
        left[i] = a[i];
    for (int i = lane; i < 128; i += 32)
        right[i] = b[i];
    __syncthreads();
    uint32_t x[4], y[4];
    float sum[4] = {};
    mma_load(x, left + lane % 16 * 16 + lane / 16 * 8);
    /* lanes 16 to 31 pass the addresses of the same 16 rows again, so y[2] and y[3] equal y[0] and y[1] */
    mma_load_transposed(y, right + lane % 16 * 8);
    mma_16816(sum, x, y);
    for (int i = 0; i < 4; i++)
        c[(group + i / 2 * 8) * 8 + pair + i % 2] = sum[i];
}

extern "C" void kernel_product(cudaStream_t stream, float *c, const uint16_t *a, const uint16_t *b)
{
    LAUNCH(product_of, 1, 32, 0, stream, c, a, b);
}

static __global__ void last_block(int *to)
{
    *to = (int)blockIdx.x;
}

extern "C" void kernel_last_block(cudaStream_t stream, int *to, int blocks)
{
    LAUNCH(last_block, (unsigned)blocks, 1, 0, stream, to);
}

static __global__ void copy_of(int *x, int n, int late)
{
    DYNAMIC_SHARED(int, kept);
    int i = (int)threadIdx.x;
    copy_begin<16>(kept + 4 * i, x + 4 * i, true);
    copy_begin<4>(kept + n + i, x, false);
    if (!late)
        copy_wait();
    __syncthreads();
    for (int j = 0; j < 4; j++)
        x[4 * i + j] = kept[n - 1 - (4 * i + j)] + kept[n + (i + 1) % (n / 4)];
    if (late)
        copy_wait();
}

extern "C" void kernel_copy(cudaStream_t stream, int *x, int n, int late)
{
    LAUNCH(copy_of, 1, (unsigned)(n / 4), sizeof(int) * (size_t)(n + n / 4), stream, x, n, late);
}

/* ---- mistakes */

static __global__ void copy_forgotten(int *x)
{
    DYNAMIC_SHARED(int, kept);
    for (int i = 0; i < 16; i++)
        copy_begin<4>(kept + i, x + i, true);
}

extern "C" void kernel_copy_forgotten(cudaStream_t stream, int *x)
{
    LAUNCH(copy_forgotten, 1, 1, 64, stream, x);
}

static __global__ void ends_early(int *x)
{
    if (threadIdx.x == 7)
        return;
    __syncthreads();
    x[threadIdx.x] = 1;
}

extern "C" void kernel_ends_early(cudaStream_t stream, int *x)
{
    LAUNCH(ends_early, 1, 64, 0, stream, x);
}

static __global__ void two_barriers(int *x)
{
    if (threadIdx.x < 32) {
        __syncthreads();
        x[threadIdx.x] = 1;
    } else {
        __syncthreads();
    }
}

extern "C" void kernel_two_barriers(cudaStream_t stream, int *x)
{
    LAUNCH(two_barriers, 1, 64, 0, stream, x);
}

static __global__ void lane_missing(int *x)
{
    if (threadIdx.x != 3)
        x[threadIdx.x] = __shfl_xor_sync(0xffffffffu, (int)threadIdx.x, 1);
}

extern "C" void kernel_lane_missing(cudaStream_t stream, int *x)
{
    LAUNCH(lane_missing, 1, 32, 0, stream, x);
}

static __global__ void shared_poison(float *to)
{
    __shared__ float fixed[32];
    DYNAMIC_SHARED(float, dynamic);
    to[0] = fixed[5];
    to[1] = dynamic[3];
    fixed[5] = dynamic[3] = 1.0f; /* the second block must not see these values */
}

extern "C" void kernel_poison(cudaStream_t stream, float *to)
{
    LAUNCH(shared_poison, 2, 1, 64, stream, to);
}

static __global__ void stray_write(float *x, int n)
{
    x[n] = 0.0f;
}

extern "C" void kernel_stray(cudaStream_t stream, float *x, int n)
{
    LAUNCH(stray_write, 1, 1, 0, stream, x, n);
}

extern "C" void kernel_greedy(cudaStream_t stream)
{
    LAUNCH(index_of, 1, 1, 49153, stream, (int *)nullptr, 0);
}
