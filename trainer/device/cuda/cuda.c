/* Opens and closes the GPU, keeps its first error, and waits for it. */
#include "trainer/device/cuda/cuda.h"
#include "trainer/device/cuda/cuda_stream.h"
#include "trainer/device/cuda/error.h"
#include "trainer/device/cuda/fetch.h"
#include "trainer/device/cuda/graph.h"
#include "trainer/device/cuda/memory.h"
#include "trainer/device/cuda/operations.h"
#include "trainer/device/cuda/profile.h"
#include "trainer/device/cuda/transfer.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/mem.h"
#include "trainer/device/cuda/nccl/nccl.h"

enum { CUDA_LEAST_MAJOR = 8 }; /* the lowest compute capability with bf16 */
enum { SLOTS_MOST = 1024, LOGITS_MOST_MB = 4000 /* fewer than 2^31 bf16 */ };

/* ---- errors */

void cuda_failed(struct cuda_device *c, const struct err *e)
{
    if (c->first.code == ERR_OK)
        c->first = *e;
}

bool cuda_ok(struct cuda_device *c, cudaError_t code, const char *what)
{
    struct err e = {0};
    if (code == cudaSuccess)
        return true;
    cuda_error(code, what, &e);
    cuda_failed(c, &e);
    c->lost |= cuda_ends_context(code);
    return false;
}

/* ---- waiting */

#define SPIN_NS 200000   /* poll without sleeping at first: most events are almost there */
#define CHECK_NS 2000000 /* time between two calls of `watch`'s check function */
#define LONGEST_NS 50000 /* longest sleep: at the end of a step the GPU idles until the host wakes up */

/* Asks watch's check whether to go on waiting. Records its error as the device's. */
static bool still_wanted(struct cuda_device *c)
{
    struct err e = {0};
    if (!c->check || c->check(c->check_arg, &e) == ERR_OK)
        return true;
    cuda_failed(c, &e);
    return false;
}

bool cuda_await(struct cuda_device *c, cudaEvent_t event)
{
    int64_t began = clock_mono_ns(), asked = began;
    for (;;) {
        cudaError_t code = cudaEventQuery(event);
        if (code != cudaErrorNotReady)
            return cuda_ok(c, code, "computing");
        (void)cudaGetLastError(); /* CUDA remembers "not ready" as an error */
        int64_t now = clock_mono_ns(), waited = now - began;
        /* A peer that died may keep a collective, and so this event, from ever completing. */
        if (now - asked >= CHECK_NS) {
            if (!still_wanted(c))
                return false;
            asked = now;
        }
        if (waited > SPIN_NS) {
            /* A sixteenth of the time so far: the sleep adds little to a long wait and next to none to a short one. */
            int64_t ns = waited / 16 < LONGEST_NS ? waited / 16 : LONGEST_NS;
            nanosleep(&(struct timespec){.tv_nsec = (long)ns}, NULL);
        }
    }
}

static enum err_code cuda_wait(struct device *d, struct err *e)
{
    struct cuda_device *c = cuda_of(d);
    if (cuda_ready(c) && cuda_ok(c, cudaEventRecord(c->idle, c->stream), "waiting") && cuda_await(c, c->idle))
        return ERR_OK;
    *e = c->first;
    /* The error is reported now, and the device goes on; only the loss of the context stays for ever. */
    if (!c->lost)
        c->first.code = ERR_OK;
    return e->code;
}

static void cuda_watch(struct device *d, enum err_code (*check)(void *arg, struct err *e), void *arg)
{
    struct cuda_device *c = cuda_of(d);
    c->check = check;
    c->check_arg = arg;
}

cudaStream_t cuda_stream(struct device *d)
{
    return cuda_of(d)->stream;
}

enum err_code cuda_first_error(struct device *d, struct err *e)
{
    const struct cuda_device *c = cuda_of(d);
    if (!cuda_ready(c))
        *e = c->first;
    return c->first.code;
}

/* ---- opening */

/* CUDA waits in here for everything on the GPU. That ends: the caller has closed its collectives, and if they could not
 * be closed, the process exits without closing the device. */
static void cuda_close(struct device *d)
{
    struct cuda_device *c = cuda_of(d);
    profile_close(c->profile);
    cuda_forget(c);
    attention_free(c->attention);
    gemm_close(c->gemm);
    cuda_fetch_close(c);
    cuda_slots_close(c->slot, CUDA_SLOTS);
    cuda_free_all(c);
    if (c->idle)
        (void)cudaEventDestroy(c->idle);
    if (c->stream)
        (void)cudaStreamDestroy(c->stream);
    (void)cudaGetLastError();
    free(c);
}

static const struct device_ops *cuda_fill_operations(struct device_ops *ops)
{
    *ops = (struct device_ops){
        .name = "cuda",
        .close = cuda_close,
        .wait = cuda_wait,
        .alloc = cuda_alloc,
        .free = cuda_free,
        .upload = cuda_upload,
        .download = cuda_download,
        .fetch = cuda_fetch,
        .copy = cuda_copy,
        .zero = cuda_zero,
        .record = cuda_record,
        .recorded = cuda_recorded,
        .replay = cuda_replay,
        .watch = cuda_watch,
    };
    cuda_operations(ops);
    return ops;
}

/* Takes the first GPU that the process sees. CUDA_VISIBLE_DEVICES, set by the parent process, decides which one that
 * is. */
