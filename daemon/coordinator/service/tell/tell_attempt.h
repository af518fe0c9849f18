#ifndef DDP_DAEMON_COORDINATOR_SERVICE_TELL_TELL_ATTEMPT_H
#define DDP_DAEMON_COORDINATOR_SERVICE_TELL_TELL_ATTEMPT_H

#include <stdbool.h>
#include <stdint.h>

/* The outcome of one attempt to deliver a notice. */
struct tell_result {
    bool ok;
    bool refused;     /* the receiver answered and does not accept the notice, so a retry will hardly help */
    int64_t retry_ms; /* the receiver asks for a retry after this time at the earliest; 0: it does not say */
    char text[256];   /* "HTTP 200: ok", "exit code 1: ..."; no secrets */
};

/* Called on the loop's thread, once for each attempt. */
typedef void (*tell_done_fn)(void *user, const struct tell_result *result);

#endif
