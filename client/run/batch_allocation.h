#ifndef DDP_CLIENT_RUN_BATCH_ALLOCATION_H
#define DDP_CLIENT_RUN_BATCH_ALLOCATION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

/* Where a batch system or an MPI launcher has put this process: which nodes, which of them is this one, which
 * of its tasks on this node. Read from what is in the environment and nothing else (PBS names a file there);
 * no scontrol, no qstat. Any thread. */

enum batch_system {
    BATCH_NONE,
    BATCH_SLURM,    /* SLURM_* of a batch script or of a step */
    BATCH_PBS,      /* PBS_NODEFILE: OpenPBS, PBS Pro, Torque */
    BATCH_OPEN_MPI, /* OMPI_*: Open MPI's mpirun */
    BATCH_MPI,      /* PMI_* and MPI_LOCAL*: the mpirun of MPICH, Intel MPI, MVAPICH */
};

struct batch_allocation {
    enum batch_system kind;
    char *id;       /* as the system writes it: "1234", "1234.5" for a step of Slurm, "77.server" */
    char **nodes;   /* names in the system's order; NULL: it does not say */
    int64_t *slots; /* PBS: where in PBS_NODEFILE each node's lines begin; else NULL */
    int64_t node_count;
    char *host;          /* name or address of the first node; NULL: nobody says */
    int64_t node_rank;   /* -1: not known */
    int64_t local_task;  /* of local_tasks on this node, where the system started several here; 0 of 1 else */
    int64_t local_tasks; /* 0: more may be there, nobody knows how many (PBS) */
    bool first;          /* the task whose node hosts what the others look for */
    bool launched;       /* by srun, pbsdsh, mpirun: each node has its own; else the batch script itself */
    int64_t restarts;    /* how often the batch system has queued this job again */
};

/* environment: "NAME=value" texts, NULL-terminated. host: this machine's name, to find itself in
 * PBS_NODEFILE. kind is NONE and the rest empty outside of any. INVALID_ARGUMENT where a variable cannot be
 * read. */
MUST_CHECK enum err_code batch_allocation_read(struct batch_allocation *a, char *const *environment,
                                               const char *host, struct err *e);
void batch_allocation_release(struct batch_allocation *a); /* for CLEANUP too */

const char *batch_system_name(enum batch_system kind); /* "Slurm", "PBS", "Open MPI", "MPI"; "" for none */

/* A port for the allocation's own use, the same on all its nodes and likely another one for another job:
 * 10000 to 28999, clear of ephemeral ports and of ddp's own. */
int64_t batch_allocation_port(const struct batch_allocation *a);

#endif
