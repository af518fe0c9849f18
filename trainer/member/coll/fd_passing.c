/* Each rank sends its descriptor to the first rank of its node. That rank has a socket to every other rank,
 * and passes all descriptors on. A rank that could not allocate its memory sends an error instead of a
 * descriptor, so that all ranks fail in the same way. */
#include "trainer/member/coll/fd_passing.h"

#include "base/mem.h"
#include "trainer/member/coll/shm.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

union fd_control {
    char bytes[CMSG_SPACE(sizeof(int))];
    struct cmsghdr align;
};

static enum err_code peer_gone(struct coll_group *g, struct err *e)
{
    coll_fail(g);
    return coll_stopped(e);
}

static enum err_code wait_socket(struct coll_group *g, int sock, short events, struct err *e)
{
    struct pollfd p[2] = {{.fd = g->stop.event, .events = POLLIN}, {.fd = sock, .events = events}};

    if (poll(p, 2, -1) < 0 && errno != EINTR)
        return err_sys(e, errno, "poll");
    return p[0].revents & POLLIN ? coll_stopped(e) : ERR_OK;
}

static void message_attach_fd(struct msghdr *m, union fd_control *c, int fd)
{
    struct cmsghdr *h;

    memset(c, 0, sizeof(*c));
    m->msg_control = c->bytes;
    m->msg_controllen = sizeof(c->bytes);
    h = CMSG_FIRSTHDR(m);
    h->cmsg_level = SOL_SOCKET;
    h->cmsg_type = SCM_RIGHTS;
    h->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(h), &fd, sizeof(int));
}

enum err_code fd_send(struct coll_group *g, int sock, const struct fd_message *message, int fd, struct err *e)
{
    struct iovec iov = {.iov_base = (void *)(uintptr_t)message, .iov_len = sizeof(*message)};
    struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1};
    union fd_control control;

    if (fd >= 0)
        message_attach_fd(&m, &control, fd);
    for (;;) {
        ssize_t n = sendmsg(sock, &m, MSG_NOSIGNAL | MSG_DONTWAIT);

        if (n == (ssize_t)sizeof(*message))
            return ERR_OK;
        if (n >= 0 || (errno != EAGAIN && errno != EINTR))
            return peer_gone(g, e);
        if (wait_socket(g, sock, POLLOUT, e))
            return e->code;
    }
}

static int message_take_fd(struct msghdr *m)
{
    struct cmsghdr *h = CMSG_FIRSTHDR(m);
    int fd;

    if (!h || h->cmsg_level != SOL_SOCKET || h->cmsg_type != SCM_RIGHTS ||
        h->cmsg_len != CMSG_LEN(sizeof(int)))
        return -1;
    memcpy(&fd, CMSG_DATA(h), sizeof(int));
    return fd;
}

enum err_code fd_receive(struct coll_group *g, int sock, struct fd_message *message, int *fd, struct err *e)
{
    struct iovec iov = {.iov_base = message, .iov_len = sizeof(*message)};

    for (;;) {
        union fd_control control;
        struct msghdr m = {.msg_iov = &iov,
                           .msg_iovlen = 1,
                           .msg_control = control.bytes,
                           .msg_controllen = sizeof(control.bytes)};
        ssize_t n = recvmsg(sock, &m, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);

        if (n == (ssize_t)sizeof(*message)) {
            *fd = message_take_fd(&m);
            return ERR_OK;
        }
        if (n >= 0 || (errno != EAGAIN && errno != EINTR))
            return peer_gone(g, e);
        if (wait_socket(g, sock, POLLIN, e))
            return e->code;
    }
}

static enum err_code map_one(struct coll_array *a, int local, int fd, struct err *e)
{
    void *at = mmap(NULL, a->bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);

    if (at == MAP_FAILED)
        return err_set(e, ERR_RESOURCE_EXHAUSTED, "map %zu bytes of shared memory: %s", a->bytes,
                       strerror(errno));
    a->maps[local] = at;
    return ERR_OK;
}

/* One exchange of descriptors. If one rank has no memory, or an array of another size, all ranks fail. The
 * descriptors are still passed to every rank, so that no rank waits forever. The array takes over the
 * descriptors. */
struct sharing {
    struct coll_array *array;
    const struct device_array *mine;
    int local; /* this rank's local number */
    bool failed;
};

