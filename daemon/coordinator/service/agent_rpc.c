#include "daemon/coordinator/service/agent_rpc.h"

#include <stdlib.h>
#include <string.h>

#include "base/crypto/id.h"
#include "base/digest.h"
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "daemon/coordinator/service/cards.h"
#include "daemon/coordinator/service/commit_queue.h"
#include "daemon/coordinator/service/convert.h"
#include "daemon/coordinator/service/effects.h"
#include "daemon/coordinator/service/handles.h"
#include "daemon/coordinator/service/logs/log_tails_rpc.h"
#include "daemon/coordinator/service/logs/logs.h"
#include "daemon/coordinator/service/members.h"
#include "daemon/coordinator/service/metrics/metrics_recorder.h"
#include "daemon/coordinator/service/metrics/usage_rpc.h"
#include "daemon/coordinator/service/node_query.h"
#include "daemon/coordinator/service/pool.h"
#include "daemon/coordinator/service/service_state.h"
#include "daemon/coordinator/service/snapshot_query.h"
#include "proto/ddp.pb-c.h"
#include "proto/rpc_codec.h"
#include "proto/rpc_spawn_fact.h"

/* Agent.Session. Up: one hello, then heartbeats, facts, reports, log chunks and answers. Down: a welcome,
 * then acknowledgements, wishes, log reads and questions.
 *
 * If an agent reads slowly, nothing is queued here. A wish describes the whole target state, so it is built
 * again when there is room; a lost acknowledgement is made up for by the next one. Facts describe the whole
 * state of the node, so while commits fail only the newest are kept.
 *
 * Failure modes: a session that ends is an event for the core; the node stays alive until it has been silent
 * for node_timeout. A second session of a node replaces the first one (core). */

enum err_code agent_session_send(struct agent_session *session, const Ddp__V1__AgentDown *message,
                                 struct err *e)
{
    return rpc_call_send(session->rpc, message, e);
}

/* ---- by the name of the node */

static uint64_t session_key(const char *node)
{
    const uint64_t digest = digest64(0, node, strlen(node));
    return digest ? digest : 1; /* 0 is not a handle */
}

void agent_session_name(struct agent_session *x, const char *node)
{
    const uint64_t key = session_key(node);
    x->node = xstrdup(node);
    x->same_name = handles_take(&x->service->named_sessions, key);
    handles_put(&x->service->named_sessions, key, x);
}

static void session_drop_name(const struct agent_session *x)
{
    struct handles *names = &x->service->named_sessions;
    const uint64_t key = session_key(x->node);
    struct agent_session *first = handles_get(names, key);
    if (first == x) {
        handles_take(names, key);
        if (x->same_name)
            handles_put(names, key, x->same_name);
        return;
    }
    while (first->same_name != x)
        first = first->same_name;
    first->same_name = x->same_name;
}

struct agent_session *agent_session_find(struct service *s, const char *node)
{
    for (struct agent_session *x = handles_get(&s->named_sessions, session_key(node)); x; x = x->same_name)
        if (x->welcomed && !rpc_call_over(x->rpc) && strcmp(x->node, node) == 0)
            return x;
    return NULL;
}

/* ---- start and end */

/* The session has no node before its hello. The core hears of it only then. */
static void session_on_start(struct rpc_call *rpc, const void *request, void *user)
{
    struct service *s = user;
    struct agent_session *x = xcalloc(1, sizeof *x);
    (void)request;
    *x = (struct agent_session){
        .service = s, .rpc = rpc, .handle = service_handle(s), .next = s->session_list};
    if (x->next)
        x->next->prev = x;
    s->session_list = x;
    s->stats.sessions++;
    handles_put(&s->sessions, x->handle, x);
    rpc_call_set_user(rpc, x);
}

static void session_on_end(struct rpc_call *rpc, bool cancelled)
{
    struct agent_session *x = rpc_call_user(rpc);
    struct service *s = x->service;
    (void)cancelled;
    handles_take(&s->sessions, x->handle);
    if (x->next)
        x->next->prev = x->prev;
    if (x->prev)
        x->prev->next = x->next;
    else
        s->session_list = x->next;
    if (x->node)
        session_drop_name(x);
    s->stats.sessions--;
    if (x->node) {
        log_info("session_closed", "node=%s", LOG_Q(x->node));
        commit_queue_event(s, &(struct core_event){.kind = CORE_SESSION_CLOSED, .session = x->handle});
        logs_node_changed(s, x->node);
        node_query_session_gone(x);
    }
    relays_agent_left(x);
    free(x->node);
    free(x->facts);
    cards_drop(x);
    free(x);
}

