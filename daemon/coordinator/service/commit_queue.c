#include "daemon/coordinator/service/commit_queue.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "daemon/coordinator/service/agent_rpc.h"
#include "daemon/coordinator/service/calls.h"
#include "daemon/coordinator/service/effects.h"
#include "daemon/coordinator/service/handles.h"
#include "daemon/coordinator/service/logs/log_tails.h"
#include "daemon/coordinator/service/metrics/metrics_recorder.h"
#include "daemon/coordinator/service/metrics/stats.h"
#include "daemon/coordinator/service/service_state.h"
#include "daemon/coordinator/service/tell/teller.h"
#include "daemon/coordinator/service/waiting_effects.h"

/* Commit before effect.
 *
 * Happy path: in one turn of the loop, the service hands all arrived events to the core. At the end of the
 * turn the core's changes are committed in one transaction, and then the effects (replies, acknowledgements,
 * wishes) are released. If the process is killed at any point, the database holds either nothing or all of a
 * turn, and no peer has been told anything that is not on disk.
 *
 * Failure modes:
 * - The commit fails because the disk is full or cannot be written, or another process has locked the database. The
 *   changes and effects stay in service.out, and only a timer tries the commit again, every RETRY_MS. Until it
 *   succeeds, the core's deadlines do not run, calls that change state are refused, calls that read show the known
 *   state, the newest facts of each agent are kept aside, and heartbeats are still acknowledged, so that running jobs
 *   continue. Of effects that replace each other only the newest waits (waiting_effects.h). A job whose submit is among
 *   the waiting changes is refused to its client at once, and its cancellation joins them. If the next start may find the changes in
 *   the database (store_in_doubt), the job may run, so it is not refused: the reply waits for the commit.
 * - The database is damaged (DATA_LOSS). No effect is released any more, and the program ends.
 * - Any other error is a bug or a broken disk. The process aborts, and the next start rebuilds memory from
 *   the database. */

#define RETRY_MS 500
#define EFFECTS_LEAST 1024 /* that wait before they are looked through */

enum err_code commit_queue_accepts(const struct service *s, struct err *e)
{
    if (s->commit_blocked)
        return err_set(e, ERR_RESOURCE_EXHAUSTED, "%s: %s", s->obstacle_text,
                       s->obstacle == OBSTACLE_FULL ? "free some space and try again" : "try again later");
    return ERR_OK;
}

bool commit_queue_has_room(const struct service *s, int64_t *bytes)
{
    *bytes = store_room(s->store);
    return *bytes >= STORE_ROOM_LEAST;
}

/* Agents and workers go on sending while commits fail, and many of their messages replace an earlier one. The queue may double
 * before it is looked through again, so each effect costs little. */
static void effects_bound(struct service *s)
{
    if (s->out.effect_count < s->thin_at)
        return;
    waiting_effects_thin(s, &s->out);
    s->thin_at = 2 * s->out.effect_count > EFFECTS_LEAST ? 2 * s->out.effect_count : EFFECTS_LEAST;
}

/* While commits fail, acknowledgements of heartbeats are released at once: they renew leases, and a lease is
 * not a durable fact. All other effects wait for the commit. */
static void event_while_blocked(struct service *s, const struct core_event *event)
{
    struct core_out now = {0}, acks = {0};
    core_event(s->core, event, service_now(), &now);
    for (size_t i = 0; i < now.change_count; i++) {
        s->out.changes =
            array_grow(s->out.changes, s->out.change_count, &s->out.change_cap, sizeof *s->out.changes);
        s->out.changes[s->out.change_count++] = now.changes[i];
    }
    for (size_t i = 0; i < now.effect_count; i++) {
        struct core_out *to = now.effects[i].kind == EFFECT_ACK ? &acks : &s->out;
        to->effects = array_grow(to->effects, to->effect_count, &to->effect_cap, sizeof *to->effects);
        to->effects[to->effect_count++] = now.effects[i];
    }
    now.change_count = now.effect_count = 0; /* moved to s->out and acks, which own them now */
    effects_run(s, &acks);
    core_out_release(&acks);
    core_out_release(&now);
    effects_bound(s);
}

void commit_queue_event(struct service *s, const struct core_event *event)
{
    if (s->commit_blocked)
        event_while_blocked(s, event);
    else
        core_event(s->core, event, service_now(), &s->out);
}

