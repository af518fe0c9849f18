/* Errors, random numbers, and the properties of the device. */
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "internal.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static struct {
    bool begun;
    uint64_t seed, state; /* state: of the random number generator */
    uint64_t calls, fault;
    cudaError_t broken, last;
    char why[640];
} now;

long runtime_handles;

long emulated_handles(void)
{
    return runtime_handles;
}

/* ---- errors and random numbers */

static uint64_t environment_number(const char *name)
{
    const char *said = getenv(name);
    return said ? strtoull(said, NULL, 10) : 0;
}

static void emulation_begin(uint64_t seed, uint64_t fault)
{
    now.begun = true;
    now.seed = seed;
    now.state = seed * 0x9e3779b97f4a7c15u + 1;
    now.calls = 0;
    now.fault = fault;
    now.broken = now.last = cudaSuccess;
    now.why[0] = '\0';
}

void runtime_enter(void)
{
    BUG_ON(pthread_mutex_lock(&lock));
    if (!now.begun)
        emulation_begin(environment_number("DDP_EMULATED_SEED"), environment_number("DDP_EMULATED_FAULT"));
}

cudaError_t runtime_leave(cudaError_t error)
{
    memory_close();
    if (error && error != cudaErrorNotReady)
        now.last = error;
    BUG_ON(pthread_mutex_unlock(&lock));
    return error;
}

uint64_t emulated_seed(void)
{
    return now.seed;
}

/* splitmix64 (Steele, Lea, Flood, OOPSLA 2014) */
uint64_t emulated_draw(uint64_t below)
{
    uint64_t z = now.state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return (z ^ z >> 31) % below;
}

bool runtime_broken(void)
{
    return now.broken;
}

void runtime_break(cudaError_t error, const char *format, ...)
{
    if (now.broken)
        return;
    va_list args;
    va_start(args, format);
    vsnprintf(now.why, sizeof now.why, format, args);
    va_end(args);
    now.broken = error;
    fprintf(stderr, "emulated cuda: %s\n", now.why);
}

cudaError_t call_check(void)
{
    now.calls++;
    if (!now.broken && now.fault && now.calls == now.fault)
        runtime_break(cudaErrorLaunchFailure, "call %llu fails, as DDP_EMULATED_FAULT says",
                      (unsigned long long)now.calls);
    return now.broken;
}

void emulated_break(cudaError_t error, const char *why)
{
    runtime_enter();
    runtime_break(error, "%s", why);
    runtime_leave(cudaSuccess);
}

const char *emulated_fault(void)
{
    return now.why;
}

void emulated_restart(unsigned long long seed, unsigned long long fault)
{
    runtime_enter();
    memory_open();
    emulation_begin(seed, fault);
    runtime_leave(cudaSuccess);
}

cudaError_t cudaPeekAtLastError(void)
{
    runtime_enter();
    return runtime_leave(now.broken ? now.broken : now.last);
}

cudaError_t cudaGetLastError(void)
{
    runtime_enter();
    cudaError_t error = now.broken ? now.broken : now.last;
    now.last = cudaSuccess;
    BUG_ON(pthread_mutex_unlock(&lock));
    return error;
}

