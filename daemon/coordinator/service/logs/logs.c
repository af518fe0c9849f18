#include "daemon/coordinator/service/logs/logs.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/match/pattern.h"
#include "base/mem.h"
#include "daemon/coordinator/service/access/auth.h"
#include "daemon/coordinator/service/agent_rpc.h"
#include "daemon/coordinator/service/commit_queue.h"
#include "daemon/coordinator/service/handles.h"
#include "daemon/coordinator/service/logs/log_order.h"
#include "daemon/coordinator/service/logs/log_share.h"
#include "daemon/coordinator/service/logs/log_stream.h"
#include "daemon/coordinator/service/service_state.h"
#include "proto/ddp.pb-c.h"

/* The log files are on the nodes. A user's call is a log_stream, and each file (a rank's stdout or stderr) is a
 * log_read on the session of its node.
 *
 * Happy path: each read asks its agent for one piece. The times that come with the pieces tell which bytes were written
 * first; these are passed to the client. Nothing is passed while a piece is still to come, because it could be older.
 * When a piece has been passed, the next one is asked for, so a slow terminal delays only itself. With --follow, a read
 * whose agent waits for new output delays nothing. The call ends when all reads have ended and, with --follow, the job
 * has, too.
 *
 * Failure modes:
 * - The client reads slowly: the pieces are held, and logs_sendable continues.
 * - The agent restarts: without --follow the read ends with a note. With it, the read waits for the next
 *   session and continues from its offset.
 * - The node is lost or has no session: the coordinator's copy of the log's end is passed, with a note that says
 *   how old it is (logs/log_tails.h). Without a copy, a note replaces this log.
 * - Clocks of nodes differ: lines of different nodes are out of order by the difference.
 * - A new generation starts: with --follow, its reads are added (log_stream_open_generations). A spawn that
 *   outlives its generation writes to the same files, so a read of them continues.
 * - An agent sends more than it was asked for: the read ends, so that it cannot fill our memory.
 * - A node serves as many reads as it can: the user with the most of them loses some (log_share.h). A call that needs more
 *   reads than that for itself takes turns: a read whose piece has come ends at the agent, another one takes its place, and
 *   the first one continues from its offset when its piece was passed on. */

#define PIECE (64 * 1024)       /* most bytes of a log that are asked for at a time */
#define LIVE_TICK_MS 150        /* more than an agent's pause between two looks at a log */
#define LOG_GREP_TAIL 10000     /* the most that an agent can find (daemon/agent/logs/log_search.h) */
#define COPY_SEARCH_NS 20000000 /* for a search of copies, during which the loop does nothing else */
#define PIECE_LEAST (4 * 1024)
#define PIECES (16 * 1024 * 1024) /* of all pieces of one call, unless each has the least size */

/* ---- to the client */

static enum err_code log_send_data(struct log_read *r, size_t size)
{
    struct err e = {0};
    Ddp__V1__LogData message = DDP__V1__LOG_DATA__INIT;
    message.rank = r->rank;
    message.standard_error = r->standard_error;
    message.generation = r->generation;
    message.data = (ProtobufCBinaryData){size, (uint8_t *)(uintptr_t)log_piece_bytes(&r->held)};
    message.written_ms = log_piece_date(&r->held) / 1000;
    message.offset = r->offset - (int64_t)(log_piece_left(&r->held) - size);
    return rpc_call_send(r->stream->rpc, &message, &e);
}

/* If the client reads slowly, the note is dropped: it is not worth a queue. */
void log_stream_note(struct log_stream *x, int rank, int64_t generation, const char *note)
{
    struct err e = {0};
    Ddp__V1__LogData message = DDP__V1__LOG_DATA__INIT;
    message.rank = rank;
    message.generation = generation;
    message.note = (char *)(uintptr_t)note;
    x->told = true;
    if (rpc_call_send(x->rpc, &message, &e) != ERR_OK)
        log_debug("log_note_dropped", "job=%lld note=%s", (long long)x->job, LOG_Q(note));
}

