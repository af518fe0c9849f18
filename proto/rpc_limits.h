#ifndef DDP_PROTO_RPC_LIMITS_H
#define DDP_PROTO_RPC_LIMITS_H

#include <stddef.h>
#include <stdint.h>

/* The maximum numbers of connections to a server's TCP ports. 0: the default. An unauthenticated connection
 * is one without an admitted call. Admitted connections are never dropped for others. */
struct rpc_limits {
    size_t total;                       /* a third of the descriptors */
    size_t per_address;                 /* as total */
    size_t unauthenticated;             /* 2048, at most a third of total */
    size_t unauthenticated_per_address; /* half of unauthenticated */
};

/* Counters of the TCP ports. An address is an IPv4 address or an IPv6 /64 network. */
struct rpc_traffic {
    size_t connections, unauthenticated;
    uint64_t accepted;
    uint64_t evicted; /* unauthenticated connections that were dropped for a new connection */
    uint64_t
        refused; /* new connections that were refused, because none could be dropped for them or no descriptor was left */
    uint64_t foreign; /* closed because they spoke another protocol */
    uint64_t silent;  /* closed because they sent nothing in time */
    uint64_t abusive; /* closed because of too many resets, pings or other control frames */
    /* Time since the last call in which no message could be received ... */
    int64_t deaf_ms;
    int64_t shut_ms; /* ... or no connection could be accepted */
};

#endif
