/* Which process may commit a snapshot, and which snapshot a generation starts from. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "tests/unit/coordinator/core/core_fixture.h"

#define SNAPSHOTS "  snapshot: {dir: /out, every: 10}\n"

static int64_t two_ranks(struct core_fixture *f)
{
    fixture_node(f, "box1", 1);
    fixture_node(f, "box2", 1);
    int64_t job = fixture_submit(f, "nodes: 2\nmax_restarts: 3\n" TRAIN SNAPSHOTS);
    fixture_all_run(f, "box1");
    fixture_all_run(f, "box2");
    return job;
}

static void a_repeated_commit_adds_its_node(void **state)
{
    struct core_fixture *f = *state;
    struct core_job_status status;
    struct err e;
    int64_t job = two_ranks(f);

    assert_int_equal(fixture_commit(f, job, fixture_spawn(f, job, 0), 1, 10, "d"), ERR_FAILED_PRECONDITION);
    fixture_join(f, job, 0);
    fixture_join(f, job, 1);
    fixture_put(f, job, "id");
    for (int i = 0; i < 2; i++) {
        assert_int_equal(fixture_commit(f, job, fixture_spawn(f, job, 0), 1, 10, "d"), ERR_OK);
        assert_int_equal(fixture_commit(f, job, fixture_spawn(f, job, 1), 1, 10, "d"), ERR_OK);
    }
    assert_int_equal(fixture_commit(f, job, fixture_spawn(f, job, 1), 1, 10, "other"),
                     ERR_FAILED_PRECONDITION);
    assert_int_equal(core_job_status(f->core, job, false, &status, &e), ERR_OK);
    assert_int_equal(status.snapshot->step, 10);
    assert_int_equal(strv_len(status.snapshot->nodes), 2);
    core_job_status_release(&status);
    int64_t spawn = fixture_spawn(f, job, 0);
    fixture_exit(f, job, 1, 1, 0);
    assert_int_equal(fixture_commit(f, job, spawn, 1, 10, "d"), ERR_OK); /* a retry of what is committed */
    assert_int_equal(fixture_commit(f, job, spawn, 1, 11, "d2"), ERR_ABORTED);
}

static int64_t two_running_ranks(struct core_fixture *f)
{
    int64_t job = two_ranks(f);

    fixture_join(f, job, 0);
    fixture_join(f, job, 1);
    fixture_put(f, job, "id");
    return job;
}

static void parts_are_committed_when_all_are_there(void **state)
{
    struct core_fixture *f = *state;
    struct core_job_status status;
    struct err e;
    bool pending;
    int64_t job = two_running_ranks(f);

    for (int i = 0; i < 2; i++) { /* a repeated call counts once */
        assert_int_equal(fixture_commit_part(f, job, 0, 10, 2, "d", &pending), ERR_OK);
        assert_true(pending);
    }
    assert_int_equal(f->kept.snapshot_count, 0);
    assert_int_equal(fixture_commit_part(f, job, 1, 10, 2, "other", &pending), ERR_FAILED_PRECONDITION);
    assert_int_equal(fixture_commit_part(f, job, 1, 10, 3, "", &pending), ERR_INVALID_ARGUMENT);
    assert_int_equal(fixture_commit_part(f, job, 1, 10, 2, "", &pending), ERR_OK);
    assert_false(pending);
    assert_int_equal(f->kept.snapshot_count, 1);
    assert_int_equal(fixture_commit_part(f, job, 0, 10, 2, "d", &pending), ERR_OK);
    assert_false(pending);
    assert_int_equal(core_job_status(f->core, job, false, &status, &e), ERR_OK);
    assert_int_equal(status.snapshot->step, 10);
    assert_int_equal(status.snapshot->bytes, 200);
    assert_string_equal(status.snapshot->digest, "d");
    assert_int_equal(strv_len(status.snapshot->nodes), 1); /* that has the shared files */
    core_job_status_release(&status);
}

static void parts_without_shared_files_are_not_committed(void **state)
{
    struct core_fixture *f = *state;
    bool pending;
    int64_t job = two_running_ranks(f);

    for (int rank = 0; rank < 2; rank++) {
        assert_int_equal(fixture_commit_part(f, job, rank, 10, 2, "", &pending), ERR_OK);
        assert_true(pending);
    }
    assert_int_equal(f->kept.snapshot_count, 0);
}

