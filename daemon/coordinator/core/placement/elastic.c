/* Changes the nodes of a running job. An elastic job (nodes MIN:MAX) grows when more nodes could take part,
 * and a user may at any time say how many nodes it should have, or restart it.
 *
 * Each placement pass offers a running job the nodes that no other job waits for. When the same nodes have
 * been offered for settle_ms, the generation is drained: a train job finishes its step and writes a snapshot,
 * a command gets SIGTERM. The next generation forms on all of the nodes, which are reserved meanwhile. Every
 * further node starts the settling time anew, but the wait ends LAST_CALL settling times after the first offer
 * (or PAUSE settling times after the job's last growth, if that is later). So three nodes that arrive together
 * cost one stop. A node that is lost again and again must stay longer each time before it is offered
 * (nodes.c). None of this counts as a restart. A job is left alone if it is about to end, or if it would lose
 * what it has done. A user's resize skips all that for the nodes that are free at that moment; nodes that
 * come later are offered as usual. */
#include "daemon/coordinator/core/placement/elastic.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"
#include "base/text.h"
#include "daemon/coordinator/core/emit.h"
#include "daemon/coordinator/core/failure/restart_rule.h"
#include "daemon/coordinator/core/generation_end.h"
#include "daemon/coordinator/core/model.h"
#include "daemon/coordinator/core/placement/capacity.h"
#include "daemon/coordinator/core/placement/handover.h"
#include "daemon/coordinator/core/placement/left_out.h"
#include "daemon/coordinator/core/placement/world_size.h"
#include "daemon/coordinator/core/snapshots/lost_snapshots.h"
#include "daemon/coordinator/core/snapshots/snapshots.h"

/* In settling times. */
#define LAST_CALL 6 /* the longest wait for further nodes, from the first offer on */
#define PAUSE 6     /* between two growths of a job */
#define NEAR_END 4  /* a job that ends sooner does not stop for more nodes */
#define NODES_MOST 10000

/* A rank has exited with 0, so the others will soon. */
static bool generation_is_ending(const struct generation *g)
{
    for (int i = 0; i < g->r.world_size; i++)
        if (g->ranks[i].spawn->r.dead)
            return true;
    return false;
}

static bool job_ends_soon(const struct core *core, const struct job *job)
{
    const struct core_progress *p = &job->progress;

    return p->steps > 0 && p->steps_per_s > 0 &&
           (double)(p->steps - p->step) / p->steps_per_s * 1000 < (double)(NEAR_END * core->config.settle_ms);
}

bool elastic_wants_nodes(const struct core *core, const struct job *job)
{
    const struct generation *g = job_current(job);

    if (job->r.state != JOB_RUNNING || g->r.state != GENERATION_RUNNING ||
        g->r.node_count >= job->spec.nodes_max || generation_is_ending(g))
        return false;
    if (handover_possible(job) && !handover_may_begin(core, job))
        return false;
    if (job->grow.asked)
        return true; /* the user decides about the cost of a stop */
    /* a train job without snapshots would begin again, if it had to stop */
    return (job->spec.kind == JOB_COMMAND || job_keeps_state(job) || handover_possible(job)) &&
           !job_ends_soon(core, job);
}

static bool same_offer(const struct job *job, const struct placement_choice *more, size_t count)
{
    if (strv_len(job->grow.nodes) != count)
        return false;
    for (size_t i = 0; i < count; i++)
        if (strcmp(job->grow.nodes[i], more[i].node->r.name) != 0)
            return false;
    return true;
}

static int64_t growth_time(const struct core *core, const struct job *job)
{
    const int64_t settle = core->config.settle_ms;
    int64_t at = core->now.boot_ms + settle, last_call = job->grow.first_ms + LAST_CALL * settle;

    if (job->grow.asked)
        return core->now.boot_ms;
    if (at > last_call)
        at = last_call;
    if (handover_possible(job))
        return at; /* growth does not cost a stop */
    return job->grown_ms && at < job->grown_ms + PAUSE * settle ? job->grown_ms + PAUSE * settle : at;
}

