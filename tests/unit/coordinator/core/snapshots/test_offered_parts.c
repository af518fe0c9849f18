/* Which snapshots with parts a generation may start from. Each node has its own directory, and its own part
 * of each snapshot. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/mem.h"
#include "base/random.h"
#include "tests/unit/coordinator/core/core_fixture.h"

#define SNAPSHOTS "  snapshot: {dir: /out, every: 10}\n"

static void all_obey(struct core_fixture *f)
{
    fixture_all_obey(f, "box1");
    fixture_all_obey(f, "box2");
    if (core_node(f->core, "box3"))
        fixture_all_obey(f, "box3");
}

static bool waits_for_them(struct core_fixture *f, int64_t job)
{
    return fixture_job(f, job) == JOB_RECOVERING &&
           strstr(fixture_waits(f, job), "waits for its snapshots: ");
}

/* Two ranks on box1 and box2; steps 10 and 20 are committed by both. There is no other node. */
static int64_t job_of_two(struct core_fixture *f, const char *keys)
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

/* The same, and box3 is free. */
static int64_t job_with_parts(struct core_fixture *f, const char *keys)
{
    CLEANUP(free_text) char *all = xasprintf("nodes: 2\n%s", keys);
    int64_t job = job_of_two(f, all);

    fixture_node(f, "box3", 1);
    return job;
}

static char *const on_box1[] = {(char *)"box1", NULL}, *const on_box2[] = {(char *)"box2", NULL};

static struct core_offer part_offer(int64_t job, int64_t step, char *const *elsewhere)
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

/* The job's first rank was killed; its nodes start its processes again. */
static void kill_and_start(struct core_fixture *f, int64_t job)
{
    fixture_exit(f, job, 0, 0, 9);
    all_obey(f);
    fixture_pass_beating(f, 2000, core_node(f->core, "box3") ? "box1 box2 box3" : "box1 box2");
    fixture_all_run(f, "box1");
    fixture_all_run(f, "box2");
    if (core_node(f->core, "box3"))
        fixture_all_run(f, "box3");
}

static char *const part_is_gone[] = {
    (char *)"/out/step: /out/parts-step-20-g1-j1/rank-00001.safetensors is missing", NULL};

static void a_snapshot_that_lacks_a_part_is_not_the_source(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = job_with_parts(f, "");
    const struct core_offer one[] = {part_offer(job, 20, on_box2), part_offer(job, 10, on_box2)};
    const struct core_offer two[] = {part_offer(job, 10, on_box1)};

    kill_and_start(f, job);
    fixture_join_with(f, job, 0, one, 2);
    fixture_join_telling(f, job, 1, two, 1, part_is_gone);
    assert_int_equal(fixture_generation(f, job)->source_step, 10);
    fixture_put(f, job, "id");
    assert_int_equal(fixture_job(f, job), JOB_RUNNING);
    assert_true(
        fixture_said(f, "went back to step 10: on box2 /out/step: "
                        "/out/parts-step-20-g1-j1/rank-00001.safetensors is missing; step 20 was committed"));
    assert_false(fixture_said(f, "wrote are dropped"));
}

/* box2 has lost its newest snapshots, however many. */
static void a_job_goes_back_as_far_as_it_must(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = job_with_parts(f, "");
    struct core_offer one[9], two = part_offer(job, 10, on_box1);
    static const char *const digests[] = {"d10", "d20", "d30", "d40", "d50", "d60", "d70", "d80", "d90"};
    bool pending;

    for (int i = 2; i < 9; i++)
        for (int rank = 0; rank < 2; rank++)
            fixture_commit_part(f, job, rank, 10 * (i + 1), 2, digests[i], &pending);
    for (int i = 0; i < 9; i++) {
        one[i] = part_offer(job, 10 * (9 - i), on_box2);
        one[i].digest = digests[8 - i];
    }
    kill_and_start(f, job);
    fixture_join_with(f, job, 0, one, 9);
    fixture_join_with(f, job, 1, &two, 1);
    assert_int_equal(fixture_generation(f, job)->source_step, 10);
    assert_true(
        fixture_said(f, "went back to step 10: /out on box2 does not have it, step 90 was committed"));
}

