#include "daemon/supervisor/protocol/cgroup.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"

/* Where cgroup2 is mounted. Lines of mountinfo: "ID PARENT MAJ:MIN ROOT MOUNTPOINT OPTIONS - cgroup2 ...". */
static bool cgroup_mount_find(char out[PATH_MAX])
{
    FILE *f = fopen("/proc/self/mountinfo", "re");
    char line[8192];
    bool found = false;

    while (f && !found && fgets(line, sizeof(line), f)) {
        if (!strstr(line, " - cgroup2 "))
            continue;
        found = sscanf(line, "%*s %*s %*s %*s %4095s", out) == 1;
    }
    if (f)
        fclose(f);
    return found;
}

/* This process's cgroup v2 path: the line "0::/..." of /proc/self/cgroup. */
static bool cgroup_own_path(char out[PATH_MAX])
{
    FILE *f = fopen("/proc/self/cgroup", "re");
    char line[PATH_MAX];
    bool found = false;

    while (f && !found && fgets(line, sizeof(line), f)) {
        if (strncmp(line, "0::/", 4))
            continue;
        line[strcspn(line, "\n")] = '\0';
        snprintf(out, PATH_MAX, "%s", line + 3);
        found = true;
    }
    if (f)
        fclose(f);
    return found;
}

enum err_code cgroup_make(const char *name, char **out, struct err *e)
{
    char mount[PATH_MAX], own[PATH_MAX];
    CLEANUP(free_text) char *path = NULL;

    *out = NULL;
    if (!cgroup_mount_find(mount) || !cgroup_own_path(own))
        return ERR_OK;
    path = xasprintf("%s%s/%s", mount, strcmp(own, "/") ? own : "", name);
    if (mkdir(path, 0755) && errno != EEXIST) {
        /* not root, or in a container: the spawn gets no cgroup, and process_kill.h finds its processes */
        if (errno == EACCES || errno == EPERM || errno == EROFS || errno == ENOENT)
            return ERR_OK;
        return err_sys(e, errno, "%s", path);
    }
    *out = steal(path);
    return ERR_OK;
}

int cgroup_open(const char *cgroup)
{
    return open(cgroup, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

static FILE *cgroup_file_open(const char *cgroup, const char *name, const char *mode)
{
    CLEANUP(free_text) char *path = xasprintf("%s/%s", cgroup, name);

    return fopen(path, mode);
}

enum err_code cgroup_enter(const char *cgroup, int pid, struct err *e)
{
    FILE *procs = cgroup_file_open(cgroup, "cgroup.procs", "we");
    bool moved = procs && fprintf(procs, "%d", pid) > 0;

    if (procs && fclose(procs)) /* the kernel's answer comes with the flush */
        moved = false;
    return moved ? ERR_OK : err_sys(e, errno, "%s", cgroup);
}

void cgroup_move_all(const char *from, const char *to)
{
    bool moved = true;

    for (int round = 0; moved && round < 10; round++) { /* again for children that were being forked */
        FILE *procs = cgroup_file_open(from, "cgroup.procs", "re");
        struct err e;
        int pid;

        moved = false;
        while (procs && fscanf(procs, "%d", &pid) == 1)
            moved = cgroup_enter(to, pid, &e) == ERR_OK || moved;
        if (procs)
            fclose(procs);
    }
}

int cgroup_kill(const char *cgroup, struct process_list *killed)
{
    FILE *kill_file = cgroup_file_open(cgroup, "cgroup.kill", "we");
    FILE *procs = cgroup_file_open(cgroup, "cgroup.procs", "re");
    int alive = 0, pid;

    /* Read before the kill: cgroup.procs does not list a process whose last threads are ending. */
    while (procs && fscanf(procs, "%d", &pid) == 1) {
        alive++;
        process_list_add(killed, pid);
        /* Also where cgroup.kill exists (Linux 5.14): it misses a process whose first thread has ended. */
        if (pid > 0)
            kill(pid, SIGKILL);
    }
    if (procs)
        fclose(procs);
    if (kill_file) {
        fputs("1", kill_file);
        fclose(kill_file);
    }
    return alive;
}

void cgroup_remove(const char *cgroup)
{
    if (rmdir(cgroup))
        return; /* an empty directory does no harm; a spawn of the same name would use it again */
}

static long long counter_read(FILE *f, const char *key)
{
    char name[64];
    long long value, found = -1;

    while (f && found < 0 && fscanf(f, "%63s %lld", name, &value) == 2)
        if (!strcmp(name, key))
            found = value;
    if (f)
        fclose(f);
    return found;
}

long long cgroup_oom_kills(const char *cgroup)
{
    return counter_read(cgroup_file_open(cgroup, "memory.events", "re"), "oom_kill");
}

long long kernel_oom_kills(void)
{
    return counter_read(fopen("/proc/vmstat", "re"), "oom_kill");
}
