/* How generations end, and what follows for their jobs.
 *
 * A rank fails (generation_fail): the generation closes at once, so its members can commit nothing more and
 * waiting Joins are answered ABORTED. The other ranks are stopped, and the job recovers while it has restarts
 * left, else it stops for good. Ranks of a train job that stay (survivors.c) are not stopped, and the failure is
 * charged only if none of them goes on. If the cause is an error that a restart would only repeat
 * (restart_rule.h), the job ends when the other ranks have ended, unless one of these turns out to have failed
 * first. A drain (generation_drain) or a cancel (job_stop) lets the generation first
 * finish its step and write its snapshot. All of them only begin the end: job_settle completes it when the
 * workers that the job waits for are dead. It runs after each death and decides by state alone, so no order
 * of deaths matters. */
#include "daemon/coordinator/core/generation_end.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/text.h"
#include "daemon/coordinator/core/emit.h"
#include "daemon/coordinator/core/failure/fault_cost.h"
#include "daemon/coordinator/core/failure/restart_rule.h"
#include "daemon/coordinator/core/generation_stop.h"
#include "daemon/coordinator/core/internal_event.h"
#include "daemon/coordinator/core/model.h"
#include "daemon/coordinator/core/notices.h"
#include "daemon/coordinator/core/placement/survivors.h"
#include "daemon/coordinator/core/progress.h"
#include "daemon/coordinator/core/snapshots/unsaved.h"
#include "daemon/coordinator/core/worker_asks.h"

/* How long after an error of a worker with GPUs its agent may still report one of them: it looks every 2 s and reports a
 * change at once. */
#define GPU_NEWS_MS 4000
/* A rank often aborts because a peer with an error is about to exit. For this long after an abort the other ranks get no
 * SIGTERM, because the end of a rank that was told to stop does not show whether the rank had an error. An interpreter
 * with PyTorch takes some 100 ms from its last message to its exit. */
#define CULPRIT_MS 1000
#define BACKOFF_FIRST_MS 1000
#define BACKOFF_MOST_MS 30000

/* Leaves the members of a closed generation alone for a moment. jobs_tick stops those that are left then. */
static void stop_spawns_later(struct core *core, struct generation *g)
{
    g->stop_at = core->now.boot_ms + CULPRIT_MS;
    core_wake(core, g->stop_at);
}

static void revoke_spawn(struct core *core, struct spawn *s)
{
    if (s->r.revoked)
        return;
    s->r.revoked = true;
    emit_spawn(core, s, CHANGE_SPAWN_PUT);
}

/* Members that were late for a round (quorum.c) do not go on with the job, except those that wait to come back if
 * `returning`, and those that belong to a generation that the records lack. They have nothing to save. */
static void drop_late_members(struct core *core, struct job *job, bool returning, const char *why)
{
    for (size_t i = 0; i < job->spawn_count; i++) {
        struct spawn *s = job->spawns[i];
        if (!spawn_is_late(s) || (returning && (s->holds || s->named > job->r.generation)))
            continue;
        emit_event(core, job, "late_rank_ended", "rank %d (%s) had not come back: its change is dropped",
                   s->rank->r.rank, s->r.node);
        revoke_spawn(core, s);
        generation_stop_spawns(core, s->rank->generation, CORE_STOP_KILL);
        raise_generation_ended(core, s->rank->generation,
                               why); /* its Watch says that it is not wanted any more */
    }
}

/* Ends the generation, but does not tell its members. From this commit on none of them can commit a snapshot for it. to_stop:
 * they are about to be stopped, and are revoked in the same commit, so that no later generation can have them; otherwise they
 * keep their tokens. */
static void close_generation(struct core *core, struct generation *g, enum generation_state to, bool to_stop,
                             const char *why)
{
    if (to_stop)
        drop_late_members(core, g->job, false, why);
    g->join_at = 0;
    g->job->handover.number = 0;
    g->r.closed_ms = core->now.wall_ms;
    emit_generation_move(core, g, to, why);
    emit_generation(core, g, CHANGE_GENERATION_PUT);
    for (int i = 0; i < g->r.world_size && to_stop; i++)
        revoke_spawn(core, g->ranks[i].spawn);
    raise_generation_ended(core, g, why);
}

