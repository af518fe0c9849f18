/* Runs products. Keeps the plan and the algorithm of each shape; a model has about twenty shapes. */
#include "trainer/device/cuda/gemm/gemm.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "trainer/device/cuda/error.h"
#include "trainer/device/cuda/gemm/gemm_time.h"

enum { KEPT = GEMM_CHOICES_MOST };
#define ALIGNMENT 256 /* a larger alignment makes no difference to cuBLASLt */

struct gemm {
    cublasLtHandle_t lib;
    cudaStream_t stream;
    const char *device; /* borrowed */
    void *workspace;
    struct gemm_timer *timer; /* NULL: nothing is ever measured */
    bool choosing;
    struct gemm_choices choices;
    struct gemm_plan plan[KEPT];
    size_t count, oldest;
};

static enum err_code gemm_fail(struct err *e, const char *what, cublasStatus_t status)
{
    enum err_code code = status == CUBLAS_STATUS_ALLOC_FAILED ? ERR_RESOURCE_EXHAUSTED : ERR_INTERNAL;
    cudaError_t cause =
        cudaGetLastError(); /* if CUDA itself failed, its error says more than cuBLASLt's status */
    if (cause != cudaSuccess)
        return cuda_error(cause, what, e);
    return err_set(e, code, "cuBLASLt: %s: %s", what, cublasLtGetStatusString(status));
}

/* ---- choosing an algorithm */

/* Adds the plan to the choices: its algorithm, or that it is declined. */
static void choice_keep(struct gemm *g, const struct gemm_plan *p)
{
    struct gemm_choice choice = {.shape = p->shape, .apart = p->declined};
    _Static_assert(sizeof(choice.algorithm) == sizeof(p->algorithm), "the opaque bytes of an algorithm");
    if (!p->declined)
        memcpy(choice.algorithm, &p->algorithm, sizeof(choice.algorithm));
    gemm_choices_put(&g->choices, &choice);
}

struct trial {
    struct gemm *g;
    const struct gemm_plan *p;
    const struct gemm_call *call;
    const cublasLtMatmulHeuristicResult_t *found;
};

static bool try_candidate(void *arg, int way, cudaStream_t stream)
{
    const struct trial *t = arg;
    return gemm_plan_launch(t->g->lib, t->p, t->call, &t->found[way].algo, t->g->workspace, stream) ==
           CUBLAS_STATUS_SUCCESS;
}

/* Whether this shape may be measured now. Not while the stream is being captured into a graph, because captured work
 * does not run. */
static bool may_time(const struct gemm *g, const struct gemm_shape *s)
{
    enum cudaStreamCaptureStatus capturing = cudaStreamCaptureStatusNone;
    return g->choosing && !s->untuned && cudaStreamIsCapturing(g->stream, &capturing) == cudaSuccess &&
           capturing == cudaStreamCaptureStatusNone;
}

/* Uses a choice that another process has made. */
static enum err_code plan_take_choice(struct gemm *g, struct gemm_plan *p, const struct gemm_choice *choice,
                                      struct err *e)
{
    const struct gemm_shape *s = &p->shape;
    p->compared = true;
    p->declined = choice->apart;
    memcpy(&p->algorithm, choice->algorithm, sizeof(p->algorithm));
    if (p->declined || gemm_plan_fits(g->lib, p))
        return ERR_OK;
    return err_set(e, ERR_INTERNAL,
                   "cuBLASLt does not know the kept algorithm for (%lld,%lld) times (%lld,%lld): set "
                   "DDP_CUDA_TUNE=0 to continue without kept algorithms",
                   (long long)s->m, (long long)s->k, (long long)s->k, (long long)s->n);
}

