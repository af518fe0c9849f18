#include "daemon/agent/gpu/trainer_plugin.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <uv.h>

#include "base/buf.h"
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"

#define DEADLINE_MS 30000 /* the trainer may have to load half a gigabyte of libraries from a cold disk */
#define ANSWER_MOST 65536

struct trainer_plugin {
    trainer_plugin_fn fn;
    void *user;
    int pidfd;
    uv_pipe_t pipe;
    uv_timer_t timer;
    int open; /* handles that are not closed yet; the last one frees the query */
    struct buf answer;
    struct err failure;
    char piece[4096];
};

static enum err_code query_spawn(const char *trainer, int out, pid_t *pid, struct err *e)
{
    char *argv[] = {(char *)(uintptr_t)trainer, (char *)"--plugin", NULL};
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attr;
    sigset_t none;
    int rc;

    sigemptyset(&none);
    posix_spawn_file_actions_init(&files);
    posix_spawnattr_init(&attr);
    rc = posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
    rc = rc ? rc : posix_spawn_file_actions_addopen(&files, 2, "/dev/null", O_WRONLY, 0);
    rc = rc ? rc : posix_spawn_file_actions_adddup2(&files, out, 1);
    rc = rc ? rc : posix_spawn_file_actions_addclosefrom_np(&files, 3);
    rc = rc ? rc : posix_spawnattr_setsigmask(&attr, &none);
    rc = rc ? rc : posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGMASK);
    rc = rc ? rc : posix_spawnp(pid, trainer, &files, &attr, argv, environ);
    posix_spawn_file_actions_destroy(&files);
    posix_spawnattr_destroy(&attr);
    return rc ? err_sys(e, rc, "%s", trainer) : ERR_OK;
}

static void on_query_closed(uv_handle_t *handle)
{
    struct trainer_plugin *t = handle->data;

    if (--t->open)
        return;
    buf_release(&t->answer);
    close_fd(&t->pidfd);
    free(t);
}

static void query_end(struct trainer_plugin *t)
{
    if (uv_is_closing((uv_handle_t *)&t->timer))
        return;
    if (t->pidfd >= 0) /* by pidfd: the pid may belong to another process by now */
        (void)syscall(SYS_pidfd_send_signal, t->pidfd, SIGKILL, NULL, 0);
    uv_close((uv_handle_t *)&t->pipe, on_query_closed);
    uv_close((uv_handle_t *)&t->timer, on_query_closed);
}

static void query_report(struct trainer_plugin *t)
{
    CLEANUP(json_release) json_t *said = NULL;
    struct err e = t->failure;

    if (e.code || json_parse(t->answer.data ? t->answer.data : "", t->answer.len, ANSWER_MOST, &said, &e)) {
        log_warn("no_plugin", "why=%s", LOG_Q(e.msg));
        t->fn(t->user, "none", "");
        return;
    }
    const char *nccl = json_get_text(said, "nccl", NULL), *version = json_get_text(said, "version", "");
    if (nccl)
        log_info("plugin", "version=%s nccl=%s why=%s", LOG_Q(version), LOG_Q(nccl),
                 LOG_Q(json_get_text(said, "why", "")));
    else
        log_warn("no_plugin", "why=%s", LOG_Q(json_get_text(said, "why", "it has none")));
    t->fn(t->user, nccl ? nccl : "none", version);
}

static void on_query_room(uv_handle_t *handle, size_t suggested, uv_buf_t *out)
{
    struct trainer_plugin *t = handle->data;

    (void)suggested;
    *out = uv_buf_init(t->piece, sizeof(t->piece));
}

static void on_query_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *piece)
{
    struct trainer_plugin *t = stream->data;

    if (n > 0)
        buf_append(&t->answer, piece->base, (size_t)n);
    if (n == 0 || (n > 0 && t->answer.len < ANSWER_MOST))
        return;
    query_end(t);
    query_report(t);
}

/* The deadline has passed, or the trainer did not start. */
static void on_query_timer(uv_timer_t *timer)
{
    struct trainer_plugin *t = timer->data;

    if (!t->failure.code)
        err_set(&t->failure, ERR_DEADLINE_EXCEEDED, "ddp-trainer --plugin does not answer");
    query_end(t);
    query_report(t);
}

static enum err_code query_start(struct trainer_plugin *t, const char *trainer, struct err *e)
{
    CLEANUP(close_fd) int out = -1;
    int ends[2];
    pid_t pid;

    if (pipe2(ends, O_CLOEXEC))
        return err_sys(e, errno, "pipe");
    out = ends[1];
    BUG_ON(uv_pipe_open(&t->pipe, ends[0]));
    if (query_spawn(trainer, out, &pid, e))
        return e->code;
    t->pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
    BUG_ON(uv_read_start((uv_stream_t *)&t->pipe, on_query_room, on_query_read));
    return ERR_OK;
}

struct trainer_plugin *trainer_plugin_ask(struct uv_loop_s *loop, const char *trainer, trainer_plugin_fn fn,
                                          void *user)
{
    struct trainer_plugin *t = xcalloc(1, sizeof(*t));

    *t = (struct trainer_plugin){.fn = fn, .user = user, .pidfd = -1, .open = 2};
    BUG_ON(uv_pipe_init(loop, &t->pipe, 0) || uv_timer_init(loop, &t->timer));
    t->pipe.data = t->timer.data = t;
    bool asked = !query_start(t, trainer, &t->failure);
    uv_update_time(loop); /* the loop's clock may be older than the deadline while the agent starts */
    BUG_ON(uv_timer_start(&t->timer, on_query_timer, asked ? DEADLINE_MS : 0, 0));
    return t;
}

void trainer_plugin_close(struct trainer_plugin *t)
{
    if (t)
        query_end(t);
}
