#ifndef DDP_TRAINER_DEVICE_CUDA_ATTENTION_TILES_CUH
#define DDP_TRAINER_DEVICE_CUDA_ATTENTION_TILES_CUH

#include "trainer/device/cuda/kernels/attention.cuh"
#include "trainer/device/cuda/kernels/copy.cuh"
#include "trainer/device/cuda/kernels/mma.cuh"

/* Tiles of bf16 in shared memory, as a block of four warps uses them: see attention.cu. A row of a tile has WIDE
 * elements: those of the head, then zeros. Rows lie WIDE + 8 elements apart, which spreads eight rows over all memory
 * banks. */

#define THREADS 128
#define TILE 64
#define MASK_BYTES 8 /* of a line: one bit for each of TILE keys */

struct lane {
    int warp, group, pair;       /* see mma.cuh */
    int row, half;               /* the row and column that this lane gives to mma_load */
    int column_row, column_half; /* the same if the tile's rows are columns of the product */
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

/* Starts to copy `from` (rows,size), with rows ld elements apart, into tile (ROWS,WIDE), and fills the rest with zeros.
 * The tile is complete after mma_tile_wait. */
template <int ROWS, int WIDE>
static __device__ __forceinline__ void mma_tile_fetch(uint16_t *tile, const uint16_t *from, int64_t ld,
                                                      int64_t rows, int64_t size)
{
    for (int i = (int)threadIdx.x; i < ROWS * WIDE / 8; i += THREADS) {
        int row = i / (WIDE / 8), column = i % (WIDE / 8) * 8;
        bool there = row < rows && column < size;
        copy_begin<16>(tile + row * (WIDE + 8) + column, there ? from + row * ld + column : from, there);
    }
}

/* A barrier for the block: all copies that its threads have started are complete, and no thread still reads a tile of
 * the step before, so that it may be overwritten. */
static __device__ __forceinline__ void mma_tile_wait(void)
{
    copy_wait();
    __syncthreads();
}

/* c (16,8 N) = left (16,WIDE) right (8 N,WIDE)^T. left points at the warp's first row. */
template <int N, int WIDE>
static __device__ __forceinline__ void mma_scores(const struct lane *l, float c[N][4], const uint16_t *left,
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

/* sum (16,WIDE) += p (16,8 N) right (8 N,WIDE). p is rounded to bf16. */
template <int N, int WIDE>
static __device__ __forceinline__ void mma_weighted_sum(const struct lane *l, float sum[WIDE / 8][4],
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

/* Draws the dropout masks of LINES queries and TILE keys: bit k of a line is set if its key k is kept. A counter of the
 * random generator gives one key in each quarter of a line (dropout.cuh). So a thread draws eight keys in each quarter,
 * and every byte has one writer. */
template <int LINES>
static __device__ __forceinline__ void mma_draw_masks(uint8_t *kept, const struct attention_work *w,
                                                      const struct attention_place *at, int64_t query,
                                                      int64_t key)
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

/* The mask of this lane's keys of a line: bits 8 n and 8 n + 1 are keys 8 n + pair and the next. */
static __device__ __forceinline__ uint64_t mask_of(const struct attention_work *w, const uint8_t *kept,
                                                   int line, int pair)
{
    return w->draw.on ? *(const uint64_t *)(kept + line * MASK_BYTES) >> pair : ~(uint64_t)0;
}

static __device__ __forceinline__ bool is_kept(uint64_t mask, int n, int i)
{
    return mask >> (n * 8 + i % 2) & 1;
}

/* Writes a warp's sums c (16,size) to rows that lie ld elements apart, of which `rows` exist. The upper eight rows are
 * multiplied by `low`, the lower eight by `high`. */
template <int WIDE>
static __device__ __forceinline__ void mma_store_rows(const struct lane *l, uint16_t *to, int64_t ld,
                                                      int64_t rows, int64_t size, const float c[WIDE / 8][4],
                                                      float low, float high)
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

#endif
