#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"
#include "tests/sim/sim.h"

/* The generator splitmix64. */
uint64_t sim_random(struct sim *sim)
{
    uint64_t z = sim->random += 0x9e3779b97f4a7c15u;

    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

int64_t sim_range(struct sim *sim, int64_t low, int64_t high)
{
    return low + (int64_t)(sim_random(sim) % (uint64_t)(high - low + 1));
}

bool sim_chance(struct sim *sim, double p)
{
    return (double)(sim_random(sim) >> 11) * 0x1p-53 < p;
}

bool sim_lost(struct sim *sim)
{
    return sim->faults && sim_chance(sim, sim->loss);
}

/* Returns a short delay, or at times a delay so long that later messages arrive earlier. */
int64_t sim_delay(struct sim *sim)
{
    if (sim->faults && sim_chance(sim, 0.03))
        return sim_range(sim, 0, 4000);
    return sim_range(sim, 0, sim->delay);
}

static bool item_before(const struct item *a, const struct item *b)
{
    return a->at != b->at ? a->at < b->at : a->order < b->order;
}

struct item *sim_plan(struct sim *sim, int64_t at, item_fn run)
{
    struct item *item = xcalloc(1, sizeof(*item));

    item->at = at < sim->now ? sim->now : at;
    item->order = sim->orders++;
    item->run = run;
    sim->heap = array_grow(sim->heap, sim->heap_count, &sim->heap_cap, sizeof(struct item *));
    size_t i = sim->heap_count++;
    for (; i > 0 && item_before(item, sim->heap[(i - 1) / 2]); i = (i - 1) / 2)
        sim->heap[i] = sim->heap[(i - 1) / 2];
    sim->heap[i] = item;
    return item;
}

static struct item *pop_item(struct sim *sim)
{
    struct item *top = sim->heap[0], *last = sim->heap[--sim->heap_count];
    size_t i = 0;

    for (;;) {
        size_t child = 2 * i + 1;
        if (child >= sim->heap_count)
            break;
        if (child + 1 < sim->heap_count && item_before(sim->heap[child + 1], sim->heap[child]))
            child++;
        if (!item_before(sim->heap[child], last))
            break;
        sim->heap[i] = sim->heap[child];
        i = child;
    }
    if (sim->heap_count)
        sim->heap[i] = last;
    return top;
}

bool sim_step(struct sim *sim)
{
    if (!sim->heap_count)
        return false;
    struct item *item = pop_item(sim);
    sim->now = item->at;
    sim->events++;
    item->run(sim, item);
    free(item->ptr);
    free(item);
    return true;
}

struct core_now sim_clock(const struct sim *sim)
{
    return (struct core_now){sim->now + 1000000, 1700000000000 + sim->now + sim->wall_offset};
}

void sim_fail(struct sim *sim, const char *fmt, ...)
{
    va_list args;

    if (sim->failed)
        return;
    sim->failed = true;
    va_start(args, fmt);
    vsnprintf(sim->why, sizeof(sim->why), fmt, args);
    va_end(args);
}

void sim_say(const struct sim *sim, const char *fmt, ...)
{
    va_list args;

    if (!sim->verbose)
        return;
    printf("%10.3f ", (double)sim->now / 1000);
    va_start(args, fmt);
    vprintf(fmt, args);
    va_end(args);
    putchar('\n');
}

void sim_free(struct sim *sim)
{
    for (size_t i = 0; i < sim->heap_count; i++) {
        free(sim->heap[i]->ptr);
        free(sim->heap[i]);
    }
    free(sim->heap);
    for (int i = 0; i < sim->machine_count; i++)
        machine_release(&sim->machines[i]);
    core_free(sim->host.core);
    core_out_release(&sim->host.out);
    free(sim->host.pending);
    free(sim->sessions);
    free(sim->answers);
    free(sim->parted);
    free(sim->told);
    free(sim->requests);
    free(sim->starts);
    for (size_t i = 0; i < sim->content_count; i++)
        records_release(&sim->contents[i].records);
    free(sim->contents);
    durable_release(&sim->backup);
    durable_release(&sim->durable);
}
