/* Workers. A command runs for its time. A trainer joins, trains in step with its peers, writes and commits
 * snapshots, and answers a stop with a last snapshot. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "tests/sim/sim.h"

#define STEP_MS 700
#define RETRY_MS 6000

static struct machine *machine_of(struct sim *sim, const struct item *item, struct proc **p)
{
    struct machine *m = &sim->machines[item->a];

    *p = machine_proc(m, item->b, item->c);
    if (*p && ((*p)->state != PROC_RUNNING || (*p)->hung))
        *p = NULL;
    return m;
}

static struct item *plan_worker(struct sim *sim, const struct machine *m, const struct proc *p, int64_t after,
                                item_fn run)
{
    struct item *item = sim_plan(sim, sim->now + after, run);

    item->a = m->index;
    item->b = p->job;
    item->c = p->spawn;
    item->d = p->attempt;
    return item;
}

static void leave_job(struct sim *sim, struct item *item)
{
    struct proc *p;
    struct machine *m = machine_of(sim, item, &p);

    if (p)
        proc_exit(sim, m, p, item->d > 128 ? 0 : (int)item->d, item->d > 128 ? (int)item->d - 128 : 0);
}

/* code: 128 + N for signal N, as in a shell. */
static void plan_exit(struct sim *sim, const struct machine *m, struct proc *p, int64_t after, int code)
{
    p->leaving = true;
    plan_worker(sim, m, p, after, leave_job)->d = code;
}

static struct request request_of(const struct machine *m, struct proc *p, enum core_event_kind kind)
{
    struct request r = {
        .kind = kind,
        .from = {m->index, p->job, p->spawn, kind == CORE_WATCH ? ++p->watch_attempt : ++p->attempt},
        .generation = p->generation,
        .rank = p->rank,
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
static size_t offers_of(struct sim *sim, const struct machine *m, const struct proc *p,
                        struct core_offer *out, char (*digests)[64], size_t most)
{
    size_t count = 0;

