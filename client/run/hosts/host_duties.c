#include "client/run/hosts/host_duties.h"
#include "client/text/term.h"

#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "client/cmd/output.h"

#define QUEUE_MS 60000 /* nobody else uses these nodes, so a job that has not started by then never will */

/* Cancels the job for all hosts, with an exit code that says that ddp failed. */
static enum err_code host_duties_give_up(struct host_duties *d, char *why, struct err *e)
{
    Ddp__V1__CancelJobRequest request = DDP__V1__CANCEL_JOB_REQUEST__INIT;
    CLEANUP(rpc_release) void *reply = NULL;
    d->gave_up = true;
    request.job = d->session->job;
    request.why = why;
    request.exit_code = EXIT_DDP;
    return link_call(&d->session->link, "CancelJob", &request, &reply, 0, e);
}

/* A job that has lost nodes waits for others for the join timeout, as at the start. */
static enum err_code host_duties_check_nodes(struct host_duties *d, int64_t now, struct err *e)
{
    const struct run_request *r = d->session->request;
    const char *state = d->session->state;
    CLEANUP(buf_release) struct buf line = {0};
    bool waits = strcmp(state, "queued") == 0 || strcmp(state, "recovering") == 0;
    /* A job that runs on fewer nodes than it asked for is the coordinator's business: it may be elastic. */
    if (!waits || (int64_t)d->member->status->n_nodes >= r->nodes_min) {
        d->short_ms = 0;
        return ERR_OK;
    }
    if (!d->short_ms) {
        d->short_ms = now;
        buf_printf(&line,
                   "ddpctl: only %zu of %lld nodes are still here, waiting up to %lld s for another at %s\n",
                   d->member->status->n_nodes, (long long)r->nodes_min, (long long)r->join_timeout_ms / 1000,
                   d->address);
        stderr_put(&line);
    }
    if (d->gave_up || now - d->short_ms < r->join_timeout_ms)
        return ERR_OK;
    buf_clear(&line);
    buf_printf(&line, "only %zu of %lld nodes are still here (", d->member->status->n_nodes,
               (long long)r->nodes_min);
    run_membership_list(d->member, &line);
    buf_printf(&line, "), no other joined within %lld s", (long long)r->join_timeout_ms / 1000);
    return host_duties_give_up(d, line.data, e);
}

/* There are enough nodes. The coordinator decides whether the job can start on them, and its reason is
 * printed. */
static enum err_code host_duties_check_placed(struct host_duties *d, int64_t now, struct err *e)
{
    struct run_session *s = d->session;
    CLEANUP(buf_release) struct buf line = {0};
    if (d->short_ms || d->gave_up) {
        s->waiting = (struct waiting){0};
        return ERR_OK;
    }
    if (waiting_turn(&s->waiting, s->state, s->reason, now) && !s->quiet) {
        term_printf_safe(&line, "ddpctl: %s", s->reason);
        buf_putc(&line, '\n');
        stderr_put(&line);
    }
    if (s->generation || !s->waiting.since_ms || now - s->waiting.since_ms < QUEUE_MS)
        return ERR_OK;
    buf_printf(&line, "the job cannot start on these nodes: %s", s->reason);
    return host_duties_give_up(d, line.data, e);
}

enum err_code host_duties_turn(struct host_duties *d, struct err *e)
{
    int64_t now = clock_boot_ms();
    return host_duties_check_nodes(d, now, e) == ERR_OK ? host_duties_check_placed(d, now, e) : e->code;
}
