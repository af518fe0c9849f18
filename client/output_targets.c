#include "client/output_targets.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "client/cmd/output.h"
#include "client/diagnose/failed_ranks.h"
#include "client/interrupts.h"
#include "client/text/term.h"

#define ROWS 24 /* of a terminal that does not tell */

static const int target_fds[] = {STDOUT_FILENO, STDERR_FILENO};

/* True if two descriptors are the same terminal, pipe or file, as after 2>&1. */
static bool output_targets_are_same(void)
{
    struct stat out, err;
    return fstat(STDOUT_FILENO, &out) == 0 && fstat(STDERR_FILENO, &err) == 0 && out.st_dev == err.st_dev &&
           out.st_ino == err.st_ino;
}

static bool output_fd_is_pipe(int fd)
{
    struct stat st;
    return fstat(fd, &st) == 0 && S_ISFIFO(st.st_mode);
}

/* What comes out of a pipe may appear on the same terminal (`ddprun ... | tee log`) and move its lines up. Then
 * only one unfinished line is drawn: it can be erased without moving the cursor to other lines. */
static void output_target_measure(struct output_target *t, size_t i)
{
    const struct term term = term_of(target_fds[i]);
    t->columns = term.columns;
    t->lines = output_fd_is_pipe(target_fds[!i]) ? 1 : (term.rows ? term.rows : ROWS) / 2;
}

void output_targets_set(struct output_merge *m, const struct output_targets_options *o)
{
    m->shared = output_targets_are_same();
    output_merge_own(m, o->own ? o->own_rank : -1);
    for (size_t i = 0; i < ARRAY_LEN(m->targets); i++) {
        struct output_target *t = &m->targets[i];
        const struct term term = term_of(target_fds[i]);
        const bool terminal = o->terminal ? atoi(o->terminal) & (1 << i) : isatty(target_fds[i]);
        t->raw = !o->several;
        t->wanted = o->several && terminal;
        t->colour = term.colour;
        t->filtered = terminal && !o->raw && (o->several || !o->own);
        /* With --terminal, the ddpctl of other hosts write to the same terminal; with --attach, one of the ranks. */
        t->live = t->filtered && o->several && term.live && !o->terminal && !o->own;
    }
}

bool output_targets_put(struct output_merge *m)
{
    if (interrupts_was_continued())
        output_merge_moved(m);
    for (size_t i = 0; i < ARRAY_LEN(m->targets); i++)
        if (m->targets[i].live)
            output_target_measure(&m->targets[i], i);
    output_merge_draw(m, clock_boot_ms());
    bool written = stderr_put(&m->targets[1].text);
    return stdout_put(&m->targets[0].text) && written;
}

bool output_targets_show(void *merge, int rank)
{
    const struct output_merge *m = merge;
    const struct term term = term_of(STDERR_FILENO);
    const int64_t rows = (int64_t)(term.rows ? term.rows : ROWS) - FAILED_LINES - 2;
    int64_t since = output_merge_lines_since(m, rank, true);
    if (since < 0 && m->own == rank + 1) /* a rank that has the terminal writes its stderr there, too */
        since = output_merge_lines_since(m, rank, false);
    return since >= 0 && since < rows;
}
