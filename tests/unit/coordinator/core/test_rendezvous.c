/* Join, bootstrap, watch and snapshots: who may call them when, and that all ranks get the same answer. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
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

static void only_rank_0_is_asked_and_only_when_all_have_joined(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = two_ranks(f);
    uint64_t zero = fixture_join(f, job, 0);

    assert_null(fixture_reply(f, zero));
    fixture_put(f, job, "early");
    assert_int_equal(fixture_reply(f, f->handles)->err.code, ERR_FAILED_PRECONDITION);
    uint64_t one = fixture_join(f, job, 1);
    assert_int_equal(fixture_reply(f, zero)->state, CORE_JOIN_BOOTSTRAP);
    assert_null(fixture_reply(f, one));
    fixture_put(f, job, "id");
    assert_int_equal(fixture_reply(f, one)->state, CORE_JOIN_READY);
    assert_int_equal(fixture_job(f, job), JOB_RUNNING);
    fixture_put(f, job, "id"); /* a retry */
    assert_int_equal(fixture_reply(f, f->handles)->err.code, ERR_OK);
    fixture_put(f, job, "other");
    assert_int_equal(fixture_reply(f, f->handles)->err.code, ERR_FAILED_PRECONDITION);
}

static void a_join_has_at_most_64_offers(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = two_ranks(f);
    struct core_offer offers[65];

    for (int i = 0; i < 65; i++)
        offers[i] =
            (struct core_offer){.job = job, .generation = 1, .step = i + 1, .digest = "d", .path = "/a"};
    uint64_t call = fixture_join_with(f, job, 0, offers, 65);
    assert_int_equal(fixture_reply(f, call)->err.code, ERR_INVALID_ARGUMENT);
    assert_non_null(strstr(fixture_reply(f, call)->err.msg, "at most 64 offers"));
    fixture_join_with(f, job, 0, offers, 64);
    fixture_join(f, job, 1);
    fixture_put(f, job, "id");
    assert_int_equal(fixture_job(f, job), JOB_RUNNING);
}

static void a_bootstrap_id_has_1_to_4096_bytes(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = two_ranks(f);
    struct core_event event = {.kind = CORE_PUT_BOOTSTRAP};
    static uint8_t bytes[4097];

    fixture_join(f, job, 0);
    fixture_join(f, job, 1);
    for (size_t i = 0; i < sizeof(bytes); i++)
        bytes[i] = (uint8_t)(i * 7);
    event.member.job = job;
    event.member.spawn = fixture_spawn(f, job, 0);
    event.bootstrap.generation = 1;
    event.bootstrap.bytes = bytes;
    const size_t sizes[] = {0, 4097, 4096};
    for (size_t i = 0; i < 3; i++) {
        event.call = ++f->handles;
        event.bootstrap.size = sizes[i];
        core_event(f->core, &event, f->now, &f->out);
        assert_int_equal(fixture_reply(f, event.call)->err.code, i < 2 ? ERR_INVALID_ARGUMENT : ERR_OK);
    }
    assert_memory_equal(fixture_generation(f, job)->bootstrap, bytes, 4096);
}

static void the_join_answer_survives_a_coordinator_restart(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = two_ranks(f);
    uint8_t key[32];

    fixture_join(f, job, 0);
    fixture_join(f, job, 1);
    memcpy(key, fixture_generation(f, job)->key, sizeof(key));
    fixture_restart(f); /* between ready and the bootstrap id */
    uint64_t zero = fixture_join(f, job, 0);
    assert_int_equal(fixture_reply(f, zero)->state, CORE_JOIN_BOOTSTRAP);
    fixture_put(f, job, "id");
    fixture_restart(f);
    uint64_t one = fixture_join(f, job, 1);
    assert_int_equal(fixture_reply(f, one)->state, CORE_JOIN_READY);
    assert_memory_equal(fixture_generation(f, job)->key, key, sizeof(key));
    assert_memory_equal(fixture_generation(f, job)->bootstrap, "id", 2);
}

