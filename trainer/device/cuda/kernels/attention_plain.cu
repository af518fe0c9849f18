/* Causal attention in float arithmetic, for float heads and for bf16 heads that the kernels on the tensor cores do not
 * take. The formulas are those of attention.cu.
 *
 * A block computes a tile of 32 queries, or of 32 keys, of one head of one row (16 if the head size is above 128), and
 * loops over the tiles of the other side. Eight threads share a line of the tile: each computes every eighth score of
 * the line, and keeps every eighth vector of four elements of the line's output. No sum is shared between threads, so
 * results are the same every time.
 *
 * Tiles lie in shared memory as float, with zeros behind the head. Lines are four floats longer than needed, which
 * spreads eight lines over all memory banks. NV is the number of vectors that a thread keeps; a line has 32 NV floats.
 * Shared memory is at most 78 KB; all supported GPUs have 99 KB or more. */
#include "trainer/device/cuda/attention.h"
#include "trainer/device/cuda/kernels/attention.cuh"
#include "trainer/device/cuda/kernels/attention_plain.h"

#define SHARERS 8
#define DELTA_THREADS 256

/* The sizes that follow from NV. */
template <int NV> struct shape {
    static constexpr int pitch = 32 * NV + 4;
    static constexpr int lines = NV > 4 ? 16 : 32; /* lines of a tile */
    static constexpr int threads = lines * SHARERS;
    static constexpr int mine = lines / SHARERS; /* scores of a thread in one tile */
};

struct alignas(16) vector {
    float x[4];
};

static __device__ __forceinline__ float value_read(const float *p)
{
    return *p;
}
static __device__ __forceinline__ float value_read(const uint16_t *p)
{
    return bf16_float(*p);
}
static __device__ __forceinline__ void value_write(float *p, float x)
{
    *p = x;
}
static __device__ __forceinline__ void value_write(uint16_t *p, float x)
{
    *p = bf16_of(x);
}

/* Copies `from` (there,size), with rows ld elements apart, into tile (lines,32 NV), and fills the rest with zeros. */
template <int NV, class T>
static __device__ __forceinline__ void tile_fetch(float *tile, const T *from, int64_t ld, int64_t there,
                                                  int64_t size)
{
    constexpr int PITCH = shape<NV>::pitch, LINES = shape<NV>::lines, THREADS = shape<NV>::threads;
    for (int i = (int)threadIdx.x; i < LINES * 32 * NV; i += THREADS) {
        int line = i / (32 * NV), column = i % (32 * NV);
        tile[line * PITCH + column] =
            line < there && column < size ? value_read(from + line * ld + column) : 0.0f;
    }
}

/* This thread's scores of a line: its products with the lines sharer, sharer + 8, ... of `right`. */
template <int NV>
static __device__ __forceinline__ void tile_scores(float s[shape<NV>::mine], const float *left,
                                                   const float *right, int sharer)
{
    constexpr int PITCH = shape<NV>::pitch, MINE = shape<NV>::mine;
#pragma unroll
    for (int i = 0; i < MINE; i++)
        s[i] = 0.0f;
#pragma unroll 4
    for (int k = 0; k < 32 * NV; k += 4) {
        struct vector a = *(const struct vector *)(left + k);
#pragma unroll
        for (int i = 0; i < MINE; i++) {
            struct vector b = *(const struct vector *)(right + (sharer + i * SHARERS) * PITCH + k);
#pragma unroll
            for (int j = 0; j < 4; j++)
                s[i] = fmaf(a.x[j], b.x[j], s[i]);
        }
    }
}

/* This thread's part of a line: sum += p (lines) right (lines,32 NV). */
template <int NV>
static __device__ __forceinline__ void tile_weighted_sum(struct vector sum[NV], const float *p,
                                                         const float *right, int sharer)
{
    constexpr int PITCH = shape<NV>::pitch, LINES = shape<NV>::lines;
    for (int k = 0; k < LINES; k++) {
        float by = p[k];
#pragma unroll
        for (int n = 0; n < NV; n++) {
            struct vector b = *(const struct vector *)(right + k * PITCH + n * 32 + sharer * 4);
#pragma unroll
            for (int j = 0; j < 4; j++)
                sum[n].x[j] = fmaf(by, b.x[j], sum[n].x[j]);
        }
    }
}

template <int NV, class T>
static __device__ __forceinline__ void plain_row_store(T *to, int64_t size, const struct vector sum[NV],
                                                       int sharer, float by)
{
#pragma unroll
    for (int n = 0; n < NV; n++)
#pragma unroll
        for (int j = 0; j < 4; j++) {
            int column = n * 32 + sharer * 4 + j;
            if (column < size)
                value_write(to + column, sum[n].x[j] * by);
        }
}

