/* Handles what a node says of its workers. A worker that is listed counts at once. A worker that is not
 * listed counts as absent only if the facts answer a wish that had it. A living process that we call dead, or
 * never knew, keeps the node from getting work until it is gone. */
#include "daemon/coordinator/core/facts.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/text.h"
#include "daemon/coordinator/core/cards/adopt.h"
#include "daemon/coordinator/core/cards/card.h"
#include "daemon/coordinator/core/emit.h"
#include "daemon/coordinator/core/failure/exit_cause.h"
#include "daemon/coordinator/core/jobs.h"
#include "daemon/coordinator/core/model.h"
#include "daemon/coordinator/core/nodes/nodes.h"
#include "daemon/coordinator/core/worker_asks.h"

static void note_running(struct core *core, struct spawn *s, const struct spawn_fact *fact)
{
    struct rank *rank = s->rank;

    if (s->r.pid != fact->pid) {
        s->r.pid = fact->pid;
        s->r.started_ms = fact->started_ms;
        emit_spawn(core, s, CHANGE_SPAWN_PUT);
    }
    if (rank->r.state == RANK_ASSIGNED)
        emit_rank_move(core, rank, RANK_SPAWNED);
}

static bool fact_was_started(const struct spawn_fact *fact)
{
    if (fact->state == SPAWN_EXITED)
        return !fact->not_started && !fact->port_busy && !fact->lost;
    return fact->state != SPAWN_STARTING;
}

/* Commands do not join, so a command job runs as soon as all its processes have started. */
static void start_command_generation(struct core *core, struct generation *g)
{
    if (g->job->spec.kind != JOB_COMMAND || g->r.state != GENERATION_FORMING || g != job_current(g->job))
        return;
    for (int i = 0; i < g->r.world_size; i++)
        if (g->ranks[i].r.state == RANK_ASSIGNED || g->ranks[i].r.state == RANK_LOST)
            return;
    g->join_at = 0;
    g->r.ready_ms = core->now.wall_ms;
    emit_generation(core, g, CHANGE_GENERATION_PUT);
    emit_generation_move(core, g, GENERATION_READY, "all ranks have started");
    jobs_started(core, g->job);
}

struct exit {
    struct spawn *spawn;
    const struct spawn_fact *fact; /* NULL: absent */
};

/* The earliest first: a generation is ended by the first of its members that failed. */
static int compare_exits(const void *a, const void *b)
{
    const struct exit *x = a, *y = b;
    int64_t tx = x->fact ? x->fact->ended_ms : INT64_MAX, ty = y->fact ? y->fact->ended_ms : INT64_MAX;

    if (tx != ty)
        return tx < ty ? -1 : 1;
    return x->spawn->r.spawn < y->spawn->r.spawn ? -1 : 1;
}

static const struct spawn_fact *find_fact(const struct core_event *event, const struct spawn *s)
{
    for (size_t i = 0; i < event->facts.count; i++)
        if (event->facts.facts[i].job == s->r.job && event->facts.facts[i].spawn == s->r.spawn)
            return &event->facts.facts[i];
    return NULL;
}

static bool has_unknown_process(const struct core *core, const struct node *node,
                                const struct core_event *event)
{
    for (size_t i = 0; i < event->facts.count; i++) {
        const struct spawn_fact *fact = &event->facts.facts[i];
        struct job *job = core_find_job(core, fact->job);
        struct spawn *s = job ? job_find_spawn(job, fact->spawn) : NULL;
        if (fact->state != SPAWN_EXITED && (!s || s->r.dead || s->node != node))
            return true;
    }
    return false;
}

static int compare_job_numbers(const void *a, const void *b)
{
    const int64_t *x = a, *y = b;

    return (*x > *y) - (*x < *y);
}

/* Lists the unknown jobs whose processes live, each once, sorted by number. The caller frees. */
static int64_t *list_unknown_jobs(const struct core *core, const struct core_event *event, size_t *count)
{
    int64_t *jobs = xcalloc(event->facts.count + 1, sizeof(*jobs));
    size_t all = 0, n = 0;

    for (size_t i = 0; i < event->facts.count; i++)
        if (event->facts.facts[i].state != SPAWN_EXITED && !core_find_job(core, event->facts.facts[i].job))
            jobs[all++] = event->facts.facts[i].job;
    qsort(jobs, all, sizeof(*jobs), compare_job_numbers);
    for (size_t i = 0; i < all; i++)
        if (!n || jobs[n - 1] != jobs[i]) /* else another worker of the same job */
            jobs[n++] = jobs[i];
    *count = n;
    return jobs;
}

