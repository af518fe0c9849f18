#include "daemon/coordinator/core/forecast/run_time.h"

#define ENDING_MS 1000 /* of a job that has nothing left to do but to exit */

/* The longest estimate. The sum of a thousand of them must still be a valid date. */
#define LONGEST_MS (10LL * 365 * 24 * 3600 * 1000)

/* Steps and epochs are what a program says, so their quotients may be of any size. */
static int64_t bounded_ms(double ms)
{
    return ms < (double)LONGEST_MS ? (int64_t)ms : LONGEST_MS;
}

/* At the pace since this generation's first report, else at the last pace that was measured. */
static int64_t left_by_steps(const struct job *job, bool runs, struct core_now now)
{
    const struct core_progress *p = &job->progress;
    const double more = (double)p->steps - (double)p->step, done = (double)p->step - (double)job->pace.step;
    const int64_t age = p->updated_ms && now.wall_ms > p->updated_ms ? now.wall_ms - p->updated_ms : 0;
    const int64_t spent = now.boot_ms - job->pace.boot_ms - age; /* from the first report to the last */
    int64_t left = -1;

    if (p->steps <= 0 || p->step <= 0)
        return -1;
    if (more <= 0)
        return ENDING_MS;
    if (runs && job->pace.boot_ms && done > 0 && spent > 0)
        left = bounded_ms((double)spent / done * more) - age;
    else if (p->steps_per_s > 0)
        left = bounded_ms(more / p->steps_per_s * 1000);
    else
        return -1;
    return left > ENDING_MS ? left : ENDING_MS;
}

/* Of a job that reports how many epochs it has made. */
static int64_t left_by_epochs(const struct job *job, int64_t elapsed_ms)
{
    const double epochs = job->spec.kind == JOB_TRAIN ? (double)job->spec.train.epochs : 0;
    const double made = job->progress.epoch;

    if (epochs <= 0 || made <= 0 || !elapsed_ms)
        return -1;
    return made < epochs ? bounded_ms((double)elapsed_ms * (epochs - made) / made) : ENDING_MS;
}

static int64_t left_of_limit(const struct job *job, bool runs, struct core_now now)
{
    if (!job->spec.time_limit_ms)
        return -1;
    if (!runs || !job->limit_at)
        return job->spec.time_limit_ms;
    return job->limit_at > now.boot_ms ? job->limit_at - now.boot_ms : ENDING_MS;
}

int64_t run_time_left(const struct job *job, const struct run_history *history, struct core_now now)
{
    const bool runs = job->r.state == JOB_RUNNING || job->r.state == JOB_STARTING;
    const int64_t elapsed = job->r.started_ms && now.wall_ms > job->r.started_ms && job->r.state != JOB_QUEUED
                                ? now.wall_ms - job->r.started_ms
                                : 0;
    const int64_t limit = left_of_limit(job, runs, now);

    if (job->r.state == JOB_STOPPING || job_finished(job))
        return ENDING_MS;
    int64_t left = left_by_steps(job, runs, now);
    if (left < 0 && runs)
        left = left_by_epochs(job, elapsed);
    if (left < 0)
        left = run_history_left(history, job->r.user, job->r.name, elapsed);
    if (left < 0 || (limit >= 0 && limit < left))
        left = limit;
    return left < LONGEST_MS ? left : LONGEST_MS;
}
