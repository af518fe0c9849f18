/* Tests rounds that close without a rank, which comes back later (sync.quorum). The ranks do the coordinator's part themselves:
 *
 *     generation 0    all ranks make two rounds, and their exchanges; the third exchange is cut off
 *     generation 1    without the late rank: the same exchange again, and more rounds; the last exchange is cut off, too
 *     generation 2    all ranks; the exchange that was cut off is made with the late rank's change */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "tests/unit/trainer/member/formation/meeting.h"
#include "trainer/resume.h"
#include "trainer/round/live_round.h"
#include "trainer/step.h"

enum {
    WORLD = 3,
    EVERY = 6,
    BATCH = 4,
    FIRST = 11,
    LATE = 1,
    FLOATS = 1024,
    NOBODY = -1,
    STEPS = 1000 /* meeting.c's */
};

static size_t floats; /* of the model */
static const double outer_lr = 0.9, outer_momentum = 0.6;

struct scene {
    const char *sync;
    int missed;  /* exchanges that are made without the late rank */
    int applied; /* the only rank on which the exchange that was cut off first has succeeded, or NOBODY */
    bool within; /* the late rank comes back within a round */
    bool heeds;  /* whether the late rank's change counts */
};

struct board {
    struct meeting meeting;
    float change[WORLD][FLOATS];
    int64_t samples[WORLD], step[WORLD];
};
_Static_assert(sizeof(struct board) <= sizeof(((struct ranks_shared *)0)->result), "room for the board");

static struct board *board_of(struct ranks *r)
{
    return (struct board *)(void *)r->shared->result;
}

/* ---- an exchange that is cut off: the linker passes the calls on */

static enum { CUT_NEVER, CUT_AT_WORDS, CUT_AT_END } cut;

enum err_code __real_coll_allgather(struct coll_group *g, const void *mine, size_t size, void *out,
                                    struct err *e);
enum err_code __wrap_coll_allgather(struct coll_group *g, const void *mine, size_t size, void *out,
                                    struct err *e);
enum err_code __real_coll_join(struct coll_group *g, struct err *e);
enum err_code __wrap_coll_join(struct coll_group *g, struct err *e);

enum err_code __wrap_coll_allgather(struct coll_group *g, const void *mine, size_t size, void *out,
                                    struct err *e)
{
    if (cut == CUT_AT_WORDS)
        return err_set(e, ERR_ABORTED, "interrupted by the test");
    return __real_coll_allgather(g, mine, size, out, e);
}

enum err_code __wrap_coll_join(struct coll_group *g, struct err *e)
{
    if (__real_coll_join(g, e))
        return e->code;
    return cut == CUT_AT_END ? err_set(e, ERR_ABORTED, "interrupted by the test") : ERR_OK;
}

/* The last step of a round. cut_at: where its exchange is cut off. */
static void make_last_step(struct trainer *t, int cut_at)
{
    const int64_t step = t->engine.step;
    struct err e = {0};
    struct step s;
    bool epoch_ended;

    cut = cut_at;
    const enum err_code code = trainer_step(t, &s, &epoch_ended, &e);
    cut = CUT_NEVER;
    RANK_CHECK(code == (cut_at == CUT_NEVER ? ERR_OK : ERR_ABORTED) && t->engine.step == step + 1);
}

/* ---- generations */

static void form_group(struct ranks *r, struct trainer *t, int round, int rank, int world)
{
    const struct meeting_place at = {
        .round = round, .generation = FIRST + round, .rank = rank, .world = world, .live = round > 0};
    struct err e = {0};

    RANK_OK(meeting_form(r, &board_of(r)->meeting, t, &at, &e), &e);
}

static void make_exchange(struct trainer *t)
{
    struct err e = {0};
    struct step s;

    RANK_CHECK(sync_round_due(t->formation.sync));
    RANK_OK(trainer_exchange_again(t, &s, &e), &e);
}

