/* Names the nearest ask that would run, for a job that the nodes cannot run as it is asked for.
 *
 * Nearest means: first on the same kind of device, then on CPUs; and there with the most workers (and GPUs),
 * where an ask changes only downwards: fewer nodes, fewer workers on each node, fewer GPUs of each worker. An
 * ask that could start now is preferred to one that would wait for other jobs. */
#include "daemon/coordinator/core/placement/advice.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"
#include "base/text.h"
#include "daemon/coordinator/core/model.h"
#include "daemon/coordinator/core/placement/capacity.h"
#include "daemon/coordinator/core/placement/compatibility.h"
#include "daemon/coordinator/core/placement/world_size.h"

#define NODES_SHOWN 8

/* Counts slots as a placement pass does, and keeps what waits for jobs that would come before this one. */
static void advice_count_slots(const struct core *core, const struct job *job)
{
    for (size_t i = 0; i < core->node_count; i++)
        capacity_count(core->nodes[i]);
    for (size_t i = 0; i < core->job_count; i++) {
        const struct job *other = core->jobs[i];
        const bool waits = other->r.state == JOB_RECOVERING ||
                           (other->r.state == JOB_QUEUED && other->spec.priority >= job->spec.priority);
        for (char **name = waits && other != job ? other->targets : NULL; name && *name; name++) {
            struct placement_choice c = {.node = core_find_node(core, *name)};
            if (!c.node)
                continue;
            c.procs = capacity_procs(other, c.node, capacity_slot_kind(core, other), &c.gpus_each);
            if (c.procs)
                capacity_reserve(other, c.node, &c);
        }
    }
}

/* The number of nodes that the job would run on, 0 if it cannot. now: on slots that are free at present. without: not on these
 * nodes; NULL with `now`. */
static size_t advice_count_nodes(const struct core *core, const struct job *job, bool now,
                                 char *const *without)
{
    struct placement_choice *list = xcalloc(core->node_count + 1, sizeof(*list));
    const enum slot_kind kind = capacity_slot_kind(core, job);
    size_t count = now ? capacity_candidates(core, job, kind, CAPACITY_NOW, list) : 0;

    for (size_t i = 0; i < core->node_count && !now; i++) {
        struct placement_choice c = {.node = core->nodes[i]};
        if (names_contain(without, c.node->r.name))
            continue;
        c.procs = capacity_expected(c.node) ? capacity_procs(job, c.node, kind, &c.gpus_each) : 0;
        if (c.procs)
            list[count++] = c;
    }
    if (compatibility_matters(job, kind))
        count = compatibility_keep_largest(list, count);
    count = world_size_choose(&job->spec, job->spec.nodes_min, job->spec.nodes_max, 0, list, count);
    free(list);
    return count;
}

