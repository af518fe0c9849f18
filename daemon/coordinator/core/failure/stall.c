/* Finds workers that live but make no progress. A node says which of its workers are quiet: which ones use no CPU
 * time, and which ones neither print nor report. A job stands still if
 *   - a worker is stopped or stuck in the kernel, and has used no CPU time for the whole time; or
 *   - no rank has printed or reported anything for the whole time, and at least one has used no CPU time
 * either. Which rank the others wait for depends on how they wait (find_awaited): the ranks of a train job sleep in
 * their collectives, while those of a command may spin there. With `stall_timeout` a standstill ends
 * the generation, and counts as a restart unless other ranks go on. Without `stall_timeout` it is only shown, and hooks
 * are told of it after TOLD_AFTER_MS.
 *
 * A survivor (survivors.c) that computes for ever does not stand still by itself, but the generation that is to form with
 * it does. So with `stall_timeout` a survivor that has not joined is replaced, too, when it has been silent for that long
 * since the generation was formed. The same holds for one that is stopped or stuck in the kernel. */
#include "daemon/coordinator/core/failure/stall.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"
#include "base/text.h"
#include "daemon/coordinator/core/emit.h"
#include "daemon/coordinator/core/generation_end.h"
#include "daemon/coordinator/core/model.h"
#include "daemon/coordinator/core/nodes/operator.h"
#include "daemon/coordinator/core/notices.h"
#include "daemon/coordinator/core/placement/quorum.h"
#include "daemon/coordinator/core/snapshots/unsaved.h"

#define SAID_AFTER_MS 60000  /* status shows a standstill after this time, if stall_timeout is not shorter */
#define TOLD_AFTER_MS 600000 /* hooks are told of it after this time, if there is no stall_timeout */
#define WAITED_MS 5000 /* a rank that was idle in the last 5 s counts as one that waited in the collective */
#define BUSY_RATIO 8   /* a rank that uses less than this part (1 / 8) of the busiest one's CPU time waits */
#define COMPUTES_CPU 250      /* a rank that waits uses less, even on a slow machine; permille of a core */
#define RELEASE_EVERY_MS 5000 /* time between two checks of workers that SIGKILL did not end */

static bool worker_is_heard(const struct spawn *s)
{
    return s && !s->r.dead && s->node && s->node->session;
}

/* Whether what its node said of it last still holds. If no message of the node has come for a while, the node may be
 * cut off. Or this coordinator may not receive, and newer messages are still unread. */
static bool worker_is_seen(const struct core *core, const struct spawn *s)
{
    return worker_is_heard(s) && core->now.boot_ms - s->node->heard_ms < core->config.node_timeout_ms * 3 / 4;
}

void stall_forget(struct node *node)
{
    for (size_t i = 0; i < node->spawn_count; i++) {
        struct spawn *s = node->spawns[i];

        s->idle_since = s->silent_since = 0;
        s->proc_state = 0;
    }
}

void stall_carry_over(struct spawn *to, const struct spawn *from)
{
    to->idle_since = from->idle_since;
    to->silent_since = from->silent_since;
    to->idle_until = from->idle_until;
    to->proc_state = from->proc_state;
    to->own_wait = from->own_wait;
    to->cpu_permille = from->cpu_permille;
    memcpy(to->waits_in, from->waits_in, sizeof(to->waits_in));
    memcpy(to->waits_for, from->waits_for, sizeof(to->waits_for));
    memcpy(to->stack, from->stack, sizeof(to->stack));
}

static int64_t boot_since(const struct core *core, int64_t age)
{
    return age < 0 ? 0 : core->now.boot_ms - age > 0 ? core->now.boot_ms - age : 1;
}