/* The node runs a job that we do not know: our records are older than the node's, or are a copy of another
 * cluster's. The operator is informed, because no coordinator controls that job. An agent may name any number of jobs;
 * the first UNKNOWN_JOBS_MOST are kept and reported, and of the others only their number. */
static void report_unknown_jobs(struct core *core, struct node *node, const struct core_event *event)
{
    size_t count;
    int64_t *jobs = list_unknown_jobs(core, event, &count);
    const size_t kept = count < UNKNOWN_JOBS_MOST ? count : UNKNOWN_JOBS_MOST;

    for (size_t i = 0; i < kept; i++) {
        if (bsearch(&jobs[i], node->unknown_jobs, node->unknown_count, sizeof(*jobs), compare_job_numbers))
            continue; /* the last facts said so too, and it was reported then */
        log_warn("unknown_job", "node=%s job=%" PRId64, LOG_Q(node->r.name), jobs[i]);
        emit_event(core, NULL, "unknown_job", "%s runs job %" PRId64 ", which this coordinator does not know",
                   node->r.name, jobs[i]);
    }
    if (count > kept && !node->unknown_more) {
        log_warn("unknown_jobs", "node=%s more=%zu", LOG_Q(node->r.name), count - kept);
        emit_event(core, NULL, "unknown_job", "%s runs %zu more job%s that this coordinator does not know",
                   node->r.name, count - kept, text_plural((int64_t)(count - kept)));
    }
    node->unknown_count = kept;
    node->unknown_more = count > kept;
    memcpy(node->unknown_jobs, jobs, kept * sizeof(*jobs));
    free(jobs);
}

/* The agent has refused a worker of a wish that it has not kept: its disk is full, for example. Until its facts answer the newest
 * wish, nothing is placed on the node. Otherwise all jobs in the queue would be refused there, one after the other. */
static bool wish_is_unsaved(const struct node *node, const struct core_event *event)
{
    for (size_t i = 0; i < node->spawn_count; i++) {
        const struct spawn_fact *fact = find_fact(event, node->spawns[i]);
        if (fact && fact->state == SPAWN_EXITED && fact->not_started &&
            event->facts.revision < node->spawns[i]->wished_revision)
            return true;
    }
    return false;
}

void facts_apply(struct core *core, struct node *node, const struct core_event *event)
{
    /* Facts of another epoch answer a wish of another coordinator process, so they do not prove that a
     * process is absent. */
    bool current = event->facts.epoch == core->config.epoch;

    if (current)
        card_kept(core, node, event->facts.revision);
    bool stranger = has_unknown_process(core, node, event);
    report_unknown_jobs(core, node, event);
    if (current && wish_is_unsaved(node, event)) { /* before the exits, which ask for it */
        node->synced = false;
        node->hello_revision = node->revision;
    }
    struct exit *exits = xcalloc(node->spawn_count + 1, sizeof(*exits));
    size_t count = 0;

    for (size_t i = 0; i < node->spawn_count; i++) {
        struct spawn *s = node->spawns[i];
        const struct spawn_fact *fact = find_fact(event, s);
        /* An agent that has an older wish calls spawns of that wish starting. */
        if (fact && (current || fact_was_started(fact)))
            s->doubtful = false;
        if (fact && fact->state == SPAWN_EXITED)
            exits[count++] = (struct exit){s, fact};
        if (fact && fact_was_started(fact))
            note_running(core, s, fact);
        else if (!fact && current && !adopt_learning(core) && s->wished_revision &&
                 event->facts.revision >= s->wished_revision)
            exits[count++] = (struct exit){s, NULL};
    }
    if (count)
        qsort(exits, count, sizeof(*exits), compare_exits);
    /* Starts come before exits: a worker that ran and ended between two facts has run. */
    for (size_t i = 0; i < node->spawn_count; i++)
        start_command_generation(core, node->spawns[i]->rank->generation);
    for (size_t i = 0; i < node->spawn_count; i++) {
        const struct spawn_fact *fact = find_fact(event, node->spawns[i]);
        if (fact && fact->state != SPAWN_EXITED)
            worker_asks_apply(core, node->spawns[i], &fact->asks);
    }
    for (size_t i = 0; i < count; i++)
        exit_cause_apply(core, exits[i].spawn, exits[i].fact);
    free(exits);
    if (stranger)
        node->synced = false;
    else if (current && event->facts.revision >= node->hello_revision && !node->synced) {
        node->synced = true;
        core_capacity_changed(core);
    }
    nodes_settle(core, node);
}
