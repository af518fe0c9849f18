/* The gradient of residual and layer norm. With n = (x - mean) / deviation and w = dy gain:
 *   dx = (w - mean(w) - n mean(w n)) / deviation,
 * and over all rows dgain is the sum of dy n, dshift that of dy, and dbias that of what goes to delta.
 *
 * A block takes every gridDim.x-th row, and reads its next row while it computes one. It keeps the sums over its rows in
 * registers (wide kernel: in the workspace). So each column has up to 1000 partial sums, which fold_parts adds. */
#include "trainer/device/cuda/kernels/fold.cuh"
#include "trainer/device/cuda/kernels/norm.cuh"

enum { NORM_GRAD_BLOCKS = 1024 }; /* the most, unless the GPU has more multiprocessors */

struct norm_grad_work {
    struct device_norm_grad h;
    struct dropout_draw draw;
    float *parts; /* (gridDim.x,3,width): of gain, shift, bias */
    int multiprocessors;
};

/* One place of a row; zeros behind the end of the row. */
template <int VEC> struct norm_place {
    floats<VEC> n, w, dy;
};
struct norm_row {
    int64_t t, first;      /* the row, and its first element */
    float mean, inverse;   /* of x; 1 / deviation */
    float mean_w, mean_wn; /* at first this thread's sums, then the means of the row */
};

static __device__ __forceinline__ struct norm_row norm_row_of(const struct device_norm_grad *h, int64_t t)
{
    struct norm_row r = {t, t * h->n.width, h->stats[2 * t], h->stats[2 * t + 1], 0.0f, 0.0f};
    return r;
}

template <int VEC>
static __device__ __forceinline__ norm_place<VEC>
norm_place_of(const struct norm_row *r, const floats<VEC> &dy, const floats<VEC> &x, const floats<VEC> &gain)
{
    norm_place<VEC> p;
    p.dy = dy;
#pragma unroll
    for (int j = 0; j < VEC; j++) {
        p.n.at[j] = (x.at[j] - r->mean) * r->inverse;
        p.w.at[j] = dy.at[j] * gain.at[j];
    }
    return p;
}

template <class T, int VEC>
static __device__ __forceinline__ norm_place<VEC> norm_grad_load(const struct device_norm_grad *h,
                                                                 const struct norm_row *r, int at)
{
    norm_place<VEC> p;
    clear(&p.n);
    clear(&p.w);
    clear(&p.dy);
    if (at >= h->n.width)
        return p;
    return norm_place_of<VEC>(r, load<VEC>(static_cast<const T *>(h->dy) + r->first + at),
                              load<VEC>(h->x + r->first + at), load<VEC>(h->gain + at));
}

template <int VEC>
static __device__ __forceinline__ void norm_grad_see(struct norm_row *r, const norm_place<VEC> &p)
{
#pragma unroll
    for (int j = 0; j < VEC; j++) {
        r->mean_w += p.w.at[j];
        r->mean_wn += p.w.at[j] * p.n.at[j];
    }
}

/* Turns the threads' sums into the means of the row, both with one barrier. A slow warp may still read `room` when a
 * fast one writes the sums of the next row, so rows alternate between two rooms. */
static __device__ __forceinline__ void norm_grad_means(struct norm_row *r, int64_t width, float room[2][32])
{
    int warps = (int)(blockDim.x / 32), warp = (int)(threadIdx.x / 32), lane = (int)(threadIdx.x % 32);
    float w = warp_sum(r->mean_w), wn = warp_sum(r->mean_wn);
    if (lane == 0) {
        room[0][warp] = w;
        room[1][warp] = wn;
    }
    __syncthreads();
    r->mean_w = warp_sum(lane < warps ? room[0][lane] : 0.0f) / (float)width;
    r->mean_wn = warp_sum(lane < warps ? room[1][lane] : 0.0f) / (float)width;
}

/* The value that dx is added to; zeros if dx is to be set. */
template <class T, int VEC>
static __device__ __forceinline__ floats<VEC> norm_grad_before(const struct device_norm_grad *h,
                                                               const struct norm_row *r, int at)
{
    floats<VEC> d;
    clear(&d);
    if (at < h->n.width && !h->set)
        d = load<VEC>(static_cast<const T *>(h->dx) + r->first + at);
    return d;
}

