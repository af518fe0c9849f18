/* Decides which nodes are alive, and whose processes are known dead.
 *
 * A node says hello, gets its wish, and is alive once its facts have answered that wish and show no worker
 * that we do not know. Only silence makes a node suspect and then lost: a closed stream does not, and time in
 * which we could not have heard the node does not count as silence. The spawns of a lost node keep their
 * slots until the node is back and says that they are gone, or until their lease has run out. The node counts
 * the lease from when it sent the heartbeat that was acknowledged, and we count it from when we received that
 * heartbeat, so the workers have stopped before the coordinator counts them as dead. */
#include "daemon/coordinator/core/nodes/nodes.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "daemon/coordinator/core/cards/adopt.h"
#include "daemon/coordinator/core/cards/card.h"
#include "daemon/coordinator/core/emit.h"
#include "daemon/coordinator/core/failure/restart_rule.h"
#include "daemon/coordinator/core/failure/stall.h"
#include "daemon/coordinator/core/generation_end.h"
#include "daemon/coordinator/core/model.h"
#include "daemon/coordinator/core/nodes/accounts.h"
#include "daemon/coordinator/core/nodes/beats.h"
#include "daemon/coordinator/core/nodes/gpus.h"
#include "daemon/coordinator/core/nodes/idle.h"
#include "daemon/coordinator/core/nodes/inventory.h"
#include "daemon/coordinator/core/nodes/node_sessions.h"
#include "daemon/coordinator/core/notices.h"
#include "daemon/coordinator/core/placement/left_out.h"
#include "daemon/coordinator/core/rendezvous.h"
#include "daemon/coordinator/core/snapshots/lost_snapshots.h"
#include "daemon/coordinator/core/wish.h"

#define REST_MS 30000     /* of a node that could not start a process */
#define FORGIVE_MS 600000 /* a node that stayed this long has not flapped */
#define FLAPS_MOST 7
#define DEAF_GAP_MS 200     /* between two reports of one stretch of deafness */
#define SHUT_MOST_MS 300000 /* a port full of strangers excuses a node's silence no longer than this */
/* An epoch counts starts of the coordinator: no backup is this many starts old. */
#define EPOCHS_APART 1000000000

void nodes_heard(struct core *core, struct node *node)
{
    node->heard_ms = core->now.boot_ms;
    node->deaf_ms = 0;
    if (node->spawn_count) /* the wish with its first worker has ended seldom heartbeats */
        beats_usual(core, node);
    if (node->r.state == NODE_SUSPECT)
        emit_node_move(core, node, NODE_ALIVE, "heard again");
}

/* Whether we have been deaf without a break for so long that agents may have given up their streams. */
static bool deaf_for_long(struct core *core, int64_t ms)
{
    const int64_t from = core->now.boot_ms - ms;

    if (from > core->deaf_until + DEAF_GAP_MS)
        core->deaf_from = from;
    core->deaf_until = core->now.boot_ms;
    return core->deaf_until - core->deaf_from >= core->config.node_timeout_ms / 2;
}

/* Time in which we could not receive does not count as a node's silence. An agent that could not connect, or
 * that hung up because it got no answer, has as much time to reconnect as after a start, because agents pause
 * between two tries. Strangers can keep the port full for any time, so a full port counts for a limited time
 * only. */
void nodes_deaf(struct core *core, const struct core_event *event)
{
    if (!event->deaf.outside && deaf_for_long(core, event->deaf.ms))
        core_await_nodes(core);
    for (size_t i = 0; i < core->node_count; i++) {
        struct node *node = core->nodes[i];
        const int64_t silent = core->now.boot_ms - node->heard_ms;

        /* a full port only concerns nodes that must connect; a silent node's stream may be broken without our
         * knowledge, so it may be among them */
        const bool away = !node->session || silent > 2 * node->beat_ms;

        if (node_gone(node) || (event->deaf.outside && (!away || silent > SHUT_MOST_MS)))
            continue;
        node->deaf_ms += event->deaf.ms;
        if (node->deaf_ms > silent)
            node->deaf_ms = silent;
        if (event->deaf.outside)
            node->return_by = core->now.boot_ms + core->config.return_ms;
        else if (node->return_by > core->now.boot_ms - event->deaf.ms)
            node->return_by += event->deaf.ms; /* it may have tried to come back meanwhile */
        if (node->return_by > core->now.boot_ms + core->config.return_ms)
            node->return_by = core->now.boot_ms + core->config.return_ms;
    }
}

