/* Embedding and its gradient. Many tokens of a batch are the same, so the gradient of a token's row of wte is a sum,
 * whose order must not depend on which block is first. The positions are sorted by token with a stable radix sort, and
 * each block takes a tile of the sorted list. A run (the positions of one token) that lies within a tile is added to
 * its row at once. For a run that crosses tiles, each tile leaves a partial sum, and the tile where the run began adds
 * them. A frequent token costs no more than others, and every sum follows the order of the positions, by tiles. */
#include "trainer/device/cuda/kernels/dropout.cuh"
#include "trainer/device/cuda/kernels/fold.cuh"

enum {
    THREADS = 256,
    DIGITS = 256,     /* of the radix sort: eight bits a pass; also the threads of its blocks */
    SORT_TILE = 1024, /* entries of a block of the sort */
    SCAN_THREADS = 1024,
    RUN_TILE = 64, /* entries of a block of the sums */
    RUN_THREADS = 128,
    RUN_BATCH = 8 /* loads in flight */
};

/* ---- forward */

struct embed_work {
    struct device_embedding h;
    struct dropout_draw draw;
    const float *wte, *wpe;
    float *x;
    void *dx; /* backward */
    float *dwpe;
};

/* x (B,T,C) = wte[token] + wpe[position], with dropout. A block takes one token. All lanes of a warp stay in the loop
 * to the end of the row, because they draw the dropout mask together. */
template <int VEC> static __global__ void embed_kernel(struct embed_work w)
{
    int64_t t = blockIdx.x, width = w.h.n.width, row = t / w.h.n.context, line = t % w.h.n.context;
    const float *token = w.wte + (int64_t)w.h.token[t] * width, *place = w.wpe + line * width;
    for (int64_t first = 0; first < width; first += (int64_t)blockDim.x * VEC) {
        int64_t at = first + (int64_t)threadIdx.x * VEC;
        floats<VEC> v, p;
        clear(&v);
        clear(&p);
        if (at < width) {
            v = load<VEC>(token + at);
            p = load<VEC>(place + at);
        }
#pragma unroll
        for (int j = 0; j < VEC; j++)
            v.at[j] += p.at[j];
        if (w.draw.on)
            dropout_drop<VEC>(&v, &w.draw, row, line, at);
        if (at < width)
            store<VEC>(w.x + t * width + at, v);
    }
}

/* ---- gradient: rows of the positions, and dx with dropout's factors */

/* dwpe (T,C) += the sum over the rows of dx (B,T,C), which is multiplied by dropout's factors first, in place. A block
 * takes a part of one position. Lanes behind the end of the row go on, because a warp draws the mask together. */
template <class T, int VEC> static __global__ void places_kernel(struct embed_work w)
{
    int64_t line = blockIdx.x, width = w.h.n.width;
    int64_t at = ((int64_t)blockIdx.y * blockDim.x + threadIdx.x) * VEC;
    bool there = at < width;
    floats<VEC> sum, v;
    clear(&sum);
    clear(&v);
#pragma unroll 4
    for (int64_t row = 0; row < w.h.n.rows; row++) {
        T *dx = static_cast<T *>(w.dx) + (row * w.h.n.context + line) * width + at;
        if (there)
            v = load<VEC>(dx);
        if (w.draw.on) { /* the sorted sums below read dx with the factors */
            dropout_drop<VEC>(&v, &w.draw, row, line, at);
            if (there)
                store<VEC>(dx, v);
        }
#pragma unroll
        for (int j = 0; j < VEC; j++)
            sum.at[j] += v.at[j];
    }
    if (!there)
        return;
    floats<VEC> to = load<VEC>(w.dwpe + line * width + at);
#pragma unroll
    for (int j = 0; j < VEC; j++)
        to.at[j] += sum.at[j];
    store<VEC>(w.dwpe + line * width + at, to);
}

/* ---- gradient: sorting
 *
 * A pass sorts by eight bits of the token, in three kernels: each block counts its digits, a scan turns the counts into
 * the places where each block's entries of a digit go, and each block moves its entries there. */

struct sort_work {
    const int32_t *token; /* the tokens before this pass */
    const int32_t *from;  /* their positions before this pass; NULL: 0, 1, ... */
    int32_t *to_token, *to;
    int32_t *counts; /* (DIGITS,blocks), then the place of each block's first entry of a digit */
    int64_t n;
    int shift;
};

static __device__ __forceinline__ int digit_of(const struct sort_work *w, int64_t i)
{
    return (int)((uint32_t)w->token[i] >> w->shift & (DIGITS - 1));
}

