#include "daemon/coordinator/service/probe_rpc.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "daemon/coordinator/service/access/auth.h"
#include "daemon/coordinator/service/commit_queue.h"
#include "daemon/coordinator/service/convert.h"
#include "daemon/coordinator/service/forecasts.h"
#include "daemon/coordinator/service/node_query.h"
#include "daemon/coordinator/service/pool.h"
#include "daemon/coordinator/service/service_state.h"
#include "proto/ddp.pb-c.h"
#include "proto/rpc_codec.h"

/* ProbeJob: what the coordinator knows about each worker of a generation, merged with what its node sees of
 * it now (processes, CPU time, last output). */

#define PROBE_TIMEOUT_MS 3000

/* For a job that has failed or recovers from a failure, users ask about the generation that failed, which
 * need not be the newest. */
static int64_t probe_choose_generation(const struct core_job_status *status)
{
    if (status->failure && (status->job->state == JOB_FAILED || status->job->state == JOB_RECOVERING))
        return status->failure_rank->generation;
    return status->job->generation;
}

static void probe_fill_worker(struct pool *pool, const struct core_member *m, Ddp__V1__WorkerProbe *out)
{
    const struct spawn_record *s = m->spawn;
    ddp__v1__worker_probe__init(out);
    out->spawn = s->spawn;
    out->rank = m->rank->rank;
    out->local_rank = m->rank->local_rank;
    out->node = s->node;
    out->pid = s->pid;
    out->state = (char *)(uintptr_t)sm_name(&rank_sm, (int)m->rank->state);
    out->ended = s->dead;
    out->exit_known = s->exit_known;
    out->code = s->code;
    out->signal = s->signal;
    out->out_of_memory = s->out_of_memory;
    out->lost = s->lost;
    out->stopped = s->stopped;
    out->message = rpc_utf8_clean(pool_text(pool, s->message ? s->message : ""));
    out->n_stderr_tail = convert_lines(pool, s->stderr_tail, &out->stderr_tail);
    out->started_ms = s->started_ms;
    out->ended_ms = s->ended_ms;
    out->step = m->step;
    out->ms_per_step = m->ms_per_step;
    out->wait_ms = m->wait_ms;
    out->idle_ms = out->output_age_ms = -1;
    out->report_age_ms = m->report_age_ms;
}

/* Adds what the node sees now. Its last report may be newer than the one that reached the coordinator. */
static void probe_merge(Ddp__V1__WorkerProbe *to, const Ddp__V1__WorkerProbe *from)
{
    to->probed = from->probed;
    to->cpu_ms = from->cpu_ms;
    to->idle_ms = from->idle_ms;
    to->output_age_ms = from->output_age_ms;
    if (from->report_age_ms >= 0 && (to->report_age_ms < 0 || from->report_age_ms < to->report_age_ms))
        to->report_age_ms = from->report_age_ms;
    to->n_processes = from->n_processes;
    to->processes = from->processes;
    to->processes_left_out = from->processes_left_out;
}

/* A reply under construction, and everything that it borrows from. */
struct probe_building {
    struct pool pool;
    struct core_job_status status;
    struct core_member *members;
    void **answers;
    size_t answer_count;
    Ddp__V1__JobStatus job;
    Ddp__V1__ProbeJobReply reply;
};

static void probe_building_release(struct probe_building *b)
{
    for (size_t i = 0; i < b->answer_count; i++)
        rpc_free(b->answers[i]);
    free(b->answers);
    free(b->members);
    core_job_status_release(&b->status);
    pool_release(&b->pool);
}

/* The node answers for all of the job's workers there. Those that are no members of the generation, because
 * they are still ending, are left out. */
static void probe_take_answer(struct probe_building *b, const struct node_query_part *part,
                              const Ddp__V1__ProbeAnswer *answer)
{
    if (answer->error[0])
        b->reply.notes[b->reply.n_notes++] = pool_printf(&b->pool, "node %s: %s", part->node, answer->error);
    for (size_t i = 0; i < answer->n_workers; i++)
        for (size_t k = 0; k < b->reply.n_workers; k++)
            if (b->reply.workers[k]->spawn == answer->workers[i]->spawn &&
                !strcmp(b->reply.workers[k]->node, part->node))
                probe_merge(b->reply.workers[k], answer->workers[i]);
}

