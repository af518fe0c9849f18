/* A job that has committed snapshots does not begin at step 0 by itself. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "tests/unit/coordinator/core/core_fixture.h"

#define SNAPSHOTS "  snapshot: {dir: /out, every: 10}\n"

/* One rank on box1, of two nodes; step 1200 is committed there. */
static int64_t saved_job(struct core_fixture *f, const char *keys)
{
    CLEANUP(free_text) char *file = xasprintf("%smax_restarts: 3\n" TRAIN SNAPSHOTS, keys);

    fixture_node(f, "box1", 1);
    int64_t job = fixture_submit(f, file);
    fixture_all_run(f, "box1");
    fixture_join(f, job, 0);
    fixture_put(f, job, "id");
    assert_int_equal(fixture_commit(f, job, fixture_spawn(f, job, 0), 1, 1200, "d1200"), ERR_OK);
    fixture_node(f, "box2", 1);
    return job;
}

static struct core_offer offer_of(int64_t job, int64_t generation, int64_t step, const char *digest)
{
    return (struct core_offer){.job = job,
                               .generation = generation,
                               .step = step,
                               .digest = digest,
                               .path = "/out/step",
                               .committed = true};
}

/* The current generation's process starts and joins. */
static void join_with(struct core_fixture *f, int64_t job, const struct core_offer *offer,
                      char *const *unusable)
{
    char node[32];

    snprintf(node, sizeof(node), "%s", fixture_node_of(f, job, 0));
    fixture_all_run(f, node);
    fixture_join_telling(f, job, 0, offer, offer ? 1 : 0, unusable);
}

static bool waits_for_them(struct core_fixture *f, int64_t job)
{
    return fixture_job(f, job) == JOB_RECOVERING &&
           strstr(fixture_waits(f, job), "waits for its snapshots: ");
}

static void a_job_waits_for_a_missing_directory(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = saved_job(f, "");

    fixture_exit(f, job, 0, 0, 9);
    join_with(f, job, NULL, NULL);
    assert_true(waits_for_them(f, job));
    assert_non_null(
        strstr(fixture_waits(f, job), "/out on box1 has none, step 1,200 was committed there at "));
    assert_non_null(strstr(fixture_waits(f, job), "is the file system mounted?"));
    assert_non_null(
        strstr(fixture_waits(f, job), "`ddpctl restart 1 --from-scratch` starts again at step 0"));
    assert_true(fixture_said(f, "waits for its snapshots: /out on box1 has none"));
    assert_int_equal(fixture_generation(f, job)->state, GENERATION_CLOSED);
    fixture_both_obey(f);
    fixture_clear(f);
    fixture_pass_beating(f, 300000, "box1 box2");
    assert_int_equal(core_job(f->core, job)->generation, 2); /* no process is started to look */
    assert_int_equal(core_job(f->core, job)->restarts_used, 1);
    assert_int_equal(fixture_effects(f, EFFECT_LOOK), 2 * 10); /* both nodes, every 30 s */
    fixture_looked(f, job, "box1", false);
    assert_true(waits_for_them(f, job));
    fixture_looked(f, job, "box1", true);
    assert_int_equal(fixture_job(f, job), JOB_STARTING);
    assert_string_equal(fixture_node_of(f, job, 0), "box1");
    struct core_offer there = offer_of(job, 1, 1200, "d1200");
    join_with(f, job, &there, NULL);
    assert_int_equal(fixture_generation(f, job)->source_step, 1200);
    fixture_put(f, job, "id");
    assert_int_equal(fixture_job(f, job), JOB_RUNNING);
    assert_int_equal(core_job(f->core, job)->restarts_used, 1);
}

/* Nodes are asked for as many snapshots as a Join may offer: a node may have got an old one back alone. */
static void nodes_are_asked_for_all_snapshots_that_could_be_offered(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = saved_job(f, "");
    char digest[16];

    for (int64_t step = 1210; step <= 1300; step += 10) {
        snprintf(digest, sizeof(digest), "d%d", (int)step);
        assert_int_equal(fixture_commit(f, job, fixture_spawn(f, job, 0), 1, step, digest), ERR_OK);
    }
    char **paths = core_snapshot_paths(f->core, job);
    assert_int_equal(strv_len(paths), 11);
    assert_string_equal(paths[0], "/out/step/model.safetensors");
    strv_free(paths);
    for (int64_t step = 1310; step <= 2300; step += 10) {
        snprintf(digest, sizeof(digest), "d%d", (int)step);
        assert_int_equal(fixture_commit(f, job, fixture_spawn(f, job, 0), 1, step, digest), ERR_OK);
    }
    paths = core_snapshot_paths(f->core, job);
    assert_int_equal(strv_len(paths), CORE_OFFERS_MOST);
    strv_free(paths);
}