static void parts_of_all_nodes_make_a_snapshot_whole(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = job_with_parts(f, "");
    const struct core_offer one = part_offer(job, 20, on_box2), two = part_offer(job, 20, on_box1),
                            all = part_offer(job, 20, NULL);

    kill_and_start(f, job);
    fixture_join_with(f, job, 0, &one, 1);
    fixture_join_with(f, job, 1, &two, 1);
    assert_int_equal(fixture_generation(f, job)->source_step, 20);
    fixture_put(f, job, "id");
    /* the parts may lie on any of its nodes: here on box1, to which they were copied */
    kill_and_start(f, job);
    fixture_join_with(f, job, 0, &all, 1);
    fixture_join_with(f, job, 1, NULL, 0);
    assert_int_equal(fixture_generation(f, job)->source_step, 20);
    fixture_put(f, job, "id");
    assert_int_equal(fixture_job(f, job), JOB_RUNNING);
    assert_false(fixture_said(f, "went back to"));
}

static void lose_box2s_parts(struct core_fixture *f, int64_t job)
{
    const struct core_offer one[] = {part_offer(job, 20, on_box2), part_offer(job, 10, on_box2)};

    kill_and_start(f, job);
    fixture_join_with(f, job, 0, one, 2);
    fixture_join_with(f, job, 1, NULL, 0);
}

/* The file system of box2 is away. box1 has its files all the time: they alone do not end the wait. */
static void a_job_waits_for_the_node_that_lacks_its_parts(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = job_with_parts(f, "");

    lose_box2s_parts(f, job);
    assert_true(waits_for_them(f, job));
    assert_non_null(strstr(fixture_waits(f, job), "/out on box2 has none, step 20 was committed there at "));
    assert_non_null(strstr(fixture_waits(f, job),
                           "`ddpctl drain box2` continues without its parts, `ddpctl restart 1 "
                           "--from-scratch` starts again at step 0"));
    all_obey(f);
    int64_t generation = core_job(f->core, job)->generation;
    fixture_looked(f, job, "box1", true);
    fixture_looked(f, job, "box3", false);
    assert_true(waits_for_them(f, job));
    fixture_pass_beating(f, 90000, "box1 box2 box3");
    fixture_looked(f, job, "box1", true);
    assert_int_equal(core_job(f->core, job)->generation, generation); /* no process is started to look */
    fixture_looked(f, job, "box2", true);
    assert_int_equal(core_job(f->core, job)->generation, generation + 1);
    assert_true(fixture_said(f, "box2 has its snapshots"));
    fixture_all_run(f, "box1");
    fixture_all_run(f, "box2");
    const struct core_offer one = part_offer(job, 20, on_box2), two = part_offer(job, 20, on_box1);
    fixture_join_with(f, job, 0, &one, 1);
    fixture_join_with(f, job, 1, &two, 1);
    assert_int_equal(fixture_generation(f, job)->source_step, 20);
    assert_int_equal(core_job(f->core, job)->restarts_used, 1);
}

/* Each part holds moments that no other part has. */
static struct core_offer divided_offer(int64_t job, int64_t step, char *const *elsewhere)
{
    struct core_offer offer = part_offer(job, step, elsewhere);

    offer.needs_all = true;
    return offer;
}

/* box2 is lost, and box3 takes its place. */
static void lose_box2(struct core_fixture *f, int64_t job)
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