/* Stores dx at one place, and the part of it that goes to delta, which is multiplied by dropout's factors. Returns that
 * part. */
template <class T, int VEC>
static __device__ __forceinline__ floats<VEC>
norm_grad_leave(const struct norm_grad_work *w, const struct norm_row *r, int at, const floats<VEC> &n,
                const floats<VEC> &weighted, floats<VEC> d)
{
    const struct device_norm_grad *h = &w->h;
    bool there = at < h->n.width;
#pragma unroll
    for (int j = 0; j < VEC; j++)
        d.at[j] += (weighted.at[j] - r->mean_w - n.at[j] * r->mean_wn) * r->inverse;
    if (there)
        store<VEC>(static_cast<T *>(h->dx) + r->first + at, d);
    if (!h->ddelta && !h->dbias)
        return d;
    norm_drop<VEC>(&d, &w->draw, &h->n, r->t, at); /* also behind the end: a warp draws its mask together */
    if (there && h->ddelta)
        store<VEC>(static_cast<T *>(h->ddelta) + r->first + at, d);
    return d;
}

template <int VEC> static __device__ __forceinline__ void vector_add(floats<VEC> *sum, const floats<VEC> &v)
{
#pragma unroll
    for (int j = 0; j < VEC; j++)
        sum->at[j] += v.at[j];
}
template <int VEC>
static __device__ __forceinline__ void gather_product(floats<VEC> *sum, const floats<VEC> &x,
                                                      const floats<VEC> &y)
{
#pragma unroll
    for (int j = 0; j < VEC; j++)
        sum->at[j] += x.at[j] * y.at[j];
}

template <int VEC, int PER> struct norm_sums {
    floats<VEC> gain[PER], shift[PER], bias[PER];
};

/* A thread's places of a row, as they are in memory. */
template <class T, int VEC, int PER> struct norm_read {
    raw<T, VEC> dy[PER], before[PER]; /* before: what dx is added to; zeros if dx is to be set */
    raw<float, VEC> x[PER];
    float mean, inverse;
};

template <class T, int VEC, int PER> struct norm_kept { /* in registers */
    norm_sums<VEC, PER> sums;
    norm_read<T, VEC, PER> read;
    floats<VEC> gain[PER];
};

template <class T, int VEC, int PER>
static __device__ __forceinline__ void norm_grad_read(const struct device_norm_grad *h, int64_t t,
                                                      norm_read<T, VEC, PER> *to)
{
    to->mean = h->stats[2 * t];
    to->inverse = h->stats[2 * t + 1];
#pragma unroll
    for (int i = 0; i < PER; i++) {
        int at = place_of<VEC>(i);
        int64_t from = t * h->n.width + at;
        if (at >= h->n.width)
            continue;
        load_raw<T, VEC>(&to->dy[i], static_cast<const T *>(h->dy) + from);
        load_raw<float, VEC>(&to->x[i], h->x + from);
        if (!h->set)
            load_raw<T, VEC>(&to->before[i], static_cast<const T *>(h->dx) + from);
    }
}

/* Computes row t, and reads row `next` meanwhile; -1: there is none. */
template <class T, int VEC, int PER>
static __device__ __forceinline__ void norm_grad_row(const struct norm_grad_work *w, int64_t t, int64_t next,
                                                     norm_kept<T, VEC, PER> *k, float room[2][32])
{
    const struct device_norm_grad *h = &w->h;
    struct norm_row r = {t, t * h->n.width, k->read.mean, k->read.inverse, 0.0f, 0.0f};
    norm_place<VEC> p[PER];
    raw<T, VEC> before[PER];
#pragma unroll
    for (int i = 0; i < PER; i++) {
        int at = place_of<VEC>(i);
        clear(&p[i].n);
        clear(&p[i].w);
        clear(&p[i].dy);
        if (at < h->n.width)
            p[i] = norm_place_of<VEC>(&r, widen<T, VEC>(k->read.dy[i]), widen<float, VEC>(k->read.x[i]),
                                      k->gain[i]);
        before[i] = k->read.before[i];
        norm_grad_see<VEC>(&r, p[i]);
        gather_product<VEC>(&k->sums.gain[i], p[i].dy, p[i].n);
        vector_add<VEC>(&k->sums.shift[i], p[i].dy);
    }
    if (next >= 0)
        norm_grad_read<T, VEC, PER>(h, next, &k->read);
    norm_grad_means(&r, h->n.width, room);
#pragma unroll
    for (int i = 0; i < PER; i++) {
        int at = place_of<VEC>(i);
        floats<VEC> d = widen<T, VEC>(before[i]);
        vector_add<VEC>(&k->sums.bias[i], norm_grad_leave<T, VEC>(w, &r, at, p[i].n, p[i].w, d));
    }
}