static const struct {
    cudaError_t error;
    const char *name, *text;
} errors[] = {
    {cudaSuccess, "cudaSuccess", "no error"},
    {cudaErrorInvalidValue, "cudaErrorInvalidValue", "invalid argument"},
    {cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory"},
    {cudaErrorInitializationError, "cudaErrorInitializationError", "initialization error"},
    {cudaErrorInvalidConfiguration, "cudaErrorInvalidConfiguration", "invalid configuration argument"},
    {cudaErrorInsufficientDriver, "cudaErrorInsufficientDriver", "driver too old"},
    {cudaErrorNoDevice, "cudaErrorNoDevice", "no device"},
    {cudaErrorInvalidDevice, "cudaErrorInvalidDevice", "invalid device ordinal"},
    {cudaErrorECCUncorrectable, "cudaErrorECCUncorrectable", "uncorrectable ECC error"},
    {cudaErrorInvalidResourceHandle, "cudaErrorInvalidResourceHandle", "invalid resource handle"},
    {cudaErrorNotReady, "cudaErrorNotReady", "not ready"},
    {cudaErrorIllegalAddress, "cudaErrorIllegalAddress", "an illegal memory access"},
    {cudaErrorLaunchFailure, "cudaErrorLaunchFailure", "unspecified launch failure"},
    {cudaErrorStreamCaptureUnsupported, "cudaErrorStreamCaptureUnsupported", "not permitted while capturing"},
    {cudaErrorStreamCaptureInvalidated, "cudaErrorStreamCaptureInvalidated", "the capture was invalidated"},
    {cudaErrorStreamCaptureUnmatched, "cudaErrorStreamCaptureUnmatched", "another stream's capture"},
};

const char *cudaGetErrorName(cudaError_t error)
{
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
        if (errors[i].error == error)
            return errors[i].name;
    return "cudaErrorUnknown";
}

const char *cudaGetErrorString(cudaError_t error)
{
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
        if (errors[i].error == error)
            return errors[i].text;
    return "unknown error";
}

/* ---- the devices: equal ones, as many as CUDA_VISIBLE_DEVICES lists, or one if it is not set */

static int device_count(void)
{
    const char *said = getenv("CUDA_VISIBLE_DEVICES");
    if (!said)
        return 1;
    int count = *said && *said != '-';
    for (; count && *said; said++)
        count += *said == ',';
    return count;
}

cudaError_t cudaGetDeviceCount(int *count)
{
    runtime_enter();
    *count = device_count();
    cudaError_t error = call_check();
    return runtime_leave(error || *count ? error : cudaErrorNoDevice);
}

cudaError_t cudaDriverGetVersion(int *version)
{
    *version = CUDART_VERSION;
    return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int *version)
{
    *version = CUDART_VERSION;
    return cudaSuccess;
}

cudaError_t cudaGetDevice(int *device)
{
    *device = 0;
    return cudaSuccess;
}

static cudaError_t device_check(int device)
{
    runtime_enter();
    cudaError_t error = call_check();
    if (!error && !device_count())
        error = cudaErrorNoDevice;
    if (!error && (device < 0 || device >= device_count()))
        error = cudaErrorInvalidDevice;
    return runtime_leave(error);
}

cudaError_t cudaSetDevice(int device)
{
    return device_check(device);
}

cudaError_t cudaSetDeviceFlags(unsigned flags)
{
    (void)flags;
    return device_check(0);
}

cudaError_t cudaInitDevice(int device, unsigned flags, unsigned set)
{
    (void)flags;
    (void)set;
    return device_check(device);
}

cudaError_t cudaDeviceReset(void)
{
    return device_check(0);
}

/* Shared memory of a block: the smallest limit of the GPUs that kernels are compiled for (8.6, 8.9). */
const struct cudaDeviceProp device_properties = {
    .name = "Emulated H200",
    .uuid = {{'d', 'd', 'p', ' ', 'e', 'm', 'u', 'l', 'a', 't', 'e', 'd', ' ', 'g', 'p', 'u'}},
    .sharedMemPerBlock = 49152,
    .sharedMemPerBlockOptin = 101376,
    .sharedMemPerMultiprocessor = 102400,
    .regsPerBlock = 65536,
    .warpSize = 32,
    .maxThreadsPerBlock = 1024,
    .maxThreadsPerMultiProcessor = 2048,
    .maxThreadsDim = {1024, 1024, 64},
    .maxGridSize = {2147483647, 65535, 65535},
    .major = 9,
    .multiProcessorCount = 132,
    .l2CacheSize = 60 << 20,
};

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *out, int device)
{
    cudaError_t error = device_check(device);
    size_t free_bytes;
    const char *name = getenv("DDP_EMULATED_NAME");
    *out = device_properties;
    if (name)
        snprintf(out->name, sizeof(out->name), "%s", name);
    return error ? error : cudaMemGetInfo(&free_bytes, &out->totalGlobalMem);
}

/* DDP_EMULATED_CAPABILITY: 100 for 10.0. */
static int emulated_capability(void)
{
    const char *described = getenv("DDP_EMULATED_CAPABILITY");
    return described ? atoi(described) : 10 * device_properties.major + device_properties.minor;
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attr, int device)
{
    switch (attr) {
    case cudaDevAttrMaxSharedMemoryPerBlock:
        *value = (int)device_properties.sharedMemPerBlock;
        break;
    case cudaDevAttrMultiProcessorCount:
        *value = device_properties.multiProcessorCount;
        break;
    case cudaDevAttrComputeCapabilityMajor:
        *value = emulated_capability() / 10;
        break;
    case cudaDevAttrComputeCapabilityMinor:
        *value = emulated_capability() % 10;
        break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
        *value = (int)device_properties.sharedMemPerBlockOptin;
        break;
    default:
        return cudaErrorInvalidValue;
    }
    return device_check(device);
}

cudaError_t cudaDeviceGetPCIBusId(char *out, int size, int device)
{
    snprintf(out, (size_t)size, "0000:%02x:00.0", device);
    return device_check(device);
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest)
{
    *least = 0;
    *greatest = -5;
    return device_check(0);
}
