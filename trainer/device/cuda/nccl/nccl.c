/* NCCL's collectives for a device. The host never waits inside NCCL: communicators are non-blocking, and each wait
 * polls until NCCL answers, the deadline passes or the group is aborted (nccl_wait.c).
 *
 * Happy path: `open` forms the group. `allreduce` makes the communicator's stream wait for the work that the device
 * has been given so far, and sums on that stream while the device goes on. `join` makes the device wait for the sums.
 * Collectives are never part of a CUDA graph, because a graph would outlive an aborted communicator.
 *
 * When a peer dies: over a network its connections end, and NCCL reports an error by itself while an operation is in
 * flight. On one machine the kernels spin and NCCL reports nothing; so whoever waits for the device calls `check`,
 * which also sees the abort flag that other threads set. NCCL connects to its peers only at the first operation, so
 * every wait in here calls `watch`, too. Afterwards `close` aborts the communicator in a thread of its own, with a
 * deadline (nccl_close.c).
 *
 * A thread of NCCL waits behind each id, in the process that made it, until as many ranks have come as the group has.
 * If a rank is lost before that, the thread and its socket stay until the process ends, because no call releases an
 * id (NCCL 2.28 to 2.30). */
#include "trainer/device/cuda/nccl/nccl.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "trainer/device/cuda/cuda_stream.h"
#include "trainer/device/cuda/kernels/flat.h"
#include "trainer/device/cuda/nccl/nccl_close.h"
#include "trainer/device/cuda/nccl/nccl_environment.h"
#include "trainer/device/cuda/nccl/nccl_join.h"
#include "trainer/device/cuda/nccl/nccl_load.h"
#include "trainer/device/cuda/nccl/nccl_wait.h"

#define CHANNELS                                                                                             \
    8 /* thread blocks of a reproducible communicator: the order of its sums depends on their number */
#define STALL_MS 600000 /* default of comm_config's stall_ms */
#define RANKS_OF_ID 256 /* that meet at one id, if the library accepts several */

/* ---- the library */

/* Opened by the first call of nccl_open, which the process makes before it starts threads; constant afterwards. */
static struct {
    struct nccl_library functions;
    struct err failure;
    bool tried;
} library;

enum err_code nccl_open(struct err *e)
{
    if (!library.tried && nccl_load(&library.functions, &library.failure) == ERR_OK)
        library.failure.code = ERR_OK;
    library.tried = true;
    if (library.failure.code)
        *e = library.failure;
    return library.failure.code;
}

static int version(void)
{
    struct err none;
    int v = 0;

    return nccl_open(&none) == ERR_OK && library.functions.version(&v) == ncclSuccess ? v : 0;
}

/* A large group has several ids, one behind the other, and the library divides the ranks among them. */
static enum err_code make_id(int world_size, uint8_t *out, size_t cap, size_t *size, struct err *e)
{
    ncclUniqueId id;
    size_t count = (size_t)(world_size + RANKS_OF_ID - 1) / RANKS_OF_ID;

    BUG_ON(cap < sizeof(id));
    if (nccl_open(e))
        return e->code;
    if (count > cap / sizeof(id))
        count = cap / sizeof(id);
    if (count < 1 || !library.functions.init_scalable)
        count = 1;
    for (size_t i = 0; i < count; i++) {
        ncclResult_t rc = library.functions.make_id(&id);
        if (rc != ncclSuccess)
            return nccl_error(&library.functions, NULL, rc, "ncclGetUniqueId", e);
        memcpy(out + i * sizeof(id), &id, sizeof(id));
    }
    *size = count * sizeof(id);
    return ERR_OK;
}

/* ---- forming */

static enum err_code comm_open_streams(struct comm *c, struct err *e)
{
    int least = 0, greatest = 0;
    cudaEvent_t *const events[] = {&c->before, &c->after, &c->mark, &c->passed};
    cudaError_t rc = cudaDeviceGetStreamPriorityRange(&least, &greatest);