static void go_on_without(struct ranks *r, struct trainer *t, int rank)
{
    const struct scene *scene = r->arg;
    const bool made = scene->applied == 0; /* the others have taken its result */

    form_group(r, t, 1, rank > LATE ? rank - 1 : rank, WORLD - 1);
    RANK_CHECK(t->samples_lost == EVERY * BATCH || made);
    if (!made)
        make_exchange(t);
    meeting_train(t, (int64_t)EVERY * (scene->missed - 1));
    meeting_train(t, scene->within ? EVERY / 2 : EVERY - 1);
    if (!scene->within)
        make_last_step(t, CUT_AT_WORDS);
    RANK_CHECK(sync_rounds(t->formation.sync) == 2 + scene->missed);
    RANK_CHECK(trainer_leave(t));
}

/* ---- what the late rank brings */

static const float *outer_momentum_of(const struct engine *n)
{
    for (size_t i = 0; i < n->extra_count; i++)
        if (!strcmp(n->extras[i].name, "outer_momentum"))
            return n->extra[i].data;
    return NULL;
}

static void take_array(const struct trainer *t, const float *from, float *out)
{
    t->engine.device->ops->download(t->engine.device, out, from, floats * sizeof(*out));
}

static void take_change(const struct trainer *t, float *out)
{
    float params[FLOATS];

    take_array(t, sync_shared(t->formation.sync), out);
    take_array(t, t->engine.params.data, params);
    for (size_t i = 0; i < floats; i++)
        out[i] -= params[i];
}

static uint64_t moments_hash(const struct trainer *t)
{
    const size_t bytes = t->engine.optim->floats * sizeof(float);
    float *moments = xcalloc(1, bytes);

    t->engine.device->ops->download(t->engine.device, moments, t->engine.optim->state, bytes);
    const uint64_t hash = ranks_hash(moments, bytes);
    free(moments);
    return hash;
}

static uint64_t shared_hash(const struct trainer *t)
{
    float shared[FLOATS];

    take_array(t, sync_shared(t->formation.sync), shared);
    return ranks_hash(shared, floats * sizeof(*shared));
}

static void check_return(struct ranks *r, const struct trainer *t, const float *change, uint64_t moments)
{
    const struct scene *scene = r->arg;
    const int64_t samples = EVERY * BATCH;
    const float scale = !scene->heeds ? 0.0f : scene->within ? ldexpf(1.0f, -scene->missed) : 1.0f;
    float now[FLOATS];
    struct sync_state round;

    sync_save(t->formation.sync, &round);
    take_change(t, now);
    for (size_t i = 0; i < floats; i++)
        RANK_CHECK(fabsf(now[i] - scale * change[i]) < 1e-6f);
    RANK_CHECK(round.local_samples == (scene->heeds && !scene->within ? samples >> scene->missed : 0));
    RANK_CHECK(round.rounds == 2 + scene->missed);
    RANK_CHECK(moments_hash(t) == moments);
}

/* In the first quarter of the run, the trapezoid's gain rises linearly from 1. */
static double momentum_at(const struct scene *scene, const int64_t *steps)
{
    int64_t most = 0;

    if (strstr(scene->sync, "constant"))
        return outer_momentum;
    for (int m = 0; m < WORLD; m++)
        most = steps[m] > most ? steps[m] : most;
    const double gain = 1.0 + 4.0 * (double)most / STEPS * (1.0 / (1.0 - outer_momentum) - 1.0);
    return 1.0 - 1.0 / gain;
}

/* The next exchange, by the formula, in double. */
static void check_exchange(struct ranks *r, struct trainer *t, int rank)
{
    struct board *b = board_of(r);
    float shared[FLOATS], momentum[FLOATS];
    struct sync_state round;
    struct err e = {0};
    double expected[FLOATS];
    int64_t all = 0;

    take_array(t, sync_shared(t->formation.sync), shared);
    take_array(t, outer_momentum_of(&t->engine), momentum);
    take_change(t, b->change[rank]);
    sync_save(t->formation.sync, &round);
    b->samples[rank] = round.local_samples;
    b->step[rank] = t->engine.step;
    RANK_OK(coll_barrier(t->formation.group, &e), &e);
    for (int m = 0; m < WORLD; m++)
        all += b->samples[m];
    RANK_CHECK(round.global_samples == all);
    const double mu = momentum_at(r->arg, b->step);
    for (size_t i = 0; i < floats; i++) {
        double mean = 0.0;
        for (int m = 0; m < WORLD; m++)
            mean += (double)b->samples[m] / (double)all * (double)b->change[m][i];
        const double u = mu * (double)momentum[i] + mean;
        expected[i] = (double)shared[i] - outer_lr * (mean + mu * u);
    }
    RANK_OK(coll_barrier(t->formation.group, &e), &e);
    make_exchange(t);
    take_array(t, sync_shared(t->formation.sync), shared);
    for (size_t i = 0; i < floats; i++)
        RANK_CHECK(fabs((double)shared[i] - expected[i]) < 1e-5);
}

