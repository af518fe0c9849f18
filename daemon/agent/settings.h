#ifndef DDP_DAEMON_AGENT_SETTINGS_H
#define DDP_DAEMON_AGENT_SETTINGS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/conf/option.h"
#include "base/err.h"

/* The settings of an agent: from flags, else from the config file, else the defaults. Texts are owned by the
 * struct. */

struct settings {
    char *config_file; /* --config; NULL: the usual one */
    char *state;       /* absolute */
    char *log_dir;     /* absolute */
    char *coordinator; /* "host:port", "unix:/path" */
    char *coordinator_from;
    char *node;
    char *address; /* NULL: the source address towards the coordinator */
    char *relay;   /* "host:port" of a relay that this agent runs; NULL: none */
    char *token_file;
    char *token_from; /* which file or flag names it; NULL: none does */
    char *token;      /* NULL: none */
    char **env;       /* "NAME=value", for every job on this node */
    char *user;       /* the account that jobs run under; NULL: the agent's */
    char *run_as;     /* "submitter": each job runs under its user's account; NULL: under `user` */
    char *workdir;    /* working directory of every command, instead of its job's; NULL: the job's */
    char **command;   /* runs instead of the command of each command job; NULL: the job's */
    struct {
        char *ca, *cert, *key;
    } tls;
    int64_t slots;         /* 0: as many as cores */
    char *gpus;            /* the GPUs to offer, a list as in gpu_choice.h; NULL: all */
    int64_t slots_per_gpu; /* workers that share a GPU */
    int64_t log_keep_ms;   /* how long a finished job's logs stay; 0: for ever */
    int64_t log_limit;     /* bytes that the logs of one job may take on this node; 0: no limit */
    int64_t log_total;     /* bytes that the logs of all jobs may take; 0: no limit */
    int port_first, port_last;
    uint64_t files; /* the soft limit of open files that the agent was started with; 0: unknown */
    bool insecure;  /* send no token */
    bool own_port;  /* the coordinator is on this machine, and the token goes to this user's only */
    int lifeline;   /* a pipe; when it is closed, the agent ends with all that it started; -1: none */
    int64_t
        attach; /* the rank that gets this process's stdin or the terminal, of commands on this node; or one of the
                       numbers below */
    int terminal; /* a socket to the user's terminal (base/worker/terminal_offer.h); -1: none */
    bool rejoin;  /* leave the cluster that this node belonged to */
};

enum { ATTACH_NO_RANK = -1, ATTACH_ONLY_RANK = -2 }; /* ONLY: the rank of a job that has one rank */

/* The options that `ddp-agent join` accepts as well. */
extern const struct option_spec settings_join_options[];

/* Usage errors, --help and --version end the program. */
MUST_CHECK enum err_code settings_read(struct settings *out, int argc, char **argv, struct err *e);
void settings_release(struct settings *s);
/* run_as may be NULL or "submitter", and then user must be NULL. */
MUST_CHECK enum err_code settings_check_run_as(const char *run_as, const char *user, struct err *e);

#endif
