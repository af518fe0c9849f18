#include "daemon/coordinator/core/forecast/forecast.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "daemon/coordinator/core/forecast/rehearsal.h"
#include "daemon/coordinator/core/forecast/run_time.h"
#include "daemon/coordinator/core/model.h"
#include "daemon/coordinator/core/placement/advice.h"
#include "daemon/coordinator/core/placement/capacity.h"
#include "daemon/coordinator/core/placement/placement.h"

#define JOBS_MOST 1000  /* of the queue that are run ahead; those behind them get their position only */
#define STEPS_MOST 1000 /* ends of jobs */

struct running_job {
    struct job *copy;
    int64_t ends_ms; /* boot; INT64_MAX: nobody knows */
};

struct waiting_job {
    struct job *copy;
    struct forecast_start *start;
    int64_t run_ms; /* once it has started; -1: unknown */
};

/* A job that ends in this step. */
struct ended_job {
    int64_t id;
    char **nodes;
};

struct forecast {
    struct rehearsal rehearsal;
    struct core_now began, now;
    struct forecast_start *starts; /* by job */
    struct running_job *running;
    struct waiting_job *waiting; /* in turn */
    struct ended_job *ended;
    size_t start_count, running_count, running_cap, waiting_count, ended_count, ended_cap;
    int steps;
    bool done;
};

static void add_running(struct forecast *f, struct job *copy, int64_t left_ms)
{
    f->running = array_grow(f->running, f->running_count, &f->running_cap, sizeof(*f->running));
    f->running[f->running_count++] =
        (struct running_job){.copy = copy, .ends_ms = left_ms < 0 ? INT64_MAX : f->now.boot_ms + left_ms};
}

static bool holds_slots(const struct job *job)
{
    for (size_t i = 0; i < job->spawn_count; i++)
        if (!job->spawns[i]->r.dead)
            return true;
    return false;
}

static int compare_starts(const void *a, const void *b)
{
    const struct forecast_start *x = a, *y = b;

    return (x->job > y->job) - (x->job < y->job);
}

static struct forecast_start *find_start(const struct forecast *f, int64_t job)
{
    const struct forecast_start key = {.job = job};

    return f->start_count ? bsearch(&key, f->starts, f->start_count, sizeof(key), compare_starts) : NULL;
}

/* turn: the jobs that wait, in the order in which they get their turn. */
static void add_queue(struct forecast *f, struct job *const *turn, size_t count,
                      const struct run_history *history)
{
    f->starts = xcalloc(count + 1, sizeof(*f->starts));
    f->waiting = xcalloc(count + 1, sizeof(*f->waiting));
    for (size_t i = 0; i < count; i++)
        f->starts[i] = (struct forecast_start){.job = turn[i]->r.id, .position = (int)i + 1};
    f->start_count = count;
    qsort(f->starts, count, sizeof(*f->starts), compare_starts);
    for (size_t i = 0; i < count && i < JOBS_MOST; i++)
        f->waiting[f->waiting_count++] =
            (struct waiting_job){.copy = rehearsal_add_waiting(&f->rehearsal, turn[i]),
                                 .start = find_start(f, turn[i]->r.id),
                                 .run_ms = run_time_left(turn[i], history, f->now)};
}

struct forecast *forecast_begin(const struct core *core, struct core_now now)
{
    CLEANUP(run_history_release) struct run_history history = {0};
    struct forecast *f = xcalloc(1, sizeof(*f));
    struct job **turn = xcalloc(core->job_count + 1, sizeof(struct job *));
    size_t count = 0;

    f->began = f->now = now;
    rehearsal_open(&f->rehearsal, core, now);
    run_history_collect(&history, core);
    for (size_t i = 0; i < core->job_count; i++) {
        struct job *job = core->jobs[i];
        if (placement_wants(job))
            turn[count++] = job;
        else if (holds_slots(job))
            add_running(f, rehearsal_add_running(&f->rehearsal, job), run_time_left(job, &history, now));
    }
    qsort(turn, count, sizeof(*turn), placement_compare_turns);
    add_queue(f, turn, count, &history);
    free(turn);
    return f;
}

/* ---- a step */

static char **nodes_of(const struct job *job)
{
    char **nodes = NULL;

    for (size_t i = 0; i < job->spawn_count; i++)
        if (!names_contain(nodes, job->spawns[i]->r.node))
            nodes = strv_append(nodes, job->spawns[i]->r.node);
    return nodes;
}

