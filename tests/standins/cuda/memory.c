/* Device memory. Each allocation is a mapping of its own: it is filled with NaN, so that a read before the
 * first write shows, and an inaccessible page follows it, so that an access past its end crashes. If the
 * tests are run with a seed, the mapping is accessible only while an operation runs on the device, so that
 * an access by the host crashes, too. */
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/err.h"
#include "base/mem.h"
#include "internal.h"

enum { PAGE = 4096, ALIGNED = 256, POISON = 0xff, TAIL = 0xa5, PROTECTED = 64 * PAGE, PIECE = 1 << 20 };

struct range {
    struct range *next;
    char *start;
    size_t bytes;
    char *map; /* of the device */
    size_t map_bytes;
};

static struct {
    struct range *device, *pinned;
    size_t bytes, limit;
    bool open;
} memory;

static const struct range *range_find(const struct range *r, const void *p, size_t bytes)
{
    for (; r; r = r->next)
        if ((const char *)p >= r->start && (const char *)p + bytes <= r->start + r->bytes)
            return r;
    return NULL;
}

static struct range *range_take(struct range **from, const void *start)
{
    for (struct range **r = from; *r; r = &(*r)->next)
        if ((*r)->start == start) {
            struct range *taken = *r;
            *r = taken->next;
            return taken;
        }
    return NULL;
}

bool memory_holds(const void *p, size_t bytes)
{
    return range_find(memory.device, p, bytes);
}

bool memory_is_pinned(const void *p, size_t bytes)
{
    return range_find(memory.pinned, p, bytes);
}

size_t emulated_device_bytes(void)
{
    return memory.bytes;
}

/* Only the beginning of a large allocation: a wrong access is usually found there, and page tables take time. */
static size_t protected_bytes(size_t bytes)
{
    return bytes < PROTECTED ? bytes : PROTECTED;
}

static void memory_protect(int how)
{
    for (struct range *r = memory.device; r; r = r->next)
        BUG_ON(mprotect(r->map, protected_bytes(r->map_bytes - PAGE), how));
}

void memory_open(void)
{
    if (!memory.open && emulated_seed())
        memory_protect(PROT_READ | PROT_WRITE);
    memory.open = true;
}

void memory_close(void)
{
    if (memory.open && emulated_seed())
        memory_protect(PROT_NONE);
    memory.open = false;
}

void memory_explain(const void *p, char *out, size_t cap)
{
    const struct range *best = NULL;
    size_t least = SIZE_MAX;
    for (const struct range *r = memory.device; r; r = r->next) {
        size_t off = (const char *)p < r->start ? (size_t)(r->start - (const char *)p)
                                                : (size_t)((const char *)p - r->start);
        if (off < least) {
            least = off;
            best = r;
        }
    }
    snprintf(out, cap, "%p, %td bytes from the start of an allocation of %zu", p,
             best ? (const char *)p - best->start : 0, best ? best->bytes : 0);
}

/* Handles SIGSEGV, when a kernel left its memory or the host accessed device memory: prints the address and the
 * nearest allocation. Then the signal ends the process. */
static void memory_fault(int signal, siginfo_t *info, void *context)
{
    (void)context;
    char where[160], what[400];
    memory_explain(info->si_addr, where, sizeof where);
    const char *kernel = block_running();
    int n =
        snprintf(what, sizeof what, "emulated cuda: %s touched %s\n", kernel ? kernel : "the host", where);
    if (write(STDERR_FILENO, what, (size_t)n) < 0)
        _exit(127);
    struct sigaction plain = {.sa_handler = SIG_DFL};
    sigaction(signal, &plain, NULL);
}

static size_t memory_limit(void)
{
    const char *said = getenv("DDP_EMULATED_MEMORY");
    if (!memory.limit)
        memory.limit = said ? strtoull(said, NULL, 10) : (size_t)8 << 30;
    return memory.limit;
}

/* Fills memory of an allocation. In a large one, pages that nobody writes are those of a small file, so that a workspace of which
 * little is used takes neither time nor memory. */
