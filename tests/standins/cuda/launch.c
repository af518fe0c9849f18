/* Copies, fills and launches. */
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "include/emulated_block.h"
#include "internal.h"

struct copy {
    void *to;
    const void *from; /* NULL: the bytes follow this struct */
    size_t bytes;
};

static bool copy_run(void *closure)
{
    const struct copy *c = closure;
    memmove(c->to, c->from ? c->from : c + 1, c->bytes);
    return true;
}

/* staged: the bytes are copied now, so later changes of `from` have no effect. */
static struct operation *copy_create(void *to, const void *from, size_t bytes, bool staged)
{
    struct copy c = {to, staged ? NULL : from, bytes};
    if (!staged)
        return operation_create("copy", copy_run, &c, sizeof c);
    char *all = xmalloc(sizeof c + bytes);
    memcpy(all, &c, sizeof c);
    memcpy(all + sizeof c, from, bytes);
    struct operation *o = operation_create("copy", copy_run, all, sizeof c + bytes);
    free(all);
    return o;
}

static cudaError_t copy_check(const void *to, const void *from, size_t bytes, enum cudaMemcpyKind *kind)
{
    bool to_device = memory_holds(to, bytes), from_device = memory_holds(from, bytes);
    if (*kind == cudaMemcpyDefault)
        *kind = to_device ? (from_device ? cudaMemcpyDeviceToDevice : cudaMemcpyHostToDevice)
                          : (from_device ? cudaMemcpyDeviceToHost : cudaMemcpyHostToHost);
    bool wants_to = *kind == cudaMemcpyHostToDevice || *kind == cudaMemcpyDeviceToDevice;
    bool wants_from = *kind == cudaMemcpyDeviceToHost || *kind == cudaMemcpyDeviceToDevice;
    return wants_to == to_device && wants_from == from_device ? cudaSuccess : cudaErrorInvalidValue;
}

/* A copy from ordinary memory has read it when the call returns; a copy to ordinary memory has ended then. */
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind,
                            cudaStream_t stream)
{
    runtime_enter();
    cudaError_t error = call_check();
    if (error || !bytes)
        return runtime_leave(error);
    error = stream_is_known(stream) ? copy_check(to, from, bytes, &kind) : cudaErrorInvalidResourceHandle;
    if (error)
        return runtime_leave(error);
    bool staged =
        kind == cudaMemcpyHostToDevice && !memory_is_pinned(from, bytes) && !stream_is_captured(stream);
    struct operation *o = copy_create(to, from, bytes, staged);
    error = stream_put(stream, o);
    bool wait = kind == cudaMemcpyDeviceToHost && !memory_is_pinned(to, bytes) && !stream_is_captured(stream);
    runtime_leave(error);
    return error || !wait ? error : cudaStreamSynchronize(stream);
}

cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind)
{
    return cudaMemcpyAsync(to, from, bytes, kind, NULL);
}

struct fill {
    void *to;
    int value;
    size_t bytes;
};

static bool fill_run(void *closure)
{
    const struct fill *f = closure;
    memset(f->to, f->value, f->bytes);
    return true;
}

cudaError_t cudaMemsetAsync(void *to, int value, size_t bytes, cudaStream_t stream)
{
    runtime_enter();
    struct fill f = {to, value, bytes};
    cudaError_t error = call_check();
    if (error || !bytes)
        return runtime_leave(error);
    if (!memory_holds(to, bytes))
        return runtime_leave(cudaErrorInvalidValue);
    if (!stream_is_known(stream))
        return runtime_leave(cudaErrorInvalidResourceHandle);
    return runtime_leave(stream_put(stream, operation_create("fill", fill_run, &f, sizeof f)));
}

cudaError_t cudaMemset(void *to, int value, size_t bytes)
{
    return cudaMemsetAsync(to, value, bytes, NULL);
}

/* ---- launches */

enum { MOST_KERNELS = 512 };
static struct {
    const void *kernel;
    size_t shared;
} allowed[MOST_KERNELS]; /* kernels that may have more than 48 KB of dynamic shared memory, and how much */
static unsigned n_allowed;

