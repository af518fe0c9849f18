/* The coordinator's process. Like the real service it passes messages to the core, commits the changes, then
 * carries out the effects. It may die at any point: between events, before or after the commit, during the
 * effects. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"
#include "daemon/coordinator/core/forecast/forecast.h"
#include "daemon/coordinator/core/notices.h"
#include "tests/sim/sim.h"

#define LOOK_EVERY 20 /* commits between two forecasts */

static void random_bytes(void *ctx, void *out, size_t size)
{
    uint8_t *bytes = out;

    for (size_t i = 0; i < size; i++)
        bytes[i] = (uint8_t)sim_random(ctx);
}

static void plan_flush(struct sim *sim);

static const struct core_hook every_event = {.name = (char[]){"all"}, .on = ~0u};

void host_start(struct sim *sim)
{
    struct host *host = &sim->host;
    struct core_config config;
    struct err e = {0};

    core_config_defaults(&config);
    snprintf(config.cluster_id, sizeof(config.cluster_id), "sim");
    config.epoch = ++sim->durable.epoch;
    config.hooks = &every_event;
    config.hook_count = 1;
    config.keep_generations = 3;
    if (sim->seed %
        2) /* so that idle nodes send heartbeats less often: every 6 s if there are 3, 16 s if there are 8 */
        config.idle_beats = 30;
    host->core = core_create(&config, &(struct core_env){random_bytes, sim});
    host->life++;
    host->crash_next = 0;
    host->tick_at = INT64_MAX;
    host->deaf_until = host->shut_until = 0;
    sim_say(sim, "coordinator starts, epoch %" PRId64, config.epoch);
    if (core_load(host->core, &sim->durable.r, sim_clock(sim), &host->out, &e) != ERR_OK)
        sim_fail(sim, "core_load: %s", e.msg);
    plan_flush(sim);
}

void host_crash(struct sim *sim)
{
    struct host *host = &sim->host;

    sim_say(sim, "coordinator dies");
    core_free(host->core);
    host->core = NULL;
    core_out_clear(&host->out);
    host->flush_planned = false;
    host->life++;
    host->pending_count = 0;
}

static uint64_t take_handle(struct host *host, const struct request *request)
{
    host->pending =
        array_grow(host->pending, host->pending_count, &host->pending_cap, sizeof(*host->pending));
    host->pending[host->pending_count++] = (struct pending){
        .handle = ++host->next_handle,
        .from = request->from,
        .kind = request->kind,
        .watch = request->kind == CORE_WATCH,
    };
    return host->next_handle;
}

static struct pending *find_pending(struct host *host, uint64_t handle)
{
    for (size_t i = host->pending_count; i-- > 0;)
        if (host->pending[i].handle == handle)
            return &host->pending[i];
    return NULL;
}

static void deliver_reply(struct sim *sim, struct item *item)
{
    struct reply *reply = item->ptr;

    if (reply->to.machine >= 0)
        worker_reply(sim, reply);
    else
        client_reply(sim, reply);
}

static bool link_is_cut(const struct sim *sim, int machine)
{
    return machine >= 0 && sim->machines[machine].cut_until > sim->now;
}

static void send_reply(struct sim *sim, const struct reply *reply)
{
    if (sim_lost(sim) || link_is_cut(sim, reply->to.machine))
        return;
    sim_plan(sim, sim->now + sim_delay(sim), deliver_reply)->ptr = xmemdup(reply, sizeof(*reply));
}

/* Makes a digest of the whole answer to a member, because all members must get the same answer. */
static void digest_answer(const struct core *core, const struct core_effect *effect, struct reply *reply)
{
    const struct generation_record *g = core_generation(core, effect->job, effect->generation);
    struct buf text = {0};

    buf_append(&text, g->key, sizeof(g->key));
    buf_append(&text, g->bootstrap, g->bootstrap_size);
    buf_printf(&text, "%d %d %" PRId64 " %s", g->world_size, g->source_rank, g->source_step,
               g->source_digest ? g->source_digest : "");
    for (int i = 0; i < g->world_size; i++) {
        const struct rank_record *rank = core_rank(core, effect->job, effect->generation, i);
        buf_printf(&text, "%s %d", rank->node, rank->local_rank);
        buf_append(&text, rank->address, rank->address_size);
    }
    digest_sha256(reply->answer, text.data, text.len);
    buf_release(&text);
    reply->source_rank = g->source_rank;
    reply->source_generation = g->source_generation;
    reply->step = g->source_step;
    reply->live = core_generation_is_live(g);
    reply->world_size = g->world_size;
}

