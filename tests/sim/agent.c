/* The agent's stream to the coordinator: it receives wishes, and sends facts and heartbeats, which the
 * coordinator acknowledges. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "tests/sim/sim.h"

#define HEARTBEAT_MS 3000
#define PATIENCE_MS 9000 /* after this time the agent gives up a silent stream */

struct up {
    enum core_event_kind kind;
    int session;
    int64_t sequence, epoch, revision, job;
    bool found;
    uint64_t sick, lost;
    bool refused;
    int64_t spawn, step; /* of a report about `job` */
    size_t count;
    struct spawn_fact facts[]; /* of CORE_ACTIVITY: core_activity in their place */
};

static bool agent_alive(const struct machine *m, int64_t life)
{
    return m->power && m->agent && m->life == life;
}

static void connect_agent(struct sim *sim, struct item *item);

static void plan_connect(struct sim *sim, struct machine *m, int64_t after)
{
    struct item *item = sim_plan(sim, sim->now + after, connect_agent);

    item->a = m->index;
    item->b = m->life;
}

static void tell_closed(struct sim *sim, struct item *item)
{
    const struct session *s = &sim->sessions[item->a];

    if (host_deaf(sim)) {
        sim_plan(sim, sim->host.deaf_until, tell_closed)->a = item->a;
        return;
    }
    if (sim->host.core && s->life == sim->host.life)
        host_up(sim, &(struct core_event){.kind = CORE_SESSION_CLOSED, .session = s->handle});
}

static void end_session(struct sim *sim, struct machine *m)
{
    if (m->session < 0)
        return;
    sim->sessions[m->session].broken = true;
    if (sim_chance(sim, 0.8))
        sim_plan(sim, sim->now + sim_range(sim, 0, 3000), tell_closed)->a = m->session;
    m->session = -1;
    m->welcomed = false;
}

void agent_break(struct sim *sim, struct machine *m)
{
    end_session(sim, m);
    if (m->power && m->agent)
        plan_connect(sim, m, sim_range(sim, 50, 1500));
}

struct gpu_list {
    struct core_gpu gpus[8];
    char uuids[8][32];
    size_t count;
};

static void list_gpus(const struct machine *m, uint64_t sick, uint64_t lost, uint64_t unlisted,
                      struct gpu_list *out)
{
    out->count = 0;
    for (int i = 0; i < m->gpu_count; i++) {
        if (unlisted >> i & 1)
            continue;
        snprintf(out->uuids[out->count], sizeof(out->uuids[0]), "GPU-%d-%d", m->index, i);
        out->gpus[out->count] = (struct core_gpu){.uuid = out->uuids[out->count],
                                                  .name = (char *)"H200",
                                                  .index = i,
                                                  .healthy = !((sick | lost) >> i & 1),
                                                  .lost = lost >> i & 1};
        out->count++;
    }
}

/* The agent reports a GPU as lost if it is leased but not listed, so such a GPU is no longer gone. */
static void find_leased(struct machine *m)
{
    for (size_t i = 0; m->wish && i < m->wish->count; i++)
        m->gone &= ~m->wish->spawns[i].gpus;
}

const struct card *machine_card(const struct machine *m, int64_t job)
{
    for (size_t i = 0; i < m->card_count; i++)
        if (m->cards[i].job == job)
            return &m->cards[i];
    return NULL;
}

static void keep_cards(struct sim *sim, struct machine *m, const struct wish_copy *wish)
{
    for (size_t i = 0; i < wish->card_count; i++) {
        struct card *kept = (struct card *)machine_card(m, wish->cards[i].job);
        if (!kept && m->card_count == MAX_JOBS) {
            sim_fail(sim, "%s keeps more cards than there were jobs", m->name);
            return;
        }
        if (!kept)
            kept = &m->cards[m->card_count++];
        *kept = wish->cards[i];
        if (kept->drop)
            *kept = m->cards[--m->card_count];
    }
}

