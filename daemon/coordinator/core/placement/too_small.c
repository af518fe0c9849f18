#include "daemon/coordinator/core/placement/too_small.h"

#include <inttypes.h>
#include <string.h>

#include "base/digest.h"
#include "base/mem.h"
#include "base/text.h"
#include "daemon/coordinator/core/nodes/accounts.h"
#include "daemon/coordinator/core/placement/compatibility.h"
#include "daemon/coordinator/core/placement/left_out.h"

/* ", no account ana on box3" */
static bool explain_accounts(const struct core *core, const struct job *job, struct buf *text)
{
    const char *first = NULL;
    size_t count = 0;

    for (size_t i = 0; i < core->node_count; i++) {
        const char *why = capacity_expected(core->nodes[i]) ? accounts_problem(core->nodes[i], job) : NULL;
        first = first ? first : why;
        count += why != NULL;
    }
    if (!count)
        return false;
    buf_printf(text, ", %s", first);
    if (count > 1)
        buf_printf(text, ", and the same on %s", text_counted((int64_t)count - 1, "other").text);
    return true;
}

/* ", box3 is left out for now (rank 1 cannot run on box3: no such file)" */
static bool explain_left_out(const struct core *core, const struct job *job, struct buf *text)
{
    const struct node *first = NULL;
    size_t count = 0;

    for (size_t i = 0; i < core->node_count; i++) {
        if (!capacity_expected(core->nodes[i]) || !left_out_problem(job, core->nodes[i]))
            continue;
        first = first ? first : core->nodes[i];
        count++;
    }
    if (!count)
        return false;
    buf_printf(text, ", %s is left out for now (%s)", first->r.name, left_out_problem(job, first));
    if (count > 1)
        buf_printf(text, ", and so %s %s", count == 2 ? "is" : "are",
                   text_counted((int64_t)count - 1, "other").text);
    return true;
}

/* Says why the cluster could not run the job even if it were empty: "waits for 2 nodes with 4 GPUs each: the
 * cluster has 1, 1 GPU is sick". Each further reason is one that could explain a missing node. */
static void explain_nodes(const struct core *core, const struct job *job, enum slot_kind kind,
                          struct buf *text)
{
    int64_t fitting = 0, away = 0, largest = 0;
    int gpus_each;

    for (size_t i = 0; i < core->node_count; i++) {
        const struct node *node = core->nodes[i];
        bool fits = capacity_procs(job, node, kind, &gpus_each) > 0;
        if (capacity_expected(node) && node->place.cpu_total > largest)
            largest = node->place.cpu_total;
        fitting += fits && capacity_expected(node);
        away += fits && !capacity_expected(core->nodes[i]);
    }
    int64_t per_node = job->spec.procs == JOB_PROCS_NUMBER ? job->spec.procs_per_node : 1;
    if (kind == SLOT_GPU && job->spec.gpus_per_proc > 0)
        per_node *= job->spec.gpus_per_proc;
    buf_printf(text, "waits for %s with %s%s: the cluster has %" PRId64,
               text_counted(job->spec.nodes_min, "node").text, capacity_text(per_node, kind).text,
               job->spec.nodes_min > 1 ? " each" : "", fitting);
    if (job->spec.only_nodes)
        buf_printf(text, " of the %s in its only_nodes",
                   text_counted((int64_t)strv_len(job->spec.only_nodes), "node").text);
    /* a node without the user's account, or that is left out, does not count, however many slots it has */
    bool excluded = explain_accounts(core, job, text);
    excluded |= explain_left_out(core, job, text);
    if (kind == SLOT_CPU && !fitting && largest && !excluded)
        buf_printf(text, ", its largest has %" PRId64, largest);
    int sick = kind == SLOT_GPU ? capacity_sick_gpus(core) : 0;
    if (sick)
        buf_printf(text, ", %s %s sick (`ddpctl nodes` says why)", text_counted(sick, "GPU").text,
                   sick == 1 ? "is" : "are");
    size_t unfit = kind == SLOT_GPU && job->spec.kind == JOB_TRAIN ? compatibility_unfit_nodes(core) : 0;
    if (unfit)
        buf_printf(text, ", %zu with GPUs but no GPU plugin (`ddp-trainer --plugin` says why)", unfit);
    size_t single = kind == SLOT_GPU && job->spec.kind == JOB_TRAIN ? compatibility_single_nodes(core) : 0;
    if (single)
        buf_printf(text,
                   ", %zu with GPUs but no NCCL, which more than one worker needs "
                   "(`ddp-trainer --plugin` says why)",
                   single);
    if (away)
        buf_printf(text, ", %" PRId64 " more %s lost or drained", away, away == 1 ? "is" : "are");
}

bool too_small_explain(const struct core *core, const struct job *job, enum slot_kind kind, struct buf *text)
{
    if (!capacity_feasible(core, job, kind)) {
        explain_nodes(core, job, kind, text);
        return true;
    }
    /* If not, compatibility_feasible writes the reason. */
    return compatibility_matters(job, kind) && !compatibility_feasible(core, job, kind, text);
}

/* ---- what was found before */

static int64_t text_print(const char *text)
{
    return text ? (int64_t)digest64(1, text, strlen(text)) : 0;
}

/* All fields of a node that the functions above, and the functions that they call, read. */
static uint64_t add_node_print(uint64_t print, const struct node *node)
{
    const int64_t numbers[] = {
        text_print(node->r.name), text_print(node->nccl), capacity_expected(node), node->procs,
        node->place.cpu_total,    node->place.gpus,       node->place.gpu_total,   (int64_t)node->gpu_count,
    };

    print = digest64(print, numbers, sizeof(numbers));
    for (char **at = node->accounts; at && *at; at++) {
        const int64_t account = text_print(*at);
        print = digest64(print, &account, sizeof(account));
    }
    return print;
}

/* A fingerprint needs no list of the events that change a node. It is made anew in each pass, which counts the slots of all
 * nodes anyway. */
void too_small_review(struct core *core)
{
    uint64_t print = 1;

    for (size_t i = 0; i < core->node_count; i++)
        print = add_node_print(print, core->nodes[i]);
    core->capacity = print ? print : 1;
}

void too_small_keep(const struct core *core, struct job *job)
{
    job->too_small.capacity = core->capacity;
    job->too_small.revision = job->r.revision;
    job->too_small.nodes_min = job->spec.nodes_min;
}

bool too_small_still(const struct core *core, const struct job *job)
{
    return job->waits && job->too_small.capacity == core->capacity &&
           job->too_small.revision == job->r.revision && job->too_small.nodes_min == job->spec.nodes_min;
}
