#ifndef DDP_TRAINER_DEVICE_DEVICE_H
#define DDP_TRAINER_DEVICE_DEVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

/* Where tensors live and are computed: a vtable. Matrices are dense, row-major. Pointers named x, y, p, g,
 * ... are memory of ops->alloc (or of coll_alloc, for parameters and gradients). Operations may run behind
 * the caller's back; an error sticks and shows in ops->wait. A device belongs to one thread.
 *
 * Element-wise operations and reductions of the CPU device give the same bits on every CPU: ranks apply the
 * optimizer each for itself, so its bits must not depend on the instruction set. */

enum device_kind { DEVICE_CPU, DEVICE_CUDA };

/* What a matrix product reads. bf16 is the upper half of a float, rounded to nearest even. Sums are float,
 * and so is everything that is kept from step to step: parameters, gradients, moments, the residual,
 * statistics.
 *
 * "kept" below is the type of what goes from one operation to the next besides: device_kept(), which is float
 * unless the device says otherwise for products that read bf16. */
enum device_type { DEVICE_F32, DEVICE_BF16 };
static inline size_t device_size(enum device_type type)
{
    return type == DEVICE_BF16 ? 2 : 4;
}
/* GELU exact, x Phi(x), and in its tanh form (both Hendrycks and Gimpel, arXiv 1606.08415). */
enum device_activation { DEVICE_RELU, DEVICE_GELU, DEVICE_TANH, DEVICE_GELU_TANH };

/* What a loss adds up over the rows it saw. */
struct device_tally {
    double loss;    /* sum over rows */
    double correct; /* rows whose largest output is the label's; 0 for mse */
};

/* Sequences: rows x context tokens, each a vector of width floats; a token's row in a matrix is
 * row * context + position. */
struct device_tokens {
    int64_t rows, context, width;
};

/* Inverted dropout: an element is kept with probability 1 - p and multiplied by 1 / (1 - p). Element i of
 * line l of a row is kept when the 32 bits that Philox4x32-7 (Salmon et al., SC11) makes of key and counter
 * (i / 64 * 16 + i % 16, l, sample) are not below p 2^32, word i / 16 % 4: so nothing is stored, and who
 * computes a row does not matter. Lines are positions; of attention, head * context + position of the query.
 */
struct device_dropout {
    float p;               /* 0: none */
    uint64_t key;          /* of the seed, the step and the place in the model */
    const int64_t *sample; /* (rows): who each row is */
};

/* x (tokens,width) = dropout(wte[token] + wpe[position]). */
struct device_embedding {
    struct device_tokens n;
    const int32_t *token; /* (rows,context) */
    int64_t vocab;
    struct device_dropout dropout;
};

/* Residual and layer norm (Ba et al., arXiv 1607.06450) in one: x = residual + dropout(delta + bias), y =
 * gain (x - mean) / sqrt(variance + 1e-5) + shift, mean and variance over the width. */
struct device_norm {
    struct device_tokens n;
    struct device_dropout dropout;
    const float *residual;       /* (tokens,width) */
    const void *delta;           /* (tokens,width) kept; NULL: x is the residual, and stays there */
    const float *bias;           /* (width) */
    const float *gain, *shift;   /* (width) */
    float *x;                    /* (tokens,width); may be residual or delta; without delta it is residual */
    float *stats;                /* (tokens,2): mean, 1 / sqrt(variance + 1e-5) */
    enum device_type type, kept; /* type: of y */
    void *y;                     /* (tokens,width) */
};

/* dx += d loss / d x by way of y (set: dx =), which makes dx the whole residual's gradient; from it those of
 * what was added: ddelta = dx under the dropout's mask, dbias += column sums of ddelta. */
struct device_norm_grad {
    struct device_tokens n;
    struct device_dropout dropout;
    const void *dy; /* (tokens,width) kept */
    const float *x, *stats, *gain;
    bool set;
    float *dx;
    float *dgain, *dshift, *dbias; /* dbias NULL: not wanted */
    enum device_type type, kept;   /* type: of ddelta */
    void *ddelta;                  /* NULL: not wanted */
};

/* Causal attention of every head: o = dropout(softmax(q k^T / sqrt(width / heads))) v, where a query sees
 * itself and what lies before it. The matrix of scores exists in strips of 64 queries only; backward makes
 * them again from the log of each softmax's sum (Dao et al., arXiv 2205.14135). */
