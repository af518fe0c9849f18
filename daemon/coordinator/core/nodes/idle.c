/* Keeps what nodes measure of their workers, and finds GPUs that are leased but idle. A GPU is idle while its utilisation
 * is below the job's `idle.gpu` (5 %) in each report of its node.
 *   - If a GPU of some rank was idle for ten minutes, status says so, and an event. Hooks are told once a generation.
 *   - If all GPUs of the job were idle for `idle.after`, that ends the job with `idle.then: stop`, as a cancel does: with a
 *     snapshot. One busy GPU is enough against it: the other ranks may wait for that one.
 * Only what is known counts. The time begins anew when the node's session ends, when the coordinator starts again, when
 * reports fail to come, and with each generation. */
#include "daemon/coordinator/core/nodes/idle.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"
#include "base/text.h"
#include "daemon/coordinator/core/emit.h"
#include "daemon/coordinator/core/generation_end.h"
#include "daemon/coordinator/core/notices.h"

#define SAID_AFTER_MS 600000 /* status shows idle GPUs after this time */
#define STALE_MS 30000       /* a report is due every 5 s: without one for so long nothing is known */
#define RANKS_NAMED 8        /* in a text */

void idle_forget(struct node *node)
{
    for (size_t i = 0; i < node->spawn_count; i++)
        node->spawns[i]->used.at = 0;
}

/* Since when a condition holds that holds now, or 0. */
static int64_t idle_since_next(int64_t since, bool holds, int64_t now)
{
    return !holds ? 0 : since ? since : now;
}

static void worker_take_usage(struct core *core, struct spawn *s, const struct usage *usage)
{
    const double threshold = s->job->spec.idle.gpu;
    int64_t now = core->now.boot_ms;
    struct {
        int64_t one_idle, all_idle;
    } was = {s->used.one_idle, s->used.all_idle};

    if (s->used.at && now - s->used.at >= STALE_MS)
        s->used.at = 0;
    if (!s->used.at)
        s->used.one_idle = s->used.all_idle = 0;
    s->used.at = now;
    s->used.usage = *usage;
    /* false for NaN: a driver that tells no utilisation proves nothing */
    s->used.one_idle = idle_since_next(s->used.one_idle, usage->gpus && usage->gpu_least < threshold, now);
    s->used.all_idle = idle_since_next(s->used.all_idle, usage->gpus && usage->gpu_most < threshold, now);
    if (s->used.one_idle)
        core_wake(core, idle_deadline(core, s->job));
    if ((was.one_idle && !s->used.one_idle && s->job->idle.said) ||
        (was.all_idle && !s->used.all_idle && s->job->idle.over))
        core_wake(core, now); /* that is over, which the next tick notes */
}

void idle_apply(struct core *core, struct node *node, const struct core_event *event)
{
    for (size_t i = 0; i < event->usage.count; i++) {
        const struct core_spawn_usage *u = &event->usage.spawns[i];
        struct job *job = core_find_job(core, u->job);
        struct spawn *s = job ? job_find_spawn(job, u->spawn) : NULL;

        if (s && s->node == node && !s->r.dead)
            worker_take_usage(core, s, &u->usage);
    }
}

static bool usage_is_fresh(const struct core *core, const struct spawn *s)
{
    return !s->r.dead && s->used.at && core->now.boot_ms - s->used.at < STALE_MS;
}

const struct usage *idle_usage(const struct core *core, const struct spawn *s)
{
    return usage_is_fresh(core, s) ? &s->used.usage : NULL;
}

/* The generation whose GPUs should be busy; NULL: there is none. */
static const struct generation *generation_on_gpus(const struct job *job)
{
    const struct generation *g = job_current(job);

    if (job->r.state != JOB_RUNNING || !g || g->r.state != GENERATION_RUNNING)
        return NULL;
    for (int i = 0; i < g->r.world_size; i++)
        if (g->ranks[i].spawn->r.gpu_uuids)
            return g;
    return NULL;
}

static int64_t idle_from(const struct core *core, const struct generation *g, const struct spawn *s,
                         int64_t since)
{
    if (!since || !usage_is_fresh(core, s))
        return 0;
    return since > g->began_ms ? since : g->began_ms;
}

int64_t idle_gpu_ms(const struct core *core, const struct spawn *s)
{
    const struct generation *g = generation_on_gpus(s->job);
    int64_t from = g && s->rank->generation == g ? idle_from(core, g, s, s->used.one_idle) : 0;

    return from ? core->now.boot_ms - from : 0;
}

/* Since when all GPUs of the job are idle; 0: one is busy, or not known. */
static int64_t job_idle_from(const struct core *core, const struct generation *g)
{
    int64_t last = 0;

    for (int i = 0; i < g->r.world_size; i++) {
        const struct spawn *s = g->ranks[i].spawn;
        int64_t from;

        if (s->r.dead || !s->r.gpu_uuids)
            continue;
        from = idle_from(core, g, s, s->used.all_idle);
        if (!from)
            return 0;
        last = from > last ? from : last;
    }
    return last;
}

