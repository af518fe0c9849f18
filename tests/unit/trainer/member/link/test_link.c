/* Tests a worker's link to the coordinator against a fake coordinator: joining a generation, watching for its
 * end, and a coordinator that moves or cannot be reached. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"
#include "tests/unit/trainer/member/link/fake_coordinator.h"
#include "trainer/member/link/commit.h"
#include "trainer/member/link/join.h"
#include "trainer/member/link/watch.h"

static const struct link_offer offer = {.job = 5, .step = 200, .path = "/snap/200", .digest = "ab"};
static char *const unusable[] = {(char *)"/snap/100: damaged", NULL};
static const struct link_join plain_join = {.address = (const uint8_t *)"here",
                                            .address_size = 4,
                                            .offers = &offer,
                                            .offer_count = 1,
                                            .unusable = unusable};
static const struct link_snapshot snapshot = {
    .step = 120, .bytes = 99, .digest = "cafe", .path = "/snap/120"};

/* ---- joining */

static void join_waits_brings_the_bootstrap_id_and_gets_the_group(void **state)
{
    struct link *link = worker_link_open();
    struct link_group g;
    struct err e = {0};

    (void)state;
    fake.pending = 2;
    fake_coordinator_open();
    assert_int_equal(link_join(link, link_first_member(link), &plain_join, &g, &e), ERR_OK);
    assert_int_equal(fake.joins, 4); /* two pending, one bootstrap, one ready */
    assert_int_equal(fake.bootstraps, 1);
    assert_int_equal(g.bootstrap_size, 128);
    assert_int_equal(g.scratch_generation, 3);
    assert_string_equal(fake.unusable, "/snap/100: damaged");
    assert_memory_equal(g.bootstrap, fake.bootstrap, 128);
    assert_int_equal(g.world_size, 2);
    assert_int_equal(g.peers[1].node_rank, 1);
    assert_string_equal(g.peers[1].node, "box");
    assert_memory_equal(g.peers[0].address, "here", 4);
    assert_int_equal(g.key[31], 7);
    assert_int_equal(g.source_rank, 1);
    assert_int_equal(g.source.step, 300);
    assert_string_equal(g.source.path, "/snap/300");
    assert_string_equal(fake.offered, "/snap/200@200");
    link_group_release(&g);
    link_close(link);
    fake_coordinator_close();
}

static enum err_code make_seven(void *arg, int world_size, uint8_t *out, size_t cap, size_t *size,
                                struct err *e)
{
    (void)e;
    assert_int_equal(world_size, 2);
    assert_int_equal(cap, 4096);
    memcpy(out, "seven..", 7);
    *size = 7;
    ++*(int *)arg;
    return ERR_OK;
}

static void the_caller_makes_the_bootstrap_id_once(void **state)
{
    struct link *link = worker_link_open();
    struct link_join join = plain_join;
    struct link_group g;
    struct err e = {0};
    int made = 0;

    (void)state;
    join.make_bootstrap = make_seven;
    join.bootstrap_arg = &made;
    fake_coordinator_open();
    assert_int_equal(link_join(link, link_first_member(link), &join, &g, &e), ERR_OK);
    assert_int_equal(made, 1);
    assert_int_equal(g.bootstrap_size, 7);
    assert_memory_equal(g.bootstrap, "seven..", 7);
    link_group_release(&g);
    link_close(link);
    fake_coordinator_close();
}

struct joiner {
    struct link *link;
    const struct link_member *as; /* NULL: the member that the environment describes */
    enum err_code rc;
    struct link_group group;
    atomic_bool done;
};

static void *join_in_a_thread(void *arg)
{
    struct joiner *j = arg;
    struct err e = {0};

    j->rc = link_join(j->link, j->as ? j->as : link_first_member(j->link), &plain_join, &j->group, &e);
    atomic_store(&j->done, true);
    return NULL;
}

