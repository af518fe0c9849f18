/* 200 seeded queues on a fake clock: each job's estimated start beside the one that it then has. The ends of jobs are not known:
 * some jobs report steps, some had earlier runs of other lengths, some have a time limit that they do not use up. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/mem.h"
#include "daemon/coordinator/core/forecast/forecast.h"
#include "daemon/coordinator/core/model.h"
#include "tests/unit/coordinator/core/core_fixture.h"

#define QUEUES 200
#define KINDS 5
#define JOBS_MOST (KINDS + 40)
#define STEPS 1000
#define MINUTE 60000

struct queued_job {
    int64_t id, run_ms, limit_ms, started_ms; /* started: boot; 0: not yet */
    int64_t estimate_ms;                      /* boot; 0: none */
    bool reports, over;
};

struct queue {
    struct core_fixture *f;
    uint64_t seed;
    int64_t kind_ms[KINDS]; /* how long jobs of this name take, more or less */
    struct queued_job jobs[JOBS_MOST];
    int count;
};

static int queue_random(struct queue *q, int below)
{
    q->seed = q->seed * 6364136223846793005u + 1442695040888963407u;
    return (int)((q->seed >> 33) % (uint64_t)below);
}

static void add_job(struct queue *q, int kind, int nodes)
{
    struct queued_job *job = &q->jobs[q->count++];
    const int procs = 1 + queue_random(q, 4), priority = queue_random(q, 4) ? 0 : 1;
    const int64_t usual = q->kind_ms[kind];

    *job = (struct queued_job){.run_ms = usual * (70 + queue_random(q, 61)) / 100,
                               .reports = queue_random(q, 2)};
    job->limit_ms = job->run_ms * (110 + queue_random(q, 100)) / 100;
    CLEANUP(free_text)
    char *file = xasprintf("name: kind%d\nnodes: %d\nprocs_per_node: %d\npriority: %d\ntime_limit: %llds\n",
                           kind, nodes, procs, priority, (long long)(job->limit_ms / 1000 + 1));
    job->id = fixture_submit(q->f, file);
}

static void report_steps(struct queue *q, const struct queued_job *job)
{
    const int64_t ran = q->f->now.boot_ms - job->started_ms;
    const int64_t step = 1 + STEPS * ran / (job->run_ms + 1);

    if (job->reports && job->started_ms && !job->over)
        fixture_report(q->f, job->id, 0, step < STEPS ? step : STEPS, "steps", STEPS);
}

/* Jobs that were placed begin to run. */
static void start_placed(struct queue *q)
{
    for (int i = 0; i < q->count; i++)
        if (!q->jobs[i].started_ms && fixture_job(q->f, q->jobs[i].id) != JOB_QUEUED) {
            q->jobs[i].started_ms = q->f->now.boot_ms;
            fixture_form(q->f, q->jobs[i].id);
            report_steps(q, &q->jobs[i]);
        }
}

static void pass_until(struct queue *q, int64_t boot_ms)
{
    q->f->now.wall_ms += boot_ms - q->f->now.boot_ms;
    q->f->now.boot_ms = boot_ms;
}

/* Lets the job end that ends next, if that is before `until`. False: none does. */
static bool end_next(struct queue *q, int64_t until)
{
    struct queued_job *next = NULL;

    for (int i = 0; i < q->count; i++) {
        struct queued_job *job = &q->jobs[i];
        if (job->started_ms && !job->over &&
            (!next || job->started_ms + job->run_ms < next->started_ms + next->run_ms))
            next = job;
    }
    if (!next || next->started_ms + next->run_ms > until)
        return false;
    pass_until(q, next->started_ms + next->run_ms);
    next->over = true;
    const int world = fixture_generation(q->f, next->id)->world_size;
    for (int rank = 0; rank < world; rank++)
        fixture_exit(q->f, next->id, rank, 0, 0);
    assert_int_equal(fixture_job(q->f, next->id), JOB_SUCCEEDED);
    start_placed(q);
    fixture_clear(q->f);
    return true;
}

