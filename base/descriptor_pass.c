#include "base/descriptor_pass.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include "base/mem.h"

union descriptor_space {
    struct cmsghdr align;
    char bytes[CMSG_SPACE(DESCRIPTORS_MOST * sizeof(int))];
};

enum err_code descriptors_send(int socket, const struct descriptor_message *m, struct err *e)
{
    union descriptor_space space = {0};
    struct iovec part = {.iov_base = m->data, .iov_len = m->len};
    struct msghdr header = {.msg_iov = &part, .msg_iovlen = 1};
    ssize_t n;

    BUG_ON(m->count > DESCRIPTORS_MOST || !m->len);
    if (m->count) {
        struct cmsghdr *rights;

        header.msg_control = space.bytes;
        header.msg_controllen = CMSG_SPACE(m->count * sizeof(int));
        rights = CMSG_FIRSTHDR(&header);
        rights->cmsg_level = SOL_SOCKET;
        rights->cmsg_type = SCM_RIGHTS;
        rights->cmsg_len = CMSG_LEN(m->count * sizeof(int));
        memcpy(CMSG_DATA(rights), m->fds, m->count * sizeof(int));
    }
    do
        n = sendmsg(socket, &header, MSG_NOSIGNAL | MSG_DONTWAIT);
    while (n < 0 && errno == EINTR);
    if (n >= 0)
        return ERR_OK;
    if (errno == EAGAIN || errno == ENOBUFS)
        return err_set(e, ERR_UNAVAILABLE, "the socket is full");
    return err_set(e, ERR_ABORTED, "socket: %s", strerror(errno));
}

enum err_code descriptors_receive(int socket, struct descriptor_message *m, struct err *e)
{
    union descriptor_space space = {0};
    struct iovec part = {.iov_base = m->data, .iov_len = m->len};
    struct msghdr header = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = space.bytes, .msg_controllen = sizeof(space.bytes)};
    ssize_t n;

    m->count = 0;
    do
        n = recvmsg(socket, &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    while (n < 0 && errno == EINTR);
    if (n < 0 && errno == EAGAIN)
        return err_set(e, ERR_UNAVAILABLE, "no message waits");
    if (n <= 0)
        return err_set(e, ERR_ABORTED, "socket: %s", n ? strerror(errno) : "closed");
    m->len = (size_t)n;
    for (struct cmsghdr *c = CMSG_FIRSTHDR(&header); c; c = CMSG_NXTHDR(&header, c)) {
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
            continue;
        m->count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        memcpy(m->fds, CMSG_DATA(c), m->count * sizeof(int));
    }
    return ERR_OK;
}
