#ifndef DDP_DAEMON_COORDINATOR_SERVICE_ACCESS_IDENTITY_H
#define DDP_DAEMON_COORDINATOR_SERVICE_ACCESS_IDENTITY_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/coordinator/service/access/roles.h"

/* The identity of a caller. auth.c derives it from the token, the certificate or the socket before the call's
 * body is read; nothing in the request can change it. */

enum identity_kind { IDENTITY_USER, IDENTITY_AGENT, IDENTITY_WORKER };
struct identity {
    enum identity_kind kind;
    int64_t job, spawn; /* IDENTITY_WORKER */
    enum role role;     /* IDENTITY_USER; ROLE_NONE for the other kinds */
    char name[80];
    char origin[96];   /* "10.0.0.7", "unix uid 0 pid 4711" */
    const char *known; /* how the caller was identified: "the unix socket" */
    bool
        has_record; /* a user of the database, with an own token: its streams end when the token is revoked */
    bool may_serve; /* may also act as an agent */
    bool on_page;   /* a user of the web page: its calls come over the unix socket, but not from there */
};

#endif