/* Ends the generation. stop: how hard the members that still live are stopped. */
static void end_generation(struct core *core, struct generation *g, enum generation_state to,
                           enum core_stop stop, const char *why)
{
    close_generation(core, g, to, stop != CORE_STOP_NONE, why);
    /* a stop is only replaced by a harder one: processes that get SIGKILL already get no SIGTERM again */
    if (stop > g->stop)
        generation_stop_spawns(core, g, stop);
}

static void end_job(struct core *core, struct job *job, enum job_state to, const char *why)
{
    CLEANUP(free_text) char *reason = xstrdup(why); /* `why` may be job->r.reason, which move_job replaces */

    job->r.ended_ms = core->now.wall_ms;
    job->limit_at = 0;
    progress_keep(job);
    emit_job(core, job, CHANGE_JOB_PUT);
    emit_job_move(core, job, to, reason);
    emit_event(core, job, "job_ended", "%s: %s", sm_name(&job_sm, to), reason);
    notice_job(core, job,
               to == JOB_SUCCEEDED ? NOTICE_SUCCEEDED
               : to == JOB_FAILED  ? NOTICE_FAILED
                                   : NOTICE_CANCELLED,
               "%s", reason);
}

static void begin_job_stop(struct core *core, struct job *job, enum job_state goal, int exit_code, bool kill,
                           const char *why)
{
    job->r.goal = goal;
    job->r.kill = kill;
    job->r.exit_code = exit_code;
    emit_job(core, job, CHANGE_JOB_PUT);
    emit_job_move(core, job, JOB_STOPPING, why);
}

/* Counts a restart. From the second one on the job waits before it starts again, each time twice as long. */
static void charge_restart(struct core *core, struct job *job)
{
    int64_t n = ++job->r.restarts_used;

    core->restarts++;
    if (n < 2)
        return; /* the first restart is immediate: most failures do not repeat */
    int64_t wait = BACKOFF_FIRST_MS;
    for (int64_t i = 2; i < n && wait < BACKOFF_MOST_MS; i++)
        wait *= 2;
    wait = core->now.boot_ms + (wait < BACKOFF_MOST_MS ? wait : BACKOFF_MOST_MS);
    if (job->not_before < wait) /* after a restore the job may be held for longer (adopt.c) */
        job->not_before = wait;
    core_wake(core, job->not_before);
}

static void say_generation_closed(struct core *core, const struct job *job, const struct generation *g,
                                  const char *how)
{
    if (job->progress.step > 0)
        emit_event(core, job, "generation_closed", "stopped at step %s; generation %" PRId64 " closed (%s)",
                   text_count(job->progress.step).text, g->r.number, how);
    else
        emit_event(core, job, "generation_closed", "generation %" PRId64 " closed (%s)", g->r.number, how);
}

/* After the fault of a node, ranks that are new in this generation do not continue: they have no state yet, and the same may be
 * missing on their nodes. */
static bool goes_on_after(const struct generation *g, const struct spawn *s,
                          const struct failure_cause *cause)
{
    if (cause->of_node && s->r.first_generation == g->r.number && s->rank->r.state != RANK_TRAINING)
        return false;
    return survivors_include(g, s, cause->spawn, cause->late);
}

static int count_survivors(const struct generation *g, const struct failure_cause *cause)
{
    int count = 0;

    for (int i = 0; i < g->r.world_size; i++)
        count += goes_on_after(g, g->ranks[i].spawn, cause);
    return count;
}

/* Ends the generation, but not its survivors: their tokens stay valid, and nobody tells them to stop. The others
 * are killed at once. They have nothing to save, and a rank that stands still would not obey SIGTERM. */
static void end_around_survivors(struct core *core, struct generation *g, enum generation_state to,
                                 const struct failure_cause *cause)
{
    drop_late_members(core, g->job, true, cause->text);
    g->job->survivors_until = core->now.boot_ms + SURVIVORS_WAIT_MS;
    core_wake(core, g->job->survivors_until);
    for (int i = 0; i < g->r.world_size; i++)
        if (!goes_on_after(g, g->ranks[i].spawn, cause))
            revoke_spawn(core, g->ranks[i].spawn);
    end_generation(core, g, to, CORE_STOP_NONE, cause->text);
    generation_stop_spawns(core, g, CORE_STOP_KILL);
}