template <class T, int VEC, int PER>
static __global__ void __launch_bounds__(512, VEC *PER <= 4 ? 2 : 1) norm_grad_kernel(struct norm_grad_work w)
{
    __shared__ float room[2][2][32]; /* two rooms: see norm_grad_means */
    int64_t width = w.h.n.width, tokens = w.h.n.rows * w.h.n.context;
    int turn = 0;
    norm_kept<T, VEC, PER> k;
#pragma unroll
    for (int i = 0; i < PER; i++) {
        clear(&k.sums.gain[i]);
        clear(&k.sums.shift[i]);
        clear(&k.sums.bias[i]);
        clear(&k.gain[i]);
        clear(&k.read.before[i]);
        if (place_of<VEC>(i) < width)
            k.gain[i] = load<VEC>(w.h.gain + place_of<VEC>(i));
    }
    norm_grad_read<T, VEC, PER>(&w.h, blockIdx.x, &k.read);
    for (int64_t t = blockIdx.x; t < tokens; t += gridDim.x, turn = 1 - turn) {
        norm_grad_row<T, VEC, PER>(&w, t, t + gridDim.x < tokens ? t + gridDim.x : -1, &k, room[turn]);
    }
    float *to = w.parts + (int64_t)blockIdx.x * 3 * width;
#pragma unroll
    for (int i = 0; i < PER; i++) {
        int at = place_of<VEC>(i);
        if (at >= width)
            continue;
        store<VEC>(to + at, k.sums.gain[i]);
        store<VEC>(to + width + at, k.sums.shift[i]);
        store<VEC>(to + 2 * width + at, k.sums.bias[i]);
    }
}

/* to = v for the first row, to += v afterwards. Only this thread uses these sums in the workspace. */
template <int VEC> static __device__ __forceinline__ void add_up(float *to, floats<VEC> v, bool first)
{
    if (!first)
        vector_add<VEC>(&v, load<VEC>(to));
    store<VEC>(to, v);
}

/* The same for rows that do not fit into registers: each row is read twice, for the means and for the gradients. */
template <class T, int VEC>
static __global__ void __launch_bounds__(NORM_THREADS) norm_grad_wide_kernel(struct norm_grad_work w)
{
    __shared__ float room[2][2][32]; /* two rooms: see norm_grad_means */
    int64_t width = w.h.n.width, tokens = w.h.n.rows * w.h.n.context;
    float *to = w.parts + (int64_t)blockIdx.x * 3 * width;
    int places = places_of<VEC>(width), turn = 0;
    for (int64_t t = blockIdx.x; t < tokens; t += gridDim.x, turn = 1 - turn) {
        struct norm_row r = norm_row_of(&w.h, t);
        bool first = t == blockIdx.x;
        for (int i = 0; i < places; i++)
            norm_grad_see<VEC>(&r, norm_grad_load<T, VEC>(&w.h, &r, place_of<VEC>(i)));
        norm_grad_means(&r, width, room[turn]);
        for (int i = 0; i < places; i++) {
            int at = place_of<VEC>(i);
            norm_place<VEC> p = norm_grad_load<T, VEC>(&w.h, &r, at);
            floats<VEC> before = norm_grad_before<T, VEC>(&w.h, &r, at), gain;
            floats<VEC> d = norm_grad_leave<T, VEC>(&w, &r, at, p.n, p.w, before);
            if (at >= width)
                continue;
            clear(&gain);
            gather_product<VEC>(&gain, p.dy, p.n);
            add_up<VEC>(to + at, gain, first);
            add_up<VEC>(to + width + at, p.dy, first);
            add_up<VEC>(to + 2 * width + at, d, first);
        }
    }
}

