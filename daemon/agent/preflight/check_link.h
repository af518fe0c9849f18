#ifndef DDP_DAEMON_AGENT_PREFLIGHT_CHECK_LINK_H
#define DDP_DAEMON_AGENT_PREFLIGHT_CHECK_LINK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/ddp.pb-c.h"

/* Ports and links between nodes. One node listens, others call. A caller sends the check's key and gets one
 * byte back: this proves that it reached the check and not another program at that address. To measure the
 * link, the caller sends for a moment, closes its side, and gets the number of bytes that arrived. Runs in
 * the check process (check_process.h); blocks. */

#define CHECK_KEY 16 /* bytes */

struct check_ports {
    int first, last; /* the node's range for MASTER_PORT */
};

/* Opens two ports: one of the node's range, one that the kernel chooses. fds get the sockets, -1 where no
 * port could be opened. */
void check_listen_open(const struct check_ports *ports, int fds[2], Ddp__V1__CheckListenResult *out);
/* Serves callers until `calls` of them have sent the key and closed (0: their number is unknown), until 4 s
 * after the last one came, or until hold_ms have passed. True: all calls came. */
bool check_listen_serve(const int fds[2], const uint8_t key[CHECK_KEY], int64_t hold_ms, int calls);

/* Calls every port of every target. *links gets `count` results; free them with check_links_free. */
void check_connect(const Ddp__V1__CheckConnect *ask, Ddp__V1__CheckLink ***links, size_t *count);
void check_links_free(Ddp__V1__CheckLink **links, size_t count);

#endif
