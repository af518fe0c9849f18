#include "client/run/hosts/run_membership.h"
#include "client/text/term.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"

#define RETRY_MS 250

void run_membership_init(struct run_membership *m, struct link *link, const Ddp__V1__JoinRunRequest *request)
{
    *m = (struct run_membership){.link = link, .request = *request};
    id_text(m->key);
}

/* With RPC_WAIT_FOR_READY gRPC itself waits for the server and connects as soon as it is there, as long as
 * somebody waits on the stream. It would also connect to another user who takes the port meanwhile, so a link
 * that checks the owner does without. */
static enum err_code run_membership_open(struct run_membership *m, struct err *e)
{
    m->request.member = m->key;
    m->request.cluster_id = m->cluster_id;
    if (link_check_owner(m->link, e) != ERR_OK)
        return e->code;
    return rpc_stream_open(&m->stream, m->link->channel, &ddp__v1__cluster__descriptor, "JoinRun",
                           &m->request, 0, m->link->own_port ? 0 : RPC_WAIT_FOR_READY, e);
}

static enum err_code run_membership_broke(struct run_membership *m, struct err *e)
{
    int64_t now = clock_boot_ms();
    rpc_stream_close(m->stream);
    m->stream = NULL;
    /* ABORTED: a coordinator answered, but it has no such run yet. That is as good as not being there. */
    m->answered = e->code == ERR_ABORTED;
    if (m->answered)
        e->code = ERR_UNAVAILABLE;
    if (e->code == ERR_OK || e->code == ERR_CANCELLED)
        err_set(e, ERR_UNAVAILABLE, "the run's coordinator ended the stream");
    if (!m->away_ms)
        m->away_ms = now;
    m->retry_ms = now + RETRY_MS;
    return e->code;
}

static void run_membership_take(struct run_membership *m, Ddp__V1__RunStatus *status)
{
    rpc_free(m->status);
    m->status = status;
    m->away_ms = 0;
    snprintf(m->cluster_id, sizeof(m->cluster_id), "%s", status->cluster_id);
}

enum err_code run_membership_next(struct run_membership *m, int64_t wait_ms, struct err *e)
{
    void *message = NULL;
    *e = (struct err){0};
    if (!m->stream) {
        int64_t pause = m->retry_ms - clock_boot_ms();
        if (pause > 0)
            usleep((useconds_t)(pause < wait_ms ? pause : wait_ms) * 1000);
        if (pause > wait_ms)
            return err_set(e, ERR_UNAVAILABLE, "the run's coordinator does not answer");
        if (run_membership_open(m, e) != ERR_OK)
            return run_membership_broke(m, e);
    }
    enum err_code code = rpc_stream_next(m->stream, wait_ms, &message, e);
    if (code == ERR_DEADLINE_EXCEEDED && !rpc_stream_ended(m->stream))
        return m->away_ms || !m->status ? err_set(e, ERR_UNAVAILABLE, "no answer") : ERR_OK;
    if (code != ERR_OK || !message)
        return run_membership_broke(m, e);
    run_membership_take(m, message);
    return ERR_OK;
}

void run_membership_list(const struct run_membership *m, struct buf *out)
{
    for (size_t i = 0; i < m->status->n_nodes; i++)
        term_printf_safe(out, "%s%s", i ? ", " : "", m->status->nodes[i]);
}

void run_membership_leave(struct run_membership *m)
{
    rpc_stream_close(m->stream);
    rpc_free(m->status);
    m->stream = NULL;
    m->status = NULL;
}
