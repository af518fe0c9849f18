/* A running train job whose members can go on (survivors.c) gets other nodes without a stop.
 *
 * The happy path: the job is to grow, to shrink, or to leave a node. Watch tells its members the number of a hand-over. They
 * vote, so all of them finish the same step; then each waits, with its state and its group, and says in Watch that it is
 * ready. Until then nothing durable has changed. When the last one is ready, placement looks for nodes as if the generation
 * had ended (job.handover.planned). In the same call the generation ends, the next one forms, and each member keeps its process
 * and gets its new rank. New workers get the state from them. Members without a rank hear that they are not needed any more, and exit
 * with 0. Nothing is read from a file, and nothing is charged.
 *
 * Failure modes: if the next generation cannot form, or members take too long, a job that must still leave its nodes is drained
 * with a snapshot. A job for which this no longer holds, or that has no snapshots, goes on as it was. A job that must
 * leave nodes is also drained if one of its members no longer stays. Members do not train while they gather their moments. If
 * that stalls, every job with snapshots is drained: its processes end after the grace, and new ones begin at the last snapshot.
 * If a member dies meanwhile, that is an ordinary failure. A coordinator that restarts knows nothing of a hand-over: its members
 * then go on. Whether a job has too many nodes, or a drained one, is looked at in every placement pass, so that nothing has to be
 * remembered. Members that hear nothing go on after a while, too (trainer/handover.c). A collective that one of them then begins
 * ends when the others leave the group. */
#include "daemon/coordinator/core/placement/handover.h"

#include "base/buf.h"
#include "base/mem.h"
#include "base/text.h"
#include "daemon/coordinator/core/emit.h"
#include "daemon/coordinator/core/generation_end.h"
#include "daemon/coordinator/core/internal_event.h"
#include "daemon/coordinator/core/model.h"
#include "daemon/coordinator/core/placement/quorum.h"
#include "daemon/coordinator/core/snapshots/snapshots.h"

/* How long members may take to their next step's end; slow steps get more. They train meanwhile. With `shard: optimizer` they then
 * gather the moments, too, and do not train until that is done. Each report of progress gives them this time again. */
#define READY_MS 60000
/* Time between two tries. */
#define AGAIN_MS 10000
#define STEP_MS_MOST 86400000
/* Both double after each failure, this many times, so that a job that is always too slow is interrupted less and less often. */
#define DOUBLINGS_MOST 6

bool handover_possible(const struct job *job)
{
    const struct generation *g = job_current(job);

    if (job->spec.kind != JOB_TRAIN || job->r.state != JOB_RUNNING || g->r.state != GENERATION_RUNNING)
        return false;
    bool some_can_stay = false;
    for (int i = 0; i < g->r.world_size; i++) {
        const struct spawn *s = g->ranks[i].spawn;
        if (!s->stays || s->r.revoked || !spawn_reachable(s))
            return false;
        some_can_stay |= !s->node->r.drain;
    }
    return some_can_stay; /* else nobody could give the state to new workers */
}

bool handover_yields(const struct job *holder, const struct job *job)
{
    return holder->spec.priority < job->spec.priority && holder->r.state == JOB_RUNNING &&
           job_current(holder)->r.node_count > holder->spec.nodes_min && handover_possible(holder);
}

/* The next generation cannot start before workers of older ones are dead, and its members should not wait for that. */
static bool has_old_workers(const struct job *job)
{
    for (size_t i = 0; i < job->spawn_count; i++)
        if (spawn_reachable(job->spawns[i]) && job->spawns[i]->rank->generation != job_current(job))
            return true;
    return false;
}

bool handover_may_begin(const struct core *core, const struct job *job)
{
    return !job->handover.number && core->now.boot_ms >= job->handover.again_at && handover_possible(job) &&
           !has_old_workers(job);
}

/* Numbers are not used again, also not by a restarted coordinator: a member that has waited for an earlier one must see that this
 * is another. */
static int64_t next_number(const struct core *core, const struct job *job)
{
    int64_t number = core->now.wall_ms;

    return number > job->handover.last ? number : job->handover.last + 1;
}

static int64_t doubled(const struct job *job, int64_t ms)
{
    const int failures = job->handover.failures;

    return ms << (failures < DOUBLINGS_MOST ? failures : DOUBLINGS_MOST);
}

/* The present step may have just begun, and the next one is the first that carries the votes. */
static int64_t ready_limit_ms(const struct job *job)
{
    const struct generation *g = job_current(job);
    double step_ms = 0;

    for (int i = 0; i < g->r.world_size; i++)
        if (g->ranks[i].spawn->ms_per_step > step_ms)
            step_ms = g->ranks[i].spawn->ms_per_step;
    return doubled(job, READY_MS + (int64_t)(2 * (step_ms < STEP_MS_MOST ? step_ms : STEP_MS_MOST)));
}