static void join_waits_for_a_coordinator_that_is_away(void **state)
{
    struct joiner j = {.link = worker_link_open()};
    pthread_t thread;

    (void)state;
    assert_int_equal(pthread_create(&thread, NULL, join_in_a_thread, &j), 0);
    fake_coordinator_open();
    pthread_join(thread, NULL);
    assert_int_equal(j.rc, ERR_OK);
    link_group_release(&j.group);
    link_close(j.link);
    fake_coordinator_close();
}

static void join_can_be_cancelled(void **state)
{
    struct joiner j = {.link = worker_link_open()};
    pthread_t thread;

    (void)state;
    assert_int_equal(pthread_create(&thread, NULL, join_in_a_thread, &j), 0);
    link_cancel(j.link);
    pthread_join(thread, NULL);
    assert_int_equal(j.rc, ERR_CANCELLED);
    link_close(j.link);
}

static void a_refusal_is_not_retried(void **state)
{
    static const enum err_code codes[] = {ERR_ABORTED, ERR_FAILED_PRECONDITION, ERR_PERMISSION_DENIED};
    struct link *link = worker_link_open();
    struct link_group g;
    struct err e = {0};

    (void)state;
    fake_coordinator_open();
    for (size_t i = 0; i < 3; i++) {
        fake.refuse = (int)codes[i];
        assert_int_equal(link_join(link, link_first_member(link), &plain_join, &g, &e), codes[i]);
        assert_int_equal(fake.joins, i + 1);
    }
    link_close(link);
    fake_coordinator_close();
}

static void the_token_is_read_once_and_sent(void **state)
{
    struct link *link = worker_link_open();
    struct link_group g;
    struct err e = {0};

    (void)state;
    assert_null(getenv("DDP_TOKEN_FD"));
    link_close(link);
    worker_give_token("wrong", 5);
    fake_coordinator_open();
    assert_int_equal(link_open(&link, false, &e), ERR_OK);
    assert_int_equal(link_join(link, link_first_member(link), &plain_join, &g, &e), ERR_UNAUTHENTICATED);
    assert_int_equal(fake.joins, 0);
    link_close(link);
    fake_coordinator_close();
}

/* ---- watching */

static atomic_int stale_calls;
static void on_stale(void *arg, int64_t generation)
{
    assert_ptr_equal(arg, &stale_calls);
    assert_int_equal(generation, 4);
    atomic_fetch_add(&stale_calls, 1);
}

static void watch_outlives_the_coordinator(void **state)
{
    struct link *link = worker_link_open();
    struct err e = {0};

    (void)state;
    stale_calls = 0;
    assert_int_equal(link_watch(link, on_stale, &stale_calls, &e), ERR_OK);
    for (int life = 1; life <= 3; life++) {
        fake_coordinator_open();
        WAIT_FOR(fake.watches == life);
        fake_coordinator_close();
    }
    assert_false(link_over(link));
    assert_false(link_stop_asked(link));
    fake_coordinator_open();
    WAIT_FOR(fake.watches == 4);
    fake.watch_stop = 1;
    fake_coordinator_send_watch();
    WAIT_FOR(link_stop_asked(link));
    assert_false(link_over(link));
    fake.watch_generation = 5;
    fake_coordinator_send_watch();
    WAIT_FOR(stale_calls == 1);
    assert_true(link_over(link));
    fake_coordinator_send_watch();
    link_close(link);
    assert_int_equal(stale_calls, 1);
    fake_coordinator_close();
}

static void on_over(void *arg, int64_t generation)
{
    atomic_store((_Atomic int64_t *)arg, generation);
}