bool elastic_offer(struct core *core, struct job *job, const struct placement_choice *more, size_t count)
{
    if (!same_offer(job, more, count)) {
        if (!job->grow.nodes)
            job->grow.first_ms = core->now.boot_ms;
        strv_free(steal(job->grow.nodes));
        for (size_t i = 0; i < count; i++)
            job->grow.nodes = strv_append(job->grow.nodes, more[i].node->r.name);
        job->grow.at = count ? growth_time(core, job) : 0;
        core_wake(core, job->grow.at);
    }
    return count && core->now.boot_ms >= job->grow.at;
}

/* "box2, box3 join" */
static void describe_joining(char **joining, struct buf *text)
{
    for (char **name = joining; *name; name++)
        buf_printf(text, "%s%s", name == joining ? "" : ", ", *name);
    buf_puts(text, joining[1] ? " join" : " joins");
}

void elastic_grow(struct core *core, struct job *job)
{
    struct generation *g = job_current(job);
    char **joining = steal(job->grow.nodes);
    CLEANUP(buf_release) struct buf join = {0};
    CLEANUP(buf_release) struct buf why = {0};

    describe_joining(joining, &join);
    job->grow.at = 0;
    job->grow.asked = false;
    job->grown_ms = core->now.boot_ms;
    if (handover_begin(core, job, join.data, joining, NULL))
        return;
    buf_printf(&why, "resize to %s: %s",
               text_counted(g->r.node_count + (int64_t)strv_len(joining), "node").text, join.data);
    generation_drain(core, g, why.data);
    for (char **name = joining; *name; name++)
        job->targets = strv_append(job->targets, *name);
    strv_free(joining);
}

/* Returns the job to resize or restart. If it cannot be, answers the call and returns NULL. */
static struct job *find_resizable_job(struct core *core, const struct core_event *event)
{
    struct job *job = core_find_job(core, event->resize.job);

    if (!job)
        emit_fail(core, event->call, ERR_NOT_FOUND, "there is no job %" PRId64, event->resize.job);
    else if (job_finished(job) && snapshots_newest(job))
        emit_fail(core, event->call, ERR_FAILED_PRECONDITION,
                  "job %" PRId64 " has ended (%s); `ddpctl resume %" PRId64
                  "` continues from its last snapshot",
                  job->r.id, sm_name(&job_sm, job->r.state), job->r.id);
    else if (job_finished(job))
        emit_fail(core, event->call, ERR_FAILED_PRECONDITION,
                  "job %" PRId64 " has ended (%s); to run it again: `ddpctl show %" PRId64
                  " | ddpctl submit %s/dev/stdin`",
                  job->r.id, sm_name(&job_sm, job->r.state), job->r.id,
                  strv_len(job->r.env) ? "--export PATH " : "");
    else if (job->r.state == JOB_STOPPING || restart_rule_waits(job))
        emit_fail(core, event->call, ERR_FAILED_PRECONDITION, "job %" PRId64 " is stopping", job->r.id);
    else
        return job;
    return NULL;
}

static struct text node_range_text(int64_t min, int64_t max)
{
    struct text out;

    if (min == max)
        return text_counted(min, "node");
    snprintf(out.text, sizeof(out.text), "%" PRId64 ":%" PRId64 " nodes", min, max);
    return out;
}

static void set_node_range(struct core *core, struct job *job, int64_t min, int64_t max, const char *who)
{
    emit_event(core, job, "job_resized", "resized from %s to %s by %s",
               node_range_text(job->spec.nodes_min, job->spec.nodes_max).text, node_range_text(min, max).text,
               who);
    job->r.nodes_min = job->spec.nodes_min = min;
    job->r.nodes_max = job->spec.nodes_max = max;
    job->changed = true;
    emit_job(core, job, CHANGE_JOB_PUT);
}

/* How many of its nodes the job will continue on. */
static int64_t count_nodes_left(const struct generation *g, int64_t max)
{
    struct placement_choice *list = xcalloc((size_t)g->r.node_count, sizeof(*list));

    for (int i = 0; i < g->r.world_size; i++)
        list[g->ranks[i].r.node_rank].procs++;
    size_t left = world_size_choose(&g->job->spec, 1, max, 0, list, (size_t)g->r.node_count);
    free(list);
    return left ? (int64_t)left : max;
}

