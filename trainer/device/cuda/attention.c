#include "trainer/device/cuda/attention.h"
#include "trainer/device/cuda/kernels/attention.h"
#include "trainer/device/cuda/kernels/attention_plain.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/log.h"
#include "base/mem.h"
#include "trainer/device/cuda/cudnn/attention_cudnn.h"

/* The workspace only grows, and smaller ones stay allocated, because a recorded graph may still use them. */
enum { ROOMS = 32, CUDNN_MB = 2048, CUDNN_MOST_MB = 1 << 20 };
struct attention {
    cudaStream_t stream;
    struct attention_cudnn *cudnn; /* NULL: not used */
    /* The GPU had no memory for the workspace of the shape that was reserved, so cuDNN is not used again. */
    bool no_room;
    size_t refused; /* the smallest workspace that another shape did not get; 0: all got theirs */
    const char *path;
    char library[512];
    struct device_attention_text reserved;

    /* A thread makes cuDNN's plans. While `planning` is set, cuDNN belongs to it. */
    pthread_t planner;
    bool planning;
    struct device_attention shape; /* the one that was reserved last */
    bool dropout;
    size_t wanted;             /* workspace for its plans */
    bool settled;              /* the workspace is allocated, and `reserved` is filled in */
    void *rooms[ROOMS], *room; /* all workspaces; the last and largest */
    int count;
    size_t room_bytes, bytes; /* of the last; of all together */
};

static bool is_forbidden(void)
{
    const char *wanted = getenv("DDP_CUDNN");
    return wanted && strcmp(wanted, "0") == 0;
}

void attention_version(char out[ATTENTION_VERSION])
{
    struct err none;
    if (is_forbidden() || attention_cudnn_version(out, &none))
        out[0] = '\0';
}

/* Accepts whole megabytes. The upper limit keeps the number of bytes within an int64_t. */
static enum err_code cudnn_workspace(int64_t *out, struct err *e)
{
    const char *text = getenv("DDP_CUDNN_WORKSPACE_MB");
    char *end = NULL;
    long long mb = CUDNN_MB;
    errno = 0;
    if (text)
        mb = strtoll(text, &end, 10);
    if (text && (*text < '0' || *text > '9' || *end || errno || mb > CUDNN_MOST_MB))
        return err_set(
            e, ERR_INVALID_ARGUMENT,
            "invalid value for DDP_CUDNN_WORKSPACE_MB: expected a number of megabytes from 0 to %d, got "
            "'%.40s'",
            CUDNN_MOST_MB, text);
    *out = (int64_t)mb << 20;
    return ERR_OK;
}

enum err_code attention_open(struct attention **out, cudaStream_t stream, struct err *e)
{
    int64_t workspace = 0;
    if (cudnn_workspace(&workspace, e))
        return e->code;
    struct attention *a = xcalloc(1, sizeof(*a));
    a->stream = stream;
    a->path = "";
    a->settled = true; /* nothing is reserved yet */
    /* Attention works without cuDNN, so an error only becomes the text that attention_library shows. */
    if (is_forbidden())
        (void)err_set(e, ERR_UNAVAILABLE, "cuDNN: DDP_CUDNN=0");
    else if (attention_cudnn_open(&a->cudnn, stream, workspace, e))
        a->cudnn = NULL;
    (void)snprintf(a->library, sizeof(a->library), "%s", a->cudnn ? attention_cudnn_name(a->cudnn) : e->msg);
    *out = a;
    return ERR_OK;
}

static void plans_await(struct attention *a)
{
    if (a->planning)
        (void)pthread_join(a->planner, NULL);
    a->planning = false;
}

void attention_free(struct attention *a)
{
    if (!a)
        return;
    plans_await(a);
    attention_cudnn_free(a->cudnn);
    for (int i = 0; i < a->count; i++)
        (void)cudaFree(a->rooms[i]);
    free(a);
}

size_t attention_bytes(const struct attention *a)
{
    return a->bytes;
}

const char *attention_library(const struct attention *a)
{
    return a->library;
}

const char *attention_path(const struct attention *a)
{
    return a->path;
}

