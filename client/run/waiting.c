#include "client/run/waiting.h"

#include <stdio.h>
#include <string.h>

#define SAY_MS 1000

/* While a job recovers, its reason is the failure at first; only a reason that begins with "waits " is a wait. */
static bool waiting_job_waits(const char *state, const char *reason)
{
    if (strcmp(state, "recovering") == 0)
        return strncmp(reason, "waits ", 6) == 0;
    return strcmp(state, "queued") == 0;
}

bool waiting_turn(struct waiting *w, const char *state, const char *reason, int64_t now_ms)
{
    if (!waiting_job_waits(state, reason)) {
        *w = (struct waiting){0};
        return false;
    }
    if (!w->since_ms)
        w->since_ms = now_ms;
    if (!w->reason_since_ms || strncmp(w->reason, reason, sizeof(w->reason) - 1) != 0) {
        w->reason_since_ms = now_ms;
        w->said = false;
        snprintf(w->reason, sizeof(w->reason), "%s", reason);
    }
    if (w->said || now_ms - w->reason_since_ms < SAY_MS)
        return false;
    w->said = true;
    return true;
}
