#include "base/topology.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"

#define LIST_LIMIT ((size_t)1 << 16) /* bytes of a list in sysfs */

static bool set_has(const struct topology_set *s, int cpu)
{
    return cpu >= 0 && cpu < TOPOLOGY_MOST &&
           CPU_ISSET_S((size_t)cpu, sizeof(*s), (const cpu_set_t *)(const void *)s);
}

void topology_parse(const char *list, struct topology_set *out)
{
    while (isdigit((unsigned char)*list)) {
        char *end;
        long from = strtol(list, &end, 10), to = from;
        if (*end == '-')
            to = strtol(end + 1, &end, 10);
        for (long i = from; i <= to && i < TOPOLOGY_MOST; i++)
            CPU_SET_S((size_t)i, sizeof(*out), topology_cpus(out));
        list = *end == ',' ? end + 1 : end;
    }
}

void topology_print(const int *numbers, size_t count, struct buf *out)
{
    for (size_t i = 0, next; i < count; i = next) {
        for (next = i + 1; next < count && numbers[next] == numbers[next - 1] + 1; next++)
            ;
        buf_printf(out, "%s%d", i ? "," : "", numbers[i]);
        if (next > i + 1)
            buf_printf(out, "-%d", numbers[next - 1]);
    }
}

/* Returns false if there is no such file, or nothing in it. */
static bool list_read(const char *path, struct topology_set *out)
{
    CLEANUP(buf_release) struct buf text = {0};
    struct err ignored;
    memset(out, 0, sizeof(*out));
    if (file_read(path, LIST_LIMIT, &text, &ignored) || !text.len)
        return false;
    topology_parse(text.data, out);
    return CPU_COUNT_S(sizeof(*out), topology_cpus(out)) > 0;
}

/* Both files have the same content; the second one has the older name. Some machines, such as some with ARM, have neither. */
static int core_of(const char *root, int cpu, const struct topology_set *allowed)
{
    static const char *const files[] = {"core_cpus_list", "thread_siblings_list"};
    struct topology_set threads;
    for (size_t i = 0; i < ARRAY_LEN(files); i++) {
        CLEANUP(free_text) char *path = xasprintf("%s/cpu/cpu%d/topology/%s", root, cpu, files[i]);
        if (!list_read(path, &threads) || !set_has(&threads, cpu))
            continue;
        for (int c = 0; c < cpu; c++)
            if (set_has(&threads, c) && set_has(allowed, c))
                return c;
        return cpu;
    }
    return cpu;
}

static void nodes_read(const char *root, int *node_of)
{
    CLEANUP(free_text) char *dir = xasprintf("%s/node", root);
    DIR *d = opendir(dir);
    struct dirent *entry;
    while (d && (entry = readdir(d))) {
        CLEANUP(free_text) char *path = xasprintf("%s/%s/cpulist", dir, entry->d_name);
        struct topology_set cpus;
        int node = -1, used = 0;
        if (sscanf(entry->d_name, "node%d%n", &node, &used) != 1 || entry->d_name[used] ||
            !list_read(path, &cpus))
            continue;
        for (int cpu = 0; cpu < TOPOLOGY_MOST; cpu++)
            if (set_has(&cpus, cpu))
                node_of[cpu] = node;
    }
    if (d)
        closedir(d);
}

static int cpu_compare(const void *a, const void *b)
{
    const struct topology_cpu *x = a, *y = b;
    if (x->node != y->node)
        return x->node < y->node ? -1 : 1;
    if (x->core != y->core)
        return x->core < y->core ? -1 : 1;
    return (x->cpu > y->cpu) - (x->cpu < y->cpu);
}

void topology_read(struct topology *out, const char *root, const struct topology_set *allowed)
{
    CLEANUP(free_text) char *path = xasprintf("%s/cpu/online", root);
    int *node_of = xcalloc(TOPOLOGY_MOST, sizeof(*node_of));
    struct topology_set online, usable = *allowed;
    const bool known = list_read(path, &online);
    for (size_t i = 0; known && i < ARRAY_LEN(usable.words); i++)
        usable.words[i] &= online.words[i];
    if (CPU_COUNT_S(sizeof(usable), topology_cpus(&usable)) == 0)
        usable = *allowed; /* sysfs describes another machine */
    nodes_read(root, node_of);
    *out = (struct topology){.cpus = xcalloc(TOPOLOGY_MOST, sizeof(*out->cpus))};
    for (int cpu = 0; cpu < TOPOLOGY_MOST; cpu++)
        if (set_has(&usable, cpu))
            out->cpus[out->count++] =
                (struct topology_cpu){.cpu = cpu, .core = core_of(root, cpu, &usable), .node = node_of[cpu]};
    qsort(out->cpus, out->count, sizeof(*out->cpus), cpu_compare);
    free(node_of);
}

enum err_code topology_read_own(struct topology *out, struct err *e)
{
    struct topology_set all = {{0}};
    if (sched_getaffinity(0, sizeof(all), topology_cpus(&all)) < 0)
        return err_sys(e, errno, "cannot read which cores this process may use");
    topology_read(out, TOPOLOGY_ROOT, &all);
    return ERR_OK;
}

int topology_allowed(void)
{
    struct topology_set all = {{0}};
    return sched_getaffinity(0, sizeof(all), topology_cpus(&all)) < 0
               ? 1
               : CPU_COUNT_S(sizeof(all), topology_cpus(&all));
}

size_t topology_cores(const struct topology *t)
{
    size_t cores = 0;
    for (size_t i = 0; i < t->count; i++)
        cores += t->cpus[i].cpu == t->cpus[i].core;
    return cores;
}

void topology_release(struct topology *t)
{
    free(t->cpus);
    *t = (struct topology){0};
}
