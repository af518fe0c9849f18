#include "daemon/agent/preflight/check_server.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <uv.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "daemon/agent/environment.h"
#include "proto/rpc_codec.h"

#define CHECKS_MAX 16
#define ANSWER_MS 15000 /* a check that has not answered by then counts as hanging */
#define ANSWER_MAX (1u << 20)

struct check {
    struct check_server *all;
    int64_t ask, wall_ms;
    int pidfd;
    uv_pipe_t pipe;
    uv_timer_t timer;
    int closing; /* handles that are not closed yet */
    struct buf answer;
    char piece[4096];
    struct check *next, *prev;
};

struct check_server {
    struct check_server_options options;
    uv_loop_t *loop;
    struct check *list;
    size_t count;
    bool closing;
};

static void server_maybe_free(struct check_server *c)
{
    if (c->closing && !c->list)
        free(c);
}

static void on_check_closed(uv_handle_t *handle)
{
    struct check *k = handle->data;
    struct check_server *c = k->all;

    if (--k->closing)
        return;
    if (k->next)
        k->next->prev = k->prev;
    if (k->prev)
        k->prev->next = k->next;
    else
        c->list = k->next;
    c->count--;
    buf_release(&k->answer);
    close_fd(&k->pidfd);
    free(k);
    server_maybe_free(c);
}

static void check_end(struct check *k)
{
    if (k->closing)
        return;
    k->closing = 2;
    uv_close((uv_handle_t *)&k->pipe, on_check_closed);
    uv_close((uv_handle_t *)&k->timer, on_check_closed);
}

/* By pidfd: the pid may belong to another process by now. */
static void check_kill(const struct check *k)
{
    if (k->pidfd >= 0)
        (void)syscall(SYS_pidfd_send_signal, k->pidfd, SIGKILL, NULL, 0);
}

static void answer_send(struct check_server *c, int64_t ask, int64_t wall_ms, Ddp__V1__CheckAnswer *answer)
{
    Ddp__V1__AgentUp up = DDP__V1__AGENT_UP__INIT;
    struct err e;

    answer->ask = ask;
    answer->wall_ms = wall_ms;
    up.body_case = DDP__V1__AGENT_UP__BODY_CHECK_ANSWER;
    up.check_answer = answer;
    if (c->options.send(c->options.ctx, &up, &e))
        log_warn("check_not_answered", "why=%s", LOG_Q(e.msg));
}

static void error_send(struct check_server *c, int64_t ask, int64_t wall_ms, const char *why)
{
    Ddp__V1__CheckAnswer answer = DDP__V1__CHECK_ANSWER__INIT;
    CLEANUP(free_text) char *text = rpc_utf8_clean(xstrdup(why));

    answer.error = text;
    answer_send(c, ask, wall_ms, &answer);
}

static void check_forward_answer(struct check *k)
{
    CLEANUP(rpc_release) Ddp__V1__CheckAnswer *answer = NULL;
    struct err e;

    if (!k->answer.len ||
        rpc_unpack(&ddp__v1__check_answer__descriptor, k->answer.data, k->answer.len, (void **)&answer, &e)) {
        error_send(k->all, k->ask, k->wall_ms, "the check ended without an answer: see the agent's log");
        return;
    }
    if (*answer->error) { /* the process could not begin */
        error_send(k->all, k->ask, k->wall_ms, answer->error);
        return;
    }
    /* the agent's own texts are put in for the sending only: rpc_free must not see them */
    char *version = answer->version, *address = answer->address;
    answer->version = (char *)DDP_VERSION;
    answer->address = (char *)k->all->options.address;
    answer_send(k->all, k->ask, k->wall_ms, answer);
    answer->version = version;
    answer->address = address;
}

static void on_check_room(uv_handle_t *handle, size_t suggested, uv_buf_t *out)
{
    struct check *k = handle->data;

    (void)suggested;
    *out = uv_buf_init(k->piece, sizeof(k->piece));
}

/* Collects the answer until its end. A process that listens for other nodes goes on afterwards; its own alarm
 * ends it. */
static void on_check_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *piece)
{
    struct check *k = stream->data;

    if (n > 0 && k->answer.len + (size_t)n <= ANSWER_MAX) {
        buf_append(&k->answer, piece->base, (size_t)n);
        return;
    }
    if (n == 0)
        return;
    if (n > 0) { /* more than an answer can be */
        check_kill(k);
        buf_clear(&k->answer);
    }
    check_forward_answer(k);
    check_end(k);
}

static void on_check_late(uv_timer_t *timer)
{
    struct check *k = timer->data;

    check_kill(k);
    error_send(
        k->all, k->ask, k->wall_ms,
        "the check did not end within 15 s: a file system or the account database of the node may hang");
    check_end(k);
}

/* ---- the process */

/* The question as a file for the process's stdin. Returns its descriptor; -1: failed, with the reason in *e.
 */
