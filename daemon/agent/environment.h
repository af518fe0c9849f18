#ifndef DDP_DAEMON_AGENT_ENVIRONMENT_H
#define DDP_DAEMON_AGENT_ENVIRONMENT_H

#include "base/job/job.h"
#include "daemon/agent/settings.h"
#include "daemon/supervisor/protocol/control.h"
#include "proto/ddp.pb-c.h"

/* The environment of a worker. Later values replace earlier ones: the login variables of the job's user (or
 * the agent's whole environment, for an agent that `ddpctl run` started as the user), the node's `env`, the
 * variables sent by the submitter, the job's `env`, torchrun's variables, ours. */

struct environment_place {
    const struct settings *settings;
    const char *user;     /* whom the job runs as; NULL: as the agent */
    const char *instance; /* the agent's: DDP_AGENT_ID */
    const char *address;  /* the node's */
    const char *cluster;  /* DDP_CLUSTER_ID: tells this cluster's job 1 from another's */
    const char *run_dir;  /* DDP_RUN_DIR: 0700, for sockets between the node's ranks; one a generation */
    const char *job_file;
    const char *coordinator_file; /* DDP_COORDINATOR_FILE: names the coordinator, follows its moves; NULL */
    const char *trainer;          /* ddp-trainer's path */
    bool has_gpus;                /* the node offers some */
    char *const *inherited;       /* environ; NULL: nothing of the agent's own */
};

/* Fills all of *out but the lease; release it whatever the result. */
void environment_order(struct spawn_order *out, const struct environment_place *place,
                       const struct job_spec *spec, const Ddp__V1__GroupWish *group,
                       const Ddp__V1__SpawnWish *spawn);

/* env_set replaces or adds "NAME=value" in a NULL-terminated list that it returns (moved). */
char **env_set(char **env, const char *name, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
const char *env_get(char *const *env, const char *name);
char **env_unset(char **env, const char *name);

#endif
