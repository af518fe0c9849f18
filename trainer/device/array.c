#include "trainer/device/array.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/mem.h"

#define PAGE 4096

enum err_code device_shared_pages(int *fd, const char *name, size_t bytes, struct err *e)
{
    int f = memfd_create(name, MFD_CLOEXEC);
    if (f < 0)
        return err_sys(e, errno, "memfd");
    int rc = posix_fallocate(f, 0, (off_t)bytes);
    if (rc) {
        close(f);
        return err_set(e, ERR_RESOURCE_EXHAUSTED, "%zu bytes of shared memory: %s", bytes, strerror(rc));
    }
    *fd = f;
    return ERR_OK;
}

static enum err_code private_pages(size_t bytes, float **out, struct err *e)
{
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED)
        return err_set(e, ERR_RESOURCE_EXHAUSTED, "%zu bytes: %s", bytes, strerror(errno));
    madvise(at, bytes, MADV_HUGEPAGE);
    *out = at;
    return ERR_OK;
}

static enum err_code shared_pages(size_t bytes, int *fd, float **out, struct err *e)
{
    CLEANUP(close_fd) int pages = -1;
    if (device_shared_pages(&pages, "ddp-array", bytes, e))
        return e->code;
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, pages, 0);
    if (at == MAP_FAILED)
        return err_set(e, ERR_RESOURCE_EXHAUSTED, "map %zu bytes of shared memory: %s", bytes,
                       strerror(errno));
    *fd = pages;
    pages = -1;
    *out = at;
    return ERR_OK;
}

size_t device_array_pages(size_t count)
{
    return (count * sizeof(float) + PAGE) / PAGE * PAGE;
}

enum err_code device_array_open(struct device_array *a, struct device *device, size_t count, struct err *e)
{
    *a = (struct device_array){.device = device && !device->host ? device : NULL, .count = count, .fd = -1};
    if (count > SIZE_MAX / 8)
        return err_set(e, ERR_RESOURCE_EXHAUSTED, "an array of %zu floats is too large for any memory",
                       count);
    if (!a->device) {
        a->bytes = device_array_pages(count);
        return private_pages(a->bytes, &a->data, e);
    }
    void *memory = NULL;
    const size_t before = device->bytes;
    if (device->ops->alloc(device, count * sizeof(float), &memory, e))
        return e->code;
    a->bytes = device->bytes - before;
    a->data = memory;
    return ERR_OK;
}

void device_array_close(struct device_array *a)
{
    if (!a->data)
        return;
    if (a->device)
        a->device->ops->free(a->device, a->data);
    else
        munmap(a->data, a->bytes);
    close_fd(&a->fd);
    a->data = NULL;
}

enum err_code device_array_place(struct device_array *a, bool shared, struct err *e)
{
    float *fresh = NULL;
    int fd = -1;
    if (a->device || (!a->stale && (!shared || a->fd >= 0)))
        return ERR_OK;
    if (shared ? shared_pages(a->bytes, &fd, &fresh, e) : private_pages(a->bytes, &fresh, e))
        return e->code;
    memcpy(fresh, a->data, a->count * sizeof(float));
    munmap(a->data, a->bytes);
    close_fd(&a->fd);
    a->data = fresh;
    a->fd = fd;
    a->stale = false;
    return ERR_OK;
}