/* Averaging drops the parts of box2. Divided moments cannot be dropped. An older snapshot has no parts. */
static void divided_moments_need_the_parts_of_lost_nodes_too(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = job_with_parts(f, "");
    struct core_offer one[] = {divided_offer(job, 20, on_box2), part_offer(job, 10, NULL)};

    one[1].parts = 0;
    lose_box2(f, job);
    fixture_join_with(f, job, 0, one, 2);
    fixture_join_with(f, job, 1, NULL, 0);
    assert_int_equal(fixture_generation(f, job)->source_step, 10);
    assert_true(
        fixture_said(f, "went back to step 10: step 20 in /out lacks the parts that box2 (lost) wrote, and "
                        "needs all of its parts"));
    fixture_put(f, job, "id");
    assert_int_equal(fixture_job(f, job), JOB_RUNNING);
}

/* There is no older snapshot. Nothing goes on without the moments of box2, so no such command is named. */
static void a_job_waits_for_a_lost_node_with_moments(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = job_with_parts(f, "");
    const struct core_offer one = divided_offer(job, 20, on_box2), two = divided_offer(job, 20, on_box1);

    lose_box2(f, job);
    fixture_join_with(f, job, 0, &one, 1);
    fixture_join_with(f, job, 1, NULL, 0);
    assert_true(waits_for_them(f, job));
    assert_non_null(strstr(fixture_waits(f, job),
                           "step 20 in /out lacks the parts that box2 (lost) wrote, and needs all of "
                           "its parts; `ddpctl restart 1 --from-scratch`"));
    fixture_all_obey(f, "box1");
    fixture_all_obey(f, "box3");
    const int64_t generation = core_job(f->core, job)->generation;
    fixture_pass_beating(f, 90000, "box1 box3");
    fixture_looked(f, job, "box1", true);
    assert_false(fixture_said(f, "box1 has its snapshots")); /* it has, but not those that are missing */
    fixture_pass_beating(f, 90000, "box1 box3");
    assert_int_equal(core_job(f->core, job)->generation, generation);
    fixture_node(f, "box2", 1);
    fixture_looked(f, job, "box1", true);
    assert_int_equal(core_job(f->core, job)->generation, generation);
    fixture_looked(f, job, "box2", true);
    assert_int_equal(core_job(f->core, job)->generation, generation + 1);
    fixture_all_run(f, "box1");
    fixture_all_run(f, "box2");
    fixture_join_with(f, job, 0, &one, 1);
    fixture_join_with(f, job, 1, &two, 1);
    assert_int_equal(fixture_generation(f, job)->source_step, 20);
    fixture_put(f, job, "id");
    assert_int_equal(fixture_job(f, job), JOB_RUNNING);
}

/* The node has its parts again, but another job uses its slot. The other node with parts is no use alone, nor is a smaller job. */
static void a_job_is_not_placed_without_the_node_that_has_moments(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = job_with_parts(f, "");
    const struct core_offer one = divided_offer(job, 20, on_box2);

    lose_box2(f, job);
    fixture_join_with(f, job, 0, &one, 1);
    fixture_join_with(f, job, 1, NULL, 0);
    assert_true(waits_for_them(f, job));
    fixture_all_obey(f, "box1");
    fixture_all_obey(f, "box3");
    assert_int_equal(fixture_resize(f, job, 1, 1), ERR_OK);
    assert_true(waits_for_them(f, job));
    assert_int_equal(fixture_resize(f, job, 2, 2), ERR_OK);
    const int64_t generation = core_job(f->core, job)->generation;
    fixture_node(f, "box2", 1);
    const int64_t other = fixture_submit(f, "only_nodes: [box2]\n");
    assert_int_equal(fixture_job(f, other), JOB_STARTING);
    fixture_looked(f, job, "box1", true);
    fixture_looked(f, job, "box2", true);
    assert_int_equal(core_job(f->core, job)->generation, generation);
    assert_int_equal(fixture_job(f, job), JOB_RECOVERING);
}

/* The moments are cut again for other numbers of ranks: nothing is dropped, and nothing is said of it. */
static void divided_moments_fit_any_number_of_ranks(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = job_with_parts(f, "");
    struct core_offer one = divided_offer(job, 20, NULL);

    one.parts = 5;
    kill_and_start(f, job);
    fixture_join_with(f, job, 0, &one, 1);
    fixture_join_with(f, job, 1, NULL, 0);
    assert_int_equal(fixture_generation(f, job)->source_step, 20);
    assert_false(fixture_said(f, "dropped"));
    assert_false(fixture_said(f, "continue"));
}