static int ask_to_file(const Ddp__V1__CheckAsk *ask, struct err *e)
{
    CLEANUP(buf_release) struct buf packed = {0};
    CLEANUP(close_fd) int fd = -1;
    int out;

    if (rpc_pack(ask, &packed, e))
        return -1;
    fd = memfd_create("ask", MFD_CLOEXEC);
    if (fd < 0 || write(fd, packed.data, packed.len) != (ssize_t)packed.len || lseek(fd, 0, SEEK_SET)) {
        err_sys(e, errno, "memfd");
        return -1;
    }
    out = fd;
    fd = -1;
    return out;
}

static int check_attributes_set(posix_spawn_file_actions_t *files, posix_spawnattr_t *attr, int in, int out)
{
    sigset_t none, all;
    int rc = posix_spawn_file_actions_adddup2(files, in, 0);

    sigemptyset(&none);
    sigfillset(&all);
    rc = rc ? rc : posix_spawn_file_actions_adddup2(files, out, 1);
    rc = rc ? rc : posix_spawn_file_actions_addclosefrom_np(files, 3);
    rc = rc ? rc : posix_spawnattr_setsigmask(attr, &none);
    rc = rc ? rc : posix_spawnattr_setsigdefault(attr, &all);
    return rc ? rc : posix_spawnattr_setflags(attr, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
}

/* The process itself looks the user's account up, because the account database may hang, too. */
static int check_spawn(const struct check_server *c, const Ddp__V1__CheckAsk *ask, int in, int out,
                       pid_t *pid)
{
    const char *node = c->options.submitter_on, *user = node ? ask->user : c->options.user;
    CLEANUP(free_text) char *first = xasprintf("%d", c->options.port_first);
    CLEANUP(free_text) char *last = xasprintf("%d", c->options.port_last);
    char *argv[] = {(char *)"ddp-agent",
                    (char *)"check",
                    (char *)(user ? user : "-"),
                    (char *)(node ? node : "-"),
                    first,
                    last,
                    (char *)c->options.coordinator,
                    NULL};
    char **env = environment_base(c->options.settings, user ? NULL : c->options.own, c->options.inherited);
    char *const nothing[] = {NULL};
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attr;
    int rc;

    posix_spawn_file_actions_init(&files);
    posix_spawnattr_init(&attr);
    rc = check_attributes_set(&files, &attr, in, out);
    if (!rc)
        rc = posix_spawn(pid, "/proc/self/exe", &files, &attr, argv, env ? env : nothing);
    posix_spawn_file_actions_destroy(&files);
    posix_spawnattr_destroy(&attr);
    strv_free(env);
    return rc;
}

static void check_follow(struct check_server *c, const Ddp__V1__CheckAsk *ask, int64_t wall_ms, pid_t pid,
                         int fd)
{
    struct check *k = xcalloc(1, sizeof(*k));

    *k = (struct check){.all = c, .ask = ask->ask, .wall_ms = wall_ms, .next = c->list};
    k->pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
    if (k->next)
        k->next->prev = k;
    c->list = k;
    c->count++;
    BUG_ON(uv_pipe_init(c->loop, &k->pipe, 0) || uv_timer_init(c->loop, &k->timer));
    k->pipe.data = k->timer.data = k;
    BUG_ON(uv_pipe_open(&k->pipe, fd) ||
           uv_read_start((uv_stream_t *)&k->pipe, on_check_room, on_check_read));
    BUG_ON(uv_timer_start(&k->timer, on_check_late, ANSWER_MS, 0));
}

static enum err_code check_start(struct check_server *c, const Ddp__V1__CheckAsk *ask, int64_t wall_ms,
                                 struct err *e)
{
    CLEANUP(close_fd) int in = -1;
    CLEANUP(close_fd) int out = -1;
    int fds[2], rc;
    pid_t pid;

    /* each check is a process: users must not be able to fill the node with them */
    if (c->count >= CHECKS_MAX)
        return err_set(e, ERR_RESOURCE_EXHAUSTED, "too many checks at the same time: try again later");
    in = ask_to_file(ask, e);
    if (in < 0)
        return e->code;
    if (pipe2(fds, O_CLOEXEC))
        return err_sys(e, errno, "pipe");
    out = fds[1];
    rc = check_spawn(c, ask, in, out, &pid);
    if (rc) {
        close(fds[0]);
        return err_sys(e, rc, "ddp-agent check");
    }
    check_follow(c, ask, wall_ms, pid, fds[0]);
    return ERR_OK;
}

struct check_server *check_server_create(struct uv_loop_s *loop, const struct check_server_options *options)
{
    struct check_server *c = xcalloc(1, sizeof(*c));

    c->options = *options;
    c->loop = loop;
    return c;
}

void check_server_ask(struct check_server *c, const Ddp__V1__CheckAsk *ask)
{
    int64_t wall_ms = clock_wall_ms();
    struct err e;

    if (check_start(c, ask, wall_ms, &e))
        error_send(c, ask->ask, wall_ms, e.msg);
}

void check_server_close(struct check_server *c)
{
    if (!c)
        return;
    c->closing = true;
    for (struct check *k = c->list; k; k = k->next) {
        check_kill(k);
        check_end(k);
    }
    server_maybe_free(c);
}