static void check_acknowledged(struct sim *sim, const struct core_effect *effect, enum core_event_kind kind)
{
    if (kind == CORE_SUBMIT && !effect->err.code && !durable_job(&sim->durable, effect->job))
        sim_fail(sim, "job %" PRId64 " is acknowledged, but not durable", effect->job);
}

static void send_answer(struct sim *sim, const struct core_effect *effect)
{
    struct host *host = &sim->host;
    struct pending *pending = find_pending(host, effect->call);

    if (!pending) {
        sim_fail(sim, "a call is answered twice, or was never made (%s)", effect->err.msg);
        return;
    }
    struct reply reply = {
        .to = pending->from,
        .kind = pending->kind,
        .err = effect->err,
        .job = effect->job,
        .generation = effect->generation,
        .existed = effect->existed,
        .member = effect->member,
        .wait = effect->wait,
        .stop = effect->stop,
        .handover = effect->handover,
        .hold = effect->hold,
        .late = effect->late,
        .pending = effect->pending,
        .rank = effect->rank,
        .state = effect->state,
        .order = pending->watch ? ++host->words : 0,
    };
    check_acknowledged(sim, effect, pending->kind);
    if (effect->kind == EFFECT_JOIN && effect->state == CORE_JOIN_READY)
        digest_answer(host->core, effect, &reply);
    /* A call is over when it has its reply; a watch gets several, and is over when it is refused. */
    if (!pending->watch || effect->kind == EFFECT_REPLY)
        *pending = host->pending[--host->pending_count];
    send_reply(sim, &reply);
}

static void carry_out(struct sim *sim, const struct core_effect *effect)
{
    switch (effect->kind) {
    case EFFECT_REPLY:
    case EFFECT_JOIN:
    case EFFECT_WATCH:
        send_answer(sim, effect);
        break;
    case EFFECT_WELCOME:
    case EFFECT_REFUSE:
    case EFFECT_CLOSE:
    case EFFECT_ACK:
    case EFFECT_CLEAR_GPU_FAULTS:
    case EFFECT_LOOK:
    case EFFECT_WISH:
        agent_down(sim, effect);
        break;
    case EFFECT_JOB_CHANGED:
    case EFFECT_NODE_CHANGED:
    case EFFECT_DELETE_LOGS: /* there are no logs */
        break;
    }
}

static void plan_tick(struct sim *sim);

static void restart_host(struct sim *sim, struct item *item)
{
    (void)item;
    if (!sim->host.core)
        host_start(sim);
}

static void kill_host(struct sim *sim)
{
    host_crash(sim);
    sim_plan(sim, sim->now + sim_range(sim, 300, 20000), restart_host);
}

/* Any committed state can be run ahead, and no job starts in the past. */
static void look_ahead(struct sim *sim)
{
    struct forecast *f = forecast_begin(sim->host.core, sim_clock(sim));
    size_t count;
    int64_t *jobs = core_job_ids(sim->host.core, 0, &count);

    while (forecast_step(f))
        ;
    for (size_t i = 0; i < count; i++) {
        const struct forecast_start *s = forecast_find(f, jobs[i]);
        if (s && (s->position < 1 || (s->known && s->start_ms < sim_clock(sim).wall_ms)))
            sim_fail(sim, "job %" PRId64 " is %d in line and starts in the past", jobs[i], s->position);
    }
    free(jobs);
    forecast_free(f);
}

static void commit_and_flush(struct sim *sim, struct item *item)
{
    struct host *host = &sim->host;

    if (item->a != host->life || !host->core)
        return;
    host->flush_planned = false;
    int crash = host->crash_next;
    host->crash_next = 0;
    if (crash == 1) {
        kill_host(sim);
        return;
    }
    for (size_t i = 0; i < host->out.change_count; i++)
        parts_check_wait(sim, &host->out.changes[i]);
    durable_apply(sim, host->out.changes, host->out.change_count);
    size_t stop = crash == 2 ? 0 : crash == 3 ? host->out.effect_count / 2 : host->out.effect_count;
    for (size_t i = 0; i < stop && !sim->failed; i++)
        carry_out(sim, &host->out.effects[i]);
    core_out_clear(&host->out);
    if (!crash && ++host->commits % LOOK_EVERY == 0)
        look_ahead(sim);
    if (crash)
        kill_host(sim);
    else
        plan_tick(sim);
}

static void plan_flush(struct sim *sim)
{
    struct host *host = &sim->host;

    if (host->flush_planned)
        return;
    host->flush_planned = true;
    sim_plan(sim, sim->now + sim_range(sim, 0, 3), commit_and_flush)->a = host->life;
}

