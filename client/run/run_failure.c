#include "client/run/run_failure.h"

#include "client/run/run_error.h"
#include "client/screen/screen_parts.h"

#define LAST_WORDS 5
#define PEERS_NAMED 8

/* Repeats the failed rank's last lines, because its peers' output has scrolled them away. */
static void run_failure_print_stderr(const Ddp__V1__Failure *f, struct buf *out)
{
    buf_puts(out, "ddpctl: first to fail: ");
    screen_failure_line(f, out);
    buf_putc(out, '\n');
    for (size_t i = f->n_stderr_tail > LAST_WORDS ? f->n_stderr_tail - LAST_WORDS : 0; i < f->n_stderr_tail;
         i++) {
        buf_puts(out, "  | ");
        term_puts_safe(out, f->stderr_tail[i]);
        buf_putc(out, '\n');
    }
}

/* "ddpctl: then stopped as a consequence: rank 0 exited with code 9, rank 2 killed by signal 15, and 3 more" */
static void run_failure_print_peers(const Ddp__V1__JobStatus *job, struct buf *out)
{
    size_t named = 0, more = 0;
    for (size_t i = 0; i < job->n_ranks; i++) {
        const Ddp__V1__RankStatus *r = job->ranks[i];
        if (r->rank == job->failure->rank || !*r->detail)
            continue;
        if (named == PEERS_NAMED) {
            more++;
            continue;
        }
        buf_printf(out, "%s rank %d ", named ? "," : "ddpctl: then stopped as a consequence:", r->rank);
        term_puts_safe(out, r->detail);
        named++;
    }
    if (more)
        buf_printf(out, ", and %zu more", more);
    if (named)
        buf_putc(out, '\n');
}

void run_failure_print(const Ddp__V1__JobStatus *job, bool last_words, const struct run_error *first,
                       struct buf *out)
{
    const Ddp__V1__Failure *f = job->failure;
    /* The ranks are those of the newest generation; an older failure says nothing about them. */
    if (!f || !*f->node || f->generation != job->generation)
        return;
    if (last_words)
        run_failure_print_stderr(f, out);
    if (first->rank >= 0 && first->rank != f->rank) {
        buf_printf(out, "ddpctl: the first error was rank %d's: ", first->rank);
        term_puts_safe(out, first->message);
        buf_putc(out, '\n');
    }
    run_failure_print_peers(job, out);
}
