#ifndef DDP_DAEMON_COORDINATOR_SERVICE_TELL_TELL_ATTEMPT_H
#define DDP_DAEMON_COORDINATOR_SERVICE_TELL_TELL_ATTEMPT_H

#include <stdbool.h>
#include <stdint.h>

/* What came of one try to deliver a notice. */
struct tell_result {
    bool ok;
    bool refused;     /* the other side understood and does not want it: a repetition hardly helps */
    int64_t retry_ms; /* not sooner than after this time, as the other side asks; 0: it does not say */
    char text[256];   /* "HTTP 200: ok", "exit code 1: ..."; no secrets */
};

/* On the loop, once for each attempt. */
typedef void (*tell_done_fn)(void *user, const struct tell_result *result);

#endif