/* ---- up */

static struct core_gpu *gpus_from_message(Ddp__V1__Gpu *const *list, size_t count)
{
    struct core_gpu *gpus = xcalloc(count + 1, sizeof *gpus);
    for (size_t i = 0; i < count; i++)
        gpus[i] = (struct core_gpu){
            .uuid = list[i]->uuid,
            .name = list[i]->name,
            .problem = list[i]->problem,
            .driver = list[i]->driver,
            .memory_bytes = list[i]->memory_bytes,
            .index = list[i]->index,
            .temperature = list[i]->temperature,
            .power_watts = list[i]->power_watts,
            .utilisation = list[i]->utilisation,
            .unmeasured = list[i]->unmeasured,
            .memory_used = list[i]->memory_used,
            .healthy = list[i]->healthy,
            .lost = list[i]->lost,
        };
    return gpus;
}

/* The coordinator was started on a full disk and cannot begin its epoch. If this node was part of the
 * cluster, it gets the former epoch and keeps its last wish, so its jobs go on while their leases are
 * renewed. It says hello again when the epoch is durable. Any other node is refused until then. */
static void session_wait_for_epoch(struct agent_session *x, const Ddp__V1__Hello *m)
{
    const char *ours = store_cluster_id(x->service->store);
    if (!id_node_name(m->node) || (m->cluster_id[0] && strcmp(m->cluster_id, ours) != 0) ||
        m->epoch >= store_epoch(x->service->store)) {
        rpc_call_fail_with(x->rpc, ERR_UNAVAILABLE, "%s", x->service->obstacle_text);
        return;
    }
    agent_session_name(x, m->node);
    x->waiting = true;
    effects_welcome_waiting(x->service, x);
}

void agent_sessions_redial(struct service *s)
{
    for (struct agent_session *x = s->session_list; x; x = x->next)
        if (x->waiting && !rpc_call_over(x->rpc))
            rpc_call_fail_with(x->rpc, ERR_UNAVAILABLE,
                               "the coordinator can write its database again: reconnect");
}

/* Own agents keep 1,000 cards of jobs that have ended, and those of the jobs on the node. Each card is compared with all others. */
#define CARDS_MOST 16384

static void session_on_hello(struct agent_session *x, const Ddp__V1__Hello *m)
{
    struct err e = {0};
    /* On a full disk the epoch is not durable yet, so the hello waits for it. */
    if (store_deferred(x->service->store)) {
        session_wait_for_epoch(x, m);
        return;
    }
    if (commit_queue_accepts(x->service, &e) != ERR_OK) {
        rpc_call_fail_with(x->rpc, ERR_UNAVAILABLE, "%s", e.msg);
        return;
    }
    if (!m->node[0] || !m->instance[0]) {
        rpc_call_fail_with(x->rpc, ERR_INVALID_ARGUMENT, "the hello lacks a node name or an instance");
        return;
    }
    if (!id_node_name(m->node)) {
        rpc_call_fail_with(x->rpc, ERR_INVALID_ARGUMENT,
                           "node name: expected up to 63 letters, digits, '-', '_' and '.'");
        return;
    }
    if (m->n_cards > CARDS_MOST) {
        rpc_call_fail_with(x->rpc, ERR_INVALID_ARGUMENT, "%zu cards in the hello: at most %d are allowed",
                           m->n_cards, CARDS_MOST);
        return;
    }
    agent_session_name(x, m->node);
    relays_keep_offer(x, m);
    x->dates_logs = m->dates_logs;
    x->greps_logs = m->greps_logs;
    /* If the core wants cards of this node, the hello is completed when they have come. */
    if (!cards_request(x, m))
        agent_session_hello(x, m, NULL, 0);
}