    /* The highest priority: a collective's few blocks need not wait for a running computation. */
    if (!rc)
        rc = cudaStreamCreateWithPriority(&c->stream, cudaStreamNonBlocking, greatest);
    for (size_t i = 0; !rc && i < ARRAY_LEN(events); i++)
        rc = cudaEventCreateWithFlags(events[i], cudaEventDisableTiming);
    if (!rc)
        rc = nccl_join_open(c);
    return rc ? nccl_cuda_error(rc, "opening a stream for NCCL", e) : ERR_OK;
}

static ncclResult_t comm_init(struct comm *c, const struct comm_config *config, ncclConfig_t *how)
{
    const size_t count = config->id_size / sizeof(ncclUniqueId);
    ncclUniqueId *ids = xmemdup(config->id, config->id_size);
    ncclResult_t rc =
        count == 1 ? c->lib->init(&c->nccl, config->world_size, ids[0], config->rank, how)
                   : c->lib->init_scalable(&c->nccl, config->world_size, config->rank, (int)count, ids, how);

    free(ids);
    return rc;
}

/* Here and not at the first sum, because an allocation may wait for operations that wait for peers. */
static enum err_code comm_open_room(struct comm *c, struct err *e)
{
    cudaError_t rc = cudaMalloc(&c->room, NCCL_ROOM * sizeof(uint16_t));

    return rc ? nccl_cuda_error(rc, "memory for sums as bf16", e) : ERR_OK;
}

static enum err_code open_comm(struct comm *_Atomic *out, struct device *d, const struct comm_config *config,
                               struct err *e)
{
    ncclConfig_t how = NCCL_CONFIG_INITIALIZER;
    struct comm *c;

    if (!config->id_size || config->id_size % sizeof(ncclUniqueId))
        return err_set(e, ERR_FAILED_PRECONDITION,
                       "the group's id has %zu bytes, which is not the size of NCCL ids", config->id_size);
    if (nccl_open(e))
        return e->code;
    if (config->id_size > sizeof(ncclUniqueId) && !library.functions.init_scalable)
        return err_set(e, ERR_FAILED_PRECONDITION,
                       "NCCL: the group has several ids, and this library takes one only");
    how.blocking = 0; /* calls return at once; nccl_settle waits for them */
    if (config->reproducible)
        how.minCTAs = how.maxCTAs = CHANNELS;
    c = xcalloc(1, sizeof(*c));
    c->device = d;
    c->lib = &library.functions;
    c->rank = config->rank;
    c->ranks = config->world_size;
    c->compute = cuda_stream(d);
    c->stall_ms = config->stall_ms > 0 ? config->stall_ms : STALL_MS;
    c->watch = config->watch;
    c->watch_arg = config->watch_arg;
    /* From here on another thread may abort the communicator, and the caller must close it, even after an error. */
    atomic_store(out, c);
    if (comm_open_streams(c, e) || (config->bf16 && comm_open_room(c, e))) {
        c->first_error = *e;
        return e->code;
    }
    ncclResult_t rc = comm_init(c, config, &how);
    if (nccl_settle(c, rc, config->timeout_ms, "forming the group", e))
        return e->code;
    c->formed = true;
    return ERR_OK;
}

/* ---- work */

static enum err_code stream_failed(struct comm *c, cudaError_t rc, struct err *e)
{
    nccl_cuda_error(rc, "NCCL's stream", e);
    return nccl_keep_error(c, e);
}

/* comm_begin and comm_end enclose each operation. Values that were not computed must not enter a sum of the group. If
 * the device has failed already, comm_begin returns its error. If it fails later, it loses its context, and with it all
 * work that is still queued on its streams. */
static enum err_code comm_begin(struct comm *c, struct err *e)
{
    if (nccl_check(c, e))
        return e->code;
    if (cuda_first_error(c->device, e))
        return nccl_keep_error(c, e);
    cudaError_t rc = cudaEventRecord(c->before, c->compute);
    if (!rc)
        rc = cudaStreamWaitEvent(c->stream, c->before, 0);
    return rc ? stream_failed(c, rc, e) : ERR_OK;
}

static enum err_code comm_end(struct comm *c, ncclResult_t result, const char *what, struct err *e)
{
    cudaError_t rc;