/* "3 of 4 ranks can go on; replacement 1 of 20 in a day". Sets charge_due: if no rank goes on in the next generation, the
 * failure still counts as a restart. */
static void fail_with_survivors(struct core *core, struct generation *g, const struct failure_cause *cause,
                                int survivors, int64_t replacements)
{
    struct job *job = g->job;
    char how[160];

    end_around_survivors(core, g, GENERATION_FAILED, cause);
    job->charge_due = cause->charged;
    snprintf(how, sizeof(how), "%d of %s can go on; replacement %" PRId64 " of %" PRId64 " in a day",
             survivors, text_counted(g->r.world_size, "rank").text, replacements + 1,
             job->spec.max_replacements);
    say_generation_closed(core, job, g, how);
    fault_open(core, job, false, cause->text);
    emit_job_move(core, job, JOB_RECOVERING, cause->text);
}

/* Begins a restart, which the job may have. worn_out: survivors could have gone on. */
static void begin_restart(struct core *core, struct job *job, const struct failure_cause *cause,
                          bool worn_out)
{
    char how[128] = "does not count as a restart";

    if (cause->charged) {
        charge_restart(core, job);
        snprintf(how, sizeof(how), "%srestart %" PRId64 " of %" PRId64,
                 worn_out ? "all replacements of the last 24 hours are used; " : "", job->r.restarts_used,
                 job->spec.max_restarts);
        notice_job(core, job, NOTICE_RESTARTED, "%s: restart %" PRId64 " of %" PRId64, cause->text,
                   job->r.restarts_used, job->spec.max_restarts);
    }
    say_generation_closed(core, job, job_current(job), how);
    fault_open(core, job, cause->charged, cause->text);
}

/* The generation has ended, and no restart follows. */
static void say_no_restart(struct core *core, struct job *job, const struct failure_cause *cause)
{
    CLEANUP(free_text) char *why = restart_rule_explain(job);
    char how[96] = "not restarted";

    if (cause->fatal)
        snprintf(how, sizeof(how), "a restart would not help");
    else if (cause->charged && !job->spec.max_restarts)
        snprintf(how, sizeof(how), "not restarted: max_restarts is 0");
    else if (cause->charged && job->r.restarts_used >= job->spec.max_restarts)
        snprintf(how, sizeof(how), "all %" PRId64 " restarts are used", job->spec.max_restarts);
    say_generation_closed(core, job, job_current(job), how);
    if (why)
        emit_event(core, job, "not_restarted", "%s", why);
}

void generation_await_gpu_news(struct core *core, struct job *job)
{
    const struct spawn *s = job_find_spawn(job, job_current(job)->r.failed_spawn);

    if (!s || !strv_len(s->r.gpu_uuids))
        return;
    job->gpu_news_until = core->now.boot_ms + GPU_NEWS_MS;
    core_wake(core, job->gpu_news_until);
}

/* The fault of a node is not a failure of the job. So the generation is closed, and not failed: this counts neither as a restart
 * nor as a replacement. Only such a closed generation has a failed_spawn, by which node_fault.c knows it. */
static void close_after_node_fault(struct core *core, struct generation *g, const struct failure_cause *cause)
{
    struct job *job = g->job;
    const int survivors = job->spec.max_replacements ? count_survivors(g, cause) : 0;
    char how[96] = "does not count as a restart";

    g->r.failed_spawn = cause->spawn->r.spawn;
    emit_event(core, job, "rank_failed", "%s", cause->text);
    if (survivors) {
        end_around_survivors(core, g, GENERATION_CLOSED, cause);
        snprintf(how, sizeof(how), "%d of %s can go on", survivors,
                 text_counted(g->r.world_size, "rank").text);
    } else {
        end_generation(core, g, GENERATION_CLOSED, CORE_STOP_TERM, cause->text);
    }
    say_generation_closed(core, job, g, how);
    fault_open(core, job, false, cause->text);
    emit_job_move(core, job, JOB_RECOVERING, cause->text);
    job_settle(core, job);
}

