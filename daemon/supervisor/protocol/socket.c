#include "daemon/supervisor/protocol/socket.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/mem.h"

#define SOCKET_NAME "control.sock"
#define SOCKET_TYPE (SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK)

/* A start order with a long environment must fit; root may exceed the system's limit. */
static void socket_widen(int fd)
{
    int size = CONTROL_MESSAGE_MAX * 2;

    if (setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &size, sizeof(size)))
        (void)setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));
}

/* *dirfd must stay open for as long as the address is used. */
static enum err_code socket_address(const char *dir, int *dirfd, struct sockaddr_un *out, struct err *e)
{
    *dirfd = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (*dirfd < 0)
        return err_sys(e, errno, "%s", dir);
    memset(out, 0, sizeof(*out));
    out->sun_family = AF_UNIX;
    snprintf(out->sun_path, sizeof(out->sun_path), "/proc/self/fd/%d/" SOCKET_NAME, *dirfd);
    return ERR_OK;
}

/* A new socket, and the address of the socket in dir. */
static enum err_code socket_prepare(const char *dir, int *fd, int *dirfd, struct sockaddr_un *at,
                                    struct err *e)
{
    *fd = socket(AF_UNIX, SOCKET_TYPE, 0);
    if (*fd < 0)
        return err_sys(e, errno, "control socket");
    return socket_address(dir, dirfd, at, e);
}

enum err_code control_listen(const char *dir, int *fd, struct err *e)
{
    CLEANUP(close_fd) int dirfd = -1;
    CLEANUP(close_fd) int s = -1;
    struct sockaddr_un at;

    if (socket_prepare(dir, &s, &dirfd, &at, e))
        return e->code;
    if (unlinkat(dirfd, SOCKET_NAME, 0) && errno != ENOENT)
        return err_sys(e, errno, "%s/" SOCKET_NAME, dir);
    if (bind(s, (struct sockaddr *)&at, sizeof(at)) || listen(s, 8))
        return err_sys(e, errno, "%s/" SOCKET_NAME, dir);
    if (fchmodat(dirfd, SOCKET_NAME, 0600, 0))
        return err_sys(e, errno, "%s/" SOCKET_NAME, dir);
    *fd = s;
    s = -1;
    return ERR_OK;
}

enum err_code control_connect(const char *dir, int *fd, struct err *e)
{
    CLEANUP(close_fd) int dirfd = -1;
    CLEANUP(close_fd) int s = -1;
    struct sockaddr_un at;

    if (socket_prepare(dir, &s, &dirfd, &at, e))
        return e->code;
    if (connect(s, (struct sockaddr *)&at, sizeof(at))) {
        if (errno == ECONNREFUSED || errno == EAGAIN)
            return err_set(e, ERR_UNAVAILABLE, "%s/" SOCKET_NAME ": nothing listens there", dir);
        return err_sys(e, errno, "%s/" SOCKET_NAME, dir);
    }
    socket_widen(s);
    *fd = s;
    s = -1;
    return ERR_OK;
}

enum err_code control_pair(int fds[2], struct err *e)
{
    if (socketpair(AF_UNIX, SOCKET_TYPE, 0, fds))
        return err_sys(e, errno, "control socket");
    socket_widen(fds[0]);
    socket_widen(fds[1]);
    return ERR_OK;
}

enum err_code control_accept(int listener, int *fd, struct err *e)
{
    CLEANUP(close_fd) int s = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    struct ucred peer;
    socklen_t size = sizeof(peer);

    if (s < 0)
        return errno == EAGAIN ? err_set(e, ERR_UNAVAILABLE, "no connection waits")
                               : err_sys(e, errno, "accept");
    if (getsockopt(s, SOL_SOCKET, SO_PEERCRED, &peer, &size))
        return err_sys(e, errno, "peer credentials");
    if (peer.uid != 0 && peer.uid != geteuid())
        return err_set(e, ERR_PERMISSION_DENIED, "control connection from uid %u", (unsigned)peer.uid);
    socket_widen(s);
    *fd = s;
    s = -1;
    return ERR_OK;
}

enum err_code control_send_text(int fd, const char *text, size_t len, struct err *e)
{
    ssize_t n;

    if (len > CONTROL_MESSAGE_MAX)
        return err_set(e, ERR_RESOURCE_EXHAUSTED, "command and environment are too large (%zu bytes)", len);
    do
        n = send(fd, text, len, MSG_NOSIGNAL | MSG_DONTWAIT);
    while (n < 0 && errno == EINTR);
    if (n >= 0)
        return ERR_OK;
    if (errno == EAGAIN || errno == ENOBUFS)
        return err_set(e, ERR_UNAVAILABLE, "the control socket is full");
    if (errno == EMSGSIZE)
        return err_set(e, ERR_RESOURCE_EXHAUSTED, "command and environment are too large (%zu bytes)", len);
    return err_set(e, ERR_ABORTED, "control socket: %s", strerror(errno));
}

enum err_code control_send(int fd, const struct control_message *m, struct err *e)
{
    CLEANUP(buf_release) struct buf text = {0};

    control_encode(m, &text);
    return control_send_text(fd, text.data, text.len, e);
}

enum err_code control_receive(int fd, struct control_message *out, struct err *e)
{
    CLEANUP(free_text) char *text = NULL;
    ssize_t n;

    memset(out, 0, sizeof(*out));
    do
        n = recv(fd, NULL, 0, MSG_PEEK | MSG_TRUNC | MSG_DONTWAIT);
    while (n < 0 && errno == EINTR);
    if (n < 0 && errno == EAGAIN)
        return err_set(e, ERR_UNAVAILABLE, "no message waits");
    if (n <= 0)
        return err_set(e, ERR_ABORTED, "control socket: %s", n ? strerror(errno) : "closed");
    text = xmalloc((size_t)n);
    n = recv(fd, text, (size_t)n, MSG_DONTWAIT);
    if (n <= 0)
        return err_set(e, ERR_ABORTED, "control socket: %s", n ? strerror(errno) : "closed");
    return control_decode(out, text, (size_t)n, e);
}
