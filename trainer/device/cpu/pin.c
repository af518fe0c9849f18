#include "trainer/device/cpu/pin.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/mem.h"

#define INTERLEAVE 3 /* MPOL_INTERLEAVE of set_mempolicy(2), whose header belongs to libnuma */

/* What is divided among ranks: cores, or hardware threads if there are more ranks than cores. */
struct unit {
    int cpu, node;
};
/* All units of a rank are in one region: a NUMA node, or several if there are fewer ranks. */
struct region {
    size_t first, count; /* of the units */
    size_t ranks;
};
struct division {
    struct unit *units; /* by NUMA node; in one, the second hardware threads come after all cores */
    bool threads;       /* units are hardware threads */
    size_t unit_count;
    struct region *regions;
    size_t region_count,
        each; /* each: units that every rank gets at least; 0: there are more ranks than units */
};

static bool is_first_thread(const struct topology_cpu *c)
{
    return c->cpu == c->core;
}

static void units_list(struct division *d, const struct topology *t)
{
    d->units = xcalloc(t->count + 1, sizeof(*d->units));
    for (size_t from = 0, end; from < t->count; from = end) {
        for (end = from; end < t->count && t->cpus[end].node == t->cpus[from].node; end++)
            ;
        for (int later = 0; later <= d->threads; later++)
            for (size_t i = from; i < end; i++)
                if (is_first_thread(&t->cpus[i]) != later)
                    d->units[d->unit_count++] = (struct unit){t->cpus[i].cpu, t->cpus[i].node};
    }
}

static size_t nodes_count(const struct division *d)
{
    size_t nodes = 0;
    for (size_t i = 0; i < d->unit_count; i++)
        nodes += i == 0 || d->units[i].node != d->units[i - 1].node;
    return nodes;
}

static void regions_list(struct division *d, size_t ranks)
{
    const size_t nodes = nodes_count(d), together = nodes >= 2 * ranks ? nodes / ranks : 1;
    size_t seen = 0;
    d->regions = xcalloc(nodes + 1, sizeof(*d->regions));
    for (size_t i = 0; i < d->unit_count; i++) {
        const bool begins = i == 0 || d->units[i].node != d->units[i - 1].node;
        if (begins && seen++ % together == 0)
            d->regions[d->region_count++].first = i;
        d->regions[d->region_count - 1].count++;
    }
}

/* The largest number of units that every rank can have in one region. */
static size_t units_each(const struct division *d, size_t ranks)
{
    for (size_t each = d->unit_count; each > 0; each--) {
        size_t room = 0;
        for (size_t i = 0; i < d->region_count; i++)
            room += d->regions[i].count / each;
        if (room >= ranks)
            return each;
    }
    return 0;
}

/* One rank for each region, then another one, where there is room. */
static void ranks_spread(struct division *d, size_t ranks)
{
    for (size_t placed = 0, i = 0; placed < ranks; i = (i + 1) % d->region_count) {
        struct region *r = &d->regions[i];
        if ((r->ranks + 1) * d->each > r->count)
            continue;
        r->ranks++;
        placed++;
    }
}

static void division_make(struct division *d, const struct topology *t, size_t ranks)
{
    *d = (struct division){.threads = ranks > topology_cores(t)};
    units_list(d, t);
    regions_list(d, ranks);
    d->each = units_each(d, ranks);
    if (d->each > 0)
        ranks_spread(d, ranks);
}

static void division_free(struct division *d)
{
    free(d->units);
    free(d->regions);
}

/* The ranks of a region are consecutive, so neighbours in a ring of ranks are near each other. */
static void rank_units(const struct division *d, size_t rank, size_t *first, size_t *count)
{
    *first = d->unit_count ? rank % d->unit_count : 0;
    *count = d->unit_count > 0;
    for (size_t i = 0; d->each > 0 && i < d->region_count; i++) {
        const struct region *r = &d->regions[i];
        if (rank < r->ranks) {
            *count = d->threads ? d->each
                                : r->count / r->ranks; /* the rest are threads of cores that others use */
            *first = r->first + rank * *count;
            return;
        }
        rank -= r->ranks;
    }
}

static int number_compare(const void *a, const void *b)
{
    return (*(const int *)a > *(const int *)b) - (*(const int *)a < *(const int *)b);
}

/* Adds the other hardware threads of the share's cores. */
static void siblings_add(struct cpu_share *s, const struct topology *t)
{
    const size_t had = s->count;
    for (size_t i = 0; i < t->count; i++)
        for (size_t k = 0; k < had && !is_first_thread(&t->cpus[i]); k++)
            if (t->cpus[i].core == s->cpus[k])
                s->cpus[s->count++] = t->cpus[i].cpu;
}

void cpu_share_choose(struct cpu_share *out, const struct topology *t, int local_rank, int local_ranks,
                      int wanted)
{
    struct division d;
    size_t first, count;
    division_make(&d, t, (size_t)local_ranks);
    rank_units(&d, (size_t)local_rank, &first, &count);
    *out = (struct cpu_share){.cpus = xcalloc(t->count + 1, sizeof(*out->cpus)),
                              .nodes = xcalloc(t->count + 1, sizeof(*out->nodes)),
                              .threads = d.each > 0 ? (int)d.each : 1};
    for (size_t i = first; i < first + count; i++) {
        out->cpus[out->count++] = d.units[i].cpu;
        if (!out->node_count || out->nodes[out->node_count - 1] != d.units[i].node)
            out->nodes[out->node_count++] = d.units[i].node;
    }
    /* A rank that has all cores shares them with other jobs' ranks. Linux then uses the second threads for these. */
    if (((size_t)wanted > out->count || local_ranks == 1) && !d.threads)
        siblings_add(out, t);
    qsort(out->cpus, out->count, sizeof(*out->cpus), number_compare);
    division_free(&d);
}

void cpu_share_release(struct cpu_share *s)
{
    free(s->cpus);
    free(s->nodes);
    *s = (struct cpu_share){0};
}

/* One thread allocates and zeroes the arrays that all use, so its NUMA node would have all the memory. A container may forbid
 * the call; then it has. */
static void memory_interleave(const struct cpu_share *s)
{
    struct topology_set nodes = {{0}};
    for (size_t i = 0; i < s->node_count; i++)
        CPU_SET_S((size_t)s->nodes[i], sizeof(nodes), topology_cpus(&nodes));
    (void)syscall(SYS_set_mempolicy, INTERLEAVE, nodes.words, (unsigned long)1024);
}

static enum err_code share_take(const struct cpu_share *s, struct err *e)
{
    struct topology_set mine = {{0}};
    for (size_t i = 0; i < s->count; i++)
        CPU_SET_S((size_t)s->cpus[i], sizeof(mine), topology_cpus(&mine));
    if (sched_setaffinity(0, sizeof(mine), topology_cpus(&mine)) < 0)
        return err_sys(e, errno, "cannot pin this process to its cores");
    if (s->node_count > 1)
        memory_interleave(s);
    return ERR_OK;
}

enum err_code cpu_pin(struct cpu_share *out, int local_rank, int local_ranks, int wanted, struct err *e)
{
    const bool pinned = local_rank >= 0;
    struct topology t;
    if (topology_read_own(&t, e))
        return e->code;
    cpu_share_choose(out, &t, pinned ? local_rank : 0, local_ranks, wanted);
    topology_release(&t);
    if (!pinned)
        out->count = out->node_count = 0;
    else if (share_take(out, e)) {
        cpu_share_release(out);
        return e->code;
    }
    return ERR_OK;
}
