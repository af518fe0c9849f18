/* Forming a group: the id names a socket on which rank 0 listens. Every other rank connects and sends its rank and
 * version. When all have come, rank 0 tells them to begin, or that their versions differ. */
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "internal.h"

enum { MOST_IDS = 64 };
struct hello {
    int32_t rank, version;
};

static struct {
    pthread_mutex_t lock;
    struct {
        ncclUniqueId id;
        int fd; /* 0: free */
    } made[MOST_IDS];
} ids = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* A file if a directory is given, because abstract socket names are local to a network namespace. */
static socklen_t address_of(struct sockaddr_un *out, const ncclUniqueId *id)
{
    const char *directory = getenv("DDP_STANDIN_NCCL_DIR");

    *out = (struct sockaddr_un){.sun_family = AF_UNIX};
    if (directory)
        snprintf(out->sun_path, sizeof(out->sun_path), "%s/%.40s", directory, id->internal);
    else
        memcpy(out->sun_path + 1, id->internal, 40);
    return directory ? sizeof(*out) : offsetof(struct sockaddr_un, sun_path) + 41;
}

void standin_close_listener(struct ncclComm *c)
{
    struct sockaddr_un at;

    if (c->listener < 0)
        return;
    close(c->listener);
    c->listener = -1;
    address_of(&at, &c->id);
    if (at.sun_path[0])
        unlink(at.sun_path);
}

ncclResult_t ncclGetUniqueId(ncclUniqueId *id)
{
    struct sockaddr_un at;
    unsigned long long random[2];
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    memset(id, 0, sizeof(*id));
    if (fd < 0 || getrandom(random, sizeof(random), 0) != sizeof(random))
        return ncclSystemError;
    snprintf(id->internal, sizeof(id->internal), "nccl-%016llx%016llx", random[0], random[1]);
    socklen_t size = address_of(&at, id);
    if (bind(fd, (struct sockaddr *)&at, size) || listen(fd, 64)) {
        close(fd);
        return ncclSystemError;
    }
    pthread_mutex_lock(&ids.lock);
    for (int i = 0; i < MOST_IDS; i++)
        if (!ids.made[i].fd) {
            ids.made[i].id = *id;
            ids.made[i].fd = fd;
            fd = -1;
            break;
        }
    pthread_mutex_unlock(&ids.lock);
    if (fd < 0)
        return ncclSuccess;
    close(fd);
    return ncclInternalError;
}

int standin_take_listener(const ncclUniqueId *id)
{
    int fd = -1;

    pthread_mutex_lock(&ids.lock);
    for (int i = 0; i < MOST_IDS && fd < 0; i++)
        if (ids.made[i].fd && memcmp(&ids.made[i].id, id, sizeof(*id)) == 0) {
            fd = ids.made[i].fd;
            ids.made[i].fd = 0;
        }
    pthread_mutex_unlock(&ids.lock);
    return fd;
}

/* ---- rank 0 */

static void comm_fail(struct ncclComm *c, ncclResult_t rc)
{
    atomic_store(&c->state, rc);
}

static bool all_here(const struct ncclComm *c)
{
    for (int r = 1; r < c->ranks; r++)
        if (c->peers[r].fd < 0)
            return false;
    return true;
}

/* A message this short arrives in one piece. */
static void peer_welcome(struct ncclComm *c, int fd)
{
    struct hello h;

    if (recv(fd, &h, sizeof(h), MSG_WAITALL) != sizeof(h) || h.rank < 1 || h.rank >= c->ranks ||
        c->peers[h.rank].fd >= 0) {
        close(fd);
        return;
    }
    c->peers[h.rank].fd = fd;
    if (h.version != standin_version())
        c->refused = 1;
}

static void peers_gather(struct ncclComm *c)
{
    bool lost = false;
    int fd;

    while (!all_here(c)) {
        fd = accept4(c->listener, NULL, NULL, SOCK_CLOEXEC);
        if (fd < 0)
            return;
        peer_welcome(c, fd);
    }
    for (int r = 1; r < c->ranks; r++) {
        char verdict = (char)!c->refused;
        lost |= send(c->peers[r].fd, &verdict, 1, MSG_NOSIGNAL) != 1;
    }
    standin_close_listener(c);
    comm_fail(c, lost ? ncclRemoteError : c->refused ? ncclInvalidUsage : ncclSuccess);
}

/* ---- the others */

static void root_reach(struct ncclComm *c)
{
    struct sockaddr_un at;
    struct hello h = {c->rank, standin_version()};
    socklen_t size = address_of(&at, &c->id);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (fd < 0 || connect(fd, (struct sockaddr *)&at, size) ||
        send(fd, &h, sizeof(h), MSG_NOSIGNAL) != sizeof(h)) {
        if (fd >= 0)
            close(fd);
        comm_fail(c, ncclRemoteError);
        return;
    }
    c->peers[0].fd = fd;
}

static void root_hear(struct ncclComm *c)
{
    char verdict = 0;
    ssize_t n = recv(c->peers[0].fd, &verdict, 1, MSG_DONTWAIT);

    if (n < 0 && errno == EAGAIN)
        return;
    comm_fail(c, n != 1 ? ncclRemoteError : verdict ? ncclSuccess : ncclInvalidUsage);
}

void standin_form(struct ncclComm *c)
{
    if (standin_fault("late-init") || atomic_load(&c->state) != ncclInProgress)
        return;
    standin_die("killed-forming");
    if (standin_fault("init-fails"))
        comm_fail(c, ncclSystemError);
    else if (c->ranks == 1)
        comm_fail(c, ncclSuccess);
    else if (c->rank == 0)
        peers_gather(c);
    else if (c->peers[0].fd < 0)
        root_reach(c);
    else
        root_hear(c);
    c->formed = atomic_load(&c->state) == ncclSuccess;
}