struct device_attention {
    struct device_tokens n;
    int64_t heads;
    struct device_dropout dropout;
    enum device_type kept;
    const void *qkv; /* (tokens,3 width) kept: q, k, v, each by heads */
    void *o;         /* (tokens,width) kept; of backward read */
    float *lse;      /* (rows,heads,context): log of the sum of e^score; of backward read */
};

/* c (m,n) = op(a) (m,k) op(b) (k,n) + beta c; op transposes when its flag is set: then a is (k,m), b is
 * (n,k). */
struct device_product {
    enum device_type type, out; /* of a and b; of c, which is float where beta is not 0 */
    bool trans_a, trans_b;
    int64_t m, n, k;
    const void *a, *b;
    float beta;
    void *c;
};

/* A layer: z (rows,out) = x (rows,in) w + bias, and, where it is wanted, a = f(z). */
struct device_linear {
    enum device_type type, kept; /* type: of x, w and a; kept: of z */
    bool trans_w;                /* w is (out,in), else (in,out) */
    int64_t rows, in, out;
    const void *x, *w;
    const float *bias; /* (out) */
    const void *typed; /* the bias of `type`, where that is there, too; else NULL */
    void *z;
    enum device_activation kind;
    void *a; /* NULL: not wanted */
};

/* Back through an activation a = f(z) and the layer w behind it, from its dy: da = dy w^T, dz = da f'(z),
 * dbias += column sums of dz, and a once more, so that it need not be kept. */
struct device_activation_grad {
    enum device_activation kind;
    enum device_type type, kept; /* type: of dy, w, dz and a; kept: of z */
    int64_t rows, in, out;
    const void *dy, *w; /* (rows,out), (in,out) */
    const void *z;      /* (rows,in), like dz and a */
    void *dz, *a;
    float *dbias; /* (in) */
};

/* Softmax and cross-entropy in one: dx (rows,classes) = (softmax(x) - onehot(label)) * scale, and tally +=
 * weight times the rows' sums. A row's loss is log sum exp(x) - x[label]. Rows lie `stride` elements apart,
 * in x and dx; what is behind the classes is passed over in x, and zero in dx: so products can work on rows
 * of a convenient length. */
struct device_classes {
    enum device_type type, kept;   /* of dx; of x */
    int64_t rows, classes, stride; /* stride: at least classes */
    const int32_t *label;          /* (rows) */
    void *x;                       /* lost */
    void *dx;                      /* NULL: not wanted; may be x where they are of one type */
    float scale;
    double weight;
    struct device_tally *tally;
};

/* The largest a model will ask for, so that everything inside is allocated beforehand. */
struct device_sizes {
    struct device_tokens n;
    int64_t heads, vocab, head_rows; /* head_rows: tokens whose logits exist at a time */
    enum device_type type;
    bool dropout; /* in training: what backward does has it */
};

struct device_adamw {
    float lr, beta1, beta2, eps, weight_decay;
    float correction1, correction2; /* 1 - beta1^t, 1 - beta2^t */
    const float *scale;             /* device memory: applied to the gradient first (clipping); NULL: 1 */
};
struct device_sgd {
    float lr, momentum, weight_decay;
    bool nesterov;
    const float *scale; /* as above */
};

struct device;
struct device_ops {
    const char *name;
    void (*close)(struct device *d);
    enum err_code (*wait)(struct device *d,
                          struct err *e); /* until all is done; the first error since the last wait */

    enum err_code (*alloc)(struct device *d, size_t bytes, void **out,
                           struct err *e); /* zeroed, 64-byte aligned */
    /* May wait for all that the device does, without an end where a peer hangs: not while collectives of
     * its own (comm.h) are in flight. */
    void (*free)(struct device *d, void *p);
    void (*upload)(struct device *d, void *to, const void *from_host,
                   size_t bytes); /* from_host may change on return, whatever still runs */
    void (*download)(struct device *d, void *to_host, const void *from,
                     size_t bytes); /* waits until it is there; after an error to_host is zeroed */
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
    /* db += column sums of dy (rows,cols), which is of `type` */
    void (*bias_grad)(struct device *d, enum device_type type, float *db, const void *dy, int64_t rows,
                      int64_t cols);
    void (*activate)(struct device *d, enum device_activation kind, float *y, const float *x, size_t n);
    /* dx = dy * f'(x); dx may be dy. */
    void (*activate_grad)(struct device *d, enum device_activation kind, float *dx, const float *dy,
                          const float *x, size_t n);

