#include "client/diagnose/diagnosis_failure.h"

#include <signal.h>
#include <string.h>

#include "base/exits.h"
#include "base/mem.h"
#include "client/diagnose/worker_probe.h"
#include "client/screen/format.h"
#include "client/screen/screen.h"

/* Why a generation ended: the member that failed first, what it said last, and what the others made of it. */

#define TAIL_LINES 5

static void end_words(struct buf *out, const Ddp__V1__WorkerProbe *w)
{
    const char *name = w->signal ? sigabbrev_np(w->signal) : NULL;
    if (w->lost)
        buf_puts(out, "was lost, nobody saw its end");
    else if (w->out_of_memory)
        buf_puts(out, "ran out of memory, the kernel killed it");
    else if (w->signal)
        buf_printf(out, "was killed by signal %d%s%s%s", w->signal, name ? " (SIG" : "", name ? name : "",
                   name ? ")" : "");
    else
        buf_printf(out, "exited with code %d", w->code);
}

static void put_tail(struct diagnosis *v, const Ddp__V1__WorkerProbe *w)
{
    size_t first = w->n_stderr_tail > TAIL_LINES ? w->n_stderr_tail - TAIL_LINES : 0;
    for (size_t i = first; i < w->n_stderr_tail; i++) {
        buf_puts(&v->details, "  | ");
        term_puts_safe(&v->details, w->stderr_tail[i]);
        buf_putc(&v->details, '\n');
    }
}

static bool ended_well(const Ddp__V1__WorkerProbe *w)
{
    return w->ended && w->exit_known && !w->code && !w->signal;
}

/* Ended with 0 before the first failure: what its peers ran into may be its absence. */
static const Ddp__V1__WorkerProbe *left_before(const Ddp__V1__ProbeJobReply *reply,
                                               const Ddp__V1__WorkerProbe *failed)
{
    for (size_t i = 0; i < reply->n_workers; i++)
        if (ended_well(reply->workers[i]) && reply->workers[i]->ended_ms &&
            reply->workers[i]->ended_ms < failed->ended_ms)
            return reply->workers[i];
    return NULL;
}

/* Each member that failed after the first: a consequence, unless it says otherwise. */
static void put_consequences(const Ddp__V1__ProbeJobReply *reply, const Ddp__V1__WorkerProbe *first,
                             struct diagnosis *v)
{
    for (size_t i = 0; i < reply->n_workers; i++) {
        const Ddp__V1__WorkerProbe *w = reply->workers[i];
        if (w == first || !w->ended || !w->exit_known || ended_well(w))
            continue;
        buf_puts(&v->details, "after it: ");
        worker_probe_name(&v->details, w);
        buf_putc(&v->details, ' ');
        end_words(&v->details, w);
        if (w->ended_ms > first->ended_ms && first->ended_ms)
            buf_printf(&v->details, ", %s later", fmt_duration(w->ended_ms - first->ended_ms).text);
        if (!w->signal && w->code == EXIT_PEER_LOST)
            buf_puts(&v->details, " (its peer was lost)");
        else if (w->signal == SIGTERM || w->signal == SIGKILL)
            buf_puts(&v->details, " (stopped by ddp)");
        buf_putc(&v->details, '\n');
    }
}

static void put_oom_advice(struct diagnosis *v, const Ddp__V1__WorkerProbe *w)
{
    if (w->out_of_memory)
        buf_printf(&v->next,
                   "give it less to hold (a smaller batch, fewer processes on %s), or %s more memory\n",
                   w->node, w->node);
}

static void put_next(const Ddp__V1__ProbeJobReply *reply, const Ddp__V1__WorkerProbe *w, struct diagnosis *v)
{
    long long id = reply->job->job;
    put_oom_advice(v, w);
    buf_printf(&v->next, "ddpctl logs %lld --rank %d --both\n", id, w->rank);
    if (strcmp(reply->job->state, "failed") == 0 && reply->job->snapshot &&
        reply->job->snapshot->committed_ms)
        buf_printf(&v->next, "ddpctl resume %lld\n", id);
}

static const Ddp__V1__WorkerProbe *first_failure(const Ddp__V1__ProbeJobReply *reply)
{
    const Ddp__V1__Failure *f = reply->job->failure;
    if (!f || f->generation != reply->generation)
        return NULL;
    for (size_t i = 0; i < reply->n_workers; i++)
        if (reply->workers[i]->rank == f->rank)
            return reply->workers[i];
    return NULL;
}

void diagnosis_failure(const Ddp__V1__ProbeJobReply *reply, struct diagnosis *v)
{
    const Ddp__V1__JobStatus *job = reply->job;
    const Ddp__V1__WorkerProbe *w = first_failure(reply), *left;
    v->kind = strcmp(job->state, "failed") == 0 ? DIAGNOSIS_FAILED : DIAGNOSIS_RESTARTING;
    bool waits = v->kind == DIAGNOSIS_RESTARTING && !w && strncmp(job->reason, "waits ", 6) == 0;
    if (v->kind == DIAGNOSIS_RESTARTING)
        buf_puts(&v->sentence, waits ? "it " : "it is restarting: ");
    if (!w) { /* no rank failed: a node was lost, a time limit has passed */
        term_puts_safe(&v->sentence, job->reason);
        buf_printf(&v->next, "ddpctl events %lld\n", (long long)job->job);
        return;
    }
    v->rank = w;
    v->pid = w->pid;
    left = left_before(reply, w);
    if (*w->message && (!w->ended || w->signal) && strncmp(w->message, "rank ", 5) == 0) {
        term_puts_safe(&v->sentence, w->message); /* it was ended because it stood still: this says so */
    } else {
        worker_probe_name(&v->sentence, w);
        buf_putc(&v->sentence, ' ');
        end_words(&v->sentence, w);
        if (*w->message) {
            buf_puts(&v->sentence, ": ");
            term_puts_safe(&v->sentence, w->message);
        }
    }
    if (left) {
        buf_puts(&v->sentence, ", after ");
        worker_probe_name(&v->sentence, left);
        buf_printf(&v->sentence, " had ended with code 0, %s before",
                   fmt_duration(w->ended_ms - left->ended_ms).text);
    }
    put_tail(v, w);
    put_consequences(reply, w, v);
    put_next(reply, w, v);
}
