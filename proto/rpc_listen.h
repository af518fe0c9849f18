#ifndef DDP_PROTO_RPC_LISTEN_H
#define DDP_PROTO_RPC_LISTEN_H

#include <stdbool.h>
#include <sys/types.h>

#include <uv.h>

#include "proto/rpc_server.h"

/* A server's unix sockets (rpc_server_listen_unix is in rpc_server.h). Inside proto/ only. */

struct unix_peer {
    uid_t uid;
    pid_t pid;
};

struct rpc_listener { /* a unix socket */
    struct rpc_listener *next;
    struct rpc_server *server;
    uv_poll_t poll;
    char *path;
    int fd, lock_fd, spare_fd;
    bool polling;
};

void rpc_listener_start(struct rpc_listener *listener);
void rpc_listeners_close(struct rpc_server *server);
/* Why a connection was refused (ENFILE: of_system; EMFILE: not), and what to do. */
const char *rpc_no_descriptors(bool of_system);
bool rpc_unix_peer(const struct rpc_server *server, int fd, struct unix_peer *out);

#endif
