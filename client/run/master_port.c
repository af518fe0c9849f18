#include "client/run/master_port.h"

#include <unistd.h>

#include "base/err.h"
#include "base/mem.h"
#include "base/net/tcp_listen.h"

char *master_port_range(int64_t port, struct buf *talk)
{
    struct err e;
    int fd;
    if (!port)
        return NULL;
    if (tcp_bind_host(&fd, "0.0.0.0", (uint16_t)port, &e) != ERR_OK) {
        buf_printf(talk, "ddpctl: warning: --master-port %d: %s; the workers get another MASTER_PORT\n",
                   (int)port, e.msg);
        return NULL;
    }
    close(fd);
    return xasprintf("%lld-%lld", (long long)port, (long long)port);
}
