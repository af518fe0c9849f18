#include "trainer/device/device.h"

#include "trainer/device/cpu/cpu.h"

enum err_code device_open(struct device **out, enum device_kind kind, int local_rank, int local_ranks,
                          struct err *e)
{
    if (kind == DEVICE_CPU)
        return cpu_open(out, local_rank, local_ranks, e);
    return err_set(e, ERR_UNIMPLEMENTED, "device: cuda is not in this build, use device: cpu");
}

void device_close(struct device *d)
{
    if (d)
        d->ops->close(d);
}

enum err_code device_alloc(struct device *d, size_t bytes, const char *what, void **out, struct err *e)
{
    if (d->ops->alloc(d, bytes, out, e))
        return err_wrap(e, "%s (%zu bytes)", what, bytes);
    return ERR_OK;
}
