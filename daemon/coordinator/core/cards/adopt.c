/* Brings records that were restored from a backup up to date with what the nodes know.
 *
 * The records are too old if a node has a card (card.c) that is newer than our record of its job, or a wish
 * of an epoch that we have not reached, or if the store says so (records.age). The coordinator then learns
 * until the time in which nodes may come back (return_ms) is over. It raises its epoch above all that the
 * nodes have seen. A job that has no workers waits to be placed until workers of it that we do not know have
 * come back with their node or have lost their lease. A node that says nothing of a worker proves nothing,
 * since the worker may be from before the backup. New jobs get numbers beyond those that the lost records may
 * have given out.
 *
 * No worker of restored records or of a card is started: it may have ended since, and its slot or its place in
 * the job may belong to another. If its node has it, it runs on. If the node still does not have it after the
 * coordinator has learned, it is dead (facts.c).
 *
 * A card is merged with what we know of its job (card_merge.c), by rules that do not depend on the order in
 * which cards come: of two generations or states the further one counts, a worker that either side calls dead
 * is dead, and snapshots are put together. A job that was stopped after the restore stays stopped, also in a later
 * generation of a card (repeat_stop). Of two revisions of the job file the later one counts, whichever side
 * is further: a tune changes neither generation nor state. So no worker that both sides know is told to stop, and a
 * job that has ended since the backup is not run again. */
#include "daemon/coordinator/core/cards/adopt.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/worker/exits.h"
#include "daemon/coordinator/core/cards/card.h"
#include "daemon/coordinator/core/cards/card_merge.h"
#include "daemon/coordinator/core/emit.h"
#include "daemon/coordinator/core/failure/restart_rule.h"
#include "daemon/coordinator/core/failure/stall.h"
#include "daemon/coordinator/core/generation_end.h"
#include "daemon/coordinator/core/load.h"
#include "daemon/coordinator/core/model.h"
#include "daemon/coordinator/core/nodes/gpus.h"
#include "daemon/coordinator/core/placement/survivors.h"
#include "daemon/coordinator/core/rendezvous.h"

/* Between the last number in the records and the first that is given out again. */
#define NUMBERS_APART 1000

bool adopt_learning(const struct core *core)
{
    return core->learning_until && core->now.boot_ms < core->learning_until;
}

bool core_may_learn(const struct core *core, struct core_now now)
{
    return core->learning_until && now.boot_ms < core->learning_until;
}

/* ---- the time of learning */

static void mark_all_wishes(struct core *core)
{
    for (size_t i = 0; i < core->node_count; i++)
        core->nodes[i]->wish_dirty = true;
}

static void raise_epoch(struct core *core, int64_t seen)
{
    if (seen < core->config.epoch)
        return;
    core->config.epoch = seen + 1;
    emit_meta(core, "epoch", core->config.epoch);
    /* facts that answer a wish of an older epoch do not prove that a worker is absent, so every node gets a
     * new wish */
    mark_all_wishes(core);
}

/* Holds the job back until its workers that we may not know have been reported or have lost their lease. */
static void hold_job(struct core *core, struct job *job)
{
    int64_t lease = job->spec.lease_ms + core->config.lease_margin_ms;

    job->not_before = core->now.boot_ms + (lease > core->config.return_ms ? lease : core->config.return_ms);
    job->held = true;
    if (job->survivors_until) /* survivors wait as long, too */
        job->survivors_until = job->not_before + SURVIVORS_WAIT_MS;
    core_wake(core, job->not_before);
}

/* What is known of the spawns beside their records: copies in the order of their numbers, of which no pointer may be used. An
 * empty one ends the list. NULL: there is no job. */
static struct spawn *copy_spawns(const struct job *job)
{
    struct spawn *list = job ? xcalloc(job->spawn_count + 1, sizeof(*list)) : NULL;

    for (size_t i = 0; job && i < job->spawn_count; i++)
        list[i] = *job->spawns[i];
    return list;
}

/* Records the doubt, so that the coordinator still doubts the spawns after a restart (adopt_go_on). */
static void doubt_records(struct core *core)
{
    if (core->records_doubted)
        return;
    core->records_doubted = true;
    emit_meta(core, "restored", RECORDS_LEARNING);
}

static bool spawn_is_doubted(const struct core *core)
{
    for (size_t i = 0; i < core->job_count; i++)
        for (size_t k = 0; k < core->jobs[i]->spawn_count; k++) {
            const struct spawn *s = core->jobs[i]->spawns[k];
            if (s->doubtful && !s->r.revoked && !s->r.dead)
                return true;
        }
    return false;
}

