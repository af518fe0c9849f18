/* Checks that cuDNN accepts our attention: for the usual shapes an engine of cuDNN supports the forward and the
 * backward graph and compiles its kernels. No GPU is needed: the test passes a description of the device, and uses a
 * stub of the driver. The stub cannot load the compiled kernels; that error is expected. Exit 77: no cuDNN. */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "trainer/device/cuda/cudnn/cudnn_attention.h"

/* Descriptions of an H200, of an A100 and of a B200 in cuDNN's format. cuDNN chooses engines by such a description. */
#define DEVICE(name, version, processors, shared, l2, memory)                                                \
    "{\"cudaDeviceId\": 0, \"pciDeviceId\": 0, \"deviceName\": \"" name "\", \"deviceVer\": " version        \
    ", \"driverVer\": 13000, \"multiProcessorCount\": " processors                                           \
    ", \"maxSharedMemoryPerBlockOptin\": " shared ", \"l2CacheSize\": " l2 ", \"totalGlobalMem\": " memory   \
    ", \"warpSize\": 32, "                                                                                   \
    "\"maxGridSize\": [2147483647, 65535, 65535], \"maxBlockSize\": [1024, 1024, 64], "                      \
    "\"maxThreadsPerBlock\": 1024, \"maxThreadsPerSM\": 2048, \"maxCtasPerSM\": 32, "                        \
    "\"regsPerBlock\": 65536, \"maxRegistersPerSM\": 65536, \"maxSharedMemoryPerBlock\": 49152, "            \
    "\"reservedSharedMemoryPerBlock\": 1024, \"smClockRateKHz\": 1980000, \"memClockRateKHz\": 3201000, "    \
    "\"isTccDriver\": 0, \"supportCoopLaunch\": 1}"

static const char *const devices[] = {
    DEVICE("NVIDIA H200", "900", "132", "232448", "62914560", "150120000000"),
    DEVICE("NVIDIA A100", "800", "108", "166912", "41943040", "85090000000"),
    DEVICE("NVIDIA B200", "1000", "148", "232448", "132644864", "191500000000"),
};
enum { DEVICES = 3 };
static const int capability[DEVICES] = {90, 80, 100};

static const struct check {
    int device;
    struct cudnn_heads n;
} checks[] = {
    {0, {16, 12, 1024, 64}}, {0, {8, 12, 2048, 64}}, {0, {4, 12, 1000, 64}},  {0, {4, 12, 4096, 128}},
    {0, {4, 12, 1024, 80}},  {0, {4, 12, 1024, 96}}, {0, {2, 12, 1024, 256}}, {1, {16, 12, 1024, 64}},
    {2, {16, 12, 1024, 64}}, {2, {4, 12, 1000, 64}}, {2, {4, 12, 4096, 128}},
};

static cudnnBackendDescriptor_t device_describe(const struct cudnn *lib, const char *json, struct err *e)
{
    cudnnBackendDescriptor_t d = NULL;
    cudnnStatus_t status = lib->make(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, &d);
    if (status == CUDNN_STATUS_SUCCESS)
        status = lib->set(d, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR,
                          (int64_t)strlen(json), json);
    if (status == CUDNN_STATUS_SUCCESS)
        status = lib->finalize(d);
    if (status == CUDNN_STATUS_SUCCESS)
        return d;
    (void)cudnn_failed(lib, status, "device", e);
    return NULL;
}

/* Returns whether cuDNN makes a plan, or fails only because the driver refuses to load the kernels. */
static bool accepts_shape(const struct cudnn *lib, cudnnBackendDescriptor_t device, int which,
                          const struct cudnn_heads *n, bool backward)
{
    const struct cudnn_engine *first = backward ? cudnn_engine_backward(lib->version(), which) : NULL;
    struct cudnn_graph g;
    struct cudnn_plan plan = {0};
    struct err e = {0};
    cudnn_graph_init(&g, lib, &e);
    if (backward)
        cudnn_attention_backward(&g, n);
    else
        cudnn_attention_forward(&g, n);
    enum err_code code =
        cudnn_plan_make(&g, &(struct cudnn_target){.described = device, .first = first}, &plan, &e);
    bool accepted = (code == ERR_OK || code == ERR_UNAVAILABLE) && (!first || plan.engine == first->number);
    (void)printf("  %-8s %2d operations  %s", backward ? "backward" : "forward", g.operations,
                 accepted ? "" : e.msg);
    if (plan.engine)
        (void)printf("engine %lld, workspace %.1f MB", (long long)plan.engine, (double)plan.workspace / 1e6);
    (void)printf("\n");
    cudnn_plan_release(lib, &plan);
    cudnn_graph_release(&g);
    return accepted;
}

/* Returns whether a shape that no engine supports is refused with a reason: a head size that is not a multiple of
 * 8. */
static bool declines_shape(const struct cudnn *lib, cudnnBackendDescriptor_t device)
{
    struct cudnn_graph g;
    struct cudnn_plan plan = {0};
    struct err e = {0};
    cudnn_graph_init(&g, lib, &e);
    cudnn_attention_forward(&g, &(struct cudnn_heads){2, 2, 64, 7});
    enum err_code code = cudnn_plan_make(&g, &(struct cudnn_target){.described = device}, &plan, &e);
    (void)printf("heads of 7: %s\n", code ? e.msg : "taken");
    cudnn_plan_release(lib, &plan);
    cudnn_graph_release(&g);
    return code != ERR_OK && code != ERR_UNAVAILABLE && e.msg[0];
}

int main(int argc, char **argv)
{
    struct cudnn lib;
    struct err e;
    int failures = 0;
    /* The stub has the name of the driver's library, so cuDNN finds it already loaded. */
    if (argc > 1 && !dlopen(argv[1], RTLD_NOW | RTLD_GLOBAL)) {
        (void)printf("skipped: no driver and no stub of one: %s\n", dlerror());
        return 77;
    }
    if (cudnn_load(&lib, &e)) {
        (void)printf("skipped: %s\n", e.msg);
        return 77;
    }
    (void)printf("cuDNN %zu\n", lib.version());
    cudnnBackendDescriptor_t device[DEVICES];
    for (int i = 0; i < DEVICES; i++)
        if (!(device[i] = device_describe(&lib, devices[i], &e))) {
            (void)printf("%s\n", e.msg);
            return 1;
        }
    for (size_t i = 0; i < sizeof(checks) / sizeof(checks[0]); i++) {
        const struct cudnn_heads *n = &checks[i].n;
        (void)printf("(%lld,%lld,%lld,%lld) on device %d\n", (long long)n->rows, (long long)n->heads,
                     (long long)n->context, (long long)n->size, checks[i].device);
        for (int backward = 0; backward < 2; backward++)
            failures +=
                !accepts_shape(&lib, device[checks[i].device], capability[checks[i].device], n, backward);
    }
    failures += !declines_shape(&lib, device[0]);
    for (int i = 0; i < DEVICES; i++)
        (void)lib.unmake(device[i]);
    (void)printf("%d failed\n", failures);
    return failures != 0;
}