    for (size_t i = m->copy_count; is_mounted(sim, m) && i-- > 0 && count < most;) {
        const struct copy *c = &m->copies[i];
        const struct job_record *job = durable_job(&sim->durable, p->job);
        if (c->job != p->job && !(job && job->continues == c->job))
            continue;
        snprintf(digests[count], 64, "d%" PRId64 "-%" PRId64 "-%" PRId64, c->job, c->generation, c->step);
        out[count] = (struct core_offer){
            .job = c->job,
            .generation = c->generation,
            .step = c->step,
            .digest = digests[count],
            .path = "/out",
            .committed = c->committed,
        };
        count++;
    }
    return count;
}

static void join_generation(struct sim *sim, struct item *item);

static void send_join(struct sim *sim, struct machine *m, struct proc *p)
{
    static char digests[8][64]; /* static: a process simulates one cluster at a time */
    struct core_offer offers[8];
    struct request r = request_of(m, p, CORE_JOIN);

    r.size = (size_t)snprintf((char *)r.bytes, sizeof(r.bytes), "%s:%" PRId64, m->name, p->spawn);
    r.offers = offers;
    r.offer_count = offers_of(sim, m, p, offers, digests, 8);
    host_request(sim, &r);
    plan_worker(sim, m, p, sim_range(sim, RETRY_MS / 2, 4 * RETRY_MS), join_generation);
}

/* Calls Join again: no reply came, or the reply said to call again. */
static void join_generation(struct sim *sim, struct item *item)
{
    struct proc *p;
    struct machine *m = machine_of(sim, item, &p);

    if (p && p->attempt == item->d && !p->ready && !p->leaving)
        send_join(sim, m, p);
}

static void send_bootstrap(struct sim *sim, struct machine *m, struct proc *p)
{
    struct request r = request_of(m, p, CORE_PUT_BOOTSTRAP);

    r.size = sizeof(r.bytes);
    digest_sha256(r.bytes, p->token, sizeof(p->token)); /* the same id at each retry */
    host_request(sim, &r);
    plan_worker(sim, m, p, sim_range(sim, RETRY_MS / 2, RETRY_MS), join_generation);
}

static void watch_generation(struct sim *sim, struct item *item)
{
    struct proc *p;
    struct machine *m = machine_of(sim, item, &p);

    if (!p || p->leaving)
        return;
    struct request r = request_of(m, p, CORE_WATCH);
    host_request(sim, &r);
    plan_worker(sim, m, p, sim_range(sim, 5000, 20000), watch_generation);
}

static bool peers_alive(const struct sim *sim, const struct proc *me)
{
    int here = 0;

    for (int i = 0; i < sim->machine_count; i++)
        for (size_t k = 0; k < sim->machines[i].proc_count; k++) {
            const struct proc *p = sim->machines[i].procs[k];
            if (p->job != me->job || p->generation != me->generation)
                continue;
            here +=
                p->state == PROC_RUNNING || (p->state == PROC_EXITED && p->ready && !p->code && !p->signal);
        }
    /* Exit records of ranks that succeeded may have been dropped already, so look into the database. */
    for (size_t i = 0; i < sim->durable.r.rank_count && here < me->world_size; i++) {
        const struct rank_record *rank = &sim->durable.r.ranks[i];
        if (rank->job != me->job || rank->generation != me->generation)
            continue;
        const struct spawn_record *s = durable_spawn(&sim->durable, rank->job, rank->spawn);
        here += s && s->exit_known && !s->code && !s->signal;
    }
    return here >= me->world_size;
}

static void write_copy(struct machine *m, const struct proc *p)
{
    m->copies = array_grow(m->copies, m->copy_count, &m->copy_cap, sizeof(*m->copies));
    m->copies[m->copy_count++] = (struct copy){p->job, p->generation, p->step, false};
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

static void write_snapshot(struct sim *sim, struct machine *m, struct proc *p)
{
    const struct sim_job *job = client_job(sim, p->job);

    if (p->local_rank != 0 || !job || job->no_snapshots)
        return;
    if (!is_mounted(sim, m) || (sim->faults && sim_chance(sim, 0.05))) {
        struct request r = request_of(m, p, CORE_SNAPSHOT_FAILED);
        r.step = p->step;
        host_request(sim, &r);
        return;
    }
    write_copy(m, p);
    send_commit(sim, m, p, p->step);
}

static void train_step(struct sim *sim, struct item *item)
{
    struct proc *p;
    struct machine *m = machine_of(sim, item, &p);
    const struct sim_job *job = p ? client_job(sim, p->job) : NULL;

    if (!p || p->leaving || !job)
        return;
    if (p->stop == CORE_STOP_SNAPSHOT) {
        write_snapshot(sim, m, p);
        plan_exit(sim, m, p, sim_range(sim, 10, 2000), 0);
        return;
    }
    /* A collective of a step ends only if all peers take part; otherwise the worker waits. */
    if (peers_alive(sim, p)) {
        p->step += 20;
        if (p->step >= p->next_snapshot) {
            p->next_snapshot = p->step + job->every;
            write_snapshot(sim, m, p);
        }
        if (p->step >= job->target / 2 && job->doomed) {
            plan_exit(sim, m, p, sim_range(sim, 0, 50), 3);
            return;
        }
        if (p->step >= job->target) {
            plan_exit(sim, m, p, sim_range(sim, 0, 200), 0);
            return;
        }
        if (sim_chance(sim, 0.3))
            agent_report(sim, m, p);
    }
    plan_worker(sim, m, p, STEP_MS, train_step);
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
        p->ready = true;
        p->step = reply->source_rank >= 0 ? reply->step : 0;
        p->next_snapshot = p->step + 100;
        plan_worker(sim, m, p, STEP_MS, train_step);
    }
}

static void watch_answered(struct sim *sim, struct machine *m, struct proc *p, const struct reply *reply)
{
    if (!reply->member)
        plan_exit(sim, m, p, sim_range(sim, 1, 300), 1);
    else if (reply->stop && !p->stop)
        p->stop = CORE_STOP_SNAPSHOT;
}

static void snapshot_committed(struct machine *m, const struct proc *p)
{
    for (size_t i = 0; i < m->copy_count; i++)
        if (m->copies[i].job == p->job && m->copies[i].generation == p->generation &&
            m->copies[i].step <= p->step)
            m->copies[i].committed = true;
}

void worker_reply(struct sim *sim, const struct reply *reply)
{
    struct machine *m = &sim->machines[reply->to.machine];
    struct proc *p = machine_proc(m, reply->to.job, reply->to.spawn);
    bool watches = reply->kind == CORE_WATCH;

    if (!p || p->state != PROC_RUNNING || p->hung || p->leaving ||
        reply->to.attempt != (watches ? p->watch_attempt : p->attempt))
        return;
    if (reply->err.code == ERR_UNAVAILABLE || reply->err.code == ERR_OK) {
        if (reply->err.code == ERR_OK && reply->kind == CORE_JOIN)
            generation_joined(sim, m, p, reply);
        else if (reply->err.code == ERR_OK && reply->kind == CORE_PUT_BOOTSTRAP)
            send_join(sim, m, p);
        else if (reply->err.code == ERR_OK && watches)
            watch_answered(sim, m, p, reply);
        else if (reply->err.code == ERR_OK && reply->kind == CORE_COMMIT_SNAPSHOT)
            snapshot_committed(m, p);
        return;
    }
    if (reply->err.code != ERR_ABORTED && reply->err.code != ERR_UNAUTHENTICATED &&
        reply->err.code != ERR_FAILED_PRECONDITION)
        sim_fail(sim, "a worker got the unexpected error %d: %s", reply->err.code, reply->err.msg);
    plan_exit(sim, m, p, sim_range(sim, 1, 500), 1);
}

void worker_start(struct sim *sim, struct machine *m, struct proc *p)
{
    const struct sim_job *job = client_job(sim, p->job);

    if (p->native) {
        send_join(sim, m, p);
        plan_worker(sim, m, p, sim_range(sim, 0, 100), watch_generation);
    } else {
        int code = job && job->doomed ? (p->rank == 0 ? 3 : 0) : 0;
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
