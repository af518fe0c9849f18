/* A round of a job with sync.quorum does not wait for all of its members.
 *
 * The happy path: each member reports in Watch that it has arrived at an exchange, and begins the exchange. If all members
 * arrive, the exchange ends without the coordinator. Otherwise, when a quorum has arrived and the grace has passed, one
 * transaction ends the generation and forms the next one from the members that have arrived. They go on as survivors and
 * repeat the same exchange from the same arrays, without the late members.
 *
 * A late member keeps its process, slot and token, and goes on with its own steps. It is not a member of an open
 * generation. When it arrives at its exchange, it reports that it holds there, and the others hold before their next
 * exchange. When all of them have arrived, or a quorum and the grace has passed, the next generation forms with the late
 * member, and the exchange includes its change (trainer/round/live_round.h). Nothing is charged.
 *
 * Failure modes:
 * - A late member that dies, is idle for long, writes nothing for stall_timeout or is on a lost node is replaced by a hand-over
 *   (quorum_lacks_ranks).
 * - If the generation fails, late members that hold go on as survivors, and other late members are killed.
 * - A member whose report had not arrived yet may have made an exchange that the others repeat. The trainer finds this
 *   out from the generation in which each exchange was made.
 * - A coordinator that restarts knows the late members from the records (spawn_is_late), and hears in Watch who has
 *   arrived. It forgets the times of earlier arrivals. */
#include "daemon/coordinator/core/placement/quorum.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"
#include "base/text.h"
#include "daemon/coordinator/core/emit.h"
#include "daemon/coordinator/core/generation_end.h"
#include "daemon/coordinator/core/internal_event.h"

#define GRACE_LEAST_MS 1000
#define GRACE_MOST_MS 600000
#define GRACE_FIRST_MS 30000 /* until GAPS_NEEDED gaps are known */
#define GAPS_NEEDED 4
/* A late member is replaced if its node reports that it has been idle for this long. */
#define LATE_IDLE_MS 600000

static int64_t job_quorum(const struct job *job)
{
    return job->spec.kind == JOB_TRAIN ? job->spec.train.sync.quorum : 0;
}

/* ---- the grace */

static int compare_gaps(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

    return x < y ? -1 : x > y;
}

/* Sorts the gaps in place. */
static int64_t gaps_median(int64_t *gaps, size_t count)
{
    qsort(gaps, count, sizeof(*gaps), compare_gaps);
    return count % 2 ? gaps[count / 2] : (gaps[count / 2 - 1] + gaps[count / 2]) / 2;
}

int64_t quorum_grace_ms(const int64_t *gaps, size_t count)
{
    int64_t sorted[ARRAY_LEN(((struct job *)0)->round.gaps)];

    BUG_ON(count > ARRAY_LEN(sorted));
    if (count < GAPS_NEEDED)
        return GRACE_FIRST_MS;
    memcpy(sorted, gaps, count * sizeof(*gaps));
    const int64_t median = gaps_median(sorted, count);
    for (size_t i = 0; i < count; i++)
        sorted[i] = sorted[i] > median ? sorted[i] - median : median - sorted[i];
    const int64_t grace = median + 4 * gaps_median(sorted, count);
    return grace < GRACE_LEAST_MS ? GRACE_LEAST_MS : grace > GRACE_MOST_MS ? GRACE_MOST_MS : grace;
}

static int64_t grace_of(const struct job *job)
{
    const int64_t kept = ARRAY_LEN(job->round.gaps), count = job->round.gap_count;

    if (job->spec.train.sync.grace_ms)
        return job->spec.train.sync.grace_ms;
    return quorum_grace_ms(job->round.gaps, (size_t)(count < kept ? count : kept));
}

/* ---- who has come */

/* A member that is stopped or stuck in the kernel during the exchange blocks the others, so it does not count as arrived. */
bool quorum_has_come(const struct job *job, const struct spawn *s)
{
    return job->round.exchange && s->arrived == job->round.exchange && !s->proc_state;
}

bool quorum_returns(const struct spawn *s)
{
    return spawn_is_late(s) && s->holds && s->stays && spawn_reachable(s);
}

/* A generation that was formed at the end of a round makes that exchange first. Otherwise members that come and go could delay
 * it for ever. */
int64_t quorum_hold_from(const struct job *job)
{
    for (size_t i = 0; job_quorum(job) && i < job->spawn_count; i++)
        if (quorum_returns(job->spawns[i]))
            return job->round.formed_at + 1;
    return 0;
}

static bool has_late(const struct job *job)
{
    for (size_t i = 0; i < job->spawn_count; i++)
        if (spawn_is_late(job->spawns[i]))
            return true;
    return false;
}

