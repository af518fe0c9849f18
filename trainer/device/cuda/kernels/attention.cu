/* Causal attention of bf16 heads on the tensor cores, by FlashAttention-2 (Dao, arXiv 2307.08691): scores exist only in
 * registers.
 *
 * A block is four warps and computes a tile of 64 queries (forward, and the queries' gradient) or of 64 keys (the keys'
 * and values' gradients); each warp has 16 of them. The block loops over the tiles of the other side in shared memory.
 * They are copied there while the tile before is in use: the next keys while values are weighted, the values while
 * scores are computed. Query i of a tile sees the other tile's keys up to i + reach. Queries behind the end of the row
 * are zeros and add zeros.
 *
 * Each sum is computed by one warp in one order, so results are the same every time. The price: the backward pass
 * computes the scores twice, once for each side.
 *
 * Exponentials are powers of two: e^(score * scale - lse) = 2^(score * scale * log2(e) - lse * log2(e)). */
#include "trainer/device/cuda/attention.h"
#include "trainer/device/cuda/kernels/attention.h"
#include "trainer/device/cuda/kernels/attention_tiles.cuh"

/* Four neighbouring lanes hold a row of a product (mma.cuh). */
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

/* The online softmax over one tile. Row r (0 or 1) of this lane's scores, scaled for base two, becomes e^(score - top),
 * where top is the largest score so far. When top rises, the sum and the output so far are scaled down to match. */
