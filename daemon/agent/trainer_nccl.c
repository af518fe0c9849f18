#include "daemon/agent/trainer_nccl.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"

#define DEADLINE_MS 30000 /* half a gigabyte of libraries from a cold disk */
#define ANSWER_MOST 65536

static enum err_code start(const char *trainer, int out, pid_t *pid, struct err *e)
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

/* False: it took too long, or says more than it should. */
static bool read_all(int fd, struct buf *text)
{
    int64_t end = clock_boot_ms() + DEADLINE_MS, left;

    while ((left = end - clock_boot_ms()) > 0 && text->len < ANSWER_MOST) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        char piece[4096];
        if (poll(&p, 1, (int)left) <= 0)
            continue;
        ssize_t n = read(fd, piece, sizeof(piece));
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n == 0;
        buf_append(text, piece, (size_t)n);
    }
    return false;
}

static enum err_code ask(const char *trainer, struct buf *text, struct err *e)
{
    CLEANUP(close_fd) int in = -1;
    int ends[2], status;
    pid_t pid;

    if (pipe2(ends, O_CLOEXEC))
        return err_sys(e, errno, "pipe");
    in = ends[0];
    enum err_code code = start(trainer, ends[1], &pid, e);
    close(ends[1]);
    if (code)
        return code;
    bool whole = read_all(in, text);
    if (!whole)
        kill(pid, SIGKILL);
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    return whole ? ERR_OK : err_set(e, ERR_DEADLINE_EXCEEDED, "%s --plugin does not answer", trainer);
}

char *trainer_nccl(const char *trainer)
{
    CLEANUP(buf_release) struct buf text = {0};
    CLEANUP(json_release) json_t *said = NULL;
    struct err e;

    if (ask(trainer, &text, &e) || json_parse(text.data ? text.data : "", text.len, ANSWER_MOST, &said, &e)) {
        log_warn("no_plugin", "why=%s", LOG_Q(e.msg));
        return xstrdup("none");
    }
    const char *version = json_get_text(said, "nccl", NULL);
    if (version)
        log_info("plugin", "version=%s nccl=%s", LOG_Q(json_get_text(said, "version", "")), LOG_Q(version));
    else
        log_warn("no_plugin", "why=%s", LOG_Q(json_get_text(said, "why", "it has none")));
    return xstrdup(version ? version : "none");
}