static void send_hello(struct sim *sim, struct machine *m, struct session *s)
{
    struct gpu_list list;
    struct core_event event = {.kind = CORE_HELLO, .session = s->handle};
    bool run = sim->seed % 3 == 0, seats = sim->seed % 6 == 0; /* run: the machines are hosts of ddpctl run */

    struct core_card_head heads[MAX_JOBS];
    struct records cards[MAX_JOBS];
    size_t card_count = 0;

    for (size_t i = 0; i < m->card_count; i++) {
        heads[i] = (struct core_card_head){m->cards[i].job, m->cards[i].progress};
        if (core_wants_card(sim->host.core, m->name, &heads[i]))
            cards[card_count++] = sim->contents[m->cards[i].content].records;
    }
    find_leased(m);
    list_gpus(m, m->sick, m->lost, m->gone, &list);
    event.hello = (struct core_hello){
        .node = m->name,
        .instance = m->instance,
        .session_id = "s",
        .version = "0.1.0",
        .cluster_id = m->wish ? "sim" : "",
        .address = "10.0.0.1",
        .log_dir = "/var/log/ddp",
        .epoch = m->wish ? m->wish->epoch : 0,
        .revision = m->wish ? m->wish->revision : 0,
        .cpu_slots = m->cpu_slots,
        .cores = m->cpu_slots,
        .port_first = 29700,
        .port_last = 29720,
        .turn = run ? m->index + 1 : 0,
        .seat = seats && m->index % 2 ? m->index : 0,
        .procs = seats && m->index % 2 ? 1 : 0,
        .gpus = list.gpus,
        .gpu_count = list.count,
        .nccl = m->gpu_count ? m->nccl : NULL,
        .gpu_slots = m->gpu_slots,
        .keeps_cards = true,
        .heads = heads,
        .head_count = m->card_count,
        .cards = cards,
        .card_count = card_count,
    };
    host_up(sim, &event);
}

static void up_arrives(struct sim *sim, struct item *item);

/* Delays a message until the host receives again. Later messages of the stream wait behind it. */
static bool lies_unread(struct sim *sim, struct item *item, struct session *s)
{
    s->unread -= item->a ? 1 : 0;
    if (!sim->host.core || s->broken || !(host_deaf(sim) || (s->unread && !item->a)))
        return false;
    struct item *later = sim_plan(sim, host_deaf(sim) ? sim->host.deaf_until : sim->now, up_arrives);
    later->ptr = steal(item->ptr);
    later->a = 1;
    s->unread++;
    return true;
}

static void deliver_report(struct sim *sim, const struct up *up, struct core_event *event)
{
    const struct metric_line line = {.has_step = true, .step = up->step};
    const struct metric_report report = {.job = up->job, .spawn = up->spawn, .line = &line};

    event->reports.reports = &report;
    event->reports.count = 1;
    host_up(sim, event);
}

static void up_arrives(struct sim *sim, struct item *item)
{
    struct up *up = item->ptr;
    struct session *s = &sim->sessions[up->session];
    struct core_event event = {.kind = up->kind, .session = s->handle};
    const struct core_account refused = {"ana", "no account ana here"};
    struct gpu_list list;

    if (lies_unread(sim, item, s) || !sim->host.core || s->broken)
        return;
    if (sim->machines[s->machine].cut_until > sim->now) {
        s->broken = true; /* the agent is not told; it gives the silent stream up later */
        return;
    }
    if (up->kind == CORE_HELLO) {
        s->life = sim->host.life;
        s->handle = ++sim->host.next_handle;
        send_hello(sim, &sim->machines[s->machine], s);
        return;
    }
    if (s->life != sim->host.life)
        return;
    if (up->kind == CORE_HEARTBEAT) {
        event.heartbeat.sequence = up->sequence;
        list_gpus(&sim->machines[s->machine], up->sick, up->lost, 0, &list);
        event.heartbeat.gpus = list.gpus;
        event.heartbeat.gpu_count = list.count;
        event.heartbeat.accounts = &refused;
        event.heartbeat.account_count = up->refused;
    } else if (up->kind == CORE_FACTS) {
        event.facts.epoch = up->epoch;
        event.facts.revision = up->revision;
        event.facts.facts = up->facts;
        event.facts.count = up->count;
    } else if (up->kind == CORE_REPORTS) {
        deliver_report(sim, up, &event);
        return;
    } else if (up->kind == CORE_ACTIVITY) {
        event.activity.spawns = (struct core_activity *)up->facts;
        event.activity.count = up->count;
    } else if (up->kind == CORE_LOOKED) {
        event.looked.job = up->job;
        event.looked.found = up->found;
    }
    host_up(sim, &event);
}