void agent_session_hello(struct agent_session *x, const Ddp__V1__Hello *m, const struct records *cards,
                         size_t count)
{
    CLEANUP(pool_release) struct pool pool = {0};
    struct core_gpu *gpus = gpus_from_message(m->gpus, m->n_gpus);
    struct core_event event = {.kind = CORE_HELLO, .session = x->handle};
    event.hello = (struct core_hello){
        .node = m->node,
        .instance = m->instance,
        .session_id = m->session,
        .version = m->version,
        .cluster_id = m->cluster_id,
        .address = m->address,
        .log_dir = m->log_dir,
        .epoch = m->epoch,
        .revision = m->revision,
        .cpu_slots = m->cpu_slots,
        .cores = m->cores,
        .port_first = m->port_first,
        .port_last = m->port_last,
        .memory_bytes = m->memory_bytes,
        .gpus = gpus,
        .gpu_count = m->n_gpus,
        .gpu_slots = m->slots_per_gpu,
        .nccl = m->nccl_version,
        .plugin = m->plugin,
        .keeps_cards = m->keeps_cards,
        .heads = cards_heads(&pool, m),
        .head_count = m->n_cards,
        .cards = cards,
        .card_count = count,
    };
    /* A host of `ddpctl run` has said more about itself when it joined the run. */
    members_describe(x->service, &event.hello);
    commit_queue_event(x->service, &event);
    free(gpus);
}

static void session_on_heartbeat(struct agent_session *x, const Ddp__V1__Heartbeat *m)
{
    struct core_gpu *gpus = gpus_from_message(m->gpus, m->n_gpus);
    struct core_event event = {.kind = CORE_HEARTBEAT, .session = x->handle};
    log_tails_heartbeat(x, m);
    x->relay.bytes = (uint64_t)m->relay_bytes;
    x->relay.links = (uint64_t)m->relay_links;
    event.heartbeat.sequence = m->sequence;
    event.heartbeat.load = m->load;
    event.heartbeat.memory_free = m->memory_free;
    event.heartbeat.gpus = gpus;
    event.heartbeat.gpu_count = m->n_gpus;
    struct core_account *accounts = xcalloc(m->n_accounts + 1, sizeof *accounts);
    for (size_t i = 0; i < m->n_accounts; i++)
        accounts[i] = (struct core_account){m->accounts[i]->user, m->accounts[i]->why};
    event.heartbeat.accounts = accounts;
    event.heartbeat.account_count = m->n_accounts;
    commit_queue_event(x->service, &event);
    free(accounts);
    free(gpus);
}

static void session_hand_in_facts(struct agent_session *x, const Ddp__V1__Facts *m)
{
    struct spawn_fact *facts = xcalloc(m->n_spawns + 1, sizeof *facts);
    for (size_t i = 0; i < m->n_spawns; i++)
        rpc_spawn_fact_unpack(m->spawns[i], &facts[i]);
    struct core_event event = {.kind = CORE_FACTS, .session = x->handle};
    event.facts.epoch = m->epoch;
    event.facts.revision = m->revision;
    event.facts.facts = facts;
    event.facts.count = m->n_spawns;
    commit_queue_event(x->service, &event);
    for (size_t i = 0; i < m->n_spawns; i++)
        spawn_fact_release(&facts[i]);
    free(facts);
}

static void session_on_activity(struct agent_session *x, const Ddp__V1__Activity *m)
{
    struct core_activity *list = xcalloc(m->n_spawns + 1, sizeof *list);
    struct core_event event = {.kind = CORE_ACTIVITY, .session = x->handle};
    for (size_t i = 0; i < m->n_spawns; i++) {
        const Ddp__V1__SpawnActivity *a = m->spawns[i];
        const char state = a->state[0];
        list[i] = (struct core_activity){.job = a->job,
                                         .spawn = a->spawn,
                                         .idle_ms = a->idle_ms,
                                         .silent_ms = a->silent_ms,
                                         .state = state == 'T' || state == 'D' ? state : 0,
                                         .waits_in = a->waits_in,
                                         .waits_for = a->waits_for,
                                         .stack = a->stack,
                                         .cpu_permille = a->cpu_permille,
                                         .own_wait = a->own_wait};
    }
    event.activity.spawns = list;
    event.activity.count = m->n_spawns;
    commit_queue_event(x->service, &event);
    free(list);
}