static void a_waiting_join_is_answered_pending(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = two_ranks(f);
    uint64_t zero = fixture_join(f, job, 0);

    fixture_pass_beating(f, 19000, "box1 box2");
    assert_null(fixture_reply(f, zero));
    fixture_pass_beating(f, 1500, "box1 box2");
    assert_int_equal(fixture_reply(f, zero)->state, CORE_JOIN_PENDING);
}

static void a_repeated_join_replaces_the_first(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = two_ranks(f);
    uint64_t first = fixture_join(f, job, 0), again = fixture_join(f, job, 0);

    assert_int_equal(fixture_reply(f, first)->state, CORE_JOIN_PENDING);
    fixture_join(f, job, 1);
    assert_int_equal(fixture_reply(f, again)->state, CORE_JOIN_BOOTSTRAP);
}

/* A call that is gone is looked for at the spawn that made it, not at all spawns. */
static void a_join_whose_connection_is_lost_is_not_answered(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = two_ranks(f);
    uint64_t first = fixture_join(f, job, 0), again = fixture_join(f, job, 0);

    fixture_clear(f);
    fixture_gone(f, job, 0, first); /* a later one has replaced it */
    fixture_gone(f, job, 1, again); /* not its own */
    fixture_join(f, job, 1);
    assert_non_null(fixture_reply(f, again));
    assert_int_equal(fixture_reply(f, again)->state, CORE_JOIN_BOOTSTRAP);
    fixture_put(f, job, "id");

    fixture_exit(f, job, 1, 1, 0);
    fixture_exit(f, job, 0, 75, 0);
    fixture_pass_beating(f, 5000, "box1 box2");
    fixture_all_run(f, "box1");
    fixture_all_run(f, "box2");
    first = fixture_join(f, job, 0);
    fixture_gone(f, job, 0, first);
    fixture_join(f, job, 1);
    assert_int_equal(fixture_generation(f, job)->number, 2);
    assert_int_equal(fixture_generation(f, job)->state, GENERATION_READY);
    assert_null(fixture_reply(f, first));
}

static void check_rank(const struct core_fixture *f, int64_t job, int rank, const char *version,
                       const char *computes)
{
    struct core_job_status status;
    struct err e;

    assert_int_equal(core_job_status(f->core, job, true, &status, &e), ERR_OK);
    const struct rank_record *r = status.ranks[rank].rank;
    assert_string_equal(r->version ? r->version : "", version);
    assert_string_equal(r->computes ? r->computes : "", computes);
    core_job_status_release(&status);
}

static void a_rank_is_known_by_its_program_and_its_device(void **state)
{
    struct core_fixture *f = *state;
    char most[97];
    fixture_node(f, "box1", 2);
    int64_t job = fixture_submit(f, "procs_per_node: 2\n" TRAIN);

    fixture_all_run(f, "box1");
    f->version = "0.1.0";
    f->computes = "cpu:avx2";
    fixture_join(f, job, 0);
    check_rank(f, job, 0, "0.1.0", "cpu:avx2");
    check_rank(f, job, 1, "", "");
    fixture_restart(f);
    fixture_hello(f, "box1", "box1", 2, 0);
    check_rank(f, job, 0, "0.1.0", "cpu:avx2");
    memset(most, 'x', sizeof(most));
    most[96] = '\0';
    CLEANUP(free_text) char *more = xasprintf("%syz", most);
    f->version = ""; /* an older worker */
    f->computes = more;
    fixture_join(f, job, 1);
    check_rank(f, job, 1, "", most);
}

static void ranks_that_do_not_join_are_named(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = two_ranks(f);
    uint64_t zero = fixture_join(f, job, 0);

    for (int i = 0; i < 3; i++) {
        fixture_pass_beating(f, 19000, "box1 box2");
        zero = fixture_join(f, job, 0);
    }
    fixture_pass_beating(f, 4000, "box1 box2");
    assert_true(fixture_said(f, "rank 1 on box2 did not join within 60 s\n"));
    assert_int_equal(fixture_reply(f, zero)->err.code, ERR_ABORTED);
    assert_int_equal(core_job(f->core, job)->restarts_used, 1);
}