    /* Back from linear's a: dz = da f'(z), dbias += column sums of dz, and a once more, so that it need not
     * be kept. All (rows,cols), dz and a of `type`, da and z kept; dz may be da where they are of one type.
     */
    void (*bias_activate_grad)(struct device *d, enum device_activation kind, enum device_type type,
                               enum device_type kept, void *dz, void *a, float *dbias, const void *da,
                               const void *z, int64_t rows, int64_t cols);
    /* Optional. The product that makes da, and the above, without da; false: nothing was done. */
    bool (*activation_grad)(struct device *d, const struct device_activation_grad *h);

    void (*embed)(struct device *d, const struct device_embedding *h, const float *wte, const float *wpe,
                  float *x);
    /* dwte, dwpe += ; dx is under the dropout's mask afterwards. */
    void (*embed_grad)(struct device *d, const struct device_embedding *h, float *dwte, float *dwpe,
                       float *dx);
    void (*norm)(struct device *d, const struct device_norm *h);
    void (*norm_grad)(struct device *d, const struct device_norm_grad *h);
    void (*attention)(struct device *d, const struct device_attention *h);
    /* dqkv (tokens,3 width) from d_o (tokens,width), both kept. */
    void (*attention_grad)(struct device *d, const struct device_attention *h, const void *d_o, void *dqkv);
    /* Room for what these need inside. */
    enum err_code (*reserve)(struct device *d, const struct device_sizes *sizes, struct err *e);

    void (*cross_entropy)(struct device *d, const struct device_classes *h);
    /* Mean square over a row's columns: dx = 2 (x - y) / cols * scale, tally.loss += sum over rows of the
     * mean. */
    void (*mse)(struct device *d, float *dx, const float *x, const float *y, int64_t rows, int64_t cols,
                float scale, struct device_tally *tally);

    /* What a step decides without asking the host; all in device memory. */
    void (*tally_mean)(struct device *d, float *to, const struct device_tally *tally,
                       double divisor); /* to = (float)(loss / divisor) */
    void (*sum_squares)(struct device *d, const float *x, size_t n, double *out);
    /* Optional. sums[i] = digest64_sum (base/digest.h) of the i-th block of x, the last one may be short: so
     * that not all of a large array must go to the host to be compared. */
    void (*digest)(struct device *d, uint64_t *sums, const float *x, size_t n);
    void (*clip_scale)(struct device *d, float *scale, const double *squares,
                       double clip); /* min(1, clip / (sqrt(squares) + 1e-6)), in double */
    void (*scale)(struct device *d, float *x, size_t n, float by);     /* x *= by */
    void (*add)(struct device *d, float *y, const float *x, size_t n); /* y += x */
    void (*sgd)(struct device *d, const struct device_sgd *h, float *p, const float *g, float *v, size_t n);
    void (*adamw)(struct device *d, const struct device_adamw *h, float *p, const float *g, float *m,
                  float *v, size_t n);
};

struct comm_ops;
struct device {
    const struct device_ops *ops;
    const struct comm_ops *comm; /* its own collectives, comm.h; NULL: none */
    char name[96];               /* for people: "cpu", "NVIDIA H200, CUDA 13.0" */
    bool host; /* its memory is ordinary memory of this process: upload and download are not needed */
    enum device_type kept; /* see device_kept */
    int threads;           /* 1 where it is no CPU */
    size_t bytes;          /* allocated now */
    size_t workspace;      /* besides, inside */
};

static inline enum device_type device_kept(const struct device *d, enum device_type type)
{
    return type == DEVICE_BF16 ? d->kept : DEVICE_F32;
}

/* local_ranks processes share this node's cores: this one takes the local_rank-th part of those it may run
 * on, and is pinned there; threads: how many it starts, 0: one for each of its cores. Call it before any
 * other thread exists. A CUDA device is the first GPU that this process may see; where there is none, or no
 * plugin for it (plugin.h), UNAVAILABLE says why in one line. */
MUST_CHECK enum err_code device_open(struct device **out, enum device_kind kind, int local_rank,
                                     int local_ranks, int threads, struct err *e);
void device_close(struct device *d); /* NULL is fine */

/* The rate of matrix products that this device reaches on one of a kind that suits it, in floating-point
 * operations a second: measured, for some tens of milliseconds, with the device's threads. What a report
 * calls its peak. */
MUST_CHECK enum err_code device_peak(struct device *d, enum device_type type, double *flops, struct err *e);

/* RESOURCE_EXHAUSTED names `what` and its size. */
MUST_CHECK enum err_code device_alloc(struct device *d, size_t bytes, const char *what, void **out,
                                      struct err *e);

#endif
