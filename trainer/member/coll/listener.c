#include "trainer/member/coll/listener.h"

#include "trainer/member/coll/group.h"

#include "base/crypto/id.h"
#include "base/mem.h"
#include "base/net/tcp_listen.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/* The wire format of an address: version, port (big-endian), length and text of the host, length (big-endian)
 * and text of the unix path. */
/* Also grows with the calls that ranks make of each other before the first step, once a release has had the number. */
#define ADDRESS_VERSION 6
#define BACKLOG 128

struct coll_listener {
    int tcp, local;
    struct coll_address address;
    pthread_mutex_t lock; /* guards group and aborted */
    /* The group that is forming or formed with this listener; NULL after it is closed. */
    struct coll_group *group;
    int64_t aborted; /* generations up to this number were aborted */
};

int coll_listener_tcp(const struct coll_listener *l)
{
    return l->tcp;
}

int coll_listener_unix(const struct coll_listener *l)
{
    return l->local;
}

enum err_code coll_listener_begin(struct coll_listener *l, struct coll_group *g, struct err *e)
{
    bool over;

    pthread_mutex_lock(&l->lock);
    BUG_ON(l->group);
    l->group = g;
    over = g->generation <= l->aborted;
    pthread_mutex_unlock(&l->lock);
    return over ? coll_stopped(e) : ERR_OK;
}

void coll_listener_end(struct coll_listener *l)
{
    pthread_mutex_lock(&l->lock);
    l->group = NULL;
    pthread_mutex_unlock(&l->lock);
}

void coll_listener_abort(struct coll_listener *l, int64_t generation)
{
    pthread_mutex_lock(&l->lock);
    if (generation > l->aborted)
        l->aborted = generation;
    if (l->group)
        coll_abort(l->group, generation);
    pthread_mutex_unlock(&l->lock);
}

/* Sets *out to the address of a unix socket. If the path is longer than sun_path, the socket is reached
 * through a descriptor of its directory, *dir, which the caller closes after bind or connect. */
static enum err_code unix_name(struct sockaddr_un *out, const char *path, int *dir, struct err *e)
{
    const char *slash = strrchr(path, '/');

    memset(out, 0, sizeof(*out));
    out->sun_family = AF_UNIX;
    if (strlen(path) < sizeof(out->sun_path)) {
        memcpy(out->sun_path, path, strlen(path) + 1);
        return ERR_OK;
    }
    CLEANUP(free_text) char *parent = strndup(path, (size_t)(slash - path));
    *dir = open(parent, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (*dir < 0)
        return err_sys(e, errno, "%s", parent);
    if ((size_t)snprintf(out->sun_path, sizeof(out->sun_path), "/proc/self/fd/%d%s", *dir, slash) >=
        sizeof(out->sun_path))
        return err_set(e, ERR_INVALID_ARGUMENT, "%s: the file name is too long for a socket", path);
    return ERR_OK;
}

static enum err_code listen_unix(struct coll_listener *l, const char *directory, struct err *e)
{
    CLEANUP(close_fd) int dir = -1;
    struct sockaddr_un name;
    char id[ID_TEXT], path[sizeof(l->address.path)];

    if (directory[0] != '/')
        return err_set(e, ERR_INVALID_ARGUMENT, "%s: the directory must be an absolute path", directory);
    id_text(id);
    if ((size_t)snprintf(path, sizeof(path), "%s/coll-%.12s", directory, id) >= sizeof(path))
        return err_set(e, ERR_INVALID_ARGUMENT, "%s: the path is too long", directory);
    if (unix_name(&name, path, &dir, e))
        return e->code;
    l->local = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (l->local < 0)
        return err_sys(e, errno, "socket");
    if (bind(l->local, (struct sockaddr *)&name, sizeof(name)) || listen(l->local, BACKLOG))
        return err_sys(e, errno, "socket in %s", directory);
    memcpy(l->address.path, path, sizeof(path));
    return ERR_OK;
}

static enum err_code listen_tcp(struct coll_listener *l, const char *host, struct err *e)
{
    CLEANUP(tcp_free_info) struct addrinfo *at = NULL;
    size_t size = strlen(host);

