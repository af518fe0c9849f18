#include "client/run/host_duties.h"
#include "client/screen/term.h"

#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "client/cmd/output.h"

#define QUEUE_MS 60000 /* all are here and it has not started: it never will, the nodes are its own */

/* For all hosts: the job has failed. */
static enum err_code give_up(struct host_duties *u, char *why, struct err *e)
{
    Ddp__V1__CancelJobRequest request = DDP__V1__CANCEL_JOB_REQUEST__INIT;
    CLEANUP(rpc_release) void *reply = NULL;
    u->gave_up = true;
    request.job = u->session->job;
    request.why = why;
    request.exit_code = EXIT_DDP;
    return link_call(&u->session->link, "CancelJob", &request, &reply, 0, e);
}

/* A job that has lost nodes waits for others as long as it did at first. */
static enum err_code check_enough(struct host_duties *u, int64_t now, struct err *e)
{
    const struct run_request *l = u->session->launch;
    const char *state = u->session->state;
    CLEANUP(buf_release) struct buf line = {0};
    bool waits = strcmp(state, "queued") == 0 || strcmp(state, "recovering") == 0;
    if (!waits || (int64_t)u->member->status->n_nodes >= l->nodes_min) {
        u->short_ms = 0;
        return ERR_OK;
    }
    if (!u->short_ms) {
        u->short_ms = now;
        buf_printf(&line, "ddpctl: %zu of %lld nodes left, waits %lld s for another at %s\n",
                   u->member->status->n_nodes, (long long)l->nodes_min, (long long)l->join_timeout_ms / 1000,
                   u->address);
        stderr_put(&line);
    }
    if (u->gave_up || now - u->short_ms < l->join_timeout_ms)
        return ERR_OK;
    buf_clear(&line);
    buf_printf(&line, "%zu of %lld nodes left (", u->member->status->n_nodes, (long long)l->nodes_min);
    run_membership_list(u->member, &line);
    buf_printf(&line, "), no other came within %lld s", (long long)l->join_timeout_ms / 1000);
    return give_up(u, line.data, e);
}

/* There are enough; whether it can start on them, or go on, is the coordinator's to say. */
static enum err_code check_placed(struct host_duties *u, int64_t now, struct err *e)
{
    struct run_session *s = u->session;
    CLEANUP(buf_release) struct buf line = {0};
    if (u->short_ms || u->gave_up) {
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
    buf_printf(&line, "the job does not start on these nodes: %s", s->reason);
    return give_up(u, line.data, e);
}

enum err_code host_duties_turn(struct host_duties *u, struct err *e)
{
    int64_t now = clock_boot_ms();
    return check_enough(u, now, e) == ERR_OK ? check_placed(u, now, e) : e->code;
}
