/* Workers. A command runs for its time. A trainer joins, trains in step with its peers, writes and commits
 * snapshots, and answers a stop with a last snapshot. Some trainers stay when their generation fails: they keep
 * their state, wait for the next generation and join it. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/worker/exits.h"
#include "tests/sim/sim.h"

#define STEP_MS 700
#define RETRY_MS 6000
#define PEERS_MS 15000  /* how long a worker that has lost its peers waits for word */
#define ERROR_EXIT (-1) /* instead of an exit code: that of the job's error */

struct machine *worker_machine(struct sim *sim, const struct item *item, struct proc **p)
{
    struct machine *m = &sim->machines[item->a];

    *p = machine_proc(m, item->b, item->c);
    if (*p && ((*p)->state != PROC_RUNNING || (*p)->hung || (*p)->stuck))
        *p = NULL;
    return m;
}

/* The same for the thread of Watch, which goes on while the main thread computes for ever. */
static struct machine *watching_machine(struct sim *sim, const struct item *item, struct proc **p)
{
    struct machine *m = &sim->machines[item->a];

    *p = machine_proc(m, item->b, item->c);
    if (*p && ((*p)->state != PROC_RUNNING || (*p)->hung || ((*p)->stuck && (*p)->stuck != 'R')))
        *p = NULL;
    return m;
}

struct item *worker_plan(struct sim *sim, const struct machine *m, const struct proc *p, int64_t after,
                         item_fn run)
{
    struct item *item = sim_plan(sim, sim->now + after, run);

    item->a = m->index;
    item->b = p->job;
    item->c = p->spawn;
    item->d = p->attempt;
    return item;
}

/* A doomed job fails with its code and a last line on stderr. A command also reports the step that it had reached. */
static void say_error(struct sim *sim, struct machine *m, struct proc *p)
{
    static const char *const lines[] = {"loading\nValueError: no such shard", "ValueError: no such file\n",
                                        "ValueError: no such token"};
    const struct sim_job *job = client_job(sim, p->job);

    p->tail = lines[job->varied ? (size_t)p->generation % ARRAY_LEN(lines) : 0];
    if (!p->native) {
        p->step = 120;
        agent_report(sim, m, p);
    }
    proc_exit(sim, m, p, job->error, 0);
}

static void leave_job(struct sim *sim, struct item *item)
{
    struct proc *p;
    struct machine *m = worker_machine(sim, item, &p);

    if (!p)
        return;
    if (item->d == ERROR_EXIT) {
        say_error(sim, m, p);
        return;
    }
    proc_exit(sim, m, p, item->d > 128 ? 0 : (int)item->d, item->d > 128 ? (int)item->d - 128 : 0);
}

/* code: 128 + N for signal N, as in a shell; or ERROR_EXIT. */
static void plan_exit(struct sim *sim, const struct machine *m, struct proc *p, int64_t after, int code)
{
    p->leaving = true;
    worker_plan(sim, m, p, after, leave_job)->d = code;
}

static struct request request_of(const struct machine *m, struct proc *p, enum core_event_kind kind)
{
    struct request r = {
        .kind = kind,
        .from = {m->index, p->job, p->spawn, kind == CORE_WATCH ? ++p->watch_attempt : ++p->attempt},
        .job = p->job,
        .generation = p->generation,
        .rank = p->rank,
        .stays = p->stays,
    };
    memcpy(r.token, p->token, sizeof(r.token));
    return r;
}

static bool is_mounted(const struct sim *sim, const struct machine *m)
{
    return m->unmounted_until <= sim->now;
}

bool worker_has_copy(const struct sim *sim, const struct machine *m, int64_t id)
{
    const struct records *r = &sim->durable.r;
    const struct job_record *job = durable_job(&sim->durable, id);

    for (size_t i = 0; job && is_mounted(sim, m) && i < m->copy_count; i++)
        for (size_t k = 0; k < r->snapshot_count; k++)
            if (m->copies[i].job == id && r->snapshots[k].job == id &&
                m->copies[i].generation == r->snapshots[k].generation &&
                m->copies[i].step == r->snapshots[k].step &&
                m->copies[i].generation > job->scratch_generation)
                return true;
    return false;
}

