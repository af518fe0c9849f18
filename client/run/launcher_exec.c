#include "client/run/launcher_exec.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "client/cmd/output.h"

/* srun and mpirun are the batch system's own way: this process becomes them, so that signals and the exit
 * code are theirs. */

static void add(char ***argv, const char *word)
{
    *argv = strv_append(*argv, word);
}

static void add_number(char ***argv, const char *option, int64_t number)
{
    CLEANUP(free_text) char *word = xasprintf("%s%lld", option, (long long)number);
    add(argv, word);
}

static char *joined(char *const *hosts)
{
    struct buf text = {0};
    for (; *hosts; hosts++)
        buf_printf(&text, "%s%s", text.len ? "," : "", *hosts);
    return buf_steal(&text);
}

static void srun_arguments(const struct remote_launch *p, char ***argv)
{
    add(argv, "srun");
    add_number(argv, "--nodes=", p->count);
    add_number(argv, "--ntasks=", p->count);
    add(argv, "--ntasks-per-node=1");
    if (p->hosts) {
        CLEANUP(free_text) char *list = joined(p->hosts);
        CLEANUP(free_text) char *word = xasprintf("--nodelist=%s", list);
        add(argv, word);
    }
}

/* What `mpirun --version` says; its families take different options. */
static bool is_open_mpi(void)
{
    char said[4096];
    FILE *pipe = popen("mpirun --version 2>&1", "r"); /* a fixed text: nothing of the user's is in it */
    size_t length = pipe ? fread(said, 1, sizeof(said) - 1, pipe) : 0;
    said[length] = 0;
    if (pipe)
        pclose(pipe);
    return strstr(said, "Open MPI") || strstr(said, "OpenRTE") || strstr(said, "PRTE");
}

static void open_mpi_arguments(const struct remote_launch *p, char ***argv)
{
    add(argv, "-np");
    add_number(argv, "", p->count);
    add(argv, "--map-by");
    add(argv, "ppr:1:node");
    if (p->hosts) {
        CLEANUP(free_text) char *list = joined(p->hosts);
        add(argv, "--host");
        add(argv, list);
    }
    for (char **entry = p->secrets; entry && *entry; entry++) {
        CLEANUP(free_text) char *name = xasprintf("%.*s", (int)strcspn(*entry, "="), *entry);
        add(argv, "-x");
        add(argv, name);
    }
}

static void hydra_arguments(const struct remote_launch *p, char ***argv)
{
    add(argv, "-n");
    add_number(argv, "", p->count);
    add(argv, "-ppn");
    add(argv, "1");
    if (p->hosts) {
        CLEANUP(free_text) char *list = joined(p->hosts);
        add(argv, "-hosts");
        add(argv, list);
    }
}

/* Each finds its place by what the launcher sets. */
static char **arguments(const struct remote_launch *p)
{
    char **argv = NULL;
    if (p->launcher == LAUNCHER_SRUN) {
        srun_arguments(p, &argv);
    } else {
        add(&argv, "mpirun");
        (is_open_mpi() ? open_mpi_arguments : hydra_arguments)(p, &argv);
    }
    char **command = remote_launch_command(p, -1, "");
    for (char **word = command; *word; word++)
        add(&argv, *word);
    strv_free(command);
    return argv;
}

int launcher_exec(const struct remote_launch *p)
{
    struct err e;
    char **argv = arguments(p);
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