/* Its slots are free for others while it waits. */
static void a_waiting_job_holds_no_slots(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = saved_job(f, "");

    fixture_exit(f, job, 0, 0, 9);
    join_with(f, job, NULL, NULL);
    fixture_both_obey(f);
    int64_t other = fixture_submit(f, "nodes: 2\n");
    assert_int_equal(fixture_job(f, other), JOB_STARTING);
    fixture_looked(f, job, "box1", true);
    assert_int_equal(fixture_job(f, job), JOB_RECOVERING);
    fixture_form(f, other);
    fixture_exit(f, other, 0, 0, 0);
    fixture_exit(f, other, 1, 0, 0);
    assert_int_equal(fixture_job(f, job), JOB_STARTING);
}

static void on_lost_snapshots_fail_fails_the_job(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = saved_job(f, "on_lost_snapshots: fail\n");

    fixture_exit(f, job, 0, 0, 9);
    join_with(f, job, NULL, NULL);
    fixture_both_obey(f);
    assert_int_equal(fixture_job(f, job), JOB_FAILED);
    assert_non_null(strstr(core_job(f->core, job)->reason,
                           "its snapshots cannot be found: /out on box1 has none, step 1,200"));
    assert_int_equal(core_job(f->core, job)->restarts_used, 1);
}

static void a_damaged_snapshot_is_named(void **state)
{
    struct core_fixture *f = *state;
    char *const why[] = {(char *)"/out/step-600-g1: no such thing",
                         (char *)"/out/step: not what was committed: damaged", NULL};
    int64_t job = saved_job(f, "");

    fixture_exit(f, job, 0, 0, 9);
    join_with(f, job, NULL, why);
    assert_true(waits_for_them(f, job));
    assert_non_null(
        strstr(fixture_waits(f, job), "on box1 /out/step: not what was committed: damaged; step 1,200"));
    /* the files exist but are useless: a new generation is tried less and less often */
    for (int64_t i = 0, tries = core_job(f->core, job)->generation; i < 4; i++) {
        fixture_both_obey(f);
        fixture_looked(f, job, "box1", true);
        assert_int_equal(core_job(f->core, job)->generation, tries + i + 1);
        join_with(f, job, NULL, why);
        assert_true(waits_for_them(f, job));
    }
    fixture_both_obey(f);
    fixture_clear(f);
    fixture_pass_beating(f, 479000, "box1 box2");
    assert_int_equal(fixture_effects(f, EFFECT_LOOK), 0);
    fixture_pass_beating(f, 2000, "box1 box2");
    assert_int_equal(fixture_effects(f, EFFECT_LOOK), 2);
}

/* The newest snapshot is damaged, and an older one is not. */
static void an_older_snapshot_is_reported(void **state)
{
    struct core_fixture *f = *state;
    struct core_job_status status;
    char *const why[] = {(char *)"/out/step: damaged", NULL};
    struct err e;
    int64_t job = saved_job(f, "");

    fixture_commit(f, job, fixture_spawn(f, job, 0), 1, 800, "d800");
    fixture_exit(f, job, 0, 0, 9);
    struct core_offer old = offer_of(job, 1, 800, "d800");
    join_with(f, job, &old, why);
    fixture_put(f, job, "id");
    assert_int_equal(fixture_job(f, job), JOB_RUNNING);
    assert_true(
        fixture_said(f, "went back to step 800: on box1 /out/step: damaged; step 1,200 was committed"));
    assert_int_equal(core_job_status(f->core, job, false, &status, &e), ERR_OK);
    assert_non_null(strstr(status.notes[0], "went back to step 800"));
    core_job_status_release(&status);
    fixture_commit(f, job, fixture_spawn(f, job, 0), 2, 900, "d900");
    assert_int_equal(core_job_status(f->core, job, false, &status, &e), ERR_OK);
    assert_null(status.notes);
    core_job_status_release(&status);
}