static void joining_clears_the_flags_of_the_last_generation(void **state)
{
    struct link *link = worker_link_open();
    struct link_member next = {.generation = 5, .rank = 1, .world_size = 2};
    _Atomic int64_t over = 0;
    struct link_group g;
    struct err e = {0};

    (void)state;
    fake_coordinator_open();
    fake.watch_stop = 1;
    fake.watch_generation = 5;
    assert_int_equal(link_watch(link, on_over, &over, &e), ERR_OK);
    WAIT_FOR(over == 4);
    assert_true(link_over(link) && link_stop_asked(link));
    link_unwatch(link);

    fake.generation = 5;
    fake.watch_stop = 0;
    assert_int_equal(link_join(link, &next, &plain_join, &g, &e), ERR_OK);
    assert_int_equal(g.generation, 5);
    assert_int_equal(g.rank, 1);
    assert_false(link_over(link) || link_stop_asked(link));
    assert_int_equal(link_watch(link, on_over, &over, &e), ERR_OK);
    assert_int_equal(over, 4);
    fake.watch_generation = 6;
    fake_coordinator_send_watch();
    WAIT_FOR(over == 5); /* the Watch thread asked for the new generation by itself */
    assert_true(link_over(link));
    link_unwatch(link);
    /* The generation is over already, so the callback comes at once. */
    assert_int_equal(link_watch(link, on_over, &over, &e), ERR_OK);
    link_group_release(&g);
    link_close(link);
    fake_coordinator_close();
}

/* The Watch of the old generation ends while this process waits for the others of the new one. */
static void the_end_of_the_last_generation_does_not_end_the_one_that_is_forming(void **state)
{
    const struct link_member next = {.generation = 5, .rank = 1, .world_size = 2};
    struct joiner j = {.link = worker_link_open(), .as = &next};
    _Atomic int64_t over = 0;
    struct err e = {0};
    pthread_t thread;
    int seen;

    (void)state;
    fake.short_watches = true;
    fake_coordinator_open();
    assert_int_equal(link_watch(j.link, on_over, &over, &e), ERR_OK);
    WAIT_FOR(fake.watches > 0);
    link_unwatch(j.link);
    fake.pending = INT_MAX;
    fake.refused_watch = fake.generation = 5;
    assert_int_equal(pthread_create(&thread, NULL, join_in_a_thread, &j), 0);
    WAIT_FOR(fake.joins > 0);
    /* When the third connection comes, the answer to the second has been heard. */
    seen = fake.watches;
    WAIT_FOR(fake.watches >= seen + 3);
    fake.refused_watch = 0;
    fake.pending = 0;
    pthread_join(thread, NULL);
    assert_int_equal(j.rc, ERR_OK);
    assert_false(link_over(j.link));
    assert_int_equal(link_watch(j.link, on_over, &over, &e), ERR_OK);
    assert_int_equal(over, 0);
    fake.watch_generation = 6;
    WAIT_FOR(over == 5);
    link_group_release(&j.group);
    link_close(j.link);
    fake_coordinator_close();
}

static void a_refused_watch_ends_the_generation(void **state)
{
    struct link *link;
    struct err e = {0};

    (void)state;
    stale_calls = 0;
    worker_give_token("wrong", 5);
    assert_int_equal(link_open(&link, false, &e), ERR_OK);
    fake_coordinator_open();
    assert_int_equal(link_watch(link, on_stale, &stale_calls, &e), ERR_OK);
    WAIT_FOR(stale_calls == 1);
    link_close(link);
    fake_coordinator_close();
}

/* ---- a coordinator that moves */

static char *address_file; /* the file that the agent writes */

static void tell_address(const char *target)
{
    CLEANUP(free_text) char *text = xasprintf("%s\n", target);
    struct err e = {0};

    assert_int_equal(file_write_atomic(address_file, text, strlen(text), 0644, &e), ERR_OK);
}

static void begin_elsewhere(void)
{
    address_file = xasprintf("%s/coordinator", fake_directory);
    setenv("DDP_COORDINATOR_FILE", address_file, 1);
    setenv("DDP_COORDINATOR", "unix:/nonexistent/first", 1);
    tell_address("unix:/nonexistent/second");
}

