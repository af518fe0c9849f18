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
#include "daemon/supervisor/protocol/log_place.h"

#define CHUNK_MAX (64 << 10)
#define READS_MAX 256

struct log_read {
    int64_t id, job, first_generation, offset;
    int64_t wanted;       /* bytes still to be sent; INT64_MAX: all */
    int first_local_rank; /* with first_generation: where the log is (log_place.h) */
    bool standard_error, follow;
    int64_t tail; /* starts this number of bytes before the end; 0: done, or not asked for */
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
static bool chunk_answer(struct log_readers *l, struct log_read *r, const char *data, size_t len, bool end,
                         const char *error)
{
    Ddp__V1__LogChunk chunk;
    struct err e;

    ddp__v1__log_chunk__init(&chunk);
    chunk.read = r->id;
    chunk.data.data = (uint8_t *)data;
    chunk.data.len = len;
    chunk.end = end;
    chunk.offset = r->offset;
    if (error)
        chunk.error = (char *)error;
    return l->options.send(l->options.ctx, &chunk, &e) == ERR_OK;
}

void log_readers_request(struct log_readers *l, const Ddp__V1__LogRead *q)
{
    struct log_read *r = reader_find(l, q->read);

    if (q->cancel) {
        if (r)
            reader_drop(l, r);
        return;
    }
    if (!r && l->count == READS_MAX) { /* refused at once: a reader that waits silently looks like a hang */
        struct log_read over = {.id = q->read};

        (void)chunk_answer(l, &over, NULL, 0, true, "too many log readers on this node: try again later");
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
                           .tail = q->tail_bytes};
}

/* NOT_FOUND: there is no file yet. The directory belongs to the job's user, so only a plain file is opened.
 */
static enum err_code log_file_open(const struct log_readers *l, const struct log_read *r, int *fd,
                                   struct stat *st, struct err *e)
{
    CLEANUP(free_text)
    char *path =
        log_place_path(l->options.log_dir, r->job, r->first_generation, l->options.node, r->first_local_rank);
    CLEANUP(close_fd) int dir = -1;

    if (log_place_open(path, &dir, e))
        return e->code;
    return file_at_open_plain(dir, r->standard_error ? "stderr.log" : "stdout.log", O_RDONLY, fd, st, e);
}

/* Returns the number of bytes; 0 at the end, -1 on an error. *next is the offset of the next piece, behind a
 * part that was cut out of the file. */
static ssize_t log_piece_read(struct log_read *r, int fd, const struct stat *st, char *piece, int64_t *next)
{
    size_t want = r->wanted < CHUNK_MAX ? (size_t)r->wanted : CHUNK_MAX;

    if (r->tail > 0)
        r->offset = st->st_size > r->tail ? st->st_size - r->tail : 0;
    r->tail = 0;
    if (r->offset > st->st_size)
        r->offset = 0; /* the file was replaced by a shorter one: read it from the start */
    return cut_file_read(fd, piece, want, r->offset, next);
}

enum turn { TURN_MORE, TURN_WAIT, TURN_FULL, TURN_OVER };

static enum turn reader_finish(struct log_readers *l, struct log_read *r, const char *error)
{
    return chunk_answer(l, r, NULL, 0, true, error) ? TURN_OVER : TURN_FULL;
}

static enum turn reader_serve(struct log_readers *l, struct log_read *r, char *piece)
{
    /* asked before the read: if it has ended, the read sees all its output */
    bool ended = l->options.ended(l->options.ctx, r->job, r->first_generation, r->first_local_rank);
    CLEANUP(close_fd) int fd = -1;
    struct stat st;
    struct err e;
    enum err_code code = log_file_open(l, r, &fd, &st, &e);
    int64_t next = 0;
    ssize_t n = code ? 0 : log_piece_read(r, fd, &st, piece, &next);

    if (code && code != ERR_NOT_FOUND)
        return reader_finish(l, r, e.msg);
    if (n < 0)
        return reader_finish(l, r, strerror(errno));
    if (n > 0) {
        int64_t at = r->offset;

        r->offset = next - n; /* the reader computes the next offset from the chunk's offset and length */
        if (!chunk_answer(l, r, piece, (size_t)n, false, NULL)) {
            r->offset = at;
            return TURN_FULL;
        }
        r->offset = next;
        if (r->wanted != INT64_MAX)
            r->wanted -= n;
        return TURN_MORE;
    }
    if (r->follow && !ended)
        return TURN_WAIT;
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