/* Lists the snapshots of this job, or of the job that it continues, that are on the machine's disk. */
static size_t offers_of(struct sim *sim, const struct machine *m, const struct proc *p, struct sim_offer *out)
{
    size_t count = 0;

    for (size_t i = m->copy_count; is_mounted(sim, m) && i-- > 0 && count < SIM_OFFERS;) {
        const struct copy *c = &m->copies[i];
        const struct job_record *job = durable_job(&sim->durable, p->job);
        if (c->lost || (c->job != p->job && !(job && job->continues == c->job)))
            continue;
        out[count] = (struct sim_offer){.offer = {.job = c->job,
                                                  .generation = c->generation,
                                                  .step = c->step,
                                                  .path = "/out",
                                                  .committed = c->committed,
                                                  .parts = c->parts},
                                        .elsewhere = c->homes & ~(UINT64_C(1) << m->index)};
        snprintf(out[count].digest, sizeof(out[count].digest), "d%" PRId64 "-%" PRId64 "-%" PRId64, c->job,
                 c->generation, c->step);
        count++;
    }
    return count;
}

/* Machines on which the generation has processes. Restored records may be older than the generation. */
static uint64_t machines_of(const struct sim *sim, const struct proc *p)
{
    uint64_t bits = 0;

    for (int k = 0; k < sim->machine_count && !durable_generation(&sim->durable, p->job, p->generation); k++)
        for (size_t i = 0; i < sim->machines[k].proc_count; i++) {
            const struct proc *other = sim->machines[k].procs[i];
            bits |= other->job == p->job && other->generation == p->generation ? UINT64_C(1) << k : 0;
        }

    for (size_t i = 0; i < sim->durable.r.rank_count; i++) {
        const struct rank_record *rank = &sim->durable.r.ranks[i];
        if (rank->job != p->job || rank->generation != p->generation)
            continue;
        for (int k = 0; k < sim->machine_count; k++)
            bits |= !strcmp(sim->machines[k].name, rank->node) ? UINT64_C(1) << k : 0;
    }
    return bits;
}

static void join_generation(struct sim *sim, struct item *item);

static void send_join(struct sim *sim, struct machine *m, struct proc *p)
{
    struct sim_offer offers[SIM_OFFERS];
    struct request r = request_of(m, p, CORE_JOIN);

    r.size = (size_t)snprintf((char *)r.bytes, sizeof(r.bytes), "%s:%" PRId64, m->name, p->spawn);
    r.live_step = p->live ? p->step : 0;
    r.offers = offers;
    if (!r.live_step || sim_chance(sim, 0.5)) /* a survivor need not look for snapshots */
        r.offer_count = offers_of(sim, m, p, offers);
    host_request(sim, &r);
    worker_plan(sim, m, p, sim_range(sim, RETRY_MS / 2, 4 * RETRY_MS), join_generation);
}

/* Calls Join again: no reply came, or the reply said to call again. */
static void join_generation(struct sim *sim, struct item *item)
{
    struct proc *p;
    struct machine *m = worker_machine(sim, item, &p);

    if (p && p->attempt == item->d && !p->ready && !p->leaving)
        send_join(sim, m, p);
}

static void send_bootstrap(struct sim *sim, struct machine *m, struct proc *p)
{
    struct request r = request_of(m, p, CORE_PUT_BOOTSTRAP);

    r.size = sizeof(r.bytes);
    digest_sha256(r.bytes, p->token, sizeof(p->token)); /* the same id at each retry */
    host_request(sim, &r);
    worker_plan(sim, m, p, sim_range(sim, RETRY_MS / 2, RETRY_MS), join_generation);
}

