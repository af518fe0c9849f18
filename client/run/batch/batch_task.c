#include "client/run/batch/batch_task.h"

#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/mem.h"

static void batch_task_add_signal(struct run_request *r, int number)
{
    for (size_t i = 0; i + 1 < RUN_SIGNALS_MAX; i++) {
        if (r->signals[i] == 0) {
            r->signals[i] = number;
            r->signals[i + 1] = 0;
            return;
        }
    }
}

static char *batch_task_run_id(const struct batch_allocation *a)
{
    static const char *const names[] = {"none", "slurm", "pbs", "ompi", "mpi"};
    return xasprintf("%s-%s", names[a->kind], a->id);
}

static void batch_task_fill_place(const struct batch_allocation *a, struct run_request *r)
{
    if (r->node_rank < 0 && a->node_rank < r->nodes_max)
        r->node_rank = a->node_rank;
    if (!r->id)
        r->id = batch_task_run_id(a);
    if (r->host || !a->host) /* an endpoint that the user gave stays, with the user's port */
        return;
    r->host = xstrdup(a->host);
    if (!r->port)
        r->port = batch_allocation_port(a);
    if (r->is_host < 0)
        r->is_host = a->first;
}

void batch_task_fill(const struct batch_allocation *a, struct run_request *r)
{
    if (r->standalone || a->kind == BATCH_NONE)
        return;
    if (a->launched && !a->first)
        r->secondary = true;
    if (!a->launched)
        r->starter = a->kind == BATCH_SLURM ? "srun" : a->kind == BATCH_PBS ? "pbsdsh" : NULL;
    if (!r->procs && a->launched && a->local_tasks > 1)
        r->procs = xasprintf("%lld", (long long)a->local_tasks);
    if (!r->nodes_min && a->node_count > 1)
        r->nodes_min = r->nodes_max = a->node_count;
    if (r->nodes_max > 1)
        batch_task_fill_place(a, r);
}

enum err_code batch_allocation_here(struct batch_allocation *a, struct err *e)
{
    char *const nothing[] = {NULL};
    char host[256] = "";
    if (gethostname(host, sizeof(host) - 1) != 0)
        host[0] = 0;
    return batch_allocation_read(a, environ ? environ : nothing, host, e);
}

void batch_task_enter(struct batch_task *b, struct run_request *r)
{
    /* A batch script may run several jobs of one node side by side. They are separate runs, not tasks of one.
     */
    bool apart = !b->allocation.launched && r->nodes_max == 1;
    bool alone = r->standalone || r->node_rank >= 0 || apart;
    batch_task_fill(&b->allocation, r);
    if (alone) { /* then the other tasks of the node are no part of this run */
        b->allocation.local_task = 0;
        b->allocation.local_tasks = 1;
    }
}

void batch_task_release(struct batch_task *b)
{
    batch_allocation_release(&b->allocation);
    close_fd(&b->mates.fd);
}

void batch_task_signals(const struct batch_task *b, enum job_kind kind, struct run_request *r)
{
    bool chosen = false;
    for (size_t i = 0; r->signals[i]; i++)
        chosen = chosen || r->signals[i] == SIGUSR1;
    if (b->allocation.kind == BATCH_NONE || r->standalone || chosen)
        return;
    if (kind == JOB_TRAIN)
        batch_task_add_signal(r, SIGUSR1);
    else
        signal(SIGUSR1, SIG_IGN);
}

bool batch_task_resumes(const struct batch_task *b, const struct job_spec *spec)
{
    return b->allocation.restarts > 0 && spec->kind == JOB_TRAIN && spec->train.resume == RESUME_AUTO;
}

/* A name that all tasks of a node share. The node's rank is part of it where it is known, since several nodes
 * may be containers of one machine and share its abstract sockets. */
static char *batch_task_mates_name(const struct batch_allocation *a)
{
    CLEANUP(free_text) char *id = batch_task_run_id(a);
    bool says_node = a->kind == BATCH_SLURM || a->kind == BATCH_PBS;
    return says_node ? xasprintf("%s-%lld", id, (long long)a->node_rank) : steal(id);
}

enum err_code batch_task_lead(struct batch_task *b, bool *leads, int *code, struct err *e)
{
    const struct batch_allocation *a = &b->allocation;
    bool counted = a->local_tasks > 0;
    *leads = true;
    if (a->kind == BATCH_NONE || a->local_tasks == 1) /* there is nobody to share the node with */
        return ERR_OK;
    CLEANUP(free_text) char *name = batch_task_mates_name(a);
    if (a->local_task == 0) {
        if (taskmates_lead(&b->mates, name, counted ? a->local_tasks - 1 : -1, e) == ERR_OK)
            return ERR_OK;
        /* PBS numbers no local tasks: all of them are task 0, the first one leads and the others follow. */
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
