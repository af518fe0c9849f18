#include "trainer/member/coll/send_buffer.h"

#include <linux/tcp.h> /* glibc's struct tcp_info lacks tcpi_min_rtt */
#include <netinet/in.h>
#include <stddef.h>
#include <sys/socket.h>

/* The longest round trip of a short path: within this machine or to its neighbours. On common systems net.core.wmem_max
 * allows a buffer of at least 416 KB. At this round trip that is enough for 8 GB/s, more than a CPU sends over one
 * connection. */
#define SHORT_US 50
#define SHORT_BYTES (512 * 1024)

int send_buffer_for_path(uint32_t rtt_us)
{
    return rtt_us <= SHORT_US ? SHORT_BYTES : 0;
}

bool send_buffer_limit(int fd)
{
    struct tcp_info info = {0};
    socklen_t size = sizeof(info);

    if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) < 0 ||
        size < offsetof(struct tcp_info, tcpi_min_rtt) + sizeof(info.tcpi_min_rtt))
        return false; /* an older kernel does not tell the shortest round trip */
    const int bytes = send_buffer_for_path(info.tcpi_min_rtt);
    if (bytes)
        setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof(bytes));
    return bytes != 0;
}