void worker_send_watch(struct sim *sim, struct machine *m, struct proc *p)
{
    struct request r = request_of(m, p, CORE_WATCH);

    r.step = p->failed_step;
    r.ready = p->handover_waits ? p->handover : 0;
    r.broken = p->broken;
    r.arrived = p->arrived;
    r.holds = p->holds;
    host_request(sim, &r);
}

static void watch_generation(struct sim *sim, struct item *item)
{
    struct proc *p;
    struct machine *m = watching_machine(sim, item, &p);

    if (!p || p->leaving)
        return;
    worker_send_watch(sim, m, p);
    worker_plan(sim, m, p, sim_range(sim, 5000, 20000), watch_generation);
}

static void write_copy(struct sim *sim, struct machine *m, const struct proc *p, bool parts)
{
    struct copy c = {.job = p->job, .generation = p->generation, .step = p->step};

    if (parts) {
        c.parts = p->world_size;
        c.homes = machines_of(sim, p);
    }
    if (parts && !parts_find(sim, c.job, c.generation, c.step)) {
        sim->parted = array_grow(sim->parted, sim->parted_count, &sim->parted_cap, sizeof(*sim->parted));
        sim->parted[sim->parted_count++] = c;
    }
    m->copies = array_grow(m->copies, m->copy_count, &m->copy_cap, sizeof(*m->copies));
    m->copies[m->copy_count++] = c;
}

static void send_commit(struct sim *sim, struct machine *m, struct proc *p, int64_t step)
{
    struct request r = request_of(m, p, CORE_COMMIT_SNAPSHOT);

    r.step = step;
    snprintf(r.text, sizeof(r.text), "d%" PRId64 "-%" PRId64 "-%" PRId64, p->job, p->generation, step);
    host_request(sim, &r);
    if (sim_chance(sim, 0.2))
        host_request(sim, &r); /* a retry although the first try has arrived */
}

static void send_part(struct sim *sim, struct machine *m, struct proc *p);

/* No answer came, or other ranks are still writing. */
static void send_part_again(struct sim *sim, struct item *item)
{
    struct proc *p;
    struct machine *m = worker_machine(sim, item, &p);

    if (p && p->attempt == item->d && p->commit_step)
        send_part(sim, m, p);
}

static void send_part(struct sim *sim, struct machine *m, struct proc *p)
{
    struct request r = request_of(m, p, CORE_COMMIT_SNAPSHOT);

    r.step = p->commit_step;
    r.parts = p->world_size;
    if (p->local_rank == 0)
        snprintf(r.text, sizeof(r.text), "d%" PRId64 "-%" PRId64 "-%" PRId64, p->job, p->generation,
                 p->commit_step);
    host_request(sim, &r);
    worker_plan(sim, m, p, sim_range(sim, 500, RETRY_MS), send_part_again);
}

static struct copy *copy_of(struct machine *m, const struct proc *p, int64_t step)
{
    for (size_t i = 0; i < m->copy_count; i++)
        if (m->copies[i].job == p->job && m->copies[i].generation == p->generation &&
            m->copies[i].step == step)
            return &m->copies[i];
    return NULL;
}

/* The coordinator has refused the snapshot for good, so its files go. */
static void discard_copy(struct sim *sim, struct machine *m, struct proc *p)
{
    struct copy *c = copy_of(m, p, p->commit_step);
    const struct records *r = &sim->durable.r;

    for (size_t i = 0; i < r->snapshot_count; i++)
        if (r->snapshots[i].job == p->job && r->snapshots[i].generation == p->generation &&
            r->snapshots[i].step == p->commit_step)
            sim_fail(sim, "job %" PRId64 ": step %" PRId64 " is removed, and was committed", p->job,
                     p->commit_step);
    if (c)
        *c = m->copies[--m->copy_count];
    p->commit_step = 0;
}

