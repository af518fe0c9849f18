#include "base/web/web_stream.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

#define BLOCK (32 << 10)

struct web_stream {
    struct web_viewer viewer;
    struct web_levels *levels;
    struct MHD_Connection *connection;
    struct web_frame *frame; /* the frame that is being sent */
    size_t sent;
    struct web_stream_end end;
    bool woken;   /* another thread sets it, at a change or a tick */
    bool comment; /* send a comment if there is no frame; only the server's thread uses it */
};

static bool stream_ends(const struct web_stream *s)
{
    return __atomic_load_n(s->end.server, __ATOMIC_ACQUIRE) ||
           (s->end.login && __atomic_load_n(&s->end.login->ended, __ATOMIC_ACQUIRE));
}

/* web_levels calls stream_wake and stream_wait with its lock held. So no change is missed between the check for a frame and
 * the wait. */
static void stream_wake(struct web_viewer *viewer)
{
    struct web_stream *s = viewer->owner;
    __atomic_store_n(&s->woken, true, __ATOMIC_RELEASE);
    MHD_resume_connection(s->connection);
}

static void stream_wait(struct web_viewer *viewer)
{
    struct web_stream *s = viewer->owner;
    if (s->comment || stream_ends(s))
        return;
    viewer->wake = stream_wake;
    MHD_suspend_connection(s->connection);
}

static ssize_t stream_read(void *owner, uint64_t position, char *to, size_t most)
{
    struct web_stream *s = owner;
    size_t size = 0;
    (void)position;
    if (stream_ends(s))
        return MHD_CONTENT_READER_END_OF_STREAM;
    /* Cleared before the frames are read: a change during this function sets it again, and then this function is called
     * again. */
    s->comment = __atomic_exchange_n(&s->woken, false, __ATOMIC_ACQ_REL);
    while (size < most) {
        if (!s->frame) {
            s->frame = web_levels_next(s->levels, &s->viewer, size ? NULL : stream_wait);
            s->sent = 0;
        }
        if (!s->frame)
            break;
        const size_t left = s->frame->size - s->sent, n = left < most - size ? left : most - size;
        memcpy(to + size, s->frame->data + s->sent, n);
        s->sent += n;
        size += n;
        if (s->sent == s->frame->size) {
            web_levels_return(s->levels, s->frame);
            s->frame = NULL;
        }
    }
    /* There is no frame. A write shows whether the reader is still connected. */
    if (!size && s->comment && most >= strlen(WEB_COMMENT)) {
        memcpy(to, WEB_COMMENT, strlen(WEB_COMMENT));
        size = strlen(WEB_COMMENT);
    }
    return (ssize_t)size;
}

static void stream_free(void *owner)
{
    struct web_stream *s = owner;
    web_levels_leave(s->levels, &s->viewer);
    if (s->frame)
        web_levels_return(s->levels, s->frame);
    if (s->end.login)
        s->end.door->give_back(s->end.door->user, s->end.login);
    free(s);
}

enum err_code web_stream_create(struct MHD_Response **out, struct MHD_Connection *connection,
                                const struct web_request *request, struct web_levels *levels,
                                const struct web_stream_end *end, struct err *e)
{
    struct web_stream *s = xcalloc(1, sizeof(*s));
    struct web_viewer *v = &s->viewer;
    if (web_request_jobs(request, "jobs", v->jobs, WEB_WATCHED_JOBS, &v->job_count, e) != ERR_OK ||
        web_request_jobs(request, "logs", v->logs, WEB_WATCHED_JOBS, &v->log_count, e) != ERR_OK) {
        free(s);
        return e->code;
    }
    s->levels = levels;
    s->connection = connection;
    s->end = *end;
    if (end->login)
        s->end.login = end->door->hold(end->door->user, end->login);
    /* If there is no frame yet, the first block is a comment, so that the client gets the headers at once. */
    s->woken = true;
    v->owner = s;
    web_levels_enter(levels, v, MHD_lookup_connection_value(connection, MHD_HEADER_KIND, "Last-Event-ID"));
    *out = MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, BLOCK, stream_read, s, stream_free);
    if (!*out) {
        stream_free(s);
        return err_set(e, ERR_RESOURCE_EXHAUSTED, "no memory for another viewer");
    }
    MHD_set_connection_option(connection, MHD_CONNECTION_OPTION_TIMEOUT, (unsigned)WEB_STREAM_IDLE_S);
    return ERR_OK;
}
