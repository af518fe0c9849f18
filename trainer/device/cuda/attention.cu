/* Causal attention of bf16 heads on the tensor cores, in the manner of Dao (arXiv 2307.08691): scores exist
 * in registers only. A block is four warps and a tile of 64 queries (forward, and the queries' gradient) or
 * of 64 keys (the keys' and values' gradients), sixteen to a warp; it goes over the other side's tiles, which
 * lie in shared memory. A tile's query i sees the other's keys up to i + reach. Queries behind the last are
 * zeros, and so is all that they add to. Each sum is made by one warp in one order, so results are the same
 * every time; the price is that the backward pass makes the scores twice.
 *
 * Rows of a tile are WIDE elements, the head's size and zeros behind it, and eight more, which spreads eight
 * rows over all banks. Powers are of two: score * scale * log2(e) - the log of the sum, in base two. */
#include "trainer/device/cuda/attention.cuh"
#include "trainer/device/cuda/attention.h"
#include "trainer/device/cuda/mma.cuh"

#define THREADS 128
#define TILE 64
#define MASK_BYTES 8 /* of a line of TILE keys, a bit each */

struct lane {
    int warp, group, pair;       /* see mma.cuh */
    int row, half;               /* where this lane's row of an mma_load begins: row, and 8 columns on */
    int column_row, column_half; /* the same where rows are a product's columns */
};

static __device__ __forceinline__ struct lane lane_here(void)
{
    struct lane l;
    int id = (int)threadIdx.x % 32;
    l.warp = (int)threadIdx.x / 32;
    l.group = id / 4;
    l.pair = id % 4 * 2;
    l.row = id % 16;
    l.half = id / 16 * 8;
    l.column_row = id % 8 + id / 16 * 8;
    l.column_half = id / 8 % 2 * 8;
    return l;
}

/* tile (ROWS,WIDE) = from (rows,size), ld apart, zeros around it. */
template <int ROWS, int WIDE>
static __device__ __forceinline__ void fetch(uint16_t *tile, const uint16_t *from, int64_t ld, int64_t rows,
                                             int64_t size)
{
    for (int i = (int)threadIdx.x; i < ROWS * WIDE / 8; i += THREADS) {
        int row = i / (WIDE / 8), column = i % (WIDE / 8) * 8;
        struct bf16x8 v = {{0, 0, 0, 0}};
        if (row < rows && column < size)
            v = *(const struct bf16x8 *)(from + row * ld + column);
        *(struct bf16x8 *)(tile + row * (WIDE + 8) + column) = v;
    }
}

/* c (16,8 N) = left (16,WIDE) right (8 N,WIDE)^T; left is the warp's first row. */
template <int N, int WIDE>
static __device__ __forceinline__ void score(const struct lane *l, float c[N][4], const uint16_t *left,
                                             const uint16_t *right)
{
#pragma unroll
    for (int n = 0; n < N; n++)
        c[n][0] = c[n][1] = c[n][2] = c[n][3] = 0.0f;
#pragma unroll
    for (int k = 0; k < WIDE; k += 16) {
        uint32_t a[4], b[4];
        mma_load(a, left + l->row * (WIDE + 8) + k + l->half);
#pragma unroll
        for (int n = 0; n < N; n += 2) {
            mma_load(b, right + (n * 8 + l->column_row) * (WIDE + 8) + k + l->column_half);
            mma_16816(c[n], a, b);
            mma_16816(c[n + 1], a, b + 2);
        }
    }
}

/* sum (16,WIDE) += p (16,8 N) right (8 N,WIDE); p is rounded to bf16. */
template <int N, int WIDE>
static __device__ __forceinline__ void weigh(const struct lane *l, float sum[WIDE / 8][4],
                                             const float p[N][4], const uint16_t *right)
{
#pragma unroll
    for (int k = 0; k < N; k += 2) {
        uint32_t b[4], a[4] = {bf16_pair(p[k][0], p[k][1]), bf16_pair(p[k][2], p[k][3]),
                               bf16_pair(p[k + 1][0], p[k + 1][1]), bf16_pair(p[k + 1][2], p[k + 1][3])};
#pragma unroll
        for (int n = 0; n < WIDE / 8; n += 2) {
            mma_load_transposed(b, right + (k * 8 + l->row) * (WIDE + 8) + n * 8 + l->half);
            mma_16816(sum[n], a, b);
            mma_16816(sum[n + 1], a, b + 2);
        }
    }
}