static void write_snapshot(struct sim *sim, struct machine *m, struct proc *p)
{
    const struct sim_job *job = client_job(sim, p->job);

    if ((p->local_rank != 0 && !(job && job->parts)) || !job || job->no_snapshots)
        return;
    if (!is_mounted(sim, m) || (sim->faults && sim_chance(sim, 0.05))) {
        struct request r = request_of(m, p, CORE_SNAPSHOT_FAILED);
        r.step = p->failed_step = p->step;
        p->commit_step = 0;
        host_request(sim, &r);
        return;
    }
    if (p->local_rank == 0)
        write_copy(sim, m, p, job->parts);
    p->commit_step = job->parts ? p->step : 0;
    if (job->parts)
        send_part(sim, m, p);
    else
        send_commit(sim, m, p, p->step);
}

static void train_step(struct sim *sim, struct item *item);

void worker_plan_step(struct sim *sim, const struct machine *m, const struct proc *p)
{
    worker_plan(sim, m, p, STEP_MS, train_step)->d = p->formed;
}

/* ---- hand-overs */

static void go_on(struct sim *sim, struct machine *m, struct proc *p)
{
    p->handover_waits = false;
    worker_send_watch(sim, m, p);
    worker_plan_step(sim, m, p);
}

/* No word came, so the worker goes on. */
static void handover_is_late(struct sim *sim, struct item *item)
{
    struct proc *p;
    struct machine *m = worker_machine(sim, item, &p);

    if (p && p->handover_waits && p->handover_met == item->d && !p->leaving)
        go_on(sim, m, p);
}

/* Waits between two steps. Returns false if there is nothing to wait for. */
static bool meet_handover(struct sim *sim, struct machine *m, struct proc *p)
{
    if (!p->handover || p->handover == p->handover_met || p->stop)
        return false;
    p->handover_met = p->handover;
    p->handover_waits = true;
    worker_send_watch(sim, m, p);
    worker_plan(sim, m, p, 10000, handover_is_late)->d = p->handover_met;
    return true;
}

static void hear_handover(struct sim *sim, struct machine *m, struct proc *p, int64_t number)
{
    bool ends = p->handover_waits && number != p->handover;

    p->handover = number;
    if (ends)
        go_on(sim, m, p);
}

/* ---- lost connections */

static void give_up_group(struct sim *sim, struct item *item)
{
    struct proc *p;
    struct machine *m = worker_machine(sim, item, &p);

    if (!p || !p->broken || p->generation != item->d || p->leaving)
        return;
    if (p->waits_for_peers) /* it asks whether it still is to wait */
        worker_send_watch(sim, m, p);
    if (!sim->host.core || p->waits_for_peers) /* it waits for a coordinator that is away, too */
        worker_plan(sim, m, p, PEERS_MS, give_up_group)->d = p->generation;
    else
        plan_exit(sim, m, p, 0, EXIT_PEER_LOST);
}

/* A step fails, because the connections are lost. The worker says so and waits for word of what follows. */
void worker_lose_group(struct sim *sim, struct machine *m, struct proc *p)
{
    if (!p->stays) {
        plan_exit(sim, m, p, PEERS_MS, EXIT_PEER_LOST);
        return;
    }
    p->broken = true;
    worker_send_watch(sim, m, p);
    worker_plan(sim, m, p, PEERS_MS, give_up_group)->d = p->generation;
}

bool worker_serve_step(struct sim *sim, struct machine *m, struct proc *p)
{
    const struct sim_job *job = client_job(sim, p->job);

    if (p->step >= p->next_snapshot) {
        p->next_snapshot = p->step + job->every;
        write_snapshot(sim, m, p);
    }
    const bool fails = p->step >= job->target / 2 && job->doomed, ends = p->step >= job->target;
    if (fails)
        plan_exit(sim, m, p, sim_range(sim, 0, 50), ERROR_EXIT);
    else if (ends)
        plan_exit(sim, m, p, sim_range(sim, 0, 200), 0);
    return fails || ends;
}