/* Largest value, and sum, over the eight threads of a line: the same in all of them. */
static __device__ __forceinline__ float line_max(float x)
{
    for (int step = SHARERS / 2; step; step /= 2)
        x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, step));
    return x;
}
static __device__ __forceinline__ float line_sum(float x)
{
    for (int step = SHARERS / 2; step; step /= 2)
        x += __shfl_xor_sync(0xffffffffu, x, step);
    return x;
}

/* The factor of one weight: 1 / (1 - p) if it is kept, 0 if it is dropped. */
static __device__ __forceinline__ float
dropout_factor(const struct attention_work *w, const struct attention_place *at, int64_t query, int64_t key)
{
    return w->draw.on ? dropout_factor(&w->draw, at->row, at->head * w->context + query, key) : 1.0f;
}

/* o (B,T,C) and lse (B,heads,T) of one tile of queries, from qkv (B,T,3C). */
template <int NV, class T>
__global__ void __launch_bounds__(shape<NV>::threads) plain_forward(struct attention_work w)
{
    constexpr int PITCH = shape<NV>::pitch, LINES = shape<NV>::lines, MINE = shape<NV>::mine;
    DYNAMIC_SHARED(float, shared);
    float *q = shared, *k = q + LINES * PITCH, *v = k + LINES * PITCH;
    float *p = v + LINES * PITCH;
    int line = (int)threadIdx.x / SHARERS, sharer = (int)threadIdx.x % SHARERS;
    struct attention_place at = attention_here(&w, true);
    int64_t ld = 3 * w.width, first = at.tile * LINES, query = first + line;
    const T *head = (const T *)w.qkv + at.tokens * ld + at.head * w.size;
    struct vector out[NV] = {};
    float top = -INFINITY, sum = 0.0f;

    tile_fetch<NV>(q, head + first * ld, ld, w.context - first, w.size);
    for (int64_t key = 0; key <= first; key += LINES) {
        __syncthreads(); /* all threads are done with the tiles before */
        tile_fetch<NV>(k, head + key * ld + w.width, ld, w.context - key, w.size);
        tile_fetch<NV>(v, head + key * ld + 2 * w.width, ld, w.context - key, w.size);
        __syncthreads();
        /* The online softmax: see attention.cu. */
        float s[MINE], most = top;
        tile_scores<NV>(s, q + line * PITCH, k, sharer);
        for (int i = 0; i < MINE; i++) {
            s[i] = key + sharer + i * SHARERS <= query ? s[i] * w.scale : -INFINITY;
            most = fmaxf(most, s[i]);
        }
        most = line_max(most);
        float shrink = expf(top - most);
        top = most;
        sum *= shrink;
        for (int n = 0; n < NV; n++)
            for (int j = 0; j < 4; j++)
                out[n].x[j] *= shrink;
        for (int i = 0; i < MINE; i++) {
            float e = expf(s[i] - most);
            sum += e;
            p[line * (LINES + 1) + sharer + i * SHARERS] =
                e * dropout_factor(&w, &at, query, key + sharer + i * SHARERS);
        }
        __syncwarp(); /* the eight threads of a line are in one warp, and only they read its p */
        tile_weighted_sum<NV>(out, p + line * (LINES + 1), v, sharer);
    }
    sum = line_sum(sum);
    if (query >= w.context)
        return;
    if (sharer == 0)
        w.lse[at.lines + query] = top + logf(sum);
    plain_row_store<NV>((T *)w.to + (at.tokens + query) * w.width + at.head * w.size, w.size, out, sharer,
                        1.0f / sum);
}

/* delta (B,heads,T): the sum over d_o o of a token's head, by one warp. */
template <class T>
__global__ void __launch_bounds__(DELTA_THREADS) plain_delta(struct attention_work w, int64_t lines)
{
    int64_t id = (int64_t)blockIdx.x * (DELTA_THREADS / 32) + threadIdx.x / 32;
    if (id >= lines)
        return;
    int64_t group = id / w.context, t = id % w.context;
    int64_t at = (group / w.heads * w.context + t) * w.width + group % w.heads * w.size;
    float sum = 0.0f;
    for (int64_t j = threadIdx.x % 32; j < w.size; j += 32)
        sum = fmaf(value_read((const T *)w.o + at + j), value_read((const T *)w.d_o + at + j), sum);
    for (int step = 16; step; step /= 2)
        sum += __shfl_xor_sync(0xffffffffu, sum, step);
    if (threadIdx.x % 32 == 0)
        w.delta[id] = sum;
}