/* Sends a message. Messages of a stream arrive in the order in which they were sent. */
static void send_up(struct sim *sim, struct machine *m, struct up *up)
{
    struct session *s = &sim->sessions[m->session];
    int64_t at = sim->now + sim_delay(sim);

    if (sim_chance(sim, sim->faults ? sim->loss / 4 : 0)) {
        s->broken = true;
        free(up);
        return;
    }
    s->up_at = at > s->up_at ? at : s->up_at;
    up->session = m->session;
    sim_plan(sim, s->up_at, up_arrives)->ptr = up;
}

static struct up *new_up(enum core_event_kind kind, size_t facts)
{
    struct up *up = xcalloc(1, sizeof(*up) + facts * sizeof(struct spawn_fact));

    up->kind = kind;
    return up;
}

static void connect_agent(struct sim *sim, struct item *item)
{
    struct machine *m = &sim->machines[item->a];

    if (!agent_alive(m, item->b) || m->session >= 0)
        return;
    if (!sim->host.core || m->cut_until > sim->now) {
        plan_connect(sim, m, sim_range(sim, 200, 2000));
        return;
    }
    if (host_shut(sim)) {
        m->turned_away = sim->now;
        plan_connect(sim, m, sim_range(sim, 200, 2000));
        return;
    }
    sim->sessions = array_grow(sim->sessions, sim->session_count, &sim->session_cap, sizeof(*sim->sessions));
    sim->sessions[sim->session_count] = (struct session){.machine = m->index, .hello_sent = sim->now};
    m->session = (int)sim->session_count++;
    m->welcomed = false;
    m->heard = m->asked = sim->now;
    m->acked = m->sequence;
    send_up(sim, m, new_up(CORE_HELLO, 0));
}

static void beat_once(struct sim *sim, struct machine *m)
{
    struct up *up = new_up(CORE_HEARTBEAT, 0);

    if (m->acked == m->sequence)
        m->asked = sim->now;
    up->sequence = ++m->sequence;
    up->sick = m->sick;
    up->lost = m->lost;
    m->refused = m->refused && sim->now < m->account_at;
    up->refused = m->refused;
    m->sent[up->sequence % 64] = sim->now;
    send_up(sim, m, up);
}

static void send_heartbeat(struct sim *sim, struct item *item);

static void plan_heartbeat(struct sim *sim, struct machine *m, int64_t after)
{
    struct item *next =
        sim_plan(sim, sim->now + sim_range(sim, after * 9 / 10, after * 11 / 10), send_heartbeat);

    next->a = m->index;
    next->b = m->life;
    next->c = ++m->beats;
}

static void send_heartbeat(struct sim *sim, struct item *item)
{
    struct machine *m = &sim->machines[item->a];

    if (!agent_alive(m, item->b) || item->c != m->beats)
        return;
    const int64_t from = m->heard > m->asked ? m->heard : m->asked;

    if (m->session >= 0 && (!m->welcomed || m->acked < m->sequence) && sim->now - from > PATIENCE_MS)
        agent_break(sim, m);
    if (m->welcomed)
        beat_once(sim, m);
    plan_heartbeat(sim, m, HEARTBEAT_MS); /* the acknowledgement may name a longer interval */
}

void agent_start(struct sim *sim, struct machine *m)
{
    m->agent = true;
    m->life++;
    plan_connect(sim, m, sim_range(sim, 0, 500));
    struct item *item = sim_plan(sim, sim->now + sim_range(sim, 0, HEARTBEAT_MS), send_heartbeat);
    item->a = m->index;
    item->b = m->life;
    item->c = ++m->beats;
    m->beat_ms = HEARTBEAT_MS;
    machine_apply(sim, m); /* the wish on disk counts until a newer one comes */
}

void agent_stop(struct sim *sim, struct machine *m)
{
    end_session(sim, m);
    m->agent = false;
    m->life++;
}

static struct spawn_fact fact_of(const struct proc *p)
{
    return (struct spawn_fact){
        .job = p->job,
        .spawn = p->spawn,
        .state = p->state == PROC_STARTING ? SPAWN_STARTING
                 : p->state == PROC_EXITED ? SPAWN_EXITED
                 : p->stop                 ? SPAWN_STOPPING
                                           : SPAWN_RUNNING,
        .pid = 1000 + p->spawn,
        .started_ms = p->started,
        .ended_ms = p->ended,
        .code = p->code,
        .signal = p->signal,
        .stderr_tail = p->tail,
        .lost = p->lost,
        .not_started = p->not_started,
        .port_busy = p->port_busy,
        .lease_expired = p->lease_expired,
        .node_trouble = p->node_trouble,
        .no_account = p->no_account,
        .stopped = p->stop != CORE_STOP_NONE,
    };
}