static void train_step(struct sim *sim, struct item *item)
{
    struct proc *p;
    struct machine *m = worker_machine(sim, item, &p);
    const struct sim_job *job = p ? client_job(sim, p->job) : NULL;

    if (!p || p->leaving || !job || !p->ready || item->d != p->formed)
        return;
    /* Votes travel with the exchange. */
    if (p->round_steps == 0 && meet_handover(sim, m, p))
        return;
    if (p->stop == CORE_STOP_SNAPSHOT) {
        write_snapshot(sim, m, p);
        plan_exit(sim, m, p, sim_range(sim, 10, 2000), 0);
        return;
    }
    if (p->severed) {
        if (!sim_chance(sim, 0.1)) {
            worker_lose_group(sim, m, p);
            return;
        }
        /* It is in a long computation, and notices nothing until its next collective. */
        p->worked_until = sim->now + sim_range(sim, PEERS_MS, 4 * PEERS_MS);
        worker_plan(sim, m, p, p->worked_until - sim->now, train_step)->d = p->formed;
        return;
    }
    if (job->quorum && quorum_round_ends(sim, m, p))
        return;
    /* A collective of a step ends only if all peers take part; otherwise the worker waits. */
    if (job->quorum || group_is_whole(sim, p)) {
        if (stuck_begins(sim, p))
            return;
        p->step += 20;
        p->held = false;
        p->worked_until = sim->now;
        if (!job->quorum)
            group_check_step(sim, p);
        p->round_steps += job->quorum > 0;
        if (!job->quorum && worker_serve_step(sim, m, p))
            return;
        if (sim_chance(sim, 0.3)) {
            p->wrote_at = sim->now;
            agent_report(sim, m, p);
        }
    }
    worker_plan_step(sim, m, p);
}

static void check_answer(struct sim *sim, const struct reply *reply)
{
    for (size_t i = 0; i < sim->answer_count; i++) {
        if (sim->answers[i].job != reply->job || sim->answers[i].generation != reply->generation)
            continue;
        if (memcmp(sim->answers[i].answer, reply->answer, sizeof(reply->answer)) != 0)
            sim_fail(sim, "job %" PRId64 " generation %" PRId64 ": two members got different answers",
                     reply->job, reply->generation);
        return;
    }
    sim->answers = array_grow(sim->answers, sim->answer_count, &sim->answer_cap, sizeof(*sim->answers));
    sim->answers[sim->answer_count].job = reply->job;
    sim->answers[sim->answer_count].generation = reply->generation;
    memcpy(sim->answers[sim->answer_count++].answer, reply->answer, sizeof(reply->answer));
}

/* A generation goes on from the newest state that its members have in memory: no step is lost. Members that have the
 * answer already may have made further steps. */
static void check_live(struct sim *sim, const struct proc *me, const struct reply *reply)
{
    for (int i = 0; i < sim->machine_count; i++)
        for (size_t k = 0; k < sim->machines[i].proc_count; k++) {
            const struct proc *p = sim->machines[i].procs[k];
            if (p->job != me->job || p->generation != me->generation || p->ready || p->waits || !p->live)
                continue;
            if (p->step > (reply->live ? reply->step : 0))
                sim_fail(sim,
                         "job %" PRId64 " generation %" PRId64 ": goes on from step %" PRId64
                         ", and rank %d has step %" PRId64 " in memory",
                         me->job, me->generation, reply->step, p->rank, p->step);
        }
}

/* Whether the process gets a state: from a file, from scratch, or from a rank that has one. */
static bool state_comes(const struct sim *sim, const struct proc *me, const struct reply *reply)
{
    for (int i = 0; reply->live && i < sim->machine_count; i++)
        for (size_t k = 0; k < sim->machines[i].proc_count; k++) {
            const struct proc *p = sim->machines[i].procs[k];
            if (p->job == me->job && p->generation == me->generation && p->rank == reply->source_rank)
                return p->live;
        }
    return true; /* if the source has ended meanwhile, the generation makes no step */
}

