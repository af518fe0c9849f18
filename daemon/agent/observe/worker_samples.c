#include "daemon/agent/observe/worker_samples.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/worker/process_wait.h"

static int64_t output_newest(const char *dir)
{
    static const char *const names[] = {"stdout.log", "stderr.log"};
    int64_t newest = 0;

    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        CLEANUP(free_text) char *path = xasprintf("%s/%s", dir, names[i]);
        struct stat st;

        if (lstat(path, &st) || !S_ISREG(st.st_mode)) /* the directory belongs to the job's user */
            continue;
        int64_t at = (int64_t)st.st_mtim.tv_sec * 1000 + st.st_mtim.tv_nsec / 1000000;
        if (at > newest)
            newest = at;
    }
    return newest;
}

/* One stopped process is enough, if none runs: the others wait for it. A process that runs gets on, whatever
 * the others do. */
static char tree_stuck_state(const struct process_list *tree)
{
    bool stopped = false, kernel = false;

    for (size_t i = 0; i < tree->count; i++) {
        char state = tree->items[i].state;

        if (state == 'R')
            return 0;
        stopped = stopped || state == 'T' || state == 't';
        kernel = kernel || state == 'D';
    }
    return stopped ? 'T' : kernel ? 'D' : 0;
}

static void sample_add_process(struct worker_sample *l, const struct process *p)
{
    struct sampled_process *q = &l->processes[l->process_count++];

    q->p = *p;
    process_wait(p->pid, q->call, q->target);
    /* the stack tells something of a process that waits in the kernel, and of the worker itself */
    if (p->state == 'D' || l->process_count == 1)
        q->stack = process_stack(p->pid, SAMPLE_STACK);
}

/* If there are too many processes, sleeping ones are left out: they tell least. */
static void sample_add_processes(struct worker_sample *l, const struct process_list *tree)
{
    l->processes = xcalloc(SAMPLE_PROCESSES, sizeof(*l->processes));
    for (int asleep = 0; asleep < 2; asleep++)
        for (size_t i = 0; i < tree->count; i++)
            if ((i > 0 && tree->items[i].state == 'S') == asleep && l->process_count < SAMPLE_PROCESSES)
                sample_add_process(l, &tree->items[i]);
    l->left_out = tree->count - l->process_count;
}

static const struct process *tree_only_child(const struct process_list *tree, pid_t parent)
{
    const struct process *child = NULL;

    for (size_t i = 0; i < tree->count; i++) {
        if (tree->items[i].parent != parent || tree->items[i].state == 'Z')
            continue;
        if (child)
            return NULL;
        child = &tree->items[i];
    }
    return child;
}

/* The first process that is stopped, or waits in the kernel, if that is what makes the worker stuck. */
static const struct process *tree_find_stuck(const struct process_list *tree, char stuck)
{
    for (size_t i = 0; stuck && i < tree->count; i++)
        if (tree->items[i].state == stuck || (stuck == 'T' && tree->items[i].state == 't'))
            return &tree->items[i];
    return NULL;
}

/* Whole names only, as many as there is room for. */
static void sample_read_stack(struct worker_sample *l, pid_t pid)
{
    char **names = process_stack(pid, SAMPLE_STACK);
    size_t len = 0;

    for (size_t i = 0; i < strv_len(names); i++) {
        const char *comma = len ? ", " : "";
        if (len + strlen(comma) + strlen(names[i]) >= sizeof(l->stack))
            break;
        len += (size_t)snprintf(l->stack + len, sizeof(l->stack) - len, "%s%s", comma, names[i]);
    }
    strv_free(names);
}

/* A worker may be a shell or a launcher that waits for its only child, which does the work. */
static void sample_read_wait(struct worker_sample *l, const struct process_list *tree)
{
    static const char *const shells[] = {"sh", "bash", "dash"};
    const struct process *stuck = tree_find_stuck(tree, l->stuck);
    const struct process *p = stuck ? stuck : tree->count ? &tree->items[0] : NULL;

    if (stuck)
        process_wait(stuck->pid, l->call, l->target);
    for (size_t depth = 0; p && !stuck && depth < tree->count; depth++) {
        const struct process *child = tree_only_child(tree, p->pid);
        bool waits;

        process_wait(p->pid, l->call, l->target);
        waits = !strcmp(l->call, "wait") || !strcmp(l->call, "do_wait");
        for (size_t i = 0; i < ARRAY_LEN(shells); i++)
            waits = waits || !strcmp(p->name, shells[i]);
        if (!waits || !child)
            break;
        p = child;
    }
    l->own_wait = process_wait_own(l->call, l->target);
    if (p)
        sample_read_stack(l, p->pid);
}

/* A page that several processes share counts once for each of them: the kernel answers for private pages only after it
 * has walked all of them. */
static void sample_measure(struct worker_sample *l, const struct process_list *tree)
{
    for (size_t i = 0; i < tree->count; i++) {
        int64_t in, out;

        l->used_cpu_ms += tree->items[i].cpu_ms;
        l->memory_bytes += tree->items[i].memory_bytes;
        if (l->read_bytes < 0 || tree->items[i].state == 'Z')
            continue;
        if (process_read_io(tree->items[i].pid, &in, &out)) {
            l->read_bytes += in;
            l->write_bytes += out;
        } else {
            l->read_bytes = l->write_bytes = -1;
        }
    }
}

static void sample_take(struct worker_sample *l, const struct process_list *all)
{
    CLEANUP(process_list_release) struct process_list tree = {0};

    l->output_ms = output_newest(l->log_dir);
    process_tree(all, (pid_t)l->pid, &tree);
    l->there = tree.count > 0;
    l->stuck = tree_stuck_state(&tree);
    for (size_t i = 0; i < tree.count; i++)
        l->cpu_ms += tree.items[i].cpu_ms;
    if (l->wait)
        sample_read_wait(l, &tree);
    if (l->detail)
        sample_add_processes(l, &tree);
    if (l->measure && l->there) {
        process_add_cgroup(all, l->cgroup, &tree); /* the worker's own state, above, is that of its tree */
        sample_measure(l, &tree);
    }
}

void worker_samples_take(struct worker_samples *look)
{
    CLEANUP(process_list_release) struct process_list all = {0};
    int64_t start = clock_boot_ms();

    process_list_all(&all);
    for (size_t i = 0; i < look->count; i++)
        sample_take(&look->items[i], &all);
    look->done_ms = clock_boot_ms();
    look->took_ms = look->done_ms - start;
}

void worker_samples_release(struct worker_samples *look)
{
    for (size_t i = 0; i < look->count; i++) {
        for (size_t k = 0; k < look->items[i].process_count; k++)
            strv_free(look->items[i].processes[k].stack);
        free(look->items[i].processes);
        free(look->items[i].log_dir);
        free(look->items[i].cgroup);
    }
    free(look->items);
    *look = (struct worker_samples){0};
}
