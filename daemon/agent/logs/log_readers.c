#include "daemon/agent/logs/log_readers.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cut_file.h"
#include "base/file_at.h"
#include "base/mem.h"
#include "daemon/agent/logs/log_dates.h"
#include "daemon/agent/logs/log_start.h"
#include "daemon/supervisor/protocol/log_place.h"

#define CHUNK_MAX (64 << 10)
#define READS_MAX 256

struct log_read {
    int64_t id, job, first_generation, offset;
    int64_t wanted;       /* bytes still to be sent; INT64_MAX: all */
    int first_local_rank; /* with first_generation: where the log is (log_place.h) */
    bool standard_error, follow;
    struct log_start start; /* where to begin, until the file was there */
    bool dates;             /* chunks say when their bytes were written */
    bool told;              /* the coordinator knows that the reader waits for more */
    int64_t notes_at;       /* in times.log: the first note that may tell something about `offset` */
};

struct log_readers {
    struct log_readers_options options;
    struct log_read *reads;
    size_t count, cap;
};

struct log_readers *log_readers_create(const struct log_readers_options *options)
{
    struct log_readers *l = xcalloc(1, sizeof(*l));

    l->options = *options;
    return l;
}

void log_readers_free(struct log_readers *l)
{
    if (!l)
        return;
    free(l->reads);
    free(l);
}

void log_readers_drop_all(struct log_readers *l)
{
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
    *r = l->reads[--l->count];
}

/* False: the session did not accept it, try again. */
static bool chunk_answer(struct log_readers *l, struct log_read *r, const char *data, size_t len,
                         struct log_runs *runs, bool end, const char *error)
{
    Ddp__V1__LogChunk chunk;
    struct err e;

    ddp__v1__log_chunk__init(&chunk);
    chunk.read = r->id;
    chunk.data.data = (uint8_t *)data;
    chunk.data.len = len;
    chunk.end = end;
    chunk.offset = r->offset;
    if (runs && runs->count) {
        chunk.n_run_bytes = chunk.n_run_us = runs->count;
        chunk.run_bytes = runs->bytes;
        chunk.run_us = runs->wall_us;
    }
    chunk.waits = !len && !end;
    if (error)
        chunk.error = (char *)error;
    return l->options.send(l->options.ctx, &chunk, &e) == ERR_OK;
}

void log_readers_request(struct log_readers *l, const Ddp__V1__LogRead *q)
{
    struct log_read *r = reader_find(l, q->read);
    const int64_t notes_at = r && r->offset == q->offset ? r->notes_at : 0;

    if (q->cancel) {
        if (r)
            reader_drop(l, r);
        return;
    }
    if (!r && l->count == READS_MAX) { /* refused at once: a reader that waits silently looks like a hang */
        struct log_read over = {.id = q->read};

        (void)chunk_answer(l, &over, NULL, 0, NULL, true,
                           "too many log readers on this node: try again later");
        return;
    }
    if (!r) {
        l->reads = array_grow(l->reads, l->count, &l->cap, sizeof(*l->reads));
        r = &l->reads[l->count++];
    }
    *r = (struct log_read){.id = q->read,
                           .job = q->job,
                           .first_generation = q->first_generation,
                           .offset = q->offset > 0 ? q->offset : 0,
                           .wanted = q->limit > 0 ? q->limit : INT64_MAX,
                           .first_local_rank = q->first_local_rank,
                           .standard_error = q->standard_error,
                           .follow = q->follow,
                           .start = {q->tail_bytes, q->tail_lines, q->since_ms},
                           .dates = q->dates,
                           .notes_at = notes_at};
}

/* A log file, and times.log beside it where dates are wanted and there is one. */
struct open_log {
    int fd, notes; /* -1: not open */
    struct stat st;
};

static void log_file_close(struct open_log *log)
{
    close_fd(&log->fd);
    close_fd(&log->notes);
}

/* NOT_FOUND: there is no file yet. The directory belongs to the job's user, so only a plain file is opened.
 */