static void probe_take_parts(struct probe_building *b, const struct node_query *query)
{
    struct err e = {0};
    b->answers = xcalloc(query->count + 1, sizeof *b->answers);
    b->reply.notes = pool_alloc(&b->pool, (query->count + 1) * sizeof *b->reply.notes);
    for (size_t i = 0; i < query->count; i++) {
        const struct node_query_part *part = query->parts[i];
        void *answer = NULL;
        const char *problem = part->problem;
        if (!problem && rpc_unpack(&ddp__v1__probe_answer__descriptor, part->answer.data, part->answer.len,
                                   &answer, &e) != ERR_OK)
            problem = "sent an invalid answer";
        if (problem) {
            b->reply.notes[b->reply.n_notes++] = pool_printf(&b->pool, "node %s %s", part->node, problem);
            continue;
        }
        b->answers[b->answer_count++] = answer;
        probe_take_answer(b, part, answer);
    }
}

static void probe_reply(struct node_query *query)
{
    CLEANUP(probe_building_release) struct probe_building b = {0};
    struct service *s = query->service;
    struct err e = {0};
    size_t count;
    commit_queue_flush(s);
    if (core_job_status(s->core, query->job, true, &b.status, &e) != ERR_OK) {
        rpc_call_fail(query->rpc, &e); /* retention has deleted the job meanwhile */
        return;
    }
    ddp__v1__probe_job_reply__init(&b.reply);
    convert_job(&b.pool, &b.status, true, &b.job);
    forecasts_fill(s, &b.pool, &b.status, true, &b.job);
    caller_hide_tell(s, query->rpc, &b.pool, &b.job);
    b.reply.job = &b.job;
    b.reply.generation = query->generation;
    b.members = core_members(s->core, query->job, query->generation, service_now(), &count);
    b.reply.workers = pool_alloc(&b.pool, (count + 1) * sizeof *b.reply.workers);
    for (size_t i = 0; i < count; i++) {
        b.reply.workers[i] = pool_alloc(&b.pool, sizeof **b.reply.workers);
        probe_fill_worker(&b.pool, &b.members[i], b.reply.workers[i]);
    }
    b.reply.n_workers = count;
    probe_take_parts(&b, query);
    rpc_call_reply(query->rpc, &b.reply);
}

static bool probe_asked_already(const struct node_query *query, const char *node)
{
    for (size_t i = 0; i < query->count; i++)
        if (!strcmp(query->parts[i]->node, node))
            return true;
    return false;
}

static void probe_ask_node(struct node_query *query, const char *node)
{
    struct node_query_part *part = node_query_add(query, node);
    Ddp__V1__Probe probe = DDP__V1__PROBE__INIT;
    Ddp__V1__AgentDown down = DDP__V1__AGENT_DOWN__INIT;
    probe.probe = (int64_t)part->handle;
    probe.job = query->job;
    down.body_case = DDP__V1__AGENT_DOWN__BODY_PROBE;
    down.probe = &probe;
    node_query_send(part, &down);
}

void probe_job(struct rpc_call *rpc, const void *message, void *user)
{
    struct service *s = user;
    const Ddp__V1__ProbeJobRequest *request = message;
    struct core_job_status status = {0};
    struct err e = {0};
    size_t count;
    commit_queue_flush(s);
    if (core_job_status(s->core, request->job, false, &status, &e) != ERR_OK) {
        rpc_call_fail(rpc, &e);
        return;
    }
    /* The last lines of stderr are part of the answer. */
    if (!caller_may_read(s, rpc, request->job)) {
        core_job_status_release(&status);
        return;
    }
    struct node_query *query = node_query_open(s, rpc, PROBE_TIMEOUT_MS, probe_reply);
    query->job = request->job;
    query->generation = probe_choose_generation(&status);
    struct core_member *members = core_members(s->core, query->job, query->generation, service_now(), &count);
    /* Nodes whose workers are all dead have nothing to add to the records. */
    for (size_t i = 0; i < count; i++)
        if (!members[i].spawn->dead && !probe_asked_already(query, members[i].spawn->node))
            probe_ask_node(query, members[i].spawn->node);
    free(members);
    core_job_status_release(&status);
    node_query_start(query);
}