    if (host[0] == '[' && host[size - 1] == ']') {
        host++;
        size -= 2;
    }
    if (size == 0 || size >= sizeof(l->address.host))
        return err_set(e, ERR_INVALID_ARGUMENT, "invalid address of this node: '%s'", host);
    memcpy(l->address.host, host, size);
    /* Peers could not resolve the name either. */
    if (tcp_resolve_host(&at, l->address.host, 0, e))
        return err_wrap(e, "address of this node");
    if (tcp_bind_host(&l->tcp, l->address.host, 0, e))
        return e->code;
    if (listen(l->tcp, BACKLOG))
        return err_sys(e, errno, "listen on %s", l->address.host);
    l->address.port = tcp_bound_port(l->tcp);
    return ERR_OK;
}

enum err_code coll_listen(struct coll_listener **out, const char *host, const char *directory, struct err *e)
{
    struct coll_listener *l = xcalloc(1, sizeof(*l));

    l->aborted = INT64_MIN;
    pthread_mutex_init(&l->lock, NULL);
    l->tcp = l->local = -1;
    if (listen_tcp(l, host ? host : "127.0.0.1", e) || (directory && listen_unix(l, directory, e))) {
        coll_listener_free(l);
        return err_wrap(e, "collectives");
    }
    *out = l;
    return ERR_OK;
}

void coll_listener_free(struct coll_listener *l)
{
    if (!l)
        return;
    BUG_ON(l->group);
    if (l->address.path[0])
        unlink(l->address.path);
    close_fd(&l->tcp);
    close_fd(&l->local);
    pthread_mutex_destroy(&l->lock);
    free(l);
}

size_t coll_listener_address(const struct coll_listener *l, uint8_t *out, size_t cap)
{
    size_t host = strlen(l->address.host), path = strlen(l->address.path), size = 6 + host + path;
    uint8_t *p = out;

    BUG_ON(size > COLL_MAX_ADDRESS || size > cap);
    *p++ = ADDRESS_VERSION;
    *p++ = (uint8_t)(l->address.port >> 8);
    *p++ = (uint8_t)l->address.port;
    *p++ = (uint8_t)host;
    memcpy(p, l->address.host, host);
    p += host;
    *p++ = (uint8_t)(path >> 8);
    *p++ = (uint8_t)path;
    memcpy(p, l->address.path, path);
    return size;
}

enum err_code coll_address_decode(struct coll_address *out, const uint8_t *data, size_t size, struct err *e)
{
    size_t host, path;

    memset(out, 0, sizeof(*out));
    if (size < 6 || data[0] != ADDRESS_VERSION)
        return err_set(e, ERR_INVALID_ARGUMENT,
                       "is from another version of ddp-trainer: install the same version on all nodes");
    host = data[3];
    if (host >= sizeof(out->host) || size < 6 + host)
        return err_set(e, ERR_INVALID_ARGUMENT, "is truncated");
    path = (size_t)data[4 + host] << 8 | data[5 + host];
    if (path >= sizeof(out->path) || size != 6 + host + path)
        return err_set(e, ERR_INVALID_ARGUMENT, "is truncated");
    out->port = (uint16_t)(data[1] << 8 | data[2]);
    memcpy(out->host, data + 4, host);
    memcpy(out->path, data + 6 + host, path);
    if (memchr(out->host, 0, host) || memchr(out->path, 0, path) || (path && out->path[0] != '/'))
        return err_set(e, ERR_INVALID_ARGUMENT, "has an invalid host or path");
    return ERR_OK;
}

static enum err_code start_connect(int *fd, int family, const void *name, socklen_t size, const char *what,
                                   struct err *e)
{
    int s = socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    if (s < 0)
        return err_sys(e, errno, "socket");
    if (connect(s, name, size) && errno != EINPROGRESS) {
        int why = errno;

        close(s);
        return err_sys(e, why, "connect to %s", what);
    }
    *fd = s;
    return ERR_OK;
}

enum err_code coll_connect_tcp(int *fd, const struct coll_address *to, struct err *e)
{
    CLEANUP(tcp_free_info) struct addrinfo *at = NULL;

    if (tcp_resolve_host(&at, to->host, to->port, e))
        return e->code;
    return start_connect(fd, at->ai_family, at->ai_addr, at->ai_addrlen, to->host, e);
}

enum err_code coll_connect_unix(int *fd, const struct coll_address *to, struct err *e)
{
    CLEANUP(close_fd) int dir = -1;
    struct sockaddr_un name;

    if (unix_name(&name, to->path, &dir, e))
        return e->code;
    return start_connect(fd, AF_UNIX, &name, sizeof(name), to->path, e);
}
