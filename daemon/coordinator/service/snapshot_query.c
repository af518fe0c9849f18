#include "daemon/coordinator/service/snapshot_query.h"

#include <errno.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "daemon/coordinator/service/agent_rpc.h"
#include "daemon/coordinator/service/commit_queue.h"
#include "daemon/coordinator/service/service_state.h"
#include "proto/ddp.pb-c.h"

/* Uses the same message as `ddpctl check`. The agent looks in a separate process, so a hanging file system
 * blocks nothing; then there is no answer, and the core asks again later. No state is kept here: the
 * question's number is the negative job number, while questions of users have positive numbers. */

void snapshot_query_send(struct agent_session *session, int64_t job)
{
    struct service *s = session->service;
    Ddp__V1__CheckPlace place = DDP__V1__CHECK_PLACE__INIT;
    Ddp__V1__CheckAsk ask = DDP__V1__CHECK_ASK__INIT;
    Ddp__V1__AgentDown down = DDP__V1__AGENT_DOWN__INIT;
    char **paths = core_snapshot_paths(s->core, job);
    const struct job_record *record = core_job(s->core, job);
    struct err e = {0};

    place.paths = paths;
    place.n_paths = strv_len(paths);
    ask.ask = -job;
    ask.node = session->node;
    if (record && record->user)
        ask.user = record->user; /* the account of the job's workers, which may see other files */
    ask.place = &place;
    down.body_case = DDP__V1__AGENT_DOWN__BODY_CHECK;
    down.check = &ask;
    if (agent_session_send(session, &down, &e) != ERR_OK)
        log_debug("look_dropped", "node=%s why=%s", LOG_Q(session->node),
                  LOG_Q(e.msg)); /* the core asks again */
    strv_free(paths);
}

bool snapshot_query_answered(struct agent_session *session, const Ddp__V1__CheckAnswer *answer)
{
    struct core_event event = {.kind = CORE_LOOKED, .session = session->handle};
    struct err e = {0};

    if (answer->ask >= 0)
        return false;
    event.looked.job = -answer->ask;
    for (size_t i = 0; answer->place && i < answer->place->n_paths; i++) {
        const char *problem = answer->place->paths[i]->problem;
        /* The agent may not be allowed to read a directory that a worker can read. In that case the next
         * generation finds out. */
        event.looked.found |= !*problem || !strcmp(problem, strerror(EACCES));
    }
    if (commit_queue_accepts(session->service, &e) == ERR_OK) /* otherwise a later answer is as good */
        commit_queue_event(session->service, &event);
    return true;
}