/* From this time on the spawn's processes are dead, whatever happened to its node. */
static int64_t spawn_lease_end(const struct core *core, const struct node *node, const struct spawn *s)
{
    return node->heard_ms + s->job->spec.lease_ms + core->config.lease_margin_ms;
}

static int64_t last_lease_end(const struct core *core, const struct node *node)
{
    int64_t end = 0;

    for (size_t i = 0; i < node->spawn_count; i++)
        if (spawn_lease_end(core, node, node->spawns[i]) > end)
            end = spawn_lease_end(core, node, node->spawns[i]);
    return end;
}

static enum err_code check_hello(const struct core *core, const struct core_hello *hello, struct err *e)
{
    const struct node *node = hello->node && *hello->node ? core_find_node(core, hello->node) : NULL;

    if (!hello->node || !*hello->node || strlen(hello->node) > 64 || !hello->instance || !*hello->instance)
        return err_set(e, ERR_INVALID_ARGUMENT, "hello needs a node name of 1 to 64 bytes and an instance");
    if (hello->cpu_slots < 0 || hello->cpu_slots > 65536 || hello->gpu_count > 1024 || hello->gpu_slots < 0 ||
        hello->gpu_slots > 64)
        return err_set(e, ERR_INVALID_ARGUMENT, "node %s: %d CPU slots and %zu GPUs are out of range",
                       hello->node, hello->cpu_slots, hello->gpu_count);
    if (hello->port_first < 0 || hello->port_last > 65535 || hello->port_last < hello->port_first)
        return err_set(e, ERR_INVALID_ARGUMENT, "node %s: invalid port range: %d to %d", hello->node,
                       hello->port_first, hello->port_last);
    if (hello->cluster_id && *hello->cluster_id && strcmp(hello->cluster_id, core->config.cluster_id) != 0)
        return err_set(
            e, ERR_FAILED_PRECONDITION,
            "node %s belongs to cluster %s, and this is cluster %s; run ddp-agent --rejoin there to move it",
            hello->node, hello->cluster_id, core->config.cluster_id);
    if (hello->epoch > core->config.epoch && !hello->keeps_cards)
        return err_set(
            e, ERR_FAILED_PRECONDITION,
            "node %s knows start %" PRId64 " of the coordinator, and this is only start %" PRId64
            ": the coordinator's records are older than the node's; to let the node join anyway, run ddp-agent --rejoin "
            "there, which ends the node's jobs",
            hello->node, hello->epoch, core->config.epoch);
    /* our epoch is raised above the node's and never lowered: one made-up number must not use up the range */
    if (hello->epoch < 0 || hello->epoch - core->config.epoch > EPOCHS_APART)
        return err_set(e, ERR_FAILED_PRECONDITION,
                       "node %s knows start %" PRId64 " of the coordinator, and this is only start %" PRId64
                       ", and no backup is that old; to let the node join anyway, run ddp-agent --rejoin "
                       "there, which ends the node's jobs",
                       hello->node, hello->epoch, core->config.epoch);
    if (adopt_check(core, hello, e) != ERR_OK)
        return e->code;
    /* The instance tells an agent that came back from another one that uses the same name. A name may pass to
     * another agent only when no worker of the former one can live. */
    if (!node || !*node->r.instance || !strcmp(node->r.instance, hello->instance))
        return ERR_OK;
    if (!node_gone(node))
        return err_set(e, ERR_ALREADY_EXISTS,
                       "another agent already serves node %s; give this agent another name", hello->node);
    if (node->spawn_count)
        return err_set(e, ERR_UNAVAILABLE,
                       "workers of node %s's former agent may live for another %" PRId64
                       " s; wait, or run `ddpctl forget %s`",
                       hello->node, (last_lease_end(core, node) - core->now.boot_ms + 999) / 1000,
                       hello->node);
    return ERR_OK;
}

