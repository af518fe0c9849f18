/* Commands commit snapshots by their paths, and agree on a step before they stop. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "tests/unit/coordinator/core/core_fixture.h"

struct answer {
    int64_t commit, allowed, stop_step;
    char error[256];
    bool stale, agrees;
};

/* What the wish of the rank's node answers. */
static struct answer answer_of(struct core_fixture *f, int64_t job, int rank)
{
    struct core_wish wish;
    struct answer out = {0};
    struct err e = {0};

    assert_int_equal(core_wish(f->core, fixture_node_of(f, job, rank), &wish, &e), ERR_OK);
    for (size_t g = 0; g < wish.group_count; g++)
        for (size_t i = 0; i < wish.groups[g].spawn_count; i++) {
            const struct core_wish_spawn *s = &wish.groups[g].spawns[i];
            if (s->spawn != fixture_spawn(f, job, rank))
                continue;
            out.commit = s->answer.commit;
            out.allowed = s->answer.allowed;
            out.stop_step = s->answer.stop_step;
            out.stale = s->answer.stale;
            out.agrees = s->answer.agrees;
            if (s->answer.error)
                strncpy(out.error, s->answer.error, sizeof(out.error) - 1);
        }
    core_wish_release(&wish);
    return out;
}

static const char *resume_path(struct core_fixture *f, int64_t job)
{
    const struct generation_record *g = fixture_generation(f, job);

    return g->source_path ? g->source_path : "none";
}

/* Whether both nodes are told that the programs must not look for snapshots of their own. */
static bool is_from_scratch(struct core_fixture *f, int64_t job)
{
    bool told[2] = {false, false};

    for (int i = 0; i < 2; i++) {
        struct core_wish wish;
        struct err e;
        assert_int_equal(core_wish(f->core, i ? "box2" : "box1", &wish, &e), ERR_OK);
        for (size_t k = 0; k < wish.group_count; k++)
            if (wish.groups[k].job == job)
                told[i] = wish.groups[k].from_scratch;
        core_wish_release(&wish);
    }
    assert_int_equal(told[0], told[1]);
    return told[0];
}

static void rank_asks(struct core_fixture *f, int64_t job, int rank, struct spawn_asks what)
{
    fixture_fact(f, job, rank, (struct spawn_fact){.state = SPAWN_RUNNING, .pid = 1, .asks = what});
}

static struct answer rank_commits(struct core_fixture *f, int64_t job, int rank, int64_t number, int64_t step,
                                  const char *path)
{
    rank_asks(f, job, rank, (struct spawn_asks){.commit = number, .step = step, .path = path});
    return answer_of(f, job, rank);
}

static int64_t two_ranks(struct core_fixture *f, const char *file)
{
    fixture_node(f, "box1", 1);
    fixture_node(f, "box2", 1);
    int64_t job = fixture_submit(f, file);
    fixture_form(f, job);
    return job;
}

static void both_return(struct core_fixture *f)
{
    fixture_restart(f);
    fixture_hello(f, "box1", "box1", 1, 0);
    fixture_hello(f, "box2", "box2", 1, 0);
}

static void the_next_generation_starts_from_the_last_commit(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = two_ranks(f, "nodes: 2\nmax_restarts: 3\n");

    assert_string_equal(resume_path(f, job), "none");
    struct answer a = rank_commits(f, job, 0, 1, 10, "/data/a");
    assert_true(a.commit == 1 && !*a.error);
    assert_int_equal(answer_of(f, job, 1).commit, 0);
    a = rank_commits(f, job, 1, 1, 20, "/data/b");
    assert_true(a.commit == 1 && !*a.error);
    both_return(f); /* and the facts repeat the commits */
    a = rank_commits(f, job, 1, 1, 20, "/data/b");
    assert_true(a.commit == 1 && !*a.error);
    assert_string_equal(resume_path(f, job), "none"); /* it does not change while the generation runs */
    fixture_exit(f, job, 0, 0, 9);
    fixture_exit(f, job, 1, 0, 15);
    assert_int_equal(fixture_generation(f, job)->number, 2);
    assert_string_equal(resume_path(f, job), "/data/b");
    assert_int_equal(fixture_generation(f, job)->source_step, 20);
}

/* The coordinator ends after the transaction and before the answer, so the fact repeats the commit of /data/a. It is
 * acknowledged again, and the commit of /data/b, of the same step or a later one, stays the newest. */
