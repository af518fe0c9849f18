#include "client/diagnose/link_wait.h"

#include <math.h>
#include <string.h>

#include "base/job/job_sync.h"
#include "base/mem.h"
#include "client/job_status.h"

#define SHARE_LEAST 0.2 /* of a step: below, the link is not worth a sentence */
#define SPEEDUP_LEAST 1.2

/* Number of nodes that the workers are on. */
static int nodes_of(const Ddp__V1__ProbeJobReply *reply)
{
    int nodes = 0;
    for (size_t i = 0; i < reply->n_workers; i++) {
        bool seen = false;
        for (size_t k = 0; k < i; k++)
            seen |= strcmp(reply->workers[k]->node, reply->workers[i]->node) == 0;
        nodes += !seen;
    }
    return nodes;
}

/* Fills in share, step_ms and the time of the all-reduce. */
static bool waits_read(const Ddp__V1__ProbeJobReply *reply, struct link_wait *out)
{
    double exposed;
    out->share = 1;
    out->facts.allreduce_ms = INFINITY;
    for (size_t i = 0; i < reply->n_workers; i++) {
        const Ddp__V1__WorkerProbe *w = reply->workers[i];
        if (w->ended || !(w->ms_per_step > 0)) /* nothing reported yet */
            return false;
        out->share = fmin(out->share, w->wait_ms / w->ms_per_step);
        out->step_ms = fmax(out->step_ms, w->ms_per_step);
        out->facts.allreduce_ms = fmin(out->facts.allreduce_ms, w->wait_ms);
    }
    /* Waiting that backward hides costs no time. */
    if (job_status_metric(reply->job, "exposed", &exposed))
        out->share = fmin(out->share, exposed);
    return reply->n_workers > 1 && out->share >= SHARE_LEAST;
}

bool link_wait_find(const Ddp__V1__ProbeJobReply *reply, struct link_wait *out)
{
    CLEANUP(job_release) struct job_spec spec = {0};
    const char *text = reply->job->job_file;
    struct err e;
    *out = (struct link_wait){.facts = {.world_size = (int)reply->n_workers, .nodes = nodes_of(reply)}};
    if (out->facts.nodes < 2 || !waits_read(reply, out) ||
        !job_status_metric(reply->job, "gradient_bytes", &out->facts.bytes))
        return false;
    if (job_parse(&spec, text, strlen(text), "job file", &e) || spec.kind != JOB_TRAIN ||
        spec.train.sync.type != SYNC_ALLREDUCE)
        return false;
    out->facts.compute_ms = out->step_ms * (1 - out->share);
    out->facts.steps = reply->job->progress->steps;
    out->report_ms = llround((double)spec.train.log_every * out->step_ms);
    sync_choose(&out->facts, &out->better);
    out->speedup = out->step_ms / (out->facts.compute_ms + sync_cost_ms(&out->facts, &out->better));
    out->allowed = job_sync_is_allowed(&spec.train, out->better.type);
    return out->better.type == SYNC_DILOCO && out->speedup >= SPEEDUP_LEAST;
}

void link_wait_print(const struct link_wait *w, struct buf *out)
{
    buf_printf(out, "%.0f %% of each step waits for the link (", w->share * 100);
    sync_print_link(out, &w->facts);
    buf_putc(out, ')');
    if (!w->allowed)
        return;
    buf_puts(out, ": sync ");
    sync_print(out, &w->better);
    buf_printf(out, " would run %.*f times as fast", w->speedup < 10 ? 1 : 0, w->speedup);
}
