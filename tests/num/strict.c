/* A plugin whose device computes with the CPU's operations and bits, but reports that its memory is not host
 * memory. The addresses that it hands out can be neither read nor written. Every operation finds the floats
 * at a fixed distance from such an address. Therefore host code that touches device memory crashes at once,
 * and an operation that is given host memory reports a bug.
 *
 * Operations are queued. They run in order when a caller waits or downloads a result. A recording can be
 * replayed. */
#include "tests/num/strict.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/mem.h"
#include "trainer/device/cpu/limit.h"
#include "trainer/device/plugin.h"

#define ROOM ((size_t)4 << 30) /* size of the address ranges; only pages that are used take memory */

struct calls {
    struct call *items;
    size_t count, cap;
};

struct recording {
    uint64_t key;
    struct calls calls;
};

struct strict_device {
    struct device base;
    struct device *cpu;
    char *away, *here; /* away: the addresses that callers get; here: the memory of these addresses */
    size_t used;       /* never shrinks, so that a pointer to freed memory never becomes valid again */
    struct calls due;
    struct recording *recordings; /* while `recording` is set, calls are added to the last one */
    size_t recording_count, recording_cap;
    bool recording, forgets;
};

struct header { /* lies before each allocation, in the memory at `here` */
    size_t bytes;
    char fill[64 - sizeof(size_t)];
};

static struct strict_device *strict_of(struct device *d)
{
    return (struct strict_device *)(void *)d;
}

void *strict_in(struct device *d, const void *p)
{
    struct strict_device *s = strict_of(d);
    const char *at = p;
    if (!p)
        return NULL;
    BUG_ON(at < s->away || at >= s->away + s->used);
    return s->here + (at - s->away);
}

static bool is_ours(struct device *d, const void *p)
{
    struct strict_device *s = strict_of(d);
    const char *at = p;
    return (at >= s->away && at < s->away + ROOM) || (at >= s->here && at < s->here + ROOM);
}

/* ---- the queue */

static void calls_append(struct calls *to, const struct call *c)
{
    to->items = array_grow(to->items, to->count, &to->cap, sizeof(*c));
    to->items[to->count++] = *c;
}

void strict_not_while_recording(struct device *d)
{
    BUG_ON(strict_of(d)->recording);
}

void strict_call(struct device *d, struct call c)
{
    struct strict_device *s = strict_of(d);
    calls_append(&s->due, &c);
    if (s->recording)
        calls_append(&s->recordings[s->recording_count - 1].calls, &c);
}

static void do_all(struct strict_device *s)
{
    BUG_ON(s->recording);
    for (size_t i = 0; i < s->due.count; i++)
        s->due.items[i].run(s->cpu, &s->due.items[i]);
    s->due.count = 0;
}

static struct recording *recording_find(struct strict_device *s, uint64_t key)
{
    for (size_t i = 0; i < s->recording_count; i++)
        if (s->recordings[i].key == key)
            return &s->recordings[i];
    return NULL;
}

static void strict_record(struct device *d, uint64_t key)
{
    struct strict_device *s = strict_of(d);
    BUG_ON(!key || s->recording || recording_find(s, key));
    s->recordings = array_grow(s->recordings, s->recording_count, &s->recording_cap, sizeof(*s->recordings));
    s->recordings[s->recording_count++] = (struct recording){.key = key};
    s->recording = true;
}

static bool strict_recorded(struct device *d)
{
    struct strict_device *s = strict_of(d);
    struct calls *taken = &s->recordings[s->recording_count - 1].calls;
    BUG_ON(!s->recording || !taken->count);
    s->recording = false;
    if (!s->forgets)
        return true;
    /* the recording fails: its calls are removed from the queue, so they never run */
    s->due.count -= taken->count;
    free(taken->items);
    s->recording_count--;
    return false;
}

static bool strict_replay(struct device *d, uint64_t key)
{
    struct strict_device *s = strict_of(d);
    const struct recording *r = recording_find(s, key);
    BUG_ON(s->recording);
    for (size_t i = 0; r && i < r->calls.count; i++)
        calls_append(&s->due, &r->calls.items[i]);
    return r != NULL;
}

/* ---- memory */

static void strict_close(struct device *d)
{
    struct strict_device *s = strict_of(d);
    s->recording = false;
    do_all(s);
    for (size_t i = 0; i < s->recording_count; i++)
        free(s->recordings[i].calls.items);
    free(s->recordings);
    free(s->due.items);
    munmap(s->away, ROOM);
    munmap(s->here, ROOM);
    device_close(s->cpu);
    free(s);
}

static enum err_code strict_wait(struct device *d, struct err *e)
{
    struct strict_device *s = strict_of(d);
    do_all(s);
    return s->cpu->ops->wait(s->cpu, e);
}

static enum err_code strict_alloc(struct device *d, size_t bytes, void **out, struct err *e)
{
    struct strict_device *s = strict_of(d);
    strict_not_while_recording(d);
    if (bytes > ROOM - s->used - 2 * sizeof(struct header))
        return err_set(e, ERR_RESOURCE_EXHAUSTED, "out of memory");
    struct header *h = (void *)(s->here + s->used);
    h->bytes = bytes;
    *out = s->away + s->used + sizeof(*h);
    s->used += (sizeof(*h) + bytes + 63) / 64 * 64;
    d->bytes += bytes;
    return ERR_OK;
}

/* Overwrites the freed memory, so that a later use changes the results. */
static void strict_free(struct device *d, void *p)
{
    if (!p)
        return;
    struct header *h = (struct header *)strict_in(d, p) - 1;
    do_all(strict_of(d));
    d->bytes -= h->bytes;
    memset(h + 1, 0xff, h->bytes);
}