static enum err_code attention_grow_room(struct attention *a, size_t bytes, struct err *e)
{
    void *room = NULL;
    if (bytes <= a->room_bytes)
        return ERR_OK;
    if (a->count == ROOMS)
        return err_set(e, ERR_RESOURCE_EXHAUSTED,
                       "attention: the workspace has grown too often: reserve the largest shape first");
    if (cudaMalloc(&room, bytes) != cudaSuccess) {
        (void)cudaGetLastError();
        return err_set(e, ERR_RESOURCE_EXHAUSTED,
                       "attention: cannot allocate %zu bytes of GPU memory as workspace", bytes);
    }
    a->rooms[a->count++] = room;
    a->room = room;
    a->room_bytes = bytes;
    a->bytes += bytes;
    return ERR_OK;
}

/* The workspace of our own kernels: delta, (rows,heads,context) floats. */
static size_t own_room(const struct device_attention *h)
{
    return (size_t)(h->n.rows * h->heads * h->n.context) * sizeof(float);
}

/* While cuDNN looks for a plan, some of its calls of CUDA fail. CUDA remembers such an error and would report
 * it for the next kernel launch, so it is cleared here. */
static enum err_code attention_prepare_cudnn(struct attention *a, const struct device_attention *h,
                                             bool backward, bool make, size_t *room, struct err *e)
{
    enum err_code code = attention_cudnn_prepare(a->cudnn, h, backward, make, room, e);
    (void)cudaGetLastError();
    return code;
}

/* Appends how a pass is computed: forward="cuDNN 9.19.0" forward_engine=2, or forward=own forward_why="...". */
static void attention_tell_pass(struct attention *a, const struct device_attention *h, bool backward,
                                struct buf *out)
{
    const char *name = backward ? "backward" : "forward";
    struct err why = {0};
    int64_t engine = -1;
    size_t room = 0;
    if (!a->cudnn)
        (void)snprintf(why.msg, sizeof(why.msg), "%s", a->library);
    else if (a->no_room)
        (void)snprintf(why.msg, sizeof(why.msg), "the GPU has no memory for cuDNN's workspace");
    else if (attention_prepare_cudnn(a, h, backward, false, &room, &why) == ERR_OK)
        engine = attention_cudnn_engine(a->cudnn, h, backward);
    if (engine >= 0)
        buf_printf(out, "%s=%s %s_engine=%lld ", name, LOG_Q(attention_cudnn_name(a->cudnn)), name,
                   (long long)engine);
    else
        buf_printf(out, "%s=%s %s_why=%s ", name, attention_mma_takes(h) ? "own" : "plain", name,
                   LOG_Q(why.msg));
    if (backward)
        (void)snprintf(a->reserved.brief, sizeof(a->reserved.brief), "%s",
                       engine >= 0              ? attention_cudnn_name(a->cudnn)
                       : attention_mma_takes(h) ? "own kernels"
                                                : "plain kernels");
}

/* What is told holds for the whole training with the shape that was reserved. */
static void attention_note(struct attention *a)
{
    CLEANUP(buf_release) struct buf text = {0};
    struct device_attention h = a->shape;
    h.dropout.p = a->dropout ? 0.5f : 0.0f; /* only whether there is some decides */
    for (int backward = 0; backward < 2; backward++)
        attention_tell_pass(a, &h, backward, &text);
    buf_printf(&text, "workspace_bytes=%zu", a->room_bytes);
    (void)snprintf(a->reserved.values, sizeof(a->reserved.values), "%s", text.data);
}

/* Whether the stream is being captured into a graph. Nothing can be loaded or allocated then, so our own
 * kernels do the shapes that were not prepared. */
static bool is_recorded(const struct attention *a)
{
    enum cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    return cudaStreamIsCapturing(a->stream, &status) == cudaSuccess && status != cudaStreamCaptureStatusNone;
}

/* ---- plans. cuDNN compiles kernels for them, which takes about a second. Meanwhile the process joins its group. */

/* cuDNN declines dropout. Evaluation has none, so the forward plan is made in any case. */
static void *plans_make(void *arg)
{
    struct attention *a = arg;
    struct err none;
    size_t room = 0;
    for (int backward = 0; a->cudnn && backward < (a->dropout ? 1 : 2); backward++)
        if (!attention_prepare_cudnn(a, &a->shape, backward, true, &room, &none) && room > a->wanted)
            a->wanted = room;
    return NULL;
}