static void generation_joined(struct sim *sim, struct machine *m, struct proc *p, const struct reply *reply)
{
    if (p->ready)
        return;
    if (reply->state == CORE_JOIN_PENDING) {
        send_join(sim, m, p);
    } else if (reply->state == CORE_JOIN_BOOTSTRAP) {
        if (p->rank != 0)
            sim_fail(sim, "rank %d is asked for the bootstrap id", p->rank);
        send_bootstrap(sim, m, p);
    } else {
        check_answer(sim, reply);
        check_live(sim, p, reply);
        if (p->other_data && reply->live && !p->live) {
            plan_exit(sim, m, p, sim_range(sim, 0, 30), EXIT_NO_RESTART);
            return;
        }
        if (!reply->live) /* else no file is read */
            parts_check_start(sim, p, reply);
        p->live = p->live || state_comes(sim, p, reply);
        p->ready = true;
        p->worked_until = p->wrote_at = sim->now;
        p->formed++;
        p->world_size = reply->world_size;
        p->step = reply->source_rank >= 0 ? reply->step : 0;
        quorum_joined(sim, p, reply->live);
        p->next_snapshot = p->step + 100;
        worker_plan_step(sim, m, p);
    }
}

/* Its generation is over. Calls about it are given up. */
static void leave_generation(const struct sim *sim, struct proc *p)
{
    const struct sim_job *job = client_job(sim, p->job);

    p->held |= p->handover_waits;
    p->live &= p->held || !job || !job->divided;
    p->attempt++;
    p->ready = false;
    p->waits = true;
    p->handover_waits = false;
    p->severed = p->broken = p->waits_for_peers = false;
    p->handover = p->handover_met = 0;
    p->arrived = p->hold_from = 0;
    p->holds = p->late = false;
    p->commit_step = p->failed_step = 0;
}

static void join_next_generation(struct sim *sim, struct machine *m, struct proc *p,
                                 const struct reply *reply)
{
    if (!p->stays)
        sim_fail(sim, "spawn %" PRId64 "/%" PRId64 " is to go on, and has not said that it can", p->job,
                 p->spawn);
    leave_generation(sim, p);
    p->generation = reply->generation;
    p->rank = reply->rank;
    p->waits = false;
    worker_plan(sim, m, p, sim_range(sim, 1, 500), join_generation);
}

static void watch_answered(struct sim *sim, struct machine *m, struct proc *p, const struct reply *reply)
{
    if (reply->member && reply->generation > p->generation)
        join_next_generation(sim, m, p, reply);
    else if (reply->wait && !reply->member && reply->late && !p->late) {
        const bool stands = p->arrived != 0;
        leave_generation(sim, p);
        quorum_is_late(sim, m, p, stands);
    } else if (reply->wait && !reply->member && !reply->late)
        leave_generation(sim, p);
    else if (reply->wait && !reply->member)
        ; /* it has heard so */
    else if (!reply->member)
        plan_exit(sim, m, p, sim_range(sim, 1, 300), p->handover_waits ? 0 : 1);
    else {
        p->waits_for_peers = reply->wait;
        if (reply->stop && !p->stop)
            p->stop = CORE_STOP_SNAPSHOT;
        if (reply->generation == p->generation)
            hear_handover(sim, m, p, reply->handover);
        if (reply->generation == p->generation)
            quorum_heard(sim, m, p, reply->hold);
    }
}

static void snapshot_committed(struct sim *sim, struct machine *m, struct proc *p, bool pending)
{
    if (!p->live)
        sim_fail(sim,
                 "job %" PRId64 " generation %" PRId64 ": rank %d has committed a snapshot, and has no state",
                 p->job, p->generation, p->rank);
    if (p->commit_step) {
        struct copy *c = pending ? NULL : copy_of(m, p, p->commit_step);
        if (c)
            c->committed = true;
        p->commit_step = pending ? p->commit_step : 0;
        return;
    }
    for (size_t i = 0; i < m->copy_count; i++)
        if (m->copies[i].job == p->job && m->copies[i].generation == p->generation &&
            m->copies[i].step <= p->step && !m->copies[i].parts)
            m->copies[i].committed = true;
}