static void take_hello(struct core *core, struct node *node, const struct core_hello *hello)
{
    struct node_record fresh = {
        .name = (char *)hello->node,
        .instance = (char *)hello->instance,
        .address = (char *)hello->address,
        .version = (char *)hello->version,
        .log_dir = (char *)hello->log_dir,
        .state = node->r.state,
        .drain = node->r.drain,
        .note = node->r.note,
        .cpu_slots = hello->cpu_slots,
        .cores = hello->cores,
        .port_first = hello->port_first,
        .port_last = hello->port_last,
        .memory_bytes = hello->memory_bytes,
        .seen_ms = node->r.seen_ms,
    };
    struct node_record old = node->r; /* released last: `fresh` borrows its note */

    node->procs = hello->procs;
    node->seat = hello->seat;
    node->turn = hello->turn;
    gpus_hello(core, node, hello);
    node_record_copy(&node->r, &fresh);
    node->r.gpus = inventory_print(node);
    node_record_release(&old);
}

void nodes_rest(struct core *core, struct node *node)
{
    node->rest_until = core->now.boot_ms + REST_MS;
    core_wake(core, node->rest_until);
}

static struct node *add_new_node(struct core *core, const struct core_hello *hello)
{
    struct node_record record = {.name = (char *)hello->node, .instance = (char *)hello->instance};
    struct node *node;
    uint16_t start;

    record.state = NODE_JOINING;
    record.seen_ms = core->now.wall_ms;
    node = core_add_node(core, &record);
    core->env.random(core->env.ctx, &start, sizeof(start));
    node->next_port = start;
    take_hello(core, node, hello);
    emit_node(core, node, CHANGE_NODE_INSERT);
    return node;
}

/* Whether the node has seen a later state than our records: a later wish, or a card that is newer. */
static bool node_knows_more(const struct core *core, const struct core_hello *hello)
{
    return hello->card_count || hello->epoch > core->config.epoch ||
           (hello->epoch == core->config.epoch && hello->revision > core->revision);
}

void nodes_hello(struct core *core, const struct core_event *event)
{
    struct node *node;
    struct err e = {0};

    if (check_hello(core, &event->hello, &e) != ERR_OK) {
        struct core_effect *effect = emit_effect(core, EFFECT_REFUSE);
        effect->session = event->session;
        effect->err = e;
        return;
    }
    node = core_find_node(core, event->hello.node);
    if (!node) {
        node = add_new_node(core, &event->hello);
    } else {
        take_hello(core, node, &event->hello);
        emit_node(core, node, CHANGE_NODE_PUT);
    }
    /* before card_heads, which compares the node's cards with our records */
    if (node_knows_more(core, &event->hello)) {
        adopt_begin(core, event->hello.epoch, false);
        adopt_cards(core, &event->hello);
    }
    card_heads(core, node, &event->hello);
    rendezvous_node_known(core, node);
    /* the agent has reconnected before its old stream was seen to break */
    if (node->session && node->session != event->session)
        emit_effect(core, EFFECT_CLOSE)->session = node->session;
    node_sessions_set(core, node, event->session);
    node->synced = false; /* nothing is placed on it until its facts have answered */
    node->return_by = 0;
    beats_usual(core, node);
    nodes_heard(core, node);
    if (node_gone(node)) {
        left_out_node_back(core, node->r.name);
        emit_node_move(core, node, NODE_JOINING, "came back");
    }
    if (node->wish_dirty)
        wish_flush(core); /* before hello_revision, so that facts must answer this wish */
    node->hello_revision = node->revision;
    emit_effect(core, EFFECT_WELCOME)->session = event->session;
    if (node->clear_faults)
        emit_effect(core, EFFECT_CLEAR_GPU_FAULTS)->session = event->session;
    node->clear_faults = false;
    gpus_end_lost(core, node);
    emit_wish(core, node);
    core_wake(core, nodes_deadline(core, node));
}

