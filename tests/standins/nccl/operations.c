/* The operations of a group. Each is queued in a stream, which calls it again and again until it has finished. All
 * data goes to rank 0, which adds it in rank order and sends the result back. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "internal.h"
#include "tests/standins/cuda/emulate.h"

enum kind { SUM_FLOATS, SUM_BFLOATS, SPREAD, JOIN };
enum { BEGIN, COLLECT, RETURN };

struct work {
    struct ncclComm *c;
    enum kind kind;
    int root, phase;
    char *data;
    size_t bytes;
    /* Of a reduction, the ranks that do not get the sum get other numbers: kept [lo, hi) of the sum. */
    bool spoils;
    size_t lo, hi;
};

/* ---- bytes */

static void peer_lost(struct ncclComm *c)
{
    if (!standin_fault("unnoticed-death"))
        atomic_store(&c->state, ncclRemoteError);
}

/* Sends or receives as many bytes as possible now. Returns whether all are done. */
static bool bytes_move(struct ncclComm *c, struct peer *p, char *data, size_t bytes, bool out)
{
    while (p->done < bytes) {
        ssize_t n = out ? send(p->fd, data + p->done, bytes - p->done, MSG_DONTWAIT | MSG_NOSIGNAL)
                        : recv(p->fd, data + p->done, bytes - p->done, MSG_DONTWAIT);
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            return false;
        if (n <= 0) {
            peer_lost(c);
            return false;
        }
        p->done += (size_t)n;
    }
    return true;
}

/* Moves bytes between rank 0 and all other ranks, or between this rank and rank 0. Returns whether all are done. */
static bool move_all(struct work *w, bool out)
{
    struct ncclComm *c = w->c;
    bool all = true;

    if (c->rank)
        return bytes_move(c, &c->peers[0], w->data, w->bytes, out);
    for (int r = 1; r < c->ranks; r++)
        all &= bytes_move(c, &c->peers[r], out ? w->data : c->peers[r].data, w->bytes, out);
    return all;
}

static void rewind_all(struct ncclComm *c)
{
    for (int r = 0; r < c->ranks; r++)
        c->peers[r].done = 0;
}

/* ---- sums */

static void add_floats(char *to, const char *from, size_t bytes)
{
    float *y = (float *)(void *)to;
    const float *x = (const float *)(const void *)from;

    for (size_t i = 0; i < bytes / sizeof(*y); i++)
        y[i] += x[i];
}

static float bf16_widened(uint16_t h)
{
    uint32_t bits = (uint32_t)h << 16;
    float x;

    memcpy(&x, &bits, sizeof(x));
    return x;
}

