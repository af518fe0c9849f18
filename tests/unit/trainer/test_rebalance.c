/* Tests ranks that take unlike numbers of a step's samples: their gradient, the decision about the numbers, and what later groups take
 * over from it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "tests/unit/trainer/member/formation/meeting.h"
#include "trainer/engine/state.h"
#include "trainer/rebalance.h"
#include "trainer/resume.h"
#include "trainer/step.h"

enum { RANKS = 3, BATCH = 4, GLOBAL = RANKS * BATCH, GENERATION = 11, FLOATS = 1024 };

#define SPEED "  balance: speed\n"

/* Shared memory of all processes. */
struct board {
    struct meeting meeting;
    struct snapshot_place place;
    float grads[FLOATS];
};
_Static_assert(sizeof(struct board) <= sizeof(((struct ranks_shared *)0)->result), "room for the board");

static struct board *board_of(struct ranks *r)
{
    return (struct board *)(void *)r->shared->result;
}

static void group_form(struct ranks *r, struct trainer *t, int round, int rank, int world, bool live)
{
    const struct meeting_place at = {
        .round = round, .generation = GENERATION + round, .rank = rank, .world = world, .live = live};
    struct err e = {0};

    RANK_OK(meeting_form(r, &board_of(r)->meeting, t, &at, &e), &e);
    RANK_OK(trainer_restore(t, &e), &e);
    rebalance_begin(t);
}

/* Opens a trainer with further keys and forms the first group. */
static void trainer_start(struct ranks *r, struct trainer *t, struct trainer_config *config, int rank,
                          const char *more)
{
    meeting_open_trainer(t, config, "{type: allreduce}", more);
    group_form(r, t, 0, rank, r->world, false);
}

/* Makes a step as the loop does. Returns this rank's samples. */
static int64_t step_make(struct trainer *t)
{
    struct step s;
    struct err e = {0};
    bool epoch_ended;

    RANK_OK(trainer_step(t, &s, &epoch_ended, &e), &e);
    RANK_OK(rebalance_deal(t, &e), &e);
    RANK_CHECK(isfinite(t->engine.loss));
    t->served_step = t->engine.step;
    return s.local;
}

/* ---- the gradient */

static void gradient_take(struct ranks *r, int rank, bool unlike)
{
    struct trainer_config config;
    struct trainer t;

    trainer_start(r, &t, &config, rank, r->arg);
    const int64_t all = t.engine.sampler.global, portions[RANKS] = {2 * all / 3, 1, all - 2 * all / 3 - 1};
    if (unlike)
        engine_take_portions(&t.engine, portions);
    const int64_t samples = step_make(&t);
    RANK_CHECK(samples == (unlike ? portions[rank] : all / RANKS));
    RANK_CHECK(t.engine.model->count <= FLOATS);
    if (rank == 0)
        memcpy(board_of(r)->grads, t.engine.grads.data, t.engine.model->count * sizeof(float));
    meeting_close_trainer(&t, &config);
}

static void equal_gradient(struct ranks *r, int rank)
{
    gradient_take(r, rank, false);
}

static void unlike_gradient(struct ranks *r, int rank)
{
    gradient_take(r, rank, true);
}

/* The samples of a step are the same whoever takes them, and so is their mean, up to the rounding of floats. */
static void gradient_is_the_mean_of_the_global_batch(void **state)
{
    static const char *const keys[] = {SPEED, SPEED "  accumulate: 3\n"};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
        struct ranks equal = {.world = RANKS, .arg = keys[i]}, unlike = equal;
        double worst = 0.0, largest = 0.0;

        assert_true(ranks_run(&equal, equal_gradient));
        assert_true(ranks_run(&unlike, unlike_gradient));
        for (size_t k = 0; k < FLOATS; k++) {
            const double a = (double)board_of(&equal)->grads[k], b = (double)board_of(&unlike)->grads[k];
            worst = fmax(worst, fabs(a - b));
            largest = fmax(largest, fabs(a));
        }
        assert_true(largest > 0.0);
        assert_true(worst < 1e-6 * largest);
        ranks_release(&equal);
        ranks_release(&unlike);
    }
}

/* ---- the decision */

static void speeds_set(const char *ns)
{
    RANK_CHECK(!setenv("DDP_TEST_SAMPLE_NS", ns, 1));
}

static void portions_are(const struct trainer *t, int64_t first, int64_t second, int64_t third)
{
    const int64_t want[RANKS] = {first, second, third};

    for (int r = 0; r < t->formation.world_size; r++)
        RANK_CHECK(engine_portion(&t->engine, r, false) == want[r]);
}

