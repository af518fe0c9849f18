#include "base/notify.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "base/log.h"
#include "base/mem.h"

void notify_send(const char *state)
{
    const char *path = getenv("NOTIFY_SOCKET");
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    if (!path || (path[0] != '/' && path[0] != '@') || strlen(path) >= sizeof to.sun_path)
        return;
    memcpy(to.sun_path, path, strlen(path));
    if (path[0] == '@')
        to.sun_path[0] = '\0'; /* an abstract name */
    CLEANUP(close_fd) int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    const socklen_t size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(path));
    if (fd < 0 || sendto(fd, state, strlen(state), MSG_NOSIGNAL, (struct sockaddr *)&to, size) < 0)
        log_warn("notify_failed", "socket=%s why=%s", LOG_Q(path), LOG_Q(strerror(errno)));
}
