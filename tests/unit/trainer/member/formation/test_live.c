/* Tests a generation that goes on from memory: ranks that were in the generation before keep their state, and others get
 * it. The ranks do the coordinator's part themselves. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "tests/unit/trainer/member/formation/meeting.h"
#include "trainer/engine/memory.h"
#include "trainer/engine/state.h"
#include "trainer/moments.h"
#include "trainer/resume.h"
#include "trainer/step.h"

enum { WORLD = 3, NEW = 2, AHEAD = 1, BEFORE = 6, AFTER = 5, FIRST = 11, SECOND = 12, AGAIN = 100 };

struct scene {
    const char *more; /* lines of the job file, below `train` */
    bool apart;
    bool behind; /* rank 0 has not made the last step */
    int damaged; /* 1: a parameter of rank 1 differs, 2: a moment */
};

static struct meeting *meeting_of(struct ranks *r)
{
    return (struct meeting *)(void *)r->shared->result;
}
_Static_assert(sizeof(struct meeting) <= sizeof(((struct ranks_shared *)0)->result), "room for the meeting");

static void live_open(struct trainer *t, struct trainer_config *config, const struct scene *scene)
{
    meeting_open_trainer(t, config, "{type: allreduce}", scene->more ? scene->more : "");
}

static void form_first(struct ranks *r, struct trainer *t, int rank, int world)
{
    const struct scene *scene = r->arg;
    const struct meeting_place at = {
        .generation = FIRST, .rank = rank, .world = world, .apart = scene->apart};
    struct err e = {0};

    RANK_OK(meeting_form(r, meeting_of(r), t, &at, &e), &e);
    RANK_OK(trainer_restore(t, &e), &e);
    RANK_CHECK(t->engine.whole);
    t->served_step = 0;
}

static enum err_code form_second(struct ranks *r, struct trainer *t, int rank, struct err *e)
{
    const struct scene *scene = r->arg;
    const struct meeting_place at = {.round = 1,
                                     .generation = SECOND,
                                     .rank = rank,
                                     .world = WORLD,
                                     .apart = scene->apart,
                                     .live = true,
                                     .source = scene->behind ? AHEAD : 0,
                                     .committed = 4};

    return meeting_form(r, meeting_of(r), t, &at, e);
}

static void train_undisturbed(struct ranks *r, int rank)
{
    struct trainer_config config;
    struct trainer t;

    live_open(&t, &config, r->arg);
    form_first(r, &t, rank, WORLD);
    meeting_train(&t, BEFORE + AFTER);
    r->shared->hash[rank] = meeting_hash(&t);
    meeting_close_trainer(&t, &config);
}

/* Makes BEFORE steps. With scene->behind, rank 0 then has the state after one step less, as if the sum had failed here and
 * not at the others. */
static void train_until_lost(struct ranks *r, struct trainer *t, int rank)
{
    const struct scene *scene = r->arg;
    static float state[MEETING_FLOATS];
    struct snapshot_place place;

    meeting_train(t, BEFORE - 1);
    state_place(&t->engine, &place);
    state_out(&t->engine, state);
    meeting_train(t, 1);
    if (scene->behind && rank == 0) {
        state_in(&t->engine, state);
        state_take_place(&t->engine, &place);
    }
}

/* In place of the last rank a new process comes. */
static void leave_or_die(struct ranks *r, struct trainer *t, struct trainer_config *config, int rank)
{
    if (rank != NEW) {
        RANK_CHECK(trainer_leave(t));
        return;
    }
    meeting_close_trainer(t, config);
    live_open(t, config, r->arg);
    RANK_CHECK(!t->engine.whole);
}