static void an_exit_before_joining_closes_the_generation(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = two_ranks(f);
    uint64_t zero = fixture_join(f, job, 0);

    fixture_exit(f, job, 1, 0, 0);
    assert_int_equal(fixture_reply(f, zero)->err.code, ERR_ABORTED);
    assert_true(fixture_said(f, "rank 1 exited on box2 before all ranks had joined"));
    assert_int_equal(fixture_job(f, job), JOB_RECOVERING);
}

static void watch_reports_the_end_of_a_membership(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = two_ranks(f);
    int64_t old = fixture_spawn(f, job, 0);

    fixture_join(f, job, 0);
    fixture_join(f, job, 1);
    fixture_put(f, job, "id");
    uint64_t watch = fixture_watch(f, job, old);
    assert_true(fixture_reply(f, watch)->member);
    fixture_exit(f, job, 1, 1, 0);
    assert_false(fixture_reply(f, watch)->member);
    assert_int_equal(fixture_commit(f, job, old, 1, 5, "d"), ERR_ABORTED);
    assert_false(fixture_reply(f, fixture_watch(f, job, old))->member);
}

/* A worker's connection may be lost without word, so its Watch of before may still be open. */
static void a_later_watch_replaces_the_one_before(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = two_ranks(f);
    int64_t zero = fixture_spawn(f, job, 0);

    fixture_join(f, job, 0);
    fixture_join(f, job, 1);
    fixture_put(f, job, "id");
    uint64_t first = fixture_watch(f, job, zero), other = fixture_watch(f, job, fixture_spawn(f, job, 1));
    uint64_t second = fixture_watch(f, job, zero);
    assert_int_equal(fixture_reply(f, first)->err.code, ERR_UNAVAILABLE);
    fixture_clear(f);
    fixture_exit(f, job, 1, 1, 0);
    assert_null(fixture_reply(f, first));
    assert_false(fixture_reply(f, second)->member);
    assert_false(fixture_reply(f, other)->member);
}

static void tokens_are_found_by_their_hash(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = two_ranks(f);
    struct core_wish wish;
    struct err e;
    uint8_t token[32];

    assert_int_equal(core_wish(f->core, "box1", &wish, &e), ERR_OK);
    memcpy(token, wish.groups[0].spawns[0].token, sizeof(token));
    core_wish_release(&wish);
    const struct spawn_record *s = core_find_token(f->core, token, sizeof(token));
    assert_non_null(s);
    assert_int_equal(s->job, job);
    assert_int_equal(s->spawn, fixture_spawn(f, job, 0));
    assert_false(s->revoked);
    fixture_exit(f, job, 0, 1, 0);
    assert_true(core_find_token(f->core, token, sizeof(token))->revoked);
    token[31] ^= 1;
    assert_null(core_find_token(f->core, token, sizeof(token)));
    assert_null(core_find_token(f->core, token, 31));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(only_rank_0_is_asked_and_only_when_all_have_joined),
        TEST(a_join_has_at_most_64_offers),
        TEST(a_bootstrap_id_has_1_to_4096_bytes),
        TEST(the_join_answer_survives_a_coordinator_restart),
        TEST(a_waiting_join_is_answered_pending),
        TEST(a_repeated_join_replaces_the_first),
        TEST(a_join_whose_connection_is_lost_is_not_answered),
        TEST(a_rank_is_known_by_its_program_and_its_device),
        TEST(ranks_that_do_not_join_are_named),
        TEST(an_exit_before_joining_closes_the_generation),
        TEST(watch_reports_the_end_of_a_membership),
        TEST(a_later_watch_replaces_the_one_before),
        TEST(tokens_are_found_by_their_hash),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
