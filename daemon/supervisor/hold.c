#include "daemon/supervisor/hold.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/mem.h"

static int port_try_family(int family, const struct sockaddr *at, socklen_t size)
{
    CLEANUP(close_fd) int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int on = 1;

    if (fd < 0)
        return errno == EAFNOSUPPORT ? 0 : errno;
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (family == AF_INET6)
        (void)setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof(on));
    if (bind(fd, at, size) || listen(fd, 1))
        return errno;
    return 0;
}

static int port_is_taken(int port)
{
    struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_port = htons((uint16_t)port)};
    int rc = port_try_family(AF_INET, (struct sockaddr *)&v4, sizeof(v4));

    if (!rc)
        rc = port_try_family(AF_INET6, (struct sockaddr *)&v6, sizeof(v6));
    return rc == EADDRINUSE ? rc : 0; /* the command itself will report other errors */
}

enum err_code hold_port(int port, int *fd, struct err *e)
{
    CLEANUP(close_fd) int s = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    int n = snprintf(at.sun_path + 1, sizeof(at.sun_path) - 1, "ddp-port-%d", port);

    if (s < 0)
        return err_sys(e, errno, "port %d", port);
    if (bind(s, (struct sockaddr *)&at,
             (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n))) {
        if (errno == EADDRINUSE)
            return err_set(e, ERR_ALREADY_EXISTS, "port %d is held by another ddp job on this machine", port);
        return err_sys(e, errno, "port %d", port);
    }
    if (port_is_taken(port))
        return err_set(e, ERR_ALREADY_EXISTS, "port %d is in use", port);
    *fd = s;
    s = -1;
    return ERR_OK;
}

/* Users share the machine's devices, so all must use the same directory: the first in which everybody may write, even
 * if the caller may write in an earlier one. That is /run/lock on Debian, and /tmp where only root may write in
 * /run/lock. */
int hold_open_dir(const char *const *places, size_t count)
{
    struct stat st;

    for (size_t i = 0; i < count; i++) {
        int fd = open(places[i], O_RDONLY | O_DIRECTORY | O_CLOEXEC);

        if (fd >= 0 && !fstat(fd, &st) && (st.st_mode & S_IWOTH) && !faccessat(fd, ".", W_OK, AT_EACCESS))
            return fd;
        if (fd >= 0)
            close(fd);
    }
    return -1;
}

/* Opens an existing file without O_CREAT: in a sticky directory fs.protected_regular forbids that flag for
 * another user's file, whatever the file's mode. */
static int lock_file_open(int dir, const char *name)
{
    const int flags = O_RDWR | O_CLOEXEC | O_NOFOLLOW;
    int fd = openat(dir, name, flags);

    if (fd < 0 && errno == ENOENT) {
        fd = openat(dir, name, flags | O_CREAT | O_EXCL, 0666);
        /* It has the umask's mode: open it to all users. Only if this call has made it: another user could have moved or
         * linked some file of ours to this name. */
        if (fd >= 0)
            (void)fchmod(fd, 0666);
    }
    if (fd < 0 && errno == EEXIST) /* another process made it in between */
        fd = openat(dir, name, flags);
    return fd;
}

/* Returns 0 and the lock in *fd, or an errno and -1. EWOULDBLOCK: another process has the lock. */
static int lock_file_take(int dir, const char *uuid, const char *suffix, int how, int *fd)
{
    CLEANUP(free_text) char *name = xasprintf("ddp-%s%s.lock", uuid, suffix);
    int rc;

    *fd = -1;
    if (strchr(name, '/'))
        return EINVAL;
    *fd = lock_file_open(dir, name);
    if (*fd < 0)
        return errno;
    if (!flock(*fd, how | LOCK_NB))
        return 0;
    rc = errno;
    close(*fd);
    *fd = -1;
    return rc;
}

static int lock_file_take_slot(int dir, const char *uuid, int slots, int *fd)
{
    int rc = EWOULDBLOCK;

    for (int slot = 0; slot < slots && rc == EWOULDBLOCK; slot++) {
        char suffix[24];
        snprintf(suffix, sizeof(suffix), ".%d", slot);
        rc = lock_file_take(dir, uuid, suffix, LOCK_EX, fd);
    }
    return rc;
}

enum err_code hold_gpus(char *const *uuids, int slots, int fds[HOLD_FDS], struct err *e)
{
    static const char *const places[] = {"/run/lock", "/tmp"};
    CLEANUP(close_fd) int dir = -1;
    size_t count = strv_len(uuids);
    int *next = fds;

    *next = -1;
    if (!count)
        return ERR_OK;
    if (count > HOLD_GPUS_MAX)
        return err_set(e, ERR_INVALID_ARGUMENT, "expected at most %d GPUs for a worker, got %zu",
                       HOLD_GPUS_MAX, count);
    dir = hold_open_dir(places, ARRAY_LEN(places));
    if (dir < 0)
        return err_set(e, ERR_PERMISSION_DENIED, "neither /run/lock nor /tmp can be written by all users");
    for (size_t i = 0; i < count; i++) {
        /* exclusive for one worker alone, shared among workers that share the GPU */
        int rc = lock_file_take(dir, uuids[i], "", slots > 1 ? LOCK_SH : LOCK_EX, next);

        if (!rc)
            *++next = -1;
        if (!rc && slots > 1) {
            rc = lock_file_take_slot(dir, uuids[i], slots, next);
            if (!rc)
                *++next = -1;
        }
        if (!rc)
            continue;
        hold_drop(fds);
        if (rc != EWOULDBLOCK)
            return err_sys(e, rc, "lock file of %s", uuids[i]);
        return err_set(e, ERR_ALREADY_EXISTS, "%s is in use by another ddp job on this machine", uuids[i]);
    }
    return ERR_OK;
}

void hold_drop(int *fds)
{
    for (; *fds >= 0; fds++) {
        close(*fds);
        *fds = -1;
    }
}
