#include "daemon/agent/logs/log_readers.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/cut_file.h"
#include "base/mem.h"
#include "daemon/agent/logs/log_dates.h"
#include "daemon/agent/logs/log_file.h"
#include "daemon/agent/logs/log_patterns.h"
#include "daemon/agent/logs/log_search.h"
#include "daemon/agent/logs/log_start.h"

#define CHUNK_MAX (64 << 10)
#define READS_MAX 256
/* The loop's thread searches, so it searches in slices. All searches of a turn together take a few milliseconds (a step takes some
 * nanoseconds), and then the loop is free for the same time. */
#define SEARCH_STEPS (2 << 20)
#define SEARCH_STEPS_LEAST (32 << 10) /* of each search */
#define SEARCH_PAUSE_MS 5
#define POLL_MS 100 /* between two checks of a log for new output */

struct log_read {
    int64_t id, job, first_generation, offset;
    int64_t wanted;       /* bytes still to be sent; INT64_MAX: all */
    int first_local_rank; /* with first_generation: where the log is (log_place.h) */
    bool standard_error, follow;
    struct log_start start;    /* where to begin, until the file was there */
    bool dates;                /* chunks say when their bytes were written */
    bool told;                 /* the coordinator knows that the reader waits for more */
    int64_t notes_at;          /* in times.log: the first note that may tell something about `offset` */
    struct log_search *search; /* NULL: everything is sent */
    bool put_off;              /* the last turn was over before the search had its share */
};

struct log_readers {
    struct log_readers_options options;
    struct log_read *reads;
    size_t count, cap;
    struct log_patterns patterns;
};

struct log_readers *log_readers_create(const struct log_readers_options *options)
{
    struct log_readers *l = xcalloc(1, sizeof(*l));

    l->options = *options;
    return l;
}

static void search_free(struct log_readers *l, struct log_search *search)
{
    if (!search)
        return;
    log_patterns_put(&l->patterns, search->pattern);
    log_search_release(search);
    free(search);
}

void log_readers_free(struct log_readers *l)
{
    if (!l)
        return;
    log_readers_drop_all(l);
    free(l->reads);
    free(l);
}

void log_readers_drop_all(struct log_readers *l)
{
    for (size_t i = 0; i < l->count; i++)
        search_free(l, l->reads[i].search);
    l->count = 0;
}

static struct log_read *reader_find(struct log_readers *l, int64_t id)
{
    for (size_t i = 0; i < l->count; i++)
        if (l->reads[i].id == id)
            return &l->reads[i];
    return NULL;
}

static void reader_drop(struct log_readers *l, struct log_read *r)
{
    search_free(l, r->search);
    *r = l->reads[--l->count];
}

static void chunk_init(const struct log_read *r, Ddp__V1__LogChunk *chunk)
{
    bool within = false;

    ddp__v1__log_chunk__init(chunk);
    chunk->read = r->id;
    chunk->offset = r->offset;
    if (r->search)
        chunk->next_offset = log_search_place(r->search, &within);
    chunk->within = within;
}

/* False: the session did not accept it, try again. */
static bool chunk_send(struct log_readers *l, const Ddp__V1__LogChunk *chunk)
{
    struct err e;

    return l->options.send(l->options.ctx, chunk, &e) == ERR_OK;
}

static bool chunk_send_data(struct log_readers *l, const struct log_read *r, const char *data, size_t len,
                            const struct log_runs *runs)
{
    Ddp__V1__LogChunk chunk;

    chunk_init(r, &chunk);
    chunk.data.data = (uint8_t *)data;
    chunk.data.len = len;
    chunk.n_run_bytes = chunk.n_run_us = runs->count;
    chunk.run_bytes = runs->bytes;
    chunk.run_us = runs->wall_us;
    return chunk_send(l, &chunk);
}

static bool chunk_send_waits(struct log_readers *l, const struct log_read *r)
{
    Ddp__V1__LogChunk chunk;

    chunk_init(r, &chunk);
    chunk.waits = true;
    return chunk_send(l, &chunk);
}

static void request_refuse(struct log_readers *l, const Ddp__V1__LogRead *q, const char *why)
{
    Ddp__V1__LogChunk chunk;

    ddp__v1__log_chunk__init(&chunk);
    chunk.read = q->read;
    chunk.end = true;
    chunk.error = (char *)why;
    (void)chunk_send(l, &chunk);
}

/* If the request starts where the search stopped, the search continues; else a new one begins. */
static enum err_code request_search(struct log_readers *l, struct log_read *r, const Ddp__V1__LogRead *q,
                                    struct err *e)
{
    struct log_search *old = r ? r->search : NULL;
    struct pattern *pattern;
    bool within;

