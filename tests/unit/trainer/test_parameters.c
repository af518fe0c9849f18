/* Tests shard: optimizer between nodes: parameters come in pieces beside the next forward pass, and the bits are those of a run whose
 * steps wait for all of them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <unistd.h>

#include "tests/unit/base/check.h"
#include "tests/unit/trainer/member/formation/meeting.h"
#include "trainer/parameters.h"
#include "trainer/resume.h"
#include "trainer/step.h"

enum { STEPS = 6, GENERATION = 3 };
#define SIZES "20, 600, 500, 1" /* two pieces */

struct scene {
    bool beside; /* else all parameters are compared after each step, and are waited for */
    bool lost;   /* the last rank is lost after two steps */
};

static void form(struct ranks *r, struct trainer *t, int rank)
{
    struct err e = {0};
    const struct meeting_place at = {
        .generation = GENERATION, .rank = rank, .world = r->world, .apart = true};

    RANK_OK(meeting_form(r, (struct meeting *)(void *)r->shared->result, t, &at, &e), &e);
    RANK_OK(trainer_restore(t, &e), &e);
}

static void member_train(struct ranks *r, int rank)
{
    const struct scene *scene = r->arg;
    const bool victim = rank == r->world - 1;
    struct trainer_config config;
    struct trainer t;
    struct step s;
    struct err e = {0};
    bool epoch_ended;

    meeting_open_sizes(&t, &config, SIZES, "{type: allreduce}",
                       scene->beside ? "  shard: optimizer\n  log_every: 1000\n"
                                     : "  shard: optimizer\n  log_every: 1\n");
    form(r, &t, rank);
    for (int i = 0; i < (scene->lost ? 2 : STEPS); i++) {
        RANK_OK(trainer_step(&t, &s, &epoch_ended, &e), &e);
        RANK_CHECK((t.engine.await != NULL) == scene->beside);
    }
    if (scene->lost && victim)
        _exit(0);
    if (scene->lost) {
        /* Either the next forward pass lacks the parameters that the lost rank had not sent, or the next sum lacks
         * its gradients. */
        RANK_CHECK(trainer_step(&t, &s, &epoch_ended, &e) == ERR_ABORTED);
        RANK_CHECK(t.engine.step == 2);
    } else {
        RANK_OK(parameters_complete(&t, &e), &e);
        RANK_CHECK(!t.engine.await);
        r->shared->hash[rank] = ranks_hash(t.engine.params.data, t.engine.model->count * sizeof(float));
    }
    meeting_close_trainer(&t, &config);
}

static uint64_t train(int world, const struct scene *scene)
{
    struct ranks r = {.world = world, .arg = scene};

    for (int i = 0; i < world; i++)
        r.node_of[i] = i;
    assert_true(ranks_run(&r, member_train));
    for (int i = 1; i < world; i++)
        assert_true(r.shared->hash[i] == r.shared->hash[0]);
    const uint64_t hash = r.shared->hash[0];
    ranks_release(&r);
    return hash;
}

static void the_bits_are_those_of_steps_that_wait(void **state)
{
    (void)state;
    for (int world = 2; world <= 4; world++)
        assert_true(train(world, &(struct scene){.beside = true}) == train(world, &(struct scene){0}));
}

static void a_rank_that_is_lost_ends_the_step(void **state)
{
    (void)state;
    for (int world = 2; world <= 3; world++)
        train(world, &(struct scene){.beside = true, .lost = true});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_bits_are_those_of_steps_that_wait),
        cmocka_unit_test(a_rank_that_is_lost_ends_the_step),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