static void share_take(struct sharing *s, int local, const struct fd_message *message, int fd)
{
    CLEANUP(close_fd) int owned = fd;
    struct err e = {0};

    /* The sender has no memory, or its array is not the one that this rank shares. */
    if (message->failed || owned < 0 || message->bytes != s->array->bytes)
        s->failed = true;
    else if (local == s->local)
        s->array->maps[local] = s->mine->data; /* the owner's own mapping */
    else if (map_one(s->array, local, owned, &e))
        s->failed = true;
}

static void close_fds(int *fds, int count)
{
    for (int i = 0; i < count; i++)
        close_fd(&fds[i]);
    free(fds);
}

static enum err_code share_gather(struct coll_group *g, struct fd_message *messages, int *fds,
                                  const int *links, struct err *e)
{
    for (int i = 1; i < g->layout.locals; i++)
        if (fd_receive(g, links[i - 1], &messages[i], &fds[i], e))
            return e->code;
    for (int to = 1; to < g->layout.locals; to++)
        for (int i = 0; i < g->layout.locals; i++)
            if (fd_send(g, links[to - 1], &messages[i], fds[i], e))
                return e->code;
    return ERR_OK;
}

static enum err_code share_first(struct coll_group *g, struct sharing *s, const struct fd_message *mine,
                                 int fd, const int *links, struct err *e)
{
    size_t n = (size_t)g->layout.locals;
    struct fd_message *messages = xcalloc(n, sizeof(*messages));
    int *fds = xmalloc(n * sizeof(int));
    enum err_code rc;

    for (size_t i = 0; i < n; i++)
        fds[i] = -1;
    messages[0] = *mine;
    /* The array keeps its own descriptor, and this copy is closed with the others. */
    fds[0] = fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, 0);
    rc = share_gather(g, messages, fds, links, e);
    for (int i = 0; !rc && i < g->layout.locals; i++) {
        share_take(s, i, &messages[i], fds[i]);
        fds[i] = -1;
    }
    close_fds(fds, g->layout.locals);
    free(messages);
    return rc;
}

static enum err_code share_other(struct coll_group *g, struct sharing *s, const struct fd_message *mine,
                                 int fd, int link, struct err *e)
{
    if (fd_send(g, link, mine, fd, e))
        return e->code;
    for (int i = 0; i < g->layout.locals; i++) {
        struct fd_message message;
        int got = -1;

        if (fd_receive(g, link, &message, &got, e))
            return e->code;
        share_take(s, i, &message, got);
    }
    return ERR_OK;
}

/* If one rank of the node failed, all ranks return an error. They tell each other by their mailboxes. */
static enum err_code share_agree(struct coll_group *g, size_t bytes, bool failed, struct err *e)
{
    struct shm_intent intent = {.kind = SHM_ALLOC, .size = bytes};
    bool any = false;

    shm_begin(g);
    memcpy(shm_mail(g, g->layout.local), &failed, sizeof(failed));
    if (shm_meet(g, &intent, e))
        return e->code;
    for (int i = 0; i < g->layout.locals; i++) {
        bool theirs;

        memcpy(&theirs, shm_mail(g, i), sizeof(theirs));
        any |= theirs;
    }
    return any ? err_set(e, ERR_RESOURCE_EXHAUSTED, "a rank of this node does not have enough shared memory")
               : ERR_OK;
}

enum err_code fd_share_array(struct coll_group *g, struct coll_array *a, const struct device_array *mine,
                             struct err *e)
{
    int fd = mine ? mine->fd : -1, count;
    struct fd_message message = {.bytes = a->bytes, .failed = fd < 0};
    struct sharing s = {.array = a, .mine = mine, .local = g->layout.local};
    const int *links = shm_links(g, &count);
    enum err_code rc;

    a->maps = xcalloc((size_t)g->layout.locals, sizeof(*a->maps));
    rc = g->layout.local ? share_other(g, &s, &message, fd, links[0], e)
                         : share_first(g, &s, &message, fd, links, e);
    return rc ? rc : share_agree(g, a->bytes, s.failed, e);
}

void fd_unmap_array(const struct coll_group *g, struct coll_array *a)
{
    for (int i = 0; a->maps && i < g->layout.locals; i++)
        if (a->maps[i] && i != g->layout.local)
            munmap(a->maps[i], a->bytes);
}
