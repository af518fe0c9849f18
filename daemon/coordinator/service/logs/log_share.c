#include "daemon/coordinator/service/logs/log_share.h"

#include <string.h>

#include "daemon/coordinator/service/access/auth.h"
#include "daemon/coordinator/service/agent_rpc.h"
#include "daemon/coordinator/service/service_state.h"

#define NODE_READS 256 /* the most that an agent serves (daemon/agent/logs/log_readers.c) */

static bool read_is_open(const struct log_read *r, const struct agent_session *session)
{
    return r->session == session->handle && !r->last && !r->ended;
}

static size_t stream_count_open(const struct log_stream *x, const struct agent_session *session)
{
    size_t count = 0;
    for (const struct log_read *r = x->reads; r; r = r->next)
        count += read_is_open(r, session);
    return count;
}

static bool stream_park_read(const struct log_stream *x, struct agent_session *session)
{
    for (struct log_read *r = x->reads; r; r = r->next)
        if (read_is_open(r, session) && log_read_park(r, session))
            return true;
    return false;
}

/* Whether a place of the stream itself will be free soon, because one of its reads has data on its way. */
static bool stream_has_turns(const struct log_stream *x, const struct agent_session *session)
{
    for (const struct log_read *r = x->reads; r; r = r->next)
        if (read_is_open(r, session) &&
            !(x->follow && r->waits)) /* with --follow it may wait for its worker's end */
            return true;
    return false;
}

/* How many of the open reads belong to the stream's user. */
static size_t user_count_open(const struct log_stream *x)
{
    const char *name = caller_identity(x->rpc)->name;
    size_t count = 0;
    for (const struct log_stream *y = x->service->logs; y; y = y->next)
        if (y->node_reads && strcmp(caller_identity(y->rpc)->name, name) == 0)
            count += y->node_reads;
    return count;
}

enum log_room log_share_make_room(const struct log_stream *x, struct agent_session *session)
{
    struct log_stream *loser = NULL;
    size_t most = 0;
    if (session->log_full == x->pass)
        return LOG_ROOM_LATER; /* a look at all reads for each of them would take too long */
    if (session->log_reads < NODE_READS) {
        session->log_reads++;
        return LOG_ROOM_NOW;
    }
    /* Reads that have ended since the last count are still in log_reads. */
    session->log_reads = 0;
    for (struct log_stream *y = x->service->logs; y; y = y->next)
        session->log_reads += y->node_reads = stream_count_open(y, session);
    if (session->log_reads < NODE_READS) {
        session->log_reads++;
        return LOG_ROOM_NOW;
    }
    if (stream_park_read(x, session))
        return LOG_ROOM_NOW;                                        /* one read for another */
    for (struct log_stream *y = x->service->logs; y; y = y->next) { /* the newest one is the first */
        const size_t count = y->node_reads ? user_count_open(y) : 0;
        if (count <= most)
            continue;
        most = count;
        loser = y;
    }
    /* A user who has no more than this one after the change keeps everything, or the two would displace each other in turn. */
    if (most <= user_count_open(x) + 1) {
        if (!stream_has_turns(x, session))
            return LOG_ROOM_NONE;
        session->log_full = x->pass;
        return LOG_ROOM_LATER;
    }
    rpc_call_fail_with(
        loser->rpc, ERR_RESOURCE_EXHAUSTED,
        "node %s serves at most %d logs at a time, most of them for %.80s, and another user needs "
        "some: follow fewer jobs at a time, or one rank (--rank R)",
        session->node, NODE_READS, caller_identity(loser->rpc)->name);
    session->log_reads -= loser->node_reads - 1;
    log_stream_drop_reads(loser);
    return LOG_ROOM_NOW;
}
