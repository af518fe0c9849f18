#include "client/run/batch/batch_allocation.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "client/run/batch/nodelist.h"

#define FIRST_PORT 10000
#define PORTS 19000
#define MOST (INT64_C(1) << 40) /* the largest number that is accepted */
#define NODEFILE_LIMIT (4 << 20)
#define SLURM_LEAST_SPECIAL_STEP                                                                             \
    0xfffffff0 /* from here on: batch, interactive and other steps that no srun started */

struct source {
    char *const *environment;
    const char *host;
    struct err *e;
};

/* The variable's value; NULL if it is unset or empty. */
static const char *batch_variable(const struct source *s, const char *name)
{
    size_t length = strlen(name);
    for (char *const *entry = s->environment; *entry; entry++)
        if (strncmp(*entry, name, length) == 0 && (*entry)[length] == '=')
            return (*entry)[length + 1] ? *entry + length + 1 : NULL;
    return NULL;
}

/* The variable's value as a number of 0 or more; `otherwise` if it is unset. */
static enum err_code batch_number(const struct source *s, const char *name, int64_t otherwise, int64_t *value)
{
    const char *text = batch_variable(s, name);
    char *end;
    *value = otherwise;
    if (!text)
        return ERR_OK;
    errno = 0;
    long long number = strtoll(text, &end, 10);
    if (!isdigit((unsigned char)*text) || *end || errno || number > MOST)
        return err_set(s->e, ERR_INVALID_ARGUMENT, "%s=%.80s is not a number", name, text);
    *value = number;
    return ERR_OK;
}

static const char *batch_either(const char *a, const char *b)
{
    return a ? a : b;
}

/* ---- Slurm */

static enum err_code batch_slurm_nodes(struct batch_allocation *a, const struct source *s)
{
    const char *list =
        batch_either(batch_variable(s, "SLURM_JOB_NODELIST"), batch_variable(s, "SLURM_NODELIST"));
    if (a->launched) /* srun may use some of the job's nodes only */
        list = batch_either(batch_variable(s, "SLURM_STEP_NODELIST"), list);
    if (!list)
        return ERR_OK;
    if (nodelist_expand(list, &a->nodes, s->e) != ERR_OK)
        return s->e->code;
    a->node_count = (int64_t)strv_len(a->nodes);
    return ERR_OK;
}

static enum err_code batch_slurm_tasks(struct batch_allocation *a, const struct source *s)
{
    const char *counts = batch_variable(s, "SLURM_STEP_TASKS_PER_NODE");
    if (batch_number(s, "SLURM_NODEID", 0, &a->node_rank) != ERR_OK ||
        batch_number(s, "SLURM_LOCALID", 0, &a->local_task) != ERR_OK)
        return s->e->code;
    a->local_tasks = counts ? nodelist_count_at(counts, a->node_rank) : -1;
    if (a->local_tasks <= a->local_task)
        a->local_tasks = a->local_task + 1;
    return ERR_OK;
}

/* Slurm runs a batch script as one process on the first node. A step, which srun starts, has a process for
 * each task. */
static enum err_code batch_read_slurm(struct batch_allocation *a, const struct source *s)
{
    const char *job = batch_either(batch_variable(s, "SLURM_JOB_ID"), batch_variable(s, "SLURM_JOBID"));
    int64_t step;
    a->kind = BATCH_SLURM;
    if (batch_number(s, "SLURM_STEP_ID", -1, &step) != ERR_OK ||
        batch_number(s, "SLURM_RESTART_COUNT", 0, &a->restarts) != ERR_OK)
        return s->e->code;
    a->launched = step >= 0 && step < SLURM_LEAST_SPECIAL_STEP;
    a->id = a->launched ? xasprintf("%s.%lld", job, (long long)step) : xstrdup(job);
    if (batch_slurm_nodes(a, s) != ERR_OK)
        return s->e->code;
    if (a->launched)
        return batch_slurm_tasks(a, s);
    a->node_rank = 0;
    return ERR_OK;
}

/* ---- PBS */

static bool batch_node_listed(char *const *list, const char *name)
{
    for (; list && *list; list++)
        if (strcmp(*list, name) == 0)
            return true;
    return false;
}

