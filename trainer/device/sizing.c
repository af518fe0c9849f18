#include "trainer/device/sizing.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "trainer/device/cpu/limit.h"

static enum err_code sizing_alloc(struct device *d, size_t bytes, void **out, struct err *e)
{
    void *at = mmap(NULL, bytes ? bytes : 1, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED)
        return err_set(e, ERR_RESOURCE_EXHAUSTED, "address space: %s", strerror(errno));
    d->bytes += bytes;
    *out = at;
    return ERR_OK;
}

static void sizing_free(struct device *d, void *p)
{
    (void)d;
    (void)p;
}

static void sizing_close(struct device *d)
{
    (void)d;
}

static void sizing_upload(struct device *d, void *to, const void *from_host, size_t bytes)
{
    (void)d;
    (void)to;
    (void)from_host;
    (void)bytes;
}

static enum err_code sizing_reserve(struct device *d, const struct device_sizes *sizes, struct err *e)
{
    (void)d;
    (void)sizes;
    (void)e;
    return ERR_OK;
}

static size_t sizing_muon_bytes(const struct device *d, const struct device_muon *h)
{
    (void)d;
    (void)h;
    return 0;
}

enum err_code sizing_open(struct sizing_device *out, size_t gpu_memory, int threads, enum isa isa,
                          struct err *e)
{
    if (gpu_memory > 0) {
        out->ops = (struct device_ops){
            .name = "gpu", .close = sizing_close, .reserve = sizing_reserve, .muon_bytes = sizing_muon_bytes};
        out->gpu = (struct device){.kept = DEVICE_BF16, .threads = 1, .memory = gpu_memory};
        out->device = &out->gpu;
    } else {
        if ((isa == ISA_AUTO && cpu_limit_isa(ISA_AUTO, e)) ||
            device_open(&out->device, DEVICE_CPU, 0, 1, threads, e))
            return e->code;
        out->ops = *out->device->ops;
        /* This process is not limited to the set, because it may be larger than that of this CPU. */
        if (isa != ISA_AUTO)
            out->device->attends_bf16 = isa >= ISA_AVX512_BF16;
    }
    out->ops.alloc = sizing_alloc;
    out->ops.free = sizing_free;
    out->ops.upload = sizing_upload;
    out->device->ops = &out->ops;
    return ERR_OK;
}
