#ifndef DDP_CLIENT_RUN_RUN_REQUEST_H
#define DDP_CLIENT_RUN_RUN_REQUEST_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/job/job.h"
#include "base/option.h"
#include "client/run/run_options.h"

/* What `ddpctl run` was asked to start, whoever asked: its own flags, torchrun's, PET_* variables, or the
 * batch system that it runs in. Flags win over PET_*, and both over what the batch system says. So it is
 * filled in this order, each step leaving alone what is said already: torchrun_read (flags, then PET_*),
 * the allocation, the job file's own nodes and the defaults in run_request_complete. Until then 0, -1 and NULL mean
 * "not said". */

enum { RUN_SIGNALS_MAX = 16 };

struct run_request {
    int64_t nodes_min, nodes_max; /* 1 and 1: this machine alone, unless there is an endpoint */
    char *procs;                  /* of this node: "4", "gpu", "cpu", "auto"; nodes may differ */
    int64_t node_rank;            /* -1: by order of joining */
    bool told;                    /* another host's ddpctl writes to the same place what concerns all */
    bool raw;                     /* a terminal gets every byte of the workers' output */
    const char *terminal; /* of the ddpctl that started this one: which streams, "0" to "3" (1 stdout, 2
                             stderr), are on a terminal; NULL: nobody started it, look */
    bool standalone;      /* this machine alone, whatever the batch system says */
    char *host;           /* of the endpoint, without brackets; NULL: nothing listens, this machine alone */
    int64_t port;
    int is_host;      /* 1 or 0: said so (rdzv-conf is_host); -1: whoever owns the endpoint's address */
    char *id;         /* the run's name at the endpoint, "none" as torchrun has it; no secret */
    char *local_addr; /* the address that peers shall use for this node; NULL: found out */
    int64_t join_timeout_ms; /* for nodes_min to be there, 600 s */
    int64_t last_call_ms;    /* then for more up to nodes_max, 30 s; -1 until settled */
    const char *starter;     /* what starts ddpctl on the other nodes: "srun"; NULL: nothing does */
    char **hosts;            /* --hosts: where to start ddpctl by the launcher; NULL: none */
    char *launcher;          /* auto, srun, pbsdsh, ssh, mpirun; NULL: not said */
    char *log_dir;           /* NULL: kept only after a failure */
    char *redirects, *tee, *local_ranks; /* torchrun's values: "3", "0:1,1:2"; "0,2"; NULL */
    char *prefix;                 /* of the lines of tee, with macros (run_output.h); NULL: torchrun's */
    char *role;                   /* "default" */
    int64_t grace_ms;             /* from the signal to SIGKILL; -1: the job's own */
    char **command;               /* as it is run: ends with NULL; NULL: a job file's own */
    int signals[RUN_SIGNALS_MAX]; /* that stop the run, ended by 0 */
};

/* The job's text: of the launch's command, or of the file with what was said applied. */
MUST_CHECK enum err_code run_request_job_text(const struct run_request *r, const struct run_options *options,
                                              const char *file, char **text, struct err *e);
/* The defaults for what nobody said, and the nodes of the job itself; checks the whole. */
MUST_CHECK enum err_code run_request_complete(struct run_request *r, const struct job_spec *spec,
                                              struct err *e);
void run_request_release(struct run_request *r);

#endif