static void on_lost_snapshots_fail_counts_for_parts(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = job_with_parts(f, "on_lost_snapshots: fail\n");

    lose_box2s_parts(f, job);
    assert_int_equal(fixture_generation(f, job)->state, GENERATION_FAILED);
    all_obey(f);
    assert_int_equal(fixture_job(f, job), JOB_FAILED);
    assert_non_null(
        strstr(core_job(f->core, job)->reason, "its snapshots cannot be found: /out on box2 has none"));
}

/* Job 7 of another cluster has written the directories of box1 and box2. This coordinator has no record of it. */
static struct core_offer foreign_offer(int64_t step, char *const *elsewhere)
{
    return part_offer(0, step, elsewhere);
}

static int64_t job_that_continues(struct core_fixture *f, const char *keys)
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

static void unknown_snapshots_that_lack_parts_are_waited_for(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = job_that_continues(f, "");
    const struct core_offer one = foreign_offer(20, on_box2), two = foreign_offer(20, on_box1);

    fixture_join_with(f, job, 0, &one, 1);
    fixture_join_with(f, job, 1, NULL, 0);
    assert_true(waits_for_them(f, job));
    assert_non_null(
        strstr(fixture_waits(f, job),
               "step 20 in /out lacks the parts that box2 wrote; is the file system mounted there? "
               "`ddpctl drain box2` continues without its parts,"));
    all_obey(f);
    fixture_pass_beating(f, 31000, "box1 box2 box3");
    fixture_all_run(f, "box1");
    fixture_all_run(f, "box2");
    fixture_join_with(f, job, 0, &one, 1);
    fixture_join_with(f, job, 1, &two, 1);
    assert_int_equal(fixture_generation(f, job)->source_step, 20);
    fixture_put(f, job, "id");
    assert_int_equal(fixture_job(f, job), JOB_RUNNING);
}

static void on_lost_snapshots_fail_counts_for_unknown_ones(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = job_that_continues(f, "on_lost_snapshots: fail\n");
    const struct core_offer one = foreign_offer(20, on_box2);

    fixture_join_with(f, job, 0, &one, 1);
    fixture_join_telling(f, job, 1, NULL, 0, part_is_gone);
    all_obey(f);
    assert_int_equal(fixture_job(f, job), JOB_FAILED);
    assert_non_null(
        strstr(core_job(f->core, job)->reason,
               "step 20 in /out lacks the parts that box2 wrote: on box2 /out/step: /out/parts-"));
}

static void an_older_source_than_an_unknown_snapshot_is_reported(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = job_that_continues(f, "");
    const struct core_offer one[] = {foreign_offer(20, on_box2), foreign_offer(10, on_box2)};
    const struct core_offer two = foreign_offer(10, on_box1);

    fixture_join_with(f, job, 0, one, 2);
    fixture_join_with(f, job, 1, &two, 1);
    assert_int_equal(fixture_generation(f, job)->source_step, 10);
    assert_true(
        fixture_said(f, "went back to step 10: step 20 in /out lacks the parts that box2 wrote; is the file "
                        "system mounted there?"));
}

/* box2 is gone for good while its parts are waited for, or from the start: box3 takes its place. */
static void the_parts_of_a_lost_node_are_dropped(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = job_with_parts(f, "");
    const struct core_offer one = part_offer(job, 20, on_box2);

    lose_box2s_parts(f, job);
    all_obey(f);
    fixture_operator(f, CORE_DRAIN, "box2");
    fixture_pass_beating(f, 31000, "box1 box2 box3");
    fixture_looked(f, job, "box1", true);
    fixture_all_run(f, "box1");
    fixture_all_run(f, "box3");
    fixture_join_with(f, job, 0, &one, 1);
    fixture_join_with(f, job, 1, NULL, 0);
    assert_int_equal(fixture_generation(f, job)->source_step, 20);
    assert_string_equal(fixture_node_of(f, job, 1), "box3");
    assert_true(
        fixture_said(f, "the parts of step 20 that box2 wrote are dropped: each rank without a part starts "
                        "from the shared model and another rank's moments"));
}

