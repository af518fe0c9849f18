#ifndef DDP_TRAINER_DEVICE_DEVICE_H
#define DDP_TRAINER_DEVICE_DEVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/isa.h"

/* A device holds tensors and computes with them: a table of functions. Matrices are dense and row-major.
 * Pointers named x, y, p, g, ... point to memory of ops->alloc (or of coll_alloc, for parameters and
 * gradients). Operations may run after the call has returned; ops->wait waits for them, and returns the first
 * error. A device belongs to one thread.
 *
 * Element-wise operations and reductions of the CPU device give the same bits on every CPU. Each rank applies
 * the optimizer itself, so the optimizer's bits must not depend on the instruction set. */

enum device_kind { DEVICE_CPU, DEVICE_CUDA };

/* The type that matrix products read. bf16 is the upper half of a float, rounded to nearest even. Sums are
 * float. Everything that is kept from step to step is float, too: parameters, gradients, moments, the
 * residual, statistics.
 *
 * "kept" below is the type of the other values, which one operation hands to the next within a step:
 * device_kept(). It is float, unless the device uses another type when products read bf16. */
enum device_type { DEVICE_F32, DEVICE_BF16 };
static inline size_t device_size(enum device_type type)
{
    return type == DEVICE_BF16 ? 2 : 4;
}
/* DEVICE_GELU is exact, x Phi(x); DEVICE_GELU_TANH is the tanh form (both: Hendrycks and Gimpel, arXiv
 * 1606.08415). */
enum device_activation { DEVICE_RELU, DEVICE_GELU, DEVICE_TANH, DEVICE_GELU_TANH };

/* The sums of a loss over the rows that it was computed for. */
struct device_tally {
    double loss;    /* sum over rows */
    double correct; /* number of rows whose largest output is that of the label; 0 for mse */
};

/* Sequences: rows x context tokens, each a vector of width floats; a token's row in a matrix is
 * row * context + position. */
struct device_tokens {
    int64_t rows, context, width;
};

/* Inverted dropout: an element is kept with probability 1 - p and multiplied by 1 / (1 - p). Element i of
 * line l of a row is kept if 32 pseudo-random bits are not below p 2^32. The bits are word i / 16 % 4 of
 * Philox4x32-7 (Salmon et al., SC11) with `key` and counter (i / 64 * 16 + i % 16, l, sample). Therefore no
 * mask is stored, and it does not matter which rank computes a row. The line is the token's position; in
 * attention, it is head * context + position of the query. */
struct device_dropout {
    float p;               /* 0: no dropout */
    uint64_t key;          /* made of the seed, the step and the place in the model */
    const int64_t *sample; /* (rows): the sample number of each row */
};

/* x (tokens,width) = dropout(wte[token] + wpe[position]). */
struct device_embedding {
    struct device_tokens n;
    const int32_t *token; /* (rows,context) */
    int64_t vocab;
    struct device_dropout dropout;
    enum device_type kept; /* of the gradient of x */
};

/* Residual and layer norm (Ba et al., arXiv 1607.06450) in one: x = residual + dropout(delta + bias), y =
 * gain (x - mean) / sqrt(variance + 1e-5) + shift, mean and variance over the width. */
struct device_norm {
    struct device_tokens n;
    struct device_dropout dropout;
    const float *residual;     /* (tokens,width) */
    const void *delta;         /* (tokens,width) kept; NULL: x is the residual, unchanged */
    const float *bias;         /* (width) */
    const float *gain, *shift; /* (width) */
    /* (tokens,width); may be the memory of residual or delta; is that of residual if delta is NULL */
    float *x;
    float *stats;                /* (tokens,2): mean, 1 / sqrt(variance + 1e-5) */
    enum device_type type, kept; /* type: of y */
    void *y;                     /* (tokens,width) */
};

/* The gradient of device_norm. Adds (dL/dy)(dy/dx) to dx, or overwrites dx with it if `set`. Afterwards dx is
 * the gradient of the whole residual. Then come the gradients of what was added to the residual: ddelta = dx
 * under the dropout's mask, dbias += column sums of ddelta before it is rounded. Without dropout, dx serves as ddelta if it has
 * the same type. */
struct device_norm_grad {
    struct device_tokens n;
    struct device_dropout dropout;
    const void *dy; /* (tokens,width) kept */
    const float *x, *stats, *gain;
    bool set;
    void *dx;                      /* (tokens,width) kept */
    float *dgain, *dshift, *dbias; /* dbias may be NULL: not computed */
    enum device_type type, kept;   /* type: of ddelta */
    void *ddelta;                  /* NULL: not computed */
};

