#ifndef DDP_CLIENT_RUN_RUN_REQUEST_H
#define DDP_CLIENT_RUN_RUN_REQUEST_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/conf/option.h"
#include "base/err.h"
#include "base/job/job.h"
#include "client/run/run_options.h"

/* What `ddpctl run` was asked to start: by its own flags, by torchrun's, by PET_* variables, and by the batch
 * system it runs in.
 *
 * Flags win over PET_* variables, and both win over the batch system. So the request is filled in this order,
 * and each step leaves alone what is set already: torchrun_read (flags, then PET_*), launch_message_apply
 * (the ddpctl that started this one), batch_task_fill (the batch system), run_request_complete (the job
 * file's nodes, then the defaults). Until then 0, -1 and NULL mean "not set". */

enum { RUN_SIGNALS_MAX = 16 };
/* ONLY: the rank of a job that has one rank. NO: another ddpctl started this one, and its stdin is not the user's. */
enum { RUN_ATTACH_ONLY = -1, RUN_ATTACH_NO = -2 };

struct run_request {
    int64_t nodes_min, nodes_max; /* 1 and 1: this machine only, unless there is an endpoint */
    char *procs;                  /* workers of this node: "4", "gpu", "cpu", "auto"; nodes may differ */
    int64_t node_rank;            /* -1: by order of joining */
    bool secondary;               /* another ddpctl prints to the same place what concerns all hosts */
    bool raw;                     /* a terminal gets every byte of the workers' output */
    const char *terminal; /* the streams of the ddpctl that started this one that are terminals, "0" to "3" (1
                             stdout, 2 stderr); NULL: a user started it, ask isatty */
    int64_t attach;       /* the rank that gets ddpctl's stdin or terminal; or one of the numbers below */
    bool standalone;      /* this machine only, whatever the batch system says */
    char *host;           /* of the endpoint, without brackets; NULL: there is none, this machine only */
    int64_t port;         /* of the endpoint */
    int64_t master_port;  /* MASTER_PORT of a job on one machine, if it is free; 0: not given */
    int is_host;      /* 1 or 0: set by rdzv-conf is_host; -1: the owner of the endpoint's address hosts */
    char *id;         /* the run's name at the endpoint, "none" as in torchrun; not a secret */
    char *local_addr; /* the address at which peers reach this node; NULL: it is detected */
    int64_t join_timeout_ms; /* how long to wait for nodes_min nodes, 600 s */
    int64_t last_call_ms;    /* how long to wait then for more, up to nodes_max, 30 s; -1 until complete */
    const char *starter; /* the batch system's command that starts ddpctl on all nodes, for advice; or NULL */
    char **hosts;        /* --hosts: where the launcher starts ddpctl; NULL: not given */
    char *launcher;      /* auto, srun, pbsdsh, ssh, mpirun; NULL: not given */
    char *log_dir;       /* NULL: logs are kept only after a failure */
    char *redirects, *tee, *local_ranks; /* torchrun's values: "3", "0:1,1:2"; "0,2"; NULL */
    char *prefix;                 /* of the lines of tee, with macros (worker_output.h); NULL: torchrun's */
    char *role;                   /* "default" unless given */
    int64_t grace_ms;             /* from the signal to SIGKILL; -1: as the job says */
    char **command;               /* the words to execute, ended by NULL; NULL: there is a job file */
    bool python;                  /* the command was given as SCRIPT.py or a module */
    int signals[RUN_SIGNALS_MAX]; /* that stop the run, ended by 0 */
};

/* The job's text, of the request's command or of the file, with the flags applied. others: as in job_text.h. */
MUST_CHECK enum err_code run_request_job_text(const struct run_request *r, const struct run_options *options,
                                              const char *file, char **text, struct buf *others,
                                              struct err *e);
/* Takes the number of nodes from the job, fills in the defaults, and checks the request as a whole. */
MUST_CHECK enum err_code run_request_complete(struct run_request *r, const struct job_spec *spec,
                                              struct err *e);
void run_request_release(struct run_request *r);

#endif
