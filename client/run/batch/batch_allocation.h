#ifndef DDP_CLIENT_RUN_BATCH_BATCH_ALLOCATION_H
#define DDP_CLIENT_RUN_BATCH_BATCH_ALLOCATION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

/* Where a batch system or an MPI launcher has placed this process: on which nodes, on which of them this
 * process is, and which task of the node it is. All of it is read from the environment, and from
 * PBS_NODEFILE, which the environment names; scontrol and qstat are not run. Any thread. */

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
    char **nodes;   /* names in the system's order; NULL: unknown */
    int64_t *slots; /* PBS: the line of PBS_NODEFILE where each node begins; else NULL */
    int64_t node_count;
    char *host;          /* name or address of the first node; NULL: unknown */
    int64_t node_rank;   /* -1: unknown */
    int64_t local_task;  /* this task's number on the node, from 0 */
    int64_t local_tasks; /* number of tasks on the node, 1 as a rule; 0: unknown (PBS) */
    bool first;          /* this task is the one whose node hosts the run */
    bool launched; /* srun, pbsdsh or mpirun started a task on each node; false: this is the batch script */
    int64_t restarts; /* how often the batch system has requeued this job */
};

/* environment: "NAME=value" texts, NULL-terminated. host: this machine's name, which is looked up in
 * PBS_NODEFILE. Outside of a batch system kind is NONE and the rest is empty. INVALID_ARGUMENT: a variable
 * has an invalid value. */
MUST_CHECK enum err_code batch_allocation_read(struct batch_allocation *a, char *const *environment,
                                               const char *host, struct err *e);
void batch_allocation_release(struct batch_allocation *a); /* for CLEANUP too */

const char *batch_system_name(enum batch_system kind); /* "Slurm", "PBS", "Open MPI", "MPI"; "" for none */

/* A port from 10000 to 28999 for the run's coordinator, derived from the allocation's id: all its nodes get
 * the same port, and another job on the same nodes most likely gets another. The range is clear of ephemeral
 * ports and of ddp's own ports. */
int64_t batch_allocation_port(const struct batch_allocation *a);

#endif