/* Causal attention of every head: o = dropout(softmax(q k^T / sqrt(width / heads))) v, where a query sees its
 * own position and the positions before it. The matrix of scores is never stored as a whole, only strips of
 * 64 queries. Backward computes the scores again from `lse`, the log of each softmax's sum (Dao et al., arXiv
 * 2205.14135). */
struct device_attention {
    struct device_tokens n;
    int64_t heads;
    struct device_dropout dropout;
    /* type: a device whose kept type is float may round the factors of products to it; kept: see device_attended */
    enum device_type type, kept;
    const void *qkv; /* (tokens,3 width) kept: q, k and v of a token, each ordered by head */
    void *o;         /* (tokens,width) kept; backward reads it */
    float *lse;      /* (rows,heads,context): log of the sum of e^score; backward reads it */
};

/* c (m,n) = op(a) (m,k) op(b) (k,n) + beta c. op transposes if its flag is set: then a is (k,m), or b is
 * (n,k). */
struct device_product {
    enum device_type type, out; /* type: of a and b; out: of c, F32 if beta is not 0 */
    bool trans_a, trans_b;
    int64_t m, n, k;
    const void *a, *b;
    float beta;
    void *c;
    /* true: candidate algorithms are not timed to choose one. Each rank computes this product for itself, and
     * measured times could choose different algorithms, and so different bits, on two ranks. */
    bool untuned;
};

/* A layer: z (rows,out) = x (rows,in) w + bias and, unless a is NULL, a = f(z). */
struct device_linear {
    enum device_type type, kept; /* type: of x, w and a; kept: of z */
    bool trans_w;                /* true: w is (out,in); false: (in,out) */
    int64_t rows, in, out;
    const void *x, *w;
    const float *bias; /* (out) */
    const void *typed; /* the bias as `type`, if that exists, too; else NULL */
    void *z;
    enum device_activation kind;
    void *a; /* NULL: not computed */
};

/* The gradient of an activation a = f(z) that a layer with weights w follows. From dy, the gradient of the
 * layer's output: da = dy w^T, dz = da f'(z). Also computes a again, unless it is NULL, so that it need not be
 * kept. */
struct device_activation_grad {
    enum device_activation kind;
    enum device_type type, kept; /* type: of dy, w, dz and a; kept: of z */
    int64_t rows, in, out;
    const void *dy, *w; /* (rows,out), (in,out) */
    const void *z;      /* (rows,in), as dz and a */
    void *dz, *a;
};

/* The gradient of a layer's weights and bias. From dy, the gradient of the layer's output: dw += x^T dy, dbias +=
 * column sums of dy; or, if `set`, dw = x^T dy and dbias = column sums of dy. */
struct device_weight_grad {
    enum device_type type; /* of x and dy */
    int64_t rows, in, out;
    const void *x, *dy; /* (rows,in), (rows,out) */
    float *dw, *dbias;  /* (in,out), (out) */
    bool set;
};

/* Softmax and cross-entropy: dx (rows,classes) = (softmax(x) - onehot(label)) * scale, and tally += weight
 * times the sums over rows. A row's loss is log sum exp(x) - x[label]. Rows of x and dx begin `stride`
 * elements apart. The elements between classes and stride are ignored in x and set to zero in dx, so that
 * products can use rows of a convenient length. */
struct device_classes {
    enum device_type type, kept;   /* type: of dx; kept: of x */
    int64_t rows, classes, stride; /* stride: at least classes */
    const int32_t *label;          /* (rows) */
    void *x;                       /* overwritten */
    void *dx;                      /* NULL: not computed; may be x if type and kept are the same */
    float scale;
    double weight;
    struct device_tally *tally;
};

/* The largest sizes that a model will use. With them a device allocates its internal memory beforehand. */
struct device_sizes {
    struct device_tokens n;
    int64_t heads, vocab, head_rows; /* head_rows: number of tokens whose logits exist at the same time */
    enum device_type type;
    bool dropout; /* training uses dropout, so backward does, too */
};