void nodes_settle(struct core *core, struct node *node)
{
    if (!node->synced || node->r.state != NODE_JOINING)
        return;
    if (node->r.drain)
        emit_node_move(core, node, NODE_DRAINING, "it was drained before");
    else
        emit_node_move(core, node, NODE_ALIVE, "its agent has reported its workers");
    lost_snapshots_node_back(core);
    /* a node that comes and goes must stay longer each time before a running job stops for it */
    node->alive_ms = core->now.boot_ms;
    node->steady_ms = node->flaps ? core->now.boot_ms + (core->config.settle_ms << node->flaps) : 0;
    core_wake(core, node->steady_ms);
}

void nodes_heartbeat(struct core *core, struct node *node, const struct core_event *event)
{
    node->load = event->heartbeat.load;
    node->memory_free = event->heartbeat.memory_free;
    gpus_heard(core, node, event->heartbeat.gpus, event->heartbeat.gpu_count);
    accounts_set(core, node, event->heartbeat.accounts, event->heartbeat.account_count);
    struct core_effect *effect = emit_effect(core, EFFECT_ACK);
    effect->session = event->session;
    effect->sequence = event->heartbeat.sequence;
    effect->heartbeat_ms = beats_next(core, node);
    core_wake(core, nodes_deadline(core, node)); /* it may be silent for less time than before */
}

/* The jobs with a member on the node, each once; the caller frees. */
static struct job **jobs_on_node(const struct node *node, size_t *count)
{
    struct job **list = xcalloc(node->spawn_count + 1, sizeof(struct job *));

    *count = 0;
    for (size_t i = 0; i < node->spawn_count; i++) {
        size_t k = 0;
        while (k < *count && list[k] != node->spawns[i]->job)
            k++;
        if (k == *count)
            list[(*count)++] = node->spawns[i]->job;
    }
    return list;
}

static bool generation_has_member_on(const struct generation *g, const struct node *node)
{
    for (int i = 0; i < g->r.world_size; i++)
        if (g->ranks[i].spawn->node == node && !g->ranks[i].spawn->r.dead)
            return true;
    return false;
}

/* The node is lost or has left: its members are lost to their generations, and each of these generations ends
 * once. The spawns are not dead by that (expire_leases). */
static void lose_node(struct core *core, struct node *node, enum node_state state, bool charged,
                      const char *why)
{
    size_t count;
    struct job **jobs = jobs_on_node(node, &count);

    if (node->session)
        emit_effect(core, EFFECT_CLOSE)->session = node->session;
    node_sessions_set(core, node, 0);
    node->synced = false;
    beats_usual(core, node);
    if (core->now.boot_ms - node->alive_ms > FORGIVE_MS)
        node->flaps = 0;
    if (node->flaps < FLAPS_MOST)
        node->flaps++;
    stall_forget(node);
    idle_forget(node);
    emit_node_move(core, node, state, why);
    for (size_t i = 0; i < node->spawn_count; i++) {
        struct spawn *s = node->spawns[i];
        if (!sm_terminal(&rank_sm, s->rank->r.state))
            emit_rank_move(core, s->rank, RANK_LOST);
    }
    for (size_t i = 0; i < count; i++) {
        struct generation *g = job_current(jobs[i]);
        char text[160];
        snprintf(text, sizeof(text), "node %s %s: %s", node->r.name, sm_name(&node_sm, (int)state), why);
        /* `ddpctl run` on a range of nodes continues on the others, which does not count as a restart; with a
         * fixed number of nodes it has failed */
        bool fixed = jobs[i]->spec.nodes_min == jobs[i]->spec.nodes_max;
        struct failure_cause cause = {
            .charged = node->turn ? fixed : charged, .exit_code = 125, .text = text};

        generation_lose_survivors(core, jobs[i], node, why);
        if (generation_open(g) && g->r.state != GENERATION_DRAINING && generation_has_member_on(g, node)) {
            generation_fail(core, g, &cause);
        } else if (restart_rule_waits(jobs[i]) && generation_has_member_on(g, node)) {
            /* a rank elsewhere has ended with an exit code, most likely because of this */
            generation_replace_cause(core, g, &cause);
        }
        /* A job that stops or drains does not wait for workers on a lost node, and may have waited for these
         * alone. */
        job_settle(core, jobs[i]);
    }
    free(jobs);
}