/* The new generation's ranks start, and join with what box1 has of step 20. */
static void join_with_box1s_parts(struct core_fixture *f, int64_t job)
{
    const struct core_offer one = part_offer(job, 20, on_box2);
    int world = fixture_generation(f, job)->world_size;

    fixture_all_run(f, "box1");
    fixture_all_run(f, "box2");
    for (int rank = 0; rank < world; rank++)
        fixture_join_with(f, job, rank, &one, !strcmp(fixture_node_of(f, job, rank), "box1"));
}

/* There is no node that could take box2's place: after a drain, a job that needs two nodes would only wait for one. */
static void a_job_of_fixed_size_may_continue_on_fewer_nodes(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = job_of_two(f, "nodes: 2\n");

    lose_box2s_parts(f, job);
    assert_true(waits_for_them(f, job));
    assert_non_null(strstr(fixture_waits(f, job),
                           " `ddpctl resize 1 1` continues on 1 node without the parts of box2, `ddpctl "
                           "restart 1 --from-scratch` starts"));
    assert_null(strstr(fixture_waits(f, job), "drain"));
    all_obey(f);
    assert_int_equal(fixture_resize(f, job, 1, 1), ERR_OK);
    assert_int_equal(fixture_job(f, job), JOB_STARTING);
    join_with_box1s_parts(f, job);
    assert_int_equal(fixture_generation(f, job)->source_step, 20);
    assert_true(fixture_said(f, "the parts of step 20 that box2 wrote are dropped"));
    fixture_put(f, job, "id");
    assert_int_equal(fixture_job(f, job), JOB_RUNNING);
    assert_int_equal(core_job(f->core, job)->restarts_used, 1);
}

/* box1 had rank 0 and is first in every list of nodes. It is left out all the same, also if box2 is busy. */
static void a_smaller_job_leaves_out_the_nodes_that_lack_parts(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = job_of_two(f, "nodes: 2\n");
    const struct core_offer two = part_offer(job, 20, on_box1);

    kill_and_start(f, job);
    fixture_join_with(f, job, 0, NULL, 0);
    fixture_join_with(f, job, 1, &two, 1);
    assert_non_null(
        strstr(fixture_waits(f, job), "resize 1 1` continues on 1 node without the parts of box1,"));
    all_obey(f);
    int64_t other = fixture_submit(f, "nodes: 2\n");
    fixture_form(f, other);
    assert_int_equal(fixture_resize(f, job, 1, 1), ERR_OK);
    assert_int_equal(fixture_job(f, job), JOB_RECOVERING);
    fixture_exit(f, other, 0, 0, 0); /* box1 is free */
    assert_int_equal(fixture_job(f, job), JOB_RECOVERING);
    fixture_exit(f, other, 1, 0, 0);
    assert_int_equal(fixture_job(f, job), JOB_STARTING);
    assert_string_equal(fixture_node_of(f, job, 0), "box2");
}

static void an_elastic_job_continues_without_a_drained_node(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = job_of_two(f, "nodes: \"1:2\"\n");

    lose_box2s_parts(f, job);
    assert_non_null(strstr(fixture_waits(f, job), " `ddpctl drain box2` continues without its parts,"));
    all_obey(f);
    fixture_operator(f, CORE_DRAIN, "box2");
    fixture_pass_beating(f, 31000, "box1 box2");
    fixture_looked(f, job, "box1", true);
    assert_int_equal(fixture_job(f, job), JOB_STARTING);
    join_with_box1s_parts(f, job);
    assert_int_equal(fixture_generation(f, job)->source_step, 20);
}