/* Counts of integers are the same in any order, so atomics are fine here. */
static __global__ void sort_count_kernel(struct sort_work w)
{
    __shared__ int counts[DIGITS];
    int64_t first = (int64_t)blockIdx.x * SORT_TILE, end = min(w.n, first + SORT_TILE);
    counts[threadIdx.x] = 0;
    __syncthreads();
    for (int64_t i = first + threadIdx.x; i < end; i += DIGITS)
        atomicAdd(&counts[digit_of(&w, i)], 1);
    __syncthreads();
    w.counts[(int64_t)threadIdx.x * gridDim.x + blockIdx.x] = counts[threadIdx.x];
}

/* An exclusive scan: each count becomes the sum of those before it. One block. */
static __global__ void __launch_bounds__(SCAN_THREADS) sort_scan_kernel(int32_t *counts, int64_t n)
{
    __shared__ int sums[SCAN_THREADS];
    int64_t each = (n + SCAN_THREADS - 1) / SCAN_THREADS, first = (int64_t)threadIdx.x * each;
    int64_t end = min(n, first + each);
    int sum = 0;
    for (int64_t i = first; i < end; i++)
        sum += counts[i];
    sums[threadIdx.x] = sum;
    /* An inclusive scan of the threads' sums. The barriers separate reading the sums from changing them. */
    for (unsigned by = 1; by < SCAN_THREADS; by *= 2) {
        __syncthreads();
        int before = threadIdx.x >= by ? sums[threadIdx.x - by] : 0;
        __syncthreads();
        sums[threadIdx.x] += before;
    }
    sum = sums[threadIdx.x] - sum; /* of the threads before */
    for (int64_t i = first; i < end; i++) {
        int count = counts[i];
        counts[i] = sum;
        sum += count;
    }
}

/* The lanes of the warp that have the same digit as this lane. Lanes without an entry have digit -1. */
static __device__ __forceinline__ unsigned lanes_alike(int digit)
{
    unsigned alike = __ballot_sync(0xffffffffu, digit >= 0);
#pragma unroll
    for (int bit = 0; bit < 8; bit++) {
        unsigned set = __ballot_sync(0xffffffffu, digit >> bit & 1);
        alike &= digit >> bit & 1 ? set : ~set;
    }
    return alike;
}

/* Moves a block's entries to their places, 256 at a time. Entries of the same digit keep their order: those of earlier
 * rounds first, then of lower warps, then of lower lanes. */
static __global__ void sort_move_kernel(struct sort_work w)
{
    __shared__ int next[DIGITS], starts[DIGITS / 32][DIGITS];
    int warp = (int)(threadIdx.x / 32), lane = (int)(threadIdx.x % 32);
    int64_t first = (int64_t)blockIdx.x * SORT_TILE;
    /* next: the place of the next entry of each digit. starts: first a warp's count of a digit, then its place. */
    next[threadIdx.x] = w.counts[(int64_t)threadIdx.x * gridDim.x + blockIdx.x];
    for (int64_t i = first + threadIdx.x; i - threadIdx.x < min(w.n, first + SORT_TILE); i += DIGITS) {
        int digit = i < w.n ? digit_of(&w, i) : -1;
        for (int j = 0; j < DIGITS / 32; j++)
            starts[j][threadIdx.x] = 0;
        __syncthreads(); /* all counts are 0 */
        unsigned alike = lanes_alike(digit), before = alike & ((1u << lane) - 1);
        if (digit >= 0 && before == 0)
            starts[warp][digit] = __popc(alike);
        __syncthreads(); /* all warps have counted; now each thread places one digit */
        int start = next[threadIdx.x];
        for (int j = 0; j < DIGITS / 32; j++) {
            int count = starts[j][threadIdx.x];
            starts[j][threadIdx.x] = start;
            start += count;
        }
        next[threadIdx.x] = start;
        __syncthreads(); /* all places are known */
        if (digit >= 0) {
            int to = starts[warp][digit] + __popc(before);
            w.to_token[to] = w.token[i];
            w.to[to] = w.from ? w.from[i] : (int32_t)i;
        }
        __syncthreads(); /* the next round clears starts */
    }
}

/* ---- gradient: sums of runs */

struct run_work {
    const int32_t *token, *from; /* sorted */
    const void *dx;
    float *dwte;
    /* (tiles,width): partial sums of a run that began in an earlier tile, and of one that goes on in the next. */
    float *heads, *tails;
    int64_t n, width;
};

template <int VEC> static __device__ __forceinline__ void add_to(float *to, const floats<VEC> &v)
{
    floats<VEC> old = load<VEC>(to);
#pragma unroll
    for (int j = 0; j < VEC; j++)
        old.at[j] += v.at[j];
    store<VEC>(to, old);
}

