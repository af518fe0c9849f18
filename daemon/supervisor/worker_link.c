#include "daemon/supervisor/worker_link.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"

#define TURN 16 /* requests of one worker before the others get their turn */

void worker_link_open(struct worker_link *w, int fd)
{
    *w = (struct worker_link){.fd = fd};
}

static void worker_link_close(struct worker_link *w)
{
    close_fd(&w->fd);
    w->fd = -1;
    w->blocked = false;
}

void worker_link_release(struct worker_link *w)
{
    worker_link_close(w);
    spawn_answer_release(&w->answer);
}

static enum err_code commit_check(const char *path, int64_t step, int64_t bytes, struct err *e)
{
    if (step < 0 || bytes < 0)
        return err_set(e, ERR_INVALID_ARGUMENT, "expected a step from 0 on and a number of bytes");
    if (*path != '/' || strlen(path) > WORKER_PATH_MAX)
        return err_set(e, ERR_INVALID_ARGUMENT, "expected an absolute path of at most %d bytes",
                       WORKER_PATH_MAX);
    return ERR_OK;
}

static enum err_code commit_take(struct worker_link *w, const json_t *obj, struct spawn_asks *asks,
                                 struct err *e)
{
    const char *path = json_get_text(obj, "path", "");
    int64_t id = json_get_int(obj, "id", 0), step = json_get_int(obj, "step", -1);
    int64_t bytes = json_get_int(obj, "bytes", 0);

    if (id <= 0) { /* the worker could not tell an answer from the one to another commit */
        worker_link_close(w);
        return err_set(e, ERR_INVALID_ARGUMENT, "expected a commit with an id from 1 on");
    }
    w->refused_id = 0;
    if (commit_check(path, step, bytes, e)) {
        w->refused_id = id;
        w->refusal = *e;
        w->due = true;
        return e->code;
    }
    /* The worker chooses its own numbers: a program that executes another program starts at 1 again. */
    w->id = id;
    asks->commit++;
    asks->step = step;
    asks->bytes = bytes;
    spawn_fact_set_text(&asks->path, xstrdup(path));
    return ERR_OK;
}

enum err_code worker_link_take(struct worker_link *w, const char *text, size_t len, struct spawn_asks *asks,
                               struct err *e)
{
    CLEANUP(json_release) json_t *obj = NULL;
    const char *op;
    int64_t step;

    if (json_parse(text, len, WORKER_REQUEST_MAX, &obj, e)) {
        worker_link_close(w); /* the worker may be waiting for an answer, which cannot be given */
        return e->code;
    }
    op = json_get_text(obj, "op", "");
    step = json_get_int(obj, "step", -1);
    if (!strcmp(op, "commit"))
        return commit_take(w, obj, asks, e);
    if (!strcmp(op, "heed")) {
        asks->heeds = true;
        return ERR_OK;
    }
    if (strcmp(op, "promise"))
        return err_set(e, ERR_INVALID_ARGUMENT, "unknown request");
    if (step < 1)
        return err_set(e, ERR_INVALID_ARGUMENT, "expected a promise of a step from 1 on");
    asks->heeds = true;
    if (step > asks->promise) /* earlier promises still hold, so a smaller one changes nothing */
        asks->promise = step;
    return ERR_OK;
}

bool worker_link_hear(struct worker_link *w, struct spawn_asks *asks)
{
    char text[WORKER_REQUEST_MAX + 1];
    bool changed = false;

    for (int i = 0; w->fd >= 0 && i < TURN; i++) {
        ssize_t n = recv(w->fd, text, sizeof(text), MSG_DONTWAIT);
        struct err e;

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            break;
        if (n <= 0) {
            worker_link_close(w);
            break;
        }
        if (worker_link_take(w, text, (size_t)n, asks, &e) == ERR_OK)
            changed = true;
        else if (!w->refused++)
            w->first_error = e;
    }
    return changed;
}

void worker_link_stop(struct worker_link *w)
{
    w->due |= !w->stop;
    w->stop = true;
}

void worker_link_answer(struct worker_link *w, const struct spawn_answer *answer)
{
    const int64_t stop_step = w->answer.stop_step;

    if (spawn_answer_equal(&w->answer, answer))
        return;
    spawn_answer_copy(&w->answer, answer);
    if (stop_step) /* some ranks may have stopped there: it never changes */
        w->answer.stop_step = stop_step;
    w->due = true;
}

void worker_link_encode(const struct worker_link *w, const struct spawn_asks *asks, struct buf *out)
{
    bool answered = !w->refused_id && asks->commit && w->answer.commit == asks->commit;
    struct jout o = {.buf = out};

    jout_open(&o, NULL, '{');
    jout_int(&o, "commit", answered ? w->id : w->refused_id);
    jout_text(&o, "error", answered ? w->answer.error : w->refused_id ? w->refusal.msg : NULL);
    jout_bool(&o, "stale", answered && w->answer.stale);
    jout_bool(&o, "stop", w->stop);
    jout_int(&o, "allowed", w->answer.allowed);
    jout_int(&o, "stop_step", w->answer.stop_step);
    jout_int(&o, "number", w->told + 1);
    jout_close(&o, '}');
}

void worker_link_tell(struct worker_link *w, const struct spawn_asks *asks)
{
    CLEANUP(buf_release) struct buf text = {0};

    if (w->fd < 0 || !w->due || w->blocked)
        return;
    worker_link_encode(w, asks, &text);
    if (send(w->fd, text.data, text.len, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0) {
        w->due = false;
        w->told++;
        return;
    }
    w->blocked = errno == EAGAIN || errno == EINTR || errno == ENOBUFS;
    if (!w->blocked)
        worker_link_close(w);
}