/* The user did not make room for leaving box2 out: the job tries with both nodes, and then says what it may do now. */
static void a_resize_that_keeps_all_nodes_tries_again(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = job_of_two(f, "nodes: 2\n");

    lose_box2s_parts(f, job);
    all_obey(f);
    assert_int_equal(fixture_resize(f, job, 1, 2), ERR_OK);
    assert_int_equal(fixture_job(f, job), JOB_STARTING);
    assert_int_equal(fixture_generation(f, job)->node_count, 2);
    join_with_box1s_parts(f, job);
    assert_true(waits_for_them(f, job));
    assert_non_null(strstr(fixture_waits(f, job), " `ddpctl drain box2` continues without its parts,"));
    assert_int_equal(core_job(f->core, job)->restarts_used, 1);
}

/* No node has any snapshot: a job of another size would not find one either. */
static void a_resize_does_not_end_the_wait_for_snapshots_that_nobody_has(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = job_of_two(f, "nodes: 2\n");

    kill_and_start(f, job);
    fixture_join_with(f, job, 0, NULL, 0);
    fixture_join_with(f, job, 1, NULL, 0);
    assert_true(waits_for_them(f, job));
    assert_null(strstr(fixture_waits(f, job), "without"));
    all_obey(f);
    assert_int_equal(fixture_resize(f, job, 1, 1), ERR_OK);
    assert_true(waits_for_them(f, job));
}

static void all_nodes_that_lack_parts_are_named(void **state)
{
    struct core_fixture *f = *state;
    static char *const on_three[] = {(char *)"box2", (char *)"box3", NULL};

    fixture_node(f, "box1", 1);
    fixture_node(f, "box2", 1);
    fixture_node(f, "box3", 1);
    int64_t job = fixture_submit(f, "nodes: 3\n" TRAIN "  resume: continue\n" SNAPSHOTS);
    const struct core_offer one = foreign_offer(20, on_three);
    for (int rank = 0; rank < 3; rank++)
        fixture_join_with(f, job, rank, &one, !strcmp(fixture_node_of(f, job, rank), "box1"));
    assert_non_null(strstr(fixture_waits(f, job),
                           " `ddpctl resize 1 1` continues on 1 node without the parts of box2, box3,"));
    all_obey(f);
    fixture_node(f, "box4", 1);
    fixture_node(f, "box5", 1);
    assert_int_equal(fixture_resize(f, job, 3, 3), ERR_OK);
    for (int rank = 0; rank < 3; rank++)
        fixture_join_with(f, job, rank, &one, !strcmp(fixture_node_of(f, job, rank), "box1"));
    assert_non_null(strstr(fixture_waits(f, job),
                           " `ddpctl drain NODE` for each of box2, box3 continues without their parts,"));
}

static void another_number_of_ranks_is_reported(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = job_with_parts(f, "");
    struct core_offer o = part_offer(job, 20, NULL);

    o.parts = 4;
    kill_and_start(f, job);
    fixture_join_with(f, job, 0, &o, 1);
    fixture_join_with(f, job, 1, &o, 1);
    assert_true(fixture_said(
        f, "step 20 was saved by 4 ranks, and 2 continue: what ranks 2 to 3 had of their own is dropped"));
    fixture_put(f, job, "id");
    o.parts = 1;
    kill_and_start(f, job);
    fixture_join_with(f, job, 0, &o, 1);
    fixture_join_with(f, job, 1, &o, 1);
    assert_true(fixture_said(
        f, "step 20 was saved by 1 rank, and 2 continue: rank 1 starts from the shared model and other "
           "ranks' moments"));
}

/* ---- random offers, against a plain reading of the rules */

enum { CHANCE_NODES = 4, CHANCE_NAMES = 7, CHANCE_STEPS = 3, CHANCE_ROUNDS = 200 };

