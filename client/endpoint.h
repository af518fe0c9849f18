#ifndef DDP_CLIENT_ENDPOINT_H
#define DDP_CLIENT_ENDPOINT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

/* Where the hosts of a run meet, and whether that is here. */
struct endpoint {
    char *address; /* "box1:29400", "[fd00::1]:29603": as it is dialled */
    bool own;      /* the host's address, or its name, is this machine's */
    char *listen;  /* as it is bound: the address itself where it was given, every address for a name */
    char *node;    /* own: this machine's numeric address that it stands for; NULL: none that others reach */
};

/* Resolves the host's name. UNAVAILABLE: nobody knows it (yet). */
MUST_CHECK enum err_code endpoint_find(struct endpoint *out, const char *host, int64_t port, struct err *e);
void endpoint_release(struct endpoint *endpoint);

bool endpoint_taken(const struct endpoint *endpoint);   /* something listens here on its port */
bool endpoint_refuses(const struct endpoint *endpoint); /* its machine answers, and nothing listens there */

#endif