static enum err_code plan_choose(struct gemm *g, const struct gemm_call *c, struct gemm_plan *p,
                                 struct err *e)
{
    cublasLtMatmulHeuristicResult_t found[GEMM_CANDIDATES];
    const struct gemm_choice *taken = gemm_choices_find(&g->choices, &c->shape);
    int count = 0, at = 0;
    if (taken)
        return plan_take_choice(g, p, taken, e);
    cublasStatus_t status = gemm_plan_candidates(g->lib, p, found, &count);
    /* A shape that cuBLASLt declines is kept, too, so that it is not asked again. */
    p->declined = status == CUBLAS_STATUS_NOT_SUPPORTED || (status == CUBLAS_STATUS_SUCCESS && count == 0);
    if (p->declined)
        return ERR_OK;
    if (status != CUBLAS_STATUS_SUCCESS)
        return gemm_fail(e, "planning a product", status);
    if (may_time(g, &c->shape)) {
        struct trial t = {g, p, c, found};
        at = gemm_timer_fastest(g->timer, count, try_candidate, &t);
    }
    p->algorithm = found[at].algo;
    if (may_time(g, &c->shape))
        choice_keep(g, p);
    return ERR_OK;
}

static enum err_code plan_make(struct gemm *g, const struct gemm_call *c, struct gemm_plan *out,
                               struct err *e)
{
    struct gemm_plan p = {.shape = c->shape, .compared = c->shape.epilogue == CUBLASLT_EPILOGUE_DEFAULT};
    cublasStatus_t status = gemm_plan_describe(&p, c);
    if (status != CUBLAS_STATUS_SUCCESS)
        gemm_fail(e, "planning a product", status);
    if (status != CUBLAS_STATUS_SUCCESS || plan_choose(g, c, &p, e)) {
        gemm_plan_release(&p);
        return e->code;
    }
    *out = p;
    return ERR_OK;
}

static struct gemm_plan *plan_kept(struct gemm *g, const struct gemm_shape *shape)
{
    for (size_t i = 0; i < g->count; i++)
        if (!memcmp(&g->plan[i].shape, shape, sizeof(*shape)))
            return &g->plan[i];
    return NULL;
}

static enum err_code plan_find(struct gemm *g, const struct gemm_call *c, struct gemm_plan **out,
                               struct err *e)
{
    struct gemm_plan made;
    *out = plan_kept(g, &c->shape);
    if (*out)
        return ERR_OK;
    if (plan_make(g, c, &made, e))
        return e->code;
    *out = &g->plan[g->count < KEPT ? g->count++ : g->oldest++ % KEPT];
    gemm_plan_release(*out);
    **out = made;
    return ERR_OK;
}

static void plans_forget(struct gemm *g)
{
    for (size_t i = 0; i < g->count; i++)
        gemm_plan_release(&g->plan[i]);
    g->count = g->oldest = 0;
}

/* ---- running */

static enum err_code gemm_decline(const struct gemm_shape *s, struct err *e)
{
    return err_set(e, ERR_UNIMPLEMENTED, "cuBLASLt: no algorithm for (%lld,%lld) times (%lld,%lld)",
                   (long long)s->m, (long long)s->k, (long long)s->k, (long long)s->n);
}

/* Sometimes cuBLASLt finds out only at the launch that it cannot run an algorithm that it has proposed. The plan is
 * then marked as declined. */
enum err_code gemm_run(struct gemm *g, const struct gemm_call *c, struct err *e)
{
    struct gemm_plan *p = NULL;
    if (plan_find(g, c, &p, e))
        return e->code;
    if (p->declined)
        return gemm_decline(&c->shape, e);
    cublasStatus_t status = gemm_plan_launch(g->lib, p, c, &p->algorithm, g->workspace, g->stream);
    if (status == CUBLAS_STATUS_NOT_SUPPORTED) {
        p->declined = true;
        if (may_time(g, &c->shape))
            choice_keep(g, p);
        return gemm_decline(&c->shape, e);
    }
    return status == CUBLAS_STATUS_SUCCESS ? ERR_OK : gemm_fail(e, "a product", status);
}

bool gemm_undecided(struct gemm *g, const struct gemm_call *c)
{
    const struct gemm_plan *p = may_time(g, &c->shape) ? plan_kept(g, &c->shape) : NULL;
    return p && !p->declined && !p->compared;
}