static int64_t least_of(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* No node has more slots of this kind than this, or more free ones with `now`. */
static int64_t advice_largest_node(const struct core *core, enum slot_kind kind, bool now)
{
    int64_t most = 0;

    for (size_t i = 0; i < core->node_count; i++) {
        const struct node *node = core->nodes[i];
        const int total = kind == SLOT_GPU ? node->place.gpu_total : node->place.cpu_total;
        const int slots = now ? capacity_available(node, kind) : total;
        if (capacity_expected(node) && slots > most)
            most = slots;
    }
    return most;
}

/* The ask with the most workers that is at most `spec`, written to `found`. False: there is none. It runs on the
 * coordinator's thread, so it examines the nodes only for asks that are larger than the best so far and that some node
 * may have room for. An ask on CPUs is examined once, as its workers use no GPUs. */
static bool advice_search_smaller(const struct core *core, const struct job *job, bool now,
                                  struct job_spec *found)
{
    const struct job_spec *asked = &job->spec;
    const bool number = asked->procs == JOB_PROCS_NUMBER, cuda = asked->device == JOB_DEVICE_CUDA;
    const int64_t on_gpus = advice_largest_node(core, SLOT_GPU, now);
    const int64_t on_cpus = cuda ? 0 : advice_largest_node(core, SLOT_CPU, now);
    const int64_t procs = number ? least_of(asked->procs_per_node, on_cpus > on_gpus ? on_cpus : on_gpus) : 1;
    const int64_t gpus = asked->gpus_per_proc == JOB_GPUS_ALL ? 1 : least_of(asked->gpus_per_proc, 64);
    const int64_t nodes_most = least_of((int64_t)core->node_count, asked->nodes_min);
    int64_t most = 0;

    for (int64_t p = procs; p > 0; p--)
        for (int64_t g = gpus; g > 0 && nodes_most * p * g > most; g--) {
            struct job less = *job;
            if (p * g > on_gpus && (g < gpus || p > on_cpus))
                continue;
            less.spec.procs_per_node = number ? p : asked->procs_per_node;
            less.spec.gpus_per_proc = asked->gpus_per_proc == JOB_GPUS_ALL ? JOB_GPUS_ALL : g;
            less.spec.nodes_min = 1;
            const int64_t nodes =
                least_of((int64_t)advice_count_nodes(core, &less, now, NULL), asked->nodes_min);
            if (nodes * p * g <= most)
                continue;
            most = nodes * p * g;
            less.spec.nodes_min = nodes;
            less.spec.nodes_max = asked->nodes_min == asked->nodes_max ? nodes : asked->nodes_max;
            *found = less.spec;
        }
    return most > 0;
}

/* The flags that change `asked` to `other`, each with a blank behind it. */
static void advice_print_flags(const struct job_spec *asked, const struct job_spec *other, struct buf *out)
{
    if (other->nodes_min != asked->nodes_min && other->nodes_min == other->nodes_max)
        buf_printf(out, "--nodes %" PRId64 " ", other->nodes_min);
    else if (other->nodes_min != asked->nodes_min)
        buf_printf(out, "--nodes %" PRId64 ":%" PRId64 " ", other->nodes_min, other->nodes_max);
    if (other->procs != asked->procs)
        buf_puts(out, "--procs-per-node cpu ");
    else if (other->procs_per_node != asked->procs_per_node)
        buf_printf(out, "--procs-per-node %" PRId64 " ", other->procs_per_node);
    if (other->gpus_per_proc != asked->gpus_per_proc)
        buf_printf(out, "--gpus-per-proc %" PRId64 " ", other->gpus_per_proc);
    if (other->device != asked->device)
        buf_puts(out, "--device cpu ");
}

static bool advice_search_nearest(const struct core *core, const struct job *job, bool now,
                                  struct job_spec *found)
{
    struct job on_cpus = *job;

    if (advice_search_smaller(core, job, now, found))
        return true;
    if (capacity_slot_kind(core, job) == SLOT_CPU)
        return false;
    on_cpus.spec.device = JOB_DEVICE_CPU;
    if (on_cpus.spec.procs == JOB_PROCS_GPU) /* as many workers as the node has GPUs: 0 */
        on_cpus.spec.procs = JOB_PROCS_CPU;
    return advice_search_smaller(core, &on_cpus, now, found);
}

/* Says what is missing, in the order in which a user would look for it: nodes, GPUs, room on each node. */
static void advice_explain(const struct core *core, const struct job *job, struct buf *text)
{
    const enum slot_kind kind = capacity_slot_kind(core, job);
    const int64_t each = job->spec.procs_per_node *
                         (kind == SLOT_GPU && job->spec.gpus_per_proc > 0 ? job->spec.gpus_per_proc : 1);
    int64_t alive = 0, gpus = 0, fitting = 0, largest = 0;
    int gpus_each;

    for (size_t i = 0; i < core->node_count; i++) {
        const struct node *node = core->nodes[i];
        if (!capacity_expected(node))
            continue;
        alive++;
        gpus += node->place.gpus;
        fitting += capacity_procs(job, node, kind, &gpus_each) > 0;
        const int64_t slots = kind == SLOT_GPU ? node->place.gpu_total : node->place.cpu_total;
        largest = slots > largest ? slots : largest;
    }
    const struct text nodes = text_counted(alive, "node");
    const char *are = alive == 1 ? "is" : "are";
    if (!alive)
        buf_puts(text, "no node is alive");
    else if (kind == SLOT_GPU && !gpus)
        buf_puts(text, capacity_sick_gpus(core) ? "no node has a healthy GPU" : "no node has a GPU");
    else if (alive < job->spec.nodes_min)
        buf_printf(text, "%s %s alive, the job needs %" PRId64, nodes.text, are, job->spec.nodes_min);
    else if (job->spec.procs == JOB_PROCS_NUMBER && largest < each)
        buf_printf(text, "no node has %s, the largest has %" PRId64,
                   text_counted(each, kind == SLOT_GPU ? "GPU" : "slot").text, largest);
    else if (fitting < job->spec.nodes_min)
        buf_printf(text, "%" PRId64 " of %s can take its workers, the job needs %" PRId64, fitting,
                   nodes.text, job->spec.nodes_min);
    else
        buf_puts(text, "no combination of the nodes that are there fits the job");
}

void advice_make(const struct core *core, const struct job *job, bool now, struct advice *out)
{
    struct job_spec nearest;
    CLEANUP(buf_release) struct buf text = {0};
    CLEANUP(buf_release) struct buf flags = {0};

    *out = (struct advice){0};
    advice_count_slots(core, job);
    out->possible = advice_count_nodes(core, job, false, NULL) > 0;
    out->starts = advice_count_nodes(core, job, true, NULL) > 0;
    if (out->starts || (out->possible && !now))
        return;
    if (out->possible)
        buf_puts(&text, "other jobs use the slots that it needs, or wait for them");
    else
        advice_explain(core, job, &text);
    const bool at_once = advice_search_nearest(core, job, true, &nearest);
    if (at_once || (!out->possible && advice_search_nearest(core, job, false, &nearest)))
        advice_print_flags(&job->spec, &nearest, &flags);
    if (flags.len)
        buf_printf(&text, "; with %sit would start%s", flags.data, at_once ? " now" : " when other jobs end");
    out->text = buf_steal(&text);
}

char *advice_at_once(const struct core *core, const struct job *job)
{
    struct job_spec nearest;
    CLEANUP(buf_release) struct buf flags = {0};

    advice_count_slots(core, job);
    if (advice_search_nearest(core, job, true, &nearest))
        advice_print_flags(&job->spec, &nearest, &flags);
    if (!flags.len)
        return NULL;
    flags.data[--flags.len] = '\0'; /* the blank behind the last one */
    return buf_steal(&flags);
}

/* "box2, box3 and 6 more" */
static void advice_print_nodes(char *const *nodes, struct buf *text)
{
    const size_t count = strv_len(nodes), shown = count > NODES_SHOWN ? NODES_SHOWN : count;

    for (size_t i = 0; i < shown; i++)
        buf_printf(text, "%s%s", i ? ", " : "", nodes[i]);
    if (count > shown)
        buf_printf(text, " and %zu more", count - shown);
}

void advice_print_without(const struct core *core, const struct job *job, int64_t had, char *const *lacking,
                          struct buf *text)
{
    const bool several = lacking[1] != NULL;
    struct job less = *job;

    for (size_t i = 0; i < core->node_count; i++)
        capacity_count(core->nodes[i]);
    /* Other nodes can take their place, or the job may have fewer. A drained node gets no workers. */
    if (advice_count_nodes(core, job, false, lacking)) {
        buf_printf(text, " `ddpctl drain %s`", several ? "NODE" : lacking[0]);
        if (several) {
            buf_puts(text, " for each of ");
            advice_print_nodes(lacking, text);
        }
        buf_printf(text, " continues without %s parts,", several ? "their" : "its");
        return;
    }
    /* No other node can take the place of a drained one, so only a smaller job can go on. */
    less.spec.nodes_min = 1;
    less.spec.nodes_max = had - (int64_t)strv_len(lacking);
    const size_t left = advice_count_nodes(core, &less, false, lacking);
    if (!left)
        return;
    buf_printf(text, " `ddpctl resize %" PRId64 " %zu` continues on %s without the parts of ", job->r.id,
               left, text_counted((int64_t)left, "node").text);
    advice_print_nodes(lacking, text);
    buf_puts(text, ",");
}