static void end_elsewhere(void)
{
    unsetenv("DDP_COORDINATOR_FILE");
    unlink(address_file);
    free(steal(address_file));
}

static void calls_and_watch_follow_the_coordinator(void **state)
{
    struct link *link;
    struct err e = {0};

    (void)state;
    stale_calls = 0;
    begin_elsewhere();
    link = worker_link_open();
    assert_int_equal(link_watch(link, on_stale, &stale_calls, &e), ERR_OK);
    fake_coordinator_open();
    tell_address("no address"); /* the worker keeps its present address */
    tell_address(fake_target);
    assert_int_equal(link_commit_snapshot(link, &snapshot, &e), ERR_OK);
    WAIT_FOR(fake.watches == 1);
    unlink(address_file); /* as if the agent could not write it: the last address remains valid */
    assert_int_equal(link_commit_snapshot(link, &snapshot, &e), ERR_OK);
    assert_int_equal(fake.commits, 2);
    assert_int_equal(stale_calls, 0);
    link_close(link);
    fake_coordinator_close();
    end_elsewhere();
}

static void a_stop_does_not_wait_for_a_coordinator_that_is_away(void **state)
{
    static atomic_int number;
    struct link *link;
    struct err e = {0};

    (void)state;
    stale_calls = 0;
    number = 15;
    begin_elsewhere();
    link = worker_link_open();
    link_heed_signal(link, &number);
    assert_int_equal(link_watch(link, on_stale, &stale_calls, &e), ERR_OK);
    assert_false(link_given_up(link));
    assert_int_equal(link_commit_snapshot(link, &snapshot, &e), ERR_CANCELLED);
    assert_true(link_given_up(link));
    assert_int_equal(stale_calls, 0);
    link_close(link);
    end_elsewhere();
}

/* ---- without a coordinator, and lines */

static void standalone_is_a_world_of_one(void **state)
{
    struct link *link;
    struct link_join join = plain_join;
    struct link_group g;
    int made = 0;
    struct err e = {0};

    (void)state;
    assert_int_equal(link_open(&link, true, &e), ERR_OK);
    assert_int_equal(link_first_member(link)->world_size, 1);
    assert_int_equal(link_watch(link, on_stale, NULL, &e), ERR_OK);
    join.make_bootstrap = make_seven;
    join.bootstrap_arg = &made;
    assert_int_equal(link_join(link, link_first_member(link), &join, &g, &e), ERR_OK);
    assert_int_equal(made, 0); /* the id would be waited for in vain */
    assert_int_equal(g.bootstrap_size, 128);
    assert_int_equal(g.world_size, 1);
    assert_int_equal(g.source_rank, 0);
    assert_string_equal(g.source.path, "/snap/200");
    link_group_release(&g);
    assert_int_equal(link_commit_snapshot(link, &snapshot, &e), ERR_OK);
    link_close(link);
}

static void several_ranks_need_a_coordinator(void **state)
{
    struct link *link;
    struct link_group g;
    struct err e = {0};

    (void)state;
    unsetenv("DDP_COORDINATOR");
    assert_int_equal(link_open(&link, false, &e), ERR_OK);
    assert_int_equal(link_join(link, link_first_member(link), &plain_join, &g, &e), ERR_FAILED_PRECONDITION);
    link_close(link);
}

