#include "client/cmd/jobs/job_filter.h"

#include <string.h>

#include "base/match/nearest.h"
#include "base/mem.h"

static const char *const state_names[] = {"queued",   "starting",  "running", "recovering",
                                          "stopping", "succeeded", "failed",  "cancelled"};

enum err_code job_filter_check(const char *state, struct err *e)
{
    for (;; state++) {
        const size_t len = strcspn(state, ",");
        CLEANUP(free_text) char *word = xasprintf("%.*s", (int)len, state);
        bool known = false;
        for (size_t i = 0; i < ARRAY_LEN(state_names); i++)
            known = known || strcmp(word, state_names[i]) == 0;
        if (!known) {
            const char *near = nearest_name(word, state_names, ARRAY_LEN(state_names));
            if (near)
                return err_set(e, ERR_INVALID_ARGUMENT, "--state: no state '%s', did you mean '%s'?", word,
                               near);
            return err_set(
                e, ERR_INVALID_ARGUMENT,
                "--state: no state '%s'; expected one or more of queued, starting, running, recovering, "
                "stopping, succeeded, failed, cancelled, with commas between them",
                word);
        }
        state += len;
        if (!*state)
            return ERR_OK;
    }
}

static bool state_is_listed(const char *list, const char *state)
{
    const size_t len = strlen(state);
    for (const char *at = list; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL)
        if (strcspn(at, ",") == len && memcmp(at, state, len) == 0)
            return true;
    return false;
}

bool job_filter_keeps(const struct job_filter *filter, const Ddp__V1__JobStatus *job)
{
    if (filter->user && strcmp(filter->user, job->user) != 0)
        return false;
    if (filter->state && !state_is_listed(filter->state, job->state))
        return false;
    return !job->ended_ms || job->ended_ms >= filter->since_ms;
}