/* While commits fail, the facts replace older ones that were kept, since facts are whole. */
static void session_on_facts(struct agent_session *x, const Ddp__V1__Facts *m)
{
    struct err e = {0};
    if (commit_queue_accepts(x->service, &e) == ERR_OK) {
        session_hand_in_facts(x, m);
        return;
    }
    CLEANUP(buf_release) struct buf packed = {0};
    BUG_ON(rpc_pack(m, &packed, &e) != ERR_OK);
    x->facts_size = packed.len;
    free(x->facts);
    x->facts = (uint8_t *)buf_steal(&packed);
}

void agent_sessions_release_facts(struct service *s)
{
    for (struct agent_session *x = s->session_list; x; x = x->next) {
        struct err e = {0};
        CLEANUP(rpc_release) Ddp__V1__Facts *facts = NULL;
        if (!x->facts)
            continue;
        BUG_ON(rpc_unpack(&ddp__v1__facts__descriptor, x->facts, x->facts_size, (void **)&facts, &e) !=
               ERR_OK);
        session_hand_in_facts(x, facts);
        free(steal(x->facts));
    }
}

/* The first of a session is logged, since there may be very many. */
static void session_refuse_report(struct agent_session *x, const Ddp__V1__Report *r, const struct err *e)
{
    if (!x->report_refused)
        log_warn("report_refused", "node=%s job=%lld spawn=%lld why=%s", LOG_Q(x->node), (long long)r->job,
                 (long long)r->spawn, LOG_Q(e->msg));
    x->report_refused = true;
}

/* A captured line may hold a note for the user instead of metrics: {"note": "..."}. */
static void session_read_captured(struct pool *pool, const Ddp__V1__Report *r, struct metric_report *out)
{
    CLEANUP(json_release) json_t *text = NULL;
    struct err unseen;
    out->captured = r->captured;
    if (!out->line->count &&
        json_parse(r->line, strlen(r->line), METRIC_LINE_MAX, &text, &unseen) == ERR_OK) {
        const char *note = json_get_text(text, "note", NULL);
        out->note = note ? pool_text(pool, note) : NULL;
    }
}

/* Own agents send at most 256 in a message. Without a limit, four megabytes of empty reports would take gigabytes
 * here. */
#define REPORTS_MOST 1024

static void session_on_reports(struct agent_session *x, const Ddp__V1__Reports *m)
{
    struct err e = {0};
    if (m->n_reports > REPORTS_MOST) {
        rpc_call_fail_with(x->rpc, ERR_INVALID_ARGUMENT, "%zu reports in one message: at most %d are allowed",
                           m->n_reports, REPORTS_MOST);
        return;
    }
    x->service->stats.reports += m->n_reports;
    x->service->stats.reports_dropped += (uint64_t)m->dropped;
    if (commit_queue_accepts(x->service, &e) != ERR_OK)
        return; /* progress is not durable: while commits fail it may be out of date */
    CLEANUP(pool_release) struct pool pool = {0};
    struct metric_report *reports = pool_alloc(&pool, m->n_reports * sizeof *reports);
    struct core_event event = {.kind = CORE_REPORTS, .session = x->handle};
    event.reports.reports = reports;
    for (size_t i = 0; i < m->n_reports; i++) {
        const Ddp__V1__Report *r = m->reports[i];
        struct metric_line *line = pool_alloc(&pool, sizeof *line);
        /* A supervisor has checked the line. Only an agent that is not ours sends a bad one. */
        if (metric_line_parse(r->line, strlen(r->line), line, &e) != ERR_OK) {
            session_refuse_report(x, r, &e);
            continue;
        }
        struct metric_report *report = &reports[event.reports.count++];
        *report = (struct metric_report){
            .job = r->job, .spawn = r->spawn, .time_ms = r->time_ms, .text = r->line, .line = line};
        if (*r->captured)
            session_read_captured(&pool, r, report);
        const struct rank_record *rank = core_spawn_rank(x->service->core, r->job, r->spawn);
        /* A late report must not leave metrics of a job that does not exist, nor an agent those of another
         * node's spawn. */
        if (rank && strcmp(rank->node, x->node) == 0)
            metrics_recorder_add(x->service->recorder, report, rank->rank,
                                 core_job_step(x->service->core, r->job));
    }
    commit_queue_event(x->service, &event);
}