struct device_adamw {
    float lr, beta1, beta2, eps, weight_decay;
    float correction1, correction2; /* 1 - beta1^t, 1 - beta2^t */
    const float *scale;             /* device memory: factor of the gradient, for clipping; NULL: 1 */
    void *narrowed; /* adamw: p is also written here as bf16, if the device narrows; NULL: it is not */
};
struct device_sgd {
    float lr, momentum, weight_decay;
    bool nesterov;
    const float *scale; /* as in device_adamw, as narrowed */
    void *narrowed;
};

/* A matrix (rows,cols) in the flat arrays, whose row r begins at offset + r stride; scale: of its update. */
struct device_matrix {
    size_t offset;
    int64_t rows, cols, stride;
    float scale;
};
/* Muon (Jordan et al., 2024, https://kellerjordan.github.io/posts/muon), for each matrix and its gradient d:
 *     m = momentum m + d
 *     x = u / |u| with u = d + momentum m, by Frobenius' norm
 *     five Newton-Schulz steps x = 3.4445 x + (-4.7750 x x^T + 2.0315 (x x^T)^2) x, which bring the singular
 *         values of x near 1 (x^T x behind x, where that is smaller than x x^T)
 *     p = (1 - lr weight_decay) p - lr scale x
 * A CPU computes in float, and gives the same bits on every CPU and with any number of threads. A GPU gives the
 * same bits in every process on the same model of GPU. */
struct device_muon {
    float lr, momentum, weight_decay;
    const float *scale;                   /* as above */
    enum device_type kept;                /* of x from one product to the next */
    const struct device_matrix *matrices; /* host */
    size_t count;
    void *room;     /* device memory of muon_bytes; what is in it is lost */
    void *narrowed; /* as in device_adamw; at the same places as p */
};

struct buf;
/* brief: "cuDNN 9.19.0", "own kernels". values: "forward=... backward=... workspace_bytes=...", with reasons. */
struct device_attention_text {
    char brief[64], values[768];
};

struct device;
struct device_ranges; /* trainer/device/ranges.h */
/* Each operation has a row in the tables of cpu/cpu.c, cuda/operations.c and tests/num/strict_ops.c. */
struct device_ops {
    const char *name;
    void (*close)(struct device *d);
    /* Waits for all operations. Returns the first error since the last wait. */
    enum err_code (*wait)(struct device *d, struct err *e);
    /* Allocates zeroed memory, 64-byte aligned. RESOURCE_EXHAUSTED: out of memory. */
    enum err_code (*alloc)(struct device *d, size_t bytes, void **out, struct err *e);
    /* May wait for all of the device's work, and may wait forever if a peer hangs. Do not call it while the
     * device's own collectives (comm.h) are running. */
    void (*free)(struct device *d, void *p);
    /* Has read from_host when it returns, even if the device is still working. */
    void (*upload)(struct device *d, void *to, const void *from_host, size_t bytes);
    /* Waits for the data. After an error, sets to_host to zero. */
    void (*download)(struct device *d, void *to_host, const void *from, size_t bytes);
    /* Optional. Copies to the host while the device computes, and returns when the data is there. The caller has
     * waited for the operations that wrote the memory, and meanwhile gives the device no operation that changes it.
     * Any thread may call it, one at a time. `wait` does not return its error. */
    enum err_code (*fetch)(struct device *d, void *to_host, const void *from, size_t bytes, struct err *e);
    void (*copy)(struct device *d, void *to, const void *from, size_t bytes);
    void (*zero)(struct device *d, void *to, size_t bytes);

    /* Optional. The work between `record` and `recorded` is stored under the key (not 0) and also executed.
     * `replay` executes it again, or returns false if nothing is stored under the key. Only for work that is
     * the same each time: same pointers, same shapes, no dropout, no upload or download. `recorded` returns
     * false if the recording failed. Then nothing was executed: do the work again without recording, and
     * record nothing from then on. NULL: the device cannot record. */
    void (*record)(struct device *d, uint64_t key);
    bool (*recorded)(struct device *d);
    bool (*replay)(struct device *d, uint64_t key);
    /* Optional. The device calls `check` from time to time while wait or download waits. An error of `check`
     * ends the wait and becomes its error. If `check` is NULL, the device calls nothing. */
    void (*watch)(struct device *d, enum err_code (*check)(void *arg, struct err *e), void *arg);