void agent_facts(struct sim *sim, struct machine *m)
{
    if (!m->agent || !m->welcomed)
        return;
    struct up *up = new_up(CORE_FACTS, m->proc_count);
    up->epoch = m->wish ? m->wish->epoch : 0;
    up->revision = m->wish ? m->wish->revision : 0;
    up->count = m->proc_count;
    for (size_t i = 0; i < m->proc_count; i++)
        up->facts[i] = fact_of(m->procs[i]);
    send_up(sim, m, up);
}

/* A look for snapshots may hang for a long time, and may never be answered. */
void agent_looked(struct sim *sim, struct machine *m, int64_t job)
{
    if (!m->agent || !m->welcomed || sim_lost(sim))
        return;
    struct up *up = new_up(CORE_LOOKED, 0);
    up->job = job;
    up->found = worker_has_copy(sim, m, job);
    send_up(sim, m, up);
}

void agent_report(struct sim *sim, struct machine *m, const struct proc *p)
{
    if (!m->agent || !m->welcomed)
        return;
    struct up *up = new_up(CORE_REPORTS, 0);
    up->job = p->job;
    up->spawn = p->spawn;
    up->step = p->step;
    send_up(sim, m, up);
}

void agent_activity(struct sim *sim, struct machine *m, const struct core_activity *list, size_t count)
{
    struct up *up = new_up(CORE_ACTIVITY, count);

    _Static_assert(sizeof(struct core_activity) <= sizeof(struct spawn_fact),
                   "the list fits in place of facts");
    up->count = count;
    memcpy(up->facts, list, count * sizeof(*list));
    send_up(sim, m, up);
}

void agent_goodbye(struct sim *sim, struct machine *m)
{
    if (m->welcomed)
        send_up(sim, m, new_up(CORE_GOODBYE, 0));
}

struct down { /* a wish, if there is one, follows in the same allocation */
    enum core_effect_kind kind;
    int session;
    int64_t sequence, job, heartbeat_ms;
    size_t wish_size;
};

static void take_wish(struct sim *sim, struct machine *m, const struct wish_copy *wish, size_t size)
{
    if (m->wish && (wish->epoch < m->wish->epoch ||
                    (wish->epoch == m->wish->epoch && wish->revision < m->wish->revision)))
        return;
    free(m->wish);
    keep_cards(sim, m, wish);
    m->wish = xmemdup(wish, size);
    machine_apply(sim, m);
}

static void take_acknowledgement(struct sim *sim, struct machine *m, int64_t sent)
{
    if (sent > m->last_ack_sent)
        m->last_ack_sent = sent;
    machine_lease_renewed(sim, m);
}

static void down_arrives(struct sim *sim, struct item *item)
{
    struct down *down = item->ptr;
    struct session *s = &sim->sessions[down->session];
    struct machine *m = &sim->machines[s->machine];

    if (s->broken || m->session != down->session || !m->agent)
        return;
    if (m->cut_until > sim->now) {
        s->broken = true; /* as in up_arrives */
        return;
    }
    m->heard = sim->now;
    if (down->kind == EFFECT_WELCOME) {
        m->welcomed = m->activity_due = true;
        m->beat_ms = HEARTBEAT_MS;
        take_acknowledgement(sim, m, s->hello_sent); /* a welcome acknowledges the hello */
    } else if (down->kind == EFFECT_ACK) {
        m->beat_ms = down->heartbeat_ms;
        m->acked = down->sequence;
        if (m->acked == m->sequence && m->beat_ms > HEARTBEAT_MS)
            plan_heartbeat(sim, m, m->beat_ms);
        take_acknowledgement(sim, m, m->sent[down->sequence % 64]);
    } else if (down->kind == EFFECT_WISH) {
        if (m->welcomed && m->beat_ms != HEARTBEAT_MS) { /* the wish may bring workers */
            m->beat_ms = HEARTBEAT_MS;
            beat_once(sim, m);
            plan_heartbeat(sim, m, HEARTBEAT_MS);
        }
        take_wish(sim, m, (struct wish_copy *)(down + 1), down->wish_size);
    } else if (down->kind == EFFECT_CLEAR_GPU_FAULTS) {
        m->sick = 0;
    } else if (down->kind == EFFECT_LOOK) {
        agent_looked(sim, m, down->job);
    } else {
        agent_break(sim, m);
    }
}