static void session_on_message(struct rpc_call *rpc, const void *message)
{
    struct agent_session *x = rpc_call_user(rpc);
    const Ddp__V1__AgentUp *up = message;
    if (!up) { /* the agent has closed its sending side */
        rpc_call_finish(rpc);
        return;
    }
    if (!x->node != (up->body_case == DDP__V1__AGENT_UP__BODY_HELLO)) {
        rpc_call_fail_with(rpc, ERR_INVALID_ARGUMENT, "a session must start with exactly one hello");
        return;
    }
    if (x->waiting) { /* the core does not know this session */
        if (up->body_case == DDP__V1__AGENT_UP__BODY_HEARTBEAT)
            effects_ack(x, up->heartbeat->sequence, 0);
        return;
    }
    switch (up->body_case) {
    case DDP__V1__AGENT_UP__BODY_HELLO:
        session_on_hello(x, up->hello);
        return;
    case DDP__V1__AGENT_UP__BODY_HEARTBEAT:
        session_on_heartbeat(x, up->heartbeat);
        return;
    case DDP__V1__AGENT_UP__BODY_FACTS:
        session_on_facts(x, up->facts);
        return;
    case DDP__V1__AGENT_UP__BODY_REPORTS:
        session_on_reports(x, up->reports);
        return;
    case DDP__V1__AGENT_UP__BODY_LOG_CHUNK:
        logs_chunk(x, up->log_chunk);
        return;
    case DDP__V1__AGENT_UP__BODY_LOG_TAIL:
        log_tails_receive(x, up->log_tail);
        return;
    case DDP__V1__AGENT_UP__BODY_ACTIVITY:
        session_on_activity(x, up->activity);
        return;
    case DDP__V1__AGENT_UP__BODY_USAGE:
        usage_rpc_receive(x, up->usage);
        return;
    case DDP__V1__AGENT_UP__BODY_PROBE_ANSWER:
        node_query_answered(x, (uint64_t)up->probe_answer->probe, &up->probe_answer->base);
        return;
    case DDP__V1__AGENT_UP__BODY_CHECK_ANSWER:
        if (!snapshot_query_answered(x, up->check_answer))
            node_query_answered(x, (uint64_t)up->check_answer->ask, &up->check_answer->base);
        return;
    case DDP__V1__AGENT_UP__BODY_CARD:
        cards_received(x, up->card);
        return;
    case DDP__V1__AGENT_UP__BODY_GOODBYE:
        commit_queue_event(x->service, &(struct core_event){.kind = CORE_GOODBYE, .session = x->handle});
        return;
    default:
        return; /* a message of a newer agent */
    }
}

/* ---- down */

static void session_push_wish(struct service *s, struct agent_session *x)
{
    struct err e = {0};
    struct core_wish wish = {0};
    CLEANUP(pool_release) struct pool pool = {0};
    Ddp__V1__Wish message;
    Ddp__V1__AgentDown down = DDP__V1__AGENT_DOWN__INIT;
    if (core_wish(s->core, x->node, &wish, &e) != ERR_OK) {
        log_warn("no_wish", "node=%s why=%s", LOG_Q(x->node), LOG_Q(e.msg));
        x->wish_due = false;
        return;
    }
    convert_wish(&pool, &wish, store_cluster_id(s->store), &message);
    cards_fill(&pool, s, &wish, &message);
    down.body_case = DDP__V1__AGENT_DOWN__BODY_WISH;
    down.wish = &message;
    x->wish_due = agent_session_send(x, &down, &e) == ERR_RESOURCE_EXHAUSTED;
    core_wish_release(&wish);
}

void agent_sessions_push(struct service *s)
{
    s->wishes_due = false;
    for (struct agent_session *x = s->session_list; x; x = x->next)
        if (x->wish_due && !rpc_call_over(x->rpc))
            session_push_wish(s, x);
}

static void session_on_sendable(struct rpc_call *rpc)
{
    const struct agent_session *x = rpc_call_user(rpc);
    if (x->wish_due)
        x->service->wishes_due = true; /* sent at the end of this turn of the loop */
    logs_node_changed(x->service, x->node);
}

const struct rpc_method agent_methods[] = {
    {.name = "Session",
     .kind = RPC_BIDI,
     .on_start = session_on_start,
     .on_message = session_on_message,
     .on_sendable = session_on_sendable,
     .on_end = session_on_end},
    {.name = NULL},
};