static void watch_again(struct sim *sim, struct item *item)
{
    struct proc *p;
    struct machine *m = watching_machine(sim, item, &p);

    if (p && !p->leaving && item->d == p->watch_attempt)
        worker_send_watch(sim, m, p);
}

void worker_reply(struct sim *sim, const struct reply *reply)
{
    struct machine *m = &sim->machines[reply->to.machine];
    struct proc *p = machine_proc(m, reply->to.job, reply->to.spawn);
    bool watches = reply->kind == CORE_WATCH;

    if (!p || p->state != PROC_RUNNING || p->hung || (p->stuck && !(watches && p->stuck == 'R')) ||
        p->leaving || reply->to.attempt != (watches ? p->watch_attempt : p->attempt) ||
        (watches && reply->order < p->heard))
        return;
    if (watches)
        p->heard = reply->order; /* words of a stream do not overtake each other */
    if (reply->err.code == ERR_UNAVAILABLE && watches)
        worker_plan(sim, m, p, sim_range(sim, 100, 1000), watch_again)->d = p->watch_attempt;
    if (reply->err.code == ERR_UNAVAILABLE || reply->err.code == ERR_OK) {
        if (reply->err.code == ERR_OK && reply->kind == CORE_JOIN)
            generation_joined(sim, m, p, reply);
        else if (reply->err.code == ERR_OK && reply->kind == CORE_PUT_BOOTSTRAP)
            send_join(sim, m, p);
        else if (reply->err.code == ERR_OK && watches &&
                 !p->stuck) /* else the main thread does not look at it */
            watch_answered(sim, m, p, reply);
        else if (reply->err.code == ERR_OK && reply->kind == CORE_COMMIT_SNAPSHOT)
            snapshot_committed(sim, m, p, reply->pending);
        return;
    }
    /* Another rank could not write its part; if the generation is over, Watch will say so. */
    if (reply->kind == CORE_COMMIT_SNAPSHOT && reply->err.code == ERR_ABORTED && p->commit_step) {
        discard_copy(sim, m, p);
        return;
    }
    if (reply->err.code == ERR_ABORTED && p->stays) {
        if (reply->kind != CORE_COMMIT_SNAPSHOT && reply->kind != CORE_SNAPSHOT_FAILED)
            leave_generation(sim, p);
        return; /* Watch says what comes next */
    }
    if (p->stuck)
        return;
    if (reply->err.code != ERR_ABORTED && reply->err.code != ERR_UNAUTHENTICATED &&
        reply->err.code != ERR_FAILED_PRECONDITION)
        sim_fail(sim, "a worker got the unexpected error %d: %s", reply->err.code, reply->err.msg);
    plan_exit(sim, m, p, sim_range(sim, 1, 500), 1);
}

void worker_start(struct sim *sim, struct machine *m, struct proc *p)
{
    const struct sim_job *job = client_job(sim, p->job);

    p->stays = job && job->stays && (job->resized_often || sim_chance(sim, 0.9));
    p->worked_until = p->wrote_at = sim->now;
    if (p->native) {
        send_join(sim, m, p);
        worker_plan(sim, m, p, sim_range(sim, 0, 100), watch_generation);
    } else {
        int code = job && job->doomed && p->rank == 0 ? ERROR_EXIT : 0;
        plan_exit(sim, m, p, job ? job->duration + sim_range(sim, 0, 500) : 100, code);
    }
}

void worker_stop(struct sim *sim, struct machine *m, struct proc *p, enum core_stop stop)
{
    if (sim_chance(sim, 0.1))
        return; /* a worker that ignores the request */
    if (stop == CORE_STOP_TERM || !p->ready)
        plan_exit(sim, m, p, sim_range(sim, 5, 300), 128 + 15);
}