/* The dropout's masks of LINES queries and TILE keys: bit 16 w + i of a line for key 16 w + i, set when it is
 * kept. A thread makes eight keys of each of the four words of a line, so bytes have one writer. */
template <int LINES>
static __device__ __forceinline__ void draw(uint8_t *kept, const struct attention_work *w,
                                            const struct attention_place *at, int64_t query, int64_t key)
{
    for (int i = (int)threadIdx.x; i < LINES * 2; i += THREADS) {
        int line = i / 2, half = i % 2;
        uint32_t bits[4] = {0, 0, 0, 0};
        for (int j = 0; j < 8; j++) {
            uint32_t words[4];
            dropout_words(words, &w->draw, at->row, at->head * w->context + query + line,
                          (uint32_t)(key / 4 + half * 8 + j));
            for (int k = 0; k < 4; k++)
                bits[k] |= (uint32_t)(words[k] >= w->draw.least) << j;
        }
        for (int k = 0; k < 4; k++)
            kept[line * MASK_BYTES + 2 * k + half] = (uint8_t)bits[k];
    }
}

static __device__ __forceinline__ bool is_kept(const uint8_t *kept, int line, int key)
{
    return kept[line * MASK_BYTES + key / 8] >> key % 8 & 1;
}

static __device__ __forceinline__ float quad_max(float x)
{
    x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 1));
    return fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 2));
}

static __device__ __forceinline__ float quad_sum(float x)
{
    x += __shfl_xor_sync(0xffffffffu, x, 1);
    return x + __shfl_xor_sync(0xffffffffu, x, 2);
}

/* One row (half r) of a warp's scores, of base two, becomes e^(score - top): top rises and what was summed so
 * far shrinks with it. */
template <int WIDE>
static __device__ __forceinline__ void soften(float s[TILE / 8][4], int r, float *top, float *sum,
                                              float out[WIDE / 8][4])
{
    float most = *top;
#pragma unroll
    for (int n = 0; n < TILE / 8; n++)
        most = fmaxf(most, fmaxf(s[n][2 * r], s[n][2 * r + 1]));
    most = quad_max(most);
    float shrink = power_of_two(*top - most);
    *top = most;
    *sum *= shrink;
#pragma unroll
    for (int n = 0; n < WIDE / 8; n++) {
        out[n][2 * r] *= shrink;
        out[n][2 * r + 1] *= shrink;
    }
#pragma unroll
    for (int n = 0; n < TILE / 8; n++) {
        s[n][2 * r] = power_of_two(s[n][2 * r] - most);
        s[n][2 * r + 1] = power_of_two(s[n][2 * r + 1] - most);
        *sum += s[n][2 * r] + s[n][2 * r + 1];
    }
}

/* to (16,size) += rows of a warp's sums; `first` is the token of its first row, behind `rows` are none. */
template <int WIDE>
static __device__ __forceinline__ void put(const struct lane *l, uint16_t *to, int64_t ld, int64_t rows,
                                           int64_t size, const float c[WIDE / 8][4], float low, float high)
{
#pragma unroll
    for (int n = 0; n < WIDE / 8; n++) {
        int column = n * 8 + l->pair;
        if (column >= size)
            continue;
        if (l->group < rows)
            *(uint32_t *)(to + l->group * ld + column) = bf16_pair(c[n][0] * low, c[n][1] * low);
        if (l->group + 8 < rows)
            *(uint32_t *)(to + (l->group + 8) * ld + column) = bf16_pair(c[n][2] * high, c[n][3] * high);
    }
}

