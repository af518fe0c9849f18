/* MemTotal and MemAvailable are those of the machine, also within a container. A limit of a cgroup holds for the cgroup and all below
 * it, so the limit of each cgroup is read, from the process's own one up to the mount point. Above a container's mount point nothing can be seen; its
 * own cgroup has the container's limit.
 *
 * A cgroup has its limit less its use available. The page cache counts as available, because the kernel drops its pages when it needs
 * memory; MemAvailable counts it, too. Shared memory counts as used. */
#include "base/host_memory.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

/* More than any machine has. Larger numbers are cut to it, so that sums, and bytes made of KiB, do not overflow. */
#define NUMBER_MOST ((int64_t)1 << 52)

/* The files of the controller "memory". */
struct memory_files {
    const char *limit, *use, *files_inactive, *files_active;
    const char
        *inherits; /* "0": the cgroup's limit does not hold for cgroups below it; NULL: it always does */
};

static const struct memory_files version_1 = {"memory.limit_in_bytes", "memory.usage_in_bytes",
                                              "total_inactive_file", "total_active_file",
                                              "memory.use_hierarchy"};
static const struct memory_files version_2 = {"memory.max", "memory.current", "inactive_file", "active_file",
                                              NULL};

/* The number after `key` at the start of a line; without a key, at the start of the file. -1: there is none ("max", no file). */
static int64_t number_in_file(const char *path, const char *key)
{
    FILE *f = fopen(path, "re");
    char line[256];
    int64_t value = -1;
    const size_t length = strlen(key);

    while (f && value < 0 && fgets(line, sizeof(line), f)) {
        const bool found =
            !strncmp(line, key, length) && (!length || line[length] == ' ' || line[length] == ':');
        if (found && sscanf(line + length + (line[length] == ':'), "%" SCNd64, &value) != 1)
            break;
    }
    if (f)
        fclose(f);
    return value < NUMBER_MOST ? value : NUMBER_MOST;
}

static int64_t cgroup_number(const char *cgroup, const char *file, const char *key)
{
    CLEANUP(free_text) char *path = xasprintf("%s/%s", cgroup, file);

    return number_in_file(path, key);
}

static int64_t number_or_zero(int64_t n)
{
    return n > 0 ? n : 0;
}

static void cgroup_limit(const char *cgroup, const struct memory_files *files, struct host_memory *out)
{
    const int64_t limit = cgroup_number(cgroup, files->limit, "");

    if (limit <= 0)
        return;
    const int64_t use = number_or_zero(cgroup_number(cgroup, files->use, "")),
                  files_inactive =
                      number_or_zero(cgroup_number(cgroup, "memory.stat", files->files_inactive)),
                  files_active = number_or_zero(cgroup_number(cgroup, "memory.stat", files->files_active)),
                  left = limit - number_or_zero(use - files_inactive - files_active);
    /* Without a limit, version 1 has a very large number. */
    if (limit < out->total)
        out->total = limit;
    if (left < out->available)
        out->available = left > 0 ? left : 1; /* 0 would mean that it is not known */
}

/* From the cgroup at mount + path up to the mount point. */
static void cgroups_limit(const char *mount, const char *path, const struct memory_files *files,
                          struct host_memory *out)
{
    CLEANUP(free_text) char *at = xasprintf("%s%s", mount, path);
    const size_t top = strlen(mount);
    size_t length = strlen(at);

    for (bool own = true;; own = false) {
        while (length > top && at[length - 1] == '/')
            length--;
        at[length] = '\0';
        if (own || !files->inherits || cgroup_number(at, files->inherits, "") != 0)
            cgroup_limit(at, files, out);
        if (length <= top)
            return;
        while (length > top && at[length - 1] != '/')
            length--;
    }
}

/* Returns what follows the cgroup `root` in `path`. A container may have its own cgroup mounted as if it were the whole tree, and a path
 * outside this tree; then its own cgroup is the mount point. */
static const char *path_below(const char *path, const char *root)
{
    const size_t length = strcmp(root, "/") ? strlen(root) : 0;

    if (!strncmp(path, "/..", 3) || strncmp(path, root, length) || (path[length] && path[length] != '/'))
        return "";
    return path + length;
}

/* Lines of mountinfo: "ID PARENT MAJ:MIN ROOT MOUNTPOINT OPTIONS ... - TYPE SOURCE OPTIONS". */
static bool mount_of_line(char *line, bool unified, const char **root, const char **mount)
{
    char *rest = strstr(line, " - "), *at = line, *type, *options;

    if (!rest)
        return false;
    *rest = '\0';
    type = strtok_r(rest + 3, " \n", &rest);
    (void)strtok_r(NULL, " \n", &rest);
    options = strtok_r(NULL, " \n", &rest);
    if (!type || strcmp(type, unified ? "cgroup2" : "cgroup") != 0)
        return false;
    for (char *option = options ? strtok_r(options, ",", &rest) : NULL; !unified;
         option = strtok_r(NULL, ",", &rest)) {
        if (!option)
            return false;
        if (!strcmp(option, "memory"))
            break;
    }
    for (int i = 0; i < 3; i++)
        (void)strtok_r(i ? NULL : at, " ", &rest);
    *root = strtok_r(NULL, " ", &rest);
    *mount = strtok_r(NULL, " ", &rest);
    return *root && *mount;
}

static void tree_limit(const char *sys_root, const char *mountinfo, const char *path, bool unified,
                       struct host_memory *out)
{
    FILE *f = fopen(mountinfo, "re");
    char *line = NULL;
    size_t size = 0;
    const char *root, *mount;

    while (f && getline(&line, &size, f) >= 0) {
        if (!mount_of_line(line, unified, &root, &mount))
            continue;
        CLEANUP(free_text) char *at = xasprintf("%s%s", sys_root, mount);
        cgroups_limit(at, path_below(path, root), unified ? &version_2 : &version_1, out);
        break;
    }
    free(line);
    if (f)
        fclose(f);
}

/* Lines of /proc/self/cgroup: "ID:CONTROLLERS:PATH"; version 2 is the line "0::PATH". */
static bool path_of_line(char *line, bool *unified, const char **path)
{
    char *controllers = strchr(line, ':'), *rest = controllers ? strchr(controllers + 1, ':') : NULL;

    if (!rest)
        return false;
    *controllers++ = *rest++ = '\0';
    rest[strcspn(rest, "\n")] = '\0';
    *path = rest;
    *unified = !strcmp(line, "0") && !*controllers;
    for (char *name = strtok_r(controllers, ",", &rest); name && !*unified; name = strtok_r(NULL, ",", &rest))
        if (!strcmp(name, "memory"))
            return true;
    return *unified;
}

void host_memory_read_at(const char *root, struct host_memory *out)
{
    CLEANUP(free_text) char *meminfo = xasprintf("%s/proc/meminfo", root);
    CLEANUP(free_text) char *own = xasprintf("%s/proc/self/cgroup", root);
    CLEANUP(free_text) char *mountinfo = xasprintf("%s/proc/self/mountinfo", root);
    char *line = NULL;
    size_t size = 0;
    bool unified;
    const char *path;

    out->total = number_or_zero(number_in_file(meminfo, "MemTotal")) * 1024;
    out->available = number_or_zero(number_in_file(meminfo, "MemAvailable")) * 1024;
    FILE *f = fopen(own, "re");
    while (f && getline(&line, &size, f) >= 0)
        if (path_of_line(line, &unified, &path))
            tree_limit(root, mountinfo, path, unified, out);
    free(line);
    if (f)
        fclose(f);
}

void host_memory_read(struct host_memory *out)
{
    host_memory_read_at("", out);
}
