#ifndef DDP_CLIENT_RUN_LAUNCH_REMOTE_LAUNCH_H
#define DDP_CLIENT_RUN_LAUNCH_REMOTE_LAUNCH_H

#include "client/cmd/command.h"
#include "client/run/launch/launcher.h"

/* --launcher and --hosts: one `ddpctl run` starts the same command on every host.
 *
 * With srun and mpirun this process becomes the launcher (launcher_exec.h), and each task finds its place as
 * it does in any batch job. With ssh and pbsdsh it stays (remote_children.h): it starts a ddpctl for each
 * host, the one for this host without a launcher, sends each the token through a pipe, passes ^C on to the
 * first, which hosts the run, and ends the others if one of them could not be started. */
struct remote_launch {
    enum launcher launcher;
    char **hosts;   /* as given, "user@box2" for ssh; NULL: the launcher knows them */
    int64_t *slots; /* pbsdsh: each host's first line in PBS_NODEFILE */
    int64_t count, port;
    bool elastic;     /* the run may go on with fewer hosts */
    char *id;         /* the run's; "": the arguments have it */
    const char *meet; /* the first host's name or address; "": each host finds it */
    char **secrets;   /* environment that is sent: the token, PATH and the like */
    char *const *argv;
    const int *signals; /* ended by 0 */
};

/* argv is this process's own. Returns ddpctl's exit code. */
int remote_launch_run(enum launcher launcher, const struct globals *globals, const struct run_request *r,
                      const struct batch_allocation *a, char *const *argv);

/* What a host executes: this program with its own arguments, and the host's place. env: how the environment
 * reaches it (struct launch_message). A NULL-terminated list for strv_free. */
char **remote_launch_command(const struct remote_launch *p, int64_t rank, const char *env);

#endif
