#include "tests/unit/coordinator/core/snapshots/parts_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"

char *const parts_on_box1[] = {(char *)"box1", NULL}, *const parts_on_box2[] = {(char *)"box2", NULL};
char *const parts_gone[] = {(char *)"/out/step: /out/parts-step-20-g1-j1/rank-00001.safetensors is missing",
                            NULL};

void parts_all_obey(struct core_fixture *f)
{
    fixture_all_obey(f, "box1");
    fixture_all_obey(f, "box2");
    if (core_node(f->core, "box3"))
        fixture_all_obey(f, "box3");
}

bool parts_wait(struct core_fixture *f, int64_t job)
{
    return fixture_job(f, job) == JOB_RECOVERING &&
           strstr(fixture_waits(f, job), "waits for its snapshots: ");
}

int64_t parts_job_of_two(struct core_fixture *f, const char *keys)
{
    CLEANUP(free_text) char *file = xasprintf("%smax_restarts: 3\n" TRAIN SNAPSHOTS, keys);
    bool pending;

    fixture_node(f, "box1", 1);
    fixture_node(f, "box2", 1);
    int64_t job = fixture_submit(f, file);
    fixture_form(f, job);
    for (int64_t step = 10; step <= 20; step += 10)
        for (int rank = 0; rank < 2; rank++)
            assert_int_equal(fixture_commit_part(f, job, rank, step, 2, step == 10 ? "d10" : "d20", &pending),
                             ERR_OK);
    assert_false(pending);
    return job;
}

int64_t parts_job_beside_box3(struct core_fixture *f, const char *keys)
{
    CLEANUP(free_text) char *all = xasprintf("nodes: 2\n%s", keys);
    int64_t job = parts_job_of_two(f, all);

    fixture_node(f, "box3", 1);
    return job;
}

struct core_offer parts_offer(int64_t job, int64_t step, char *const *elsewhere)
{
    return (struct core_offer){.job = job,
                               .generation = 1,
                               .step = step,
                               .digest = step == 10 ? "d10" : "d20",
                               .path = "/out/step",
                               .committed = true,
                               .parts = 2,
                               .elsewhere = elsewhere};
}

struct core_offer parts_offer_divided(int64_t job, int64_t step, char *const *elsewhere)
{
    struct core_offer offer = parts_offer(job, step, elsewhere);

    offer.needs_all = true;
    return offer;
}

struct core_offer parts_offer_foreign(int64_t step, char *const *elsewhere)
{
    return parts_offer(0, step, elsewhere);
}

void parts_kill_and_start(struct core_fixture *f, int64_t job)
{
    fixture_exit(f, job, 0, 0, 9);
    parts_all_obey(f);
    fixture_pass_beating(f, 2000, core_node(f->core, "box3") ? "box1 box2 box3" : "box1 box2");
    fixture_all_run(f, "box1");
    fixture_all_run(f, "box2");
    if (core_node(f->core, "box3"))
        fixture_all_run(f, "box3");
}

void parts_lose_box2(struct core_fixture *f, int64_t job)
{
    fixture_pass_beating(f, 20000, "box1 box3");
    assert_int_equal(fixture_node_state(f, "box2"), NODE_LOST);
    fixture_all_obey(f, "box1");
    fixture_all_obey(f, "box3");
    fixture_pass_beating(f, 2000, "box1 box3");
    fixture_all_run(f, "box1");
    fixture_all_run(f, "box3");
    assert_int_equal(fixture_generation(f, job)->world_size, 2);
}

int64_t parts_job_that_continues(struct core_fixture *f, const char *keys)
{
    CLEANUP(free_text)
    char *file = xasprintf("nodes: 2\n%smax_restarts: 3\n" TRAIN "  resume: continue\n" SNAPSHOTS, keys);

    fixture_node(f, "box1", 1);
    fixture_node(f, "box2", 1);
    int64_t job = fixture_submit(f, file);
    fixture_node(f, "box3", 1);
    fixture_all_run(f, "box1");
    fixture_all_run(f, "box2");
    return job;
}