/* When something happens next; INT64_MAX: never. */
static int64_t next_event(const struct forecast *f)
{
    int64_t at = INT64_MAX;

    for (size_t i = 0; i < f->running_count; i++)
        if (f->running[i].ends_ms < at)
            at = f->running[i].ends_ms;
    for (size_t i = 0; i < f->waiting_count; i++) /* a job that recovers waits for some seconds */
        if (f->waiting[i].copy->not_before > f->now.boot_ms && f->waiting[i].copy->not_before < at)
            at = f->waiting[i].copy->not_before;
    return at;
}

static void end_jobs(struct forecast *f)
{
    size_t left = 0;

    for (size_t i = 0; i < f->running_count; i++) {
        struct job *job = f->running[i].copy;
        if (f->running[i].ends_ms > f->now.boot_ms) {
            f->running[left++] = f->running[i];
            continue;
        }
        f->ended = array_grow(f->ended, f->ended_count, &f->ended_cap, sizeof(*f->ended));
        f->ended[f->ended_count++] = (struct ended_job){.id = job->r.id, .nodes = nodes_of(job)};
        rehearsal_end(&f->rehearsal, job);
    }
    f->running_count = left;
}

static void forget_ended(struct forecast *f)
{
    while (f->ended_count)
        strv_free(f->ended[--f->ended_count].nodes);
}

/* The job whose end made room, and where. */
static void name_cause(const struct forecast *f, const struct job *job, struct forecast_start *start)
{
    for (size_t i = 0; i < f->ended_count; i++)
        for (size_t k = 0; k < job->spawn_count; k++)
            if (names_contain(f->ended[i].nodes, job->spawns[k]->r.node)) {
                start->after_job = f->ended[i].id;
                start->after_node = xstrdup(job->spawns[k]->r.node);
                return;
            }
    /* The job is on other nodes than the one that ended: what was reserved for a job before it has become free. */
    start->after_job = f->ended_count ? f->ended[0].id : 0;
}

static void take_placed(struct forecast *f)
{
    size_t left = 0;

    for (size_t i = 0; i < f->waiting_count; i++) {
        const struct waiting_job w = f->waiting[i];
        if (w.copy->r.state == JOB_QUEUED || w.copy->r.state == JOB_RECOVERING) {
            f->waiting[left++] = w;
            continue;
        }
        w.start->known = true;
        w.start->start_ms = f->now.wall_ms;
        name_cause(f, w.copy, w.start);
        add_running(f, w.copy, w.run_ms);
    }
    f->waiting_count = left;
}

/* No job of which the end is known is left: says what the others wait for. */
static void explain_rest(struct forecast *f)
{
    struct core *core = f->rehearsal.core;

    for (size_t i = 0; i < f->waiting_count; i++) {
        const struct job *job = f->waiting[i].copy;
        struct forecast_start *start = f->waiting[i].start;
        start->impossible = !capacity_feasible(core, job, capacity_slot_kind(core, job));
        start->after_unknown = !start->impossible && f->running_count > 0;
        start->after_job = start->after_unknown ? job->holder : 0;
        if (start->after_unknown && f->running_count == 1)
            start->after_job = f->running[0].copy->r.id;
    }
}

bool forecast_step(struct forecast *f)
{
    const int64_t at = f->steps ? next_event(f) : f->now.boot_ms;

    if (f->done)
        return false;
    if (at == INT64_MAX)
        explain_rest(f);
    if (at == INT64_MAX || !f->waiting_count || f->steps++ > STEPS_MOST) {
        f->done = true;
        rehearsal_close(&f->rehearsal); /* the answers stay, the copies of jobs are no longer needed */
        f->running_count = f->waiting_count = 0;
        return false;
    }
    f->now.wall_ms += at - f->now.boot_ms;
    f->now.boot_ms = at;
    end_jobs(f);
    rehearsal_place(&f->rehearsal, f->now);
    take_placed(f);
    forget_ended(f);
    return true;
}

bool forecast_done(const struct forecast *f)
{
    return f->done;
}

const struct forecast_start *forecast_find(const struct forecast *f, int64_t job)
{
    return find_start(f, job);
}

void forecast_free(struct forecast *f)
{
    if (!f)
        return;
    rehearsal_close(&f->rehearsal);
    forget_ended(f);
    for (size_t i = 0; i < f->start_count; i++)
        free(f->starts[i].after_node);
    free(f->starts);
    free(f->running);
    free(f->waiting);
    free(f->ended);
    free(f);
}

int64_t core_queue_revision(const struct core *core)
{
    return core->queue_revision;
}

char *core_start_at_once(const struct core *core, int64_t id)
{
    const struct job *job = core_find_job(core, id);

    return job && job->r.state == JOB_QUEUED && placement_wants(job) ? advice_at_once(core, job) : NULL;
}
