#ifndef DDP_DAEMON_AGENT_ENVIRONMENT_H
#define DDP_DAEMON_AGENT_ENVIRONMENT_H

#include "base/job/job.h"
#include "daemon/agent/account.h"
#include "daemon/agent/settings.h"
#include "daemon/supervisor/protocol/spawn_order.h"
#include "proto/ddp.pb-c.h"

/* The environment of a worker. Later values replace earlier ones, in this order:
 *
 *   1. the login variables of the job's user, PATH and LANG; under `ddpctl run` the agent's whole environment
 *   2. the node's `env` (agent.yaml): the administrator's defaults
 *   3. an empty CUDA_VISIBLE_DEVICES, if the node offers GPUs and this worker has none
 *   4. the variables that the submitter sent
 *   5. the job's `env`: the job file overrides the submitter's environment
 *   6. torchrun's variables, CUDA_VISIBLE_DEVICES and NCCL_HOSTID: wrong values would break the job
 *   7. DDP_ variables; a command's PYTHONPATH ends with the directory of the Python module ddp
 *
 * A few variables are only defaults and keep a value from above: TORCH_NCCL_ASYNC_ERROR_HANDLING,
 * TORCHELASTIC_SIGNALS_TO_HANDLE, OMP_NUM_THREADS, OMP_WAIT_POLICY. */

struct environment_place {
    const struct settings *settings;
    const char *user;              /* the account that the job runs under; NULL: the agent's */
    const struct account *account; /* its entry; NULL: the agent's, which has none */
    const char *instance;          /* the agent's: DDP_AGENT_ID */
    const char *address;           /* the node's */
    const char *cluster;           /* DDP_CLUSTER_ID: tells this cluster's job 1 from another cluster's */
    const char *run_dir; /* DDP_RUN_DIR: 0700, for sockets between ranks of the node (wish_apply.c) */
    const char *job_file;
    const char *coordinator_file; /* DDP_COORDINATOR_FILE (coordinator_file.h), or NULL */
    const char *trainer;          /* ddp-trainer's path */
    const char *python;           /* directory of the Python module ddp; NULL: it is not installed */
    bool has_gpus;                /* the node offers GPUs */
    char *const *inherited; /* the agent's environment under `ddpctl run`; NULL: workers get none of it */
};

/* Steps 1 and 2, which are the same for all jobs of a user. Arguments as in struct environment_place. strv_free. */
char **environment_base(const struct settings *settings, const struct account *account,
                        char *const *inherited);
/* Fills all of *out but the lease. Release it afterwards. */
void environment_order(struct spawn_order *out, const struct environment_place *place,
                       const struct job_spec *spec, const Ddp__V1__GroupWish *group,
                       const Ddp__V1__SpawnWish *spawn);

/* Lists of "NAME=value", ended by NULL. env_set and env_unset return the list, which may have moved. */
char **env_set(char **env, const char *name, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
const char *env_get(char *const *env, const char *name);
char **env_unset(char **env, const char *name);

#endif