template <int WIDE> __global__ void __launch_bounds__(THREADS) mma_forward(struct attention_work w)
{
    DYNAMIC_SHARED(uint16_t, shared);
    uint16_t *q = shared, *k = q + TILE * (WIDE + 8), *v = k + TILE * (WIDE + 8);
    uint8_t *kept = (uint8_t *)(v + TILE * (WIDE + 8));
    struct lane l = lane_here();
    struct attention_place at = attention_here(&w, true);
    int64_t ld = 3 * w.width, first = at.tile * TILE;
    const uint16_t *head = (const uint16_t *)w.qkv + at.tokens * ld + at.head * w.size;
    float out[WIDE / 8][4] = {}, top[2] = {-INFINITY, -INFINITY}, sum[2] = {0.0f, 0.0f};
    int line = l.warp * 16 + l.group;

    fetch<TILE, WIDE>(q, head + first * ld, ld, w.context - first, w.size);
    for (int64_t key = 0; key <= first; key += TILE) {
        __syncthreads();
        fetch<TILE, WIDE>(k, head + key * ld + w.width, ld, w.context - key, w.size);
        fetch<TILE, WIDE>(v, head + key * ld + 2 * w.width, ld, w.context - key, w.size);
        if (w.draw.on)
            draw<TILE>(kept, &w, &at, first, key);
        __syncthreads();
        int reach = key < first ? TILE : 0;
        float s[TILE / 8][4];
        score<TILE / 8, WIDE>(&l, s, q + l.warp * 16 * (WIDE + 8), k);
#pragma unroll
        for (int n = 0; n < TILE / 8; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                bool seen = n * 8 + l.pair + i % 2 <= line + i / 2 * 8 + reach;
                s[n][i] = seen ? s[n][i] * (w.scale * LOG2E) : -INFINITY;
            }
        soften<WIDE>(s, 0, &top[0], &sum[0], out);
        soften<WIDE>(s, 1, &top[1], &sum[1], out);
        if (w.draw.on) {
#pragma unroll
            for (int n = 0; n < TILE / 8; n++)
#pragma unroll
                for (int i = 0; i < 4; i++)
                    if (!is_kept(kept, line + i / 2 * 8, n * 8 + l.pair + i % 2))
                        s[n][i] = 0.0f;
        }
        weigh<TILE / 8, WIDE>(&l, out, s, v);
    }
    sum[0] = quad_sum(sum[0]);
    sum[1] = quad_sum(sum[1]);
    for (int r = 0; r < 2; r++)
        if (l.pair == 0 && first + line + r * 8 < w.context)
            w.lse[at.lines + first + line + r * 8] = (top[r] + log2f(sum[r])) * LN2;
    int64_t row = first + l.warp * 16;
    put<WIDE>(&l, (uint16_t *)w.to + (at.tokens + row) * w.width + at.head * w.size, w.width, w.context - row,
              w.size, out, w.draw.kept / sum[0], w.draw.kept / sum[1]);
}

/* delta (rows,heads,context): a token's sum over d_o o, by one warp. */
static __global__ void __launch_bounds__(THREADS) mma_delta(struct attention_work w, int64_t lines)
{
    int64_t id = (int64_t)blockIdx.x * (THREADS / 32) + threadIdx.x / 32;
    if (id >= lines)
        return;
    int64_t group = id / w.context, t = id % w.context;
    int64_t at = (group / w.heads * w.context + t) * w.width + group % w.heads * w.size;
    float sum = 0.0f;
    for (int64_t j = threadIdx.x % 32; j < w.size; j += 32)
        sum += bf16_float(((const uint16_t *)w.o)[at + j]) * bf16_float(((const uint16_t *)w.d_o)[at + j]);
    for (int step = 16; step; step /= 2)
        sum += __shfl_xor_sync(0xffffffffu, sum, step);
    if (threadIdx.x % 32 == 0)
        w.delta[id] = sum;
}

/* What the values are weighed with (in p, less 1 / (1 - p) of dropout) and the gradient of a score (in ds),
 * from the score and d_o v. */
static __device__ __forceinline__ void differentiate(const struct attention_work *w, float *p, float *ds,
                                                     bool seen, bool kept, float lse, float delta)
{
    float e = seen ? power_of_two(*p * (w->scale * LOG2E) - lse) : 0.0f;
    *ds = e * ((kept ? *ds * w->draw.kept : 0.0f) - delta);
    *p = kept ? e : 0.0f;
}

