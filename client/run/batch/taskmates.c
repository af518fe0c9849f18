#include "client/run/batch/taskmates.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"

#define LEADER_MS 60000 /* for the leader's own start */
#define MATES_MS 30000  /* for the others' */
#define LOOK_MS 20
#define BACKLOG 1024

/* The path begins with a zero byte: an abstract name, which disappears with its last descriptor. */
static socklen_t taskmates_address(const char *name, struct sockaddr_un *address)
{
    *address = (struct sockaddr_un){.sun_family = AF_UNIX};
    int length = snprintf(address->sun_path + 1, sizeof(address->sun_path) - 1, "ddp-run/%u/%s",
                          (unsigned)geteuid(), name);
    size_t most = sizeof(address->sun_path) - 2;
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 +
                       ((size_t)length < most ? (size_t)length : most));
}

/* Any user may bind or connect to an abstract name, so the peer's uid is checked. */
static bool taskmates_is_own_user(int fd)
{
    struct ucred peer;
    socklen_t size = sizeof(peer);
    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.uid == geteuid();
}

enum err_code taskmates_lead(struct taskmates *t, const char *name, int64_t mates, struct err *e)
{
    struct sockaddr_un address;
    socklen_t length = taskmates_address(name, &address);
    CLEANUP(close_fd) int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    *t = (struct taskmates){.fd = -1, .most = mates, .until_ms = clock_boot_ms() + MATES_MS};
    if (fd < 0)
        return err_sys(e, errno, "socket");
    if (bind(fd, (const struct sockaddr *)&address, length) != 0) {
        if (errno == EADDRINUSE)
            return err_set(e, ERR_FAILED_PRECONDITION, "another ddpctl run of %s leads on this node", name);
        return err_sys(e, errno, "bind %s", name);
    }
    if (listen(fd, BACKLOG) != 0)
        return err_sys(e, errno, "listen %s", name);
    t->fd = fd;
    fd = -1;
    return ERR_OK;
}

static bool taskmates_wait_readable(int fd, int64_t deadline_ms)
{
    struct pollfd wait = {.fd = fd, .events = POLLIN};
    while (true) {
        int64_t left = deadline_ms - clock_boot_ms();
        int rc = poll(&wait, 1, left > 0 ? (int)left : 0);
        if (rc > 0 || (rc == 0 && left <= 0))
            return rc > 0;
        if (rc < 0 && errno != EINTR)
            return false;
    }
}

/* Accepts all tasks and closes the listening socket before it answers the first one: a task that has its
 * answer may start another run under the same name. */
void taskmates_end(struct taskmates *t, int code)
{
    int64_t deadline = t->most < 0 ? 0 : t->until_ms;
    size_t count = 0, cap = 0;
    int32_t word = code;
    int *mates = NULL;
    while (t->fd >= 0 && (t->most < 0 || (int64_t)count < t->most) &&
           taskmates_wait_readable(t->fd, deadline)) {
        int fd = accept4(t->fd, NULL, NULL, SOCK_CLOEXEC);
        if (fd < 0)
            continue;
        if (!taskmates_is_own_user(fd)) {
            close(fd);
            continue;
        }
        mates = array_grow(mates, count, &cap, sizeof(*mates));
        mates[count++] = fd;
    }
    close_fd(&t->fd);
    for (size_t i = 0; i < count; i++) {
        ssize_t sent = send(mates[i], &word, sizeof(word), MSG_NOSIGNAL);
        (void)sent; /* a task that was killed meanwhile needs no answer */
        close(mates[i]);
    }
    free(mates);
    t->fd = -1;
}

static void taskmates_ignore_signals(void)
{
    static const int signals[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2};
    struct sigaction action = {.sa_handler = SIG_IGN};
    sigemptyset(&action.sa_mask);
    for (size_t i = 0; i < ARRAY_LEN(signals); i++)
        sigaction(signals[i], &action, NULL);
}

enum err_code taskmates_follow(const char *name, int *code, struct err *e)
{
    struct sockaddr_un address;
    socklen_t length = taskmates_address(name, &address);
    int64_t deadline = clock_boot_ms() + LEADER_MS;
    CLEANUP(close_fd) int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int32_t word;
    taskmates_ignore_signals();
    if (fd < 0)
        return err_sys(e, errno, "socket");
    /* The leader may start later than this task: connect until it listens. */
    while (connect(fd, (const struct sockaddr *)&address, length) != 0) {
        if (errno != ECONNREFUSED && errno != EAGAIN && errno != EINTR)
            return err_sys(e, errno, "connect to %s", name);
        if (clock_boot_ms() > deadline)
            return err_set(e, ERR_UNAVAILABLE, "the first task of %s on this node did not start within %d s",
                           name, LEADER_MS / 1000);
        poll(NULL, 0, LOOK_MS);
    }
    if (!taskmates_is_own_user(fd))
        return err_set(e, ERR_PERMISSION_DENIED, "another user leads %s on this node", name);
    ssize_t size;
    while ((size = recv(fd, &word, sizeof(word), MSG_WAITALL)) < 0 && errno == EINTR)
        continue;
    if (size != sizeof(word))
        return err_set(e, ERR_UNAVAILABLE, "the first task of %s on this node was killed", name);
    *code = word;
    return ERR_OK;
}