static void memory_poison(char *start, size_t bytes)
{
    static int file = -1;
    if (bytes < 4 * PIECE) {
        memset(start, POISON, bytes);
        return;
    }
    if (file < 0) {
        file = memfd_create("poison", MFD_CLOEXEC);
        BUG_ON(file < 0 || ftruncate(file, PIECE));
        char *all = mmap(NULL, PIECE, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
        BUG_ON(all == MAP_FAILED);
        memset(all, POISON, PIECE);
        munmap(all, PIECE);
    }
    char *first = (char *)(((uintptr_t)start + PAGE - 1) / PAGE * PAGE);
    char *last = (char *)((uintptr_t)(start + bytes) / PAGE * PAGE);
    memset(start, POISON, (size_t)(first - start));
    memset(last, POISON, (size_t)(start + bytes - last));
    for (size_t n; first < last; first += n) {
        n = (size_t)(last - first) < PIECE ? (size_t)(last - first) : PIECE;
        BUG_ON(mmap(first, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED, file, 0) != first);
    }
}

static cudaError_t memory_alloc(void **out, size_t bytes)
{
    static bool handled;
    struct sigaction act = {.sa_sigaction = memory_fault, .sa_flags = SA_SIGINFO};
    if (!handled)
        handled = !sigaction(SIGSEGV, &act, NULL);
    *out = NULL;
    if (!bytes)
        return cudaSuccess;
    if (memory.bytes + bytes > memory_limit())
        return cudaErrorMemoryAllocation;
    size_t aligned = (bytes + ALIGNED - 1) / ALIGNED * ALIGNED, room = (aligned + PAGE - 1) / PAGE * PAGE;
    char *map = mmap(NULL, room + PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map == MAP_FAILED)
        return cudaErrorMemoryAllocation;
    struct range *r = xcalloc(1, sizeof *r);
    *r = (struct range){memory.device, map + room - aligned, bytes, map, room + PAGE};
    memory.device = r;
    memory.bytes += bytes;
    memset(map, TAIL, room - aligned);
    memory_poison(r->start, bytes);
    memset(r->start + bytes, TAIL, aligned - bytes);
    BUG_ON(mprotect(map + room, PAGE, PROT_NONE));
    if (!memory.open && emulated_seed())
        BUG_ON(mprotect(map, protected_bytes(room), PROT_NONE));
    *out = r->start;
    return cudaSuccess;
}

static bool tail_intact(const char *from, const char *end)
{
    for (; from < end; from++)
        if (*(const unsigned char *)from != TAIL)
            return false;
    return true;
}

/* Returns whether the unused bytes before and behind an allocation are unchanged. */
static bool range_intact(const struct range *r)
{
    return tail_intact(r->map, r->start) && tail_intact(r->start + r->bytes, r->map + r->map_bytes - PAGE);
}

static cudaError_t memory_release(void *p)
{
    if (!p)
        return cudaSuccess;
    struct range *r = range_take(&memory.device, p);
    if (!r)
        return cudaErrorInvalidValue;
    BUG_ON(mprotect(r->map, r->map_bytes - PAGE, PROT_READ));
    if (!range_intact(r))
        runtime_break(cudaErrorIllegalAddress, "something wrote beside an allocation of %zu bytes", r->bytes);
    munmap(r->map, r->map_bytes);
    memory.bytes -= r->bytes;
    free(r);
    return cudaSuccess;
}

/* ---- the runtime's calls */

cudaError_t cudaMalloc(void **out, size_t bytes)
{
    runtime_enter();
    cudaError_t error = call_check();
    if (!error)
        error = stream_forbid_capture();
    return runtime_leave(error ? error : memory_alloc(out, bytes));
}

cudaError_t cudaMallocAsync(void **out, size_t bytes, cudaStream_t stream)
{
    (void)stream;
    return cudaMalloc(out, bytes);
}

cudaError_t cudaFree(void *p)
{
    runtime_enter();
    cudaError_t error = call_check();
    if (!error && p)
        error = stream_drain_all();
    return runtime_leave(error ? error : memory_release(p));
}

cudaError_t cudaFreeAsync(void *p, cudaStream_t stream)
{
    (void)stream;
    return cudaFree(p);
}

cudaError_t cudaHostAlloc(void **out, size_t bytes, unsigned flags)
{
    runtime_enter();
    (void)flags;
    cudaError_t error = call_check();
    if (error)
        return runtime_leave(error);
    struct range *r = xcalloc(1, sizeof *r);
    r->start = xmalloc(bytes ? bytes : 1);
    memset(r->start, POISON, bytes);
    r->bytes = bytes;
    r->next = memory.pinned;
    memory.pinned = r;
    *out = r->start;
    return runtime_leave(cudaSuccess);
}

cudaError_t cudaMallocHost(void **out, size_t bytes)
{
    return cudaHostAlloc(out, bytes, 0);
}

cudaError_t cudaFreeHost(void *p)
{
    runtime_enter();
    cudaError_t error = call_check();
    if (!error && p)
        error = stream_drain_all();
    struct range *r = error || !p ? NULL : range_take(&memory.pinned, p);
    if (!error && p && !r)
        error = cudaErrorInvalidValue;
    if (r)
        free(r->start);
    free(r);
    return runtime_leave(error);
}

cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total)
{
    runtime_enter();
    *total = memory_limit();
    *free_bytes = memory.limit - memory.bytes;
    return runtime_leave(call_check());
}