template <int WIDE> __global__ void __launch_bounds__(THREADS) mma_grad_queries(struct attention_work w)
{
    DYNAMIC_SHARED(uint16_t, shared);
    uint16_t *q = shared, *d = q + TILE * (WIDE + 8), *k = d + TILE * (WIDE + 8), *v = k + TILE * (WIDE + 8);
    uint8_t *kept = (uint8_t *)(v + TILE * (WIDE + 8));
    struct lane l = lane_here();
    struct attention_place at = attention_here(&w, true);
    int64_t ld = 3 * w.width, first = at.tile * TILE;
    const uint16_t *head = (const uint16_t *)w.qkv + at.tokens * ld + at.head * w.size;
    float dq[WIDE / 8][4] = {}, lse[2], delta[2];
    int line = l.warp * 16 + l.group;

    fetch<TILE, WIDE>(q, head + first * ld, ld, w.context - first, w.size);
    fetch<TILE, WIDE>(d, (const uint16_t *)w.d_o + (at.tokens + first) * w.width + at.head * w.size, w.width,
                      w.context - first, w.size);
    for (int r = 0; r < 2; r++) {
        bool there = first + line + r * 8 < w.context;
        lse[r] = there ? w.lse[at.lines + first + line + r * 8] * LOG2E : 0.0f;
        delta[r] = there ? w.delta[at.lines + first + line + r * 8] : 0.0f;
    }
    for (int64_t key = 0; key <= first; key += TILE) {
        __syncthreads();
        fetch<TILE, WIDE>(k, head + key * ld + w.width, ld, w.context - key, w.size);
        fetch<TILE, WIDE>(v, head + key * ld + 2 * w.width, ld, w.context - key, w.size);
        if (w.draw.on)
            draw<TILE>(kept, &w, &at, first, key);
        __syncthreads();
        int reach = key < first ? TILE : 0;
        float s[TILE / 8][4], ds[TILE / 8][4];
        score<TILE / 8, WIDE>(&l, s, q + l.warp * 16 * (WIDE + 8), k);
        score<TILE / 8, WIDE>(&l, ds, d + l.warp * 16 * (WIDE + 8), v);
#pragma unroll
        for (int n = 0; n < TILE / 8; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                int query = line + i / 2 * 8, j = n * 8 + l.pair + i % 2;
                bool seen = j <= query + reach;
                differentiate(&w, &s[n][i], &ds[n][i], seen, !w.draw.on || is_kept(kept, query, j),
                              lse[i / 2], delta[i / 2]);
            }
        weigh<TILE / 8, WIDE>(&l, dq, ds, k);
    }
    int64_t row = first + l.warp * 16;
    put<WIDE>(&l, (uint16_t *)w.to + (at.tokens + row) * ld + at.head * w.size, ld, w.context - row, w.size,
              dq, w.scale, w.scale);
}

/* STEP queries at a time: what a block holds besides its own two sums must fit in registers. */
template <int WIDE, int STEP>
__global__ void __launch_bounds__(THREADS) mma_grad_keys(struct attention_work w)
{
    DYNAMIC_SHARED(uint16_t, shared);
    uint16_t *k = shared, *v = k + TILE * (WIDE + 8), *q = v + TILE * (WIDE + 8), *d = q + STEP * (WIDE + 8);
    uint8_t *kept = (uint8_t *)(d + STEP * (WIDE + 8));
    float *lse = (float *)(kept + STEP * MASK_BYTES), *delta = lse + STEP;
    struct lane l = lane_here();
    struct attention_place at = attention_here(&w, false);
    int64_t ld = 3 * w.width, first = at.tile * TILE;
    const uint16_t *head = (const uint16_t *)w.qkv + at.tokens * ld + at.head * w.size;
    const uint16_t *d_o = (const uint16_t *)w.d_o + at.tokens * w.width + at.head * w.size;
    float dk[WIDE / 8][4] = {}, dv[WIDE / 8][4] = {};

    fetch<TILE, WIDE>(k, head + first * ld + w.width, ld, w.context - first, w.size);
    fetch<TILE, WIDE>(v, head + first * ld + 2 * w.width, ld, w.context - first, w.size);
    for (int64_t query = first; query < w.context; query += STEP) {
        __syncthreads();
        fetch<STEP, WIDE>(q, head + query * ld, ld, w.context - query, w.size);
        fetch<STEP, WIDE>(d, d_o + query * w.width, w.width, w.context - query, w.size);
        if (w.draw.on)
            draw<STEP>(kept, &w, &at, query, first);
        for (int i = (int)threadIdx.x; i < STEP; i += THREADS) {
            lse[i] = query + i < w.context ? w.lse[at.lines + query + i] * LOG2E : 0.0f;
            delta[i] = query + i < w.context ? w.delta[at.lines + query + i] : 0.0f;
        }
        __syncthreads();
        int reach = query - first < TILE ? (int)(query - first) : TILE;
        float p[STEP / 8][4], ds[STEP / 8][4];
        score<STEP / 8, WIDE>(&l, p, k + l.warp * 16 * (WIDE + 8), q);
        score<STEP / 8, WIDE>(&l, ds, v + l.warp * 16 * (WIDE + 8), d);
#pragma unroll
        for (int n = 0; n < STEP / 8; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                int key = l.warp * 16 + l.group + i / 2 * 8, j = n * 8 + l.pair + i % 2;
                bool seen = key <= j + reach;
                differentiate(&w, &p[n][i], &ds[n][i], seen, !w.draw.on || is_kept(kept, j, key), lse[j],
                              delta[j]);
            }
        weigh<STEP / 8, WIDE>(&l, dv, p, d);
        weigh<STEP / 8, WIDE>(&l, dk, ds, q);
    }
    int64_t row = first + l.warp * 16;
    uint16_t *to = (uint16_t *)w.to + (at.tokens + row) * ld + at.head * w.size;
    put<WIDE>(&l, to + w.width, ld, w.context - row, w.size, dk, w.scale, w.scale);
    put<WIDE>(&l, to + 2 * w.width, ld, w.context - row, w.size, dv, w.draw.kept, w.draw.kept);
}