static void log_read_give_up(struct log_read *r, const char *why)
{
    CLEANUP(free_text) char *note = xasprintf("node %s %s: its part of the logs is missing", r->node, why);
    if (!r->noted)
        log_stream_note(r->stream, r->rank, r->generation, note);
    r->noted = r->ended = r->stream->incomplete = true;
}

/* ---- to the agent */

/* All pieces together stay small, however many files there are. */
static size_t log_piece_size(const struct log_stream *x)
{
    const size_t share = PIECES / (x->read_count + 1);
    return share > PIECE ? PIECE : share < PIECE_LEAST ? PIECE_LEAST : share;
}

static bool log_read_ask_agent(struct agent_session *session, struct log_read *r, bool cancel)
{
    struct err e = {0};
    Ddp__V1__LogRead read = DDP__V1__LOG_READ__INIT;
    Ddp__V1__AgentDown down = DDP__V1__AGENT_DOWN__INIT;
    read.read = (int64_t)r->handle;
    read.job = r->stream->job;
    read.first_generation = r->first_generation;
    read.first_local_rank = r->first_local_rank;
    read.standard_error = r->standard_error;
    read.offset = r->offset;
    if (!r->begun) {
        read.tail_bytes = r->stream->tail_bytes;
        read.tail_lines = r->stream->tail_lines;
        read.since_ms = r->stream->since_ms;
    }
    read.follow = r->stream->follow;
    read.grep = r->stream->grep;
    read.within = r->within;
    read.dates = true;
    read.limit = (int64_t)(r->piece = log_piece_size(r->stream));
    read.cancel = cancel;
    down.body_case = DDP__V1__AGENT_DOWN__BODY_LOG_READ;
    down.log_read = &read;
    if (agent_session_send(session, &down, &e) != ERR_OK)
        return false;
    if (!cancel) {
        r->session = session->handle;
        r->got = 0;
        r->waits = !session->dates_logs; /* an older agent does not say that it waits */
    }
    return true;
}

bool log_read_park(struct log_read *r, struct agent_session *session)
{
    if (r->got < r->piece || !log_piece_left(&r->held) || !log_read_ask_agent(session, r, true))
        return false;
    r->session = 0;
    return true;
}

bool log_stream_job_ended(const struct log_stream *x)
{
    const struct job_record *job = core_job(x->service->core, x->job);
    return !job || sm_terminal(&job_sm, (int)job->state);
}

static bool log_node_lost(const struct log_stream *x, const char *name)
{
    const struct node_record *node = core_node(x->service->core, name);
    return !node || node->state == NODE_LOST || node->state == NODE_LEFT;
}

/* Returns the session of the node that has the log, or NULL if the node is not connected or does not answer. */
static struct agent_session *log_read_find_session(const struct log_read *r)
{
    struct agent_session *session = agent_session_find(r->stream->service, r->node);
    if (session && log_node_lost(r->stream, r->node)) /* its agent hangs, so requested data will not come */
        return NULL;
    return session;
}

/* Reads whose sessions are gone are no longer owed a piece, also those with data that is not passed on yet. */
static void log_stream_check_sessions(struct log_stream *x)
{
    for (struct log_read *r = x->reads; r; r = r->next) {
        const struct agent_session *session = r->session ? log_read_find_session(r) : NULL;
        if (!session || session->handle != r->session)
            r->session = 0;
    }
    x->nodes_changed = false;
}

/* Returns whether the read can be asked for now. */
static bool log_read_find_room(struct log_read *r, struct agent_session *session)
{
    const enum log_room room = log_share_make_room(r->stream, session);
    if (room == LOG_ROOM_NONE)
        log_read_give_up(r, "already serves as many of your logs as it can; ask for one generation (-g N) or "
                            "one rank (--rank R)");
    else if (room == LOG_ROOM_LATER)
        r->session = 0; /* the next chunk of the node leads here again */
    return room == LOG_ROOM_NOW;
}