static void survive_or_replace(struct ranks *r, int rank)
{
    struct trainer_config config;
    struct trainer t;
    struct err e = {0};

    live_open(&t, &config, r->arg);
    form_first(r, &t, rank, WORLD);
    train_until_lost(r, &t, rank);
    leave_or_die(r, &t, &config, rank);
    RANK_OK(form_second(r, &t, rank, &e), &e);
    RANK_CHECK(t.engine.whole && t.engine.step == BEFORE);
    RANK_CHECK(!t.owed);
    RANK_OK(trainer_restore(&t, &e), &e); /* nothing is left to do */
    meeting_train(&t, AFTER);
    r->shared->hash[rank] = meeting_hash(&t);
    meeting_close_trainer(&t, &config);
}

static void all_end_as_if_no_rank_had_been_lost(void **state)
{
    static const struct scene scenes[] = {
        {.apart = false},
        {.apart = true},
        {.apart = false, .behind = true},
        {.apart = true, .behind = true},
        {.more = "  schedule: {type: cosine, warmup: 4}\n", .behind = true},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(scenes); i++) {
        struct ranks whole = {.world = WORLD, .arg = &scenes[i]}, lost = whole;

        for (int r = 0; r < WORLD; r++)
            whole.node_of[r] = lost.node_of[r] = scenes[i].apart ? r : 0;
        assert_true(ranks_run(&whole, train_undisturbed));
        assert_true(ranks_run(&lost, survive_or_replace));
        for (int r = 0; r < WORLD; r++)
            assert_true(lost.shared->hash[r] == whole.shared->hash[r]);
        ranks_release(&whole);
        ranks_release(&lost);
    }
}

/* ---- shard: optimizer */

static void hold_and_go_on(struct ranks *r, int rank)
{
    const struct scene *scene = r->arg;
    struct trainer_config config;
    struct trainer t;
    struct err e = {0};

    live_open(&t, &config, scene);
    form_first(r, &t, rank, WORLD);
    meeting_train(&t, BEFORE);
    RANK_OK(moments_hold(&t, &e), &e);
    RANK_CHECK(moments_held(&t));
    leave_or_die(r, &t, &config, rank);
    RANK_OK(form_second(r, &t, rank, &e), &e);
    RANK_CHECK(t.engine.whole && t.engine.step == BEFORE && t.engine.optim->steps == BEFORE);
    meeting_train(&t, AFTER);
    RANK_CHECK(!moments_held(&t)); /* the held moments were those of an earlier step */
    r->shared->hash[rank] = meeting_hash(&t);
    meeting_close_trainer(&t, &config);
}

static const char *const divided[] = {
    "  shard: optimizer\n",
    "  shard: optimizer\n  schedule: {type: cosine, warmup: 4}\n",
};

static void ranks_that_hold_all_moments_end_as_if_no_rank_had_left(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(divided); i++) {
        const struct scene scene = {.more = divided[i]};
        struct ranks whole = {.world = WORLD, .arg = &scene}, held = whole;

        assert_true(ranks_run(&whole, train_undisturbed));
        assert_true(ranks_run(&held, hold_and_go_on));
        for (int r = 0; r < WORLD; r++)
            assert_true(held.shared->hash[r] == whole.shared->hash[r]);
        ranks_release(&whole);
        ranks_release(&held);
    }
}

/* Without the moments of the lost rank no state is whole, even if all ranks still have equal parameters. */
static void lose_moments(struct ranks *r, int rank)
{
    struct trainer_config config;
    struct trainer t;
    struct err e = {0};

    live_open(&t, &config, r->arg);
    form_first(r, &t, rank, WORLD);
    meeting_train(&t, BEFORE);
    RANK_OK(moments_hold(&t, &e), &e);
    meeting_train(&t, 1); /* the held moments are too old now */
    RANK_CHECK(trainer_leave(&t));
    RANK_CHECK(!t.engine.whole);
    RANK_CHECK(form_second(r, &t, rank, &e) == ERR_INTERNAL);
    meeting_close_trainer(&t, &config);
}

static void without_all_moments_no_state_is_whole(void **state)
{
    const struct scene scene = {.more = divided[0]};
    struct ranks ranks = {.world = WORLD, .arg = &scene};

    (void)state;
    assert_true(ranks_run(&ranks, lose_moments));
    ranks_release(&ranks);
}

