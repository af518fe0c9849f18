#ifndef DDP_DAEMON_AGENT_SETTINGS_H
#define DDP_DAEMON_AGENT_SETTINGS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/option.h"

/* What an agent was told: flags, else the config file, else the defaults. Texts are owned by the struct. */

struct settings {
    char *config_file; /* --config; NULL: the usual one */
    char *state;       /* absolute */
    char *log_dir;     /* absolute */
    char *coordinator; /* "host:port", "unix:/path" */
    char *coordinator_from;
    char *node;
    char *address; /* NULL: the source address towards the coordinator */
    char *token_file;
    char *token;    /* NULL: none */
    char **env;     /* "NAME=value", of every job on this node */
    char *user;     /* whom jobs run as; NULL: as the agent */
    char *run_as;   /* "submitter": each job as its own user, instead; NULL: not */
    char *workdir;  /* of every command, whatever its job says; NULL: as the job says */
    char **command; /* instead of a command job's own, likewise */
    struct {
        char *ca, *cert, *key;
    } tls;
    int64_t slots;         /* 0: as many as cores */
    char *gpus;            /* which to offer, as in gpu_choice.h; NULL: all */
    int64_t slots_per_gpu; /* workers that share one */
    int64_t log_keep_ms;   /* how long a finished job's logs stay; 0: for ever */
    int64_t log_limit;     /* bytes that a job's logs may take here; 0: no limit */
    int64_t log_total;     /* all jobs' logs, likewise */
    int port_first, port_last;
    uint64_t files; /* the soft limit of open files this agent was started with; 0: unknown */
    bool insecure;  /* send no token */
    int lifeline;   /* a pipe whose end of file ends this agent and all it started; -1: none */
    bool rejoin;    /* forget the cluster this node belonged to */
};

/* The options that join takes, too. */
extern const struct option_spec settings_join_options[];

/* Usage errors, --help and --version end the program. */
MUST_CHECK enum err_code settings_read(struct settings *out, int argc, char **argv, struct err *e);
void settings_release(struct settings *s);
/* run_as may be NULL or "submitter", and then user must be NULL. */
MUST_CHECK enum err_code settings_check_run_as(const char *run_as, const char *user, struct err *e);

#endif