bool host_deaf(const struct sim *sim)
{
    return sim->host.core && sim->now < sim->host.deaf_until;
}

bool host_shut(const struct sim *sim)
{
    return sim->host.core && sim->now < sim->host.shut_until;
}

/* Reports to the core, as the service does before each tick, how long messages were not received. */
static void tell_deaf(struct sim *sim, int64_t until, int64_t *told, bool outside)
{
    const int64_t end = sim->now < until ? sim->now : until;
    struct core_event event = {.kind = CORE_DEAF, .deaf = {.ms = end - *told, .outside = outside}};

    if (end <= *told)
        return;
    *told = end;
    core_event(sim->host.core, &event, sim_clock(sim), &sim->host.out);
}

static void tell_hearing(struct sim *sim)
{
    tell_deaf(sim, sim->host.deaf_until, &sim->host.deaf_told, false);
    tell_deaf(sim, sim->host.shut_until, &sim->host.shut_told, true);
}

static int64_t until_peace(const struct sim *sim, int64_t ms)
{
    return sim->now + ms < sim->faults_end ? sim->now + ms : sim->faults_end;
}

void host_deafen(struct sim *sim, int64_t ms)
{
    if (!sim->host.core || host_deaf(sim))
        return;
    tell_hearing(sim);
    sim_say(sim, "coordinator receives nothing for %" PRId64 " ms", ms);
    sim->host.deaf_told = sim->now;
    sim->host.deaf_until = until_peace(sim, ms);
}

void host_shut_door(struct sim *sim, int64_t ms)
{
    if (!sim->host.core || host_shut(sim))
        return;
    tell_hearing(sim);
    sim_say(sim, "coordinator accepts no connections for %" PRId64 " ms", ms);
    sim->host.shut_told = sim->now;
    sim->host.shut_until = until_peace(sim, ms);
}

static void tick_core(struct sim *sim, struct item *item)
{
    struct host *host = &sim->host;

    if (item->a != host->life || !host->core || item->at != host->tick_at)
        return;
    host->tick_at = INT64_MAX;
    tell_hearing(sim);
    core_tick(host->core, sim_clock(sim), &host->out);
    plan_flush(sim);
}

static void plan_tick(struct sim *sim)
{
    struct host *host = &sim->host;
    int64_t at = core_next_deadline(host->core);

    if (at == INT64_MAX)
        return;
    at -= 1000000; /* sim_clock adds this to `now` */
    at = at <= sim->now ? sim->now + 1 : at;
    if (at >= host->tick_at)
        return;
    host->tick_at = at;
    sim_plan(sim, at, tick_core)->a = host->life;
}

void host_up(struct sim *sim, struct core_event *event)
{
    tell_hearing(sim);
    core_event(sim->host.core, event, sim_clock(sim), &sim->host.out);
    plan_flush(sim);
}

/* Lives until the next call. */
static const struct core_offer *arrive_offers(const struct request *r)
{
    static struct core_offer offers[SIM_OFFERS];
    static char names[SIM_OFFERS][MAX_MACHINES][16], *lists[SIM_OFFERS][MAX_MACHINES + 1];

    for (size_t i = 0; i < r->offer_count; i++) {
        size_t count = 0;
        for (int k = 0; k < MAX_MACHINES; k++) {
            if (!(r->offers[i].elsewhere >> k & 1))
                continue;
            snprintf(names[i][count], sizeof(names[i][count]), "box%d", k + 1);
            lists[i][count] = names[i][count];
            count++;
        }
        lists[i][count] = NULL;
        offers[i] = r->offers[i].offer;
        offers[i].digest = r->offers[i].digest;
        offers[i].elsewhere = count ? lists[i] : NULL;
    }
    return offers;
}

static void fill_worker(const struct request *r, struct core_event *event)
{
    if (r->kind == CORE_JOIN) {
        event->join.generation = r->generation;
        event->join.rank = r->rank;
        event->join.address = r->bytes;
        event->join.address_size = r->size;
        event->join.offers = arrive_offers(r);
        event->join.offer_count = r->offer_count;
        event->join.stays = r->stays;
        event->join.live_step = r->live_step;
    } else if (r->kind == CORE_PUT_BOOTSTRAP) {
        event->bootstrap.generation = r->generation;
        event->bootstrap.rank = r->rank;
        event->bootstrap.bytes = r->bytes;
        event->bootstrap.size = r->size;
    } else if (r->kind == CORE_WATCH) {
        event->watch.generation = r->generation;
        event->watch.failed_step = r->step;
        event->watch.stays = r->stays;
        event->watch.ready = r->ready;
        event->watch.broken = r->broken;
        event->watch.record = true;
        event->watch.arrived = r->arrived;
        event->watch.holds = r->holds;
    } else {
        event->snapshot.generation = r->generation;
        event->snapshot.step = r->step;
        event->snapshot.digest = r->text;
        event->snapshot.path = r->parts && !*r->text ? "" : "/out";
        event->snapshot.parts = r->parts;
        event->snapshot.bytes = 1000;
        event->snapshot.why = "/out: No space left on device";
    }
}

