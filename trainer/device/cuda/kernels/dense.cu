/* Bias and activation of a layer, and their gradients, over (rows,cols) arrays. A block takes a strip of columns, 32
 * threads side by side with VEC columns each, and some of the rows, eight at a time. Sums over its rows stay in
 * registers until the end and are then left as partial sums, which fold_parts adds. Each array is read or written
 * once. */
#include "trainer/device/cuda/kernels/activation.cuh"
#include "trainer/device/cuda/kernels/fold.cuh"

enum { ACROSS = 32, DOWN = 8 };

struct strip_work {
    void *dz, *a;
    const void *da, *z;
    const float *bias;
    float *parts; /* (gridDim.y,cols) */
    int64_t rows, cols;
    int64_t each; /* rows of each block */
};

template <int VEC> static __device__ __forceinline__ int64_t strip_column(void)
{
    return ((int64_t)blockIdx.x * ACROSS + threadIdx.x) * VEC;
}
/* The end of the block's rows. */
static __device__ __forceinline__ int64_t strip_end(const struct strip_work *w)
{
    return min(w->rows, ((int64_t)blockIdx.y + 1) * w->each);
}

/* Adds the sums of the block's eight threads for a column, in their order, and leaves the result in `parts`. */
template <int VEC>
static __device__ __forceinline__ void strip_leave(const struct strip_work *w, const floats<VEC> &mine)
{
    __shared__ float sums[DOWN][ACROSS * VEC + 1];
    /* Element i of thread x lies at x + 32 i, so that the threads of a warp write to different banks. */
    int64_t column = strip_column<VEC>();
#pragma unroll
    for (int i = 0; i < VEC; i++)
        sums[threadIdx.y][threadIdx.x + ACROSS * i] = mine.at[i];
    __syncthreads();
    if (threadIdx.y > 0 || column >= w->cols)
        return;
#pragma unroll
    for (int i = 0; i < VEC; i++) {
        float sum = 0.0f;
        for (int j = 0; j < DOWN; j++)
            sum += sums[j][threadIdx.x + ACROSS * i];
        w->parts[(int64_t)blockIdx.y * w->cols + column + i] = sum;
    }
}

/* db (cols) = the sum over the rows of dy, which is in w.da. */
template <class T, int VEC> static __global__ void column_sums_kernel(struct strip_work w)
{
    int64_t column = strip_column<VEC>(), end = strip_end(&w);
    const T *dz = static_cast<const T *>(w.da) + column;
    floats<VEC> sum;
    clear(&sum);
    if (column < w.cols) {
#pragma unroll 4
        for (int64_t r = (int64_t)blockIdx.y * w.each + threadIdx.y; r < end; r += DOWN) {
            floats<VEC> v = load<VEC>(dz + r * w.cols);
#pragma unroll
            for (int i = 0; i < VEC; i++)
                sum.at[i] += v.at[i];
        }
    }
    strip_leave<VEC>(&w, sum);
}

/* dz = da f'(z), a = f(z) once more if it has an array, and the bias's gradient: the sum over the rows of dz. */
template <enum device_activation KIND, class T, int VEC>
static __global__ void activate_grad_kernel(struct strip_work w)
{
    int64_t column = strip_column<VEC>(), end = strip_end(&w);
    floats<VEC> sum;
    clear(&sum);
    if (column < w.cols) {
#pragma unroll 2
        for (int64_t r = (int64_t)blockIdx.y * w.each + threadIdx.y; r < end; r += DOWN) {
            int64_t at = r * w.cols + column;
            floats<VEC> da = load<VEC>(static_cast<const T *>(w.da) + at);
            floats<VEC> z = load<VEC>(static_cast<const T *>(w.z) + at), a;
#pragma unroll
            for (int i = 0; i < VEC; i++) {
                da.at[i] *= activation_slope<KIND>(z.at[i], &a.at[i]);
                sum.at[i] += da.at[i];
            }
            store<VEC>(static_cast<T *>(w.dz) + at, da);
            if (w.a)
                store<VEC>(static_cast<T *>(w.a) + at, a);
        }
    }
    strip_leave<VEC>(&w, sum);
}

/* z += bias and a = f(z), each if its array is given. */
template <enum device_activation KIND, class T, int VEC>
static __global__ void bias_activate_kernel(struct strip_work w)
{
    int64_t column = strip_column<VEC>(), end = strip_end(&w);
    if (column >= w.cols)
        return;
    floats<VEC> bias;
    clear(&bias);
    if (w.bias)
        bias = load<VEC>(w.bias + column);
#pragma unroll 2
    for (int64_t r = (int64_t)blockIdx.y * w.each + threadIdx.y; r < end; r += DOWN) {
        int64_t at = r * w.cols + column;
        floats<VEC> z = load<VEC>(static_cast<const T *>(w.z) + at);
#pragma unroll
        for (int i = 0; i < VEC; i++)
            z.at[i] += bias.at[i];
        if (w.bias)
            store<VEC>(static_cast<T *>(w.dz) + at, z); /* dz is z here */
        if (!w.a)
            continue;
#pragma unroll
        for (int i = 0; i < VEC; i++)
            z.at[i] = activation_value<KIND>(z.at[i]);
        store<VEC>(static_cast<T *>(w.a) + at, z);
    }
}

/* ---- on the host */

template <class T> static bool strip_aligned(const struct strip_work *w)
{
    return w->cols % (int64_t)(16 / sizeof(T)) == 0 && aligned(w->dz) && aligned(w->a) && aligned(w->da) &&
           aligned(w->z) && aligned(w->bias);
}

