#include "daemon/coordinator/service/logs/log_tails_rpc.h"

#include <string.h>

#include "base/clock.h"
#include "daemon/coordinator/service/agent_rpc.h"
#include "daemon/coordinator/service/logs/log_tails.h"
#include "daemon/coordinator/service/service_state.h"

#define LOG_TAILS_RATE (8 << 20) /* bytes in a second, of all agents */
#define RATE_LEAST (4 << 10)     /* of each */
#define RATE_MOST (256 << 10)

/* An agent may send output only for workers of its own node. The core forgets a worker that has ended. Later output is accepted if
 * the same node has sent a copy of that worker's output before. */
static bool tail_is_allowed(const struct agent_session *x, const Ddp__V1__LogTail *m)
{
    const struct service *s = x->service;
    const struct rank_record *rank = core_spawn_rank(s->core, m->job, m->spawn);
    const struct log_tail *copy;

    if (rank)
        return strcmp(rank->node, x->node) == 0;
    copy =
        core_job(s->core, m->job) ? log_tails_find(s->log_tails, m->job, m->spawn, m->standard_error) : NULL;
    return copy && strcmp(copy->node, x->node) == 0;
}

void log_tails_receive(struct agent_session *x, const Ddp__V1__LogTail *m)
{
    const struct log_tail_part part = {.job = m->job,
                                       .spawn = m->spawn,
                                       .standard_error = m->standard_error,
                                       .node = x->node,
                                       .offset = m->offset,
                                       .data = m->data.data,
                                       .size = m->data.len,
                                       .run_bytes = m->run_bytes,
                                       .run_us = m->run_us,
                                       .run_count =
                                           m->n_run_us < m->n_run_bytes ? m->n_run_us : m->n_run_bytes};

    if (!m->data.len || m->data.len > LOG_TAIL_BYTES || m->offset < 0 || m->offset > INT64_MAX / 2)
        return; /* ddp's agents never send this */
    if (tail_is_allowed(x, m))
        log_tails_put(x->service->log_tails, &part, clock_boot_ms());
}

void log_tails_heartbeat(struct agent_session *x, const Ddp__V1__Heartbeat *m)
{
    const int64_t now = clock_boot_ms();
    const bool known = m->log_tails_age_ms > 0 && m->log_tails_age_ms <= now;

    log_tails_heard(x->service->log_tails, x->node, known ? now - (m->log_tails_age_ms - 1) : 0, now);
}

int64_t log_tails_rate(const struct service *s)
{
    const int64_t agents = (int64_t)s->stats.sessions;
    const int64_t share = LOG_TAILS_RATE / (agents > 0 ? agents : 1);

    return share < RATE_LEAST ? RATE_LEAST : share > RATE_MOST ? RATE_MOST : share;
}
