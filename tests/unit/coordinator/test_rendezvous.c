/* Join, bootstrap, watch, snapshots: who may, when, and that everybody gets the same. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "core_test.h"

#define SNAPSHOTS "  snapshot: {dir: /out, every: 10}\n"

static int64_t two_ranks(struct bench *b)
{
    bench_node(b, "box1", 1);
    bench_node(b, "box2", 1);
    int64_t job = bench_submit(b, "nodes: 2\nmax_restarts: 3\n" TRAIN SNAPSHOTS);
    bench_all_run(b, "box1");
    bench_all_run(b, "box2");
    return job;
}

static void only_rank_0_is_asked_and_only_when_all_are_here(void **state)
{
    struct bench *b = *state;
    int64_t job = two_ranks(b);
    uint64_t zero = bench_join(b, job, 0);

    assert_null(bench_reply(b, zero));
    bench_put(b, job, "early");
    assert_int_equal(bench_reply(b, b->handles)->err.code, ERR_FAILED_PRECONDITION);
    uint64_t one = bench_join(b, job, 1);
    assert_int_equal(bench_reply(b, zero)->state, CORE_JOIN_BOOTSTRAP);
    assert_null(bench_reply(b, one));
    bench_put(b, job, "id");
    assert_int_equal(bench_reply(b, one)->state, CORE_JOIN_READY);
    assert_int_equal(bench_job(b, job), JOB_RUNNING);
    bench_put(b, job, "id"); /* a retry */
    assert_int_equal(bench_reply(b, b->handles)->err.code, ERR_OK);
    bench_put(b, job, "other");
    assert_int_equal(bench_reply(b, b->handles)->err.code, ERR_FAILED_PRECONDITION);
}

static void a_bootstrap_id_is_any_1_to_4096_bytes(void **state)
{
    struct bench *b = *state;
    int64_t job = two_ranks(b);
    struct core_event event = {.kind = CORE_PUT_BOOTSTRAP};
    static uint8_t bytes[4097];

    bench_join(b, job, 0);
    bench_join(b, job, 1);
    for (size_t i = 0; i < sizeof(bytes); i++)
        bytes[i] = (uint8_t)(i * 7);
    event.member.job = job;
    event.member.spawn = bench_spawn(b, job, 0);
    event.bootstrap.generation = 1;
    event.bootstrap.bytes = bytes;
    const size_t sizes[] = {0, 4097, 4096};
    for (size_t i = 0; i < 3; i++) {
        event.call = ++b->handles;
        event.bootstrap.size = sizes[i];
        core_event(b->core, &event, b->now, &b->out);
        assert_int_equal(bench_reply(b, event.call)->err.code, i < 2 ? ERR_INVALID_ARGUMENT : ERR_OK);
    }
    assert_memory_equal(bench_generation(b, job)->bootstrap, bytes, 4096);
}

static void the_answer_is_the_same_after_a_restart_of_ours(void **state)
{
    struct bench *b = *state;
    int64_t job = two_ranks(b);
    uint8_t key[32];

    bench_join(b, job, 0);
    bench_join(b, job, 1);
    memcpy(key, bench_generation(b, job)->key, sizeof(key));
    bench_restart(b); /* between ready and the bootstrap id */
    uint64_t zero = bench_join(b, job, 0);
    assert_int_equal(bench_reply(b, zero)->state, CORE_JOIN_BOOTSTRAP);
    bench_put(b, job, "id");
    bench_restart(b);
    uint64_t one = bench_join(b, job, 1);
    assert_int_equal(bench_reply(b, one)->state, CORE_JOIN_READY);
    assert_memory_equal(bench_generation(b, job)->key, key, sizeof(key));
    assert_memory_equal(bench_generation(b, job)->bootstrap, "id", 2);
}

static void a_join_ends_by_itself(void **state)
{
    struct bench *b = *state;
    int64_t job = two_ranks(b);
    uint64_t zero = bench_join(b, job, 0);

    bench_pass_beating(b, 19000, "box1 box2");
    assert_null(bench_reply(b, zero));
    bench_pass_beating(b, 1500, "box1 box2");
    assert_int_equal(bench_reply(b, zero)->state, CORE_JOIN_PENDING);
}

static void a_repeated_join_takes_over(void **state)
{
    struct bench *b = *state;
    int64_t job = two_ranks(b);
    uint64_t first = bench_join(b, job, 0), again = bench_join(b, job, 0);

    assert_int_equal(bench_reply(b, first)->state, CORE_JOIN_PENDING);
    bench_join(b, job, 1);
    assert_int_equal(bench_reply(b, again)->state, CORE_JOIN_BOOTSTRAP);
}