    if (old && (!*q->grep || strcmp(log_patterns_text(&l->patterns, old->pattern), q->grep) ||
                log_search_place(old, &within) != q->offset)) {
        search_free(l, old);
        old = r->search = NULL;
    }
    if (!*q->grep || old)
        return ERR_OK;
    if (log_patterns_get(&l->patterns, q->grep, &pattern, e))
        return e->code;
    r->search = xmalloc(sizeof(*r->search));
    log_search_begin(r->search, pattern, q->offset > 0 ? q->offset : 0, q->within, q->tail_lines);
    return ERR_OK;
}

static struct log_read *reader_add(struct log_readers *l)
{
    l->reads = array_grow(l->reads, l->count, &l->cap, sizeof(*l->reads));
    l->reads[l->count] = (struct log_read){0};
    return &l->reads[l->count++];
}

void log_readers_request(struct log_readers *l, const Ddp__V1__LogRead *q)
{
    struct log_read *r = reader_find(l, q->read);
    const int64_t notes_at = r && r->offset == q->offset ? r->notes_at : 0;
    struct err e;

    if (q->cancel) {
        if (r)
            reader_drop(l, r);
        return;
    }
    if (!r && l->count == READS_MAX) { /* refused at once: a reader that waits silently looks like a hang */
        request_refuse(l, q, "too many log readers on this node: try again later");
        return;
    }
    r = r ? r : reader_add(l);
    if (request_search(l, r, q, &e)) {
        reader_drop(l, r);
        request_refuse(l, q, e.msg);
        return;
    }
    *r = (struct log_read){.id = q->read,
                           .job = q->job,
                           .first_generation = q->first_generation,
                           .offset = q->offset > 0 ? q->offset : 0,
                           .wanted = q->limit > 0 ? q->limit : INT64_MAX,
                           .first_local_rank = q->first_local_rank,
                           .standard_error = q->standard_error,
                           .follow = q->follow,
                           .start = {q->tail_bytes, *q->grep ? 0 : q->tail_lines, q->since_ms},
                           .dates = q->dates,
                           .notes_at = notes_at,
                           .search = r->search};
}

static enum err_code reader_open(const struct log_readers *l, const struct log_read *r, struct log_file *log,
                                 struct err *e)
{
    const struct log_file_place place = {.log_dir = l->options.log_dir,
                                         .node = l->options.node,
                                         .job = r->job,
                                         .first_generation = r->first_generation,
                                         .first_local_rank = r->first_local_rank,
                                         .standard_error = r->standard_error};

    return log_file_open(&place, r->dates || r->start.since_ms, log, e);
}

/* Sets where the reader begins. It begins again if the file was replaced by a shorter one. */
static void reader_place(struct log_read *r, const struct log_file *log)
{
    if (log_start_given(&r->start)) {
        r->offset = log_start_find(&r->start, log->fd, log->notes, r->standard_error, &log->st);
        if (r->search)
            log_search_move(r->search, r->offset);
    }
    r->start = (struct log_start){0};
    if (r->offset > log->st.st_size)
        r->offset = r->notes_at = 0;
}

/* BUSY: a search has used its share of the turn. END: the file has no more output at present. */
enum turn { TURN_MORE, TURN_WAIT, TURN_FULL, TURN_OVER, TURN_BUSY, TURN_END };

static size_t piece_size(const struct log_read *r)
{
    return r->wanted < CHUNK_MAX ? (size_t)r->wanted : CHUNK_MAX;
}

static void reader_sent(struct log_read *r, size_t bytes)
{
    r->told = false;
    if (r->wanted != INT64_MAX)
        r->wanted -= (int64_t)bytes;
}

/* log: NULL if there is no such file. */
static enum turn reader_finish(struct log_readers *l, const struct log_read *r, const struct log_file *log,
                               const char *error)
{
    Ddp__V1__LogChunk chunk;

    chunk_init(r, &chunk);
    chunk.end = true;
    chunk.absent = !log;
    chunk.size = log && log->fd >= 0 ? log->st.st_size : 0;
    if (error)
        chunk.error = (char *)error;
    return chunk_send(l, &chunk) ? TURN_OVER : TURN_FULL;
}