    void (*product)(struct device *d, const struct device_product *h);
    void (*linear)(struct device *d, const struct device_linear *h);
    void (*narrow)(struct device *d, void *bf16, const float *x, size_t n);
    /* db += column sums of dy (rows,cols); type: of dy */
    void (*bias_grad)(struct device *d, enum device_type type, float *db, const void *dy, int64_t rows,
                      int64_t cols);
    void (*activate)(struct device *d, enum device_activation kind, float *y, const float *x, size_t n);
    /* dx = dy * f'(x); dx may be dy. */
    void (*activate_grad)(struct device *d, enum device_activation kind, float *dx, const float *dy,
                          const float *x, size_t n);

    /* The gradient of linear's activation: dz = da f'(z), dbias += column sums of dz. Also computes a again,
     * so that it need not be kept; a may be NULL on a device with a known `memory`. All matrices are (rows,cols); dz and a have `type`, da and z have `kept`.
     * dz may be da if the types are the same. */
    void (*bias_activate_grad)(struct device *d, enum device_activation kind, enum device_type type,
                               enum device_type kept, void *dz, void *a, float *dbias, const void *da,
                               const void *z, int64_t rows, int64_t cols);
    /* Optional. Computes the product that makes da, and bias_activate_grad without dbias, without storing da.
     * Returns false if the device cannot do that; then nothing was computed. */
    bool (*activation_grad)(struct device *d, const struct device_activation_grad *h);
    /* Optional. Computes the product that makes dw, and bias_grad, and reads dy once for both. Returns false if the
     * device cannot do that; then nothing was computed. */
    bool (*weight_grad)(struct device *d, const struct device_weight_grad *h);

    void (*embed)(struct device *d, const struct device_embedding *h, const float *wte, const float *wpe,
                  float *x);
    /* dwte += and dwpe += the gradients of the embedding. Multiplies dx (kept) by the dropout's mask, in place. */
    void (*embed_grad)(struct device *d, const struct device_embedding *h, float *dwte, float *dwpe,
                       void *dx);
    void (*norm)(struct device *d, const struct device_norm *h);
    void (*norm_grad)(struct device *d, const struct device_norm_grad *h);
    void (*attention)(struct device *d, const struct device_attention *h);
    /* Computes dqkv (tokens,3 width) from d_o (tokens,width), both kept. */
    void (*attention_grad)(struct device *d, const struct device_attention *h, const void *d_o, void *dqkv);
    /* Allocates the internal memory of the operations above for shapes up to `sizes`. */
    enum err_code (*reserve)(struct device *d, const struct device_sizes *sizes, struct err *e);
    /* Optional. How the device computes attention of the shape that was reserved last, for people, as values of a log
     * line. "": no attention was reserved. Waits for what `reserve` does in the background; `workspace` is right then. */
    void (*attention_says)(struct device *d, struct device_attention_text *out);

    void (*cross_entropy)(struct device *d, const struct device_classes *h);
    /* A row's loss is the mean of (x - y)^2 over its columns: dx = 2 (x - y) / cols * scale, tally.loss +=
     * sum of the rows' losses. */
    void (*mse)(struct device *d, float *dx, const float *x, const float *y, int64_t rows, int64_t cols,
                float scale, struct device_tally *tally);

    /* The next operations compute a step's decisions on the device, so that the host need not wait. All
     * pointers are device memory. */
    /* to = (float)(tally.loss / divisor) */
    void (*tally_mean)(struct device *d, float *to, const struct device_tally *tally, double divisor);
    /* out = sum of x^2 */
    void (*sum_squares)(struct device *d, const float *x, size_t n, double *out);
    /* Optional. sums[i] = digest64_sum (base/digest.h) of block i of x; the last block may be short. With it,
     * only the sums of a large array go to the host to be compared. */
    void (*digest)(struct device *d, uint64_t *sums, const float *x, size_t n);
    /* scale = min(1, clip / (sqrt(squares) + 1e-6)), in double */
    void (*clip_scale)(struct device *d, float *scale, const double *squares, double clip);
    void (*scale)(struct device *d, float *x, size_t n, float by);     /* x *= by */
    void (*add)(struct device *d, float *y, const float *x, size_t n); /* y += x */
    void (*sgd)(struct device *d, const struct device_sgd *h, float *p, const float *g, float *v, size_t n);
    void (*adamw)(struct device *d, const struct device_adamw *h, float *p, const float *g, float *m,
                  float *v, size_t n);
    /* Optional, both. adamw of all the ranges of p, g and m at once. The second moments of a range begin at v + its
     * `second`. Also writes the ranges of p, rounded, to the same places of narrowed (bf16), unless that is NULL.
     * zero_ranges sets all the ranges of x to zero. */
    void (*adamw_ranges)(struct device *d, const struct device_adamw *h, const struct device_ranges *ranges,
                         float *p, const float *g, float *m, float *v, void *narrowed);
    void (*zero_ranges)(struct device *d, const struct device_ranges *ranges, float *x);
    /* Of all the matrices; each lies in p, g and m at the same place. */
    void (*muon)(struct device *d, const struct device_muon *h, float *p, const float *g, float *m);
    size_t (*muon_bytes)(const struct device *d, const struct device_muon *h);