static size_t *allowed_find(const void *kernel, bool make)
{
    for (unsigned i = 0; i < n_allowed; i++)
        if (allowed[i].kernel == kernel)
            return &allowed[i].shared;
    if (!make)
        return NULL;
    BUG_ON(n_allowed == MOST_KERNELS);
    allowed[n_allowed].kernel = kernel;
    return &allowed[n_allowed++].shared;
}

cudaError_t cudaFuncSetAttribute(const void *kernel, enum cudaFuncAttribute attr, int value)
{
    runtime_enter();
    cudaError_t error = call_check();
    if (!error && (value < 0 || (size_t)value > device_properties.sharedMemPerBlockOptin))
        error = cudaErrorInvalidValue;
    if (!error && attr == cudaFuncAttributeMaxDynamicSharedMemorySize)
        *allowed_find(kernel, true) = (size_t)value;
    return runtime_leave(error);
}

static bool kernel_run(void *closure)
{
    struct kernel_call k;
    memcpy(&k, closure, sizeof k);
    block_run_all(&k, (char *)closure + 128);
    return true;
}

static cudaError_t launch_check(const void *kernel, const unsigned grid[3], const unsigned block[3],
                                size_t shared)
{
    size_t *more = allowed_find(kernel, false), most = device_properties.sharedMemPerBlock;
    if (more && *more > most)
        most = *more;
    for (int i = 0; i < 3; i++)
        if (!grid[i] || grid[i] > (unsigned)device_properties.maxGridSize[i] || !block[i] ||
            block[i] > (unsigned)device_properties.maxThreadsDim[i])
            return cudaErrorInvalidConfiguration;
    if ((uint64_t)block[0] * block[1] * block[2] > (unsigned)device_properties.maxThreadsPerBlock)
        return cudaErrorInvalidConfiguration;
    return shared > most ? cudaErrorInvalidValue : cudaSuccess;
}

static struct {
    const char *name;
    unsigned grid;
} last_launch[MOST_KERNELS]; /* of each kernel, by its name */

static void launch_remember(const char *name, unsigned grid)
{
    unsigned i = 0;
    while (i < MOST_KERNELS - 1 && last_launch[i].name && strcmp(last_launch[i].name, name))
        i++;
    last_launch[i].name = name;
    last_launch[i].grid = grid;
}

unsigned emulated_grid(const char *kernel)
{
    unsigned found = 0;
    runtime_enter();
    for (unsigned i = 0; i < MOST_KERNELS && last_launch[i].name; i++)
        if (strstr(last_launch[i].name, kernel)) { /* a template's name has parentheses and arguments */
            found = found ? found : last_launch[i].grid;
            last_launch[i].grid = 0;
        }
    runtime_leave(cudaSuccess);
    return found;
}

/* Returns whether this launch is the one that DDP_EMULATED_MISHAP names. */
static bool launch_is_refused(void)
{
    static unsigned long long launches;
    const char *said = getenv("DDP_EMULATED_MISHAP");
    return ++launches == (said ? strtoull(said, NULL, 10) : 0);
}

void emulated_start(const char *name, const void *kernel, const unsigned grid[3], const unsigned block[3],
                    size_t shared, cudaStream_t stream, void (*call)(void *), const void *arguments,
                    size_t bytes)
{
    runtime_enter();
    cudaError_t error = call_check();
    if (!error)
        error = stream_is_known(stream) ? launch_check(kernel, grid, block, shared)
                                        : cudaErrorInvalidResourceHandle;
    if (!error && launch_is_refused())
        error = cudaErrorInvalidConfiguration;
    if (error) {
        runtime_leave(error);
        return;
    }
    launch_remember(name, grid[0]);
    struct kernel_call k = {
        name, {grid[0], grid[1], grid[2]}, {block[0], block[1], block[2]}, shared, call,
    };
    _Static_assert(sizeof k <= 128, "arguments follow it, aligned");
    char *both = xmalloc(128 + bytes);
    memset(both, 0, 128);
    memcpy(both, &k, sizeof k);
    memcpy(both + 128, arguments, bytes);
    error = stream_put(stream, operation_create(name, kernel_run, both, 128 + bytes));
    free(both);
    runtime_leave(error);
}