/* The thread blocks all signals: they are for the threads of the program. */
static bool planner_start(struct attention *a)
{
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    int rc = pthread_create(&a->planner, NULL, plans_make, a);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return rc == 0;
}

/* Waits for the plans, and allocates their workspace. Without memory for it, our own kernels do the shape in a smaller
 * one. */
void attention_settle(struct attention *a)
{
    struct err none;
    plans_await(a);
    if (a->settled || is_recorded(a))
        return;
    if (attention_grow_room(a, a->wanted, &none))
        a->no_room = true;
    a->settled = true;
    attention_note(a);
}

enum err_code attention_reserve(struct attention *a, const struct device_sizes *sizes, struct err *e)
{
    if (sizes->heads == 0)
        return ERR_OK;
    struct device_attention h = {.n = sizes->n, .heads = sizes->heads, .kept = sizes->type};
    if (h.n.width / h.heads > ATTENTION_PLAIN_SIZE)
        return err_set(e, ERR_INVALID_ARGUMENT,
                       "attention: head size %lld is too large: a GPU supports at most %d",
                       (long long)(h.n.width / h.heads), ATTENTION_PLAIN_SIZE);
    attention_settle(a);
    if (attention_grow_room(a, own_room(&h), e))
        return e->code;
    a->shape = h;
    a->dropout = sizes->dropout;
    a->wanted = 0;
    a->settled = false;
    a->planning = a->cudnn && planner_start(a);
    if (!a->planning)
        (void)plans_make(a);
    return ERR_OK;
}

void attention_tell(struct attention *a, struct device_attention_text *out)
{
    attention_settle(a);
    *out = a->reserved;
}

/* Whether cuDNN does this call. If so, the workspace is large enough. */
static bool by_cudnn(struct attention *a, const struct device_attention *h, bool backward, struct err *e)
{
    size_t room = 0;
    bool recorded = is_recorded(a);
    if (!a->cudnn || a->no_room || attention_prepare_cudnn(a, h, backward, !recorded, &room, e))
        return false;
    /* A smaller micro-batch can need a larger workspace, because cuDNN may compute it in one part. If there is no memory for that, only
     * this shape is computed without cuDNN. */
    if (room > a->room_bytes && (recorded || (a->refused && room >= a->refused)))
        return false;
    if (attention_grow_room(a, room, e)) {
        a->refused = room;
        log_warn("attention_without_cudnn", "rows=%lld workspace_bytes=%zu why=%s", (long long)h->n.rows,
                 room, LOG_Q(e->msg));
        return false;
    }
    a->path = attention_cudnn_name(a->cudnn);
    return true;
}

/* CUDA reports a launch of no blocks as an error, so nothing is launched for an empty batch. */
static bool is_empty(const struct device_attention *h)
{
    return h->n.rows * h->n.context <= 0;
}

static enum err_code attention_check_launch(cudaError_t status, struct err *e)
{
    if (status != cudaSuccess)
        return err_set(e, ERR_INTERNAL, "attention: %s", cudaGetErrorString(status));
    return ERR_OK;
}

enum err_code attention_forward(struct attention *a, const struct device_attention *h, struct err *e)
{
    if (is_empty(h))
        return ERR_OK;
    attention_settle(a);
    if (by_cudnn(a, h, false, e))
        return attention_cudnn_forward(a->cudnn, h, a->room, e);
    bool mma = attention_mma_takes(h);
    a->path = mma ? "own" : "plain";
    return attention_check_launch(
        mma ? attention_mma_forward(a->stream, h) : attention_plain_forward(a->stream, h), e);
}

enum err_code attention_backward(struct attention *a, const struct device_attention *h, const void *d_o,
                                 void *dqkv, struct err *e)
{
    if (is_empty(h))
        return ERR_OK;
    attention_settle(a);
    if (by_cudnn(a, h, true, e))
        return attention_cudnn_backward(a->cudnn, h, d_o, dqkv, a->room, e);
    bool mma = attention_mma_takes(h);
    if (attention_grow_room(a, own_room(h), e))
        return e->code;
    float *delta = a->room;
    a->path = mma ? "own" : "plain";
    return attention_check_launch(mma ? attention_mma_backward(a->stream, h, d_o, dqkv, delta)
                                      : attention_plain_backward(a->stream, h, d_o, dqkv, delta),
                                  e);
}