/* An agent says goodbye after it has ended its workers, so no lease is waited for. */
void nodes_goodbye(struct core *core, struct node *node, const struct core_event *event)
{
    (void)event;
    lose_node(core, node, NODE_LEFT, false,
              node->turn ? "ddpctl run has ended there" : "its agent has shut down");
    while (node->spawn_count) {
        struct spawn *s = node->spawns[0];
        s->r.lost = true;
        text_set(&s->r.message, "%s has left", node->r.name);
        spawn_mark_dead(core, s);
    }
}

/* A closed stream alone proves nothing: the node is lost only if it stays silent. An agent that lives connects again within
 * seconds. */
void nodes_session_closed(struct core *core, struct node *node, const struct core_event *event)
{
    (void)event;
    stall_forget(node);
    idle_forget(node);
    node_sessions_set(core, node, 0);
    node_expect(core, node);
    core_capacity_changed(core);
}

static int64_t node_lost_at(const struct node *node)
{
    int64_t at = node->heard_ms + node->deaf_ms + node->silence_ms;
    return at > node->return_by ? at : node->return_by;
}

static int64_t node_suspect_at(const struct node *node)
{
    return node->heard_ms + node->deaf_ms + node->silence_ms * 3 / 4;
}

/* The workers of a lost node are dead when their lease has run out. */
static void expire_leases(struct core *core, struct node *node)
{
    size_t count;
    struct job **jobs = jobs_on_node(node, &count);

    for (size_t i = 0; i < node->spawn_count;) {
        struct spawn *s = node->spawns[i];
        if (core->now.boot_ms < spawn_lease_end(core, node, s)) {
            i++;
            continue;
        }
        s->r.lost = true;
        text_set(&s->r.message, "its lease on %s has run out", node->r.name);
        spawn_mark_dead(core, s);
    }
    /* After a restart of the coordinator, a job that stops may wait only for workers on nodes that were lost
     * before. */
    for (size_t i = 0; i < count; i++)
        job_settle(core, jobs[i]);
    free(jobs);
}

static bool deadline_passed(const struct core *core, int64_t *at)
{
    if (!*at || core->now.boot_ms < *at)
        return false;
    *at = 0;
    return true;
}

void nodes_tick(struct core *core, struct node *node)
{
    char why[64];

    if (deadline_passed(core, &node->rest_until))
        core_capacity_changed(core);
    if (deadline_passed(core, &node->steady_ms))
        core_capacity_changed(core);
    if (node_gone(node)) {
        expire_leases(core, node);
    } else if (core->now.boot_ms >= node_lost_at(node)) {
        snprintf(why, sizeof(why), "no message for %" PRId64 " s",
                 (core->now.boot_ms - node->heard_ms + 500) / 1000);
        notice_node(core, node->r.name, NOTICE_NODE_LOST, "node %s is lost: %s", node->r.name, why);
        lose_node(core, node, NODE_LOST, true, why);
    } else if (node->r.state == NODE_ALIVE && core->now.boot_ms >= node_suspect_at(node)) {
        emit_node_move(core, node, NODE_SUSPECT, "heartbeats are missing");
    }
}

static int64_t liveness_deadline(const struct core *core, const struct node *node)
{
    int64_t at = INT64_MAX;

    if (node->r.state == NODE_ALIVE)
        return node_suspect_at(node);
    if (!node_gone(node))
        return node_lost_at(node);
    for (size_t i = 0; i < node->spawn_count; i++)
        if (spawn_lease_end(core, node, node->spawns[i]) < at)
            at = spawn_lease_end(core, node, node->spawns[i]);
    return at;
}

int64_t nodes_deadline(const struct core *core, const struct node *node)
{
    int64_t at = liveness_deadline(core, node);

    if (node->rest_until && node->rest_until < at)
        at = node->rest_until;
    return node->steady_ms && node->steady_ms < at ? node->steady_ms : at;
}
