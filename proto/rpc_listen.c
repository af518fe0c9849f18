#include "proto/rpc_listen.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <grpc/grpc_posix.h>
#include <grpc/grpc_security.h>

#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "proto/rpc_server_state.h"

/* Unix sockets are accepted here, not by gRPC: gRPC would silently take over the path of a live server,
 * and does not tell which process is at the other end. The accepted descriptor is given to gRPC, which
 * calls the peer "fd:N" from then on; this module has recorded the uid behind N before. A later connection
 * may get the same number while calls of the former are still queued. Since only the server's own uid and
 * root may connect, such a mix-up gives nobody a right that they did not have. */

#define ACCEPT_TURN 64

static enum err_code directory_check(const char *path, struct err *e)
{
    CLEANUP(free_text) char *copy = xstrdup(path);
    const char *dir = dirname(copy);
    struct stat st;

    if (file_mkdirs(dir, 0700, e))
        return e->code;
    if (stat(dir, &st))
        return err_sys(e, errno, "%s", dir);
    if (st.st_uid != geteuid() || (st.st_mode & 077))
        return err_set(
            e, ERR_FAILED_PRECONDITION,
            "%s: the directory of a unix socket must belong to you and be closed to others: run `chmod 700 %s`",
            dir, dir);
    return ERR_OK;
}

static enum err_code socket_bind(const char *path, int *out, struct err *e)
{
    CLEANUP(close_fd) int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    mode_t mask;
    int failed;

    if (fd < 0)
        return err_sys(e, errno, "socket");
    memcpy(address.sun_path, path, strlen(path) + 1);
    if (unlink(path) && errno != ENOENT)
        return err_sys(e, errno, "unlink %s", path);
    mask = umask(0177);
    failed = bind(fd, (struct sockaddr *)&address, sizeof(address));
    umask(mask);
    if (failed || listen(fd, 512))
        return err_sys(e, errno, "listen on unix:%s", path);
    *out = fd;
    fd = -1;
    return ERR_OK;
}

static void listener_free(struct rpc_listener *listener)
{
    close_fd(&listener->fd);
    close_fd(&listener->lock_fd);
    close_fd(&listener->spare_fd);
    free(listener->path);
    free(listener);
}

enum err_code rpc_server_listen_unix(struct rpc_server *server, const char *path, struct err *e)
{
    CLEANUP(free_text) char *lock = xasprintf("%s.lock", path);
    struct rpc_listener *listener;

    if (path[0] != '/' || strlen(path) >= sizeof(((struct sockaddr_un *)0)->sun_path))
        return err_set(e, ERR_INVALID_ARGUMENT,
                       "'%s': a unix socket needs an absolute path of less than 108 bytes", path);
    if (directory_check(path, e))
        return e->code;
    listener = xcalloc(1, sizeof(*listener));
    listener->server = server;
    listener->fd = listener->lock_fd = -1;
    listener->spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    listener->path = xstrdup(path);
    if (file_lock(lock, &listener->lock_fd, e) || socket_bind(path, &listener->fd, e)) {
        listener_free(listener);
        return e->code;
    }
    listener->next = server->listeners;
    server->listeners = listener;
    return ERR_OK;
}

/* ---- accepting ---- */

static void peer_remember(struct rpc_server *server, int fd, const struct ucred *who)
{
    size_t need = (size_t)fd + 1;

    if (need > server->unix_peer_count) {
        size_t count = need < 64 ? 64 : need * 2;

        server->unix_peers = xrealloc(server->unix_peers, count * sizeof(*server->unix_peers));
        memset(server->unix_peers + server->unix_peer_count, 0xff,
               (count - server->unix_peer_count) * sizeof(*server->unix_peers));
        server->unix_peer_count = count;
    }
    server->unix_peers[fd] = (struct unix_peer){.uid = who->uid, .pid = who->pid};
}

bool rpc_unix_peer(const struct rpc_server *server, int fd, struct unix_peer *out)
{
    if (fd < 0 || (size_t)fd >= server->unix_peer_count || server->unix_peers[fd].uid == (uid_t)-1)
        return false;
    *out = server->unix_peers[fd];
    return true;
}

static void connection_add(struct rpc_listener *listener, int fd)
{
    struct rpc_server *server = listener->server;
    grpc_server_credentials *creds;
    struct ucred who;
    socklen_t len = sizeof(who);

    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &len) || (who.uid != geteuid() && who.uid != 0)) {
        log_warn("connection_refused", "socket=%s why=\"another user's\"", LOG_Q(listener->path));
        close(fd);
        return;
    }
    peer_remember(server, fd, &who);
    creds = grpc_insecure_server_credentials_create();
    grpc_server_add_channel_from_fd(server->grpc, fd, creds);
    grpc_server_credentials_release(creds);
}

const char *rpc_no_descriptors(bool of_system)
{
    return of_system ? "the machine is out of descriptors: raise the sysctl fs.file-max"
                     : "the process is out of descriptors: raise LimitNOFILE (ulimit -n)";
}

/* Out of descriptors: the loop would spin on the waiting connection. So the spare descriptor is closed for
 * a moment to accept the connection and close it. */
static void connection_turn_away(struct rpc_listener *listener, bool of_system)
{
    int fd;

    close_fd(&listener->spare_fd);
    fd = accept4(listener->fd, NULL, NULL, SOCK_CLOEXEC);
    close_fd(&fd);
    listener->spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    log_warn("connection_refused", "socket=%s why=\"%s\"", LOG_Q(listener->path),
             rpc_no_descriptors(of_system));
}

static void listener_readable(uv_poll_t *poll, int status, int events)
{
    struct rpc_listener *listener = poll->data;

    (void)status;
    (void)events;
    for (int i = 0; i < ACCEPT_TURN; i++) {
        int fd = accept4(listener->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

        if (fd >= 0)
            connection_add(listener, fd);
        else if (errno == EMFILE || errno == ENFILE)
            connection_turn_away(listener, errno == ENFILE);
        else if (errno != EINTR && errno != ECONNABORTED)
            return;
    }
}

void rpc_listener_start(struct rpc_listener *listener)
{
    int failed = uv_poll_init(listener->server->options.loop, &listener->poll, listener->fd);

    BUG_ON(failed);
    listener->poll.data = listener;
    listener->polling = true;
    failed = uv_poll_start(&listener->poll, UV_READABLE, listener_readable);
    BUG_ON(failed);
}

static void poll_closed(uv_handle_t *handle)
{
    struct rpc_listener *listener = handle->data;
    struct rpc_server *server = listener->server;

    listener_free(listener);
    rpc_server_handle_closed(server);
}

void rpc_listeners_close(struct rpc_server *server)
{
    while (server->listeners) {
        struct rpc_listener *listener = server->listeners;

        server->listeners = listener->next;
        unlink(listener->path);
        if (!listener->polling) {
            listener_free(listener);
            continue;
        }
        server->closing++;
        uv_close((uv_handle_t *)&listener->poll, poll_closed);
    }
}
