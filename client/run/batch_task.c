#include "client/run/batch_task.h"

#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/mem.h"

static void add_signal(struct run_request *l, int number)
{
    for (size_t i = 0; i + 1 < RUN_SIGNALS_MAX; i++) {
        if (l->signals[i] == 0) {
            l->signals[i] = number;
            l->signals[i + 1] = 0;
            return;
        }
    }
}

static char *run_id(const struct batch_allocation *a)
{
    static const char *const names[] = {"none", "slurm", "pbs", "ompi", "mpi"};
    return xasprintf("%s-%s", names[a->kind], a->id);
}

static void fill_place(const struct batch_allocation *a, struct run_request *l)
{
    if (l->node_rank < 0 && a->node_rank < l->nodes_max)
        l->node_rank = a->node_rank;
    if (!l->id)
        l->id = run_id(a);
    if (l->host || !a->host)
        return;
    l->host = xstrdup(a->host);
    if (!l->port)
        l->port = batch_allocation_port(a);
    if (l->is_host < 0)
        l->is_host = a->first;
}

void batch_task_fill(const struct batch_allocation *a, struct run_request *l)
{
    if (l->standalone || a->kind == BATCH_NONE)
        return;
    if (a->launched && !a->first)
        l->told = true;
    if (!a->launched)
        l->starter = a->kind == BATCH_SLURM ? "srun" : a->kind == BATCH_PBS ? "pbsdsh" : NULL;
    if (!l->procs && a->launched && a->local_tasks > 1)
        l->procs = xasprintf("%lld", (long long)a->local_tasks);
    if (!l->nodes_min && a->node_count > 1)
        l->nodes_min = l->nodes_max = a->node_count;
    if (l->nodes_max > 1)
        fill_place(a, l);
}

enum err_code batch_allocation_here(struct batch_allocation *a, struct err *e)
{
    char *const nothing[] = {NULL};
    char host[256] = "";
    if (gethostname(host, sizeof(host) - 1) != 0)
        host[0] = 0;
    return batch_allocation_read(a, environ ? environ : nothing, host, e);
}

void batch_task_enter(struct batch_task *b, struct run_request *l)
{
    /* of one node, where the script itself says so: another run beside it is no mate of it */
    bool apart = !b->allocation.launched && l->nodes_max == 1;
    bool alone = l->standalone || l->node_rank >= 0 || apart;
    batch_task_fill(&b->allocation, l);
    if (alone) {
        b->allocation.local_task = 0;
        b->allocation.local_tasks = 1;
    }
}

void batch_task_release(struct batch_task *b)
{
    batch_allocation_release(&b->allocation);
    close_fd(&b->mates.fd);
}

void batch_task_signals(const struct batch_task *b, enum job_kind kind, struct run_request *l)
{
    bool chosen = false;
    for (size_t i = 0; l->signals[i]; i++)
        chosen = chosen || l->signals[i] == SIGUSR1;
    if (b->allocation.kind == BATCH_NONE || l->standalone || chosen)
        return;
    if (kind == JOB_TRAIN)
        add_signal(l, SIGUSR1);
    else
        signal(SIGUSR1, SIG_IGN);
}

bool batch_task_resumes(const struct batch_task *b, const struct job_spec *spec)
{
    return b->allocation.restarts > 0 && spec->kind == JOB_TRAIN && spec->train.resume == RESUME_AUTO;
}

/* The same for all tasks of a node. Nodes of one machine (containers, tests) may share its names. */
static char *mates_name(const struct batch_allocation *a)
{
    CLEANUP(free_text) char *id = run_id(a);
    bool says_node = a->kind == BATCH_SLURM || a->kind == BATCH_PBS;
    return says_node ? xasprintf("%s-%lld", id, (long long)a->node_rank) : steal(id);
}

enum err_code batch_task_lead(struct batch_task *b, bool *leads, int *code, struct err *e)
{
    const struct batch_allocation *a = &b->allocation;
    bool counted = a->local_tasks > 0;
    *leads = true;
    if (a->kind == BATCH_NONE || a->local_tasks == 1)
        return ERR_OK;
    CLEANUP(free_text) char *name = mates_name(a);
    if (a->local_task == 0) {
        if (taskmates_lead(&b->mates, name, counted ? a->local_tasks - 1 : -1, e) == ERR_OK)
            return ERR_OK;
        if (counted || e->code != ERR_FAILED_PRECONDITION)
            return e->code;
    }
    *leads = false;
    return taskmates_follow(name, code, e);
}

void batch_task_end(struct batch_task *b, int code)
{
    taskmates_end(&b->mates, code);
}