    if (nccl_settle(c, result, c->stall_ms, what, e))
        return e->code;
    rc = cudaEventRecord(c->after, c->stream);
    c->put = true;
    /* One mark is in flight at a time; operations behind it are covered by the next one (nccl_wait.c). */
    if (!rc && !c->marked) {
        rc = cudaEventRecord(c->mark, c->stream);
        c->marked = true;
        c->marked_ms = clock_boot_ms();
    } else {
        c->more = true;
    }
    return rc ? stream_failed(c, rc, e) : ERR_OK;
}

static enum err_code allreduce(struct comm *c, float *data, size_t count, struct err *e)
{
    if (comm_begin(c, e))
        return e->code;
    return comm_end(c, c->lib->allreduce(data, data, count, ncclFloat, ncclSum, c->nccl, c->stream),
                    "an all-reduce", e);
}

/* NCCL's own calls need parts of one size. Others are sums and broadcasts of each part, which NCCL runs together. */
static bool parts_are_equal(const struct comm *c, const size_t *offsets)
{
    for (int r = 1; r < c->ranks; r++)
        if (offsets[r + 1] - offsets[r] != offsets[1])
            return false;
    return true;
}

static ncclResult_t parts_each(struct comm *c, void *data, const size_t *from, const size_t *to,
                               ncclDataType_t type, bool sum)
{
    const size_t size = type == ncclBfloat16 ? sizeof(uint16_t) : sizeof(float);
    ncclResult_t rc = c->lib->group_start(), end;

    if (rc != ncclSuccess)
        return rc;
    for (int r = 0; r < c->ranks && rc == ncclSuccess; r++) {
        char *at = (char *)data + from[r] * size;
        size_t count = to[r] - from[r];

        if (count && sum)
            rc = c->lib->reduce(at, at, count, type, ncclSum, r, c->nccl, c->stream);
        else if (count)
            rc = c->lib->broadcast(at, at, count * size, ncclUint8, r, c->nccl, c->stream);
    }
    end = c->lib->group_end();
    return rc != ncclSuccess ? rc : end;
}

static ncclResult_t parts_sum(struct comm *c, void *data, const size_t *offsets, ncclDataType_t type)
{
    const size_t size = type == ncclBfloat16 ? sizeof(uint16_t) : sizeof(float);

    if (!parts_are_equal(c, offsets))
        return parts_each(c, data, offsets, offsets + 1, type, true);
    return c->lib->reduce_scatter(data, (char *)data + offsets[c->rank] * size, offsets[1], type, ncclSum,
                                  c->nccl, c->stream);
}

static enum err_code reduce_scatter(struct comm *c, float *data, const size_t *offsets, struct err *e)
{
    if (offsets[c->ranks] == 0)
        return ERR_OK;
    if (comm_begin(c, e))
        return e->code;
    return comm_end(c, parts_sum(c, data, offsets, ncclFloat), "a reduce-scatter", e);
}

/* Rounds data[0, count) to the room, calls `sum` there, and brings back [lo, hi). All of it is on the communicator's stream, so
 * the next piece may use the same room. offsets: of the parts in this piece; NULL: an all-reduce. */
static enum err_code piece_sum(struct comm *c, float *data, size_t count, const size_t *offsets,
                               struct err *e)
{
    const size_t lo = offsets ? offsets[c->rank] : 0, hi = offsets ? offsets[c->rank + 1] : count;
    const char *what = offsets ? "a reduce-scatter" : "an all-reduce";
    cudaError_t rc = cuda_narrow(c->stream, c->room, data, count);

    if (rc)
        return stream_failed(c, rc, e);
    if (nccl_settle(
            c,
            offsets ? parts_sum(c, c->room, offsets, ncclBfloat16)
                    : c->lib->allreduce(c->room, c->room, count, ncclBfloat16, ncclSum, c->nccl, c->stream),
            c->stall_ms, what, e))
        return e->code;
    rc = cuda_widen(c->stream, data + lo, (uint16_t *)c->room + lo, hi - lo);
    return rc ? stream_failed(c, rc, e) : ERR_OK;
}