static enum err_code find_gpu(struct cudaDeviceProp *prop, struct err *e)
{
    int count = 0;
    cudaError_t code = cudaGetDeviceCount(&count);
    if (code == cudaSuccess && count == 0)
        code = cudaErrorNoDevice;
    if (code == cudaSuccess)
        code = cudaGetDeviceProperties(prop, 0);
    if (code == cudaSuccess)
        code = cudaSetDevice(0);
    if (code != cudaSuccess && cuda_error(code, "opening the GPU", e) == ERR_UNAVAILABLE)
        return err_set(e, ERR_UNAVAILABLE, "no GPU: %s", cudaGetErrorString(code));
    if (code != cudaSuccess)
        return e->code =
                   ERR_INTERNAL; /* the GPU is busy or broken: another attempt on another GPU may succeed */
    if (prop->major < CUDA_LEAST_MAJOR)
        return err_set(e, ERR_UNAVAILABLE, "no GPU: %s has compute capability %d.%d, expected %d.0 or later",
                       prop->name, prop->major, prop->minor, CUDA_LEAST_MAJOR);
    return ERR_OK;
}

static enum err_code cuda_open_streams(struct cuda_device *c, struct err *e)
{
    int least = 0, greatest = 0;
    cudaError_t code = cudaDeviceGetStreamPriorityRange(&least, &greatest);
    if (code == cudaSuccess)
        /* The lowest priority: the collectives' stream, with the highest, gets its blocks in between. */
        code = cudaStreamCreateWithPriority(&c->stream, cudaStreamNonBlocking, least);
    if (code == cudaSuccess)
        code = cudaEventCreateWithFlags(&c->idle, cudaEventDisableTiming);
    return code == cudaSuccess ? ERR_OK : cuda_error(code, "opening the GPU", e);
}

static enum err_code cuda_open_parts(struct cuda_device *c, struct err *e)
{
    if (cuda_open_streams(c, e) || cuda_slots_open(c->slot, CUDA_SLOTS, e) || cuda_fetch_open(c, e) ||
        cuda_work_grow(c, cuda_workspace_bytes(NULL), e) || gemm_open(&c->gemm, c->stream, c->base.name, e) ||
        attention_open(&c->attention, c->stream, e))
        return e->code;
    c->base.workspace = c->work.bytes + GEMM_WORKSPACE_BYTES + attention_bytes(c->attention);
    c->base.chooses = gemm_chooses(c->gemm);
    return ERR_OK;
}

/* One rank needs no collectives, so a machine without NCCL has its GPU nevertheless. */
static void cuda_find_collectives(struct cuda_device *c)
{
#ifdef DDP_CUDA_NCCL
    if (nccl_open(&c->no_nccl) == ERR_OK)
        c->base.comm = &nccl_comm_ops;
    else
        c->base.no_comm = c->no_nccl.msg;
#else
    c->base.no_comm = "NCCL: the plugin is built without it";
#endif
}

/* Sets *out to the number in an environment variable, if there is one. */
static enum err_code number_from_environment(const char *name, long most, long *out, struct err *e)
{
    const char *text = getenv(name);
    char *end = NULL;
    if (!text)
        return ERR_OK;
    errno = 0;
    long number = strtol(text, &end, 10);
    if (*text < '0' || *text > '9' || *end || errno || number < 1 || number > most)
        return err_set(e, ERR_INVALID_ARGUMENT,
                       "invalid value for %s: expected a number from 1 to %ld, got '%.40s'", name, most,
                       text);
    *out = number;
    return ERR_OK;
}

/* The agent sets DDP_SLOTS_PER_GPU to the number of workers that may share the GPU. Each of them plans with an equal part of
 * the GPU's memory. */
static enum err_code divide_memory(struct device *d, size_t whole, struct err *e)
{
    long workers = 1, logits_mb = 0;
    if (number_from_environment("DDP_SLOTS_PER_GPU", SLOTS_MOST, &workers, e) ||
        number_from_environment("DDP_CUDA_LOGITS_MB", LOGITS_MOST_MB, &logits_mb, e))
        return e->code;
    d->memory = whole / (size_t)workers;
    d->logits_bytes = (size_t)logits_mb << 20;
    return ERR_OK;
}

enum err_code cuda_open(struct device **out, struct err *e)
{
    static struct device_ops ops;
    struct cudaDeviceProp prop;
    int version = 0;
    if (find_gpu(&prop, e))
        return e->code;
    struct cuda_device *c = xcalloc(1, sizeof(*c));
    c->base = (struct device){.ops = cuda_fill_operations(&ops), .kept = DEVICE_BF16, .threads = 1};
    c->work.multiprocessors = prop.multiProcessorCount;
    cuda_find_collectives(c);
    (void)cudaRuntimeGetVersion(&version);
    snprintf(c->base.name, sizeof(c->base.name), "%.60s, CUDA %d.%d", prop.name, version / 1000,
             version % 1000 / 10);
    if (divide_memory(&c->base, prop.totalGlobalMem, e) || cuda_open_parts(c, e) ||
        profile_open(&c->profile, c, e)) {
        cuda_close(&c->base);
        return e->code;
    }
    if (c->profile)
        c->base.ops = profile_operations(c->profile, c->base.ops);
    *out = &c->base;
    return ERR_OK;
}
