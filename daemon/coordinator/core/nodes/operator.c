#include "daemon/coordinator/core/nodes/operator.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "daemon/coordinator/core/emit.h"
#include "daemon/coordinator/core/generation_end.h"
#include "daemon/coordinator/core/model.h"
#include "daemon/coordinator/core/nodes/node_sessions.h"
#include "daemon/coordinator/core/notices.h"
#include "daemon/coordinator/core/placement/handover.h"
#include "daemon/coordinator/core/placement/survivors.h"
#include "daemon/coordinator/core/worker_asks.h"

static const char *operator_who(const struct core_event *event)
{
    return event->who && *event->who ? event->who : "the operator";
}

static struct node *find_named_node(struct core *core, const struct core_event *event)
{
    struct node *node = core_find_node(core, event->node.name ? event->node.name : "");

    if (!node)
        emit_fail(core, event->call, ERR_NOT_FOUND, "there is no node %s; `ddpctl nodes` lists the nodes",
                  event->node.name ? event->node.name : "");
    return node;
}

/* Jobs that can continue from a snapshot leave the node at once: train jobs, and commands that call should_stop. So do
 * jobs whose next generation forms with states that its members have. The others stay until they end. */
static void move_jobs_off(struct core *core, struct node *node)
{
    for (size_t i = 0; i < node->spawn_count; i++) {
        struct job *job = node->spawns[i]->job;
        struct generation *g = job_current(job);
        if (handover_possible(job))
            continue; /* placement hands it over, or drains it then */
        if (node->spawns[i]->rank->generation != g || !generation_open(g) ||
            g->r.state == GENERATION_DRAINING)
            continue;
        if (job_keeps_state(job) || worker_asks_heeded(g) || survivors_bring_state(g))
            generation_drain(core, g, "moves off a drained node");
    }
}

void operator_withdraw(struct core *core, struct node *node, const char *note, const char *why)
{
    node->r.drain = true;
    node->clear_faults = false;
    if (note && *note)
        text_set(&node->r.note, "%s", note);
    emit_node(core, node, CHANGE_NODE_PUT);
    if (node->r.state == NODE_ALIVE || node->r.state == NODE_SUSPECT || node->r.state == NODE_JOINING) {
        CLEANUP(free_text) char *said = note && *note ? xasprintf("%s: %s", why, note) : xstrdup(why);
        emit_node_move(core, node, NODE_DRAINING, said);
        notice_node(core, node->r.name, NOTICE_DRAINED, "node %s: %s", node->r.name, said);
    }
    move_jobs_off(core, node);
}

void operator_drain(struct core *core, const struct core_event *event)
{
    struct node *node = find_named_node(core, event);

    if (!node)
        return;
    CLEANUP(free_text) char *why = xasprintf("drained by %s", operator_who(event));
    operator_withdraw(core, node, event->node.reason, why);
    emit_ok(core, event->call);
}

void operator_undrain(struct core *core, const struct core_event *event)
{
    struct node *node = find_named_node(core, event);

    if (!node)
        return;
    node->r.drain = false;
    free(steal(node->r.note));
    for (size_t i = 0; i < node->spawn_count; i++)
        handover_reconsider(core, node->spawns[i]->job);
    emit_node(core, node, CHANGE_NODE_PUT);
    if (node->session)
        emit_effect(core, EFFECT_CLEAR_GPU_FAULTS)->session = node->session;
    else
        node->clear_faults = true; /* nodes_hello */
    if (node->r.state == NODE_DRAINING) {
        CLEANUP(free_text) char *why = xasprintf("undrained by %s", operator_who(event));
        emit_node_move(core, node, NODE_ALIVE, why);
    }
    emit_ok(core, event->call);
}

void operator_forget(struct core *core, const struct core_event *event)
{
    struct node *node = find_named_node(core, event);

    if (!node)
        return;
    /* Its agent would connect again at once, with its workers. */
    if (!node_gone(node) && node->session) {
        emit_fail(core, event->call, ERR_FAILED_PRECONDITION,
                  "node %s is %s; stop its agent, or drain it instead", node->r.name,
                  sm_name(&node_sm, node->r.state));
        return;
    }
    /* Not yet lost: its workers probably live, and forgetting would call them dead. */
    if (!node_gone(node) && node->spawn_count) {
        emit_fail(core, event->call, ERR_FAILED_PRECONDITION,
                  "node %s sent a message %" PRId64 " s ago; it can be forgotten once it is lost",
                  node->r.name, (core->now.boot_ms - node->heard_ms) / 1000);
        return;
    }
    /* The operator vouches that the machine is gone, so no lease is waited for. */
    while (node->spawn_count) {
        struct spawn *s = node->spawns[0];
        struct job *job = s->job;
        s->r.lost = true;
        text_set(&s->r.message, "node %s was forgotten by %s", node->r.name, operator_who(event));
        emit_event(core, job, "node_forgotten", "node %s forgotten by %s: rank %d there counts as dead",
                   node->r.name, operator_who(event), s->rank->r.rank);
        spawn_mark_dead(core, s);
    }
    emit_event(core, NULL, "node_forgotten", "node %s was forgotten by %s", node->r.name,
               operator_who(event));
    emit_node(core, node, CHANGE_NODE_DELETE);
    emit_effect(core, EFFECT_NODE_CHANGED)->node = xstrdup(node->r.name);
    node_sessions_set(core, node, 0);
    core_remove_node(core, node);
    emit_ok(core, event->call);
}
