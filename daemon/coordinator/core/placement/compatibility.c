#include "daemon/coordinator/core/placement/compatibility.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "daemon/coordinator/core/model.h"
#include "daemon/coordinator/core/placement/capacity.h"

bool compatibility_matters(const struct job *job, enum slot_kind kind)
{
    return kind == SLOT_GPU && job->spec.kind == JOB_TRAIN;
}

size_t compatibility_unfit_nodes(const struct core *core)
{
    size_t count = 0;

    for (size_t i = 0; i < core->node_count; i++)
        count += core->nodes[i]->gpu_count && !capacity_can_train(core->nodes[i]);
    return count;
}

size_t compatibility_single_nodes(const struct core *core)
{
    size_t count = 0;

    for (size_t i = 0; i < core->node_count; i++)
        count += core->nodes[i]->gpu_count && capacity_lacks_nccl(core->nodes[i]);
    return count;
}

static bool version_known(const struct node *node)
{
    return node->nccl && *node->nccl;
}

/* A node that has not said its version may turn out to have any, so it matches all. */
static bool versions_match(const struct node *a, const struct node *b)
{
    if (a == b)
        return true;
    if (capacity_lacks_nccl(a) || capacity_lacks_nccl(b))
        return false;
    return !version_known(a) || !version_known(b) || !strcmp(a->nccl, b->nccl);
}

static size_t count_matching(const struct node *node, const struct placement_choice *list, size_t count)
{
    size_t found = 0;

    for (size_t i = 0; i < count; i++)
        found += versions_match(node, list[i].node);
    return found;
}

size_t compatibility_keep_with(const struct node *node, struct placement_choice *list, size_t count)
{
    size_t kept = 0;

    for (size_t i = 0; i < count; i++)
        if (versions_match(node, list[i].node))
            list[kept++] = list[i];
    return kept;
}

size_t compatibility_keep_largest(struct placement_choice *list, size_t count)
{
    const struct node *best = NULL;
    size_t most = 0;

    for (size_t i = 0; i < count; i++) {
        size_t with = version_known(list[i].node) ? count_matching(list[i].node, list, count) : 0;
        if (with > most) {
            most = with;
            best = list[i].node;
        }
    }
    /* no node has said its version: they are all kept */
    return best ? compatibility_keep_with(best, list, count) : count;
}

bool compatibility_leaves_out(const struct core *core, const struct job *job, enum slot_kind kind,
                              const struct node *node)
{
    int gpus_each;

    if (!compatibility_matters(job, kind) || !version_known(node))
        return false;
    for (size_t i = 0; i < core->node_count; i++)
        if (capacity_expected(core->nodes[i]) && capacity_procs(job, core->nodes[i], kind, &gpus_each) > 0 &&
            !versions_match(node, core->nodes[i]))
            return true;
    return false;
}

static bool version_listed(const struct placement_choice *list, size_t at)
{
    for (size_t i = 0; i < at; i++)
        if (version_known(list[i].node) && !strcmp(list[i].node->nccl, list[at].node->nccl))
            return true;
    return false;
}

/* One node of each version: "n1 has 2.28.9, n2 has 2.27.3". */
static void name_versions(const struct placement_choice *list, size_t count, struct buf *out)
{
    const char *comma = "";

    for (size_t i = 0; i < count; i++) {
        if (!version_known(list[i].node) || version_listed(list, i))
            continue;
        buf_printf(out, "%s%s has %s", comma, list[i].node->r.name, list[i].node->nccl);
        comma = ", ";
    }
}

bool compatibility_feasible(const struct core *core, const struct job *job, enum slot_kind kind,
                            struct buf *why)
{
    struct placement_choice *list = xcalloc(core->node_count + 1, sizeof(*list));
    size_t count = 0;
    int gpus_each;

    for (size_t i = 0; i < core->node_count; i++)
        if (capacity_expected(core->nodes[i]) && capacity_procs(job, core->nodes[i], kind, &gpus_each) > 0)
            list[count++].node = core->nodes[i];
    bool enough = !compatibility_matters(job, kind);
    for (size_t i = 0; i < count && !enough; i++)
        enough = count_matching(list[i].node, list, count) >= (size_t)job->spec.nodes_min;
    if (!enough) {
        buf_printf(why, "waits for %" PRId64 " nodes with the same version of NCCL: ", job->spec.nodes_min);
        name_versions(list, count, why);
    }
    free(list);
    return enough;
}

char *compatibility_difference(const struct placement_choice *list, size_t count)
{
    const struct node *first = NULL;

    for (size_t i = 0; i < count; i++) {
        const struct node *node = list[i].node;
        if (!node->plugin || !*node->plugin)
            continue;
        if (first && strcmp(first->plugin, node->plugin) != 0)
            return xasprintf("%s trains with %s, %s with %s", first->r.name, first->plugin, node->r.name,
                             node->plugin);
        first = first ? first : node;
    }
    return NULL;
}