static void who_does_not_join_is_named(void **state)
{
    struct bench *b = *state;
    int64_t job = two_ranks(b);
    uint64_t zero = bench_join(b, job, 0);

    for (int i = 0; i < 3; i++) {
        bench_pass_beating(b, 19000, "box1 box2");
        zero = bench_join(b, job, 0);
    }
    bench_pass_beating(b, 4000, "box1 box2");
    assert_true(bench_said(b, "rank 1 on box2 did not join within 60 s\n"));
    assert_int_equal(bench_reply(b, zero)->err.code, ERR_ABORTED);
    assert_int_equal(core_job(b->core, job)->restarts_used, 1);
}

static void a_member_that_exits_before_joining_closes_it(void **state)
{
    struct bench *b = *state;
    int64_t job = two_ranks(b);
    uint64_t zero = bench_join(b, job, 0);

    bench_exit(b, job, 1, 0, 0);
    assert_int_equal(bench_reply(b, zero)->err.code, ERR_ABORTED);
    assert_true(bench_said(b, "rank 1 exited on box2 before all had joined"));
    assert_int_equal(bench_job(b, job), JOB_RECOVERING);
}

static void a_stale_process_learns_that_it_is_one(void **state)
{
    struct bench *b = *state;
    int64_t job = two_ranks(b);
    int64_t old = bench_spawn(b, job, 0);

    bench_join(b, job, 0);
    bench_join(b, job, 1);
    bench_put(b, job, "id");
    uint64_t watch = bench_watch(b, job, old);
    assert_true(bench_reply(b, watch)->member);
    bench_exit(b, job, 1, 1, 0);
    assert_false(bench_reply(b, watch)->member);
    assert_int_equal(bench_commit(b, job, old, 1, 5, "d"), ERR_ABORTED);
    assert_false(bench_reply(b, bench_watch(b, job, old))->member);
}

static void tokens_are_known_by_their_hash(void **state)
{
    struct bench *b = *state;
    int64_t job = two_ranks(b);
    struct core_wish wish;
    struct err e;
    uint8_t token[32];

    assert_int_equal(core_wish(b->core, "box1", &wish, &e), ERR_OK);
    memcpy(token, wish.groups[0].spawns[0].token, sizeof(token));
    core_wish_release(&wish);
    const struct spawn_record *s = core_find_token(b->core, token, sizeof(token));
    assert_non_null(s);
    assert_int_equal(s->job, job);
    assert_int_equal(s->spawn, bench_spawn(b, job, 0));
    assert_false(s->revoked);
    bench_exit(b, job, 0, 1, 0);
    assert_true(core_find_token(b->core, token, sizeof(token))->revoked);
    token[31] ^= 1;
    assert_null(core_find_token(b->core, token, sizeof(token)));
    assert_null(core_find_token(b->core, token, 31));
}

static void a_commit_counts_once_and_knows_its_copies(void **state)
{
    struct bench *b = *state;
    struct core_job_status status;
    struct err e;
    int64_t job = two_ranks(b);

    assert_int_equal(bench_commit(b, job, bench_spawn(b, job, 0), 1, 10, "d"), ERR_FAILED_PRECONDITION);
    bench_join(b, job, 0);
    bench_join(b, job, 1);
    bench_put(b, job, "id");
    for (int i = 0; i < 2; i++) {
        assert_int_equal(bench_commit(b, job, bench_spawn(b, job, 0), 1, 10, "d"), ERR_OK);
        assert_int_equal(bench_commit(b, job, bench_spawn(b, job, 1), 1, 10, "d"), ERR_OK);
    }
    assert_int_equal(bench_commit(b, job, bench_spawn(b, job, 1), 1, 10, "other"), ERR_FAILED_PRECONDITION);
    assert_int_equal(core_job_status(b->core, job, false, &status, &e), ERR_OK);
    assert_int_equal(status.snapshot->step, 10);
    assert_int_equal(strv_len(status.snapshot->nodes), 2);
    core_job_status_release(&status);
    int64_t spawn = bench_spawn(b, job, 0);
    bench_exit(b, job, 1, 1, 0);
    assert_int_equal(bench_commit(b, job, spawn, 1, 10, "d"), ERR_OK); /* a retry of what is committed */
    assert_int_equal(bench_commit(b, job, spawn, 1, 11, "d2"), ERR_ABORTED);
}

static void old_snapshot_records_are_dropped(void **state)
{
    struct bench *b = *state;
    struct core_job_status status;
    struct err e;
    char digest[16];
    int64_t job = two_ranks(b);

    bench_join(b, job, 0);
    bench_join(b, job, 1);
    bench_put(b, job, "id");
    for (int step = 1; step <= 300; step++) {
        snprintf(digest, sizeof(digest), "d%d", step);
        assert_int_equal(bench_commit(b, job, bench_spawn(b, job, 0), 1, step, digest), ERR_OK);
    }
    assert_int_equal(b->kept.snapshot_count, 256);
    assert_int_equal(core_job_status(b->core, job, false, &status, &e), ERR_OK);
    assert_int_equal(status.snapshot->step, 300);
    core_job_status_release(&status);
}