void generation_fail(struct core *core, struct generation *g, const struct failure_cause *cause)
{
    struct job *job = g->job;
    bool last = cause->fatal || (cause->charged && job->r.restarts_used >= job->spec.max_restarts);

    BUG_ON(!generation_open(g) || g != job_current(job));
    if (cause->of_node) {
        close_after_node_fault(core, g, cause);
        return;
    }
    g->r.charged = cause->charged;
    g->r.error = cause->error;
    g->r.failed_spawn = cause->spawn ? cause->spawn->r.spawn : 0;
    g->r.has_step = job->pace.boot_ms != 0;
    g->r.last_step = g->r.has_step ? job->progress.step : 0;
    emit_event(core, job, "rank_failed", "%s", cause->text);
    /* An error would come again in the next generation, whoever of this one goes on there. */
    bool refused = restart_rule_refuses(job) != REFUSAL_NONE;
    bool none = cause->fatal || refused || !survivors_may_go_on(job, cause->spawn);
    int survivors = none ? 0 : count_survivors(g, cause);
    int64_t replacements = survivors_count_replacements(core, job);
    bool worn_out = survivors && job->spec.max_replacements && replacements >= job->spec.max_replacements;
    if (survivors && replacements < job->spec.max_replacements) {
        fail_with_survivors(core, g, cause, survivors, replacements);
        job_settle(core, job);
        return;
    }
    /* Before all ranks run, a node that is not told to stop would still start its ranks. */
    if (cause->follows && g->r.state == GENERATION_RUNNING) {
        close_generation(core, g, GENERATION_FAILED, true, cause->text);
        stop_spawns_later(core, g);
    } else {
        /* SIGTERM without a last snapshot: a generation that has lost a rank cannot finish its step. */
        end_generation(core, g, GENERATION_FAILED, CORE_STOP_TERM, cause->text);
    }
    if (last) {
        say_no_restart(core, job, cause);
        begin_job_stop(core, job, JOB_FAILED, cause->exit_code, false, cause->text);
    } else {
        if (!refused)
            begin_restart(core, job, cause, worn_out);
        emit_job_move(core, job, JOB_RECOVERING, cause->text);
        /* Now the reason is the job's. The end itself comes in job_settle: the real cause may be a fault on a node
         * that has not spoken yet. */
        if (refused) {
            say_no_restart(core, job, cause);
            generation_await_gpu_news(core, job);
        }
    }
    /* the failed rank may have been the last one alive */
    job_settle(core, job);
}

/* ---- survivors that do not go on */

/* node: only those on this node; NULL: all. */
static void release_survivors(struct core *core, struct job *job, const struct node *node,
                              enum core_stop stop, const char *why)
{
    struct generation *g = job_current(job);
    bool any = false;

    for (size_t i = 0; i < job->spawn_count; i++) {
        struct spawn *s = job->spawns[i];
        if (!spawn_is_between(s) || spawn_is_late(s) || (node && s->node != node))
            continue;
        revoke_spawn(core, s);
        any = true;
    }
    if (!any)
        return;
    generation_stop_spawns(core, g, stop);
    raise_generation_ended(core, g, why); /* their Watch says that they are not wanted any more */
}

/* The job's exit code, if the failure that its survivors outlived ends it after all. */
static int failure_exit_code(const struct generation *g)
{
    const struct spawn *s = g->r.failed_spawn ? job_find_spawn(g->job, g->r.failed_spawn) : NULL;
    int code = !s || s->stalled || !s->r.exit_known ? 0 : s->r.signal ? 128 + s->r.signal : s->r.code;

    return code ? code : 125;
}

/* Counts the failure of the last generation as a restart, because no surviving rank continues. given_up: why the survivors
 * were stopped; NULL: they ended by themselves. */
static void charge_late(struct core *core, struct job *job, const char *given_up)
{
    const struct generation *g = job_current(job);
    CLEANUP(free_text) char *why = xstrdup(g->r.reason);
    const char *because = given_up ? " because " : "", *reason = given_up ? given_up : "";

    job->charge_due = false;
    if (job->r.state != JOB_RECOVERING)
        return; /* it is stopping for another reason */
    if (job->r.restarts_used >= job->spec.max_restarts) {
        emit_event(core, job, "survivors_ended",
                   "no rank of generation %" PRId64 " can continue%s%s, and all %" PRId64
                   " restarts are used",
                   g->r.number, because, reason, job->spec.max_restarts);
        begin_job_stop(core, job, JOB_FAILED, failure_exit_code(g), false, why);
        return;
    }
    charge_restart(core, job);
    emit_event(core, job, "survivors_ended",
               "no rank of generation %" PRId64 " can continue%s%s: restart %" PRId64 " of %" PRId64,
               g->r.number, because, reason, job->r.restarts_used, job->spec.max_restarts);
    notice_job(core, job, NOTICE_RESTARTED, "%s: restart %" PRId64 " of %" PRId64, why, job->r.restarts_used,
               job->spec.max_restarts);
    fault_open(core, job, true, why);
}