bool quorum_lacks_ranks(const struct job *job)
{
    const struct generation *g = job_current(job);
    const int64_t each = job->spec.procs_per_node;

    if (!job_quorum(job) || g->r.state != GENERATION_RUNNING || has_late(job))
        return false;
    return g->r.world_size < job->spec.nodes_min * each || g->r.world_size % each != 0;
}

static struct quorum_attendance count_attendance(const struct job *job)
{
    const struct generation *g = job_current(job);
    struct quorum_attendance a = {.able = true};

    for (int i = 0; i < g->r.world_size; i++) {
        const struct spawn *s = g->ranks[i].spawn;
        a.able &= s->stays && !s->r.revoked && (!quorum_has_come(job, s) || spawn_reachable(s));
        a.come += quorum_has_come(job, s);
        a.hold += quorum_has_come(job, s) && s->holds;
    }
    for (size_t i = 0; job->round.exchange > job->round.formed_at && i < job->spawn_count; i++)
        a.return_ += quorum_returns(job->spawns[i]);
    return a;
}

/* If all members have arrived, they make the exchange without the coordinator, unless one holds for a returning member. */
bool quorum_round_closes(struct core *core, struct job *job, struct quorum_attendance *a)
{
    struct generation *g = job_current(job);

    job->round.close_at = 0;
    if (!job_quorum(job) || job->r.state != JOB_RUNNING || g->r.state != GENERATION_RUNNING)
        return false;
    *a = count_attendance(job);
    const bool all = a->come == g->r.world_size, met = a->come + a->return_ >= job_quorum(job);
    if (!job->round.met_at && met)
        job->round.met_at = core->now.boot_ms;
    if (!a->come || !a->able || (all && !(a->return_ && a->hold)) || (!all && !met))
        return false;
    if (all || core->now.boot_ms >= job->round.met_at + grace_of(job))
        return true;
    job->round.close_at = job->round.met_at + grace_of(job);
    core_wake(core, job->round.close_at);
    return false;
}

/* The next placement pass closes the round (round_close.c). */
static void review_round(struct core *core, struct job *job)
{
    struct quorum_attendance a;

    if (quorum_round_closes(core, job, &a))
        core_capacity_changed(core);
}

/* Records how long after the quorum the member arrived. */
static void keep_gap(const struct core *core, struct job *job)
{
    const size_t at = (size_t)(job->round.gap_count++ % (int64_t)ARRAY_LEN(job->round.gaps));

    job->round.gaps[at] = core->now.boot_ms - job->round.met_at;
}

void quorum_arrived(struct core *core, struct spawn *s, int64_t exchange, bool holds)
{
    struct job *job = s->job;
    const bool came = exchange && exchange != s->arrived, stops = holds && !s->holds;

    s->arrived = exchange;
    s->holds = holds;
    if (!job_quorum(job))
        return;
    if (came && spawn_is_member(s) && exchange > job->round.exchange) {
        job->round.exchange = exchange;
        job->round.met_at = 0;
    } else if (came && spawn_is_member(s) && quorum_has_come(job, s) && job->round.met_at) {
        keep_gap(core, job);
    }
    review_round(core, job);
    if (stops && quorum_returns(s))
        raise_handover_asked(core, job); /* answers the members' Watches, which tell them to hold */
}

void quorum_looked(struct core *core, struct job *job)
{
    review_round(core, job);
}

/* ---- late members that are given up */

/* Until when the late member may come back; INT64_MAX: for ever, as far as its node says now. */
static int64_t awaited_until(const struct spawn *s)
{
    const int64_t limit = s->job->spec.stall_timeout_ms;
    int64_t at = INT64_MAX;

    if (s->holds)
        return at;
    if (s->idle_since)
        at = s->idle_since + LATE_IDLE_MS;
    /* It may compute for ever. Members do not wait for it, so nothing else would end it. */
    if (limit && s->silent_since && s->silent_since + limit < at)
        at = s->silent_since + limit;
    return at;
}

void quorum_tick(struct core *core, struct job *job)
{
    for (size_t i = 0; job_quorum(job) && i < job->spawn_count; i++) {
        struct spawn *s = job->spawns[i];
        if (!spawn_is_late(s) || (spawn_reachable(s) && core->now.boot_ms < awaited_until(s)))
            continue;
        emit_event(core, job, "late_rank_ended",
                   "rank %d (%s) was late and does not come back: its change is dropped", s->rank->r.rank,
                   s->r.node);
        generation_lose_survivor(core, s, "it was late and did not come back");
    }
    if (job->round.close_at && core->now.boot_ms >= job->round.close_at)
        review_round(core, job);
}

int64_t quorum_deadline(const struct job *job)
{
    int64_t at = job->round.close_at ? job->round.close_at : INT64_MAX;

    for (size_t i = 0; job_quorum(job) && i < job->spawn_count; i++) {
        const struct spawn *s = job->spawns[i];
        if (spawn_is_late(s) && awaited_until(s) < at)
            at = awaited_until(s);
    }
    return at;
}