static void fill_client(const struct request *r, struct core_event *event)
{
    if (r->kind == CORE_SUBMIT) {
        event->submit.request_id = r->id;
        event->submit.job_file = r->text;
        event->submit.user = "ana";
        event->submit.continues = r->continues;
        event->submit.resume = r->flag;
        digest_sha256(event->submit.digest, r->text, strlen(r->text));
    } else if (r->kind == CORE_CANCEL) {
        event->cancel.job = r->job;
        event->cancel.kill = r->flag;
    } else if (r->kind == CORE_RESIZE || r->kind == CORE_RESTART) {
        event->resize.job = r->job;
        event->resize.nodes_min = r->generation;
        event->resize.nodes_max = r->step;
        event->resize.from_scratch = r->flag;
    } else if (r->kind == CORE_PRIORITY || r->kind == CORE_HOLD || r->kind == CORE_DELETE) {
        event->order.job = r->job;
        event->order.priority = r->step;
        event->order.relative = r->step < 0;
        event->order.hold = r->flag;
    } else {
        event->node.name = r->text;
    }
}

/* A worker ends its Watch before it begins another, so none is served after a later one. */
static bool later_watch_arrived(const struct sim *sim, const struct request *r)
{
    struct proc *p =
        r->kind == CORE_WATCH ? machine_proc(&sim->machines[r->from.machine], r->job, r->from.spawn) : NULL;

    if (!p || r->from.attempt >= p->watch_arrived) {
        if (p)
            p->watch_arrived = r->from.attempt;
        return false;
    }
    return true;
}

static void request_arrives(struct sim *sim, struct item *item)
{
    struct host *host = &sim->host;
    struct request *r = item->ptr;
    struct core_event event = {.kind = r->kind};

    if (!host->core || link_is_cut(sim, r->from.machine))
        return;
    if (host_deaf(sim)) {
        sim_plan(sim, host->deaf_until, request_arrives)->ptr = steal(item->ptr);
        return;
    }
    if (sim->restores && r->kind == CORE_SUBMIT && sim->jobs[r->from.job].acked)
        return; /* this request made a job before the restore; it must not make a second one */
    if (later_watch_arrived(sim, r))
        return;
    event.call = take_handle(host, r);
    if (r->from.machine >= 0) {
        const struct spawn_record *s = core_find_token(host->core, r->token, sizeof(r->token));
        if (!s) {
            bool later = core_may_learn(host->core, sim_clock(sim));
            send_answer(
                sim, &(struct core_effect){.kind = EFFECT_REPLY,
                                           .call = event.call,
                                           .err = {.code = later ? ERR_UNAVAILABLE : ERR_UNAUTHENTICATED}});
            return;
        }
        event.member.job = s->job;
        event.member.spawn = s->spawn;
        fill_worker(r, &event);
        const struct generation_record *g = core_generation(host->core, r->job, r->generation);
        if (r->kind == CORE_JOIN && g && g->state == GENERATION_FORMING)
            parts_told(sim, r);
    } else {
        fill_client(r, &event);
    }
    host_up(sim, &event);
}

/* Sends a copy of the request, with its offers in the same allocation. */
static void send_request(struct sim *sim, const struct request *request)
{
    size_t size = request->offer_count * sizeof(*request->offers);
    struct request *copy = xmalloc(sizeof(*request) + size);

    *copy = *request;
    copy->offers = (struct sim_offer *)(copy + 1);
    if (size)
        memcpy(copy->offers, request->offers, size);
    sim_plan(sim, sim->now + sim_delay(sim), request_arrives)->ptr = copy;
}

void host_request(struct sim *sim, const struct request *request)
{
    if (link_is_cut(sim, request->from.machine) || sim_lost(sim))
        return;
    send_request(sim, request);
    if (sim->faults && sim_chance(sim, 0.05))
        send_request(sim, request); /* it arrives twice, as after a retry */
}