struct change *commit_queue_change(struct service *s, enum change_kind kind)
{
    struct core_out *out = &s->out;
    out->changes = array_grow(out->changes, out->change_count, &out->change_cap, sizeof *out->changes);
    struct change *c = &out->changes[out->change_count++];
    *c = (struct change){.kind = kind};
    return c;
}

void commit_queue_cluster_event(struct service *s, const char *what, const char *text)
{
    struct event_record *event = xcalloc(1, sizeof *event);

    *event = (struct event_record){.time_ms = clock_wall_ms(), .what = xstrdup(what), .text = xstrdup(text)};
    commit_queue_change(s, CHANGE_EVENT)->event = event;
}

/* ---- commits */

static bool numbers_have(const int64_t *numbers, size_t count, int64_t number)
{
    for (size_t i = 0; i < count; i++)
        if (numbers[i] == number)
            return true;
    return false;
}

/* Tells clients now that their submitted jobs were not accepted. Their jobs stay in s->out, since the core already knows them. They
 * are cancelled in the same transaction, or the next start could run them. */
static void refuse_pending_submits(struct service *s)
{
    int64_t *jobs = NULL;
    size_t count = 0, cap = 0;

    for (size_t i = 0; i < s->out.effect_count; i++) {
        const struct core_effect *f = &s->out.effects[i];
        struct call *c = f->kind == EFFECT_REPLY ? handles_get(&s->calls, f->call) : NULL;
        if (!c || c->kind != CALL_SUBMIT || f->err.code != ERR_OK)
            continue;
        /* A repeated submit of a durable job: the job is not part of the blocked commit. */
        if (f->existed && !numbers_have(jobs, count, f->job))
            continue;
        struct err e = {0};
        if (commit_queue_accepts(s, &e) != ERR_OK)
            rpc_call_fail(c->rpc, &e);
        call_take(s, f->call);
        if (f->existed)
            continue;
        jobs = array_grow(jobs, count, &cap, sizeof *jobs);
        jobs[count++] = f->job;
    }
    /* After the loop, because each adds effects. */
    for (size_t i = 0; i < count; i++)
        commit_queue_event(s, &(struct core_event){.kind = CORE_CANCEL,
                                                   .call = service_handle(s),
                                                   .cancel = {.job = jobs[i], .kill = true}});
    free(jobs);
}

static void commit_on_retry(uv_timer_t *timer)
{
    commit_queue_try(timer->data);
}

/* Retrying cannot help, and effects of uncommitted changes must not be released. The next start refuses to
 * serve and prints how to continue. */
void commit_queue_damaged(struct service *s, const struct err *e)
{
    if (s->damage.code != ERR_OK)
        return;
    log_error("database_damaged", "why=%s", LOG_Q(e->msg));
    s->damage = *e;
    s->commit_blocked = true;
    s->obstacle = OBSTACLE_OTHER;
    snprintf(s->obstacle_text, sizeof s->obstacle_text, "the coordinator's database is damaged (%s)",
             s->options->state);
    uv_timer_stop(&s->retry);
    service_stop(s, "the database is damaged");
}

/* A full disk is recognised by the room that is left, because SQLite reports read-only and broken disks with the same code. */
static enum commit_obstacle obstacle_find(const struct service *s, const struct err *e)
{
    if (e->code == ERR_UNAVAILABLE)
        return OBSTACLE_LOCKED;
    return store_room(s->store) < STORE_ROOM_LEAST ? OBSTACLE_FULL : OBSTACLE_OTHER;
}

static void obstacle_note(struct service *s, const struct err *e)
{
    static const struct {
        const char *event, *todo;
    } logged[] = {
        [OBSTACLE_FULL] = {"disk_full", "free space in the state directory"},
        [OBSTACLE_LOCKED] = {"database_locked", "end the program that has opened ddp.db"},
        [OBSTACLE_OTHER] = {"database_not_written", "look at the disk of the state directory"},
    };
    const enum commit_obstacle found = obstacle_find(s, e);
    const char *state = s->options->state;
    char *text = s->obstacle_text;
    const size_t size = sizeof s->obstacle_text;

    if (found == OBSTACLE_FULL)
        snprintf(text, size, "the coordinator's disk is full (%s)", state);
    else if (found == OBSTACLE_LOCKED)
        snprintf(text, size, "another process has locked the coordinator's database (%s)", state);
    else
        snprintf(text, size, "the coordinator cannot write its database (%.80s: %.120s)", state, e->msg);
    if (found == s->obstacle)
        return;
    s->obstacle = found;
    log_error(logged[found].event, "pending=%zu why=%s todo=\"%s; new jobs are refused meanwhile\"",
              s->out.change_count, LOG_Q(e->msg), logged[found].todo);
}