void stall_apply(struct core *core, struct node *node, const struct core_event *event)
{
    stall_forget(node);
    for (size_t i = 0; i < event->activity.count; i++) {
        const struct core_activity *a = &event->activity.spawns[i];
        struct job *job = core_find_job(core, a->job);
        struct spawn *s = job ? job_find_spawn(job, a->spawn) : NULL;

        if (!s || s->node != node || s->r.dead)
            continue;
        s->idle_since = boot_since(core, a->idle_ms);
        s->silent_since = boot_since(core, a->silent_ms);
        s->proc_state = a->state;
        s->own_wait = a->own_wait;
        s->cpu_permille = a->cpu_permille;
        snprintf(s->waits_in, sizeof(s->waits_in), "%s", a->waits_in ? a->waits_in : "");
        snprintf(s->waits_for, sizeof(s->waits_for), "%s", a->waits_for ? a->waits_for : "");
        snprintf(s->stack, sizeof(s->stack), "%s", a->stack ? a->stack : "");
        if (s->idle_since)
            s->idle_until = core->now.boot_ms;
        job->changed = true;
        core_wake(core, stall_deadline(core, job));
        quorum_looked(core, job);
    }
}

/* Since when no rank has printed or reported; 0: some rank does, or may do so. */
static int64_t all_silent_since(const struct core *core, const struct generation *g)
{
    int64_t last = 0;

    for (int i = 0; i < g->r.world_size; i++) {
        const struct spawn *s = g->ranks[i].spawn;

        if (!s || s->r.dead)
            continue; /* it has ended: other modules deal with that */
        /* A rank whose node is away may be the one that the others wait for. The node comes back, or is lost soon. */
        if (!worker_is_seen(core, s) || !s->silent_since)
            return 0;
        if (s->silent_since > last)
            last = s->silent_since;
    }
    return last;
}

/* How the living ranks of a generation spend their time. */
struct standstill {
    const struct spawn *busy, *idle, *own; /* the last one found of each kind */
    int living, busy_count, idle_count, own_count, own_wait;
};

static void standstill_add(struct standstill *found, const struct spawn *s, bool waits)
{
    found->living++;
    if (!waits) {
        found->busy = s;
        found->busy_count++;
        return;
    }
    found->idle = s;
    found->idle_count++;
    if (!s->own_wait || s->own_wait < found->own_wait)
        return;
    found->own_count = s->own_wait > found->own_wait ? 1 : found->own_count + 1;
    found->own_wait = s->own_wait;
    found->own = s;
}

/* The living rank for which the others wait; NULL: not known. In this order: a rank that waits in a call that is not
 * a collective; the only one that computes, while the others sleep in the collective; the only one that sleeps, while
 * the others spin in it. waited: the ended rank slept before its end, and did not spin. */
static const struct spawn *standstill_choose(const struct standstill *found, bool waited)
{
    if (found->own_count)
        return found->own_count == 1 ? found->own : NULL;
    if (found->busy_count == 1)
        return waited ? found->busy : NULL;
    return found->idle_count == 1 ? found->idle : NULL;
}

/* The CPU time of a rank that is not idle, in permille of a core. Agents of older versions do not report it (0).
 * Their ranks count as computing. */
static int rank_cpu(const struct spawn *s)
{
    return s->cpu_permille ? s->cpu_permille : COMPUTES_CPU;
}

/* A rank that waits looks now and then whether its peers are alive. On a slow machine that may take more CPU time than an idle rank may
 * use. So a rank also counts as waiting if it uses much less than the busiest one. */
static bool rank_uses_little(const struct spawn *s, const struct spawn *busiest)
{
    return s->cpu_permille && busiest->cpu_permille && s->cpu_permille * BUSY_RATIO < busiest->cpu_permille;
}

/* Of the silent ranks the one that uses most CPU time; NULL: all are idle. */
static const struct spawn *find_busiest(const struct core *core, const struct generation *g)
{
    const struct spawn *most = NULL;

    for (int i = 0; i < g->r.world_size; i++) {
        const struct spawn *s = g->ranks[i].spawn;
        if (worker_is_seen(core, s) && !s->idle_since && (!most || rank_cpu(s) > rank_cpu(most)))
            most = s;
    }
    return most;
}