/* The ranks that have had an idle GPU for at least SAID_AFTER_MS. */
struct idle_ranks {
    int count, of;
    const struct spawn *first;
    int64_t least_ms; /* the shortest of their times */
    char names[128];  /* "1, 4, 5" */
};

static void find_idle_ranks(const struct core *core, const struct generation *g, struct idle_ranks *out)
{
    CLEANUP(buf_release) struct buf names = {0};

    *out = (struct idle_ranks){.of = g->r.world_size};
    for (int i = 0; i < g->r.world_size; i++) {
        const struct spawn *s = g->ranks[i].spawn;
        int64_t from = idle_from(core, g, s, s->used.one_idle), ms = core->now.boot_ms - from;

        if (!from || ms < SAID_AFTER_MS)
            continue;
        if (!out->count++)
            out->first = s;
        if (!out->least_ms || ms < out->least_ms)
            out->least_ms = ms;
        if (out->count <= RANKS_NAMED)
            buf_printf(&names, "%s%d", names.len ? ", " : "", g->ranks[i].r.rank);
        else if (out->count == RANKS_NAMED + 1)
            buf_puts(&names, ", ...");
    }
    snprintf(out->names, sizeof(out->names), "%s", names.data ? names.data : "");
}

/* "the GPU of rank 3 on box2 is idle: below 5 % for 12m00s", "GPUs of 3 of 8 ranks are idle: ranks 1, 4, 5 ..." */
static char *describe_idle(const struct job *job, const struct idle_ranks *idle)
{
    const double percent = job->spec.idle.gpu * 100;
    const struct text time = text_duration(idle->least_ms);

    if (idle->count > 1)
        return xasprintf("GPUs of %d of %d ranks are idle, below %.3g %% for %s: ranks %s", idle->count,
                         idle->of, percent, time.text, idle->names);
    return xasprintf("%s of rank %d on %s is idle: below %.3g %% for %s",
                     strv_len(idle->first->r.gpu_uuids) > 1 ? "a GPU" : "the GPU", idle->first->rank->r.rank,
                     idle->first->r.node, percent, time.text);
}

void idle_notes(const struct core *core, const struct job *job, struct core_job_status *out)
{
    const struct generation *g = generation_on_gpus(job);
    struct idle_ranks idle;

    if (!g)
        return;
    find_idle_ranks(core, g, &idle);
    if (!idle.count)
        return;
    CLEANUP(free_text) char *text = describe_idle(job, &idle);
    out->notes = strv_append(out->notes, text);
}

int64_t idle_deadline(const struct core *core, const struct job *job)
{
    const struct generation *g = generation_on_gpus(job);
    int64_t from = g ? job_idle_from(core, g) : 0, at = INT64_MAX;

    if (!g)
        return INT64_MAX;
    if (from && job->spec.idle.after_ms && job->idle.over != g->r.number)
        at = from + job->spec.idle.after_ms;
    for (int i = 0; i < g->r.world_size && job->idle.said != g->r.number; i++) {
        const struct spawn *s = g->ranks[i].spawn;

        from = idle_from(core, g, s, s->used.one_idle);
        if (from && from + SAID_AFTER_MS < at)
            at = from + SAID_AFTER_MS;
    }
    return at;
}

static void idle_say(struct core *core, struct job *job, const struct generation *g)
{
    struct idle_ranks idle;

    find_idle_ranks(core, g, &idle);
    if (!idle.count == (job->idle.said != g->r.number))
        return;
    job->idle.said = idle.count ? g->r.number : 0;
    job->changed = true;
    if (idle.count) {
        CLEANUP(free_text) char *text = describe_idle(job, &idle);
        emit_event(core, job, "gpus_idle", "%s", text);
        /* GPUs may be idle again and again, for example in each evaluation. */
        if (job->idle.told != g->r.number)
            notice_job(core, job, NOTICE_GPUS_IDLE, "%s", text);
        job->idle.told = g->r.number;
    } else {
        emit_event(core, job, "gpus_busy", "no GPU of the job is idle any more");
    }
}

void idle_tick(struct core *core, struct job *job)
{
    const struct generation *g = generation_on_gpus(job);
    int64_t from;
    char why[128];

    if (!g)
        return;
    idle_say(core, job, g);
    from = job_idle_from(core, g);
    if (!from)
        job->idle.over = 0;
    if (!from || !job->spec.idle.after_ms || job->idle.over == g->r.number ||
        core->now.boot_ms - from < job->spec.idle.after_ms)
        return;
    job->idle.over = g->r.number;
    snprintf(why, sizeof(why), "idle: all its GPUs were below %.3g %% for %s", job->spec.idle.gpu * 100,
             text_duration(core->now.boot_ms - from).text);
    emit_event(core, job, "job_idle", "%s", why);
    if (job->spec.idle.then == JOB_IDLE_STOP)
        job_stop(core, job, JOB_CANCELLED, 0, false, why);
}