/* PBS_NODEFILE has a line for each slot. A node's first line gives its place among the nodes. */
static enum err_code batch_pbs_nodes(struct batch_allocation *a, const struct source *s, const char *path)
{
    CLEANUP(buf_release) struct buf text = {0};
    char *rest = NULL;
    size_t cap = 0;
    if (file_read(path, NODEFILE_LIMIT, &text, s->e) != ERR_OK)
        return err_wrap(s->e, "PBS_NODEFILE");
    char *line = text.len ? strtok_r(text.data, " \t\r\n", &rest) : NULL;
    size_t count = 0;
    for (int64_t slot = 0; line; line = strtok_r(NULL, " \t\r\n", &rest), slot++) {
        if (batch_node_listed(a->nodes, line))
            continue;
        a->nodes = strv_append(a->nodes, line);
        a->slots = array_grow(a->slots, count, &cap, sizeof(*a->slots));
        a->slots[count++] = slot;
    }
    a->node_count = (int64_t)count;
    if (!a->node_count)
        return err_set(s->e, ERR_INVALID_ARGUMENT, "PBS_NODEFILE %s names no node", path);
    return ERR_OK;
}

/* One name may have the domain and the other not, so names are equal if one is the other up to its first dot.
 */
static bool batch_same_host(const char *a, const char *b)
{
    size_t m = strcspn(a, "."), n = strcspn(b, ".");
    return strcmp(a, b) == 0 || (m == n && strncmp(a, b, m) == 0 && (!a[m] || !b[n]));
}

/* This node's rank. If the list has this machine's name, that decides: a task that ssh started may have
 * inherited PBS_NODENUM from the first node. */
static enum err_code batch_pbs_rank(struct batch_allocation *a, const struct source *s)
{
    for (size_t i = 0; a->nodes[i]; i++)
        if (s->host && batch_same_host(a->nodes[i], s->host)) {
            a->node_rank = (int64_t)i;
            return ERR_OK;
        }
    const char *name = batch_variable(s, "PBS_NODENUM") ? "PBS_NODENUM" : "PBS_NODEID";
    if (batch_number(s, name, -1, &a->node_rank) != ERR_OK)
        return s->e->code;
    if (a->node_rank >= a->node_count)
        return err_set(s->e, ERR_INVALID_ARGUMENT, "%s=%lld, but PBS_NODEFILE names %lld nodes", name,
                       (long long)a->node_rank, (long long)a->node_count);
    return ERR_OK;
}

static enum err_code batch_read_pbs(struct batch_allocation *a, const struct source *s)
{
    int64_t task;
    a->kind = BATCH_PBS;
    a->id = xstrdup(batch_either(batch_variable(s, "PBS_JOBID"), "pbs"));
    if (batch_pbs_nodes(a, s, batch_variable(s, "PBS_NODEFILE")) != ERR_OK ||
        batch_pbs_rank(a, s) != ERR_OK || batch_number(s, "PBS_TASKNUM", 1, &task) != ERR_OK)
        return s->e->code;
    /* The batch script is task 1 on node 0; pbsdsh numbers its tasks from 2 on. */
    a->launched = task > 1 || a->node_rank > 0;
    a->local_tasks = a->node_count > 1 ? 0 : 1;
    return ERR_OK;
}

/* ---- MPI launchers */

/* mpirun does not name the nodes. If it runs inside Slurm or PBS, their list is used. */
static enum err_code batch_surrounding_nodes(struct batch_allocation *a, const struct source *s)
{
    const char *file = batch_variable(s, "PBS_NODEFILE");
    if (batch_variable(s, "SLURM_JOB_ID"))
        return batch_slurm_nodes(a, s);
    return file ? batch_pbs_nodes(a, s, file) : ERR_OK;
}

struct mpi_names {
    enum batch_system kind;
    const char *rank, *size, *local_rank, *local_size;
    const char *job[3]; /* variables that identify this run of mpirun, the best one first */
};

static const struct mpi_names mpis[] = {
    {BATCH_OPEN_MPI,
     "OMPI_COMM_WORLD_RANK",
     "OMPI_COMM_WORLD_SIZE",
     "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE",
     {"OMPI_MCA_ess_base_jobid", "PMIX_NAMESPACE", "SLURM_JOB_ID"}},
    {BATCH_MPI,
     "PMI_RANK",
     "PMI_SIZE",
     "MPI_LOCALRANKID",
     "MPI_LOCALNRANKS",
     {"HYDI_JOBID", "SLURM_JOB_ID", "PBS_JOBID"}},
};

/* Open MPI 4 gives every task the address of mpirun itself, which runs on the first node as a rule:
 * "2140405760.0;tcp://192.0.2.2:56959;tcp6://..." */