static enum err_code log_file_open(const struct log_readers *l, const struct log_read *r,
                                   struct open_log *log, struct err *e)
{
    CLEANUP(free_text)
    char *path =
        log_place_path(l->options.log_dir, r->job, r->first_generation, l->options.node, r->first_local_rank);
    CLEANUP(close_fd) int dir = -1;
    struct stat st;
    struct err ignored;

    if (log_place_open(path, &dir, e))
        return e->code;
    if ((r->dates || r->start.since_ms) &&
        file_at_open_plain(dir, LOG_NOTE_FILE, O_RDONLY, &log->notes, &st, &ignored))
        log->notes = -1; /* an older supervisor made none: the log's own time takes their place */
    return file_at_open_plain(dir, r->standard_error ? "stderr.log" : "stdout.log", O_RDONLY, &log->fd,
                              &log->st, e);
}

/* Returns the number of bytes; 0 at the end, -1 on an error. *next is the offset of the next piece, behind a
 * part that was cut out of the file. */
static ssize_t log_piece_read(struct log_read *r, const struct open_log *log, char *piece, int64_t *next)
{
    size_t want = r->wanted < CHUNK_MAX ? (size_t)r->wanted : CHUNK_MAX;

    if (log_start_given(&r->start))
        r->offset = log_start_find(&r->start, log->fd, log->notes, r->standard_error, &log->st);
    r->start = (struct log_start){0};
    if (r->offset > log->st.st_size)
        r->offset = r->notes_at = 0; /* the file was replaced by a shorter one: read it from the start */
    return cut_file_read(log->fd, piece, want, r->offset, next);
}

enum turn { TURN_MORE, TURN_WAIT, TURN_FULL, TURN_OVER };

static enum turn reader_finish(struct log_readers *l, struct log_read *r, const char *error)
{
    return chunk_answer(l, r, NULL, 0, NULL, true, error) ? TURN_OVER : TURN_FULL;
}

static enum turn reader_serve(struct log_readers *l, struct log_read *r, char *piece)
{
    /* asked before the read: if it has ended, the read sees all its output */
    bool ended = l->options.ended(l->options.ctx, r->job, r->first_generation, r->first_local_rank);
    CLEANUP(log_file_close) struct open_log log = {.fd = -1, .notes = -1};
    CLEANUP(log_runs_release) struct log_runs runs = {0};
    struct err e;
    enum err_code code = log_file_open(l, r, &log, &e);
    int64_t next = 0;
    ssize_t n = code ? 0 : log_piece_read(r, &log, piece, &next);

    if (code && code != ERR_NOT_FOUND)
        return reader_finish(l, r, e.msg);
    if (n < 0)
        return reader_finish(l, r, strerror(errno));
    if (n > 0) {
        int64_t at = r->offset;

        r->offset = next - n; /* the reader computes the next offset from the chunk's offset and length */
        if (r->dates)
            log_runs_find(&runs, log.notes, &r->notes_at, r->standard_error, &log.st, r->offset, next);
        if (!chunk_answer(l, r, piece, (size_t)n, &runs, false, NULL)) {
            r->offset = at;
            return TURN_FULL;
        }
        r->offset = next;
        r->told = false;
        if (r->wanted != INT64_MAX)
            r->wanted -= n;
        return TURN_MORE;
    }
    if (r->follow && !ended) {
        if (r->dates && !r->told)
            r->told = chunk_answer(l, r, NULL, 0, NULL, false, NULL);
        return TURN_WAIT;
    }
    return reader_finish(l, r, code && !r->follow ? "there is no such log on this node" : NULL);
}

bool log_readers_pump(struct log_readers *l)
{
    CLEANUP(free_text) char *piece = l->count ? xmalloc(CHUNK_MAX) : NULL;
    bool again = false;

    for (size_t i = l->count; i-- > 0;) {
        struct log_read *r = &l->reads[i];
        enum turn turn = TURN_MORE;

        while (r->wanted > 0 && turn == TURN_MORE)
            turn = reader_serve(l, r, piece);
        if (turn == TURN_OVER)
            reader_drop(l, r);
        again = again || turn == TURN_WAIT || turn == TURN_FULL;
    }
    return again;
}