/* Asks for the next piece when the last one was passed on. */
static void log_read_refill(struct log_read *r)
{
    struct log_stream *x = r->stream;
    if (log_piece_left(&r->held))
        return;
    if (r->last)
        r->ended = true;
    if (r->ended)
        return;
    /* The search below comes after this test: a job may have thousands of logs, and a chunk of one leads here for all. */
    if (r->session && r->got < r->piece)
        return; /* the piece has not arrived completely */
    struct agent_session *session = log_read_find_session(r);
    if (session && *x->grep && !session->greps_logs)
        log_read_give_up(r, "runs an older ddp, which cannot search logs");
    else if (session && (r->session == session->handle || log_read_find_room(r, session)))
        log_read_ask_agent(session, r, false);
    else if (session)
        return;
    else if (!x->follow || log_stream_job_ended(x) || log_node_lost(x, r->node))
        log_read_take_copy(r);
    else
        r->session = 0; /* wait until the node reconnects or counts as lost */
}

/* Its next bytes are on their way, and may be older than those of others. A node without a session delays nothing. */
static bool log_read_is_owed(const struct log_read *r)
{
    return !r->ended && !log_piece_left(&r->held) && !(r->stream->follow && (r->waits || !r->session));
}

/* New output comes from each agent at its own time, up to 100 ms after it was written. So it is held until earlier
 * output of other ranks has come, too. Output is passed on if it was written before the newest data that had arrived at
 * the last tick but one. */
static int64_t log_read_ready(const struct log_read *r)
{
    const struct log_stream *x = r->stream;
    const bool live = x->follow && !r->ended && (r->waits || !r->session) && x->read_count > 1;
    return live ? x->ready_us : INT64_MAX;
}

static void logs_tick(uv_timer_t *timer)
{
    struct service *s = timer->data;
    for (struct log_stream *x = s->logs; x; x = x->next) {
        x->ready_us = x->next_ready_us;
        for (const struct log_read *r = x->reads; r; r = r->next)
            if (log_piece_left(&r->held) && log_piece_last_date(&r->held) > x->next_ready_us)
                x->next_ready_us = log_piece_last_date(&r->held);
        x->due |= x->holds;
        s->logs_due |= x->due;
        x->holds = false;
    }
}

static void log_stream_hold(struct log_stream *x)
{
    uv_timer_t *timer = &x->service->logs_timer;
    x->holds = true;
    timer->data = x->service;
    if (!uv_is_active((uv_handle_t *)timer))
        uv_timer_start(timer, logs_tick, LIVE_TICK_MS, 0);
}

/* Fills `order` with the reads that hold data, and *ready with the time until which data may be passed on. False: older
 * bytes may still come. */
static bool log_stream_order(const struct log_stream *x, struct log_order *order, int64_t *ready)
{
    size_t place = 0;
    *ready = INT64_MAX;
    for (struct log_read *r = x->reads; r; r = r->next, place++) {
        if (log_read_is_owed(r))
            return false;
        if (log_piece_left(&r->held))
            log_order_put(order, (struct log_turn){log_piece_date(&r->held), place, r});
        if (log_read_ready(r) < *ready)
            *ready = log_read_ready(r);
    }
    return true;
}

/* Passes on data in the order in which it was written, until the client, an agent or the next tick is waited for. Only the
 * read whose data was passed has changed, so the others are not looked at again. */
static void log_stream_pass(struct log_stream *x)
{
    CLEANUP(log_order_release) struct log_order order = {0};
    int64_t ready;
    if (!log_stream_order(x, &order, &ready))
        return;
    while (order.count) {
        struct log_turn first = log_order_take(&order);
        struct log_read *r = first.read;
        if (first.date > ready) {
            log_stream_hold(x);
            return;
        }
        const int64_t next = log_order_date(&order);
        const size_t bytes = log_piece_until(&r->held, x->times ? 0 : next < ready ? next : ready);
        if (log_send_data(r, bytes) != ERR_OK)
            return; /* on_sendable continues */
        x->passed = true;
        log_piece_pass(&r->held, bytes);
        if (!log_piece_left(&r->held)) {
            x->pass = service_handle(x->service); /* the passed piece may have made room */
            log_read_refill(r);
            log_stream_tell_absent(x);
        }
        if (log_read_is_owed(r))
            return;
        if (log_read_ready(r) < ready)
            ready = log_read_ready(r);
        if (!log_piece_left(&r->held))
            continue;
        first.date = log_piece_date(&r->held);
        log_order_put(&order, first);
    }
}