    /* Optional, all three. Between choose(true) and choose(false), each product of a shape without a choice runs several
     * times in several ways, and the fastest way is chosen; so what the operations compute then is only good for
     * being thrown away. choices prints all choices as text. take_choices replaces them by those of a text.
     * FAILED_PRECONDITION: the text is of another kind of device, or of another version of its library. DATA_LOSS: it is
     * damaged. The bits of products depend on the choices. */
    void (*choose)(struct device *d, bool on);
    void (*choices)(struct device *d, struct buf *out);
    enum err_code (*take_choices)(struct device *d, const char *text, size_t size, struct err *e);
};

struct comm_ops;
struct device {
    const struct device_ops *ops;
    const struct comm_ops *comm; /* the device's own collectives, see comm.h; NULL: none */
    const char *no_comm;         /* why there are none, if the device should have some; else NULL */
    char name[96];               /* for people: "cpu:avx512", "NVIDIA H200, CUDA 13.0". Devices of
                    * one name compute the same bits */
    /* True: its memory is ordinary memory of this process, so upload and download are not needed. */
    bool host;
    enum device_type kept; /* see device_kept */
    bool narrows;          /* sgd, adamw and muon can also write the parameters as bf16 */
    bool attends_bf16;     /* products and attention read bf16; false: a CPU widens it. See device_attended */
    int threads;           /* number of CPU threads; 1 for other devices */
    /* For people: the hardware threads that this process is pinned to, and their NUMA nodes, "8-15" and "1". "": it is not pinned. */
    char cores[96], numa_nodes[32];
    size_t memory; /* this process's part of all its own memory, used or not; 0: unknown, or the host's */
    size_t logits_bytes; /* the user's limit for the logits that exist at the same time; 0: none is set */
    bool chooses;        /* choose is to be used (DDP_CUDA_TUNE) */
    size_t bytes;        /* memory that callers have allocated now */
    size_t workspace;    /* internal memory in addition */
};

static inline enum device_type device_kept(const struct device *d, enum device_type type)
{
    return type == DEVICE_BF16 ? d->kept : DEVICE_F32;
}

/* The type of qkv, o and their gradients, if products read `type`. It is bf16 also on a CPU whose attention rounds them anyway. */
static inline enum device_type device_attended(const struct device *d, enum device_type type)
{
    return type == DEVICE_BF16 && d->attends_bf16 ? DEVICE_BF16 : device_kept(d, type);
}

/* Opens a device of this kind. local_ranks processes share this node's cores: this process is pinned to part
 * number local_rank of the cores that it may use (cpu/pin.h); -1: it is not pinned. threads: number of compute threads; 0: as
 * many as each part has cores. Call it before any other thread exists. A CUDA device is the first GPU that this process may see.
 * UNAVAILABLE: there is no GPU or no plugin for it (plugin.h); the message is one line. */
MUST_CHECK enum err_code device_open(struct device **out, enum device_kind kind, int local_rank,
                                     int local_ranks, int threads, struct err *e);
void device_close(struct device *d); /* NULL is fine */

/* Measures the rate of matrix products that this device reaches with a shape that suits it, in floating-point
 * operations per second. Takes some tens of milliseconds, and uses the device's threads. Reports call this
 * rate the peak. */
MUST_CHECK enum err_code device_peak(struct device *d, enum device_type type, double *flops, struct err *e);

/* Fills device memory with random numbers of both signs between 0.5 and 2, to measure with. On zeros a GPU multiplies faster than on
 * data, because it needs less power: 894 TFLOP/s beside 788 on an H200. */
void device_fill_random(struct device *d, enum device_type type, void *to, size_t count);

/* Allocates zeroed device memory. RESOURCE_EXHAUSTED: the message names `what` and its size. */
MUST_CHECK enum err_code device_alloc(struct device *d, size_t bytes, const char *what, void **out,
                                      struct err *e);

#endif
