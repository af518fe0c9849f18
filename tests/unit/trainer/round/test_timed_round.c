/* Rounds of a given time: how many steps fit into one, when it ends, and what is left of it when the run goes on without.
 * tests/num/world_sizes.py tests the rounds themselves. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/mem.h"
#include "tests/unit/trainer/member/formation/meeting.h"
#include "trainer/engine/state.h"
#include "trainer/member/sync/strategy.h"
#include "trainer/resume.h"
#include "trainer/round/timed_round.h"
#include "trainer/signals.h"
#include "trainer/step.h"

#define SECOND 1000000000LL

static void steps_that_fit(void **state)
{
    static const struct {
        int64_t steps, ns, every_ms, fit;
    } rows[] = {
        {4, 4 * SECOND, 30000, 30},
        {30, 30 * SECOND, 30000, 30},
        {30, 60 * SECOND, 30000, 15}, /* the last step took long */
        {4, SECOND / 10, 30000, 64},  /* 1,200 would fit, but four steps are a poor measure */
        {4, 400 * SECOND, 30000, 1},  /* a step that takes longer than the round */
        {1, 1, 30000, 16},
        {4, 0, 30000, 64}, /* a clock that stands still */
        {900000, SECOND, 30000, 1000000},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        assert_int_equal(timed_round_fit(rows[i].steps, rows[i].ns, rows[i].every_ms), rows[i].fit);
}

#define BATCH 8
#define RANKS 2

/* A rank as far as rounds need one: nothing is computed. */
struct rank {
    struct train_spec spec;
    struct dataset train;
    struct optim optim;
    struct sync sync;
    struct trainer t;
};

static void rank_open(struct rank *k, int rank)
{
    *k = (struct rank){.spec = {.steps = 1000}, .train = {.count = 10000}, .sync = {.local_steps = true}};
    k->t.formation = (struct formation){.rank = rank, .world_size = RANKS, .sync = &k->sync};
    k->t.sync = (struct sync_spec){.every = 4, .every_ms = 3600000};
    k->t.engine = (struct engine){.spec = &k->spec, .train = &k->train, .optim = &k->optim};
    k->t.engine.sampler = (struct sampler){
        .samples = 10000, .global = BATCH * RANKS, .accumulate = 1, .rank = rank, .world_size = RANKS};
}

static void rank_close(struct rank *k)
{
    share_leave(&k->t.engine);
    timed_round_release(&k->t);
}

/* Makes steps of a round, without the exchange. */
static void rank_step(struct rank *k, int64_t steps)
{
    assert_true(timed_round_begin(&k->t));
    k->t.engine.share.taken += steps * BATCH;
    k->optim.steps += steps;
}

static void ranks_with_unlike_steps_go_on_with_the_fewest(void **state)
{
    static const int64_t steps[RANKS] = {4, 1};
    struct share_count counts[RANKS];
    struct snapshot_place saved[RANKS];
    struct rank ranks[RANKS];
    bool ended;

    (void)state;
    for (int r = 0; r < RANKS; r++) {
        rank_open(&ranks[r], r);
        rank_step(&ranks[r], steps[r]);
        counts[r] = (struct share_count){steps[r] * BATCH, steps[r] * BATCH, steps[r]};
    }
    for (int r = 0; r < RANKS; r++) {
        struct trainer *t = &ranks[r].t;
        memcpy(t->timed.counts, counts, sizeof(counts));
        timed_round_end(t, &ended);
        t->sync.every_ms = 0; /* ddpctl tune sync.every=50 */
        assert_false(timed_round_begin(t));
        ranks[r].optim.steps += 50;
        state_place(&t->engine, &saved[r]);
        assert_int_equal(saved[r].updates, 1 + 50);
    }
    assert_memory_equal(&saved[0], &saved[1], sizeof(saved[0]));
    for (int r = 0; r < RANKS; r++)
        rank_close(&ranks[r]);
}

