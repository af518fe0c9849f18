#include "client/screen/screen_parts.h"

#include <math.h>
#include <signal.h>
#include <string.h>

#include "base/mem.h"
#include "client/diagnose/failed_ranks.h"
#include "client/job_status.h"
#include "client/text/format.h"

void screen_speed(const Ddp__V1__JobStatus *job, struct buf *out)
{
    double value;
    if (job_status_metric(job, "tokens_per_s", &value))
        buf_printf(out, "%s tok/s", text_short(value).text);
    else if (job_status_metric(job, "samples_per_s", &value))
        buf_printf(out, "%s samples/s", text_short(value).text);
    else if (job->progress && job->progress->steps_per_s > 0)
        buf_printf(out, "%s steps/s", text_short(job->progress->steps_per_s).text);
}

bool screen_node_is_usable(const Ddp__V1__NodeStatus *node)
{
    return strcmp(node->state, "alive") == 0 || strcmp(node->state, "suspect") == 0;
}

void screen_validation(const Ddp__V1__JobStatus *job, struct buf *out)
{
    double value;
    if (job_status_metric(job, "val_acc", &value))
        buf_printf(out, "%.1f %%", value * 100);
    else if (job_status_metric(job, "val_loss", &value))
        buf_puts(out, fmt_metric(value).text);
}

void screen_reason(const Ddp__V1__JobStatus *job, struct buf *out)
{
    if (!*job->reason)
        return;
    buf_puts(out, ": ");
    term_puts_safe(out, job->reason);
}

static int job_ranks_on_node(const Ddp__V1__JobStatus *job, const char *node)
{
    int count = 0;
    for (size_t i = 0; i < job->n_ranks; i++)
        count += strcmp(job->ranks[i]->node, node) == 0;
    return count;
}

void screen_place(const Ddp__V1__JobStatus *job, struct buf *out)
{
    for (size_t i = 0; i < job->n_nodes; i++) {
        term_printf_safe(out, "%s%s", i ? ", " : "", job->nodes[i]);
        if (job->n_ranks)
            buf_printf(out, " (%d)", job_ranks_on_node(job, job->nodes[i]));
    }
}

bool screen_could_not_start(const Ddp__V1__JobStatus *job)
{
    return strstr(job->reason, " could not start on ") != NULL;
}

bool screen_reason_is_failure(const Ddp__V1__JobStatus *job)
{
    CLEANUP(free_text) char *rank = job->failure ? xasprintf("rank %d ", job->failure->rank) : NULL;
    return strcmp(job->state, "failed") == 0 && rank && *job->failure->node &&
           strncmp(job->reason, rank, strlen(rank)) == 0 && !screen_could_not_start(job);
}

/* The lines of stderr are on the same screen, and their last one often is the message of the error file. */
static bool failure_message_is_last_line(const Ddp__V1__Failure *f)
{
    return f->n_stderr_tail && strcmp(f->stderr_tail[f->n_stderr_tail - 1], f->message) == 0;
}

void screen_failure_line(const Ddp__V1__Failure *f, bool whole, struct buf *out)
{
    if (!*f->node) { /* no rank failed: the message is from ddp itself */
        term_puts_safe(out, f->message);
        return;
    }
    /* The rank was ended because it hung. The message is a whole sentence, and how it was ended does not
     * matter. */
    if ((f->signal || !f->code) && strncmp(f->message, "rank ", 5) == 0) {
        term_puts_safe(out, f->message);
        return;
    }
    term_printf_safe(out, "rank %d on %s ", f->rank, f->node);
    if (f->signal)
        buf_printf(out, "killed by signal %d (SIG%s)", f->signal,
                   sigabbrev_np(f->signal) ? sigabbrev_np(f->signal) : "?");
    else
        buf_printf(out, "exited with code %d", f->code);
    if (f->out_of_memory)
        buf_puts(out, ", out of memory");
    if (*f->message && (whole || !failure_message_is_last_line(f))) {
        buf_puts(out, ": ");
        term_puts_safe(out, f->message);
    }
}

void screen_failure(const Ddp__V1__JobStatus *job, const Ddp__V1__ProbeJobReply *probe,
                    const struct term *term, struct buf *out)
{
    CLEANUP(failed_ranks_release) struct failed_ranks ranks = {0};
    CLEANUP(buf_release) struct buf line = {0};
    const size_t start = out->len;
    if (!job->failure)
        return;
    screen_failure_line(job->failure, false, &line);
    term_puts(term, out, STYLE_BAD, line.data ? line.data : "");
    buf_putc(out, '\n');
    term_wrap(term, out, start, 2);
    failed_ranks_find(&ranks, job, probe);
    ranks.first_is_told = true;
    failed_ranks_print(&ranks, "", NULL, NULL, out);
}

void screen_presence(const Ddp__V1__JobStatus *job, struct buf *out)
{
    if (job->ranks_present >= job->ranks_wanted)
        return;
    buf_printf(out, "%d of %d ranks", job->ranks_present, job->ranks_wanted);
    if (*job->missing)
        buf_puts(out, ": ");
    term_puts_safe(out, job->missing);
}

void screen_not_restarted(const Ddp__V1__JobStatus *job, const char *label, struct buf *out)
{
    if (!*job->not_restarted)
        return;
    buf_puts(out, label);
    term_puts_safe(out, job->not_restarted);
    buf_putc(out, '\n');
}

void screen_next(const Ddp__V1__JobStatus *job, struct buf *out)
{
    long long id = job->job;
    if (screen_could_not_start(job))
        buf_printf(out, "   ddpctl events %lld\n", id);
    else if (job->failure && *job->failure->node)
        buf_printf(out, "   ddpctl logs %lld --rank %d%s\n", id, job->failure->rank,
                   job->failure->n_stderr_tail ? " --stderr" : "");
    else if (job->generation)
        buf_printf(out, "   ddpctl logs %lld\n", id);
    else
        buf_printf(out, "   ddpctl events %lld\n", id);
    if (job->snapshot && job->snapshot->committed_ms)
        buf_printf(out, "   ddpctl resume %lld\n", id);
}
