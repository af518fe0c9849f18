#ifndef DDP_CLIENT_RUN_REMOTE_LAUNCH_H
#define DDP_CLIENT_RUN_REMOTE_LAUNCH_H

#include "client/cmd/command.h"
#include "client/run/batch_allocation.h"
#include "client/run/run_request.h"

/* --launcher and --hosts: one `ddpctl run` starts the same on every host. With srun and mpirun it becomes
 * them, and each task finds its place as ever. With ssh and pbsdsh it stays: it starts a ddpctl for each host
 * (for this one, without either), sends each the token by a pipe, passes ^C on to the first, which hosts the
 * run, and ends what is left when one could not be started. */

enum launcher { LAUNCHER_NONE, LAUNCHER_SRUN, LAUNCHER_PBSDSH, LAUNCHER_SSH, LAUNCHER_MPIRUN };

/* Which, by what was said and where this runs; NONE: nothing is to be launched from here, also where this was
 * launched itself. have: whether a program is there. INVALID_ARGUMENT: auto, and nothing to go by. */
MUST_CHECK enum err_code launcher_choose(const struct run_request *l, const struct batch_allocation *a,
                                         bool (*have)(const char *program), enum launcher *out,
                                         struct err *e);
bool launcher_on_path(const char *program); /* on PATH */

/* argv is this process's own. Returns ddpctl's exit code. */
int remote_launch_run(enum launcher launcher, const struct globals *globals, const struct run_request *l,
                      const struct batch_allocation *a, char *const *argv);

/* ---- its parts */

struct remote_launch {
    enum launcher launcher;
    char **hosts;   /* as given, "user@box2" for ssh; NULL: the launcher knows */
    int64_t *slots; /* pbsdsh: each host's first line in PBS_NODEFILE */
    int64_t count, port;
    bool elastic; /* the run may go on with fewer */
    char *id;
    const char *meet; /* the first host's name or address; "" */
    char **secrets;   /* environment that is sent: the token, PATH and the like */
    char *const *argv;
    const int *signals;
};

/* What a host is to execute: this program with its own arguments, and its place. */
char **remote_launch_command(const struct remote_launch *plan, int64_t rank, const char *env);
int launcher_exec(const struct remote_launch *plan);       /* srun, mpirun: returns on failure only */
int remote_children_run(const struct remote_launch *plan); /* ssh, pbsdsh */

/* Appends a word as a shell reads it back. */
void shell_quote(struct buf *out, const char *word);

#endif