static char *batch_mpirun_address(const struct source *s)
{
    const char *uri = batch_variable(s, "OMPI_MCA_orte_hnp_uri");
    const char *address = uri ? strstr(uri, "tcp://") : NULL;
    if (!address)
        return NULL;
    address += strlen("tcp://");
    size_t length = strcspn(address, ",:;");
    return length ? xasprintf("%.*s", (int)length, address) : NULL;
}

/* mpirun does not give a task its node's rank. With one task a node, the task's rank is the node's. With
 * several, the node of rank 0 comes first, and the others follow by order of joining (-1). */
static enum err_code batch_read_mpi(struct batch_allocation *a, const struct source *s,
                                    const struct mpi_names *names)
{
    int64_t rank, size;
    const char *job = NULL;
    a->kind = names->kind;
    a->launched = true;
    if (batch_number(s, names->rank, 0, &rank) != ERR_OK ||
        batch_number(s, names->size, 1, &size) != ERR_OK ||
        batch_number(s, names->local_rank, 0, &a->local_task) != ERR_OK ||
        batch_number(s, names->local_size, 1, &a->local_tasks) != ERR_OK ||
        batch_number(s, "SLURM_RESTART_COUNT", 0, &a->restarts) != ERR_OK ||
        batch_surrounding_nodes(a, s) != ERR_OK)
        return s->e->code;
    /* such values come from variables of two launchers that were mixed, as by a script that exports some of
     * them */
    if (a->local_tasks <= a->local_task || a->local_tasks > size)
        return err_set(s->e, ERR_INVALID_ARGUMENT, "%s=%lld, %s=%lld and %s=%lld contradict each other",
                       names->local_rank, (long long)a->local_task, names->local_size,
                       (long long)a->local_tasks, names->size, (long long)size);
    for (size_t i = 0; i < ARRAY_LEN(names->job) && !job; i++)
        job = batch_variable(s, names->job[i]);
    a->id = xstrdup(batch_either(job, "mpi"));
    if (batch_number(s, "OMPI_MCA_orte_num_nodes", (size + a->local_tasks - 1) / a->local_tasks,
                     &a->node_count) != ERR_OK)
        return s->e->code;
    if (!a->nodes && a->kind == BATCH_OPEN_MPI) /* no batch system has named the first node */
        a->host = batch_mpirun_address(s);
    a->node_rank = rank == 0 || a->local_tasks == 1 ? rank : -1;
    a->first = rank == 0;
    return ERR_OK;
}

/* ---- */

/* mpirun inside Slurm or PBS leaves their variables in place, so mpirun's are looked at first: the innermost
 * launcher decides. */
static enum err_code batch_read_any(struct batch_allocation *a, const struct source *s)
{
    for (size_t i = 0; i < ARRAY_LEN(mpis); i++)
        if (batch_variable(s, mpis[i].rank) && batch_variable(s, mpis[i].local_rank))
            return batch_read_mpi(a, s, &mpis[i]);
    if (batch_variable(s, "SLURM_JOB_ID") || batch_variable(s, "SLURM_JOBID"))
        return batch_read_slurm(a, s);
    if (batch_variable(s, "PBS_NODEFILE"))
        return batch_read_pbs(a, s);
    return ERR_OK;
}

enum err_code batch_allocation_read(struct batch_allocation *a, char *const *environment, const char *host,
                                    struct err *e)
{
    struct source s = {environment, host, e};
    *a = (struct batch_allocation){.node_count = 1, .node_rank = -1, .local_tasks = 1};
    enum err_code code = batch_read_any(a, &s);
    if (code != ERR_OK) {
        batch_allocation_release(a);
        return code;
    }
    if (!a->host && a->nodes)
        a->host = xstrdup(a->nodes[0]);
    a->first = a->first || (a->kind != BATCH_NONE && a->node_rank == 0);
    return ERR_OK;
}

void batch_allocation_release(struct batch_allocation *a)
{
    free(a->id);
    free(a->host);
    free(a->slots);
    strv_free(a->nodes);
    *a = (struct batch_allocation){0};
}

const char *batch_system_name(enum batch_system kind)
{
    static const char *const names[] = {"", "Slurm", "PBS", "Open MPI", "MPI"};
    return names[kind];
}

/* Jobs with neighbouring numbers often run at the same time, so the hash spreads them over the range. */
int64_t batch_allocation_port(const struct batch_allocation *a)
{
    uint64_t sum = 0;
    for (const char *c = a->id ? a->id : ""; *c; c++)
        sum = sum * 31 + (unsigned char)*c;
    return FIRST_PORT + (int64_t)(sum * 2654435761u % PORTS);
}