void elastic_resize(struct core *core, const struct core_event *event)
{
    const int64_t min = event->resize.nodes_min, max = event->resize.nodes_max;
    struct job *job = find_resizable_job(core, event);

    if (!job)
        return;
    if (min < 1 || max < min || max > NODES_MOST) {
        emit_fail(core, event->call, ERR_INVALID_ARGUMENT,
                  "nodes: expected N or MIN:MAX with 1 <= MIN <= MAX <= %d, got '%" PRId64 ":%" PRId64 "'",
                  NODES_MOST, min, max);
        return;
    }
    if (!world_size_possible(&job->spec, min, max)) {
        emit_fail(core, event->call, ERR_INVALID_ARGUMENT,
                  "reproducible: world with %" PRId64 " shards needs a world size that divides them, and %s"
                  " cannot give one",
                  job->spec.train.shards, node_range_text(min, max).text);
        return;
    }
    struct generation *g = job_current(job);
    bool has_too_many = g && generation_open(g) && g->r.node_count > max;

    set_node_range(core, job, min, max, event_who(event));
    lost_snapshots_resized(job);
    left_out_forget(core, job);
    strv_free(steal(job->grow.nodes)); /* the next pass offers them anew, under the new limits */
    job->grow.asked = true;
    /* to shrink, it stops now; to grow, in the next placement pass; within the limits nothing happens */
    handover_reconsider(core, job);
    job->handover.again_at = 0;
    job->handover.failures = 0;
    if (has_too_many && !handover_possible(job)) {
        CLEANUP(buf_release) struct buf why = {0};
        buf_printf(&why, "resize to %s", text_counted(count_nodes_left(g, max), "node").text);
        generation_drain(core, g, why.data);
    }
    core_capacity_changed(core);
    emit_job_reply(core, event->call, job, false);
}

/* "starts again at step 0: the snapshots up to step 1,200 no longer count" */
static void begin_from_scratch(struct core *core, struct job *job, const char *why)
{
    const struct snapshot_record *newest = snapshots_expected(core, job);
    CLEANUP(buf_release) struct buf text = {0};

    buf_puts(&text, why);
    if (newest)
        buf_printf(
            &text,
            "; its snapshots up to step %s no longer count, and are set aside in %s/set-aside-g%" PRId64
            " on the nodes that have them",
            text_count(newest->step).text, job->spec.train.snapshot.dir, job->r.generation);
    job->r.scratch_generation = job->r.generation;
    emit_job(core, job, CHANGE_JOB_PUT);
    emit_event(core, job, "job_from_scratch", "%s", text.data);
}

void elastic_restart(struct core *core, const struct core_event *event)
{
    struct job *job = find_resizable_job(core, event);

    if (!job)
        return;
    if (job->r.state == JOB_QUEUED) {
        emit_fail(core, event->call, ERR_FAILED_PRECONDITION, "job %" PRId64 " has not started yet",
                  job->r.id);
        return;
    }
    if (event->resize.from_scratch && job->spec.kind != JOB_TRAIN && !snapshots_newest(job) &&
        !job_current(job)->r.source_path) {
        emit_fail(
            core, event->call, ERR_FAILED_PRECONDITION,
            "job %" PRId64
            " is a command job that has committed no snapshot: it starts from scratch, or finds its own files",
            job->r.id);
        return;
    }
    if (event->resize.from_scratch) {
        CLEANUP(free_text) char *why = xasprintf("starts again at step 0, as %s asked", event_who(event));
        begin_from_scratch(core, job, why);
        generation_drop_survivors(core, job, why);
    }
    lost_snapshots_retry(job);
    left_out_forget(core, job);
    CLEANUP(free_text) char *restarted = xasprintf("restarted by %s", event_who(event));
    generation_drain(core, job_current(job), restarted);
    if (!job->held)
        job->not_before = 0; /* the user does not want to wait for the back-off */
    core_capacity_changed(core);
    emit_job_reply(core, event->call, job, false);
}