/* Each kind has run once, and some jobs more end before the forecast is made. */
static void fill_queue(struct queue *q)
{
    const int nodes = 1 + queue_random(q, 4), count = 10 + queue_random(q, JOBS_MOST - KINDS - 9);

    for (int i = 0; i < nodes; i++) {
        char name[16];
        snprintf(name, sizeof(name), "box%d", i);
        fixture_node(q->f, name, 4);
    }
    for (int i = 0; i < KINDS; i++)
        q->kind_ms[i] = (2 + queue_random(q, 60)) * MINUTE;
    for (int i = 0; i < KINDS; i++) {
        add_job(q, i, 1);
        start_placed(q);
    }
    while (end_next(q, INT64_MAX))
        ;
    for (int i = 0; i < count; i++) {
        add_job(q, queue_random(q, KINDS), 1 + queue_random(q, nodes));
        start_placed(q);
    }
    const int64_t at = q->f->now.boot_ms + (30 + queue_random(q, 90)) * MINUTE;
    while (end_next(q, at))
        ;
    for (int i = 0; i < q->count; i++)
        report_steps(q, &q->jobs[i]);
    pass_until(q, at);
    for (int i = 0; i < q->count; i++)
        report_steps(q, &q->jobs[i]);
}

static void estimate_starts(struct queue *q)
{
    struct forecast *forecast = forecast_begin(q->f->core, q->f->now);

    while (forecast_step(forecast))
        ;
    for (int i = 0; i < q->count; i++) {
        const struct forecast_start *s = forecast_find(forecast, q->jobs[i].id);
        assert_true(q->jobs[i].started_ms ? !s : s != NULL);
        if (s && s->known)
            q->jobs[i].estimate_ms = q->f->now.boot_ms + s->start_ms - q->f->now.wall_ms;
    }
    forecast_free(forecast);
}

static int compare_errors(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* Errors as a part of the time that the job waits from the forecast on. */
static size_t run_queue(uint64_t seed, double *errors, size_t *unknown)
{
    struct queue q = {.seed = seed * 2654435761u + 1};
    size_t count = 0;
    void *state = NULL;

    fixture_setup(&state);
    q.f = state;
    fill_queue(&q);
    const int64_t at = q.f->now.boot_ms;
    int waiting = 0;
    for (int i = 0; i < q.count; i++)
        waiting += !q.jobs[i].started_ms;
    estimate_starts(&q);
    while (end_next(&q, INT64_MAX))
        ;
    for (int i = 0; i < q.count; i++) {
        const struct queued_job *job = &q.jobs[i];
        if (!job->over)
            fail_msg("seed %d job %lld: %s", (int)seed, (long long)job->id, fixture_waits(q.f, job->id));
        if (job->started_ms <= at)
            continue;
        *unknown += !job->estimate_ms;
        if (job->estimate_ms)
            errors[count++] = llabs(job->estimate_ms - job->started_ms) / (double)(job->started_ms - at);
    }
    assert_true((int)count <= waiting);
    fixture_teardown(&state);
    return count;
}

static void estimates_beside_what_happened(void **state)
{
    double *errors = xcalloc(QUEUES * JOBS_MOST, sizeof(*errors));
    size_t count = 0, unknown = 0;

    (void)state;
    for (uint64_t seed = 1; seed <= QUEUES; seed++)
        count += run_queue(seed, errors + count, &unknown);
    qsort(errors, count, sizeof(*errors), compare_errors);
    print_message("%d queues, %zu jobs that waited, %zu without an estimate: error of the time until the "
                  "start: median %.1f %%, a quarter below %.1f %%, nine tenths below %.1f %%\n",
                  QUEUES, count + unknown, unknown, errors[count / 2] * 100, errors[count / 4] * 100,
                  errors[count * 9 / 10] * 100);
    assert_true(count > 1000);
    assert_int_equal(unknown, 0);
    assert_true(errors[count / 2] < 0.15);
    free(errors);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(estimates_beside_what_happened)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