/* p[1] holds the uploaded data until this call has copied it. */
static void run_upload(struct device *cpu, const struct call *c)
{
    (void)cpu;
    memcpy(c->p[0], c->p[1], (size_t)c->n[0]);
    free(c->p[1]);
}

static void strict_upload(struct device *d, void *to, const void *from_host, size_t bytes)
{
    void *copy = xcalloc(1, bytes);
    BUG_ON(is_ours(d, from_host));
    strict_not_while_recording(d);
    memcpy(copy, from_host, bytes);
    strict_call(d, (struct call){.run = run_upload, .p = {strict_in(d, to), copy}, .n = {(int64_t)bytes}});
}

static void strict_download(struct device *d, void *to_host, const void *from, size_t bytes)
{
    BUG_ON(is_ours(d, to_host));
    do_all(strict_of(d));
    memcpy(to_host, strict_in(d, from), bytes);
}

static void run_copy(struct device *cpu, const struct call *c)
{
    (void)cpu;
    memcpy(c->p[0], c->p[1], (size_t)c->n[0]);
}

static void strict_copy(struct device *d, void *to, const void *from, size_t bytes)
{
    strict_call(d, (struct call){
                       .run = run_copy, .p = {strict_in(d, to), strict_in(d, from)}, .n = {(int64_t)bytes}});
}

static void run_zero(struct device *cpu, const struct call *c)
{
    (void)cpu;
    memset(c->p[0], 0, (size_t)c->n[0]);
}

static void strict_zero(struct device *d, void *to, size_t bytes)
{
    strict_call(d, (struct call){.run = run_zero, .p = {strict_in(d, to)}, .n = {(int64_t)bytes}});
}

static enum err_code strict_reserve(struct device *d, const struct device_sizes *sizes, struct err *e)
{
    struct device *cpu = strict_of(d)->cpu;
    return cpu->ops->reserve(cpu, sizes, e);
}

static size_t strict_muon_bytes(const struct device *d, const struct device_muon *h)
{
    const struct device *cpu = ((const struct strict_device *)(const void *)d)->cpu;
    return cpu->ops->muon_bytes(cpu, h);
}

/* ---- the plugin */

static int number_of(const char *name, int otherwise)
{
    const char *text = getenv(name);
    return text ? atoi(text) : otherwise;
}

static const struct device_ops *strict_device_ops(void)
{
    static struct device_ops ops = {
        .name = "strict",
        .close = strict_close,
        .wait = strict_wait,
        .alloc = strict_alloc,
        .free = strict_free,
        .upload = strict_upload,
        .download = strict_download,
        .copy = strict_copy,
        .zero = strict_zero,
        .reserve = strict_reserve,
        .muon_bytes = strict_muon_bytes,
    };
    strict_operations(&ops);
    if (number_of("DDP_STRICT_RECORDS", 0)) {
        ops.record = strict_record;
        ops.recorded = strict_recorded;
        ops.replay = strict_replay;
    }
    return &ops;
}

/* Environment variables:
 * DDP_STRICT_RECORDS=1: the device can record; =2: each recording fails.
 * DDP_STRICT_DECLINES=RANK: this rank has no strict device.
 * DDP_STRICT_OTHER=RANK: this rank's device reports another model.
 * DDP_STRICT_KEEPS=16: the kept type is bf16 instead of float.
 * DDP_STRICT_THREADS: the number of threads. */
static enum err_code strict_open(struct device **out, struct err *e)
{
    struct device *cpu = NULL;
    if (number_of("DDP_STRICT_DECLINES", -1) == number_of("RANK", 0))
        return err_set(e, ERR_UNAVAILABLE, "this rank has no strict device");
    /* A worker on the CPU does the same. The tests compare its results with those of this device. */
    if (cpu_limit_isa(ISA_AUTO, e) ||
        device_open(&cpu, DEVICE_CPU, number_of("LOCAL_RANK", 0), number_of("LOCAL_WORLD_SIZE", 1),
                    number_of("DDP_STRICT_THREADS", 0), e))
        return e->code;
    struct strict_device *s = xcalloc(1, sizeof(*s));
    s->base = (struct device){.ops = strict_device_ops(), .name = "strict"};
    s->base.kept = number_of("DDP_STRICT_KEEPS", 32) == 16 ? DEVICE_BF16 : DEVICE_F32;
    s->base.attends_bf16 = cpu->attends_bf16 && s->base.kept == DEVICE_F32;
    if (number_of("DDP_STRICT_OTHER", -1) == number_of("RANK", 0))
        snprintf(s->base.name, sizeof(s->base.name), "strict 2");
    s->base.threads = cpu->threads;
    s->forgets = number_of("DDP_STRICT_RECORDS", 0) > 1;
    s->cpu = cpu;
    s->away = mmap(NULL, ROOM, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    s->here = mmap(NULL, ROOM, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    BUG_ON(s->away == MAP_FAILED || s->here == MAP_FAILED);
    *out = &s->base;
    return ERR_OK;
}

__attribute__((visibility("default"))) const struct plugin *ddp_plugin(uint32_t abi);
const struct plugin *ddp_plugin(uint32_t abi)
{
    static const struct plugin strict = {
        .abi = PLUGIN_ABI,
        .size = sizeof(strict),
        .name = "strict",
        .version = "the CPU with hidden memory",
        .open = strict_open,
    };
    return abi == PLUGIN_ABI ? &strict : NULL;
}
