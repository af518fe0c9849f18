#include "client/run/launch/launcher_exec.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "client/cmd/output.h"

/* srun and mpirun handle signals and exit codes as users of the batch system expect, so this process becomes
 * the launcher instead of being its parent. */

static void argv_add(char ***argv, const char *word)
{
    *argv = strv_append(*argv, word);
}

static void argv_add_number(char ***argv, const char *option, int64_t number)
{
    CLEANUP(free_text) char *word = xasprintf("%s%lld", option, (long long)number);
    argv_add(argv, word);
}

static char *hosts_joined(char *const *hosts)
{
    struct buf text = {0};
    for (; *hosts; hosts++)
        buf_printf(&text, "%s%s", text.len ? "," : "", *hosts);
    return buf_steal(&text);
}

static void launcher_srun_arguments(const struct remote_launch *p, char ***argv)
{
    argv_add(argv, "srun");
    argv_add_number(argv, "--nodes=", p->count);
    argv_add_number(argv, "--ntasks=", p->count);
    argv_add(argv, "--ntasks-per-node=1");
    if (p->hosts) {
        CLEANUP(free_text) char *list = hosts_joined(p->hosts);
        CLEANUP(free_text) char *word = xasprintf("--nodelist=%s", list);
        argv_add(argv, word);
    }
}

/* Open MPI's mpirun and Hydra's (MPICH, Intel MPI) take different options; `mpirun --version` tells them
 * apart. */
static bool launcher_is_open_mpi(void)
{
    char said[4096];
    FILE *pipe = popen("mpirun --version 2>&1", "r"); /* a constant: the shell sees no text of the user */
    size_t length = pipe ? fread(said, 1, sizeof(said) - 1, pipe) : 0;
    said[length] = 0;
    if (pipe)
        pclose(pipe);
    return strstr(said, "Open MPI") || strstr(said, "OpenRTE") || strstr(said, "PRTE");
}

static void launcher_open_mpi_arguments(const struct remote_launch *p, char ***argv)
{
    argv_add(argv, "-np");
    argv_add_number(argv, "", p->count);
    argv_add(argv, "--map-by");
    argv_add(argv, "ppr:1:node");
    if (p->hosts) {
        CLEANUP(free_text) char *list = hosts_joined(p->hosts);
        argv_add(argv, "--host");
        argv_add(argv, list);
    }
    for (char **entry = p->secrets; entry && *entry; entry++) {
        CLEANUP(free_text) char *name = xasprintf("%.*s", (int)strcspn(*entry, "="), *entry);
        argv_add(argv, "-x");
        argv_add(argv, name);
    }
}

static void launcher_hydra_arguments(const struct remote_launch *p, char ***argv)
{
    argv_add(argv, "-n");
    argv_add_number(argv, "", p->count);
    argv_add(argv, "-ppn");
    argv_add(argv, "1");
    if (p->hosts) {
        CLEANUP(free_text) char *list = hosts_joined(p->hosts);
        argv_add(argv, "-hosts");
        argv_add(argv, list);
    }
}

/* The tasks have rank -1: each finds its place in the variables that the launcher sets. */
static char **launcher_exec_arguments(const struct remote_launch *p)
{
    char **argv = NULL;
    if (p->launcher == LAUNCHER_SRUN) {
        launcher_srun_arguments(p, &argv);
    } else {
        argv_add(&argv, "mpirun");
        (launcher_is_open_mpi() ? launcher_open_mpi_arguments : launcher_hydra_arguments)(p, &argv);
    }
    char **command = remote_launch_command(p, -1, "");
    for (char **word = command; *word; word++)
        argv_add(&argv, *word);
    strv_free(command);
    return argv;
}

int launcher_exec(const struct remote_launch *p)
{
    struct err e;
    char **argv = launcher_exec_arguments(p);
    for (char **entry = p->secrets; entry && *entry; entry++) {
        CLEANUP(free_text) char *name = xasprintf("%.*s", (int)strcspn(*entry, "="), *entry);
        setenv(name, *entry + strlen(name) + 1, 1);
    }
    execvp(argv[0], argv);
    err_sys(&e, errno, "%s", argv[0]);
    strv_free(argv);
    error_print(&e);
    return EXIT_DDP;
}
