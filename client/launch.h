#ifndef DDP_CLIENT_LAUNCH_H
#define DDP_CLIENT_LAUNCH_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "client/options.h"

/* What `ddpctl run` was asked to start, whoever asked: its own flags, torchrun's, PET_* variables, or the
 * batch system that it runs in. Flags win over PET_*, and both over what the batch system says. */

struct launch {
    int64_t nodes_min, nodes_max; /* 1 and 1: this machine alone, unless there is an endpoint */
    char *procs;                  /* of this node: "4", "gpu", "cpu", "auto"; nodes may differ */
    int64_t node_rank;            /* -1: by order of joining */
    char *host; /* of the endpoint, without brackets; NULL: nothing listens, this machine alone */
    int64_t port;
    int is_host;      /* 1 or 0: said so (rdzv-conf is_host); -1: whoever owns the endpoint's address */
    char *id;         /* the run's name at the endpoint, "none" as torchrun has it; no secret */
    char *local_addr; /* the address that peers shall use for this node; NULL: found out */
    int64_t join_timeout_ms;             /* for nodes_min to be there, 600 s */
    int64_t last_call_ms;                /* then for more up to nodes_max, 30 s */
    char **hosts;                        /* --hosts: where to start ddpctl by the launcher; NULL: none */
    char *launcher;                      /* auto, srun, pbsdsh, ssh, mpirun */
    char *log_dir;                       /* NULL: kept only after a failure */
    char *redirects, *tee, *local_ranks; /* torchrun's values: "3", "0:1,1:2"; "0,2"; NULL */
    char *role;                          /* "default" */
    char **command;                      /* as it is run: ends with NULL */
};

void launch_release(struct launch *l);

#endif