static void check_repeated_commit(struct core_fixture *f, int64_t step_of_b)
{
    int64_t job = two_ranks(f, "nodes: 2\nmax_restarts: 3\n");

    rank_commits(f, job, 0, 1, 10, "/data/a");
    rank_commits(f, job, 1, 1, step_of_b, "/data/b");
    both_return(f);
    struct answer a = rank_commits(f, job, 0, 1, 10, "/data/a");
    assert_true(a.commit == 1 && !*a.error);
    fixture_exit(f, job, 0, 0, 9);
    fixture_exit(f, job, 1, 0, 15);
    assert_string_equal(resume_path(f, job), "/data/b");
}

static void a_durable_commit_is_acknowledged_after_a_later_step(void **state)
{
    check_repeated_commit(*state, 20);
}

static void a_durable_commit_is_acknowledged_after_its_generation(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = two_ranks(f, "nodes: 2\nmax_restarts: 3\n");

    rank_commits(f, job, 0, 1, 10, "/data/a");
    both_return(f);
    fixture_exit(f, job, 1, 0, 9);
    struct answer a = rank_commits(f, job, 0, 1, 10, "/data/a");
    assert_true(a.commit == 1 && !*a.error && !a.stale);
    a = rank_commits(f, job, 0, 2, 20, "/data/b");
    assert_true(a.commit == 2 && a.stale);
}

static void a_repeated_commit_does_not_replace_a_newer_one(void **state)
{
    check_repeated_commit(*state, 10);
}

/* What was asked while the coordinator was away is a new commit. */
static void a_commit_after_a_restart_replaces_the_same_step(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = two_ranks(f, "nodes: 2\nmax_restarts: 3\n");

    rank_commits(f, job, 0, 1, 10, "/data/a");
    both_return(f);
    struct answer a = rank_commits(f, job, 0, 2, 10, "/data/c");
    assert_true(a.commit == 2 && !*a.error);
    fixture_exit(f, job, 0, 0, 9);
    fixture_exit(f, job, 1, 0, 15);
    assert_string_equal(resume_path(f, job), "/data/c");
}

static void an_earlier_step_is_refused_and_the_same_replaces(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = two_ranks(f, "nodes: 2\nmax_restarts: 3\n");

    rank_commits(f, job, 0, 1, 10, "/data/a");
    struct answer a = rank_commits(f, job, 0, 2, 5, "/data/b");
    assert_string_equal(a.error, "step 5 comes before step 10, which this generation has committed");
    assert_false(a.stale);
    a = rank_commits(f, job, 0, 3, 10, "/data/c");
    assert_true(a.commit == 3 && !*a.error);
    fixture_exit(f, job, 0, 0, 9);
    fixture_exit(f, job, 1, 0, 15);
    assert_string_equal(resume_path(f, job), "/data/c");
    fixture_form(f, job);
    /* a new generation may go back */
    a = rank_commits(f, job, 0, 1, 5, "/data/d");
    assert_true(a.commit == 1 && !*a.error);
    fixture_exit(f, job, 0, 0, 9);
    fixture_exit(f, job, 1, 0, 15);
    fixture_pass_beating(f, 3000, "box1 box2");
    assert_string_equal(resume_path(f, job), "/data/d");
}

static void an_ended_generation_cannot_commit(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = two_ranks(f, "nodes: 2\nmax_restarts: 3\n");

    rank_commits(f, job, 0, 1, 10, "/data/a");
    fixture_exit(f, job, 1, 0, 9);
    struct answer a = rank_commits(f, job, 0, 2, 20, "/data/b");
    assert_string_equal(a.error, "generation 1 can no longer commit; the current generation is 1");
    assert_true(a.commit == 2 && a.stale);
    fixture_exit(f, job, 0, 0, 15);
    assert_string_equal(resume_path(f, job), "/data/a");
}

static void a_command_can_start_from_scratch(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = two_ranks(f, "nodes: 2\nmax_restarts: 3\n");

    assert_int_equal(fixture_from_scratch(f, job), ERR_FAILED_PRECONDITION); /* it has committed nothing */
    rank_commits(f, job, 0, 1, 10, "/data/a");
    assert_int_equal(fixture_from_scratch(f, job), ERR_OK);
    assert_false(is_from_scratch(f, job)); /* generation 1, which is stopping */
    fixture_all_obey(f, "box1");
    fixture_all_obey(f, "box2");
    assert_int_equal(fixture_generation(f, job)->number, 2);
    assert_string_equal(resume_path(f, job), "none");
    fixture_form(f, job);
    assert_true(is_from_scratch(f, job));
    both_return(f);
    assert_true(is_from_scratch(f, job));
    /* until it commits */
    rank_commits(f, job, 0, 1, 5, "/data/b");
    fixture_exit(f, job, 0, 0, 9);
    fixture_exit(f, job, 1, 0, 15);
    assert_int_equal(fixture_generation(f, job)->number, 3);
    assert_string_equal(resume_path(f, job), "/data/b");
    assert_false(is_from_scratch(f, job));
}

