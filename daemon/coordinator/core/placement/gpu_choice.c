/* Chooses GPUs for workers: each time the first of those with the fewest workers. So a GPU is shared only when all GPUs are in
 * use, and the load is even.
 *
 * A job with reserved GPUs (placement.c) often has workers on the node that end before the new ones begin. These do not count;
 * the reserved workers do, on GPUs that are chosen by the same rule. A GPU that the job has not used so far, because it was sick, is
 * therefore as busy as the others. Otherwise a new worker would take it first, and too few different GPUs would be left. */
#include "daemon/coordinator/core/placement/gpu_choice.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

/* Workers of each GPU of a node, by index. */
struct gpu_tally {
    const struct job *job; /* whose workers get GPUs */
    const struct node *node;
    int *now;   /* those that hold a place at this moment */
    int *later; /* without those that make room for reserved ones */
    int *load;  /* with the reserved ones */
    int *given; /* its place among the GPUs of one worker, from 1 on; 0: the worker does not get it */
};

void gpu_choice_clear(struct node *node)
{
    node->reserved_count = 0;
}

void gpu_choice_reserve(struct node *node, const struct job *job, int procs, int gpus_each)
{
    size_t at = node->reserved_count;

    node->reserved =
        array_grow(node->reserved, node->reserved_count, &node->reserved_cap, sizeof(*node->reserved));
    /* workers with many GPUs choose first: that leaves the most choice */
    for (; at > 0 && node->reserved[at - 1].gpus_each < gpus_each; at--)
        node->reserved[at] = node->reserved[at - 1];
    node->reserved[at] = (struct gpu_reservation){job, procs, gpus_each};
    node->reserved_count++;
}

static bool reserved_for(const struct node *node, const struct job *job)
{
    for (size_t i = 0; i < node->reserved_count; i++)
        if (node->reserved[i].job == job)
            return true;
    return false;
}

static void gpu_tally_release(struct gpu_tally *t)
{
    free(t->now);
    free(t->later);
    free(t->load);
    free(t->given);
}

static void tally_spawn(struct gpu_tally *t, const struct spawn *s, bool leaving)
{
    const bool of_job = s->job == t->job;
    const bool leaves = of_job && leaving && !spawn_is_between(s);

    for (size_t i = 0; i < t->node->gpu_count && !leaves; i++)
        if (names_contain(s->r.gpu_uuids, t->node->gpus[i].uuid)) {
            t->now[i]++;
            t->later[i] += of_job || !reserved_for(t->node, s->job);
        }
}

static void gpu_tally_init(struct gpu_tally *t, const struct job *job, const struct node *node, bool leaving)
{
    *t = (struct gpu_tally){
        .job = job,
        .node = node,
        .now = xcalloc(node->gpu_count + 1, sizeof(int)),
        .later = xcalloc(node->gpu_count + 1, sizeof(int)),
        .load = xcalloc(node->gpu_count + 1, sizeof(int)),
        .given = xcalloc(node->gpu_count + 1, sizeof(int)),
    };
    for (size_t i = 0; i < node->spawn_count; i++)
        tally_spawn(t, node->spawns[i], leaving);
}

/* Marks the GPUs that one worker gets: those with the least load that have a free place by `busy`. Returns how many these are. */
static int give_gpus(struct gpu_tally *t, const int *busy, int wanted)
{
    const int limit = t->node->gpu_slots > 0 ? t->node->gpu_slots : 1;
    int count = 0;

    memset(t->given, 0, t->node->gpu_count * sizeof(*t->given));
    for (; count < wanted; count++) {
        size_t best = t->node->gpu_count;
        for (size_t i = 0; i < t->node->gpu_count; i++)
            if (t->node->gpus[i].healthy && !t->given[i] && busy[i] < limit &&
                (best == t->node->gpu_count || t->load[i] < t->load[best]))
                best = i;
        if (best == t->node->gpu_count)
            break;
        t->given[best] = count + 1;
    }
    return count;
}

/* Sets the load with the reserved workers of other jobs. Returns how many of their GPUs have a place for them, as long as all
 * others keep theirs. */
static int give_reserved(struct gpu_tally *t)
{
    int count = 0;

    memcpy(t->load, t->later, t->node->gpu_count * sizeof(*t->load));
    for (size_t r = 0; r < t->node->reserved_count; r++) {
        const struct gpu_reservation *reserved = &t->node->reserved[r];
        for (int k = 0; reserved->job != t->job && k < reserved->procs; k++) {
            count += give_gpus(t, t->load, reserved->gpus_each);
            for (size_t i = 0; i < t->node->gpu_count; i++)
                t->load[i] += t->given[i] > 0;
        }
    }
    return count;
}

/* Gives GPUs to a new worker. Returns false if there are not enough. */
static bool give_worker(struct gpu_tally *t, int gpus_each)
{
    (void)give_reserved(t);
    for (size_t i = 0; i < t->node->gpu_count; i++)
        if (t->load[i] < t->now[i])
            t->load[i] = t->now[i];
    if (give_gpus(t, t->now, gpus_each) < gpus_each)
        return false;
    for (size_t i = 0; i < t->node->gpu_count; i++) {
        t->now[i] += t->given[i] > 0;
        t->later[i] += t->given[i] > 0;
    }
    return true;
}

bool gpu_choice_respects_reserved(const struct job *job, const struct node *node, int procs, int gpus_each,
                                  bool leaving)
{
    struct gpu_tally t;
    bool fits = true;

    if (!gpus_each || !node->reserved_count)
        return true;
    gpu_tally_init(&t, job, node, leaving);
    /* reserved workers may wait for other jobs to end: they must not get fewer GPUs than without the new workers */
    const int before = give_reserved(&t);
    for (int k = 0; k < procs && fits; k++)
        fits = give_worker(&t, gpus_each);
    fits = fits && give_reserved(&t) >= before;
    gpu_tally_release(&t);
    return fits;
}

char **gpu_choice_take(const struct job *job, const struct node *node, int gpus_each)
{
    struct gpu_tally t;
    char **uuids = NULL;

    gpu_tally_init(&t, job, node, false);
    const bool enough = give_worker(&t, gpus_each);
    BUG_ON(!enough);
    for (int n = 1; n <= gpus_each; n++)
        for (size_t i = 0; i < node->gpu_count; i++)
            if (t.given[i] == n)
                uuids = strv_append(uuids, node->gpus[i].uuid);
    gpu_tally_release(&t);
    return uuids;
}