bool handover_begin(struct core *core, struct job *job, const char *why, char **joining, char **leaving)
{
    if (!handover_may_begin(core, job))
        return false;
    job->handover.number = job->handover.last = next_number(core, job);
    job->handover.until = core->now.boot_ms + ready_limit_ms(job);
    text_set(&job->handover.why, "%s", why);
    strv_free(job->handover.joining);
    strv_free(job->handover.leaving);
    job->handover.joining = joining;
    job->handover.leaving = leaving;
    core_wake(core, job->handover.until);
    raise_handover_asked(core, job);
    return true;
}

/* ---- reasons that hold as long as the job runs there */

static const struct node *drained_node(const struct generation *g)
{
    for (int i = 0; i < g->r.world_size; i++)
        if (g->ranks[i].spawn->node && g->ranks[i].spawn->node->r.drain)
            return g->ranks[i].spawn->node;
    return NULL;
}

/* The job should not stay on the nodes that it has; `why` says it. */
static bool must_leave_nodes(const struct job *job, struct buf *why)
{
    const struct generation *g = job_current(job);
    const struct node *drained = drained_node(g);

    if (g->r.node_count > job->spec.nodes_max)
        buf_puts(why, "resized");
    else if (drained)
        buf_printf(why, "%s is drained", drained->r.name);
    else
        return false;
    return true;
}

/* The hand-over was not begun for a growth or another job, but because the job must leave its nodes. */
static bool is_for_standing_reason(const struct job *job)
{
    return !job->handover.joining && !job->handover.leaving;
}

/* A member has said that it does not stay, after the reason to leave nodes had come. A member that is dead or lost, or has
 * not spoken since the coordinator started, says nothing of the kind. */
static bool members_refuse(const struct job *job)
{
    const struct generation *g = job_current(job);
    bool refuse = false;

    for (int i = 0; i < g->r.world_size; i++) {
        const struct spawn *s = g->ranks[i].spawn;
        if (s->stays_unsaid || !spawn_reachable(s))
            return false;
        refuse |= !s->stays;
    }
    return refuse;
}

/* Takes the hand-over back. The next one begins after a pause at the earliest. */
static void handover_withdraw(struct core *core, struct job *job)
{
    job->handover.number = 0;
    job->handover.again_at = core->now.boot_ms + doubled(job, AGAIN_MS);
    job->handover.failures++;
    core_wake(core, job->handover.again_at);
}

/* The first member that does not wait yet; NULL: all wait. */
static const struct spawn *unready_member(const struct job *job)
{
    const struct generation *g = job_current(job);

    for (int i = 0; i < g->r.world_size; i++)
        if (g->ranks[i].spawn->ready != job->handover.number)
            return g->ranks[i].spawn;
    return NULL;
}

/* The bytes that the slowest member has gathered; 0: not all members gather at this moment. */
static int64_t gathered_bytes(const struct job *job)
{
    const struct generation *g = job_current(job);
    int64_t least = INT64_MAX;

    for (int i = 0; i < g->r.world_size; i++)
        if (g->ranks[i].spawn->gathered < least)
            least = g->ranks[i].spawn->gathered;
    return least;
}

/* The members are stuck in a collective. The next generation begins at a snapshot, on the nodes that it was to have. */
static void restart_stuck(struct core *core, struct job *job, int64_t bytes, int64_t stalled_ms)
{
    struct generation *g = job_current(job);
    const struct snapshot_record *newest = snapshots_newest(job);
    CLEANUP(buf_release) struct buf why = {0};
    char **targets = NULL;

    buf_printf(&why, "%s, but the hand-over made no progress for %s after %s of the optimizer's state",
               job->handover.why, text_duration(stalled_ms).text, text_bytes(bytes > 1 ? bytes : 0).text);
    if (newest)
        buf_printf(&why, "; the job continues from its snapshot of step %s", text_count(newest->step).text);
    generation_drain(core, g, why.data);
    for (char **name = job->targets; name && *name; name++)
        if (!names_contain(job->handover.leaving, *name))
            targets = strv_append(targets, *name);
    for (char **name = job->handover.joining; name && *name; name++)
        targets = strv_append(targets, *name);
    strv_free(job->targets);
    job->targets = targets;
}

static void handover_time_out(struct core *core, struct job *job)
{
    const struct spawn *late = unready_member(job);
    const int64_t bytes = gathered_bytes(job), stalled_ms = doubled(job, READY_MS);

    if (late && bytes && job_keeps_state(job)) {
        handover_withdraw(core, job);
        restart_stuck(core, job, bytes, stalled_ms);
        return;
    }
    handover_give_up(core, job);
    if (job->r.state == JOB_RUNNING && late)
        emit_event(core, job, "handover_given_up",
                   "%s, but rank %d on %s %s in time: the job keeps its nodes, and the next attempt is in %s",
                   job->handover.why, late->rank->r.rank, late->r.node,
                   late->gathered ? "did not gather the optimizer's state"
                                  : "did not reach the end of its step",
                   text_duration(job->handover.again_at - core->now.boot_ms).text);
}