/* ---- what differs */

static void survive_with_damage(struct ranks *r, int rank)
{
    static const char *const says[] = {"", "different parameters", "different moments"};
    const struct scene *scene = r->arg;
    struct trainer_config config;
    struct trainer t;
    struct err e = {0};

    live_open(&t, &config, scene);
    form_first(r, &t, rank, WORLD);
    train_until_lost(r, &t, rank);
    leave_or_die(r, &t, &config, rank);
    if (rank == 1)
        (scene->damaged == 1 ? t.engine.params.data : t.engine.optim->state)[7] += 1.0f;
    RANK_CHECK(form_second(r, &t, rank, &e) == ERR_FAILED_PRECONDITION);
    RANK_CHECK(strstr(e.msg, "rank 1") && strstr(e.msg, says[scene->damaged]));
    meeting_close_trainer(&t, &config);
}

/* Nobody knows which of them is right. */
static void a_rank_at_the_same_step_keeps_its_state_so_that_a_difference_is_found(void **state)
{
    (void)state;
    for (int damaged = 1; damaged <= 2; damaged++) {
        const struct scene scene = {.damaged = damaged};
        struct ranks ranks = {.world = WORLD, .arg = &scene};

        assert_true(ranks_run(&ranks, survive_with_damage));
        ranks_release(&ranks);
    }
}

static void run_on_one_node(ranks_fn fn)
{
    const struct scene scene = {.apart = false};
    struct ranks ranks = {.world = WORLD, .arg = &scene};

    assert_true(ranks_run(&ranks, fn));
    ranks_release(&ranks);
}

static void come_without_a_state(struct ranks *r, int rank)
{
    struct trainer_config config;
    struct trainer t;
    struct err e = {0};

    live_open(&t, &config, r->arg);
    RANK_CHECK(form_second(r, &t, rank, &e) == ERR_INTERNAL);
    RANK_CHECK(strstr(e.msg, "rank 0 as the source, but it has no state"));
    meeting_close_trainer(&t, &config);
}

static void a_source_without_a_state_is_refused(void **state)
{
    (void)state;
    run_on_one_node(come_without_a_state);
}

static void meet_another_version(struct ranks *r, int rank)
{
    const bool *live = r->arg;
    const struct meeting_place at = {
        .round = 1, .generation = SECOND, .rank = rank, .world = WORLD, .live = *live, .upgraded = true};
    const struct meeting_place first = {.generation = FIRST, .rank = rank, .world = WORLD};
    struct trainer_config config;
    struct trainer t;
    struct err e = {0};

    meeting_open_trainer(&t, &config, "{type: allreduce}", "");
    RANK_OK(meeting_form(r, meeting_of(r), &t, &first, &e), &e);
    RANK_OK(trainer_restore(&t, &e), &e);
    RANK_CHECK(trainer_leave(&t));
    RANK_CHECK(meeting_form(r, meeting_of(r), &t, &at, &e) == (*live ? ERR_ABORTED : ERR_INVALID_ARGUMENT));
    RANK_CHECK(strstr(e.msg, "another version of ddp-trainer"));
    RANK_CHECK(t.outdated == *live);
    meeting_close_trainer(&t, &config);
}

static void another_version_ends_a_live_generation_but_not_the_job(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        const bool live = i;
        struct ranks ranks = {.world = WORLD, .arg = &live};

        assert_true(ranks_run(&ranks, meet_another_version));
        ranks_release(&ranks);
    }
}

/* ---- what the run was about to do */

