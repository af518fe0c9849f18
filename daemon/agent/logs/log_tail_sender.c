#include "daemon/agent/logs/log_tail_sender.h"

#include <stdlib.h>

#include "base/cut_file.h"
#include "base/mem.h"
#include "daemon/agent/logs/log_dates.h"
#include "daemon/agent/logs/log_file.h"

#define HURRY_MS 100    /* at least between two passes, even if many workers end */
#define MESSAGE_COST 64 /* bytes that a message counts beside its data */
#define RUN_COST 12     /* and for each time in it */

struct tail_stream {
    struct log_tail_worker worker;
    bool standard_error;
    bool gone;        /* the node does not know the worker any more */
    bool complete;    /* everything was sent since it is gone */
    int64_t sent;     /* the copy goes up to here; -1: nothing was sent in this session */
    int64_t notes_at; /* log_runs_find */
};

struct log_tail_sender {
    struct log_tail_options options;
    struct tail_stream *streams; /* sorted */
    size_t count, cap;
    size_t next;        /* where an interrupted pass continues */
    uint64_t signature; /* of the workers at the last pass */
    int64_t rate, tokens, refilled_ms;
    int64_t due_ms, passed_ms, complete_ms; /* complete_ms 0: never */
};

struct log_tail_sender *log_tail_sender_create(const struct log_tail_options *options)
{
    struct log_tail_sender *s = xcalloc(1, sizeof(*s));

    s->options = *options;
    return s;
}

void log_tail_sender_free(struct log_tail_sender *s)
{
    if (!s)
        return;
    free(s->streams);
    free(s);
}

void log_tail_sender_set_rate(struct log_tail_sender *s, int64_t bytes_per_second)
{
    s->rate = bytes_per_second > 0 ? bytes_per_second : 0;
}

void log_tail_sender_new_session(struct log_tail_sender *s)
{
    for (size_t i = 0; i < s->count; i++) {
        s->streams[i].sent = -1;
        s->streams[i].notes_at = 0;
    }
    s->rate = s->complete_ms = s->due_ms = 0; /* an older coordinator names no rate */
}

int64_t log_tail_sender_age(const struct log_tail_sender *s, int64_t now)
{
    return s->complete_ms ? now - s->complete_ms : -1;
}

/* ---- the streams */

static int compare_streams(const void *a, const void *b)
{
    const struct tail_stream *x = a, *y = b;

    if (x->worker.job != y->worker.job)
        return x->worker.job < y->worker.job ? -1 : 1;
    if (x->worker.spawn != y->worker.spawn)
        return x->worker.spawn < y->worker.spawn ? -1 : 1;
    return x->standard_error - y->standard_error;
}

static uint64_t workers_signature(const struct log_tail_worker *workers, size_t count)
{
    uint64_t sum = count;

    for (size_t i = 0; i < count; i++) /* in any order */
        sum += ((uint64_t)workers[i].job * 1000003 + (uint64_t)workers[i].spawn * 2 + workers[i].exited) *
               0x9e3779b97f4a7c15u;
    return sum;
}

static void streams_update(struct log_tail_sender *s, const struct log_tail_worker *workers, size_t count)
{
    const size_t known = s->count;

    for (size_t i = 0; i < known; i++)
        s->streams[i].gone = true;
    for (size_t i = 0; i < 2 * count; i++) {
        struct tail_stream x = {.worker = workers[i / 2], .standard_error = i % 2, .sent = -1};
        struct tail_stream *old = known ? bsearch(&x, s->streams, known, sizeof(x), compare_streams) : NULL;

        if (old) {
            old->gone = old->complete = false;
            continue;
        }
        s->streams = array_grow(s->streams, s->count, &s->cap, sizeof(*s->streams));
        s->streams[s->count++] = x;
    }
    qsort(s->streams, s->count, sizeof(*s->streams), compare_streams);
}

/* Called after interrupted passes, too, because on a slow link no pass may be complete for a long time. */
static void streams_drop_gone(struct log_tail_sender *s)
{
    size_t count = 0, next = 0;

    for (size_t i = 0; i < s->count; i++) {
        if (i == s->next)
            next = count;
        if (!s->streams[i].gone || !s->streams[i].complete)
            s->streams[count++] = s->streams[i];
    }
    s->count = count;
    s->next = next < count ? next : 0;
}

/* ---- sending */

enum sending { SENDING_DONE, SENDING_LATER };

