#include "trainer/device/cuda/cudnn/attention_cudnn.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"
#include "trainer/device/cuda/cudnn/cudnn_attention.h"
#include "trainer/device/cuda/cudnn/cudnn_faults.h"

/* cuDNN's deterministic backward pass keeps a gradient of the scores in its workspace, two bytes for each. To bound
 * that, the batch is computed in parts of as many rows as the limit allows, at least one. */
enum { PLANS = 64 };

struct entry {
    struct cudnn_heads n;
    bool backward;
    struct err declined; /* why cuDNN does not take the shape; OK: plan is valid */
    struct cudnn_plan plan;
};
struct attention_cudnn {
    struct cudnn lib;
    cudnnHandle_t handle;
    char name[32];
    int64_t most;   /* limit of the workspace, in bytes */
    int capability; /* of the GPU: 90 for 9.0; 0: unknown */
    struct entry plan[PLANS];
    int plans;
};

static void print_version(const struct cudnn *lib, char out[ATTENTION_VERSION])
{
    size_t version = lib->version();
    (void)snprintf(out, ATTENTION_VERSION, "cuDNN %zu.%zu.%zu", version / 10000, version / 100 % 100,
                   version % 100);
}

enum err_code attention_cudnn_version(char out[ATTENTION_VERSION], struct err *e)
{
    struct cudnn lib;
    if (cudnn_load(&lib, e))
        return e->code;
    print_version(&lib, out);
    return ERR_OK;
}

static int gpu_capability(void)
{
    int gpu = 0, major = 0, minor = 0;
    if (cudaGetDevice(&gpu) != cudaSuccess ||
        cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, gpu) != cudaSuccess ||
        cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, gpu) != cudaSuccess)
        return 0;
    return 10 * major + minor;
}

enum err_code attention_cudnn_open(struct attention_cudnn **out, cudaStream_t stream, int64_t most,
                                   struct err *e)
{
    struct cudnn lib;
    cudnnHandle_t handle = NULL;
    if (cudnn_load(&lib, e))
        return e->code;
    cudnnStatus_t status = lib.create(&handle);
    if (status == CUDNN_STATUS_SUCCESS)
        status = lib.set_stream(handle, stream);
    if (status != CUDNN_STATUS_SUCCESS) {
        enum err_code code = cudnn_failed(&lib, status, "handle", e);
        if (handle)
            (void)lib.destroy(handle);
        return code;
    }
    struct attention_cudnn *c = xcalloc(1, sizeof(*c));
    c->most = most;
    c->lib = lib;
    c->handle = handle;
    c->capability = gpu_capability();
    print_version(&lib, c->name);
    *out = c;
    return ERR_OK;
}

void attention_cudnn_free(struct attention_cudnn *c)
{
    if (!c)
        return;
    for (int i = 0; i < c->plans; i++)
        cudnn_plan_release(&c->lib, &c->plan[i].plan);
    (void)c->lib.destroy(c->handle);
    free(c);
}

const char *attention_cudnn_name(const struct attention_cudnn *c)
{
    return c->name;
}

/* Describes attention to cuDNN and makes a plan for it. */
static enum err_code make_plan(struct attention_cudnn *c, struct entry *at, struct err *e)
{
    struct cudnn_graph g;
    const char *fault = cudnn_fault(c->lib.version(), &at->n, at->backward);
    if (fault)
        return err_set(e, ERR_UNIMPLEMENTED, "%s", fault);
    cudnn_graph_init(&g, &c->lib, e);
    if (at->backward)
        cudnn_attention_backward(&g, &at->n);
    else
        cudnn_attention_forward(&g, &at->n);
    struct cudnn_target target = {.handle = c->handle};
    if (at->backward)
        target.first = cudnn_engine_backward(c->lib.version(), c->capability);
    enum err_code code = cudnn_plan_make(&g, &target, &at->plan, e);
    cudnn_graph_release(&g);
    return code;
}

static bool heads_equal(const struct cudnn_heads *a, const struct cudnn_heads *b)
{
    return a->rows == b->rows && a->heads == b->heads && a->context == b->context && a->size == b->size;
}

/* Finds the plan for the shape; `make` allows to make a new one. A refusal is kept, too. NULL: there is no plan. */
static struct entry *plan_for(struct attention_cudnn *c, const struct cudnn_heads *n, bool backward,
                              bool make, struct err *e)
{
    struct entry *at = NULL;
    for (int i = 0; i < c->plans && !at; i++)
        if (c->plan[i].backward == backward && heads_equal(&c->plan[i].n, n))
            at = &c->plan[i];
    if (!at && make && c->plans < PLANS) {
        at = &c->plan[c->plans++];
        *at = (struct entry){.n = *n, .backward = backward};
        if (make_plan(c, at, &at->declined) == ERR_OK)
            at->declined.code = ERR_OK;
    }
    if (at && !at->declined.code)
        return at;
    if (at)
        (void)err_set(e, ERR_UNIMPLEMENTED, "%s", at->declined.msg);
    else
        (void)err_set(e, ERR_UNIMPLEMENTED, "cuDNN: no plan was made for this shape");
    return NULL;
}

/* The shape of one part of the batch. Its rows divide all rows, so that one plan serves every part, and the lse of
 * every part begins at a 16-byte boundary. */