static void commit_block(struct service *s, const struct err *e)
{
    s->stats.commit_failures++;
    s->stats.pending_changes = s->out.change_count;
    if (e->code == ERR_DATA_LOSS) {
        commit_queue_damaged(s, e);
        return;
    }
    if (!s->commit_blocked && e->code != ERR_RESOURCE_EXHAUSTED && e->code != ERR_UNAVAILABLE) {
        log_error("commit_failed", "why=%s", LOG_Q(e->msg));
        abort(); /* memory is ahead of the database in an unknown way; the next start rebuilds it */
    }
    obstacle_note(s, e);
    if (s->commit_blocked)
        return;
    s->commit_blocked = true;
    s->thin_at = EFFECTS_LEAST;
    /* A refused job must never run. The cancellation of a job in doubt could come too late: the program may end before it is committed. */
    if (!store_in_doubt(s->store))
        refuse_pending_submits(s);
    s->stats.pending_changes = s->out.change_count;
    uv_timer_start(&s->retry, commit_on_retry, RETRY_MS, RETRY_MS);
}

static void commit_unblock(struct service *s)
{
    log_info(s->obstacle == OBSTACLE_FULL ? "disk_free_again" : "database_written_again", "committed=%zu",
             s->stats.pending_changes);
    s->commit_blocked = false;
    s->obstacle = OBSTACLE_NONE;
    s->stats.pending_changes = 0;
    uv_timer_stop(&s->retry);
    /* Facts that arrived meanwhile are events again, with commits of their own. */
    agent_sessions_release_facts(s);
}

/* After a start on a full disk, the coordinator only shows the loaded state until its new epoch is durable.
 * Then memory is rebuilt, so that every lease, which agents may have renewed meanwhile, is waited for in full
 * from now on. */
static bool commit_resume_store(struct service *s)
{
    struct err e = {0};
    if (store_resume(s->store, &e) != ERR_OK) {
        commit_block(s, &e);
        return false;
    }
    if (service_rebuild(s, &e) != ERR_OK) {
        commit_queue_damaged(s, &e);
        return false;
    }
    agent_sessions_redial(s);
    return true;
}

/* Tells everybody what is durable now. */
static void commit_announce(struct service *s, const struct core_out *done)
{
    /* Adds an event if a queue is over its limit. */
    teller_committed(s->teller, done->changes, done->change_count);
    /* Metrics are in another database and are deleted only when the job is durably gone, as are copies of its logs. */
    for (size_t i = 0; i < done->change_count; i++)
        if (done->changes[i].kind == CHANGE_JOB_FORGET) {
            metrics_recorder_forget(s->recorder, done->changes[i].id);
            log_tails_drop_job(s->log_tails, done->changes[i].id);
        }
    effects_run(s, done);
}

void commit_queue_flush(struct service *s)
{
    /* Each attempt blocks the loop until the disk has answered. Calls come at any rate, so they do not repeat a commit that has
     * failed; only the timer does. */
    if (!s->commit_blocked)
        commit_queue_try(s);
}

void commit_queue_try(struct service *s)
{
    struct err e = {0};
    if (s->damage.code != ERR_OK || (store_deferred(s->store) && !commit_resume_store(s)))
        return;
    if (s->out.change_count) {
        const int64_t start = clock_mono_ns();
        if (store_commit(s->store, s->out.changes, s->out.change_count, &e) != ERR_OK) {
            commit_block(s, &e);
            return;
        }
        stats_commit(&s->stats, clock_mono_ns() - start, s->out.change_count);
    }
    if (s->out.change_count || s->out.effect_count) {
        if (s->commit_blocked)
            waiting_effects_thin(s, &s->out); /* each of them may walk all watches and logs */
        struct core_out done = s->out;
        /* Empty, with the arrays of an earlier turn. What is added from here on belongs to the next commit. */
        s->out = s->spare;
        commit_announce(s, &done);
        core_out_clear(&done);
        s->spare = done;
    }
    if (s->commit_blocked)
        commit_unblock(s);
}