/* About 4096 blocks of at least 64 rows: so many that the GPU is busy almost to the end, when only the last ones run.
 * The partial sums must fit into the workspace. */
static dim3 strip_grid(struct strip_work *w, int64_t vec)
{
    int64_t strips = (w->cols + ACROSS * vec - 1) / (ACROSS * vec), parts = (w->rows + 63) / 64;
    int64_t most = strips < 4096 ? 4096 / strips : 1, room = FOLD_FLOATS / w->cols;
    parts = min(parts, max((int64_t)1, min(most, room)));
    w->each = (w->rows + parts - 1) / parts;
    return dim3((unsigned)strips, (unsigned)((w->rows + w->each - 1) / w->each));
}

static cudaError_t strip_fold(cudaStream_t stream, const struct strip_work *w, float *to, unsigned parts)
{
    struct fold_work f = {{to, NULL, NULL}, w->parts, (int64_t)parts, w->cols, w->cols};
    return fold_parts(stream, &f, 1);
}

template <class T, int VEC>
static cudaError_t column_sums(cudaStream_t stream, struct strip_work *w, float *db)
{
    dim3 grid = strip_grid(w, VEC);
    LAUNCH((column_sums_kernel<T, VEC>), grid, dim3(ACROSS, DOWN), 0, stream, *w);
    return strip_fold(stream, w, db, grid.y);
}

cudaError_t cuda_bias_grad(cudaStream_t stream, const struct cuda_workspace *room, enum device_type type,
                           float *db, const void *dy, int64_t rows, int64_t cols)
{
    struct strip_work w = {NULL, NULL, dy, NULL, NULL, static_cast<float *>(room->memory), rows, cols, 0};
    if (rows <= 0 || cols <= 0)
        return cudaSuccess;
    if (cols > FOLD_FLOATS)
        return cudaErrorInvalidValue;
    if (type == DEVICE_F32)
        return strip_aligned<float>(&w) ? column_sums<float, 4>(stream, &w, db)
                                        : column_sums<float, 1>(stream, &w, db);
    return strip_aligned<uint16_t>(&w) ? column_sums<uint16_t, 8>(stream, &w, db)
                                       : column_sums<uint16_t, 1>(stream, &w, db);
}

template <enum device_activation KIND, class T, int VEC>
static cudaError_t run_bias_activate_grad(cudaStream_t stream, struct strip_work *w, float *dbias)
{
    dim3 grid = strip_grid(w, VEC);
    LAUNCH((activate_grad_kernel<KIND, T, VEC>), grid, dim3(ACROSS, DOWN), 0, stream, *w);
    return strip_fold(stream, w, dbias, grid.y);
}

template <enum device_activation KIND>
static cudaError_t activate_grad_of(cudaStream_t stream, enum device_type type, struct strip_work *w,
                                    float *dbias)
{
    if (type == DEVICE_F32)
        return strip_aligned<float>(w) ? run_bias_activate_grad<KIND, float, 4>(stream, w, dbias)
                                       : run_bias_activate_grad<KIND, float, 1>(stream, w, dbias);
    return strip_aligned<uint16_t>(w) ? run_bias_activate_grad<KIND, uint16_t, 8>(stream, w, dbias)
                                      : run_bias_activate_grad<KIND, uint16_t, 1>(stream, w, dbias);
}

cudaError_t cuda_bias_activate_grad(cudaStream_t stream, const struct cuda_workspace *room,
                                    enum device_activation kind, enum device_type type, void *dz, void *a,
                                    float *dbias, const void *da, const void *z, int64_t rows, int64_t cols)
{
    struct strip_work w = {dz, a, da, z, NULL, static_cast<float *>(room->memory), rows, cols, 0};
    if (rows <= 0 || cols <= 0)
        return cudaSuccess;
    if (cols > FOLD_FLOATS)
        return cudaErrorInvalidValue;
    return ACTIVATION_OF(kind, activate_grad_of, stream, type, &w, dbias);
}

template <enum device_activation KIND, class T, int VEC>
static cudaError_t bias_activate(cudaStream_t stream, struct strip_work *w)
{
    dim3 grid = strip_grid(w, VEC);
    LAUNCH((bias_activate_kernel<KIND, T, VEC>), grid, dim3(ACROSS, DOWN), 0, stream, *w);
    return cudaGetLastError();
}

template <enum device_activation KIND>
static cudaError_t bias_activate_of(cudaStream_t stream, enum device_type type, struct strip_work *w)
{
    if (type == DEVICE_F32)
        return strip_aligned<float>(w) ? bias_activate<KIND, float, 4>(stream, w)
                                       : bias_activate<KIND, float, 1>(stream, w);
    return strip_aligned<uint16_t>(w) ? bias_activate<KIND, uint16_t, 8>(stream, w)
                                      : bias_activate<KIND, uint16_t, 1>(stream, w);
}

cudaError_t cuda_bias_activate(cudaStream_t stream, enum device_activation kind, enum device_type type,
                               void *a, void *z, const float *bias, int64_t rows, int64_t cols)
{
    struct strip_work w = {z, a, NULL, z, bias, NULL, rows, cols, 0};
    if (rows <= 0 || cols <= 0 || (!a && !bias))
        return cudaSuccess;
    return ACTIVATION_OF(kind, bias_activate_of, stream, type, &w);
}