static void rejoin(struct bench *b, int64_t job, const struct core_offer *zero, size_t zero_count,
                   const struct core_offer *one, size_t one_count)
{
    bench_join_with(b, job, 0, zero, zero_count);
    bench_join_with(b, job, 1, one, one_count);
}

static void the_newest_committed_offer_is_the_source(void **state)
{
    struct bench *b = *state;
    int64_t job = two_ranks(b);
    struct core_offer known10 = {.job = job, .generation = 1, .step = 10, .digest = "d10", .path = "/a"};
    struct core_offer known20 = {.job = job, .generation = 1, .step = 20, .digest = "d20", .path = "/b"};
    struct core_offer torn = {.job = job, .generation = 1, .step = 30, .digest = "d30", .path = "/c"};
    struct core_offer forged = {.job = job, .generation = 9, .step = 20, .digest = "else", .path = "/d"};
    const struct core_offer zero[] = {known10, torn, forged}, one[] = {known20, known10};

    rejoin(b, job, NULL, 0, NULL, 0);
    assert_int_equal(bench_generation(b, job)->source_rank, -1);
    bench_put(b, job, "id");
    bench_commit(b, job, bench_spawn(b, job, 0), 1, 10, "d10");
    bench_commit(b, job, bench_spawn(b, job, 1), 1, 20, "d20");
    bench_exit(b, job, 0, 1, 0);
    bench_all_obey(b, "box2");
    rejoin(b, job, zero, 3, one, 2);
    assert_int_equal(bench_generation(b, job)->source_rank, 1);
    assert_int_equal(bench_generation(b, job)->source_step, 20);
    assert_string_equal(bench_generation(b, job)->source_path, "/b");
    bench_put(b, job, "id");
    bench_exit(b, job, 0, 1, 0);
    bench_all_obey(b, "box2");
    bench_pass_beating(b, 2000, "box1 box2");
    rejoin(b, job, one, 2, one, 2); /* a tie goes to the lowest rank */
    assert_int_equal(bench_generation(b, job)->source_rank, 0);
}

static void a_later_generation_beats_a_later_step(void **state)
{
    struct bench *b = *state;
    int64_t job = two_ranks(b);

    rejoin(b, job, NULL, 0, NULL, 0);
    bench_put(b, job, "id");
    struct core_offer first = {.job = job, .generation = 1, .step = 20, .digest = "d20", .path = "/a"};
    bench_commit(b, job, bench_spawn(b, job, 0), 1, 20, "d20");
    bench_commit(b, job, bench_spawn(b, job, 1), 1, 40, "d40"); /* only box2 has it, and cannot read it */
    bench_exit(b, job, 0, 1, 0);
    bench_all_obey(b, "box2");
    rejoin(b, job, &first, 1, NULL, 0);
    assert_int_equal(bench_generation(b, job)->source_step, 20);
    bench_put(b, job, "id");
    bench_commit(b, job, bench_spawn(b, job, 0), 2, 30, "d30");
    bench_exit(b, job, 0, 1, 0);
    bench_all_obey(b, "box2");
    bench_pass_beating(b, 2000, "box1 box2");
    struct core_offer old = {.job = job, .generation = 1, .step = 40, .digest = "d40", .path = "/a"};
    struct core_offer fresh = {.job = job, .generation = 2, .step = 30, .digest = "d30", .path = "/b"};
    rejoin(b, job, &old, 1, &fresh, 1);
    assert_int_equal(bench_generation(b, job)->source_step, 30);
}

static void only_this_lineage_is_believed(void **state)
{
    struct bench *b = *state;
    int64_t job = two_ranks(b);
    struct core_offer stranger = {
        .job = 77, .generation = 1, .step = 50, .digest = "d", .path = "/a", .committed = true};
    struct core_offer own = {
        .job = job, .generation = 1, .step = 40, .digest = "d", .path = "/b", .committed = true};

    rejoin(b, job, &stranger, 1, &own, 1);
    assert_int_equal(bench_generation(b, job)->source_step, 40);
    assert_int_equal(bench_generation(b, job)->source_rank, 1);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, bench_setup, bench_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(only_rank_0_is_asked_and_only_when_all_are_here),
        TEST(a_bootstrap_id_is_any_1_to_4096_bytes),
        TEST(the_answer_is_the_same_after_a_restart_of_ours),
        TEST(a_join_ends_by_itself),
        TEST(a_repeated_join_takes_over),
        TEST(who_does_not_join_is_named),
        TEST(a_member_that_exits_before_joining_closes_it),
        TEST(a_stale_process_learns_that_it_is_one),
        TEST(tokens_are_known_by_their_hash),
        TEST(a_commit_counts_once_and_knows_its_copies),
        TEST(old_snapshot_records_are_dropped),
        TEST(the_newest_committed_offer_is_the_source),
        TEST(a_later_generation_beats_a_later_step),
        TEST(only_this_lineage_is_believed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