static struct cudnn_heads heads_of_part(const struct attention_cudnn *c, const struct device_attention *h,
                                        bool backward)
{
    struct cudnn_heads n = {h->n.rows, h->heads, h->n.context, h->n.width / h->heads};
    /* One row's gradient of the scores, (heads,context,context) bf16; cuDNN rounds the context up to 64. */
    int64_t wide = (n.context + 63) / 64 * 64, row = n.heads * wide * wide * 2;
    for (int64_t rows = n.rows - 1; backward && rows > 0 && n.rows * row > c->most; rows--)
        if (h->n.rows % rows == 0 && rows * n.heads * n.context % 4 == 0)
            n.rows = rows;
    return n;
}

/* The bytes of the sums over d_o o, (rows,heads,context) float. They lie in `room` before cuDNN's workspace. */
static size_t sums_bytes(const struct cudnn_heads *n)
{
    return ((size_t)(n->rows * n->heads * n->context) * sizeof(float) + 255) / 256 * 256;
}

static bool attention_cudnn_supports(const struct device_attention *h)
{
    return h->kept == DEVICE_BF16 && h->dropout.p <= 0.0f && h->n.width / h->heads % 8 == 0;
}

enum err_code attention_cudnn_prepare(struct attention_cudnn *c, const struct device_attention *h,
                                      bool backward, bool make, size_t *room, struct err *e)
{
    struct cudnn_heads n = heads_of_part(c, h, backward);
    if (!attention_cudnn_supports(h))
        return err_set(e, ERR_UNIMPLEMENTED, "cuDNN: only bf16 without dropout, head sizes in steps of 8");
    struct entry *at = plan_for(c, &n, backward, make, e);
    if (!at)
        return e->code;
    *room = (size_t)at->plan.workspace + (backward ? sums_bytes(&n) : 0);
    return ERR_OK;
}

int64_t attention_cudnn_engine(struct attention_cudnn *c, const struct device_attention *h, bool backward)
{
    struct cudnn_heads n = heads_of_part(c, h, backward);
    struct err none;
    const struct entry *at = plan_for(c, &n, backward, false, &none);
    return at ? at->plan.engine : -1;
}

static const uint16_t *bf16_offset(const void *p, int64_t elements)
{
    return (const uint16_t *)p + elements;
}

enum err_code attention_cudnn_forward(struct attention_cudnn *c, const struct device_attention *h, void *room,
                                      struct err *e)
{
    struct cudnn_heads n = heads_of_part(c, h, false);
    const struct entry *at = plan_for(c, &n, false, false, e);
    if (!at)
        return e->code;
    float scale = 1.0f / sqrtf((float)n.size), hidden = -INFINITY;
    /* numbers[i] names the tensor at pointers[i]. qkv is (B,T,3C): a token's k lies C elements behind its q. */
    const int64_t numbers[] = {CUDNN_Q, CUDNN_K, CUDNN_V, CUDNN_O, CUDNN_STATS, CUDNN_SCALE, CUDNN_HIDDEN};
    void *pointers[] = {(void *)h->qkv,
                        (void *)bf16_offset(h->qkv, h->n.width),
                        (void *)bf16_offset(h->qkv, 2 * h->n.width),
                        h->o,
                        h->lse,
                        &scale,
                        &hidden};
    return cudnn_plan_run(&c->lib, &at->plan, c->handle, sizeof(numbers) / sizeof(numbers[0]), numbers,
                          pointers, room, e);
}

enum err_code attention_cudnn_backward(struct attention_cudnn *c, const struct device_attention *h,
                                       const void *d_o, void *dqkv, void *room, struct err *e)
{
    struct cudnn_heads n = heads_of_part(c, h, true);
    const struct entry *at = plan_for(c, &n, true, false, e);
    if (!at)
        return e->code;
    float scale = 1.0f / sqrtf((float)n.size), hidden = -INFINITY, one = 1.0f;
    char *workspace = (char *)room + sums_bytes(&n);
    const int64_t numbers[] = {CUDNN_Q,     CUDNN_K,      CUDNN_V,  CUDNN_O,     CUDNN_D_O,
                               CUDNN_DQ,    CUDNN_DK,     CUDNN_DV, CUDNN_STATS, CUDNN_SUMS,
                               CUDNN_SCALE, CUDNN_HIDDEN, CUDNN_ONE};
    /* One part after the other; they share the plan, the sums and the workspace. qkv and dqkv are (B,T,3C), o is
     * (B,T,C). */
    for (int64_t row = 0; row < h->n.rows; row += n.rows) {
        int64_t w = h->n.width, token = row * h->n.context;
        const uint16_t *qkv = bf16_offset(h->qkv, token * 3 * w), *d = bf16_offset(dqkv, token * 3 * w);
        void *pointers[] = {(void *)qkv,
                            (void *)(qkv + w),
                            (void *)(qkv + 2 * w),
                            (void *)bf16_offset(h->o, token * w),
                            (void *)bf16_offset(d_o, token * w),
                            (void *)d,
                            (void *)(d + w),
                            (void *)(d + 2 * w),
                            h->lse + row * n.heads * n.context,
                            room,
                            &scale,
                            &hidden,
                            &one};
        if (cudnn_plan_run(&c->lib, &at->plan, c->handle, sizeof(numbers) / sizeof(numbers[0]), numbers,
                           pointers, workspace, e))
            return e->code;
    }
    return ERR_OK;
}