static enum turn piece_serve(struct log_readers *l, struct log_read *r, const struct log_file *log,
                             char *piece)
{
    CLEANUP(log_runs_release) struct log_runs runs = {0};
    const int64_t at = r->offset;
    int64_t next;
    const ssize_t n = cut_file_read(log->fd, piece, piece_size(r), r->offset, &next);

    if (n < 0)
        return reader_finish(l, r, log, strerror(errno));
    if (n == 0)
        return TURN_END;
    r->offset = next - n; /* behind a part that was cut out: the coordinator adds the length to it */
    if (r->dates)
        log_runs_find(&runs, log->notes, &r->notes_at, r->standard_error, &log->st, r->offset, next);
    if (!chunk_send_data(l, r, piece, (size_t)n, &runs)) {
        r->offset = at;
        return TURN_FULL;
    }
    r->offset = next;
    reader_sent(r, (size_t)n);
    return TURN_MORE;
}

/* last: the last line of the file is complete. */
static enum turn search_serve(struct log_readers *l, struct log_read *r, const struct log_file *log,
                              bool last, int64_t *steps)
{
    CLEANUP(log_runs_release) struct log_runs runs = {0};
    struct log_search *s = r->search;
    struct err e;
    const enum log_search_result result =
        log_search_run(s, log->fd, &log->st, last, piece_size(r), steps, &e);

    if (s->out.len) { /* also before a failure */
        if (r->dates)
            log_search_date(s, &runs, log->notes, &r->notes_at, r->standard_error, &log->st);
        if (!chunk_send_data(l, r, s->out.data, s->out.len, &runs))
            return TURN_FULL;
        reader_sent(r, s->out.len);
        log_search_clear(s);
    }
    if (result == LOG_SEARCH_FAILED)
        return reader_finish(l, r, log, e.msg);
    return result == LOG_SEARCH_FULL ? TURN_MORE : result == LOG_SEARCH_PAUSED ? TURN_BUSY : TURN_END;
}

static enum turn reader_serve(struct log_readers *l, struct log_read *r, char *piece, int64_t *steps)
{
    /* checked before the read: if the worker has ended, the read sees all its output */
    const bool ended = l->options.ended(l->options.ctx, r->job, r->first_generation, r->first_local_rank);
    CLEANUP(log_file_close) struct log_file log = LOG_FILE_NONE;
    struct err e;
    const enum err_code code = reader_open(l, r, &log, &e);
    enum turn turn = TURN_END;

    if (code && code != ERR_NOT_FOUND)
        return reader_finish(l, r, &log, e.msg);
    if (!code) {
        reader_place(r, &log);
        turn =
            r->search ? search_serve(l, r, &log, !r->follow || ended, steps) : piece_serve(l, r, &log, piece);
    }
    if (turn != TURN_END)
        return turn;
    if (r->follow && !ended) {
        if (r->dates && !r->told)
            r->told = chunk_send_waits(l, r);
        return TURN_WAIT;
    }
    /* With --follow the file may never have been created. Then only the end is reported. */
    return reader_finish(l, r, code ? NULL : &log,
                         code && !r->follow ? "there is no such log on this node" : NULL);
}

/* Returns the share of the turn that each search may use. */
static int64_t search_share(const struct log_readers *l)
{
    int64_t searches = 1;

    for (size_t i = 0; i < l->count; i++)
        searches += l->reads[i].search && l->reads[i].wanted > 0;
    return SEARCH_STEPS / searches > SEARCH_STEPS_LEAST ? SEARCH_STEPS / searches : SEARCH_STEPS_LEAST;
}

static bool any_put_off(const struct log_readers *l)
{
    for (size_t i = 0; i < l->count; i++)
        if (l->reads[i].put_off)
            return true;
    return false;
}

/* A single line can take more than its reader's share, up to PATTERN_TIME_NS. Then the turn ends early, and the searches that were
 * put off come first in the next one. */
int64_t log_readers_pump(struct log_readers *l)
{
    CLEANUP(free_text) char *piece = l->count ? xmalloc(CHUNK_MAX) : NULL;
    const int64_t share = search_share(l);
    const bool some_first = any_put_off(l);
    int64_t left = SEARCH_STEPS;
    bool poll = false, busy = false;

    for (size_t i = l->count; i-- > 0;) {
        struct log_read *r = &l->reads[i];
        enum turn turn = TURN_MORE;
        int64_t steps = share;

        if (r->search && r->wanted > 0 && (left <= 0 || (some_first && !r->put_off))) {
            r->put_off = r->put_off || !some_first;
            busy = true;
            continue;
        }
        r->put_off = false;
        while (r->wanted > 0 && turn == TURN_MORE)
            turn = reader_serve(l, r, piece, &steps);
        left -= share - steps;
        if (turn == TURN_OVER)
            reader_drop(l, r);
        poll = poll || turn == TURN_WAIT || turn == TURN_FULL;
        busy = busy || turn == TURN_BUSY;
    }
    return busy ? SEARCH_PAUSE_MS : poll ? POLL_MS : 0;
}
