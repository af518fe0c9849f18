#include "client/diagnose/failed_ranks.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"
#include "client/text/rank_list.h"
#include "client/text/term.h"

#define GROUPS_MOST 4 /* so that what a job of many ranks prints fits on a screen */

static void failed_rank_take_lines(struct failed_rank *r, char *const *lines, size_t count)
{
    const size_t skip = count > FAILED_LINES ? count - FAILED_LINES : 0;
    r->lines = skip ? lines + skip : lines; /* a rank without lines has NULL */
    r->count = count - skip;
}

static bool failed_ranks_are_alike(const struct failed_rank *a, const struct failed_rank *b)
{
    if (a->count != b->count || !a->count)
        return false;
    for (size_t i = 0; i < a->count; i++)
        if (!lines_are_alike(&a->owner, a->lines[i], &b->owner, b->lines[i]))
            return false;
    return true;
}

static void failed_ranks_add(struct failed_ranks *f, const Ddp__V1__WorkerProbe *w, bool only_alike)
{
    struct failed_rank r = {
        .owner = {w->node, w->rank, w->local_rank, w->pid}, .worker = w, .group = f->group_count};
    failed_rank_take_lines(&r, w->stderr_tail, w->n_stderr_tail);
    for (size_t i = 0; i < f->count && r.group == f->group_count; i++)
        if (failed_ranks_are_alike(&f->items[i], &r))
            r.group = f->items[i].group;
    if (r.group == f->group_count && only_alike)
        return;
    f->group_count += r.group == f->group_count;
    f->items[f->count++] = r;
}

static int compare_failed_ranks(const void *a, const void *b)
{
    const struct failed_rank *x = a, *y = b;
    return (x->owner.rank > y->owner.rank) - (x->owner.rank < y->owner.rank);
}

static int compare_ints(const void *a, const void *b)
{
    const int x = *(const int *)a, y = *(const int *)b;
    return (x > y) - (x < y);
}

/* ddp stops the other ranks of a command by these signals. */
static bool worker_was_ended(const Ddp__V1__WorkerProbe *w)
{
    return w->stopped || w->signal == SIGTERM || w->signal == SIGKILL;
}

/* A rank that was told to stop may have failed by itself just before. That is assumed if it wrote the same as another rank. */
static void failed_ranks_add_others(struct failed_ranks *f, const Ddp__V1__ProbeJobReply *probe)
{
    for (int ended = 0; ended < 2; ended++)
        for (size_t i = 0; i < probe->n_workers; i++) {
            const Ddp__V1__WorkerProbe *w = probe->workers[i];
            if (w->rank != f->items[0].owner.rank && w->ended && w->exit_known && (w->code || w->signal) &&
                w->n_stderr_tail && worker_was_ended(w) == ended)
                failed_ranks_add(f, w, ended);
        }
}

void failed_ranks_find(struct failed_ranks *f, const Ddp__V1__JobStatus *job,
                       const Ddp__V1__ProbeJobReply *probe)
{
    const Ddp__V1__Failure *first = job->failure;
    *f = (struct failed_ranks){0};
    if (!first || !*first->node)
        return;
    f->items = xcalloc(1 + (probe ? probe->n_workers : 0), sizeof(*f->items));
    f->count = f->group_count = 1;
    f->alone = job->world_size == 1;
    f->items[0].owner =
        (struct line_owner){.node = first->node, .rank = first->rank, .local_rank = first->local_rank};
    failed_rank_take_lines(&f->items[0], first->stderr_tail, first->n_stderr_tail);
    if (!probe || probe->generation != first->generation)
        return;
    for (size_t i = 0; i < probe->n_workers; i++)
        if (probe->workers[i]->rank == first->rank) {
            f->items[0].worker = probe->workers[i];
            f->items[0].owner.pid = probe->workers[i]->pid;
            if (!f->items[0].count)
                failed_rank_take_lines(&f->items[0], probe->workers[i]->stderr_tail,
                                       probe->workers[i]->n_stderr_tail);
        }
    failed_ranks_add_others(f, probe);
    qsort(f->items + 1, f->count - 1, sizeof(*f->items), compare_failed_ranks);
}

