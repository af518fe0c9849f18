#ifndef DDP_DAEMON_COORDINATOR_SERVICE_ACCESS_IDENTITY_H
#define DDP_DAEMON_COORDINATOR_SERVICE_ACCESS_IDENTITY_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/coordinator/service/access/roles.h"

/* The identity of a caller. auth.c derives it from the token, the certificate or the socket before it reads
 * the call's body, and never from the request. */

enum identity_kind { IDENTITY_USER, IDENTITY_AGENT, IDENTITY_WORKER };
struct identity {
    enum identity_kind kind;
    int64_t job, spawn; /* IDENTITY_WORKER */
    enum role role;     /* IDENTITY_USER; else ROLE_NONE */
    char name[80];
    char origin[96];   /* "10.0.0.7", "unix uid 0 pid 4711" */
    const char *known; /* how: "the unix socket" */
    bool has_record;   /* it is a user's own token: streams end when it is revoked */
    bool may_serve;    /* as an agent, besides */
};

#endif
