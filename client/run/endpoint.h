#ifndef DDP_CLIENT_RUN_ENDPOINT_H
#define DDP_CLIENT_RUN_ENDPOINT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

/* Where the hosts of a run meet, and whether that is here. */
struct endpoint {
    char *address; /* "box1:29400", "[fd00::1]:29603": as it is dialled */
    bool own;      /* the host's address, or its name, is this machine's */
    char *listen;  /* as it is bound: the address itself where it was given, every address for a name */
    char *node;    /* own: this machine's numeric address that it stands for; NULL: none that others reach */
    int64_t asked_ms; /* boot: endpoint_gone asked last, 0: never */
};

/* Resolves the host's name. UNAVAILABLE: nobody knows it (yet). */
MUST_CHECK enum err_code endpoint_find(struct endpoint *out, const char *host, int64_t port, struct err *e);
void endpoint_release(struct endpoint *endpoint);

bool endpoint_taken(const struct endpoint *endpoint);   /* something listens here on its port */
bool endpoint_refuses(const struct endpoint *endpoint); /* its machine answers, and nothing listens there */
/* As above, for a loop: each ENDPOINT_ASK_MS; in between nobody is asked, and it is false. */
#define ENDPOINT_ASK_MS 2000
bool endpoint_gone(struct endpoint *endpoint, int64_t now_ms);

#endif