static void go_on_with_what_was_due(struct ranks *r, int rank)
{
    struct trainer_config config;
    struct trainer t;
    struct err e = {0};

    const struct scene scene = {.more =
                                    xasprintf("  snapshot: {dir: %s/snapshots, every: 15m}\n", r->directory)};

    live_open(&t, &config, &scene);
    form_first(r, &t, rank, WORLD);
    train_until_lost(r, &t, rank);
    RANK_CHECK(trainer_leave(&t));
    if (rank == 0) {
        t.last_snapshot_ms -= 60000;
        t.last_eval_ms -= 30000;
        t.last_snapshot_step = 5; /* only the snapshot of step 4 is committed */
    }
    t.engine.best_step = BEFORE;
    t.engine.best_loss = 0.25;
    if (rank == 1) { /* it had not ended the evaluation */
        t.served_step--;
        t.engine.best_step = 2;
        t.engine.best_loss = 0.5;
    }
    RANK_OK(form_second(r, &t, rank, &e), &e);
    RANK_CHECK(t.owed);
    RANK_CHECK(t.engine.best_step == BEFORE && t.engine.best_loss == 0.25);
    RANK_CHECK(t.snapshot_due && t.last_snapshot_step == -1);
    RANK_CHECK(clock_boot_ms() - t.last_snapshot_ms >= 60000);
    RANK_CHECK(clock_boot_ms() - t.last_eval_ms >= 30000 && clock_boot_ms() - t.last_eval_ms < 60000);
    RANK_CHECK(!t.resumed && !t.told_sizes);
    meeting_close_trainer(&t, &config);
    free((char *)(uintptr_t)scene.more);
}

static void what_was_due_and_a_snapshot_that_was_not_committed_are_made_up_for(void **state)
{
    (void)state;
    run_on_one_node(go_on_with_what_was_due);
}

static void take_a_state_and_lose_the_group(struct ranks *r, int rank)
{
    const struct meeting_place third = {
        .round = 2, .generation = SECOND + 1, .rank = rank, .world = WORLD, .live = true};
    struct trainer_config config;
    struct trainer t;
    struct err e = {0};

    live_open(&t, &config, r->arg);
    form_first(r, &t, rank, WORLD);
    train_until_lost(r, &t, rank);
    leave_or_die(r, &t, &config, rank);
    RANK_OK(form_second(r, &t, rank, &e), &e);
    RANK_CHECK(!t.owed);
    RANK_CHECK(trainer_leave(&t)); /* before the first step */
    RANK_OK(meeting_form(r, meeting_of(r), &t, &third, &e), &e);
    RANK_CHECK(!t.owed);
    meeting_close_trainer(&t, &config);
}

static void a_state_that_was_taken_owes_nothing_later(void **state)
{
    (void)state;
    run_on_one_node(take_a_state_and_lose_the_group);
}

/* ---- states that are not whole */

static void make_a_step_of_nan(struct ranks *r, int rank)
{
    struct trainer_config config;
    struct trainer t;
    struct step s;
    struct err e = {0};
    bool epoch_ended;

    live_open(&t, &config, r->arg);
    form_first(r, &t, rank, WORLD);
    meeting_train(&t, 2);
    t.engine.params.data[0] = NAN;
    RANK_CHECK(trainer_step(&t, &s, &epoch_ended, &e) == ERR_OUT_OF_RANGE);
    RANK_CHECK(t.engine.step == 2 && !t.engine.whole);
    meeting_close_trainer(&t, &config);
}

static void an_update_that_does_not_count_leaves_no_state_to_go_on_with(void **state)
{
    (void)state;
    run_on_one_node(make_a_step_of_nan);
}