/* Committed, and damaged before COMMITTED.json was written: the worker cannot know. */
static void another_digest_counts_as_damage(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = saved_job(f, "");
    struct core_offer changed = offer_of(job, 1, 1200, "other");

    changed.committed = false;
    fixture_exit(f, job, 0, 0, 9);
    join_with(f, job, &changed, NULL);
    assert_true(waits_for_them(f, job));
    assert_non_null(
        strstr(fixture_waits(f, job), "on box1 /out/step: the files are not the ones that were committed"));
}

/* The snapshots are on the disk of a lost node. */
static void the_job_waits_for_the_node_with_its_snapshots(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = saved_job(f, "");

    fixture_pass_beating(f, 10000, "box2"); /* box1 is lost */
    assert_string_equal(fixture_node_of(f, job, 0), "box2");
    join_with(f, job, NULL, NULL);
    assert_true(waits_for_them(f, job));
    assert_non_null(strstr(fixture_waits(f, job), "step 1,200 was committed on box1 (lost) at "));
    assert_non_null(strstr(fixture_waits(f, job), "and /out on box2 has none"));
    fixture_both_obey(f);
    fixture_clear(f);
    fixture_hello(f, "box1", "box1", 1, 0);
    fixture_facts(f, "box1", NULL, 0);
    fixture_pass_beating(f, 1, "box1 box2");
    assert_int_equal(fixture_effects(f, EFFECT_LOOK), 2); /* at once */
    fixture_looked(f, job, "box2", false);
    fixture_looked(f, job, "box1", true);
    assert_string_equal(fixture_node_of(f, job, 0), "box1"); /* not where it was last */
    struct core_offer there = offer_of(job, 1, 1200, "d1200");
    join_with(f, job, &there, NULL);
    assert_int_equal(fixture_generation(f, job)->source_step, 1200);
}

/* Slots without its snapshots are no use to the job, so others get them. */
static void nodes_without_the_snapshots_are_not_reserved(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = saved_job(f, "");

    fixture_pass_beating(f, 10000, "box2"); /* box1 is lost */
    join_with(f, job, NULL, NULL);
    assert_true(waits_for_them(f, job));
    fixture_both_obey(f);
    fixture_hello(f, "box1", "box1", 1, 0);
    fixture_facts(f, "box1", NULL, 0);
    fixture_operator(f, CORE_DRAIN, "box1");
    fixture_looked(f, job, "box1", true);
    assert_non_null(strstr(fixture_waits(f, job), "waits for slots on box1"));
    int64_t other = fixture_submit(f, "");
    assert_int_equal(fixture_job(f, other), JOB_STARTING);
    assert_string_equal(fixture_node_of(f, other, 0), "box2");
    assert_int_equal(fixture_job(f, job), JOB_RECOVERING);
}

static void gpu_boxes(struct core_fixture *f, int from, int to, const char *nccl)
{
    char name[16];

    f->nccl = nccl;
    for (int i = from; i <= to; i++) {
        snprintf(name, sizeof(name), "box%d", i);
        fixture_hello(f, name, name, 1, 1);
        fixture_facts(f, name, NULL, 0);
    }
}

/* Four nodes would do, but with the NCCL of the node that has the snapshots there are three. */
static void the_nccl_of_the_node_with_the_snapshots_is_named(void **state)
{
    struct core_fixture *f = *state;

    gpu_boxes(f, 1, 1, "2.27.3");
    int64_t job = fixture_submit(f, "nodes: \"1:4\"\ngpus_per_proc: 1\nmax_restarts: 3\n" WORLD);
    fixture_all_run(f, "box1");
    fixture_join(f, job, 0);
    fixture_put(f, job, "id");
    assert_int_equal(fixture_commit(f, job, fixture_spawn(f, job, 0), 1, 1200, "d1200"), ERR_OK);
    assert_int_equal(fixture_resize(f, job, 3, 4), ERR_OK);
    fixture_exit(f, job, 0, 0, 9);
    gpu_boxes(f, 2, 3, "2.27.3");
    gpu_boxes(f, 4, 7, "2.28.9");
    assert_int_equal(fixture_job(f, job), JOB_STARTING);
    for (int rank = 0; rank < 4; rank++) {
        fixture_all_run(f, fixture_node_of(f, job, rank));
        fixture_join(f, job, rank);
    }
    assert_true(waits_for_them(f, job));
    for (int rank = 0; rank < 4; rank++)
        fixture_exit(f, job, rank, 0, 15);
    fixture_looked(f, job, "box1", true);
    assert_string_equal(fixture_waits(f, job),
                        "waits for nodes with a world size that divides its 4 shards: the 3 that fit and "
                        "have NCCL 2.27.3 as on box1, where its snapshots are, do not");
    gpu_boxes(f, 8, 8, "2.27.3");
    assert_int_equal(fixture_job(f, job), JOB_STARTING);
    assert_string_equal(fixture_node_of(f, job, 0), "box1");
}