template <int WIDE>
static __device__ __forceinline__ void mma_softmax_row(float s[TILE / 8][4], int r, float *top, float *sum,
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

/* o (B,T,C) and lse (B,heads,T) of one tile of queries, from qkv (B,T,3C). */
template <int WIDE> __global__ void __launch_bounds__(THREADS) mma_forward(struct attention_work w)
{
    /* Shared memory: q, k and v, (TILE,WIDE + 8) each, and the dropout masks of the tile. */
    DYNAMIC_SHARED(uint16_t, shared);
    uint16_t *q = shared, *k = q + TILE * (WIDE + 8), *v = k + TILE * (WIDE + 8);
    uint8_t *kept = (uint8_t *)(v + TILE * (WIDE + 8));
    struct lane l = lane_here();
    struct attention_place at = attention_here(&w, true);
    int64_t ld = 3 * w.width, first = at.tile * TILE;
    const uint16_t *head = (const uint16_t *)w.qkv + at.tokens * ld + at.head * w.size;
    float out[WIDE / 8][4] = {}, top[2] = {-INFINITY, -INFINITY}, sum[2] = {0.0f, 0.0f};
    int line = l.warp * 16 + l.group;

    mma_tile_fetch<TILE, WIDE>(q, head + first * ld, ld, w.context - first, w.size);
    mma_tile_fetch<TILE, WIDE>(k, head + w.width, ld, w.context, w.size);
    for (int64_t key = 0; key <= first; key += TILE) {
        mma_tile_wait(); /* k has arrived, and all warps are done with the v before */
        mma_tile_fetch<TILE, WIDE>(v, head + key * ld + 2 * w.width, ld, w.context - key, w.size);
        if (w.draw.on)
            mma_draw_masks<TILE>(kept, &w, &at, first, key);
        int reach = key < first ? TILE : 0; /* only the tile on the diagonal is masked */
        float s[TILE / 8][4];
        mma_scores<TILE / 8, WIDE>(&l, s, q + l.warp * 16 * (WIDE + 8), k);
#pragma unroll
        for (int n = 0; n < TILE / 8; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                bool seen = n * 8 + l.pair + i % 2 <= line + i / 2 * 8 + reach;
                s[n][i] = seen ? s[n][i] * (w.scale * LOG2E) : -INFINITY;
            }
        mma_tile_wait(); /* v and the masks have arrived, and all warps are done with k */
        if (key < first)
            mma_tile_fetch<TILE, WIDE>(k, head + (key + TILE) * ld + w.width, ld, w.context - key - TILE,
                                       w.size);
        mma_softmax_row<WIDE>(s, 0, &top[0], &sum[0], out);
        mma_softmax_row<WIDE>(s, 1, &top[1], &sum[1], out);
        if (w.draw.on) { /* after the softmax: its sum includes the dropped weights */
            uint64_t mask[2] = {mask_of(&w, kept, line, l.pair), mask_of(&w, kept, line + 8, l.pair)};
#pragma unroll
            for (int n = 0; n < TILE / 8; n++)
#pragma unroll
                for (int i = 0; i < 4; i++)
                    if (!is_kept(mask[i / 2], n, i))
                        s[n][i] = 0.0f;
        }
        mma_weighted_sum<TILE / 8, WIDE>(&l, out, s, v);
    }
    /* Each lane has summed its own columns; now the four lanes of a row add theirs. */
    sum[0] = quad_sum(sum[0]);
    sum[1] = quad_sum(sum[1]);
    for (int r = 0; r < 2; r++)
        if (l.pair == 0 && first + line + r * 8 < w.context)
            w.lse[at.lines + first + line + r * 8] = (top[r] + log2f(sum[r])) * LN2;
    int64_t row = first + l.warp * 16;
    mma_store_rows<WIDE>(&l, (uint16_t *)w.to + (at.tokens + row) * w.width + at.head * w.size, w.width,
                         w.context - row, w.size, out, w.draw.kept / sum[0], w.draw.kept / sum[1]);
}

/* delta (B,heads,T): the sum over d_o o of a token's head, by 16 lanes with eight elements each. It replaces the sum
 * over p dp in the gradient of the softmax, which is equal to it. */
static __global__ void __launch_bounds__(THREADS) mma_delta(struct attention_work w, int64_t lines)
{
    int64_t id = (int64_t)blockIdx.x * (THREADS / 16) + threadIdx.x / 16;
    int column = (int)threadIdx.x % 16 * 8;
    float sum = 0.0f;
    if (id < lines && column < w.size) {
        int64_t group = id / w.context, token = group / w.heads * w.context + id % w.context;
        int64_t at = token * w.width + group % w.heads * w.size + column;
        floats<8> o = load<8>((const uint16_t *)w.o + at), d = load<8>((const uint16_t *)w.d_o + at);
#pragma unroll
        for (int j = 0; j < 8; j++)
            sum = fmaf(o.at[j], d.at[j], sum);
    }
    for (int step = 8; step; step /= 2)
        sum += __shfl_xor_sync(0xffffffffu, sum, step);
    if (id < lines && column == 0)
        w.delta[id] = sum;
}

/* On entry *p is a score q k and *ds is d_o v. On return *p is the weight of the value, without dropout's factor of
 * 1 / (1 - p), and *ds is the gradient of the score, e (dp - delta) with e = e^(score - lse), without `scale`. */
static __device__ __forceinline__ void mma_score_grad(const struct attention_work *w, float *p, float *ds,
                                                      bool seen, bool kept, float lse, float delta)
{
    float e = seen ? power_of_two(*p * (w->scale * LOG2E) - lse) : 0.0f;
    *ds = e * ((kept ? *ds * w->draw.kept : 0.0f) - delta);
    *p = kept ? e : 0.0f;
}

/* dq of one tile of queries, into dqkv (B,T,3C): the sum over the keys of ds k. */
template <int WIDE> __global__ void __launch_bounds__(THREADS) mma_grad_queries(struct attention_work w)
{
    DYNAMIC_SHARED(uint16_t, shared);
    /* Shared memory: q, d_o, k and v, (TILE,WIDE + 8) each, and the dropout masks of the tile. */
    uint16_t *q = shared, *d = q + TILE * (WIDE + 8), *k = d + TILE * (WIDE + 8), *v = k + TILE * (WIDE + 8);
    uint8_t *kept = (uint8_t *)(v + TILE * (WIDE + 8));
    struct lane l = lane_here();
    struct attention_place at = attention_here(&w, true);
    int64_t ld = 3 * w.width, first = at.tile * TILE;
    const uint16_t *head = (const uint16_t *)w.qkv + at.tokens * ld + at.head * w.size;
    float dq[WIDE / 8][4] = {}, lse[2], delta[2];
    int line = l.warp * 16 + l.group;

    mma_tile_fetch<TILE, WIDE>(q, head + first * ld, ld, w.context - first, w.size);
    mma_tile_fetch<TILE, WIDE>(d, (const uint16_t *)w.d_o + (at.tokens + first) * w.width + at.head * w.size,
                               w.width, w.context - first, w.size);
    mma_tile_fetch<TILE, WIDE>(v, head + 2 * w.width, ld, w.context, w.size);
    for (int r = 0; r < 2; r++) {
        bool there = first + line + r * 8 < w.context;
        lse[r] = there ? w.lse[at.lines + first + line + r * 8] * LOG2E : 0.0f;
        delta[r] = there ? w.delta[at.lines + first + line + r * 8] : 0.0f;
    }
    for (int64_t key = 0; key <= first; key += TILE) {
        mma_tile_wait(); /* v has arrived (at first q and d_o, too), and all warps are done with the k before */
        mma_tile_fetch<TILE, WIDE>(k, head + key * ld + w.width, ld, w.context - key, w.size);
        if (w.draw.on)
            mma_draw_masks<TILE>(kept, &w, &at, first, key);
        int reach = key < first ? TILE : 0;
        float s[TILE / 8][4], ds[TILE / 8][4];
        mma_scores<TILE / 8, WIDE>(&l, ds, d + l.warp * 16 * (WIDE + 8), v);
        mma_tile_wait(); /* k and the masks have arrived, and all warps are done with v */
        if (key < first)
            mma_tile_fetch<TILE, WIDE>(v, head + (key + TILE) * ld + 2 * w.width, ld, w.context - key - TILE,
                                       w.size);
        mma_scores<TILE / 8, WIDE>(&l, s, q + l.warp * 16 * (WIDE + 8), k);
        uint64_t mask[2] = {mask_of(&w, kept, line, l.pair), mask_of(&w, kept, line + 8, l.pair)};
#pragma unroll
        for (int n = 0; n < TILE / 8; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                bool seen = n * 8 + l.pair + i % 2 <= line + i / 2 * 8 + reach;
                mma_score_grad(&w, &s[n][i], &ds[n][i], seen, is_kept(mask[i / 2], n, i), lse[i / 2],
                               delta[i / 2]);
            }
        mma_weighted_sum<TILE / 8, WIDE>(&l, dq, ds, k);
    }
    int64_t row = first + l.warp * 16;
    mma_store_rows<WIDE>(&l, (uint16_t *)w.to + (at.tokens + row) * ld + at.head * w.size, ld,
                         w.context - row, w.size, dq, w.scale, w.scale);
}

/* The kernel of the keys takes only STEP queries at a time: besides its two sums, dk and dv, a thread has few registers
 * left for scores. */
#define STEP 32

template <int WIDE> struct query_tile {
    uint16_t q[STEP * (WIDE + 8)], d[STEP * (WIDE + 8)];
    uint8_t kept[STEP * MASK_BYTES];
    float lse[STEP], delta[STEP];
};

template <int WIDE>
static __device__ __forceinline__ void query_tile_fetch(query_tile<WIDE> *to, const struct attention_work *w,
                                                        const struct attention_place *at, int64_t query,
                                                        int64_t key)
{
    int64_t ld = 3 * w->width, column = at->head * w->size, rows = w->context - query;
    mma_tile_fetch<STEP, WIDE>(to->q, (const uint16_t *)w->qkv + (at->tokens + query) * ld + column, ld, rows,
                               w->size);
    mma_tile_fetch<STEP, WIDE>(to->d, (const uint16_t *)w->d_o + (at->tokens + query) * w->width + column,
                               w->width, rows, w->size);
    for (int i = (int)threadIdx.x; i < STEP; i += THREADS) {
        int64_t line = at->lines + query + (i < rows ? i : 0);
        copy_begin<4>(to->lse + i, w->lse + line, i < rows);
        copy_begin<4>(to->delta + i, w->delta + line, i < rows);
    }
    if (w->draw.on)
        mma_draw_masks<STEP>(to->kept, w, at, query, key);
}

/* dk and dv of one tile of keys, into dqkv (B,T,3C): the sums over the queries of ds q and of p d_o. Rows of the
 * products are keys and their columns queries. There are two sets of queries in shared memory: while the block works
 * on one, the next is copied into the other. */
template <int WIDE> __global__ void __launch_bounds__(THREADS) mma_grad_keys(struct attention_work w)
{
    DYNAMIC_SHARED(uint16_t, shared);
    uint16_t *k = shared, *v = k + TILE * (WIDE + 8);
    auto *both = (query_tile<WIDE> *)(v + TILE * (WIDE + 8));
    struct lane l = lane_here();
    struct attention_place at = attention_here(&w, false);
    int64_t ld = 3 * w.width, first = at.tile * TILE;
    const uint16_t *head = (const uint16_t *)w.qkv + (at.tokens + first) * ld + at.head * w.size;
    float dk[WIDE / 8][4] = {}, dv[WIDE / 8][4] = {};

    mma_tile_fetch<TILE, WIDE>(k, head + w.width, ld, w.context - first, w.size);
    mma_tile_fetch<TILE, WIDE>(v, head + 2 * w.width, ld, w.context - first, w.size);
    query_tile_fetch<WIDE>(both, &w, &at, first, first);
    for (int64_t query = first; query < w.context; query += STEP) {
        int half = (int)((query - first) / STEP % 2);
        const query_tile<WIDE> *now = both + half;
        mma_tile_wait(); /* `now` has arrived (at first k and v, too), and all warps are done with the other set */
        if (query + STEP < w.context)
            query_tile_fetch<WIDE>(both + (1 - half), &w, &at, query + STEP, first);
        /* Query j of this set sees the tile's keys up to j + reach. */
        int reach = query - first < TILE ? (int)(query - first) : TILE;
        float p[STEP / 8][4], ds[STEP / 8][4];
        mma_scores<STEP / 8, WIDE>(&l, p, k + l.warp * 16 * (WIDE + 8), now->q);
        mma_scores<STEP / 8, WIDE>(&l, ds, v + l.warp * 16 * (WIDE + 8), now->d);
#pragma unroll
        for (int n = 0; n < STEP / 8; n++)
#pragma unroll
            for (int i = 0; i < 2; i++) {
                int j = n * 8 + l.pair + i;
                uint32_t mask = ~0u; /* bits 0 and 8: this lane's two keys */
                if (w.draw.on)
                    mask = *(const uint16_t *)(now->kept + j * MASK_BYTES + l.warp * 2) >> l.group;
                float lse = now->lse[j] * LOG2E, delta = now->delta[j];
#pragma unroll
                for (int r = 0; r < 2; r++)
                    mma_score_grad(&w, &p[n][2 * r + i], &ds[n][2 * r + i],
                                   l.warp * 16 + l.group + r * 8 <= j + reach, mask >> r * 8 & 1, lse, delta);
            }
        mma_weighted_sum<STEP / 8, WIDE>(&l, dv, p, now->d);
        mma_weighted_sum<STEP / 8, WIDE>(&l, dk, ds, now->q);
    }
    int64_t row = first + l.warp * 16;
    uint16_t *to = (uint16_t *)w.to + (at.tokens + row) * ld + at.head * w.size;
    mma_store_rows<WIDE>(&l, to + w.width, ld, w.context - row, w.size, dk, w.scale, w.scale);
    mma_store_rows<WIDE>(&l, to + 2 * w.width, ld, w.context - row, w.size, dv, w.draw.kept, w.draw.kept);
}

/* ---- from the host */

/* The bytes of `tiles` tiles and of the masks of one. */
template <int WIDE> static size_t mma_shared_bytes(int tiles)
{
    return (size_t)(tiles * TILE * (WIDE + 8)) * 2 + TILE * MASK_BYTES;
}

template <int WIDE>
static cudaError_t mma_run_forward(cudaStream_t stream, dim3 blocks, const struct attention_work *w)
{
    size_t bytes = mma_shared_bytes<WIDE>(3);
    LAUNCH_SHARED(mma_forward<WIDE>, blocks, dim3(THREADS), bytes, stream, *w);
    return cudaPeekAtLastError();
}

template <int WIDE>
static cudaError_t mma_run_backward(cudaStream_t stream, dim3 blocks, const struct attention_work *w,
                                    int64_t lines)
{
    LAUNCH(mma_delta, dim3((unsigned)((lines + 7) / 8)), dim3(THREADS), 0, stream, *w, lines);
    size_t bytes = mma_shared_bytes<WIDE>(2) - TILE * MASK_BYTES + 2 * sizeof(query_tile<WIDE>);
    LAUNCH_SHARED(mma_grad_keys<WIDE>, blocks, dim3(THREADS), bytes, stream, *w);
    bytes = mma_shared_bytes<WIDE>(4);
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
        return mma_run_forward<32>(stream, blocks, &w);
    if (w.size <= 64)
        return mma_run_forward<64>(stream, blocks, &w);
    if (w.size <= 96)
        return mma_run_forward<96>(stream, blocks, &w);
    return mma_run_forward<128>(stream, blocks, &w);
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
        return mma_run_backward<32>(stream, blocks, &w, lines);
    if (w.size <= 64)
        return mma_run_backward<64>(stream, blocks, &w, lines);
    if (w.size <= 96)
        return mma_run_backward<96>(stream, blocks, &w, lines);
    return mma_run_backward<128>(stream, blocks, &w, lines);
}