/* The rank that the others wait for, if no rank is stopped or stuck in the kernel, all are silent, and at least one sleeps; NULL: none
 * stands out. */
static const struct spawn *find_awaited(const struct core *core, const struct generation *g)
{
    const bool train = g->job->spec.kind == JOB_TRAIN;
    const struct spawn *busiest = find_busiest(core, g);
    struct standstill found = {0};
    bool gpus = false;

    for (int i = 0; i < g->r.world_size; i++) {
        const struct spawn *s = g->ranks[i].spawn;
        if (!worker_is_seen(core, s))
            continue;
        standstill_add(&found, s, s->idle_since || rank_uses_little(s, busiest));
        gpus |= strv_len(s->r.gpu_uuids) > 0;
    }
    /* A rank of a trainer sleeps in its own collectives, so the ranks that sleep wait for the rank that computes. If
     * one of the sleepers were ended instead, the next generation would wait for this rank again. But if no rank
     * computes much, the ranks that are not idle may wait for a rank that sleeps in a call that is not a
     * collective. */
    if (train && !gpus && busiest && (rank_cpu(busiest) >= COMPUTES_CPU || found.own_count != 1))
        return busiest;
    /* On GPUs a trainer sleeps between two looks at the device, whatever it waits for. */
    if (train && gpus)
        found.own_count = 0;
    /* The ranks of a command, and NCCL's threads, may spin in a collective. So a busy rank is named only if several
     * others sleep. */
    return standstill_choose(&found, found.idle_count > 1);
}

/* Returns the worker because of which the job stands still, and in `from` since when it does; NULL: none. */
static const struct spawn *find_culprit(const struct core *core, const struct generation *g, int64_t *from)
{
    const struct spawn *worst = NULL;
    int64_t silent = all_silent_since(core, g);

    *from = INT64_MAX;
    for (int i = 0; i < g->r.world_size; i++) {
        const struct spawn *s = g->ranks[i].spawn;
        int64_t at;

        if (!worker_is_seen(core, s) || !s->idle_since || !(s->proc_state || silent))
            continue;
        /* a rank that waits in its program stands still only from when all ranks are silent */
        at = s->idle_since;
        if (!s->proc_state && at < silent)
            at = silent;
        /* A worker that goes on from an earlier generation may have been quiet since then, while it waited. */
        if (s->r.first_generation < g->r.number && at < g->began_ms)
            at = g->began_ms;
        /* of two, a stopped one tells more than a waiting one, else the first to fall silent */
        if (worst && (!s->proc_state != !worst->proc_state ? !s->proc_state : at >= *from))
            continue;
        worst = s;
        *from = at;
    }
    /* A rank that is stopped or stuck in the kernel is a cause by itself. Another one that sleeps shows only that the job stands
     * still: the cause may be the rank for which it waits. */
    const struct spawn *awaited = worst && !worst->proc_state ? find_awaited(core, g) : NULL;
    return awaited ? awaited : worst;
}

/* Returns the survivor that keeps its new generation from forming for the longest time, and in `from` since when;
 * NULL: none. join_timeout bounds how long replacements may take to start, and also ends survivors that sleep,
 * because one of their calls may have been lost. */
static const struct spawn *find_absentee(const struct core *core, const struct generation *g, int64_t *from)
{
    const struct spawn *worst = NULL;

    *from = INT64_MAX;
    for (int i = 0; i < g->r.world_size; i++) {
        const struct spawn *s = g->ranks[i].spawn;

        if (!worker_is_seen(core, s) || s->joined_as == s->rank || s->r.first_generation >= g->r.number ||
            (s->idle_since && !s->proc_state))
            continue;
        /* As long as it writes something it makes progress, in an evaluation for example. */
        int64_t at = s->proc_state ? s->idle_since : s->silent_since;
        if (!at)
            continue;
        /* Before the generation was formed, it may have waited for others, as all ranks of its last generation did. */
        if (at < g->born_ms)
            at = g->born_ms;
        if (at >= *from)
            continue;
        worst = s;
        *from = at;
    }
    return worst;
}