static void rank_promises(struct core_fixture *f, int64_t job, int rank, int64_t step)
{
    rank_asks(f, job, rank, (struct spawn_asks){.heeds = true, .promise = step});
}

/* Both ranks have called should_stop, and the job is cancelled. */
static int64_t draining_job(struct core_fixture *f)
{
    int64_t job = two_ranks(f, "nodes: 2\n");

    rank_promises(f, job, 0, 0);
    fixture_cancel(f, job, false);
    return job;
}

static void ranks_stop_at_the_largest_promise(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = draining_job(f);

    /* the rank that has not asked yet agrees as well */
    assert_int_equal(fixture_stop(f, job, 1), CORE_STOP_SNAPSHOT);
    assert_true(answer_of(f, job, 0).agrees && answer_of(f, job, 1).agrees);
    rank_promises(f, job, 0, 10);
    rank_promises(f, job, 0, 30); /* it came to step 10 earlier than rank 1 promised anything */
    struct answer a = answer_of(f, job, 0);
    assert_true(a.allowed == 30 && a.stop_step == 0);
    rank_promises(f, job, 1, 12);
    assert_int_equal(answer_of(f, job, 0).stop_step, 30);
    assert_int_equal(answer_of(f, job, 1).stop_step, 30);
    rank_promises(f, job, 1, 40); /* sent before it heard */
    assert_int_equal(answer_of(f, job, 1).stop_step, 30);
    assert_true(fixture_said(f, "all ranks of generation 1 stop at step 30"));
}

static void a_restarted_coordinator_keeps_the_step(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = draining_job(f);

    rank_promises(f, job, 0, 10);
    rank_promises(f, job, 1, 12);
    fixture_restart(f);
    fixture_hello(f, "box2", "box2", 1, 0);
    fixture_all_run(f, "box2"); /* without a promise */
    assert_int_equal(answer_of(f, job, 1).stop_step, 12);
    assert_true(answer_of(f, job, 1).agrees);
}

static void a_rank_that_has_ended_is_not_waited_for(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = draining_job(f);

    rank_promises(f, job, 0, 10);
    assert_int_equal(answer_of(f, job, 0).stop_step, 0);
    fixture_exit(f, job, 1, 0, 0);
    assert_int_equal(answer_of(f, job, 0).stop_step, 10);
}

static void others_get_the_signal(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = two_ranks(f, "nodes: 2\n");

    fixture_cancel(f, job, false);
    assert_int_equal(fixture_stop(f, job, 0), CORE_STOP_TERM);
    assert_false(answer_of(f, job, 0).agrees);
}

static void a_drained_node_moves_a_command_that_asks(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = two_ranks(f, "nodes: 2\n");

    fixture_operator(f, CORE_DRAIN, "box1");
    assert_int_equal(fixture_stop(f, job, 0), CORE_STOP_NONE); /* it may have nothing to continue from */
    fixture_operator(f, CORE_UNDRAIN, "box1");
    rank_promises(f, job, 1, 0);
    fixture_operator(f, CORE_DRAIN, "box1");
    assert_int_equal(fixture_stop(f, job, 0), CORE_STOP_SNAPSHOT);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(the_next_generation_starts_from_the_last_commit),
        TEST(a_durable_commit_is_acknowledged_after_a_later_step),
        TEST(a_durable_commit_is_acknowledged_after_its_generation),
        TEST(a_repeated_commit_does_not_replace_a_newer_one),
        TEST(a_commit_after_a_restart_replaces_the_same_step),
        TEST(an_earlier_step_is_refused_and_the_same_replaces),
        TEST(an_ended_generation_cannot_commit),
        TEST(a_command_can_start_from_scratch),
        TEST(ranks_stop_at_the_largest_promise),
        TEST(a_restarted_coordinator_keeps_the_step),
        TEST(a_rank_that_has_ended_is_not_waited_for),
        TEST(others_get_the_signal),
        TEST(a_drained_node_moves_a_command_that_asks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
