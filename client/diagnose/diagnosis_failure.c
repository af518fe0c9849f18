#include "client/diagnose/diagnosis_failure.h"

#include <signal.h>
#include <string.h>

#include "base/exits.h"
#include "base/mem.h"
#include "base/text.h"
#include "client/diagnose/worker_probe.h"
#include "client/text/term.h"

/* Why a generation ended: the rank that failed first, its last lines on stderr, and the failures that
 * followed. */

#define TAIL_LINES 5

static void failure_put_exit(struct buf *out, const Ddp__V1__WorkerProbe *w)
{
    const char *name = w->signal ? sigabbrev_np(w->signal) : NULL;
    if (w->lost)
        buf_puts(out, "was lost, its exit status is unknown");
    else if (w->out_of_memory)
        buf_puts(out, "ran out of memory, the kernel killed it");
    else if (w->signal)
        buf_printf(out, "was killed by signal %d%s%s%s", w->signal, name ? " (SIG" : "", name ? name : "",
                   name ? ")" : "");
    else
        buf_printf(out, "exited with code %d", w->code);
}

static void failure_put_stderr(struct diagnosis *d, const Ddp__V1__WorkerProbe *w)
{
    size_t first = w->n_stderr_tail > TAIL_LINES ? w->n_stderr_tail - TAIL_LINES : 0;
    for (size_t i = first; i < w->n_stderr_tail; i++) {
        buf_puts(&d->details, "  | ");
        term_puts_safe(&d->details, w->stderr_tail[i]);
        buf_putc(&d->details, '\n');
    }
}

static bool worker_succeeded(const Ddp__V1__WorkerProbe *w)
{
    return w->ended && w->exit_known && !w->code && !w->signal;
}

/* A rank that exited with code 0 before the first failure. The failure may come from its absence, so it is
 * named too. */
static const Ddp__V1__WorkerProbe *failure_left_before(const Ddp__V1__ProbeJobReply *reply,
                                                       const Ddp__V1__WorkerProbe *failed)
{
    for (size_t i = 0; i < reply->n_workers; i++)
        if (worker_succeeded(reply->workers[i]) && reply->workers[i]->ended_ms &&
            reply->workers[i]->ended_ms < failed->ended_ms)
            return reply->workers[i];
    return NULL;
}

/* The ranks that failed after the first. They are shown apart, as its consequences. */
static void failure_put_consequences(const Ddp__V1__ProbeJobReply *reply, const Ddp__V1__WorkerProbe *first,
                                     struct diagnosis *d)
{
    for (size_t i = 0; i < reply->n_workers; i++) {
        const Ddp__V1__WorkerProbe *w = reply->workers[i];
        if (w == first || !w->ended || !w->exit_known || worker_succeeded(w))
            continue;
        buf_puts(&d->details, "after it: ");
        worker_probe_name(&d->details, w);
        buf_putc(&d->details, ' ');
        failure_put_exit(&d->details, w);
        if (w->ended_ms > first->ended_ms && first->ended_ms)
            buf_printf(&d->details, ", %s later", text_duration(w->ended_ms - first->ended_ms).text);
        /* a trainer exits with its own code when a peer disappears; ddp stops commands by these signals */
        if (!w->signal && w->code == EXIT_PEER_LOST)
            buf_puts(&d->details, " (its peer was lost)");
        else if (w->signal == SIGTERM || w->signal == SIGKILL)
            buf_puts(&d->details, " (stopped by ddp)");
        buf_putc(&d->details, '\n');
    }
}

static void failure_put_memory_advice(struct diagnosis *d, const Ddp__V1__WorkerProbe *w)
{
    if (w->out_of_memory)
        buf_printf(&d->next,
                   "use less memory (a smaller batch, fewer processes on %s), or add memory to %s\n", w->node,
                   w->node);
}

static void failure_put_advice(const Ddp__V1__ProbeJobReply *reply, const Ddp__V1__WorkerProbe *w,
                               struct diagnosis *d)
{
    long long id = reply->job->job;
    failure_put_memory_advice(d, w);
    buf_printf(&d->next, "ddpctl logs %lld --rank %d\n", id, w->rank);
    if (strcmp(reply->job->state, "failed") == 0 && reply->job->snapshot &&
        reply->job->snapshot->committed_ms)
        buf_printf(&d->next, "ddpctl resume %lld\n", id);
}

static const Ddp__V1__WorkerProbe *failure_first_worker(const Ddp__V1__ProbeJobReply *reply)
{
    const Ddp__V1__Failure *f = reply->job->failure;
    /* The workers in the reply are those of its generation; the failure may be that of an older one. */
    if (!f || f->generation != reply->generation)
        return NULL;
    for (size_t i = 0; i < reply->n_workers; i++)
        if (reply->workers[i]->rank == f->rank)
            return reply->workers[i];
    return NULL;
}

void diagnosis_failure(const Ddp__V1__ProbeJobReply *reply, struct diagnosis *d)
{
    const Ddp__V1__JobStatus *job = reply->job;
    const Ddp__V1__WorkerProbe *w = failure_first_worker(reply), *left;
    d->kind = strcmp(job->state, "failed") == 0 ? DIAGNOSIS_FAILED : DIAGNOSIS_RESTARTING;
    bool waits = d->kind == DIAGNOSIS_RESTARTING && !w && strncmp(job->reason, "waits ", 6) == 0;
    if (d->kind == DIAGNOSIS_RESTARTING)
        buf_puts(&d->sentence, waits                 ? "it "
                               : *job->not_restarted ? "the job is ending: "
                                                     : "it is restarting: ");
    if (!w) { /* no rank failed: a node was lost, or the time limit is over */
        term_puts_safe(&d->sentence, job->reason);
        buf_printf(&d->next, "ddpctl events %lld\n", (long long)job->job);
        return;
    }
    d->rank = w;
    d->pid = w->pid;
    left = failure_left_before(reply, w);
    if (*w->message && (!w->ended || w->signal) && strncmp(w->message, "rank ", 5) == 0) {
        term_puts_safe(&d->sentence,
                       w->message); /* the rank was ended because it hung: the message says so */
    } else {
        worker_probe_name(&d->sentence, w);
        buf_putc(&d->sentence, ' ');
        failure_put_exit(&d->sentence, w);
        if (*w->message) {
            buf_puts(&d->sentence, ": ");
            term_puts_safe(&d->sentence, w->message);
        }
    }
    if (left) {
        buf_puts(&d->sentence, ", after ");
        worker_probe_name(&d->sentence, left);
        buf_printf(&d->sentence, " had exited with code 0, %s earlier",
                   text_duration(w->ended_ms - left->ended_ms).text);
    }
    failure_put_stderr(d, w);
    failure_put_consequences(reply, w, d);
    if (*job->not_restarted) {
        term_puts_safe(&d->details, job->not_restarted);
        buf_putc(&d->details, '\n');
    }
    failure_put_advice(reply, w, d);
}