void gemm_decide(struct gemm *g, const struct gemm_call *c, gemm_way_fn *run, void *arg)
{
    bool apart = gemm_timer_fastest(g->timer, 2, run, arg) == 1;
    struct gemm_plan *p = plan_kept(g, &c->shape);
    if (!p) /* the plans of the two steps have replaced it in the cache */
        return;
    p->compared = true;
    p->declined |= apart;
    choice_keep(g, p);
}

/* ---- products */

cudaStream_t gemm_stream(const struct gemm *g)
{
    return g->stream;
}

uint32_t gemm_alignment(const void *p)
{
    uintptr_t at = (uintptr_t)p;
    uint32_t lowest = (uint32_t)(at & (~at + 1));
    return at % ALIGNMENT == 0 ? ALIGNMENT : lowest;
}

struct gemm_call gemm_call_of(const struct device_product *h)
{
    return (struct gemm_call){
        .shape = {.m = h->m,
                  .n = h->n,
                  .k = h->k,
                  .type = (int32_t)h->type,
                  .out = (int32_t)h->out,
                  .trans_a = h->trans_a,
                  .trans_b = h->trans_b,
                  .epilogue = CUBLASLT_EPILOGUE_DEFAULT,
                  .adds = h->beta != 0.0f,
                  .untuned = h->untuned,
                  .align_a = gemm_alignment(h->a),
                  .align_b = gemm_alignment(h->b),
                  .align_c = gemm_alignment(h->c)},
        .a = h->a,
        .b = h->b,
        .c = h->c,
    };
}

enum err_code gemm_product(struct gemm *g, const struct device_product *h, struct err *e)
{
    struct gemm_call c = gemm_call_of(h);
    BUG_ON(h->beta != 0.0f && h->beta != 1.0f);
    if (h->m == 0 || h->n == 0 || (h->k == 0 && c.shape.adds))
        return ERR_OK;
    /* For k = 0 the result is 0, but cuBLASLt does not accept k = 0. */
    if (h->k > 0)
        return gemm_run(g, &c, e);
    cudaError_t code = cudaMemsetAsync(h->c, 0, (size_t)(h->m * h->n) * device_size(h->out), g->stream);
    return code == cudaSuccess ? ERR_OK : cuda_error(code, "an empty product", e);
}

/* ---- choices */

bool gemm_chooses(const struct gemm *g)
{
    return g->timer;
}

void gemm_choose(struct gemm *g, bool on)
{
    g->choosing = on && g->timer;
    if (on)
        plans_forget(g); /* earlier plans have cuBLASLt's first algorithm, which was not measured */
}

void gemm_print_choices(const struct gemm *g, struct buf *out)
{
    gemm_choices_print(&g->choices, g->device, cublasLtGetVersion(), out);
}

enum err_code gemm_take_choices(struct gemm *g, const char *text, size_t size, struct err *e)
{
    if (gemm_choices_parse(&g->choices, g->device, cublasLtGetVersion(), text, size, e))
        return e->code;
    plans_forget(g);
    return ERR_OK;
}

/* ---- */

enum err_code gemm_open(struct gemm **out, cudaStream_t stream, const char *device, struct err *e)
{
    struct gemm *g = xcalloc(1, sizeof(*g));
    const char *tune = getenv("DDP_CUDA_TUNE");
    g->stream = stream;
    g->device = device;
    if (tune && *tune && strcmp(tune, "0") != 0 && gemm_timer_open(&g->timer, stream, e)) {
        gemm_close(g);
        return e->code;
    }
    cublasStatus_t status = cublasLtCreate(&g->lib);
    cudaError_t code = cudaMalloc(&g->workspace, GEMM_WORKSPACE_BYTES);
    if (status != CUBLAS_STATUS_SUCCESS || code != cudaSuccess) {
        gemm_close(g);
        return code == cudaSuccess ? gemm_fail(e, "opening the library", status)
                                   : cuda_error(code, "allocating the workspace of matrix products", e);
    }
    *out = g;
    return ERR_OK;
}

void gemm_close(struct gemm *g)
{
    if (!g)
        return;
    plans_forget(g);
    gemm_choices_release(&g->choices);
    if (g->lib)
        (void)cublasLtDestroy(g->lib);
    gemm_timer_close(g->timer);
    (void)cudaFree(g->workspace);
    free(g);
}