static void from_scratch_begins_at_step_0(void **state)
{
    struct core_fixture *f = *state;
    struct core_job_status status;
    struct err e;
    int64_t job = saved_job(f, "");

    fixture_exit(f, job, 0, 0, 9);
    join_with(f, job, NULL, NULL);
    fixture_both_obey(f);
    assert_int_equal(fixture_from_scratch(f, job), ERR_OK);
    assert_int_equal(fixture_job(f, job), JOB_STARTING);
    assert_true(fixture_said(f, "its snapshots up to step 1,200 no longer count, and are set aside in "
                                "/out/set-aside-g2 on the nodes that have them"));
    struct core_offer old = offer_of(job, 1, 1200, "d1200"); /* the old snapshot appears again */
    join_with(f, job, &old, NULL);
    assert_int_equal(fixture_generation(f, job)->source_rank, -1);
    fixture_put(f, job, "id");
    assert_int_equal(fixture_job(f, job), JOB_RUNNING);
    assert_true(fixture_said(f, "from scratch, as the user asked"));
    assert_int_equal(core_job_status(f->core, job, false, &status, &e), ERR_OK);
    assert_null(status.snapshot);
    core_job_status_release(&status);
    /* new snapshots count, also after a restart, and the old ones do not come back */
    fixture_commit(f, job, fixture_spawn(f, job, 0), 3, 10, "d10");
    fixture_exit(f, job, 0, 0, 9);
    fixture_restart(f);
    fixture_hello(f, "box1", "box1", 1, 0);
    fixture_facts(f, "box1", NULL, 0);
    fixture_pass_beating(f, 2000, "box1");
    join_with(f, job, &old, NULL);
    assert_true(waits_for_them(f, job));
    assert_non_null(strstr(fixture_waits(f, job), "step 10 was committed"));
}

/* A user's restart tries at once, but does not begin at step 0. */
static void a_restart_looks_for_the_snapshots_again(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = saved_job(f, "");

    fixture_exit(f, job, 0, 0, 9);
    join_with(f, job, NULL, NULL);
    fixture_both_obey(f);
    assert_int_equal(fixture_restart_job(f, job), ERR_OK);
    assert_int_equal(fixture_job(f, job), JOB_STARTING);
    join_with(f, job, NULL, NULL);
    assert_true(waits_for_them(f, job));
    fixture_cancel(f, job, false);
    fixture_both_obey(f);
    assert_int_equal(fixture_job(f, job), JOB_CANCELLED);
}

static void from_scratch_is_refused_for_commands(void **state)
{
    struct core_fixture *f = *state;

    fixture_node(f, "box1", 1);
    int64_t job = fixture_submit(f, COMMAND);
    fixture_form(f, job);
    assert_int_equal(fixture_from_scratch(f, job), ERR_FAILED_PRECONDITION);
    assert_int_equal(fixture_job(f, job), JOB_RUNNING);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_job_waits_for_a_missing_directory),
        TEST(nodes_are_asked_for_all_snapshots_that_could_be_offered),
        TEST(a_waiting_job_holds_no_slots),
        TEST(on_lost_snapshots_fail_fails_the_job),
        TEST(a_damaged_snapshot_is_named),
        TEST(an_older_snapshot_is_reported),
        TEST(another_digest_counts_as_damage),
        TEST(the_job_waits_for_the_node_with_its_snapshots),
        TEST(nodes_without_the_snapshots_are_not_reserved),
        TEST(the_nccl_of_the_node_with_the_snapshots_is_named),
        TEST(from_scratch_begins_at_step_0),
        TEST(a_restart_looks_for_the_snapshots_again),
        TEST(from_scratch_is_refused_for_commands),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