static void a_stop_ends_the_round(void **state)
{
    static const int votes[] = {TAIL_STOP, TAIL_SIGNAL};
    struct step s = {.local = BATCH};
    struct rank k;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(votes); i++) {
        rank_open(&k, 0);
        k.t.sync.every = 100;
        assert_true(timed_round_begin(&k.t));
        assert_false(timed_round_step(&k.t, &s));
        s.tail[votes[i]] = 15.0f;
        assert_true(timed_round_step(&k.t, &s));
        s.tail[votes[i]] = 0.0f;
        rank_close(&k);
    }
}

static void the_clock_starts_when_the_round_opens(void **state)
{
    struct step s = {.local = BATCH};
    struct rank k;
    bool ended;

    (void)state;
    rank_open(&k, 0);
    assert_true(timed_round_begin(&k.t));
    timed_round_end(&k.t, &ended);
    k.t.timed.began_ns = clock_mono_ns() - 2 * k.t.sync.every_ms * 1000000; /* a long evaluation */
    assert_true(timed_round_begin(&k.t));
    assert_false(timed_round_step(&k.t, &s));
    rank_close(&k);
}

/* ---- a stop while a step is computed */

enum { STEP_RANKS = 2 };

static void (*real_upload)(struct device *d, void *to, const void *from_host, size_t bytes);

/* The first upload of a step is that of its votes. */
static void upload_and_stop(struct device *d, void *to, const void *from_host, size_t bytes)
{
    real_upload(d, to, from_host, bytes);
    trainer_stop_signal = SIGTERM;
}

static void stop_during_a_step(struct ranks *r, int rank)
{
    const struct meeting_place at = {.generation = 11, .rank = rank, .world = STEP_RANKS};
    struct meeting *meeting = (struct meeting *)(void *)r->shared->result;
    struct trainer_config config;
    struct device_ops ops;
    struct trainer t;
    struct err e = {0};
    struct step s;
    bool ended;

    meeting_open_trainer(&t, &config, r->arg, "");
    RANK_OK(meeting_form(r, meeting, &t, &at, &e), &e);
    RANK_OK(trainer_restore(&t, &e), &e);
    meeting_train(&t, t.sync.every_ms ? 0 : t.sync.every - 1);
    const struct device_ops *real = t.engine.device->ops;
    ops = *real;
    real_upload = ops.upload;
    ops.upload = upload_and_stop;
    t.engine.device->ops = &ops;
    RANK_OK(trainer_step(&t, &s, &ended, &e), &e);
    RANK_CHECK(sync_voted(t.formation.sync) && s.tail[TAIL_SIGNAL] > 0.0f);
    t.engine.device->ops = real;
    meeting_close_trainer(&t, &config);
}

static void a_stop_during_a_step_ends_the_round_with_this_step(void **state)
{
    static const char *const strategies[] = {"{type: diloco, every: 1h}", "{type: average, every: 1h}",
                                             "{type: diloco, every: 3}"};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(strategies); i++) {
        struct ranks r = {.world = STEP_RANKS, .arg = strategies[i]};
        if (!ranks_run(&r, stop_during_a_step))
            fail_msg("%s", strategies[i]);
        ranks_release(&r);
    }
}

/* At the end of the run mu is 0, so u is D. Only at the end of its last round does a rank know that the run is over. */
static void train_to_the_end(struct ranks *r, int rank)
{
    const struct meeting_place at = {.generation = 11, .rank = rank, .world = STEP_RANKS};
    struct meeting *meeting = (struct meeting *)(void *)r->shared->result;
    struct trainer_config config;
    struct sync_round last = {0};
    struct trainer t;
    struct err e = {0};
    double squares = 0.0;

    setenv("DDP_TEST_ROUND_STEPS", "60,30", 1);
    meeting_open_trainer(&t, &config, "{type: diloco, every: 1h}", "");
    RANK_OK(meeting_form(r, meeting, &t, &at, &e), &e);
    RANK_OK(trainer_restore(&t, &e), &e);
    while (!engine_finished(&t.engine)) {
        meeting_train(&t, 1);
        (void)!sync_take_round(t.formation.sync, &last);
    }
    const float *u = NULL;
    for (size_t i = 0; i < t.engine.extra_count; i++)
        if (!strcmp(t.engine.extras[i].name, "outer_momentum"))
            u = t.engine.extra[i].data;
    for (size_t i = 0; i < t.engine.model->count; i++)
        squares += (double)u[i] * (double)u[i];
    RANK_CHECK(last.norm > 0 && fabs(sqrt(squares) / last.norm - 1) < 1e-5);
    meeting_close_trainer(&t, &config);
}

