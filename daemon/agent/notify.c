#include "daemon/agent/notify.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/log.h"

void notify(const char *state)
{
    const char *path = getenv("NOTIFY_SOCKET");
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    size_t len = path ? strlen(path) : 0;
    int fd;

    if (!len || len >= sizeof(at.sun_path))
        return;
    memcpy(at.sun_path, path, len);
    if (*path == '@')
        at.sun_path[0] = '\0'; /* an abstract socket */
    fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || sendto(fd, state, strlen(state), MSG_NOSIGNAL, (struct sockaddr *)&at,
                         (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len)) < 0)
        log_warn("service_manager_not_told", "state=%s", state);
    if (fd >= 0)
        close(fd);
}
