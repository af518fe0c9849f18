#include "client/run/run_failure.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "client/diagnose/failed_ranks.h"
#include "client/text/rank_list.h"
#include "client/text/term.h"

#define ENDS_NAMED 8 /* printed at most: different ways in which peers have ended */

/* Collects rank `i` and the later ranks that ended like it. */
static size_t run_failure_find_alike(const Ddp__V1__JobStatus *job, size_t i, bool *told, int *ranks)
{
    size_t count = 0;
    for (size_t k = i; k < job->n_ranks; k++) {
        if (told[k] || strcmp(job->ranks[k]->detail, job->ranks[i]->detail) != 0)
            continue;
        told[k] = true;
        ranks[count++] = job->ranks[k]->rank;
    }
    return count;
}

/* "ddpctl: ended after rank 1 had failed: ranks 0, 3-7 killed by signal 15, rank 2 exited with code 1". earlier: one of
 * them wrote an error before that. */
static void run_failure_put_peers(const Ddp__V1__JobStatus *job, bool *told, bool earlier, struct buf *out)
{
    int *ranks = xcalloc(job->n_ranks + 1, sizeof(*ranks));
    size_t named = 0, more = 0;
    for (size_t i = 0; i < job->n_ranks; i++) {
        if (told[i])
            continue;
        const size_t count = run_failure_find_alike(job, i, told, ranks);
        if (named == ENDS_NAMED) {
            more += count;
            continue;
        }
        if (named++)
            buf_puts(out, ", ");
        else if (earlier)
            buf_puts(out, "ddpctl: other ranks that ended: ");
        else
            buf_printf(out, "ddpctl: ended after rank %d had failed: ", job->failure->rank);
        rank_list_put(out, ranks, count);
        buf_putc(out, ' ');
        term_puts_safe(out, job->ranks[i]->detail);
    }
    if (more)
        buf_printf(out, ", and %zu more", more);
    if (named)
        buf_putc(out, '\n');
    free(ranks);
}

/* Ranks that wrote the same as the first one did not fail as a consequence. listed: they have been named already. */
static void run_failure_put_ends(const Ddp__V1__JobStatus *job, const struct failed_ranks *failed,
                                 bool listed, bool earlier, struct buf *out)
{
    bool *told = xcalloc(job->n_ranks + 1, sizeof(*told));
    int *same = xcalloc(job->n_ranks + 1, sizeof(*same));
    size_t count = 0;
    for (size_t i = 0; i < job->n_ranks; i++) {
        const Ddp__V1__RankStatus *r = job->ranks[i];
        const bool first = r->rank == job->failure->rank;
        told[i] = first || !*r->detail || failed_ranks_are_one(failed, r->rank);
        if (told[i] && !first && *r->detail)
            same[count++] = r->rank;
    }
    if (count && !listed) {
        buf_puts(out, "ddpctl: ");
        rank_list_put(out, same, count);
        buf_puts(out, " failed in the same way\n");
    }
    run_failure_put_peers(job, told, earlier, out);
    free(same);
    free(told);
}

void run_failure_print(const struct run_failure *failure, struct buf *out)
{
    const Ddp__V1__JobStatus *job = failure->job;
    const Ddp__V1__Failure *f = job->failure;
    CLEANUP(failed_ranks_release) struct failed_ranks failed = {0};
    /* The ranks are those of the newest generation; an older failure says nothing about them. */
    if (!f || !*f->node || f->generation != job->generation)
        return;
    failed_ranks_find(&failed, job, failure->probe);
    failed.first_is_told = true;
    const bool listed = failed_ranks_print(&failed, "ddpctl: ", failure->seen, failure->user, out);
    const bool earlier = failure->first->rank >= 0 && failure->first->rank != f->rank &&
                         !failed_ranks_are_one(&failed, failure->first->rank);
    if (earlier) {
        buf_printf(out, "ddpctl: the first error was rank %d's: ", failure->first->rank);
        term_puts_safe(out, failure->first->message);
        buf_putc(out, '\n');
    }
    run_failure_put_ends(job, &failed, listed, earlier, out);
}