/* Entry i ends a run or a tile, so its sum is stored. begun: the first entry of the run in this tile. */
template <int VEC>
static __device__ __forceinline__ void run_leave(const struct run_work *w, int64_t tile, int64_t begun,
                                                 int64_t i, int64_t at, const floats<VEC> &sum)
{
    int32_t token = w->token[i];
    /* A run that fills the whole tile and goes on both ways is a head. */
    if (begun == tile * RUN_TILE && begun > 0 && w->token[begun - 1] == token)
        store<VEC>(w->heads + tile * w->width + at, sum);
    else if (i + 1 < w->n && w->token[i + 1] == token)
        store<VEC>(w->tails + tile * w->width + at, sum);
    else
        add_to<VEC>(w->dwte + (int64_t)token * w->width + at, sum);
}

/* The sums of all runs in one tile, for a part of the columns. dx is (B,T,C), here (n,width). */
template <class T, int VEC> static __global__ void runs_kernel(struct run_work w)
{
    int64_t tile = blockIdx.x, first = tile * RUN_TILE, end = min(w.n, first + RUN_TILE), begun = first;
    int64_t at = ((int64_t)blockIdx.y * RUN_THREADS + threadIdx.x) * VEC;
    floats<VEC> sum, part[RUN_BATCH];
    if (at >= w.width)
        return;
    clear(&sum);
    for (int64_t i = first; i < end; i += RUN_BATCH) {
        /* First load a whole batch, so that its loads are in flight together; then add in order. */
#pragma unroll
        for (int b = 0; b < RUN_BATCH; b++)
            if (i + b < end)
                part[b] = load<VEC>(static_cast<const T *>(w.dx) + (int64_t)w.from[i + b] * w.width + at);
#pragma unroll
        for (int b = 0; b < RUN_BATCH; b++) {
            if (i + b >= end)
                continue;
#pragma unroll
            for (int j = 0; j < VEC; j++)
                sum.at[j] += part[b].at[j];
            if (i + b + 1 < end && w.token[i + b + 1] == w.token[i + b])
                continue;
            run_leave<VEC>(&w, tile, begun, i + b, at, sum);
            clear(&sum);
            begun = i + b + 1;
        }
    }
}

/* If a run began in this tile and goes on in the next, adds its partial sums in order. */
template <int VEC> static __global__ void join_kernel(struct run_work w)
{
    int64_t tile = blockIdx.x, first = tile * RUN_TILE, next = first + RUN_TILE;
    int64_t at = ((int64_t)blockIdx.y * RUN_THREADS + threadIdx.x) * VEC;
    if (at >= w.width || next >= w.n)
        return;
    int32_t token = w.token[next - 1];
    if (w.token[next] != token || (first > 0 && w.token[first - 1] == token))
        return; /* the last run ends in this tile, or began in an earlier one */
    floats<VEC> sum = load<VEC>(w.tails + tile * w.width + at);
    for (; next < w.n && w.token[next] == token; next += RUN_TILE) {
        floats<VEC> part = load<VEC>(w.heads + next / RUN_TILE * w.width + at);
#pragma unroll
        for (int j = 0; j < VEC; j++)
            sum.at[j] += part.at[j];
    }
    add_to<VEC>(w.dwte + (int64_t)token * w.width + at, sum);
}

/* ---- on the host */

struct embed_room { /* offsets in the workspace, in bytes */
    size_t lists[2][2], counts, heads, tails, end;
};

static size_t align_room(size_t bytes)
{
    return (bytes + 255) / 256 * 256;
}

static struct embed_room embed_room_of(const struct device_tokens *n)
{
    struct embed_room r;
    size_t tokens = (size_t)(n->rows * n->context), list = align_room(tokens * sizeof(int32_t));
    size_t sums = align_room(blocks_of(tokens, RUN_TILE) * (size_t)n->width * sizeof(float));
    for (int i = 0; i < 4; i++)
        r.lists[i / 2][i % 2] = list * (size_t)i;
    r.counts = 4 * list;
    r.heads = r.counts + align_room(blocks_of(tokens, SORT_TILE) * (size_t)DIGITS * sizeof(int32_t));
    r.tails = r.heads + sums;
    r.end = r.tails + sums;
    return r;
}

size_t cuda_workspace_bytes(const struct device_sizes *sizes)
{
    size_t bytes = (size_t)FOLD_FLOATS * sizeof(float);
    if (!sizes)
        return bytes;
    struct embed_room r = embed_room_of(&sizes->n);
    return r.end > bytes ? r.end : bytes;
}