static void the_last_round_has_no_outer_momentum(void **state)
{
    struct ranks r = {.world = STEP_RANKS};

    (void)state;
    assert_true(ranks_run(&r, train_to_the_end));
    ranks_release(&r);
}

/* Takes over a place and returns what was logged. */
static void place_take_logged(struct rank *k, const struct snapshot_place *place, char *said, size_t size)
{
    FILE *file = tmpfile();
    int kept = dup(STDERR_FILENO);
    assert_true(file && kept >= 0 && dup2(fileno(file), STDERR_FILENO) >= 0);
    state_take_place(&k->t.engine, place);
    assert_true(dup2(kept, STDERR_FILENO) >= 0);
    rewind(file);
    said[fread(said, 1, size - 1, file)] = '\0';
    close(kept);
    fclose(file);
}

static void samples_without_room_are_counted(void **state)
{
    struct snapshot_place place = {.step = 9, .position = 100, .dealt = true, .dealt_position = 180};
    char said[1000];
    struct rank k;

    (void)state;
    rank_open(&k, 0);
    place.pieces[place.piece_count++] = (struct snapshot_piece){0, 90, 73};
    place_take_logged(&k, &place, said, sizeof(said));
    assert_non_null(strstr(said, "samples_left_out step=9 samples=7 "));
    place.pieces[place.piece_count++] = (struct snapshot_piece){0, 170, 7};
    place_take_logged(&k, &place, said, sizeof(said));
    assert_string_equal(said, "");
    rank_close(&k);
}

/* The samples and steps of the whole run do not fit into 64 bits. */
static void a_run_without_end_is_dealt_samples(void **state)
{
    static const struct train_spec specs[] = {{.steps = 1000000000000}, {.epochs = 1000000000}};
    struct rank k;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(specs); i++) {
        rank_open(&k, 0);
        k.spec = specs[i];
        k.t.engine.sampler.samples = INT64_C(1) << 40;
        k.t.engine.sampler.global = specs[i].steps ? 1 << 24 : 1;
        assert_true(timed_round_begin(&k.t));
        assert_true(k.t.engine.share.most > 0);
        assert_int_equal(engine_total_steps(&k.t.engine), specs[i].steps ? specs[i].steps : INT64_MAX);
        rank_close(&k);
    }
}

/* As many as rounds of some hundred ranks leave. */
static void pieces_of_many_ranks_are_kept(void **state)
{
    struct snapshot_place place = {.step = 9, .position = 100, .dealt = true, .dealt_position = 500}, back;
    char said[1000];
    struct rank k;

    (void)state;
    rank_open(&k, 0);
    assert_true(SNAPSHOT_PIECES >= 400);
    for (; place.piece_count < 400; place.piece_count++)
        place.pieces[place.piece_count] = (struct snapshot_piece){0, 2 * place.piece_count, 1};
    place_take_logged(&k, &place, said, sizeof(said));
    assert_string_equal(said, "");
    state_place(&k.t.engine, &back);
    assert_int_equal(back.piece_count, 400);
    assert_memory_equal(back.pieces, place.pieces, 400 * sizeof(place.pieces[0]));
    rank_close(&k);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_that_fit),
        cmocka_unit_test(ranks_with_unlike_steps_go_on_with_the_fewest),
        cmocka_unit_test(a_stop_ends_the_round),
        cmocka_unit_test(a_stop_during_a_step_ends_the_round_with_this_step),
        cmocka_unit_test(the_last_round_has_no_outer_momentum),
        cmocka_unit_test(the_clock_starts_when_the_round_opens),
        cmocka_unit_test(samples_without_room_are_counted),
        cmocka_unit_test(a_run_without_end_is_dealt_samples),
        cmocka_unit_test(pieces_of_many_ranks_are_kept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