static bool tail_send(struct log_tail_sender *s, struct tail_stream *x, const struct log_file *log,
                      const char *data, size_t size, int64_t offset)
{
    CLEANUP(log_runs_release) struct log_runs runs = {0};
    Ddp__V1__LogTail tail = DDP__V1__LOG_TAIL__INIT;
    Ddp__V1__AgentUp up = DDP__V1__AGENT_UP__INIT;
    struct err e;

    log_runs_find(&runs, log->notes, &x->notes_at, x->standard_error, &log->st, offset,
                  offset + (int64_t)size);
    tail.job = x->worker.job;
    tail.spawn = x->worker.spawn;
    tail.standard_error = x->standard_error;
    tail.offset = offset;
    tail.data = (ProtobufCBinaryData){size, (uint8_t *)data};
    tail.n_run_bytes = tail.n_run_us = runs.count;
    tail.run_bytes = runs.bytes;
    tail.run_us = runs.wall_us;
    up.body_case = DDP__V1__AGENT_UP__BODY_LOG_TAIL;
    up.log_tail = &tail;
    s->tokens -= (int64_t)(MESSAGE_COST + size + runs.count * RUN_COST);
    return s->options.send(s->options.ctx, &up, &e) == ERR_OK;
}

/* Returns the offset of the first byte that the copy lacks of a file of this size. */
static int64_t copy_begin(const struct tail_stream *x, int64_t size)
{
    const int64_t first = size > LOG_TAIL_MOST ? size - LOG_TAIL_MOST : 0;

    return x->sent >= first && x->sent <= size ? x->sent : first;
}

static enum sending stream_send(struct log_tail_sender *s, struct tail_stream *x, char *block)
{
    const struct log_file_place place = {.log_dir = s->options.log_dir,
                                         .node = s->options.node,
                                         .job = x->worker.job,
                                         .first_generation = x->worker.first_generation,
                                         .first_local_rank = x->worker.first_local_rank,
                                         .standard_error = x->standard_error};
    CLEANUP(log_file_close) struct log_file log = LOG_FILE_NONE;
    struct err e;

    if (log_file_open(&place, true, &log, &e))
        return SENDING_DONE; /* there is no file yet, or nothing that could be sent */
    if (x->sent > log.st.st_size)
        x->notes_at = 0; /* the file was replaced by a shorter one */
    for (int64_t at = copy_begin(x, log.st.st_size), next; at < log.st.st_size; at = next) {
        const size_t size = (size_t)(log.st.st_size - at);
        const ssize_t n = s->tokens < (int64_t)size ? 0 : cut_file_read(log.fd, block, size, at, &next);

        if (s->tokens < (int64_t)size)
            return SENDING_LATER;
        if (n <= 0)
            return SENDING_DONE;
        if (!tail_send(s, x, &log, block, (size_t)n,
                       next - n)) /* next - n: behind what was cut out of the file */
            return SENDING_LATER;
        x->sent = next;
    }
    return SENDING_DONE;
}

static void tokens_refill(struct log_tail_sender *s, int64_t now)
{
    const int64_t most = 2 * s->rate > 2 * LOG_TAIL_MOST ? 2 * s->rate : 2 * LOG_TAIL_MOST;
    const int64_t ms = now - s->refilled_ms < 100000 ? now - s->refilled_ms : 100000;

    s->tokens += ms * s->rate / 1000;
    if (s->tokens > most)
        s->tokens = most;
    s->refilled_ms = now;
}

/* True: everything was sent. */
static bool streams_send(struct log_tail_sender *s)
{
    CLEANUP(free_text) char *block = xmalloc(LOG_TAIL_MOST);

    for (size_t i = 0; i < s->count; i++) {
        const size_t at = (s->next + i) % s->count;

        if (stream_send(s, &s->streams[at], block) == SENDING_LATER) {
            s->next = at;
            return false;
        }
        s->streams[at].complete = s->streams[at].gone;
    }
    s->next = 0;
    return true;
}

int64_t log_tail_sender_run(struct log_tail_sender *s, const struct log_tail_worker *workers, size_t count,
                            int64_t now)
{
    const uint64_t signature = workers_signature(workers, count);
    const bool changed = signature != s->signature;

    if (!s->rate || (!count && !s->count)) {
        s->complete_ms = s->rate ? now : 0;
        return INT64_MAX;
    }
    if (now < (changed ? s->passed_ms + HURRY_MS : s->due_ms))
        return changed ? s->passed_ms + HURRY_MS : s->due_ms;
    s->signature = signature;
    s->passed_ms = now;
    streams_update(s, workers, count);
    tokens_refill(s, now);
    const bool complete = streams_send(s);
    streams_drop_gone(s);
    if (complete) {
        s->complete_ms = now;
        s->due_ms = now + LOG_TAIL_EVERY_MS;
    } else {
        s->due_ms = now + LOG_TAIL_EVERY_MS / 4; /* until there are tokens, or room in the queue */
    }
    return s->due_ms;
}