static void add_bfloats(char *to, const char *from, size_t bytes)
{
    uint16_t *y = (uint16_t *)(void *)to;
    const uint16_t *x = (const uint16_t *)(const void *)from;

    for (size_t i = 0; i < bytes / sizeof(*y); i++) {
        float sum = bf16_widened(y[i]) + bf16_widened(x[i]);
        uint32_t bits;
        memcpy(&bits, &sum, sizeof(bits));
        y[i] = (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
    }
}

static void add_all(struct work *w)
{
    for (int r = 1; r < w->c->ranks; r++)
        if (w->kind == JOIN)
            memcpy(w->data + (size_t)r * w->hi, w->c->peers[r].data + (size_t)r * w->hi, w->hi);
        else if (w->kind == SPREAD && r == w->root)
            memcpy(w->data, w->c->peers[r].data, w->bytes);
        else if (w->kind == SUM_FLOATS)
            add_floats(w->data, w->c->peers[r].data, w->bytes);
        else if (w->kind == SUM_BFLOATS)
            add_bfloats(w->data, w->c->peers[r].data, w->bytes);
}

/* ---- */

static void work_begin(struct work *w)
{
    rewind_all(w->c);
    for (int r = 1; r < w->c->ranks && w->c->rank == 0; r++) {
        free(w->c->peers[r].data);
        w->c->peers[r].data = malloc(w->bytes ? w->bytes : 1);
    }
    w->phase = COLLECT;
}

static bool work_advance(struct work *w)
{
    bool first = w->c->rank == 0;

    standin_die("killed-before-sum");
    if (w->phase == BEGIN)
        work_begin(w);
    if (w->phase == COLLECT) {
        if (!move_all(w, !first))
            return false;
        if (first)
            add_all(w);
        if (!first)
            standin_die("killed-after-sending");
        rewind_all(w->c);
        w->phase = RETURN;
    }
    if (!move_all(w, first))
        return false;
    standin_die("killed-after-sending");
    if (standin_fault("fails-after-sum")) {
        atomic_store(&w->c->state, ncclRemoteError);
        return false;
    }
    if (w->spoils) {
        memset(w->data, 0xff, w->lo);
        memset(w->data + w->hi, 0xff, w->bytes - w->hi);
    }
    return true;
}

static bool collective_run(void *closure)
{
    struct work *w = closure;
    struct ncclComm *c = w->c;

    if (!atomic_load(&c->aborted)) {
        if (standin_fault("stall") || atomic_load(&c->state) != ncclSuccess || !work_advance(w))
            return false;
        if (standin_fault("async-error"))
            atomic_store(&c->state, ncclInternalError);
    }
    standin_drop(c);
    return true;
}

/* Between ncclGroupStart and ncclGroupEnd the real library only collects calls, which return ncclSuccess; the end of the group
 * returns what they came to. Here each call is queued at once. */
static struct {
    bool open;
    struct ncclComm *last; /* NULL: no call was made */
} group;

/* The real library returns InvalidArgument if the call before has not finished, unless both are in one group. */
static ncclResult_t comm_ready(const struct ncclComm *c)
{
    ncclResult_t state = (ncclResult_t)atomic_load(&c->state);

    if (!c->formed)
        return ncclInvalidUsage;
    if (group.open && group.last == c && state == ncclInProgress)
        return ncclSuccess;
    return state == ncclInProgress ? ncclInvalidArgument : state;
}

static ncclResult_t work_put(struct work w, cudaStream_t stream)
{
    ncclResult_t rc = comm_ready(w.c);

    if (rc != ncclSuccess || w.c->ranks == 1)
        return rc;
    if (w.kind == JOIN) {
        w.c->gathers++;
        w.c->gather_bytes += w.bytes;
    } else if (w.spoils) {
        w.c->scatters++;
    } else if (w.kind == SPREAD) {
        w.c->broadcasts++;
        w.c->broadcast_bytes += w.bytes;
    } else {
        w.c->sums++;
    }
    if (w.kind == SUM_FLOATS || w.kind == SUM_BFLOATS)
        w.c->sum_bytes += w.bytes;
    if (!w.c->connected)
        atomic_store(&w.c->state, rc = ncclInProgress);
    if (group.open) {
        group.last = w.c;
        rc = ncclSuccess;
    }
    standin_hold(w.c);
    if (emulated_enqueue(stream, "NCCL", collective_run, &w, sizeof(w)) == cudaSuccess)
        return rc;
    standin_drop(w.c);
    return ncclUnhandledCudaError;
}

static size_t size_of(ncclDataType_t type)
{
    return type == ncclFloat ? 4 : type == ncclBfloat16 ? 2 : 1;
}

static enum kind sum_of(ncclDataType_t type)
{
    return type == ncclFloat ? SUM_FLOATS : SUM_BFLOATS;
}

ncclResult_t ncclAllReduce(const void *from, void *to, size_t count, ncclDataType_t type, ncclRedOp_t op,
                           ncclComm_t c, cudaStream_t stream)
{
    if (from != to || op != ncclSum || size_of(type) < 2)
        return ncclInvalidArgument;
    return work_put((struct work){.c = c, .kind = sum_of(type), .data = to, .bytes = count * size_of(type)},
                    stream);
}

ncclResult_t ncclBroadcast(const void *from, void *to, size_t count, ncclDataType_t type, int root,
                           ncclComm_t c, cudaStream_t stream)
{
    if (from != to || type != ncclUint8 || root < 0 || root >= c->ranks)
        return ncclInvalidArgument;
    return work_put((struct work){.c = c, .kind = SPREAD, .root = root, .data = to, .bytes = count}, stream);
}

/* The ranks that do not get the sum get NANs, so that a caller cannot use them. */
ncclResult_t ncclReduce(const void *from, void *to, size_t count, ncclDataType_t type, ncclRedOp_t op,
                        int root, ncclComm_t c, cudaStream_t stream)
{
    const size_t size = size_of(type);

    if (from != to || op != ncclSum || size < 2 || root < 0 || root >= c->ranks)
        return ncclInvalidArgument;
    return work_put((struct work){.c = c,
                                  .kind = sum_of(type),
                                  .data = to,
                                  .bytes = count * size,
                                  .spoils = true,
                                  .hi = c->rank == root ? count * size : 0},
                    stream);
}

/* In place only: `to` is this rank's part of `from`. */
ncclResult_t ncclReduceScatter(const void *from, void *to, size_t count, ncclDataType_t type, ncclRedOp_t op,
                               ncclComm_t c, cudaStream_t stream)
{
    const size_t size = size_of(type), lo = count * size * (size_t)c->rank;

    if ((const char *)from + lo != to || op != ncclSum || size < 2)
        return ncclInvalidArgument;
    return work_put((struct work){.c = c,
                                  .kind = sum_of(type),
                                  .data = (char *)to - lo,
                                  .bytes = count * size * (size_t)c->ranks,
                                  .spoils = true,
                                  .lo = lo,
                                  .hi = lo + count * size},
                    stream);
}

ncclResult_t ncclAllGather(const void *from, void *to, size_t count, ncclDataType_t type, ncclComm_t c,
                           cudaStream_t stream)
{
    if ((const char *)to + count * 4 * (size_t)c->rank != from || type != ncclFloat)
        return ncclInvalidArgument;
    return work_put(
        (struct work){
            .c = c, .kind = JOIN, .data = to, .bytes = count * 4 * (size_t)c->ranks, .hi = count * 4},
        stream);
}

ncclResult_t ncclGroupStart(void)
{
    if (group.open)
        return ncclInvalidUsage;
    group.open = true;
    group.last = NULL;
    return ncclSuccess;
}

ncclResult_t ncclGroupEnd(void)
{
    if (!group.open)
        return ncclInvalidUsage;
    group.open = false;
    return group.last ? (ncclResult_t)atomic_load(&group.last->state) : ncclSuccess;
}