void failed_ranks_release(struct failed_ranks *f)
{
    free(f->items);
    *f = (struct failed_ranks){0};
}

bool failed_ranks_are_one(const struct failed_ranks *f, int rank)
{
    for (size_t i = 0; i < f->count; i++)
        if (f->items[i].owner.rank == rank)
            return f->items[i].group == 0;
    return false;
}

/* Whether the lines of the group must be printed. Sets *ranks to its ranks in ascending order, and *lines to one of them. */
static bool failed_group_find(const struct failed_ranks *f, size_t group, bool (*seen)(void *user, int rank),
                              void *user, int *ranks, size_t *count, const struct failed_rank **lines)
{
    bool shown = false;
    *count = 0;
    *lines = NULL;
    for (size_t i = 0; i < f->count; i++) {
        const struct failed_rank *r = &f->items[i];
        if (r->group != group)
            continue;
        *lines = *lines ? *lines : r;
        shown = shown || (seen && seen(user, (int)r->owner.rank));
        ranks[(*count)++] = (int)r->owner.rank;
    }
    qsort(ranks, *count, sizeof(*ranks), compare_ints);
    return !shown && *lines && (*lines)->count;
}

static bool line_says_any(const char *line, const char *const *texts)
{
    for (; *texts; texts++)
        if (strcasestr(line, *texts))
            return true;
    return false;
}

/* The messages of PyTorch (several versions), and of llm.c's train_gpt2.py. */
static bool line_says_no_gpu_for_nccl(const char *line)
{
    static const char *const texts[] = {"no GPUs found", "have NCCL built in",
                                        "requires at least one CUDA device", "we need CUDA for DDP", NULL};
    return line_says_any(line, texts);
}

const char *failed_ranks_advice(const struct failed_ranks *f)
{
    for (size_t i = 0; f->count && i < f->items[0].count; i++)
        if (line_says_no_gpu_for_nccl(f->items[0].lines[i]))
            return f->alone
                       ? "the program uses NCCL, but finds no GPU. Some programs do so if RANK is set, as torchrun "
                         "and ddp set it. To train in one process without a GPU: env -u RANK python3 train.py"
                       : "the program uses NCCL, but finds no GPU. On CPUs, PyTorch needs the backend gloo";
    return NULL;
}

bool failed_ranks_print(const struct failed_ranks *f, const char *label, bool (*seen)(void *user, int rank),
                        void *user, struct buf *out)
{
    int *ranks = xcalloc(f->count + 1, sizeof(*ranks));
    size_t count, printed = 0, left = 0;
    bool first = false;
    const struct failed_rank *lines;
    for (size_t group = f->group_from; group < f->group_count; group++) {
        if (!failed_group_find(f, group, seen, user, ranks, &count, &lines))
            continue;
        if (printed++ >= GROUPS_MOST) {
            left += count;
            continue;
        }
        first = first || !group;
        if (count > 1 || group || !f->first_is_told) {
            buf_printf(out, "%sstderr of ", label);
            rank_list_put(out, ranks, count);
            buf_puts(out, ":\n");
        }
        for (size_t i = 0; i < lines->count; i++) {
            buf_puts(out, "  | ");
            term_puts_safe(out, lines->lines[i]);
            buf_putc(out, '\n');
        }
    }
    if (left)
        buf_printf(out, "%sthe last lines of %zu more rank%s differ from these\n", label, left,
                   left == 1 ? "" : "s");
    const char *advice = f->advice_is_told || f->group_from ? NULL : failed_ranks_advice(f);
    if (advice)
        buf_printf(out, "%s%s\n", label, advice);
    free(ranks);
    return first;
}