static void come_back(struct ranks *r, struct trainer *t, int rank, const float *change, uint64_t moments)
{
    const struct scene *scene = r->arg;
    struct err e = {0};

    form_group(r, t, 2, rank, WORLD);
    if (rank == LATE)
        check_return(r, t, change, moments);
    if (!scene->within && !strstr(scene->sync, "int4"))
        check_exchange(r, t, rank);
    else if (!scene->within)
        make_exchange(t);
    meeting_train(t, scene->within ? EVERY - EVERY / 2 : EVERY);
    RANK_CHECK(sync_settled(t->formation.sync));
    RANK_OK(coll_barrier(t->formation.group, &e), &e);
}

static void rank_through(struct ranks *r, int rank)
{
    const struct scene *scene = r->arg;
    struct trainer_config config;
    struct trainer t;
    struct err e = {0};
    float change[FLOATS];

    meeting_open_trainer(&t, &config, scene->sync, "");
    config.job.train.sync.quorum = 2;
    floats = t.engine.model->count;
    RANK_CHECK(floats <= FLOATS);
    form_group(r, &t, 0, rank, WORLD);
    RANK_OK(trainer_restore(&t, &e), &e);
    meeting_train(&t, 3 * EVERY - 1);
    take_change(&t, change);
    make_last_step(&t, scene->applied == NOBODY ? CUT_AT_WORDS
                       : scene->applied == rank ? CUT_NEVER
                                                : CUT_AT_END);
    if (scene->applied != rank)
        take_change(&t, change);
    RANK_CHECK(trainer_leave(&t));
    const uint64_t moments = moments_hash(&t);
    if (rank != LATE)
        go_on_without(r, &t, rank);
    come_back(r, &t, rank, change, moments);
    r->shared->hash[rank] = meeting_hash(&t);
    r->shared->hash[WORLD + rank] = shared_hash(&t);
    meeting_close_trainer(&t, &config);
}

static struct ranks scene_play(const struct scene *scene)
{
    struct ranks r = {.world = WORLD, .arg = scene};

    if (!ranks_run(&r, rank_through))
        fail_msg("%s, missed %d, applied %d, within %d", scene->sync, scene->missed, scene->applied,
                 scene->within);
    for (int rank = 1; rank < WORLD; rank++)
        assert_true(r.shared->hash[WORLD + rank] == r.shared->hash[WORLD]);
    return r;
}

#define FP32 "{type: diloco, every: 6, outer_momentum: 0.6, outer_schedule: constant}"
#define INT4 "{type: diloco, every: 6, outer_momentum: 0.6, outer_schedule: constant, wire: int4}"

#define TRAPEZOID "{type: diloco, every: 6, outer_momentum: 0.6, outer_schedule: trapezoid}"

static void a_late_change_counts_by_its_age(void **state)
{
    static const struct scene scenes[] = {
        {FP32, 1, NOBODY, false, true}, {FP32, 2, NOBODY, false, true},      {INT4, 1, NOBODY, false, true},
        {INT4, 2, NOBODY, true, true}, /* within a round the change itself is scaled */
        {FP32, 1, NOBODY, true, true},  {TRAPEZOID, 2, NOBODY, false, true},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(scenes); i++) {
        struct ranks r = scene_play(&scenes[i]);
        ranks_release(&r);
    }
}