/* ---- a stream's life */

static void log_read_free(struct log_read *r)
{
    struct service *s = r->stream->service;
    struct agent_session *session = r->ended || !r->session ? NULL : agent_session_find(s, r->node);
    if (session && r->session == session->handle)
        log_read_ask_agent(session, r, true);
    handles_take(&s->reads, r->handle);
    s->stats.log_reads--;
    r->stream->read_count--;
    log_piece_release(&r->held);
    free(r->node);
    free(r);
}

void log_stream_drop_reads(struct log_stream *x)
{
    for (struct log_read *r = x->reads, *next; r; r = next) {
        next = r->next;
        log_read_free(r);
    }
    x->reads = NULL;
}

static void log_stream_drop_ended(struct log_stream *x)
{
    for (struct log_read **at = &x->reads; *at;) {
        struct log_read *r = *at;
        if (r->ended && !log_piece_left(&r->held)) {
            *at = r->next;
            log_read_free(r);
        } else {
            at = &r->next;
        }
    }
}

static void log_stream_refill(struct log_stream *x)
{
    x->pass = service_handle(x->service);
    for (struct log_read *r = x->reads; r; r = r->next)
        log_read_refill(r);
    log_stream_tell_absent(x);
    log_stream_drop_ended(x);
}

/* Unlike a note, the last message is not dropped: a client that checks its logs depends on it. */
static void log_stream_finish(struct log_stream *x)
{
    struct err e = {0};
    Ddp__V1__LogData message = DDP__V1__LOG_DATA__INIT;
    message.rank = -1;
    message.incomplete = true;
    log_stream_explain(x);
    if (x->incomplete && rpc_call_send(x->rpc, &message, &e) != ERR_OK)
        return; /* on_sendable continues */
    rpc_call_finish(x->rpc);
}

static void log_stream_step(struct log_stream *x)
{
    struct err e = {0};
    x->due = false;
    if (x->follow && x->newest && log_stream_open_generations(x, 0, &e) != ERR_OK) {
        rpc_call_fail(x->rpc, &e);
        return;
    }
    if (x->nodes_changed)
        log_stream_check_sessions(x);
    log_stream_refill(x);
    log_stream_pass(x);
    log_stream_drop_ended(x);
    if (!x->reads && (!x->follow || !x->newest || log_stream_job_ended(x)))
        log_stream_finish(x);
}

/* ddpctl checks the same, but the request may come from another client. */
static enum err_code logs_compile_grep(const Ddp__V1__ReadLogsRequest *m, struct pattern **out, struct err *e)
{
    if (!*m->grep)
        return ERR_OK;
    if (m->n_places) /* a place is where data ended, which may be within a line */
        return err_set(e, ERR_INVALID_ARGUMENT,
                       "a search cannot continue at given places: expected grep or places");
    if (m->tail_lines > LOG_GREP_TAIL)
        return err_set(e, ERR_INVALID_ARGUMENT, "at most the last %d lines that match can be found",
                       LOG_GREP_TAIL);
    return pattern_compile(m->grep, out, e) == ERR_OK ? ERR_OK : err_wrap(e, "--grep");
}