/* ---- on the host */

/* As many blocks as can run at once, so that none starts only when others have ended: `resident` fit on each
 * multiprocessor, given the floats that a thread keeps in registers. The partial sums of all blocks must fit into the
 * workspace. The sums depend on the number of blocks, so they are the same on GPUs of one kind only. */
static unsigned norm_grad_blocks(const struct norm_grad_work *w, unsigned threads, int each)
{
    const struct device_norm_grad *h = &w->h;
    int64_t tokens = h->n.rows * h->n.context, room = FOLD_FLOATS / (3 * h->n.width);
    int64_t resident = (each <= 4 ? 1024 : 512) / (int64_t)threads;
    int64_t most = min(room, (int64_t)NORM_GRAD_BLOCKS) / w->multiprocessors;
    int64_t blocks = w->multiprocessors * max((int64_t)1, min(resident, most));
    return (unsigned)min(tokens, max((int64_t)1, min(blocks, room)));
}

static cudaError_t norm_grad_fold(cudaStream_t stream, const struct norm_grad_work *w, unsigned blocks)
{
    const struct device_norm_grad *h = &w->h;
    struct fold_work f = {
        {h->dgain, h->dshift, h->dbias}, w->parts, (int64_t)blocks, 3 * h->n.width, h->n.width};
    return fold_parts(stream, &f, 3);
}

template <class T, int VEC, int PER>
static cudaError_t norm_grad_launch(cudaStream_t stream, const struct norm_grad_work *w)
{
    unsigned threads = threads_of(w->h.n.width, VEC * PER);
    unsigned blocks = norm_grad_blocks(w, threads, VEC * PER);
    LAUNCH((norm_grad_kernel<T, VEC, PER>), blocks, threads, 0, stream, *w);
    return norm_grad_fold(stream, w, blocks);
}

template <class T, int VEC>
static cudaError_t norm_grad_wide(cudaStream_t stream, const struct norm_grad_work *w)
{
    unsigned blocks = norm_grad_blocks(w, NORM_THREADS, VEC);
    LAUNCH((norm_grad_wide_kernel<T, VEC>), blocks, NORM_THREADS, 0, stream, *w);
    return norm_grad_fold(stream, w, blocks);
}

template <class T> static cudaError_t run_norm_grad(cudaStream_t stream, const struct norm_grad_work *w)
{
    const struct device_norm_grad *h = &w->h;
    int64_t width = h->n.width;
    bool vectors = width % 4 == 0 && aligned(h->dy) && aligned(h->x) && aligned(h->gain) && aligned(h->dx) &&
                   aligned(h->ddelta);
    if (!vectors)
        return width <= 1024 ? norm_grad_launch<T, 1, 2>(stream, w) : norm_grad_wide<T, 1>(stream, w);
    if (width <= 2048)
        return norm_grad_launch<T, 4, 1>(stream, w);
    return width <= 4096 ? norm_grad_launch<T, 4, 2>(stream, w) : norm_grad_wide<T, 4>(stream, w);
}

cudaError_t cuda_norm_grad(cudaStream_t stream, const struct cuda_workspace *room,
                           const struct device_norm_grad *h)
{
    struct norm_grad_work w;
    w.h = *h;
    w.draw = dropout_draw_of(&h->dropout);
    w.parts = static_cast<float *>(room->memory);
    w.multiprocessors = room->multiprocessors;
    if (h->n.width > NORM_WIDTH || h->type != h->kept)
        return cudaErrorInvalidValue;
    if (h->n.rows * h->n.context <= 0)
        return cudaSuccess;
    return h->type == DEVICE_F32 ? run_norm_grad<float>(stream, &w) : run_norm_grad<uint16_t>(stream, &w);
}
