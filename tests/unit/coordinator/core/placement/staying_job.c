#include "tests/unit/base/check.h"

#include "tests/unit/coordinator/core/placement/staying_job.h"

const struct spawn *staying_spawn(const struct core_fixture *f, int64_t job, int64_t number)
{
    return job_find_spawn(core_find_job(f->core, job), number);
}

const struct job_record *staying_record(const struct core_fixture *f, int64_t job)
{
    return core_job(f->core, job);
}

int64_t staying_job(struct core_fixture *f, const char *file)
{
    int64_t job = fixture_submit(f, file);

    f->stays = true;
    fixture_form(f, job);
    fixture_report(f, job, 0, 20, "loss", 0.5);
    return job;
}

int64_t staying_job_of_four(struct core_fixture *f, const char *file)
{
    fixture_node(f, "box1", 4);
    return staying_job(f, file);
}

int64_t staying_job_waits(struct core_fixture *f, const char *file)
{
    int64_t job = staying_job_of_four(f, file);

    f->stays = false;
    fixture_watch(f, job, 4);
    f->stays = true;
    fixture_exit(f, job, 2, 0, 9);
    return job;
}

void staying_job_rejoin(struct core_fixture *f, int64_t job, int64_t live_step)
{
    f->live_step = live_step;
    fixture_form(f, job);
    f->live_step = 0;
}

const char *staying_watch_says(const struct core_fixture *f, uint64_t call)
{
    const struct core_effect *word = fixture_reply(f, call);

    return word->member ? "member" : word->wait ? "wait" : "over";
}

int64_t staying_handover(const struct core_fixture *f, int64_t job)
{
    return core_find_job(f->core, job)->handover.number;
}

int64_t staying_job_on_two(struct core_fixture *f, const char *file)
{
    fixture_node(f, "box1", 1);
    fixture_node(f, "box2", 1);
    return staying_job(f, file);
}

uint64_t staying_rank_waits(struct core_fixture *f, int64_t job, int rank)
{
    f->ready = staying_handover(f, job);
    assert_int_not_equal(f->ready, 0);
    uint64_t watch = fixture_watch(f, job, fixture_spawn(f, job, rank));
    f->ready = 0;
    return watch;
}