struct chance_world {
    char nodes[CHANCE_NODES][8];                          /* by rank */
    struct core_offer offers[CHANCE_NODES][CHANCE_STEPS]; /* by rank, then in a random order of their steps */
    size_t counts[CHANCE_NODES];
    char *elsewhere[CHANCE_NODES][CHANCE_STEPS][CHANCE_NAMES + 1];
};

static char chance_names[CHANCE_NAMES][8], chance_digests[CHANCE_STEPS][8];

/* Some of the names, from a random one on. The ranks of the generation are among the names. */
static void draw_elsewhere(struct random *r, char *out[CHANCE_NAMES + 1])
{
    size_t count = 0, from = (size_t)(random_u64(r) % CHANCE_NAMES);

    for (size_t i = 0; i < CHANCE_NAMES; i++)
        if (random_u64(r) % 4)
            out[count++] = chance_names[(from + i) % CHANCE_NAMES];
    out[count] = NULL;
}

static void draw_offers(struct random *r, struct chance_world *w, int64_t base)
{
    for (int rank = 0; rank < CHANCE_NODES; rank++) {
        size_t from = (size_t)(random_u64(r) % CHANCE_STEPS);
        w->counts[rank] = 0;
        for (size_t i = 0; i < CHANCE_STEPS; i++) {
            size_t step = (from + i) % CHANCE_STEPS, at = w->counts[rank];
            if (random_u64(r) % 4 == 0)
                continue;
            draw_elsewhere(r, w->elsewhere[rank][at]);
            w->offers[rank][at] = foreign_offer(base + (int64_t)step, w->elsewhere[rank][at]);
            w->offers[rank][at].digest = chance_digests[step];
            w->counts[rank]++;
        }
    }
}

static bool node_takes_part(const struct chance_world *w, const char *node)
{
    for (int rank = 0; rank < CHANCE_NODES; rank++)
        if (!strcmp(w->nodes[rank], node))
            return true;
    return false;
}

static bool nobody_sees_parts(const struct chance_world *w, int64_t step, const char *node)
{
    for (int rank = 0; rank < CHANCE_NODES; rank++)
        for (size_t i = 0; i < w->counts[rank]; i++) {
            bool missed = w->offers[rank][i].step != step;
            for (char *const *name = w->offers[rank][i].elsewhere; !missed && *name; name++)
                missed = !strcmp(*name, node);
            if (!missed)
                return false;
        }
    return true;
}

/* "box2, box1": nodes that nobody sees the parts of, in the order of the lowest rank's offer. False: no rank offers the step. */
static bool name_nodes_away(const struct chance_world *w, int64_t step, bool take_part, struct buf *out)
{
    for (int rank = 0; rank < CHANCE_NODES; rank++)
        for (size_t i = 0; i < w->counts[rank]; i++) {
            if (w->offers[rank][i].step != step)
                continue;
            for (char *const *name = w->offers[rank][i].elsewhere; *name; name++)
                if (node_takes_part(w, *name) == take_part && nobody_sees_parts(w, step, *name))
                    buf_printf(out, "%s%s", out->len ? ", " : "", *name);
            return true;
        }
    return false;
}

/* What the coordinator made of the offers: the newest whole step, which nodes lack parts, and whose parts are dropped. */
static void judged_as_by_the_rules(struct core_fixture *f, int64_t job, const struct chance_world *w,
                                   int64_t base)
{
    int64_t source = -1, refused = -1;

    for (int64_t step = base + CHANCE_STEPS - 1; step >= base && source < 0; step--) {
        CLEANUP(buf_release) struct buf lacking = {0};
        if (!name_nodes_away(w, step, true, &lacking))
            continue;
        source = lacking.len ? -1 : step;
        refused = lacking.len && refused < 0 ? step : refused;
    }
    const struct generation_record *g = fixture_generation(f, job);
    assert_int_equal(g->source_rank >= 0 ? g->source_step : -1, source);
    if (refused >= 0) {
        CLEANUP(buf_release) struct buf lacking = {0};
        name_nodes_away(w, refused, true, &lacking);
        CLEANUP(free_text)
        char *text = xasprintf("step %d in /out lacks the parts that %s wrote;", (int)refused, lacking.data);
        assert_true(fixture_said(f, text));
        assert_true(source >= 0 || strstr(fixture_waits(f, job), text));
    }
    if (source >= 0) {
        CLEANUP(buf_release) struct buf gone = {0};
        name_nodes_away(w, source, false, &gone);
        CLEANUP(free_text)
        char *text = xasprintf("the parts of step %d that %s wrote are dropped", (int)source,
                               gone.len ? gone.data : "");
        assert_true(fixture_said(f, text) == (gone.len > 0));
    }
}