/* Doubts all spawns until their nodes show them, but not those that were shown before the job was made anew from a card. Of these
 * the nodes do not repeat either what they have said. A generation that forms has time after that. */
static void doubt_spawns(struct core *core, struct job *job, const struct spawn *before)
{
    struct generation *g = job_current(job);

    doubt_records(core);
    for (size_t i = 0; i < job->spawn_count; i++) {
        struct spawn *s = job->spawns[i];
        while (before && before->r.spawn && before->r.spawn < s->r.spawn)
            before++;
        const bool known = before && before->r.spawn == s->r.spawn;
        s->doubtful = !known || before->doubtful;
        if (known)
            stall_carry_over(s, before);
    }
    if (g && g->join_at && g->join_at <= core->learning_until) {
        g->join_at = core->learning_until + job->spec.join_timeout_ms;
        core_wake(core, g->join_at);
    }
}

static void leave_gap(struct core *core, int64_t to)
{
    if (!core->gap_from) /* an earlier gap stays open: cards of its jobs may still come */
        core->gap_from = core->next_job;
    core->gap_to = core->next_job = to;
    emit_meta(core, "gap_from", core->gap_from);
    emit_meta(core, "gap_to", core->gap_to);
}

void adopt_go_on(struct core *core)
{
    doubt_records(core);
    core->learning_until = core->now.boot_ms + core->config.return_ms;
    core_wake(core, core->learning_until);
    for (size_t i = 0; i < core->job_count; i++)
        if (!job_finished(core->jobs[i])) {
            hold_job(core, core->jobs[i]);
            doubt_spawns(core, core->jobs[i], NULL);
        }
    core_await_nodes(core);
}

void adopt_begin(struct core *core, int64_t seen_epoch, bool numbered)
{
    raise_epoch(core, seen_epoch);
    if (core->learning_until)
        return;
    log_warn("records_are_older", "epoch=%" PRId64 " next_job=%" PRId64, core->config.epoch, core->next_job);
    if (!numbered)
        leave_gap(core, core->next_job + NUMBERS_APART);
    for (size_t i = 0; i < core->job_count; i++) {
        struct job *job = core->jobs[i];
        if (job_finished(job))
            continue;
        /* Lost records may have given spawn numbers out. A new spawn with such a number would be taken for
         * the old. */
        job->r.next_spawn += NUMBERS_APART;
        emit_job(core, job, CHANGE_JOB_PUT);
    }
    adopt_go_on(core);
    emit_event(
        core, NULL, "records_restored",
        "the coordinator's records are older than those of the nodes: it learns from the nodes for %" PRId64
        " s",
        core->config.return_ms / 1000);
}

void adopt_tick(struct core *core)
{
    if (core->learning_until && core->now.boot_ms >= core->learning_until) {
        core->learning_until = 0;
        mark_all_wishes(core); /* from now on the answers count as proof of what is absent */
        core_capacity_changed(core);
    }
    if (core->records_doubted && !core->learning_until && !spawn_is_doubted(core)) {
        core->records_doubted = false;
        emit_meta(core, "restored", RECORDS_NEW);
    }
}

bool core_wants_card(const struct core *core, const char *node, const struct core_card_head *head)
{
    const struct job *job = core_find_job(core, head->job);

    if (!job)
        return head->job > 0 && !card_number_is_known(core, head->job);
    const int64_t ours = card_progress(job, node);
    /* Restored records may be ahead in one part and behind in the other: other nodes have said that the generation runs,
     * and only this card says that a worker of this node has ended. */
    return ours < head->progress || (adopt_learning(core) && card_changes_differ(ours, head->progress));
}

/* Refuses a hello with a card that cannot be used. A job number and a request id must each belong to one job,
 * because users identify jobs by them. */
enum err_code adopt_check(const struct core *core, const struct core_hello *hello, struct err *e)
{
    for (size_t i = 0; i < hello->card_count; i++) {
        const struct job_record *job = hello->cards[i].jobs;
        if (!card_merge_is_sound(&hello->cards[i]))
            return err_set(
                e, ERR_FAILED_PRECONDITION,
                "node %s keeps a job that this version cannot read; run ddp-agent --rejoin there to end it",
                hello->node);
        const struct job *same = core_find_job(core, job->id),
                         *asked = core_find_request(core, job->request_id);
        if (same != asked)
            return err_set(e, ERR_FAILED_PRECONDITION,
                           "node %s has a job %" PRId64
                           " (%s) whose records are lost; that number belongs to another job now; "
                           "run ddp-agent --rejoin there to end it",
                           hello->node, job->id, job->name);
    }
    return ERR_OK;
}