void generation_give_up_survivors(struct core *core, struct job *job, const char *why)
{
    release_survivors(core, job, NULL, CORE_STOP_TERM, why);
    if (job->charge_due && !survivors_wait(job))
        charge_late(core, job, why);
    job_settle(core, job);
}

void generation_drop_survivors(struct core *core, struct job *job, const char *why)
{
    if (!survivors_wait(job))
        return;
    generation_forgive(core, job);
    release_survivors(core, job, NULL, CORE_STOP_TERM, why);
}

void generation_lose_survivors(struct core *core, struct job *job, const struct node *node, const char *why)
{
    release_survivors(core, job, node, CORE_STOP_TERM, why);
}

void generation_lose_survivor(struct core *core, struct spawn *s, const char *why)
{
    revoke_spawn(core, s);
    generation_stop_spawns(core, s->rank->generation, CORE_STOP_TERM);
    raise_generation_ended(core, s->rank->generation, why);
    job_settle(core, s->job);
    core_capacity_changed(core);
}

void generation_forgive(struct core *core, struct job *job)
{
    struct generation *g = job_current(job);

    if (!job->charge_due)
        return;
    job->charge_due = false;
    g->r.charged = false;
    emit_generation(core, g, CHANGE_GENERATION_PUT);
}

/* The restart that followed the cause that was reported first does not take place. */
static void take_back_restart(struct job *job)
{
    if (!job->charge_due && job->r.restarts_used)
        job->r.restarts_used--;
    job->charge_due = false;
    if (job->r.restarts_used)
        return;
    free(job->r.last_restart);
    job->r.last_restart = NULL;
    job->r.last_restart_ms = 0;
}

void generation_replace_cause(struct core *core, struct generation *g, const struct failure_cause *cause)
{
    struct job *job = g->job;
    bool waited = restart_rule_waits(job);

    log_info("cause_found", "job=%" PRId64 " gen=%" PRId64 " why=%s", job->r.id, g->r.number,
             LOG_Q(cause->text));
    if (g->stop == CORE_STOP_NONE && g->stop_at && !cause->follows)
        generation_stop_spawns(core, g, CORE_STOP_TERM); /* nobody else is waited for */
    g->r.failed_spawn = cause->spawn ? cause->spawn->r.spawn : 0;
    g->r.error = cause->error;
    if (waited) /* otherwise a restart was counted already */
        g->r.charged = cause->charged;
    text_set(&g->r.reason, "%s", cause->text);
    emit_generation(core, g, CHANGE_GENERATION_PUT);
    emit_event(core, job, "rank_failed", "%s: this failure came first", cause->text);
    text_set(&job->r.reason, "%s", cause->text);
    job->changed = true;
    if (job->r.state == JOB_STOPPING)
        job->r.exit_code = cause->exit_code;
    else if (waited && !cause->fatal && !restart_rule_waits(job))
        begin_restart(core, job, cause, false);
    else if (!waited &&
             (!job->charge_due || !job->r.restarts_used)) /* it may not become a restart: fault_cost.c */
        text_set(&job->r.last_restart, "%.240s", cause->text);
    if (!waited && restart_rule_waits(job)) {
        /* The exit that was reported first allowed the job to go on; the real cause does not. */
        take_back_restart(job);
        release_survivors(core, job, NULL, CORE_STOP_TERM, cause->text);
        say_no_restart(core, job, cause);
        generation_await_gpu_news(core, job);
    }
    emit_job(core, job, CHANGE_JOB_PUT);
    core_capacity_changed(core);
    if (cause->fatal && job->r.state == JOB_RECOVERING)
        job_stop(core, job, JOB_FAILED, cause->exit_code, false, cause->text);
}

/* ---- generations and jobs that end on purpose */