/* Returns the worker because of which the job makes no progress, and in `from` since when; NULL: none. */
static const struct spawn *find_stalled(const struct core *core, const struct job *job, int64_t *from)
{
    const struct generation *g = job_current(job);

    *from = INT64_MAX;
    if (unsaved_waits(core, job))
        return NULL;
    if (g && job->r.state == JOB_RUNNING && g->r.state == GENERATION_RUNNING)
        return find_culprit(core, g, from);
    if (g && job->r.state == JOB_STARTING && g->r.state == GENERATION_FORMING &&
        job->spec.kind == JOB_TRAIN && job->spec.stall_timeout_ms)
        return find_absentee(core, g, from);
    return NULL;
}

/* ", in read of /data/part-3; kernel stack: pipe_read, vfs_read" */
static void describe_place(const struct spawn *s, struct buf *out)
{
    if (!s->idle_since)
        return; /* it computes: the call in which it last slept says nothing */
    if (*s->waits_in)
        buf_printf(out, ", in %s", s->waits_in);
    if (*s->waits_in && *s->waits_for)
        buf_printf(out, " of %s%.100s",
                   !strcmp(s->waits_for, "socket") || !strcmp(s->waits_for, "pipe") ? "a " : "",
                   s->waits_for);
    if (*s->stack)
        buf_printf(out, "; kernel stack: %s", s->stack);
}

static void describe_stall(const struct spawn *s, int64_t ms, struct buf *out)
{
    const struct generation *g = s->rank->generation;
    const char *how = s->proc_state == 'T'   ? "is stopped by a signal"
                      : s->proc_state == 'D' ? "is stuck in the kernel"
                      : s->idle_since        ? "makes no progress: no output, no report, no CPU time"
                                             : "computes without output or report";

    buf_printf(out, "rank %d on %s (pid %" PRId64 ") %s for %s", s->rank->r.rank, s->r.node, s->r.pid, how,
               text_duration(ms).text);
    if (g->r.state == GENERATION_FORMING)
        buf_printf(out, ", and generation %" PRId64 " waits for it", g->r.number);
    else if (!s->idle_since)
        buf_puts(out, " while other ranks wait");
    describe_place(s, out);
}

void stall_text(const struct core *core, const struct job *job, int64_t now_ms, char *out, size_t size)
{
    int64_t from, limit = job->spec.stall_timeout_ms / 2;
    const struct spawn *s = find_stalled(core, job, &from);
    CLEANUP(buf_release) struct buf text = {0};

    if (!limit || limit > SAID_AFTER_MS)
        limit = SAID_AFTER_MS;
    if (s && now_ms - from >= limit)
        describe_stall(s, now_ms - from, &text);
    snprintf(out, size, "%s", text.len ? text.data : "");
}

int64_t stall_deadline(const struct core *core, const struct job *job)
{
    int64_t from, limit = job->spec.stall_timeout_ms;

    if ((!limit && (job->stall_told || !notice_wanted(core, job, NOTICE_STALLED))) ||
        !find_stalled(core, job, &from))
        return INT64_MAX;
    return from + (limit ? limit : TOLD_AFTER_MS);
}

void stall_tick(struct core *core, struct job *job)
{
    CLEANUP(buf_release) struct buf text = {0};
    int64_t from;
    struct spawn *s = (struct spawn *)find_stalled(core, job, &from);

    if (!s)
        job->stall_told = false;
    if (core->now.boot_ms < stall_deadline(core, job))
        return;
    describe_stall(s, core->now.boot_ms - from, &text);
    notice_job(core, job, NOTICE_STALLED, "%s", text.data);
    if (!job->spec.stall_timeout_ms) {
        job->stall_told = true;
        return;
    }
    s->stalled = true;
    text_set(&s->r.message, "%s", text.data);
    emit_spawn(core, s, CHANGE_SPAWN_PUT);
    generation_fail(
        core, job_current(job),
        &(struct failure_cause){.spawn = s, .charged = true, .exit_code = 125, .text = text.data});
}

