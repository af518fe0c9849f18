#include "daemon/agent/logs.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"

#define CHUNK_MAX (64 << 10)
#define READS_MAX 256

struct log_read {
    int64_t id, job, generation, offset, wanted; /* wanted: bytes still asked for, INT64_MAX: all */
    int local_rank;
    bool standard_error, follow;
    int64_t tail; /* not applied yet */
};

struct logs {
    struct logs_options options;
    struct log_read *reads;
    size_t count, cap;
};

struct logs *logs_create(const struct logs_options *options)
{
    struct logs *l = xcalloc(1, sizeof(*l));

    l->options = *options;
    return l;
}

void logs_free(struct logs *l)
{
    if (!l)
        return;
    free(l->reads);
    free(l);
}

void logs_drop_all(struct logs *l)
{
    l->count = 0;
}

static struct log_read *find_read(struct logs *l, int64_t id)
{
    for (size_t i = 0; i < l->count; i++)
        if (l->reads[i].id == id)
            return &l->reads[i];
    return NULL;
}

static void drop_read(struct logs *l, struct log_read *r)
{
    *r = l->reads[--l->count];
}

/* False: not taken, try again. */
static bool answer(struct logs *l, struct log_read *r, const char *data, size_t len, bool end,
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

void logs_request(struct logs *l, const Ddp__V1__LogRead *q)
{
    struct log_read *r = find_read(l, q->read);

    if (q->cancel) {
        if (r)
            drop_read(l, r);
        return;
    }
    if (!r && l->count == READS_MAX) {
        struct log_read over = {.id = q->read};

        (void)answer(l, &over, NULL, 0, true, "too many log readers on this node, try again later");
        return;
    }
    if (!r) {
        l->reads = array_grow(l->reads, l->count, &l->cap, sizeof(*l->reads));
        r = &l->reads[l->count++];
    }
    *r = (struct log_read){.id = q->read,
                           .job = q->job,
                           .generation = q->generation,
                           .offset = q->offset > 0 ? q->offset : 0,
                           .wanted = q->limit > 0 ? q->limit : INT64_MAX,
                           .local_rank = q->local_rank,
                           .standard_error = q->standard_error,
                           .follow = q->follow,
                           .tail = q->tail_bytes};
}

static int open_log(const struct logs *l, const struct log_read *r)
{
    CLEANUP(free_text)
    char *path =
        xasprintf("%s/%" PRId64 "/generation_%" PRId64 "/%s/%d/%s.log", l->options.log_dir, r->job,
                  r->generation, l->options.node, r->local_rank, r->standard_error ? "stderr" : "stdout");

    return open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
}

/* Bytes read; 0 at the end (or where there is no file yet), -1 on an error. */
static ssize_t read_piece(struct log_read *r, int fd, char *piece)
{
    size_t want = r->wanted < CHUNK_MAX ? (size_t)r->wanted : CHUNK_MAX;
    struct stat st;

    if (fd < 0)
        return errno == ENOENT ? 0 : -1;
    if (fstat(fd, &st))
        return -1;
    if (!S_ISREG(st.st_mode)) {
        errno = EINVAL;
        return -1;
    }
    if (r->tail > 0)
        r->offset = st.st_size > r->tail ? st.st_size - r->tail : 0;
    r->tail = 0;
    if (r->offset > st.st_size)
        r->offset = 0; /* another file of that name: from its start */
    return pread(fd, piece, want, r->offset);
}

enum turn { TURN_MORE, TURN_WAIT, TURN_FULL, TURN_OVER };

static enum turn serve(struct logs *l, struct log_read *r, char *piece)
{
    /* before the read: what was written until the end is then seen */
    bool ended = l->options.ended(l->options.ctx, r->job, r->generation, r->local_rank);
    CLEANUP(close_fd) int fd = open_log(l, r);
    bool absent = fd < 0 && errno == ENOENT;
    ssize_t n = read_piece(r, fd, piece);

    if (n < 0)
        return answer(l, r, NULL, 0, true, strerror(errno)) ? TURN_OVER : TURN_FULL;
    if (n > 0) {
        if (!answer(l, r, piece, (size_t)n, false, NULL))
            return TURN_FULL;
        r->offset += n;
        if (r->wanted != INT64_MAX)
            r->wanted -= n;
        return TURN_MORE;
    }
    if (r->follow && !ended)
        return TURN_WAIT;
    return answer(l, r, NULL, 0, true, absent && !r->follow ? "there is no such log on this node" : NULL)
               ? TURN_OVER
               : TURN_FULL;
}

bool logs_pump(struct logs *l)
{
    CLEANUP(free_text) char *piece = l->count ? xmalloc(CHUNK_MAX) : NULL;
    bool again = false;

    for (size_t i = l->count; i-- > 0;) {
        struct log_read *r = &l->reads[i];
        enum turn turn = TURN_MORE;

        while (r->wanted > 0 && turn == TURN_MORE)
            turn = serve(l, r, piece);
        if (turn == TURN_OVER)
            drop_read(l, r);
        again = again || turn == TURN_WAIT || turn == TURN_FULL;
    }
    return again;
}