/* ---- the merged records become the core's */

static struct node *add_expected_node(struct core *core, char *name)
{
    struct node_record record = {.name = name,
                                 .instance = (char *)"",
                                 .address = (char *)"",
                                 .version = (char *)"",
                                 .log_dir = (char *)"",
                                 .gpus = (char *)"[]",
                                 .state = NODE_JOINING,
                                 .seen_ms = core->now.wall_ms};
    struct node *node = core_add_node(core, &record);

    emit_node(core, node, CHANGE_NODE_INSERT);
    return node;
}

/* Nodes of living workers that our records do not know, or call lost, joined or came back after the backup.
 * They get as much time as any other node to connect. */
static void expect_nodes(struct core *core, const struct records *r)
{
    for (size_t i = 0; i < r->spawn_count; i++) {
        const struct spawn_record *s = &r->spawns[i];
        struct node *node = core_find_node(core, s->node);
        if (s->dead || (node && !node_gone(node)))
            continue;
        if (node)
            emit_node_move(core, node, NODE_JOINING, "another node reported that it came back");
        else
            node = add_expected_node(core, s->node);
        node->heard_ms = node->alive_ms = core->now.boot_ms;
        node->return_by = core->now.boot_ms + core->config.return_ms;
    }
}

/* Workers that were never started are dead. The wish that starts a worker also brings the card, so a node
 * that has connected since, without that card, never got the wish, and its slots may belong to other jobs by
 * now. */
static void end_unstarted_spawns(struct core *core, const char *teller, const struct records *ours,
                                 struct records *merged)
{
    for (size_t i = 0; i < merged->spawn_count; i++) {
        struct spawn_record *s = &merged->spawns[i];
        const struct node *node = core_find_node(core, s->node);
        if (s->dead || card_merge_find_spawn(ours, s->spawn) || !node || !node->said_hello ||
            !strcmp(s->node, teller))
            continue;
        card_merge_end_spawn(merged, s, core->now.wall_ms);
    }
}

/* A member has ended, and its exit was taken for that of an earlier generation, because the card that shows it to be a member of
 * this one had not come yet. */
static void fail_by_known_exit(struct core *core, struct generation *g, struct spawn *s)
{
    const struct spawn_fact fact = {.code = s->r.code, .signal = s->r.signal};
    char text[160];

    snprintf(text, sizeof text, "rank %d %s %d on %s", s->rank->r.rank,
             s->r.signal ? "killed by signal" : "exited with code", s->r.signal ? s->r.signal : s->r.code,
             s->r.node);
    generation_fail(
        core, g,
        &(struct failure_cause){.spawn = s,
                                .charged = true,
                                .error = restart_rule_is_error(s, &fact),
                                .fatal = s->job->spec.kind == JOB_TRAIN && s->r.code == EXIT_NO_RESTART,
                                .exit_code = s->r.signal ? 128 + s->r.signal : s->r.code,
                                .text = text});
}

/* A generation with a member that is dead cannot go on: it ends, and the next one forms when its other members have
 * ended, or with those that survive. */
static void end_generation_of_dead(struct core *core, struct job *job)
{
    struct generation *g = job_current(job);

    if (!g || !generation_open(g) || (job->r.state != JOB_STARTING && job->r.state != JOB_RUNNING))
        return;
    for (int i = 0; i < g->r.world_size; i++) {
        struct spawn *s = g->ranks[i].spawn;
        if (s->r.dead && s->r.lost) {
            generation_fail(
                core, g,
                &(struct failure_cause){.exit_code = 125,
                                        .text = "a worker was not started before the records were lost"});
            return;
        }
        if (s->r.dead && (s->r.code || s->r.signal)) {
            fail_by_known_exit(core, g, s);
            return;
        }
    }
}

static void drop_job(struct core *core, struct job *job)
{
    emit_clear(core, job->r.id);
    core->restarts -= job->r.restarts_used;
    core->generations -= (int64_t)job->generation_count;
    for (size_t i = 0; i < job->spawn_count; i++)
        if (!job->spawns[i]->r.dead && job->spawns[i]->node)
            node_drop_spawn(core, job->spawns[i]->node, job->spawns[i]);
    rendezvous_renew(core, job);
    core_remove_job(core, job);
}