void logs_read(struct rpc_call *rpc, const void *request, void *user)
{
    struct service *s = user;
    const Ddp__V1__ReadLogsRequest *m = request;
    struct err e = {0};
    commit_queue_flush(s);
    if (!caller_may_read(s, rpc, m->job))
        return;
    struct pattern *pattern = NULL;
    if (logs_compile_grep(m, &pattern, &e) != ERR_OK) {
        rpc_call_fail(rpc, &e);
        return;
    }
    struct log_stream *x = xcalloc(1, sizeof *x);
    *x = (struct log_stream){.service = s,
                             .rpc = rpc,
                             .job = m->job,
                             .rank = m->rank,
                             .follow = m->follow,
                             .tail_bytes = m->tail_bytes,
                             .tail_lines = m->tail_lines,
                             .since_ms = m->since_ms,
                             .grep = xstrdup(m->grep),
                             .pattern = pattern,
                             .search_ns = COPY_SEARCH_NS,
                             .all = m->all_generations,
                             .first_generation = m->first_generation,
                             .times = m->times,
                             .newest = m->generation == 0,
                             .due = true,
                             .standard_out = m->both || !m->standard_error,
                             .standard_error = m->both || m->standard_error,
                             .next = s->logs};
    log_stream_take_places(x, m->places, m->n_places);
    if (x->next)
        x->next->prev = x;
    s->logs = x;
    s->logs_due = true;
    rpc_call_set_user(rpc, x);
    /* logs_end frees the stream in any case, when the call has ended. A job that has not started is not an
     * error: a follower waits for its first generation. */
    if (log_stream_open_generations(x, m->generation, &e) != ERR_OK)
        rpc_call_fail(rpc, &e);
    else if (!x->reads && x->generation && m->rank >= 0)
        rpc_call_fail_with(rpc, ERR_NOT_FOUND, "job %lld has no rank %d in generation %lld",
                           (long long)m->job, m->rank, (long long)x->generation);
    else if (!x->reads && !m->follow)
        log_stream_note(x, -1, 0, "the job has not started yet, so there are no logs");
}

void logs_sendable(struct rpc_call *rpc)
{
    struct log_stream *x = rpc_call_user(rpc);
    x->due = x->service->logs_due = true;
}

void logs_end(struct rpc_call *rpc, bool cancelled)
{
    struct log_stream *x = rpc_call_user(rpc);
    (void)cancelled;
    if (!x)
        return; /* the call was refused */
    log_stream_drop_reads(x);
    if (x->next)
        x->next->prev = x->prev;
    if (x->prev)
        x->prev->next = x->next;
    else
        x->service->logs = x->next;
    free(x->grep);
    free(x->places);
    pattern_free(x->pattern);
    free(x->absent);
    log_gaps_release(&x->gaps);
    free(x);
}

void logs_chunk(struct agent_session *session, const Ddp__V1__LogChunk *chunk)
{
    struct log_read *r = handles_get(&session->service->reads, (uint64_t)chunk->read);
    if (!r || r->session != session->handle || r->last)
        return; /* cancelled, or requested again on another session */
    if (log_piece_left(&r->held) + chunk->data.len > 4 * PIECE) {
        log_read_give_up(r, "sent more data than requested");
    } else if (chunk->data.len) {
        r->got += chunk->data.len;
        r->offset = *r->stream->grep ? chunk->next_offset : chunk->offset + (int64_t)chunk->data.len;
        r->within = chunk->within;
        r->begun = true;
        const size_t runs = chunk->n_run_us < chunk->n_run_bytes ? chunk->n_run_us : chunk->n_run_bytes;
        log_piece_add(&r->held, chunk->data.data, chunk->data.len, chunk->run_bytes, chunk->run_us, runs);
    }
    r->waits |= chunk->waits;
    /* The agent cannot read the file: the client gets its reason in place of the part. */
    if (chunk->end && chunk->absent) {
        log_gaps_add(&r->stream->gaps, r->rank, r->started);
    } else if (chunk->error[0]) {
        log_stream_note(r->stream, r->rank, r->generation, chunk->error);
        r->noted = r->stream->incomplete = true;
    }
    r->last = chunk->end;
    r->stream->due = session->service->logs_due = true;
}

void logs_job_changed(struct service *s, int64_t job)
{
    for (struct log_stream *x = s->logs; x; x = x->next)
        s->logs_due |= x->due |= x->job == job;
}

void logs_node_changed(struct service *s, const char *node)
{
    (void)node;
    for (struct log_stream *x = s->logs; x; x = x->next)
        s->logs_due = x->due = x->nodes_changed = true;
}

void logs_push(struct service *s)
{
    s->logs_due = false;
    for (struct log_stream *x = s->logs, *next; x; x = next) {
        next = x->next;
        if (x->due && !rpc_call_over(x->rpc))
            log_stream_step(x);
    }
}
