#ifndef DDP_CLIENT_RUN_HOSTS_ENDPOINT_H
#define DDP_CLIENT_RUN_HOSTS_ENDPOINT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

/* The address where the hosts of a run meet, and whether it belongs to this machine. One thread. */
struct endpoint {
    char *address; /* to connect to: "box1:29400", "[fd00::1]:29603" */
    bool own;      /* the address or the name is this machine's */
    bool loopback; /* a loopback address or localhost: only processes of this machine can meet here */
    char *listen;  /* to bind: the address itself if one was given, all addresses for a name */
    char
        *node; /* own: the numeric address for peers; NULL: the name only gives one that peers cannot reach */
    int64_t asked_ms; /* when endpoint_gone last tried to connect (boot), 0: never */
};

/* Resolves the host's name. UNAVAILABLE: it cannot be resolved (yet). */
MUST_CHECK enum err_code endpoint_find(struct endpoint *out, const char *host, int64_t port, struct err *e);
void endpoint_release(struct endpoint *endpoint);

bool endpoint_taken(const struct endpoint *endpoint);   /* the port is in use on this machine */
bool endpoint_refuses(const struct endpoint *endpoint); /* its machine answers, but nothing listens there */
/* endpoint_refuses for a loop: it connects once in ENDPOINT_ASK_MS at most, and is false in between. */
#define ENDPOINT_ASK_MS 2000
bool endpoint_gone(struct endpoint *endpoint, int64_t now_ms);

#endif