/* Makes steps up to a step of the run. All ranks' samples are the global batch. */
static void steps_make(struct trainer *t, int64_t until)
{
    const struct engine *n = &t->engine;

    while (n->step < until) {
        const bool whole =
            n->cursor.position + GLOBAL <= n->train->count; /* the last step of an epoch is shorter */
        const int64_t portion = engine_portion(n, t->formation.rank, false), samples = step_make(t);
        RANK_CHECK(whole ? samples == portion : samples <= portion);
        RANK_CHECK(n->samples == n->cursor.epoch * n->train->count + n->cursor.position);
    }
    RANK_CHECK(n->cursor.position == until % 43 * GLOBAL); /* 512 samples are 43 steps */
}

static void follow_the_speeds(struct ranks *r, int rank)
{
    struct trainer_config config;
    struct trainer t;

    speeds_set("1000,4000,1000");
    trainer_start(r, &t, &config, rank, SPEED);
    const size_t bytes = t.engine.batch_bytes;
    const unsigned opened = t.engine.opened;
    steps_make(&t, 3);
    portions_are(&t, 4, 4, 4);
    steps_make(&t, 4);
    portions_are(&t, 6, 1, 5);
    speeds_set("1000,1000,1000"); /* one decision is not enough to change portions that stand */
    steps_make(&t, 29);
    portions_are(&t, 6, 1, 5);
    steps_make(&t, 30);
    portions_are(&t, 4, 4, 4);
    RANK_CHECK(!t.engine.sampler.bounds); /* as without the key */
    speeds_set("1000,1050,1000");         /* not worth a change */
    steps_make(&t, 42);
    portions_are(&t, 4, 4, 4);
    /* The largest micro-batch is that of equal portions. */
    RANK_CHECK(t.engine.batch_bytes == bytes && t.engine.opened == opened);
    meeting_close_trainer(&t, &config);
}

static void described_speeds_give_described_portions(void **state)
{
    struct ranks r = {.world = RANKS};

    (void)state;
    assert_true(ranks_run(&r, follow_the_speeds));
    ranks_release(&r);
}

/* What a change makes slower is taken back. */
static void take_back_a_change(struct ranks *r, int rank)
{
    struct trainer_config config;
    struct trainer t;

    trainer_start(r, &t, &config, rank, SPEED);
    speeds_set("1000,4000,1000");
    steps_make(&t, 4);
    portions_are(&t, 6, 1, 5);
    speeds_set("1000,17000,1000"); /* for one sample longer than for 4 before */
    steps_make(&t, 20);
    portions_are(&t, 4, 4, 4);
    steps_make(&t, 49); /* from now on it needs 4 decisions in a row: 30, 40, 50, 60 */
    portions_are(&t, 4, 4, 4);
    steps_make(&t, 59);
    portions_are(&t, 4, 4, 4);
    steps_make(&t, 60);
    portions_are(&t, 6, 1, 5);
    steps_make(&t, 80); /* and this one was right */
    portions_are(&t, 6, 1, 5);
    meeting_close_trainer(&t, &config);
}

static void a_change_that_was_wrong_is_taken_back(void **state)
{
    struct ranks r = {.world = RANKS};

    (void)state;
    assert_true(ranks_run(&r, take_back_a_change));
    ranks_release(&r);
}

static void measure_and_agree(struct ranks *r, int rank)
{
    struct trainer_config config;
    struct trainer t;

    trainer_start(r, &t, &config, rank, SPEED);
    t.rebalance.check_step = 1000;
    RANK_CHECK(step_make(&t) == BATCH && !t.rebalance.work.samples);
    int64_t before = clock_mono_ns();
    for (int i = 0; i < 5; i++)
        (void)step_make(&t);
    RANK_CHECK(t.rebalance.work.samples == 5 * BATCH);
    RANK_CHECK(t.rebalance.work.steps == 5 && t.rebalance.work.samples_ns > 0 &&
               t.rebalance.work.updates_ns > 0 &&
               t.rebalance.work.samples_ns + t.rebalance.work.updates_ns < clock_mono_ns() - before);
    meeting_close_trainer(&t, &config);
}

static void the_first_step_is_not_measured(void **state)
{
    struct ranks r = {.world = RANKS};

    (void)state;
    assert_true(ranks_run(&r, measure_and_agree));
    ranks_release(&r);
}

/* A device that is not the host is timed with its pieces held back. The CPU is one here, because all its operations are allowed to
 * take the other way, too. */