static void a_state_that_is_forgotten_leaves_nothing_behind(void **state)
{
    struct trainer_config config;
    struct trainer t, fresh;
    struct trainer_config fresh_config;
    const struct scene scene = {.apart = false};
    struct link_member alone = {.generation = 1, .world_size = 1};
    struct err e = {0};

    (void)state;
    live_open(&t, &config, &scene);
    live_open(&fresh, &fresh_config, &scene);
    assert_int_equal(trainer_join(&t, &alone, &e), ERR_OK);
    assert_int_equal(trainer_restore(&t, &e), ERR_OK);
    meeting_train(&t, 4);
    assert_true(trainer_leave(&t));
    alone.generation = 2; /* nobody says that it goes on from memory */
    assert_int_equal(trainer_join(&t, &alone, &e), ERR_OK);
    assert_int_equal(t.engine.step, 0);
    assert_int_equal(meeting_hash(&t), meeting_hash(&fresh));
    assert_int_equal(trainer_restore(&t, &e), ERR_OK);
    alone.generation = 1;
    assert_int_equal(trainer_join(&fresh, &alone, &e), ERR_OK);
    assert_int_equal(trainer_restore(&fresh, &e), ERR_OK);
    meeting_train(&t, 7);
    meeting_train(&fresh, 7);
    assert_int_equal(meeting_hash(&t), meeting_hash(&fresh));
    assert_int_equal(t.engine.samples, fresh.engine.samples);
    meeting_close_trainer(&t, &config);
    meeting_close_trainer(&fresh, &fresh_config);
}

/* ---- again and again */

static int entries_of(const char *directory)
{
    DIR *d = opendir(directory);
    int count = 0;

    RANK_CHECK(d);
    while (readdir(d))
        count++;
    closedir(d);
    return count;
}

static void form_again_and_again(struct ranks *r, int rank)
{
    const struct scene *scene = r->arg;
    struct trainer_config config;
    struct trainer t;
    int files = 0, threads = 0;
    size_t memory = 0;
    struct err e = {0};

    live_open(&t, &config, scene);
    form_first(r, &t, rank, 2);
    for (int i = 1; i <= AGAIN; i++) {
        const struct meeting_place at = {.round = i,
                                         .generation = FIRST + i,
                                         .rank = rank,
                                         .world = 2,
                                         .apart = scene->apart,
                                         .live = true,
                                         .source = i % 2};
        meeting_train(&t, 1);
        RANK_CHECK(trainer_leave(&t));
        RANK_OK(meeting_form(r, meeting_of(r), &t, &at, &e), &e);
        RANK_CHECK(t.engine.step == i);
        if (i == AGAIN / 5) { /* by now every buffer has its size */
            files = entries_of("/proc/self/fd");
            threads = entries_of("/proc/self/task");
            memory = memory_resident();
        }
    }
    RANK_CHECK(entries_of("/proc/self/fd") == files);
    RANK_CHECK(entries_of("/proc/self/task") == threads);
#ifndef __SANITIZE_ADDRESS__ /* it keeps freed memory for a while */
    RANK_CHECK(memory_resident() < memory + ((size_t)1 << 20));
#endif
    (void)memory;
    meeting_close_trainer(&t, &config);
}

static void a_hundred_generations_take_no_more_than_one(void **state)
{
    (void)state;
    for (int apart = 0; apart < 2; apart++) {
        const struct scene scene = {.apart = apart};
        struct ranks two = {.world = 2, .node_of = {0, apart}, .arg = &scene};

        assert_true(ranks_run(&two, form_again_and_again));
        ranks_release(&two);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_end_as_if_no_rank_had_been_lost),
        cmocka_unit_test(ranks_that_hold_all_moments_end_as_if_no_rank_had_left),
        cmocka_unit_test(without_all_moments_no_state_is_whole),
        cmocka_unit_test(a_rank_at_the_same_step_keeps_its_state_so_that_a_difference_is_found),
        cmocka_unit_test(a_source_without_a_state_is_refused),
        cmocka_unit_test(another_version_ends_a_live_generation_but_not_the_job),
        cmocka_unit_test(what_was_due_and_a_snapshot_that_was_not_committed_are_made_up_for),
        cmocka_unit_test(a_state_that_was_taken_owes_nothing_later),
        cmocka_unit_test(an_update_that_does_not_count_leaves_no_state_to_go_on_with),
        cmocka_unit_test(a_state_that_is_forgotten_leaves_nothing_behind),
        cmocka_unit_test(a_hundred_generations_take_no_more_than_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