/* ---- from the host */

static size_t shared_bytes(int wide, int rows, int lines)
{
    return (size_t)rows * (size_t)(wide + 8) * 2 + (size_t)lines * (MASK_BYTES + 8);
}

template <int WIDE>
static cudaError_t run_forward(cudaStream_t stream, dim3 blocks, const struct attention_work *w)
{
    size_t bytes = shared_bytes(WIDE, 3 * TILE, TILE);
    LAUNCH_SHARED(mma_forward<WIDE>, blocks, dim3(THREADS), bytes, stream, *w);
    return cudaPeekAtLastError();
}

template <int WIDE>
static cudaError_t run_backward(cudaStream_t stream, dim3 blocks, const struct attention_work *w,
                                int64_t lines)
{
    constexpr int STEP = WIDE > 32 ? 32 : 64;
    LAUNCH(mma_delta, dim3((unsigned)((lines + 3) / 4)), dim3(THREADS), 0, stream, *w, lines);
    size_t bytes = shared_bytes(WIDE, 2 * TILE + 2 * STEP, STEP);
    LAUNCH_SHARED((mma_grad_keys<WIDE, STEP>), blocks, dim3(THREADS), bytes, stream, *w);
    bytes = shared_bytes(WIDE, 4 * TILE, TILE);
    LAUNCH_SHARED(mma_grad_queries<WIDE>, blocks, dim3(THREADS), bytes, stream, *w);
    return cudaPeekAtLastError();
}

extern "C" bool attention_mma_takes(const struct device_attention *h)
{
    int64_t size = h->n.width / h->heads;
    return h->kept == DEVICE_BF16 && size % 8 == 0 && size <= ATTENTION_MMA_SIZE;
}

extern "C" cudaError_t attention_mma_forward(cudaStream_t stream, const struct device_attention *h)
{
    struct attention_work w = attention_work_of(h, TILE);
    dim3 blocks = attention_blocks(h, &w);
    w.to = h->o;
    if (w.size <= 32)
        return run_forward<32>(stream, blocks, &w);
    if (w.size <= 64)
        return run_forward<64>(stream, blocks, &w);
    if (w.size <= 96)
        return run_forward<96>(stream, blocks, &w);
    return run_forward<128>(stream, blocks, &w);
}

extern "C" cudaError_t attention_mma_backward(cudaStream_t stream, const struct device_attention *h,
                                              const void *d_o, void *dqkv, float *delta)
{
    struct attention_work w = attention_work_of(h, TILE);
    dim3 blocks = attention_blocks(h, &w);
    int64_t lines = h->n.rows * h->heads * h->n.context;
    w.d_o = d_o;
    w.to = dqkv;
    w.delta = delta;
    if (w.size <= 32)
        return run_backward<32>(stream, blocks, &w, lines);
    if (w.size <= 64)
        return run_backward<64>(stream, blocks, &w, lines);
    if (w.size <= 96)
        return run_backward<96>(stream, blocks, &w, lines);
    return run_backward<128>(stream, blocks, &w, lines);
}
