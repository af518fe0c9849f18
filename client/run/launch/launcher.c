#include "client/run/launch/launcher.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"

static enum err_code launcher_choose_auto(const struct run_request *r, const struct batch_allocation *a,
                                          bool (*on_path)(const char *program), enum launcher *out,
                                          struct err *e)
{
    /* Torque's pbsdsh may not be installed, ssh always is. */
    if (a->kind == BATCH_SLURM)
        *out = LAUNCHER_SRUN;
    else if (a->kind == BATCH_PBS && on_path("pbsdsh"))
        *out = LAUNCHER_PBSDSH;
    else if (a->kind == BATCH_PBS || r->hosts)
        *out = LAUNCHER_SSH;
    else
        return err_set(e, ERR_INVALID_ARGUMENT,
                       "--launcher auto: this is not a job of Slurm or PBS; give --hosts box1,box2");
    return ERR_OK;
}

enum err_code launcher_choose(const struct run_request *r, const struct batch_allocation *a,
                              bool (*on_path)(const char *program), enum launcher *out, struct err *e)
{
    static const struct {
        const char *name;
        enum launcher launcher;
    } names[] = {{"srun", LAUNCHER_SRUN},
                 {"pbsdsh", LAUNCHER_PBSDSH},
                 {"ssh", LAUNCHER_SSH},
                 {"mpirun", LAUNCHER_MPIRUN}};
    const char *name = r->launcher ? r->launcher : r->hosts ? "auto" : NULL;
    *out = LAUNCHER_NONE;
    if (!name)
        return ERR_OK;
    if (r->standalone)
        return err_set(e, ERR_INVALID_ARGUMENT, "--standalone runs on this machine only; leave out --%s",
                       r->hosts ? "hosts" : "launcher");
    if (a->kind != BATCH_NONE && a->launched && strcmp(name, "ssh") != 0)
        return ERR_OK; /* the batch system has already started a ddpctl on each node, and this is one of them
                        */
    if (r->node_rank >= 0)
        return err_set(e, ERR_INVALID_ARGUMENT, "--node-rank is for one host, but --%s starts them all",
                       r->hosts ? "hosts" : "launcher");
    if (strcmp(name, "auto") == 0)
        return launcher_choose_auto(r, a, on_path, out, e);
    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        if (strcmp(name, names[i].name) == 0)
            *out = names[i].launcher;
    return ERR_OK;
}
