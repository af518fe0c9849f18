#include "client/diagnose/diagnosis_failure.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/text.h"
#include "base/worker/exits.h"
#include "client/diagnose/failed_ranks.h"
#include "client/diagnose/worker_probe.h"
#include "client/text/rank_list.h"
#include "client/text/term.h"

/* Why a generation ended: the rank that failed first, its last lines on stderr, and the failures that
 * followed. */

static void failure_put_exit(struct buf *out, const Ddp__V1__WorkerProbe *w, bool several)
{
    const char *name = w->signal ? sigabbrev_np(w->signal) : NULL;
    if (w->lost)
        buf_puts(
            out,
            several
                ? "were lost with their supervisors, perhaps because a machine restarted: exit status unknown"
                : "was lost with its supervisor, perhaps because the machine restarted: exit status unknown");
    else if (w->out_of_memory)
        buf_printf(out, "ran out of memory, the kernel killed %s", several ? "them" : "it");
    else if (w->signal)
        buf_printf(out, "%s killed by signal %d%s%s%s", several ? "were" : "was", w->signal,
                   name ? " (SIG" : "", name ? name : "", name ? ")" : "");
    else
        buf_printf(out, "exited with code %d", w->code);
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

static bool workers_ended_alike(const Ddp__V1__WorkerProbe *a, const Ddp__V1__WorkerProbe *b)
{
    return a->code == b->code && a->signal == b->signal && a->lost == b->lost &&
           a->out_of_memory == b->out_of_memory;
}

/* Whether the rank failed after the first one, and the list does not have it yet. */
static bool failure_is_consequence(const Ddp__V1__WorkerProbe *w, const Ddp__V1__WorkerProbe *first,
                                   const struct failed_ranks *failed)
{
    return w != first && w->ended && w->exit_known && !worker_succeeded(w) &&
           !(failed_ranks_are_one(failed, w->rank) && workers_ended_alike(w, first));
}

/* ", 0.2 s later", ", 0.2 s to 1.1 s later" */
static void failure_put_delay(struct buf *out, const Ddp__V1__WorkerProbe *first, int64_t soonest,
                              int64_t latest)
{
    if (soonest <= first->ended_ms || !first->ended_ms)
        return;
    buf_printf(out, ", %s", text_duration(soonest - first->ended_ms).text);
    if (latest > soonest)
        buf_printf(out, " to %s", text_duration(latest - first->ended_ms).text);
    buf_puts(out, " later");
}

/* All ranks from `i` on that are consequences and ended like rank `i`, in one line. */
static void failure_put_consequence(const Ddp__V1__ProbeJobReply *reply, size_t i,
                                    const Ddp__V1__WorkerProbe *first, const struct failed_ranks *failed,
                                    bool *told, struct buf *out)
{
    const Ddp__V1__WorkerProbe *w = reply->workers[i];
    int *ranks = xcalloc(reply->n_workers, sizeof(*ranks));
    int64_t soonest = w->ended_ms, latest = w->ended_ms;
    size_t count = 0;
    for (size_t k = i; k < reply->n_workers; k++) {
        const Ddp__V1__WorkerProbe *other = reply->workers[k];
        if (told[k] || !failure_is_consequence(other, first, failed) || !workers_ended_alike(other, w))
            continue;
        told[k] = true;
        ranks[count++] = other->rank;
        soonest = other->ended_ms < soonest ? other->ended_ms : soonest;
        latest = other->ended_ms > latest ? other->ended_ms : latest;
    }
    buf_puts(out, "after it: ");
    if (count == 1)
        worker_probe_name(out, w);
    else
        rank_list_put(out, ranks, count);
    buf_putc(out, ' ');
    failure_put_exit(out, w, count > 1);
    failure_put_delay(out, first, soonest, latest);
    /* a trainer exits with its own code when a peer disappears; ddp stops commands by these signals */
    if (!w->signal && w->code == EXIT_PEER_LOST)
        buf_puts(out, count > 1 ? " (their peer was lost)" : " (its peer was lost)");
    else if (w->signal == SIGTERM || w->signal == SIGKILL)
        buf_puts(out, " (stopped by ddp)");
    buf_putc(out, '\n');
    free(ranks);
}

/* The ranks that failed after the first. They are shown apart, as its consequences. */
static void failure_put_consequences(const Ddp__V1__ProbeJobReply *reply, const Ddp__V1__WorkerProbe *first,
                                     const struct failed_ranks *failed, struct diagnosis *d)
{
    bool *told = xcalloc(reply->n_workers + 1, sizeof(*told));
    for (size_t i = 0; i < reply->n_workers; i++)
        if (!told[i] && failure_is_consequence(reply->workers[i], first, failed))
            failure_put_consequence(reply, i, first, failed, told, &d->details);
    free(told);
}

/* The last lines of the first rank, then how the others ended, then what these wrote. */
static void failure_put_details(const Ddp__V1__ProbeJobReply *reply, const Ddp__V1__WorkerProbe *first,
                                struct failed_ranks *failed, struct diagnosis *d)
{
    const size_t groups = failed->group_count;
    failed->group_count = groups > 1 ? 1 : groups;
    failed_ranks_print(failed, "", NULL, NULL, &d->details);
    failure_put_consequences(reply, first, failed, d);
    failed->group_from = 1;
    failed->group_count = groups;
    failed_ranks_print(failed, "", NULL, NULL, &d->details);
}

static void failure_put_memory_advice(struct diagnosis *d, const Ddp__V1__WorkerProbe *w)
{
    if (w->out_of_memory)
        buf_printf(&d->next,
                   "use less memory (a smaller batch, fewer processes on %s), or add memory to %s\n", w->node,
                   w->node);
}

static void failure_put_advice(const Ddp__V1__ProbeJobReply *reply, const Ddp__V1__WorkerProbe *w,
                               const char *advice, struct diagnosis *d)
{
    long long id = reply->job->job;
    failure_put_memory_advice(d, w);
    if (advice)
        buf_printf(&d->next, "%s\n", advice);
    buf_printf(&d->next, "ddpctl logs %lld --rank %d%s\n", id, w->rank, w->n_stderr_tail ? " --stderr" : "");
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
    CLEANUP(failed_ranks_release) struct failed_ranks failed = {0};
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
        failure_put_exit(&d->sentence, w, false);
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
    failed_ranks_find(&failed, job, reply);
    failed.first_is_told = failed.advice_is_told = true;
    failure_put_details(reply, w, &failed, d);
    if (*job->not_restarted) {
        term_puts_safe(&d->details, job->not_restarted);
        buf_putc(&d->details, '\n');
    }
    failure_put_advice(reply, w, failed_ranks_advice(&failed), d);
}
