#include "trainer/device/cpu/cpu.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/mem.h"
#include "trainer/device/cpu/dense.h"
#include "trainer/device/cpu/flat.h"
#include "trainer/device/cpu/gemm_bf16.h"
#include "trainer/device/cpu/limit.h"
#include "trainer/device/cpu/loss.h"
#include "trainer/device/cpu/pin.h"
#include "trainer/device/cpu/profile.h"
#include "trainer/device/cpu/sequence.h"

/* Stored before every allocation, so that free knows the size. It takes a whole cache line, so that the
 * memory after it stays aligned. */
struct cpu_header {
    size_t bytes;
    char fill[64 - sizeof(size_t)];
};

#define HUGE_PAGE ((size_t)2 << 20) /* on x86-64, and on ARM with small pages of 4 KiB */

/* Returns memory that is zero, or NULL if there is none. Asks for huge pages for large arrays, since many systems give them only on request.
 * A GPT of 6 layers and 384 columns in bf16 then takes 5 to 9 % less CPU time for a step (tests/bench/cpu_time on an idle Zen 4), and
 * half a second more for its start. The end of an array, less than a huge page, stays in small pages: it would waste the rest of a huge one. */
static void *cleared_memory(size_t bytes)
{
    const bool large = bytes >= 2 * HUGE_PAGE;
    const size_t unit = large ? HUGE_PAGE : 64;
    void *at = aligned_alloc(unit, (bytes + unit - 1) / unit * unit);

    if (!at)
        return NULL;
    if (large)
        madvise(at, bytes / HUGE_PAGE * HUGE_PAGE, MADV_HUGEPAGE); /* a kernel without them changes nothing */
    memset(at, 0, bytes);
    return at;
}

static void cpu_close(struct device *d)
{
    struct cpu_device *c = cpu_of(d);
    cpu_profile_close(c->profile);
    cpu_bf16_close(c->bf16);
    free(c->wide.memory);
    free(c->scratch.memory);
    free(c);
}

void cpu_failed(struct cpu_device *c, const struct err *e)
{
    if (c->first.code == ERR_OK)
        c->first = *e;
}

void *cpu_grow(struct cpu_device *c, struct cpu_room *room, size_t bytes)
{
    struct err e = {0};
    size_t whole = (bytes + 4095) / 4096 * 4096;
    if (whole <= room->bytes)
        return room->memory;
    free(room->memory);
    c->base.workspace -= room->bytes;
    *room = (struct cpu_room){cleared_memory(whole), whole};
    if (!room->memory) {
        room->bytes = 0;
        err_set(&e, ERR_RESOURCE_EXHAUSTED, "workspace (%zu bytes): out of memory", whole);
        cpu_failed(c, &e);
        return NULL;
    }
    c->base.workspace += whole;
    return room->memory;
}

static enum err_code cpu_wait(struct device *d, struct err *e)
{
    struct cpu_device *c = cpu_of(d);
    if (c->first.code == ERR_OK)
        return ERR_OK;
    *e = c->first;
    c->first.code = ERR_OK;
    return e->code;
}

static enum err_code cpu_alloc(struct device *d, size_t bytes, void **out, struct err *e)
{
    if (bytes > SIZE_MAX / 2)
        return err_set(e, ERR_RESOURCE_EXHAUSTED, "out of memory");
    size_t whole = sizeof(struct cpu_header) + (bytes + 63) / 64 * 64;
    struct cpu_header *h = cleared_memory(whole);
    if (!h)
        return err_set(e, ERR_RESOURCE_EXHAUSTED, "out of memory");
    h->bytes = bytes;
    d->bytes += bytes;
    *out = h + 1;
    return ERR_OK;
}

static void cpu_free(struct device *d, void *p)
{
    if (!p)
        return;
    struct cpu_header *h = (struct cpu_header *)p - 1;
    d->bytes -= h->bytes;
    free(h);
}

/* Threads that are not the device's call these, too, such as the one that writes snapshots. */
static void cpu_copy(struct device *d, void *to, const void *from, size_t bytes)
{
    (void)d;
    if (to != from)
        memcpy(to, from, bytes);
}

static const struct device_ops cpu_ops = {
    .name = "cpu",
    .close = cpu_close,
    .wait = cpu_wait,
    .alloc = cpu_alloc,
    .free = cpu_free,
    .upload = cpu_copy,
    .download = cpu_copy,
    .copy = flat_copy,
    .zero = flat_zero,
    .product = dense_product,
    .linear = sequence_linear,
    .narrow = dense_narrow,
    .bias_grad = dense_bias_grad,
    .activate = dense_activate,
    .activate_grad = dense_activate_grad,
    .bias_activate_grad = sequence_bias_activate_grad,
    .embed = sequence_embed,
    .embed_grad = sequence_embed_grad,
    .norm = sequence_norm,
    .norm_grad = sequence_norm_grad,
    .attention = sequence_attention,
    .attention_grad = sequence_attention_grad,
    .reserve = sequence_reserve,
    .cross_entropy = loss_cross_entropy,
    .mse = loss_mse,
    .tally_mean = loss_tally_mean,
    .sum_squares = flat_sum_squares,
    .clip_scale = flat_clip_scale,
    .scale = flat_scale,
    .add = flat_add,
    .sgd = flat_sgd,
    .adamw = flat_adamw,
    .muon = flat_muon,
    .muon_bytes = flat_muon_bytes,
};

static void share_print(struct cpu_device *c, const struct cpu_share *share)
{
    CLEANUP(buf_release) struct buf cores = {0}, nodes = {0};
    topology_print(share->cpus, share->count, &cores);
    topology_print(share->nodes, share->node_count, &nodes);
    snprintf(c->base.cores, sizeof(c->base.cores), "%s", cores.len ? cores.data : "");
    snprintf(c->base.numa_nodes, sizeof(c->base.numa_nodes), "%s", nodes.len ? nodes.data : "");
}

enum err_code cpu_open(struct device **out, int local_rank, int local_ranks, int threads, struct err *e)
{
    int sets = 0;
    struct cpu_bf16 *bf16 = NULL;
    CLEANUP(cpu_share_release) struct cpu_share share = {0};
    if (cpu_pin(&share, local_rank, local_ranks, threads, e) || cpu_bf16_open(&bf16, e))
        return e->code;
    threads = threads > 0 ? threads : share.threads;
    struct cpu_device *c = xcalloc(1, sizeof(*c));
    c->base = (struct device){
        .ops = &cpu_ops, .host = true, .kept = DEVICE_F32, .narrows = true, .threads = threads};
    share_print(c, &share);
    c->bf16 = bf16;
    cpu_threads_open(&c->threads, threads);
    const enum isa isa = cpu_isa();
    const struct cpu_set *all = cpu_sets(&sets);
    while (sets > 1 && all[sets - 1].isa > isa)
        sets--;
    c->set = all[sets - 1];
    c->half = isa >= ISA_AVX512_BF16 && cpu_bf16_works(bf16) ? cpu_half() : NULL;
    c->base.attends_bf16 = c->half != NULL;
    snprintf(c->base.name, sizeof(c->base.name), "cpu:%s", isa_names[isa]);
    c->profile = cpu_profile_open(&c->base);
    *out = &c->base;
    return ERR_OK;
}