static void lines_are_json_and_never_block(void **state)
{
    struct metric_line metrics = {.has_step = true,
                                  .step = 12,
                                  .count = 3,
                                  .metrics = {{"loss", 0.25}, {"bad", NAN}, {"samples_per_s", 1e6}}};
    char text[16], line[512];
    struct link *link;
    struct err e = {0};
    int ends[2];
    json_t *v;
    ssize_t n;

    (void)state;
    assert_int_equal(pipe(ends), 0);
    snprintf(text, sizeof(text), "%d", ends[1]);
    setenv("DDP_REPORT_FD", text, 1);
    assert_int_equal(link_open(&link, true, &e), ERR_OK);
    link_progress(link, &metrics);
    n = read(ends[0], line, sizeof(line));
    assert_true(n > 1 && line[n - 1] == '\n');
    assert_int_equal(json_parse(line, (size_t)n, sizeof(line), &v, &e), ERR_OK);
    assert_int_equal(json_get_int(v, "step", -1), 12);
    assert_true(json_get_real(v, "loss", -1) == 0.25);
    assert_true(json_get_real(v, "samples_per_s", -1) == 1e6);
    assert_null(json_object_get(v, "bad"));
    json_decref(v);
    for (metrics.step = 0; metrics.step < 5000; metrics.step++)
        link_progress(link, &metrics);
    assert_true(link_dropped(link) > 0);
    while (fcntl(ends[0], F_SETFL, O_NONBLOCK), (n = read(ends[0], line, sizeof(line))) > 0)
        ;
    link_progress(link, &metrics);
    n = read(ends[0], line, sizeof(line)); /* whole lines only: the next one starts at a line's start */
    assert_true(n > 0 && line[0] == '{' && !memchr(line, '\n', (size_t)n - 1));
    close(ends[0]);
    link_progress(link, &metrics); /* nobody reads: no signal */
    link_close(link);
    close(ends[1]);
}

static void a_bad_environment_is_named(void **state)
{
    struct link *link;
    struct err e = {0};

    (void)state;
    setenv("RANK", "2", 1);
    assert_int_equal(link_open(&link, false, &e), ERR_INVALID_ARGUMENT);
    assert_non_null(strstr(e.msg, "RANK"));
    setenv("RANK", "one", 1);
    assert_int_equal(link_open(&link, false, &e), ERR_INVALID_ARGUMENT);
    setenv("RANK", "0", 1);
    setenv("DDP_REPORT_FD", "999", 1);
    assert_int_equal(link_open(&link, false, &e), ERR_INVALID_ARGUMENT);
    assert_non_null(strstr(e.msg, "DDP_REPORT_FD"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(join_waits_brings_the_bootstrap_id_and_gets_the_group, fake_coordinator_reset),
        cmocka_unit_test_setup(the_caller_makes_the_bootstrap_id_once, fake_coordinator_reset),
        cmocka_unit_test_setup(join_waits_for_a_coordinator_that_is_away, fake_coordinator_reset),
        cmocka_unit_test_setup(join_can_be_cancelled, fake_coordinator_reset),
        cmocka_unit_test_setup(a_refusal_is_not_retried, fake_coordinator_reset),
        cmocka_unit_test_setup(the_token_is_read_once_and_sent, fake_coordinator_reset),
        cmocka_unit_test_setup(watch_outlives_the_coordinator, fake_coordinator_reset),
        cmocka_unit_test_setup(joining_clears_the_flags_of_the_last_generation, fake_coordinator_reset),
        cmocka_unit_test_setup(the_end_of_the_last_generation_does_not_end_the_one_that_is_forming,
                               fake_coordinator_reset),
        cmocka_unit_test_setup(a_refused_watch_ends_the_generation, fake_coordinator_reset),
        cmocka_unit_test_setup(calls_and_watch_follow_the_coordinator, fake_coordinator_reset),
        cmocka_unit_test_setup(a_stop_does_not_wait_for_a_coordinator_that_is_away, fake_coordinator_reset),
        cmocka_unit_test_setup(standalone_is_a_world_of_one, fake_coordinator_reset),
        cmocka_unit_test_setup(several_ranks_need_a_coordinator, fake_coordinator_reset),
        cmocka_unit_test_setup(lines_are_json_and_never_block, fake_coordinator_reset),
        cmocka_unit_test_setup(a_bad_environment_is_named, fake_coordinator_reset),
    };

    return cmocka_run_group_tests(tests, fake_coordinator_make_directory, fake_coordinator_remove_directory);
}