/* ---- whom a collective that timed out has waited for */

/* Ranks that a collective waits for are told from those that wait in it. Ranks whose time is over, too, are busy with their
 * own end by now: they count as waiting if they did a moment ago. */
static bool rank_was_waiting(const struct core *core, const struct spawn *s)
{
    return s->idle_since || (s->idle_until && core->now.boot_ms - s->idle_until < WAITED_MS);
}

static const struct spawn *find_halted(const struct generation *g)
{
    for (int i = 0; i < g->r.world_size; i++)
        if (worker_is_heard(g->ranks[i].spawn) && g->ranks[i].spawn->proc_state)
            return g->ranks[i].spawn;
    return NULL;
}

void stall_name_rank(const struct core *core, const struct spawn *ended, const char *said, struct buf *text)
{
    const struct generation *g = ended->rank->generation;
    const struct spawn *s = find_halted(g);
    struct standstill found = {0};

    if (s == ended)
        return;
    for (int i = 0; i < g->r.world_size; i++)
        if (g->ranks[i].spawn != ended && worker_is_heard(g->ranks[i].spawn))
            standstill_add(&found, g->ranks[i].spawn, rank_was_waiting(core, g->ranks[i].spawn));
    if (!s && (strcasestr(said, "timed out") || strcasestr(said, "timeout")))
        s = standstill_choose(&found, rank_was_waiting(core, ended));
    if (!s)
        return;
    buf_printf(text, "meanwhile rank %d on %s (pid %" PRId64 ") ", s->rank->r.rank, s->r.node, s->r.pid);
    if (!s->idle_since) {
        buf_puts(text, "was computing");
        return;
    }
    if (s->proc_state)
        buf_printf(text, "was %s for ", s->proc_state == 'T' ? "stopped by a signal" : "stuck in the kernel");
    else
        buf_printf(text, "was asleep%s%s for ", *s->waits_in ? " in " : "", s->waits_in);
    buf_puts(text, text_duration(core->now.boot_ms - s->idle_since).text);
}

/* A worker that is stuck in the kernel after SIGKILL will execute no further instruction, so it counts as
 * dead. It still holds memory and devices, so its node is drained. */
static void give_up_worker(struct core *core, struct spawn *s)
{
    char note[256];

    snprintf(note, sizeof(note),
             "pid %" PRId64 " of job %" PRId64
             " (rank %d) is stuck in the kernel and cannot be killed: check its "
             "disks, or reboot, then run ddpctl undrain",
             s->r.pid, s->r.job, s->rank->r.rank);
    emit_event(core, s->job, "rank_stuck",
               "rank %d on %s is stuck in the kernel and cannot be killed; the node is drained",
               s->rank->r.rank, s->r.node);
    operator_withdraw(core, s->node, note, "a process there cannot be killed");
    s->r.lost = true;
    text_set(&s->r.message, "stuck in the kernel, cannot be killed");
    spawn_mark_dead(core, s);
}

void stall_release(struct core *core, struct generation *g)
{
    bool left = false;

    for (int i = 0; i < g->r.world_size; i++) {
        struct spawn *s = g->ranks[i].spawn;

        if (s->r.dead || !rank_is_held(&g->ranks[i]) || spawn_is_between(s))
            continue; /* a member that goes on in a newer generation was not killed with this one */
        if (worker_is_heard(s) && s->proc_state == 'D')
            give_up_worker(core, s);
        else
            left = true;
    }
    g->stop_at = left ? core->now.boot_ms + RELEASE_EVERY_MS : 0;
    core_wake(core, left ? g->stop_at : INT64_MAX);
}