/* Sorts by as many digits as the vocabulary needs. Leaves the sorted list in w->token and w->from; each pass writes to
 * the lists that the pass before did not write. */
static void sort_tokens(cudaStream_t stream, struct sort_work *w, char *room, const struct embed_room *at,
                        int64_t vocab)
{
    unsigned blocks = blocks_of((size_t)w->n, SORT_TILE);
    int pass = 0;
    for (w->shift = 0; w->shift == 0 || (vocab - 1) >> w->shift > 0; w->shift += 8, pass = 1 - pass) {
        w->to_token = reinterpret_cast<int32_t *>(room + at->lists[pass][0]);
        w->to = reinterpret_cast<int32_t *>(room + at->lists[pass][1]);
        LAUNCH(sort_count_kernel, blocks, DIGITS, 0, stream, *w);
        LAUNCH(sort_scan_kernel, 1, SCAN_THREADS, 0, stream, w->counts, (int64_t)blocks * DIGITS);
        LAUNCH(sort_move_kernel, blocks, DIGITS, 0, stream, *w);
        w->token = w->to_token;
        w->from = w->to;
    }
}

template <class T, int VEC> static cudaError_t add_runs(cudaStream_t stream, const struct run_work *w)
{
    dim3 grid(blocks_of((size_t)w->n, RUN_TILE), blocks_of((size_t)w->width, RUN_THREADS * VEC));
    LAUNCH((runs_kernel<T, VEC>), grid, RUN_THREADS, 0, stream, *w);
    LAUNCH(join_kernel<VEC>, grid, RUN_THREADS, 0, stream, *w);
    return cudaGetLastError();
}

template <class T, int VEC>
static cudaError_t embed_run_grad(cudaStream_t stream, const struct embed_work *w, struct run_work *runs,
                                  char *room)
{
    const struct device_embedding *h = &w->h;
    struct embed_room at = embed_room_of(&h->n);
    struct sort_work s = {h->token, NULL, NULL, NULL, reinterpret_cast<int32_t *>(room + at.counts),
                          runs->n,  0};
    dim3 grid((unsigned)h->n.context, blocks_of((size_t)h->n.width, RUN_THREADS * VEC));
    LAUNCH((places_kernel<T, VEC>), grid, RUN_THREADS, 0, stream, *w);
    sort_tokens(stream, &s, room, &at, h->vocab);
    runs->token = s.token;
    runs->from = s.from;
    runs->heads = reinterpret_cast<float *>(room + at.heads);
    runs->tails = reinterpret_cast<float *>(room + at.tails);
    return add_runs<T, VEC>(stream, runs);
}

template <class T>
static cudaError_t embed_grad_of(cudaStream_t stream, const struct embed_work *w, struct run_work *runs,
                                 char *room)
{
    if (w->h.n.width % 4 == 0 && aligned(runs->dwte) && aligned(w->dwpe) && aligned(w->dx))
        return embed_run_grad<T, 4>(stream, w, runs, room);
    return embed_run_grad<T, 1>(stream, w, runs, room);
}

cudaError_t cuda_embed_grad(cudaStream_t stream, const struct cuda_workspace *room,
                            const struct device_embedding *h, float *dwte, float *dwpe, void *dx)
{
    struct embed_work w = {*h, dropout_draw_of(&h->dropout), NULL, NULL, NULL, dx, dwpe};
    struct run_work runs = {NULL, NULL, dx, dwte, NULL, NULL, h->n.rows * h->n.context, h->n.width};
    char *memory = static_cast<char *>(room->memory);
    if (runs.n <= 0)
        return cudaSuccess;
    if (runs.n > INT32_MAX || embed_room_of(&h->n).end > room->bytes)
        return cudaErrorInvalidValue;
    return h->kept == DEVICE_F32 ? embed_grad_of<float>(stream, &w, &runs, memory)
                                 : embed_grad_of<uint16_t>(stream, &w, &runs, memory);
}

cudaError_t cuda_embed(cudaStream_t stream, const struct device_embedding *h, const float *wte,
                       const float *wpe, float *x)
{
    struct embed_work w = {*h, dropout_draw_of(&h->dropout), wte, wpe, x, NULL, NULL};
    int64_t tokens = h->n.rows * h->n.context;
    if (tokens <= 0)
        return cudaSuccess;
    if (h->n.width % 4 == 0 && aligned(wte) && aligned(wpe) && aligned(x))
        LAUNCH(embed_kernel<4>, (unsigned)tokens, h->n.width > 512 ? THREADS : 128, 0, stream, w);
    else
        LAUNCH(embed_kernel<1>, (unsigned)tokens, THREADS, 0, stream, w);
    return cudaGetLastError();
}