static void an_old_change_is_dropped(void **state)
{
    static const struct scene scenes[] = {{FP32, LIVE_LATE_MOST + 1, NOBODY, false, false},
                                          {INT4, 9, NOBODY, false, false}};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(scenes); i++) {
        struct ranks r = scene_play(&scenes[i]);
        ranks_release(&r);
    }
}

/* The exchange with the change of the late rank has succeeded on one of the others, and so it counts. */
static void a_change_never_counts_twice(void **state)
{
    static const struct scene scenes[] = {{FP32, 2, 0, false, false}, {FP32, 2, 0, true, false}};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(scenes); i++) {
        struct ranks r = scene_play(&scenes[i]);
        ranks_release(&r);
    }
}

/* The exchange has succeeded on the late rank only, and the others have repeated it. So the late rank's model is dropped. */
static void an_exchange_of_the_late_rank_alone_is_dropped(void **state)
{
    static const struct scene scenes[] = {{FP32, 1, LATE, false, false}, {FP32, 2, LATE, false, false}};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(scenes); i++) {
        struct ranks r = scene_play(&scenes[i]);
        ranks_release(&r);
    }
}

static void equal_arrivals_give_equal_bits(void **state)
{
    static const struct scene scene = {INT4, 1, NOBODY, false, true};
    struct ranks first = scene_play(&scene), second = scene_play(&scene);

    (void)state;
    for (int rank = 0; rank < WORLD; rank++)
        assert_true(first.shared->hash[rank] == second.shared->hash[rank]);
    ranks_release(&first);
    ranks_release(&second);
}

/* The exchange has succeeded on rank 0 only. A rank whose change is part of it keeps its moments; another begins with rank 0's. */
static void rank_without_quorum(struct ranks *r, int rank)
{
    const struct scene *scene = r->arg;
    struct trainer_config config;
    struct trainer t;
    struct err e = {0};

    meeting_open_trainer(&t, &config, scene->sync, "");
    floats = t.engine.model->count;
    form_group(r, &t, 0, rank, WORLD);
    RANK_OK(trainer_restore(&t, &e), &e);
    meeting_train(&t, 3 * EVERY - 1);
    make_last_step(&t, scene->applied == rank ? CUT_NEVER : CUT_AT_END);
    RANK_CHECK(trainer_leave(&t));
    const uint64_t moments = moments_hash(&t);
    if (rank == LATE && !scene->heeds)
        t.sent_in = FIRST - 1; /* in a generation in which the exchange was not made */
    form_group(r, &t, 1, rank, WORLD);
    RANK_CHECK((moments_hash(&t) == moments) == (rank != LATE || scene->heeds));
    meeting_train(&t, EVERY);
    r->shared->hash[WORLD + rank] = shared_hash(&t);
    meeting_close_trainer(&t, &config);
}

static void a_change_of_another_generation_does_not_count(void **state)
{
    static const struct scene scenes[] = {{FP32, 0, 0, false, true}, {FP32, 0, 0, false, false}};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(scenes); i++) {
        struct ranks r = {.world = WORLD, .arg = &scenes[i]};
        assert_true(ranks_run(&r, rank_without_quorum));
        for (int rank = 1; rank < WORLD; rank++)
            assert_true(r.shared->hash[WORLD + rank] == r.shared->hash[WORLD]);
        ranks_release(&r);
    }
}

static void samples_halve_with_each_exchange(void **state)
{
    (void)state;
    assert_int_equal(live_late_samples(24, 0), 24);
    assert_int_equal(live_late_samples(24, 1), 12);
    assert_int_equal(live_late_samples(7, 2), 1);
    assert_int_equal(live_late_samples(INT64_MAX, 100), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_late_change_counts_by_its_age),
        cmocka_unit_test(an_old_change_is_dropped),
        cmocka_unit_test(a_change_never_counts_twice),
        cmocka_unit_test(an_exchange_of_the_late_rank_alone_is_dropped),
        cmocka_unit_test(equal_arrivals_give_equal_bits),
        cmocka_unit_test(a_change_of_another_generation_does_not_count),
        cmocka_unit_test(samples_halve_with_each_exchange),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
