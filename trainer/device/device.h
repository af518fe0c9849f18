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
/* GELU exact, x Phi(x), and in its tanh form (both Hendrycks and Gimpel, arXiv 1606.08415). */
enum device_activation { DEVICE_RELU, DEVICE_GELU, DEVICE_TANH, DEVICE_GELU_TANH };

/* What a loss adds up over the rows it saw. */
struct device_tally {
    double loss;    /* sum over rows */
    double correct; /* rows whose largest output is the label's; 0 for mse */
};

struct device_adamw {
    float lr, beta1, beta2, eps, weight_decay;
    float correction1, correction2; /* 1 - beta1^t, 1 - beta2^t */
    float scale;                    /* applied to the gradient first (clipping) */
};
struct device_sgd {
    float lr, momentum, weight_decay;
    bool nesterov;
    float scale;
};

struct device;
struct device_ops {
    const char *name;
    void (*close)(struct device *d);
    enum err_code (*wait)(struct device *d,
                          struct err *e); /* until all is done; the first error since the last wait */

    enum err_code (*alloc)(struct device *d, size_t bytes, void **out,
                           struct err *e); /* zeroed, 64-byte aligned */
    void (*free)(struct device *d, void *p);
    void (*upload)(struct device *d, void *to, const void *from_host, size_t bytes);
    void (*download)(struct device *d, void *to_host, const void *from, size_t bytes);
    void (*copy)(struct device *d, void *to, const void *from, size_t bytes);
    void (*zero)(struct device *d, void *to, size_t bytes);

    /* c (m,n) = op(a) (m,k) op(b) (k,n) + beta c; op transposes when its flag is set: then a is (k,m), b is
     * (n,k). */
    void (*matmul)(struct device *d, bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k,
                   const float *a, const float *b, float beta, float *c);
    void (*bias)(struct device *d, float *y, const float *b, int64_t rows,
                 int64_t cols); /* y (rows,cols) += b (cols) */
    void (*bias_grad)(struct device *d, float *db, const float *dy, int64_t rows,
                      int64_t cols); /* db += column sums */
    void (*activate)(struct device *d, enum device_activation kind, float *y, const float *x, size_t n);
    /* dx = dy * f'(x); dx may be dy. */
    void (*activate_grad)(struct device *d, enum device_activation kind, float *dx, const float *dy,
                          const float *x, size_t n);

    /* Softmax and cross-entropy in one: dx (rows,classes) = (softmax(x) - onehot(label)) * scale, tally += .
     * dx may be NULL (evaluation) or x. A row's loss is log sum exp(x) - x[label]. */
    void (*cross_entropy)(struct device *d, float *dx, const float *x, const int32_t *label, int64_t rows,
                          int64_t classes, float scale, struct device_tally *tally);
    /* Mean square over a row's columns: dx = 2 (x - y) / cols * scale, tally.loss += sum over rows of the
     * mean. */
    void (*mse)(struct device *d, float *dx, const float *x, const float *y, int64_t rows, int64_t cols,
                float scale, struct device_tally *tally);

    void (*sum_squares)(struct device *d, const float *x, size_t n, double *out);
    void (*sgd)(struct device *d, const struct device_sgd *h, float *p, const float *g, float *v, size_t n);
    void (*adamw)(struct device *d, const struct device_adamw *h, float *p, const float *g, float *m,
                  float *v, size_t n);
};

struct device {
    const struct device_ops *ops;
    bool host; /* its memory is ordinary memory of this process: upload and download are not needed */
    int threads;
    size_t bytes; /* allocated now */
};

/* local_ranks processes share this node's cores: this one takes the local_rank-th part of those it may run
 * on, and is pinned there. Call it before any other thread exists. UNIMPLEMENTED for a device that this build
 * has not. */
MUST_CHECK enum err_code device_open(struct device **out, enum device_kind kind, int local_rank,
                                     int local_ranks, struct err *e);
void device_close(struct device *d); /* NULL is fine */

/* RESOURCE_EXHAUSTED names `what` and its size. */
MUST_CHECK enum err_code device_alloc(struct device *d, size_t bytes, const char *what, void **out,
                                      struct err *e);

#endif