/* dq of one tile of queries, into dqkv (B,T,3C): the sum over the keys of ds k. */
template <int NV, class T>
__global__ void __launch_bounds__(shape<NV>::threads) plain_grad_queries(struct attention_work w)
{
    constexpr int PITCH = shape<NV>::pitch, LINES = shape<NV>::lines, MINE = shape<NV>::mine;
    DYNAMIC_SHARED(float, shared);
    float *q = shared, *d = q + LINES * PITCH, *k = d + LINES * PITCH;
    float *v = k + LINES * PITCH, *p = v + LINES * PITCH;
    int line = (int)threadIdx.x / SHARERS, sharer = (int)threadIdx.x % SHARERS;
    struct attention_place at = attention_here(&w, true);
    int64_t ld = 3 * w.width, first = at.tile * LINES, query = first + line;
    const T *head = (const T *)w.qkv + at.tokens * ld + at.head * w.size;
    struct vector dq[NV] = {};
    float lse = query < w.context ? w.lse[at.lines + query] : 0.0f;
    float delta = query < w.context ? w.delta[at.lines + query] : 0.0f;

    tile_fetch<NV>(q, head + first * ld, ld, w.context - first, w.size);
    tile_fetch<NV>(d, (const T *)w.d_o + (at.tokens + first) * w.width + at.head * w.size, w.width,
                   w.context - first, w.size);
    for (int64_t key = 0; key <= first; key += LINES) {
        __syncthreads(); /* all threads are done with the tiles before */
        tile_fetch<NV>(k, head + key * ld + w.width, ld, w.context - key, w.size);
        tile_fetch<NV>(v, head + key * ld + 2 * w.width, ld, w.context - key, w.size);
        __syncthreads();
        float s[MINE], dp[MINE];
        tile_scores<NV>(s, q + line * PITCH, k, sharer);
        tile_scores<NV>(dp, d + line * PITCH, v, sharer);
        for (int i = 0; i < MINE; i++) {
            int64_t other = key + sharer + i * SHARERS;
            bool seen = other <= query && query < w.context;
            /* ds = e^(s - lse) (dp - delta); `scale` follows at the end. */
            float e = seen ? expf(s[i] * w.scale - lse) : 0.0f;
            p[line * (LINES + 1) + sharer + i * SHARERS] =
                seen ? e * (dp[i] * dropout_factor(&w, &at, query, other) - delta) : 0.0f;
        }
        __syncwarp(); /* only the eight threads of a line, in one warp, read its p */
        tile_weighted_sum<NV>(dq, p + line * (LINES + 1), k, sharer);
    }
    if (query < w.context)
        plain_row_store<NV>((T *)w.to + (at.tokens + query) * ld + at.head * w.size, w.size, dq, sharer,
                            w.scale);
}

/* dk and dv of one tile of keys, into dqkv (B,T,3C): the sums over the queries of ds q and of p d_o. */
template <int NV, class T>
__global__ void __launch_bounds__(shape<NV>::threads) plain_grad_keys(struct attention_work w)
{
    constexpr int PITCH = shape<NV>::pitch, LINES = shape<NV>::lines, MINE = shape<NV>::mine;
    DYNAMIC_SHARED(float, shared);
    float *k = shared, *v = k + LINES * PITCH, *q = v + LINES * PITCH;
    float *d = q + LINES * PITCH, *p = d + LINES * PITCH, *ds = p + LINES * (LINES + 1);
    int line = (int)threadIdx.x / SHARERS, sharer = (int)threadIdx.x % SHARERS;
    struct attention_place at = attention_here(&w, false);
    int64_t ld = 3 * w.width, first = at.tile * LINES, key = first + line;
    const T *head = (const T *)w.qkv + at.tokens * ld + at.head * w.size;
    const T *d_o = (const T *)w.d_o + at.tokens * w.width + at.head * w.size;
    struct vector dk[NV] = {}, dv[NV] = {};

    tile_fetch<NV>(k, head + first * ld + w.width, ld, w.context - first, w.size);
    tile_fetch<NV>(v, head + first * ld + 2 * w.width, ld, w.context - first, w.size);
    for (int64_t query = first; query < w.context; query += LINES) {
        __syncthreads(); /* all threads are done with the tiles before */
        tile_fetch<NV>(q, head + query * ld, ld, w.context - query, w.size);
        tile_fetch<NV>(d, d_o + query * w.width, w.width, w.context - query, w.size);
        __syncthreads();
        float s[MINE], dp[MINE];
        tile_scores<NV>(s, k + line * PITCH, q, sharer);
        tile_scores<NV>(dp, v + line * PITCH, d, sharer);
        for (int i = 0; i < MINE; i++) {
            int64_t other = query + sharer + i * SHARERS;
            bool seen = key <= other && other < w.context; /* here `other` is the query */
            float e = seen ? expf(s[i] * w.scale - w.lse[at.lines + other]) : 0.0f;
            float by = seen ? dropout_factor(&w, &at, other, key) : 0.0f;
            int to = line * (LINES + 1) + sharer + i * SHARERS;
            p[to] = e * by;
            ds[to] = seen ? e * (dp[i] * by - w.delta[at.lines + other]) : 0.0f;
        }
        __syncwarp(); /* only the eight threads of a line, in one warp, read its p and ds */
        tile_weighted_sum<NV>(dv, p + line * (LINES + 1), d, sharer);
        tile_weighted_sum<NV>(dk, ds + line * (LINES + 1), q, sharer);
    }
    if (key >= w.context)
        return;
    T *to = (T *)w.to + (at.tokens + key) * ld + at.head * w.size;
    plain_row_store<NV>(to + w.width, w.size, dk, sharer, w.scale);
    plain_row_store<NV>(to + 2 * w.width, w.size, dv, sharer, 1.0f);
}