static uint64_t gpu_bits(struct sim *sim, char *const *uuids)
{
    uint64_t bits = 0;
    int machine, gpu;

    for (; uuids && *uuids; uuids++) {
        if (sscanf(*uuids, "GPU-%d-%d", &machine, &gpu) != 2)
            continue;
        if (bits >> gpu & 1)
            sim_fail(sim, "one worker has %s twice", *uuids);
        bits |= UINT64_C(1) << gpu;
    }
    return bits;
}

static size_t copy_content(struct sim *sim, int64_t job)
{
    for (size_t i = sim->content_count; i-- > 0 && sim->contents[i].event == sim->events;)
        if (sim->contents[i].job == job)
            return i;
    sim->contents = array_grow(sim->contents, sim->content_count, &sim->content_cap, sizeof(*sim->contents));
    struct card_content *fresh = &sim->contents[sim->content_count];
    *fresh = (struct card_content){.job = job, .event = sim->events};
    (void)core_card(sim->host.core, job, &fresh->records);
    return sim->content_count++;
}

static struct down *copy_wish(struct sim *sim, const char *node)
{
    struct core_wish wish;
    struct err e;
    size_t count = 0;

    if (core_wish(sim->host.core, node, &wish, &e) != ERR_OK)
        return NULL; /* the node was forgotten meanwhile */
    for (size_t i = 0; i < wish.group_count; i++)
        count += wish.groups[i].spawn_count;
    size_t size = sizeof(struct wish_copy) + count * sizeof(struct wished);
    struct down *down = xcalloc(1, sizeof(*down) + size);
    struct wish_copy *copy = (struct wish_copy *)(down + 1);
    down->wish_size = size;
    copy->epoch = wish.epoch;
    copy->revision = wish.revision;
    copy->restores = sim->restores;
    for (size_t i = 0; i < wish.card_count && i < MAX_JOBS; i++) {
        const struct core_wish_card *card = &wish.cards[i];
        copy->cards[copy->card_count++] =
            (struct card){card->job, card->progress, card->ended, card->drop, copy_content(sim, card->job)};
    }
    for (size_t i = 0; i < wish.group_count; i++)
        for (size_t k = 0; k < wish.groups[i].spawn_count; k++) {
            const struct core_wish_group *g = &wish.groups[i];
            const struct core_wish_spawn *s = &g->spawns[k];
            struct wished *w = &copy->spawns[copy->count++];
            *w = (struct wished){
                .job = g->job,
                .spawn = s->spawn,
                .generation = s->generation,
                .lease_ms = g->lease_ms,
                .grace_ms = g->grace_ms,
                .rank = s->rank,
                .local_rank = s->local_rank,
                .world_size = g->world_size,
                .cpu_slot = s->cpu_slot,
                .gpus = gpu_bits(sim, s->gpu_uuids),
                .native = g->kind == JOB_TRAIN,
                .stop = s->stop,
                .keep_only = s->keep_only,
            };
            memcpy(w->token, s->token, sizeof(w->token));
        }
    core_wish_release(&wish);
    return down;
}

void agent_down(struct sim *sim, const struct core_effect *effect)
{
    size_t at = sim->session_count;
    struct down *down;

    while (at-- > 0)
        if (sim->sessions[at].handle == effect->session && sim->sessions[at].life == sim->host.life)
            break;
    if (at == SIZE_MAX || sim->sessions[at].broken)
        return;
    struct session *s = &sim->sessions[at];
    down = effect->kind == EFFECT_WISH ? copy_wish(sim, effect->node) : xcalloc(1, sizeof(*down));
    if (!down)
        return;
    down->kind = effect->kind;
    down->session = (int)at;
    down->sequence = effect->sequence;
    down->heartbeat_ms = effect->heartbeat_ms;
    down->job = effect->job;
    int64_t when = sim->now + sim_delay(sim);
    s->down_at = when > s->down_at ? when : s->down_at;
    sim_plan(sim, s->down_at, down_arrives)->ptr = down;
}
