#include "daemon/coordinator/service/forecasts.h"

#include <stdlib.h>
#include <uv.h>

#include "base/clock.h"
#include "base/mem.h"
#include "daemon/coordinator/core/forecast/forecast.h"
#include "daemon/coordinator/service/convert.h"
#include "daemon/coordinator/service/service_state.h"

#define SLICE_NS 2000000 /* of work in one turn of the loop */
#define PAUSE_MS 4       /* between two slices */
#define FRESH_MS 10000   /* the progress of running jobs changes estimates, too */
#define REST 10          /* the next forecast waits for this many times the cost of the last one */

struct forecasts {
    struct service *service;
    struct forecast *ready, *making; /* ready: the last one that is complete; either may be NULL */
    int64_t ready_revision, making_revision;
    int64_t made_ms;       /* boot: when `ready` was begun */
    int64_t cost_ns;       /* of `making` until now */
    int64_t rest_until_ns; /* no other one is begun before */
    int64_t begun_ms;
    uint64_t turn; /* the loop's time when the last slice ran */
    uv_timer_t timer;
};

static void forecasts_work(struct forecasts *f);

static void forecasts_on_timer(uv_timer_t *timer)
{
    forecasts_work(timer->data);
}

struct forecasts *forecasts_open(struct service *s)
{
    struct forecasts *f = xcalloc(1, sizeof *f);
    f->service = s;
    uv_timer_init(&s->loop, &f->timer);
    f->timer.data = f;
    return f;
}

void forecasts_close(struct forecasts *f)
{
    if (!f)
        return;
    forecast_free(f->ready);
    forecast_free(f->making);
    free(f);
}

/* One slice, at most one in a turn of the loop, however many ask in it. */
static void forecasts_work(struct forecasts *f)
{
    const int64_t begin = clock_mono_ns();
    if (!f->making || f->turn == uv_now(&f->service->loop))
        return;
    f->turn = uv_now(&f->service->loop);
    bool more = true;
    while (more && clock_mono_ns() - begin < SLICE_NS)
        more = forecast_step(f->making);
    f->cost_ns += clock_mono_ns() - begin;
    if (more) {
        uv_timer_start(&f->timer, forecasts_on_timer, PAUSE_MS, 0);
        return;
    }
    forecast_free(f->ready);
    f->ready = steal(f->making);
    f->ready_revision = f->making_revision;
    f->made_ms = f->begun_ms;
    f->rest_until_ns = clock_mono_ns() + REST * f->cost_ns;
}

/* The best answer that there is. A queue of some dozens of jobs is done within the first slice; while a longer one is made, the
 * forecast before it is used. */
static const struct forecast *forecasts_now(struct forecasts *f)
{
    const struct core *core = f->service->core;
    const struct core_now now = service_now();
    const bool stale =
        !f->ready || f->ready_revision != core_queue_revision(core) || now.boot_ms - f->made_ms > FRESH_MS;
    const int64_t begin = clock_mono_ns();
    if (stale && !f->making && begin >= f->rest_until_ns) {
        f->making = forecast_begin(core, now);
        f->making_revision = core_queue_revision(core);
        f->begun_ms = now.boot_ms;
        f->cost_ns = clock_mono_ns() - begin;
        f->turn = 0;
    }
    forecasts_work(f);
    return f->ready ? f->ready : f->making;
}

/* "when job 9 ends on box2", "after job 9, whose end is unknown" */
static char *forecasts_why(struct pool *pool, const struct forecast_start *start)
{
    const long long job = (long long)start->after_job;
    if (start->known && job && start->after_node)
        return pool_printf(pool, "when job %lld ends on %s", job, start->after_node);
    if (start->known)
        return job ? pool_printf(pool, "when job %lld ends", job) : pool_text(pool, "");
    if (start->after_unknown && job)
        return pool_printf(pool, "after job %lld, whose end is unknown", job);
    return pool_text(pool, start->after_unknown ? "after jobs whose ends are unknown" : "");
}

void forecasts_fill(struct service *s, struct pool *pool, const struct core_job_status *status, bool whole,
                    Ddp__V1__JobStatus *message)
{
    const enum job_state state = status->job->state;
    if (state != JOB_QUEUED && state != JOB_RECOVERING)
        return;
    const struct forecast *forecast = forecasts_now(s->forecasts);
    const struct forecast_start *start = forecast_find(forecast, status->job->id);
    if (!start || start->impossible) /* the job's reason says what is missing */
        return;
    Ddp__V1__StartEstimate *out = message->start_estimate = pool_alloc(pool, sizeof *out);
    ddp__v1__start_estimate__init(out);
    out->position = start->position;
    out->start_ms = start->known ? start->start_ms : 0;
    out->after_job = start->after_job;
    out->after_unknown = start->after_unknown;
    out->why = forecasts_why(pool, start);
    CLEANUP(free_text) char *flags = whole ? core_start_at_once(s->core, status->job->id) : NULL;
    out->at_once = pool_text(pool, flags ? flags : "");
}