static void a_part_that_cannot_be_written_fails_the_snapshot_for_all(void **state)
{
    struct core_fixture *f = *state;
    bool pending;
    int64_t job = two_running_ranks(f);

    assert_int_equal(fixture_commit_part(f, job, 0, 10, 2, "d", &pending), ERR_OK);
    assert_int_equal(fixture_snapshot_failed(f, job, 1, 10, "/out: no space"), ERR_OK);
    assert_int_equal(fixture_commit_part(f, job, 0, 10, 2, "d", &pending), ERR_ABORTED);
    assert_int_equal(f->kept.snapshot_count, 0);
    /* The next one is another, and late calls about the first one do not touch it. */
    assert_int_equal(fixture_commit_part(f, job, 0, 20, 2, "d", &pending), ERR_OK);
    assert_int_equal(fixture_snapshot_failed(f, job, 1, 10, "/out: no space"), ERR_OK);
    assert_int_equal(fixture_commit_part(f, job, 1, 10, 2, "d", &pending), ERR_ABORTED);
    assert_int_equal(fixture_commit_part(f, job, 1, 20, 2, "d", &pending), ERR_OK);
    assert_false(pending);
    assert_int_equal(f->kept.snapshot_count, 1);
}

static void a_part_that_waits_for_space_does_not_fail_the_snapshot(void **state)
{
    struct core_fixture *f = *state;
    bool pending;
    int64_t job = two_running_ranks(f);

    assert_int_equal(fixture_commit_part(f, job, 0, 10, 2, "d", &pending), ERR_OK);
    assert_int_equal(fixture_snapshot_waits(f, job, 1, 10, "/out: no space", 60000), ERR_OK);
    assert_int_equal(fixture_commit_part(f, job, 0, 10, 2, "d", &pending), ERR_OK);
    assert_true(pending);
    assert_int_equal(fixture_commit_part(f, job, 1, 10, 2, "d", &pending), ERR_OK);
    assert_false(pending);
    assert_int_equal(f->kept.snapshot_count, 1);
}

/* The failure was reported to the coordinator before its restart: the rank that failed says so when it connects. */
static void a_failed_part_is_known_again_after_a_restart(void **state)
{
    struct core_fixture *f = *state;
    bool pending;
    int64_t job = two_running_ranks(f);

    assert_int_equal(fixture_snapshot_failed(f, job, 1, 10, "/out: no space"), ERR_OK);
    fixture_restart(f);
    assert_int_equal(fixture_commit_part(f, job, 0, 10, 2, "d", &pending), ERR_OK);
    assert_true(pending);
    fixture_watch_failed(f, job, fixture_spawn(f, job, 1), 10);
    assert_int_equal(fixture_commit_part(f, job, 0, 10, 2, "d", &pending), ERR_ABORTED);
    assert_int_equal(fixture_commit_part(f, job, 0, 20, 2, "d", &pending), ERR_OK);
    fixture_watch_failed(f, job, fixture_spawn(f, job, 1), 10); /* reconnects later: step 20 is not touched */
    assert_int_equal(fixture_commit_part(f, job, 1, 20, 2, "", &pending), ERR_OK);
    assert_false(pending);
}

static void old_snapshot_records_are_dropped(void **state)
{
    struct core_fixture *f = *state;
    struct core_job_status status;
    struct err e;
    char digest[16];
    int64_t job = two_ranks(f);

    fixture_join(f, job, 0);
    fixture_join(f, job, 1);
    fixture_put(f, job, "id");
    for (int step = 1; step <= 300; step++) {
        snprintf(digest, sizeof(digest), "d%d", step);
        assert_int_equal(fixture_commit(f, job, fixture_spawn(f, job, 0), 1, step, digest), ERR_OK);
    }
    assert_int_equal(f->kept.snapshot_count, 256);
    assert_int_equal(core_job_status(f->core, job, false, &status, &e), ERR_OK);
    assert_int_equal(status.snapshot->step, 300);
    core_job_status_release(&status);
}

/* What a joining writer is told, so that it knows of a commit whose answer it has missed. */
static void the_newest_committed_snapshots_are_listed(void **state)
{
    struct core_fixture *f = *state;
    const struct snapshot_record *list[3];
    int64_t job = two_running_ranks(f);
    static const int steps[] = {30, 10, 50, 20, 40};

    assert_int_equal(core_committed_snapshots(f->core, job, list, 3), 0);
    for (int i = 0; i < 5; i++) {
        assert_int_equal(fixture_commit(f, job, fixture_spawn(f, job, 0), 1, steps[i], "d"), ERR_OK);
        assert_int_equal(core_committed_snapshots(f->core, job, list, 3), i < 3 ? i + 1 : 3);
    }
    for (int i = 0; i < 3; i++)
        assert_int_equal(list[i]->step, 50 - 10 * i);
    assert_int_equal(fixture_from_scratch(f, job), ERR_OK);
    assert_int_equal(core_committed_snapshots(f->core, job, list, 3), 0);
}