void generation_hold(struct core *core, struct generation *g, const char *why)
{
    struct job *job = g->job;

    BUG_ON(!generation_open(g) || g != job_current(job));
    end_generation(core, g, GENERATION_CLOSED, CORE_STOP_TERM, why);
    emit_job_move(core, job, JOB_RECOVERING, why);
    job_settle(core, job);
}

/* A trainer finishes its step and writes a snapshot, and so does a command that calls should_stop. Other commands know no
 * such request: they get SIGTERM, or the signal that the user sent. */
static enum core_stop stop_of_drain(const struct generation *g)
{
    const int signal = g->job->r.stop_signal;

    if (g->job->spec.kind == JOB_TRAIN)
        return CORE_STOP_SNAPSHOT;
    return worker_asks_heeded(g) && (!signal || signal == SIGTERM) ? CORE_STOP_SNAPSHOT : CORE_STOP_TERM;
}

static void begin_generation_drain(struct core *core, struct generation *g, const char *why)
{
    if (g->r.state != GENERATION_RUNNING) {
        /* No step was done in it. Members that brought a state go on with it in the next one. */
        const struct failure_cause cause = {.text = why};
        if (g->job->r.state != JOB_STOPPING && survivors_bring_state(g))
            end_around_survivors(core, g, GENERATION_CLOSED, &cause);
        else
            end_generation(core, g, GENERATION_CLOSED, CORE_STOP_TERM, why);
        return;
    }
    drop_late_members(core, g->job, false, why);
    g->job->handover.number = 0; /* members that wait for it go on, and stop after their next step */
    emit_generation_move(core, g, GENERATION_DRAINING, why);
    generation_stop_spawns(core, g, stop_of_drain(g));
    raise_generation_draining(core, g);
}

void generation_drain(struct core *core, struct generation *g, const char *why)
{
    struct job *job = g->job;

    if (job->r.state != JOB_STARTING && job->r.state != JOB_RUNNING)
        return; /* it is stopping or recovering already, and the next generation forms anyway */
    /* The job's nodes stay reserved for it until it starts again: it did not give them up. */
    strv_free(steal(job->targets));
    for (int i = 0; i < g->r.world_size; i++)
        if (g->ranks[i].r.local_rank == 0)
            job->targets = strv_append(job->targets, g->ranks[i].r.node);
    job->drained_ms = core->now.boot_ms;
    emit_event(core, job, "generation_drained", "generation %" PRId64 ": %s (does not count as a restart)",
               g->r.number, why);
    fault_open(core, job, false, why);
    begin_generation_drain(core, g, why);
    emit_job_move(core, job, JOB_RECOVERING, why);
    job_settle(core, job);
}

void generation_hand_over(struct core *core, struct generation *g, const char *why)
{
    BUG_ON(g->r.state != GENERATION_RUNNING || g != job_current(g->job));
    end_generation(core, g, GENERATION_CLOSED, CORE_STOP_NONE, why);
    emit_job_move(core, g->job, JOB_RECOVERING, why);
}

static void kill_job(struct core *core, struct job *job)
{
    struct generation *g = job_current(job);

    job->r.kill = true;
    emit_job(core, job, CHANGE_JOB_PUT);
    if (g && generation_open(g))
        end_generation(core, g, GENERATION_CLOSED, CORE_STOP_KILL, "killed by the user");
    /* workers of older generations may still be stopping, and the job ends only with them */
    for (size_t i = 0; i < job->generation_count; i++)
        generation_stop_spawns(core, job->generations[i], CORE_STOP_KILL);
}

void job_stop(struct core *core, struct job *job, enum job_state goal, int exit_code, bool kill,
              const char *why)
{
    struct generation *g = job_current(job);

    if (job->r.state == JOB_QUEUED) { /* it has no worker to wait for */
        job->r.exit_code = exit_code;
        end_job(core, job, goal, why);
        return;
    }
    /* A job that is stopping keeps its first reason and goal; a second call can only kill it. */
    if (job->r.state != JOB_STOPPING) {
        emit_event(core, job, "job_stopping", "stopping: %s", why);
        begin_job_stop(core, job, goal, exit_code, kill, why);
        if (!kill && generation_open(g) && g->r.state != GENERATION_DRAINING)
            begin_generation_drain(core, g, why);
        release_survivors(core, job, NULL, CORE_STOP_TERM, why);
    }
    if (kill)
        kill_job(core, job);
    job_settle(core, job);
}

