#include "client/job_status.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/job/balance.h"
#include "base/mem.h"
#include "base/text.h"
#include "client/cmd/command.h"
#include "client/text/term.h"

bool job_status_ended(const Ddp__V1__JobStatus *job)
{
    return job_status_succeeded(job) || strcmp(job->state, "failed") == 0 ||
           strcmp(job->state, "cancelled") == 0;
}

bool job_status_succeeded(const Ddp__V1__JobStatus *job)
{
    return strcmp(job->state, "succeeded") == 0;
}

bool job_status_metric(const Ddp__V1__JobStatus *job, const char *name, double *value)
{
    const Ddp__V1__Progress *p = job->progress;
    for (size_t i = 0; p && i < p->n_metrics; i++) {
        if (strcmp(p->metrics[i]->name, name) == 0) {
            *value = p->metrics[i]->value;
            return true;
        }
    }
    return false;
}

bool job_status_put_balance(const Ddp__V1__JobStatus *job, struct buf *out)
{
    struct balance_rank *ranks;
    for (size_t i = 0; i < job->n_ranks; i++)
        if (!job->ranks[i]->samples)
            return false;
    if (job->n_ranks < 2)
        return false;
    ranks = xcalloc(job->n_ranks, sizeof(*ranks));
    for (size_t i = 0; i < job->n_ranks; i++) {
        const Ddp__V1__RankStatus *r = job->ranks[i];
        ranks[i] = (struct balance_rank){r->rank, r->node, r->samples, r->sample_ms};
    }
    balance_print(out, ranks, job->n_ranks);
    free(ranks);
    return true;
}

double job_status_fraction(const Ddp__V1__JobStatus *job)
{
    const Ddp__V1__Progress *p = job->progress;
    return p && p->steps > 0 ? fmin(1, (double)p->step / (double)p->steps) : -1;
}

int64_t job_status_eta_ms(const Ddp__V1__JobStatus *job)
{
    const Ddp__V1__Progress *p = job->progress;
    if (!p || p->steps <= p->step || !(p->steps_per_s > 0))
        return -1;
    double ms = (double)(p->steps - p->step) / p->steps_per_s * 1000;
    return ms < 1e15 ? (int64_t)ms : -1;
}

/* 1st, 2nd, 3rd, 4th, 11th, 21st */
static const char *ordinal_ending(int n)
{
    const int last = n % 100 / 10 == 1 ? 0 : n % 10;
    return last == 1 ? "st" : last == 2 ? "nd" : last == 3 ? "rd" : "th";
}

bool job_status_put_start(const Ddp__V1__JobStatus *job, int64_t now_ms, struct buf *out)
{
    const Ddp__V1__StartEstimate *s = job->start_estimate;
    if (!s)
        return false;
    buf_printf(out, "%d%s in line", s->position, ordinal_ending(s->position));
    if (s->start_ms > now_ms)
        buf_printf(out, ", starts about %s", text_clock(s->start_ms, now_ms, false).text);
    else if (s->start_ms)
        buf_puts(out, ", starts soon");
    else if (*s->why)
        buf_puts(out, ", starts");
    if (*s->why) {
        buf_puts(out, s->start_ms ? ", " : " ");
        term_puts_safe(out, s->why);
    }
    if (*s->at_once) {
        buf_puts(out, "; at once with ");
        term_puts_safe(out, s->at_once);
    }
    return true;
}

int64_t job_status_run_ms(const Ddp__V1__JobStatus *job, int64_t now_ms)
{
    int64_t from = job->started_ms ? job->started_ms : job->created_ms;
    return (job->ended_ms ? job->ended_ms : now_ms) - from;
}

int job_status_exit_code(const Ddp__V1__JobStatus *job)
{
    if (job_status_succeeded(job))
        return EXIT_DONE;
    if (strcmp(job->state, "cancelled") == 0)
        return job->exit_code ? job->exit_code : EXIT_FAILED;
    return job->exit_code ? job->exit_code : EXIT_DDP;
}