static void emit_whole_job(struct core *core, struct job *job)
{
    emit_job(core, job, CHANGE_JOB_INSERT);
    for (size_t i = 0; i < job->generation_count; i++) {
        const struct generation *g = job->generations[i];
        emit_generation(core, g, CHANGE_GENERATION_INSERT);
        for (int rank = 0; rank < g->r.world_size; rank++)
            emit_rank(core, &g->ranks[rank], CHANGE_RANK_INSERT);
    }
    for (size_t i = 0; i < job->spawn_count; i++) {
        job->spawns[i]->wished_revision = 0;
        emit_spawn(core, job->spawns[i], CHANGE_SPAWN_INSERT);
    }
    for (size_t i = 0; i < job->snapshot_count; i++)
        emit_snapshot(core, &job->snapshots[i], CHANGE_SNAPSHOT_PUT);
}

/* Whether the job stops on purpose. If it stops because a generation failed, a later generation shows that it went on. */
static bool stop_is_ordered(const struct job *job)
{
    const struct generation *g = job_current(job);

    return job->r.state == JOB_STOPPING &&
           (job->r.goal == JOB_CANCELLED || job->r.kill || (g && g->r.state != GENERATION_FAILED));
}

/* The card's generation is later than the one that was stopped after the restore: the stop holds for it, too. */
static void repeat_stop(struct core *core, struct job *job, const struct job_record *stopped)
{
    if (job_finished(job) || (job->r.state == JOB_STOPPING && (job->r.kill || !stopped->kill)))
        return;
    job->r.stop_signal = stopped->stop_signal;
    job_stop(core, job, stopped->goal, stopped->exit_code, stopped->kill, stopped->reason);
}

static void adopt_card(struct core *core, const struct core_hello *hello, const struct records *card)
{
    CLEANUP(records_release) struct records ours = {0}, merged = {0};
    struct job *job = core_find_job(core, card->jobs[0].id);
    struct err e = {0};

    if (job)
        card_records(job, true, &ours);
    /* Two different generations have the same number: the records stay as they are. */
    if (job && card_merge_has_forked(&ours, card)) {
        log_error("card_refused", "job=%" PRId64 " node=%s why=\"another generation was formed meanwhile\"",
                  job->r.id, hello->node);
        return;
    }
    card_merge(&merged, &ours, card, core->now.wall_ms);
    if (merged.jobs[0].id >= core->next_job)
        leave_gap(core, merged.jobs[0].id + 1);
    end_unstarted_spawns(core, hello->node, &ours, &merged);
    /* before the job is built, because its spawns point at their nodes */
    expect_nodes(core, &merged);
    struct spawn *before = copy_spawns(job);
    const bool stopped = job && stop_is_ordered(job);
    if (job)
        drop_job(core, job);
    BUG_ON(load_job_whole(core, &merged, &e) != ERR_OK);
    job = core_find_job(core, merged.jobs[0].id);
    emit_whole_job(core, job);
    emit_event(core, job, "job_adopted",
               "node %s has newer records than those that were restored: generation %" PRId64 ", %s",
               hello->node, job->r.generation, sm_name(&job_sm, (int)job->r.state));
    log_info("job_adopted", "job=%" PRId64 " gen=%" PRId64 " state=%s node=%s", job->r.id, job->r.generation,
             sm_name(&job_sm, (int)job->r.state), hello->node);
    job->changed = true;
    /* other nodes may have later cards of it */
    if (!job_finished(job))
        hold_job(core, job);
    doubt_spawns(core, job, before);
    free(before);
    end_generation_of_dead(core, job);
    /* One side knew of the stop, the other of a failure: its survivors wait for a generation that never comes. */
    if (job->r.state == JOB_STOPPING)
        generation_lose_survivors(core, job, NULL, job->r.reason);
    if (stopped)
        repeat_stop(core, job, ours.jobs);
    job_settle(core, job);
}

void adopt_cards(struct core *core, const struct core_hello *hello)
{
    for (size_t i = 0; i < hello->card_count; i++)
        adopt_card(core, hello, &hello->cards[i]);
    for (size_t i = 0; i < core->node_count; i++)
        gpus_end_lost(core, core->nodes[i]);
}