static enum err_code sum_bf16(struct comm *c, float *data, size_t count, const size_t *offsets, struct err *e)
{
    size_t *mine = offsets ? xcalloc((size_t)c->ranks + 1, sizeof(*mine)) : NULL;
    enum err_code code = count ? comm_begin(c, e) : ERR_OK;

    for (size_t at = 0, n; !code && at < count; at += n) {
        n = count - at < NCCL_ROOM ? count - at : NCCL_ROOM;
        for (int r = 0; offsets && r <= c->ranks; r++)
            mine[r] = offsets[r] < at ? 0 : offsets[r] > at + n ? n : offsets[r] - at;
        code = piece_sum(c, data + at, n, mine, e);
    }
    free(mine);
    return code || !count ? code : comm_end(c, ncclSuccess, "a sum", e);
}

static enum err_code allreduce_bf16(struct comm *c, float *data, size_t count, struct err *e)
{
    return sum_bf16(c, data, count, NULL, e);
}

static enum err_code reduce_scatter_bf16(struct comm *c, float *data, const size_t *offsets, struct err *e)
{
    return sum_bf16(c, data, offsets[c->ranks], offsets, e);
}

static enum err_code gather(struct comm *c, float *data, const size_t *from, const size_t *to, struct err *e)
{
    bool equal = true, some = false;
    ncclResult_t rc;

    /* NCCL's own call needs parts of one size, side by side. */
    for (int r = 0; r < c->ranks; r++) {
        equal &= from[r] == (size_t)r * to[0] && to[r] == (size_t)(r + 1) * to[0];
        some |= to[r] > from[r];
    }
    if (!some)
        return ERR_OK;
    if (comm_begin(c, e))
        return e->code;
    rc = equal ? c->lib->gather(data + from[c->rank], data, to[0], ncclFloat, c->nccl, c->stream)
               : parts_each(c, data, from, to, ncclFloat, false);
    return comm_end(c, rc, "an all-gather", e);
}

static enum err_code broadcast(struct comm *c, void *data, size_t bytes, int root, struct err *e)
{
    if (comm_begin(c, e))
        return e->code;
    return comm_end(c, c->lib->broadcast(data, data, bytes, ncclUint8, root, c->nccl, c->stream),
                    "a broadcast", e);
}

static enum err_code join(struct comm *c, struct err *e)
{
    if (nccl_check(c, e))
        return e->code;
    cudaError_t rc = c->put ? nccl_join(c, c->after) : cudaSuccess;
    return rc ? stream_failed(c, rc, e) : ERR_OK;
}

static enum err_code mark(struct comm *c, int number, struct err *e)
{
    if (nccl_check(c, e))
        return e->code;
    cudaError_t rc = cudaEventRecord(c->marks[number], c->stream);
    c->marks_set[number] = true;
    return rc ? stream_failed(c, rc, e) : ERR_OK;
}

static enum err_code join_mark(struct comm *c, int number, struct err *e)
{
    if (nccl_check(c, e))
        return e->code;
    cudaError_t rc = c->marks_set[number] ? nccl_join(c, c->marks[number]) : cudaSuccess;
    return rc ? stream_failed(c, rc, e) : ERR_OK;
}

static bool comm_busy(struct comm *c)
{
    cudaError_t rc = c->joined ? cudaEventQuery(c->passed) : cudaSuccess;

    if (rc == cudaErrorNotReady)
        (void)cudaGetLastError(); /* CUDA remembers "not ready" as an error */
    return rc != cudaSuccess;
}

static void abort_comm(struct comm *c)
{
    atomic_store(&c->aborted, true);
}

const struct comm_ops nccl_comm_ops = {
    .name = "nccl",
    .version = version,
    .prepare = nccl_environment,
    .make_id = make_id,
    .open = open_comm,
    .allreduce = allreduce,
    .reduce_scatter = reduce_scatter,
    .allreduce_bf16 = allreduce_bf16,
    .reduce_scatter_bf16 = reduce_scatter_bf16,
    .gather = gather,
    .broadcast = broadcast,
    .join = join,
    .mark = mark,
    .join_mark = join_mark,
    .busy = comm_busy,
    .joined_ns = nccl_joined_ns,
    .check = nccl_check,
    .abort = abort_comm,
    .close = nccl_close,
};