static void hold_pieces_back(struct ranks *r, int rank)
{
    const bool host = r->arg == NULL;
    struct trainer_config config;
    struct trainer t;

    trainer_start(r, &t, &config, rank, SPEED "  accumulate: 2\n");
    t.rebalance.check_step = 4;
    t.engine.device->host = host;
    for (int i = 0; i < 3; i++)
        (void)step_make(&t);
    RANK_CHECK(t.rebalance.holds != host && t.rebalance.held_count == 0);
    RANK_CHECK(host == (t.rebalance.held_room == 0));
    RANK_CHECK(t.rebalance.work.steps == 2 && t.rebalance.work.samples_ns > 0);
    RANK_CHECK(host == (t.rebalance.work.updates_ns > 0));
    t.engine.device->host = true;
    r->shared->hash[rank] = meeting_hash(&t);
    meeting_close_trainer(&t, &config);
}

static void pieces_that_are_held_back_give_the_same_bits(void **state)
{
    struct ranks host = {.world = RANKS}, other = {.world = RANKS, .arg = "held"};

    (void)state;
    assert_true(ranks_run(&host, hold_pieces_back));
    assert_true(ranks_run(&other, hold_pieces_back));
    assert_int_equal(host.shared->hash[0], other.shared->hash[0]);
    ranks_release(&host);
    ranks_release(&other);
}

/* ---- later groups */

static void go_on_live(struct ranks *r, int rank)
{
    struct trainer_config config;
    struct trainer t;

    speeds_set("1000,4000,1000");
    trainer_start(r, &t, &config, rank, SPEED);
    steps_make(&t, 6);
    if (rank == 2) { /* a new process takes its place */
        meeting_close_trainer(&t, &config);
        meeting_open_trainer(&t, &config, "{type: allreduce}", SPEED);
    } else {
        RANK_CHECK(trainer_leave(&t));
    }
    group_form(r, &t, 1, rank, RANKS, true);
    portions_are(&t, 6, 1, 5);
    steps_make(&t, 8);
    RANK_CHECK(trainer_leave(&t));
    if (rank == 2) {
        trainer_close(&t);
        job_release(&config.job);
        return;
    }
    /* The global batch of this job file is 4 samples for each rank. */
    group_form(r, &t, 2, rank, 2, true);
    portions_are(&t, 4, 4, 0);
    for (int i = 0; i < 4; i++)
        RANK_CHECK(step_make(&t) == BATCH);
    portions_are(&t, 7, 1, 0);
    meeting_close_trainer(&t, &config);
}

static void survivors_keep_portions_in_a_group_of_the_same_size(void **state)
{
    struct ranks r = {.world = RANKS};

    (void)state;
    assert_true(ranks_run(&r, go_on_live));
    ranks_release(&r);
}

static void give_the_place(struct ranks *r, int rank)
{
    struct trainer_config config;
    struct trainer t;

    speeds_set("1000,4000,1000");
    trainer_start(r, &t, &config, rank, SPEED);
    steps_make(&t, 6);
    if (rank == 0) /* the ranks share the board */
        state_place(&t.engine, &board_of(r)->place);
    meeting_close_trainer(&t, &config);
}

static void take_the_place(struct ranks *r, int rank)
{
    const bool speed = strcmp(r->arg, SPEED) == 0;
    struct trainer_config config;
    struct trainer t;

    trainer_start(r, &t, &config, rank, r->arg);
    state_take_place(&t.engine, &board_of(r)->place);
    if (speed && r->world == RANKS)
        portions_are(&t, 6, 1, 5);
    else
        portions_are(&t, 4, 4, 4);
    meeting_close_trainer(&t, &config);
}

static void a_snapshot_keeps_portions_for_the_same_number_of_ranks(void **state)
{
    static const struct {
        int world;
        const char *more;
    } rows[] = {{RANKS, SPEED}, {2, SPEED}, {RANKS, "  balance: equal\n"}};
    struct ranks first = {.world = RANKS};

    (void)state;
    assert_true(ranks_run(&first, give_the_place));
    assert_int_equal(board_of(&first)->place.portion_count, RANKS);
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct ranks again = {.world = rows[i].world, .arg = rows[i].more};

        ranks_prepare(&again);
        board_of(&again)->place = board_of(&first)->place;
        ranks_start(&again, take_the_place);
        assert_true(ranks_finish(&again, -1));
        ranks_release(&again);
    }
    ranks_release(&first);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradient_is_the_mean_of_the_global_batch),
        cmocka_unit_test(described_speeds_give_described_portions),
        cmocka_unit_test(a_change_that_was_wrong_is_taken_back),
        cmocka_unit_test(the_first_step_is_not_measured),
        cmocka_unit_test(pieces_that_are_held_back_give_the_same_bits),
        cmocka_unit_test(survivors_keep_portions_in_a_group_of_the_same_size),
        cmocka_unit_test(a_snapshot_keeps_portions_for_the_same_number_of_ranks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