/* ---- from the host */

template <int NV> static size_t plain_shared_bytes(int tiles, int scores)
{
    constexpr int LINES = shape<NV>::lines;
    return sizeof(float) * (size_t)(LINES * (tiles * shape<NV>::pitch + scores * (LINES + 1)));
}

template <int NV, class T>
static cudaError_t plain_run_forward(cudaStream_t stream, dim3 blocks, const struct attention_work *w)
{
    size_t bytes = plain_shared_bytes<NV>(3, 1);
    LAUNCH_SHARED((plain_forward<NV, T>), blocks, dim3(shape<NV>::threads), bytes, stream, *w);
    return cudaPeekAtLastError();
}

template <int NV, class T>
static cudaError_t plain_run_backward(cudaStream_t stream, dim3 blocks, const struct attention_work *w,
                                      int64_t lines)
{
    LAUNCH(plain_delta<T>, dim3((unsigned)((lines + 7) / 8)), dim3(DELTA_THREADS), 0, stream, *w, lines);
    size_t bytes = plain_shared_bytes<NV>(4, 2);
    LAUNCH_SHARED((plain_grad_keys<NV, T>), blocks, dim3(shape<NV>::threads), bytes, stream, *w);
    bytes = plain_shared_bytes<NV>(4, 1);
    LAUNCH_SHARED((plain_grad_queries<NV, T>), blocks, dim3(shape<NV>::threads), bytes, stream, *w);
    return cudaPeekAtLastError();
}

template <class T>
static cudaError_t plain_run_sized(cudaStream_t stream, dim3 blocks, const struct attention_work *w,
                                   int64_t lines)
{
    bool backward = lines > 0;
    if (w->size <= 64)
        return backward ? plain_run_backward<2, T>(stream, blocks, w, lines)
                        : plain_run_forward<2, T>(stream, blocks, w);
    if (w->size <= 128)
        return backward ? plain_run_backward<4, T>(stream, blocks, w, lines)
                        : plain_run_forward<4, T>(stream, blocks, w);
    return backward ? plain_run_backward<8, T>(stream, blocks, w, lines)
                    : plain_run_forward<8, T>(stream, blocks, w);
}

static int64_t lines_of(const struct device_attention *h)
{
    return h->n.width / h->heads <= 128 ? shape<4>::lines : shape<8>::lines;
}

extern "C" cudaError_t attention_plain_forward(cudaStream_t stream, const struct device_attention *h)
{
    struct attention_work w = attention_work_of(h, lines_of(h));
    dim3 blocks = attention_blocks(h, &w);
    w.to = h->o;
    return h->kept == DEVICE_BF16 ? plain_run_sized<uint16_t>(stream, blocks, &w, 0)
                                  : plain_run_sized<float>(stream, blocks, &w, 0);
}

extern "C" cudaError_t attention_plain_backward(cudaStream_t stream, const struct device_attention *h,
                                                const void *d_o, void *dqkv, float *delta)
{
    struct attention_work w = attention_work_of(h, lines_of(h));
    dim3 blocks = attention_blocks(h, &w);
    int64_t lines = h->n.rows * h->heads * h->n.context;
    w.d_o = d_o;
    w.to = dqkv;
    w.delta = delta;
    return h->kept == DEVICE_BF16 ? plain_run_sized<uint16_t>(stream, blocks, &w, lines)
                                  : plain_run_sized<float>(stream, blocks, &w, lines);
}