static void review_job(struct core *core, struct job *job)
{
    CLEANUP(buf_release) struct buf why = {0};

    if (job->handover.number && core->now.boot_ms >= job->handover.until)
        handover_time_out(core, job);
    if (job->r.state != JOB_RUNNING || job->handover.number)
        return;
    if (!must_leave_nodes(job, &why)) {
        if (quorum_lacks_ranks(job))
            (void)handover_begin(core, job, "a rank that was late is replaced", NULL, NULL);
        return;
    }
    if (members_refuse(job) && job_keeps_state(job))
        generation_drain(core, job_current(job), why.data);
    else
        (void)handover_begin(core, job, why.data, NULL, NULL);
}

void handover_review(struct core *core)
{
    for (size_t i = 0; i < core->job_count; i++)
        if (core->jobs[i]->r.state == JOB_RUNNING && core->jobs[i]->spec.kind == JOB_TRAIN)
            review_job(core, core->jobs[i]);
}

/* ---- its end */

bool handover_ready(const struct job *job)
{
    const struct generation *g = job_current(job);

    if (!job->handover.number || !handover_possible(job))
        return false;
    for (int i = 0; i < g->r.world_size; i++)
        if (g->ranks[i].spawn->ready != job->handover.number)
            return false;
    return true;
}

static bool has_node(const struct generation *g, const struct node *node)
{
    for (int i = 0; i < g->r.world_size; i++)
        if (g->ranks[i].spawn->node == node)
            return true;
    return false;
}

bool handover_allows(const struct job *job, const struct node *node)
{
    if (names_contain(job->handover.leaving, node->r.name))
        return false;
    if (!job->handover.joining && !job->handover.leaving)
        return true;
    return has_node(job_current(job), node) || names_contain(job->handover.joining, node->r.name);
}

/* A job that leaves a node takes no more nodes than it had: those that are free are offered to it later. */
int64_t handover_most_nodes(const struct job *job)
{
    const struct generation *g = job_current(job);
    int64_t most = g->r.node_count + (int64_t)strv_len(job->handover.joining);

    if (most < job->spec.nodes_min) /* all ranks of a node were late, and have ended */
        most = job->spec.nodes_min;
    return most < job->spec.nodes_max ? most : job->spec.nodes_max;
}

void handover_complete(struct core *core, struct job *job)
{
    struct generation *g = job_current(job);

    job->handover.failures = 0;
    job->handed.generation = g->r.number + 1;
    job->handed.nodes = g->r.node_count;
    job->handed.since_ms = core->now.boot_ms;
    text_set(&job->handed.why, "%s", job->handover.why);
    generation_hand_over(core, g, job->handover.why);
}

void handover_give_up(struct core *core, struct job *job)
{
    CLEANUP(buf_release) struct buf why = {0};
    /* A user may have changed the reason meanwhile. A job without snapshots would lose all by a stop. */
    bool drains = is_for_standing_reason(job) && must_leave_nodes(job, &why) && job_keeps_state(job);

    handover_withdraw(core, job);
    if (drains)
        generation_drain(core, job_current(job), why.data);
    else
        raise_handover_asked(core, job);
}

void handover_note_gathered(struct core *core, struct spawn *s, int64_t gathered)
{
    struct job *job = s->job;
    const bool moved = gathered && gathered != s->gathered;
    const int64_t until = core->now.boot_ms + doubled(job, READY_MS);

    s->gathered = gathered;
    if (!job->handover.number || !moved)
        return;
    /* The time for slow steps is over when all gather: a stalled hand-over would keep the job from training for that long. */
    if (until < job->handover.until && !gathered_bytes(job))
        return;
    job->handover.until = until;
    core_wake(core, until);
}

void handover_reconsider(struct core *core, struct job *job)
{
    CLEANUP(buf_release) struct buf why = {0};

    if (!job->handover.number || !is_for_standing_reason(job) || must_leave_nodes(job, &why) ||
        quorum_lacks_ranks(job))
        return;
    job->handover.number = 0;
    raise_handover_asked(core, job);
}

void handover_tick(struct core *core, struct job *job)
{
    bool again = job->handover.again_at && core->now.boot_ms >= job->handover.again_at;

    if (again)
        job->handover.again_at = 0;
    if (again || (job->handover.number && core->now.boot_ms >= job->handover.until))
        core_capacity_changed(core);
}

int64_t handover_deadline(const struct job *job)
{
    int64_t at = job->handover.again_at ? job->handover.again_at : INT64_MAX;

    return job->handover.number && job->handover.until < at ? job->handover.until : at;
}