static bool has_reachable_spawn(const struct job *job)
{
    for (size_t i = 0; i < job->spawn_count; i++)
        if (spawn_reachable(job->spawns[i]))
            return true;
    return false;
}

static bool all_ranks_succeeded(const struct generation *g)
{
    for (int i = 0; i < g->r.world_size; i++) {
        const struct spawn_record *s = &g->ranks[i].spawn->r;
        if (!s->dead || !s->exit_known || s->code || s->signal)
            return false;
    }
    return true;
}

/* All commands exited with 0 before their supervisors were told to stop them: the job has succeeded, and must
 * not start again. This does not apply to trainers: they hear of the drain from the coordinator directly and
 * then exit with 0 too. A trainer that had no step left finds that out in the next generation. */
static bool commands_finished_first(const struct generation *g)
{
    if (g->job->spec.kind != JOB_COMMAND)
        return false;
    /* a command that exits with 0 after SIGTERM has not finished its work */
    for (int i = 0; i < g->r.world_size; i++)
        if (g->ranks[i].spawn->r.stopped)
            return false;
    return all_ranks_succeeded(g);
}

static void end_drained_generation(struct core *core, struct generation *g)
{
    struct job *job = g->job;

    end_generation(core, g, GENERATION_CLOSED, CORE_STOP_KILL, "its members have stopped");
    if (commands_finished_first(g)) {
        begin_job_stop(core, job, JOB_SUCCEEDED, 0, false, "all ranks exited with 0");
        end_job(core, job, JOB_SUCCEEDED, "all ranks exited with 0");
        return;
    }
    say_generation_closed(core, job, g, "does not count as a restart");
    if (job->progress.step > job->r.fault_step) {
        job->r.fault_step = job->progress.step; /* it made more steps while it drained */
        emit_job(core, job, CHANGE_JOB_PUT);
    }
}

void job_settle(struct core *core, struct job *job)
{
    struct generation *g = job_current(job);

    if (job_finished(job) || !g)
        return;
    if (job->charge_due && !survivors_wait(job))
        charge_late(core, job, NULL);
    if (restart_rule_waits(job)) {
        if (has_reachable_spawn(job) || job->gpu_news_until)
            return;
        begin_job_stop(core, job, JOB_FAILED, failure_exit_code(g), false, g->r.reason);
        end_job(core, job, JOB_FAILED, g->r.reason);
    } else if (job->r.state == JOB_STOPPING) {
        /* Workers on lost nodes are not waited for: a user who cancels wants an answer, and they cannot
         * commit. */
        if (has_reachable_spawn(job))
            return;
        if (generation_open(g))
            end_generation(core, g, GENERATION_CLOSED, CORE_STOP_KILL, job->r.reason);
        /* A failure has its own words, and its rank wrote no last snapshot. */
        CLEANUP(free_text) char *loss = g->r.state == GENERATION_FAILED ? NULL : unsaved_loss(job);
        CLEANUP(free_text) char *why = loss ? xasprintf("%s; %s", job->r.reason, loss) : NULL;
        end_job(core, job, job->r.goal, why ? why : job->r.reason);
    } else if (g->r.state == GENERATION_DRAINING) {
        if (!has_reachable_spawn(job))
            end_drained_generation(core, g);
    } else if (g->r.state == GENERATION_RUNNING && all_ranks_succeeded(g)) {
        drop_late_members(core, job, false, "the run has ended");
        end_generation(core, g, GENERATION_CLOSED, CORE_STOP_NONE, "all ranks exited with 0");
        end_job(core, job, JOB_SUCCEEDED, "all ranks exited with 0");
    }
}

void spawn_mark_dead(struct core *core, struct spawn *s)
{
    struct rank *rank = s->rank;

    BUG_ON(s->r.dead);
    s->r.dead = s->r.revoked = true; /* its token, if another process has it, must not work any more */
    if (!s->r.ended_ms)
        s->r.ended_ms = core->now.wall_ms;
    if (s->node)
        node_drop_spawn(core, s->node, s);
    if (!sm_terminal(&rank_sm, rank->r.state))
        emit_rank_move(core, rank, s->r.lost ? RANK_LOST : RANK_EXITED);
    emit_spawn(core, s, CHANGE_SPAWN_PUT);
    raise_spawn_dead(core, s);
    core_capacity_changed(core);
}