static void random_offers_are_judged_by_the_rules(void **state)
{
    struct core_fixture *f = *state;
    struct random r = random_stream(7, 0);
    int whole = 0;

    for (int i = 0; i < CHANCE_NAMES; i++)
        snprintf(chance_names[i], sizeof(chance_names[i]), "box%d", i + 1);
    for (int i = 0; i < CHANCE_STEPS; i++)
        snprintf(chance_digests[i], sizeof(chance_digests[i]), "d%d", i);
    for (int i = 0; i < CHANCE_NODES; i++)
        fixture_node(f, chance_names[i], 1);
    for (int round = 0; round < CHANCE_ROUNDS; round++) {
        static struct chance_world w;
        int64_t base = 100 + CHANCE_STEPS * round; /* so that texts of other rounds have other steps */
        int64_t job = fixture_submit(f, "nodes: 4\n" TRAIN "  resume: continue\n" SNAPSHOTS);
        draw_offers(&r, &w, base);
        for (int rank = 0; rank < CHANCE_NODES; rank++)
            snprintf(w.nodes[rank], sizeof(w.nodes[rank]), "%s", fixture_node_of(f, job, rank));
        for (int rank = 0; rank < CHANCE_NODES; rank++) /* in another order than that of the ranks */
            fixture_join_with(f, job, rank ^ 1, w.offers[rank ^ 1], w.counts[rank ^ 1]);
        judged_as_by_the_rules(f, job, &w, base);
        whole += fixture_generation(f, job)->source_rank >= 0;
        fixture_cancel(f, job, true);
        for (int i = 0; i < CHANCE_NODES; i++)
            fixture_all_obey(f, chance_names[i]);
        assert_int_equal(fixture_job(f, job), JOB_CANCELLED);
    }
    assert_in_range(whole, CHANCE_ROUNDS / 10, CHANCE_ROUNDS * 9 / 10); /* both results are common */
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_snapshot_that_lacks_a_part_is_not_the_source),
        TEST(a_job_goes_back_as_far_as_it_must),
        TEST(parts_of_all_nodes_make_a_snapshot_whole),
        TEST(a_job_waits_for_the_node_that_lacks_its_parts),
        TEST(on_lost_snapshots_fail_counts_for_parts),
        TEST(divided_moments_need_the_parts_of_lost_nodes_too),
        TEST(a_job_waits_for_a_lost_node_with_moments),
        TEST(a_job_is_not_placed_without_the_node_that_has_moments),
        TEST(divided_moments_fit_any_number_of_ranks),
        TEST(the_parts_of_a_lost_node_are_dropped),
        TEST(a_job_of_fixed_size_may_continue_on_fewer_nodes),
        TEST(a_smaller_job_leaves_out_the_nodes_that_lack_parts),
        TEST(an_elastic_job_continues_without_a_drained_node),
        TEST(a_resize_that_keeps_all_nodes_tries_again),
        TEST(a_resize_does_not_end_the_wait_for_snapshots_that_nobody_has),
        TEST(all_nodes_that_lack_parts_are_named),
        TEST(another_number_of_ranks_is_reported),
        TEST(unknown_snapshots_that_lack_parts_are_waited_for),
        TEST(on_lost_snapshots_fail_counts_for_unknown_ones),
        TEST(an_older_source_than_an_unknown_snapshot_is_reported),
        TEST(random_offers_are_judged_by_the_rules),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