static void join_again(struct core_fixture *f, int64_t job, const struct core_offer *zero, size_t zero_count,
                       const struct core_offer *one, size_t one_count)
{
    fixture_join_with(f, job, 0, zero, zero_count);
    fixture_join_with(f, job, 1, one, one_count);
}

static void the_newest_committed_offer_is_the_source(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = two_ranks(f);
    struct core_offer known10 = {.job = job, .generation = 1, .step = 10, .digest = "d10", .path = "/a"};
    struct core_offer known20 = {.job = job, .generation = 1, .step = 20, .digest = "d20", .path = "/b"};
    struct core_offer torn = {.job = job, .generation = 1, .step = 30, .digest = "d30", .path = "/c"};
    struct core_offer forged = {.job = job, .generation = 9, .step = 20, .digest = "else", .path = "/d"};
    const struct core_offer zero[] = {known10, torn, forged}, one[] = {known20, known10};

    join_again(f, job, NULL, 0, NULL, 0);
    assert_int_equal(fixture_generation(f, job)->source_rank, -1);
    fixture_put(f, job, "id");
    fixture_commit(f, job, fixture_spawn(f, job, 0), 1, 10, "d10");
    fixture_commit(f, job, fixture_spawn(f, job, 1), 1, 20, "d20");
    fixture_exit(f, job, 0, 1, 0);
    fixture_all_obey(f, "box2");
    join_again(f, job, zero, 3, one, 2);
    assert_int_equal(fixture_generation(f, job)->source_rank, 1);
    assert_int_equal(fixture_generation(f, job)->source_step, 20);
    assert_string_equal(fixture_generation(f, job)->source_path, "/b");
    fixture_put(f, job, "id");
    fixture_exit(f, job, 0, 1, 0);
    fixture_all_obey(f, "box2");
    fixture_pass_beating(f, 2000, "box1 box2");
    join_again(f, job, one, 2, one, 2); /* a tie goes to the lowest rank */
    assert_int_equal(fixture_generation(f, job)->source_rank, 0);
}

static void a_later_generation_beats_a_later_step(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = two_ranks(f);

    join_again(f, job, NULL, 0, NULL, 0);
    fixture_put(f, job, "id");
    struct core_offer first = {.job = job, .generation = 1, .step = 20, .digest = "d20", .path = "/a"};
    fixture_commit(f, job, fixture_spawn(f, job, 0), 1, 20, "d20");
    fixture_commit(f, job, fixture_spawn(f, job, 1), 1, 40, "d40"); /* only box2 has it, and cannot read it */
    fixture_exit(f, job, 0, 1, 0);
    fixture_all_obey(f, "box2");
    join_again(f, job, &first, 1, NULL, 0);
    assert_int_equal(fixture_generation(f, job)->source_step, 20);
    fixture_put(f, job, "id");
    fixture_commit(f, job, fixture_spawn(f, job, 0), 2, 30, "d30");
    fixture_exit(f, job, 0, 1, 0);
    fixture_all_obey(f, "box2");
    fixture_pass_beating(f, 2000, "box1 box2");
    struct core_offer old = {.job = job, .generation = 1, .step = 40, .digest = "d40", .path = "/a"};
    struct core_offer fresh = {.job = job, .generation = 2, .step = 30, .digest = "d30", .path = "/b"};
    join_again(f, job, &old, 1, &fresh, 1);
    assert_int_equal(fixture_generation(f, job)->source_step, 30);
}

static void offers_of_other_lineages_are_ignored(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = two_ranks(f);
    struct core_offer stranger = {
        .job = 77, .generation = 1, .step = 50, .digest = "d", .path = "/a", .committed = true};
    struct core_offer own = {
        .job = job, .generation = 1, .step = 40, .digest = "d", .path = "/b", .committed = true};

    join_again(f, job, &stranger, 1, &own, 1);
    assert_int_equal(fixture_generation(f, job)->source_step, 40);
    assert_int_equal(fixture_generation(f, job)->source_rank, 1);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_repeated_commit_adds_its_node),
        TEST(old_snapshot_records_are_dropped),
        TEST(the_newest_committed_snapshots_are_listed),
        TEST(the_newest_committed_offer_is_the_source),
        TEST(a_later_generation_beats_a_later_step),
        TEST(offers_of_other_lineages_are_ignored),
        TEST(parts_are_committed_when_all_are_there),
        TEST(parts_without_shared_files_are_not_committed),
        TEST(a_part_that_cannot_be_written_fails_the_snapshot_for_all),
        TEST(a_part_that_waits_for_space_does_not_fail_the_snapshot),
        TEST(a_failed_part_is_known_again_after_a_restart),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
