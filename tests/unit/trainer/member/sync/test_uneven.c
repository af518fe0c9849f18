/* Averaging that continues the snapshot of another strategy: parameters differ between ranks although no step of a round was
 * made. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "tests/unit/trainer/member/sync/quadratic.h"

/* The snapshot was taken after the exchange of the first of four fragments, or of all with overlap. */
static const struct sync_state after_exchange[] = {
    {.steps = 1, .turn = 2, .turn_steps = 0, .uneven = true},
    {.steps = 0, .uneven = true},
};
#define SNAPSHOTS (sizeof(after_exchange) / sizeof(after_exchange[0]))

/* `average`, and diloco that is plain averaging. */
static struct quadratic mean_setup(int way)
{
    struct quadratic u = quadratic_setup(WIRE_FP32);

    u.spec.outer_lr = 1.0;
    u.spec.outer_momentum = 0.0;
    if (way % 2)
        u.spec = (struct sync_spec){.type = SYNC_AVERAGE, .every = EVERY};
    u.far = way / 2;
    return u;
}
#define WAYS 4

static void member_resume_apart(struct ranks *r, int rank, const struct sync_state *round, struct member *m)
{
    const struct quadratic *u = r->arg;

    member_open(r, rank, &u->spec, 0, m);
    for (size_t i = 0; i < quadratic_tensors[0].count; i++)
        m->config.params[i] += (float)rank;
    sync_load(m->sync, round);
    RANK_CHECK(!sync_settled(m->sync));
}

static void train_to_an_exchange(struct ranks *r, int rank)
{
    const struct quadratic *u = r->arg;
    struct err e = {0};

    for (size_t k = 0; k < SNAPSHOTS; k++) {
        struct member m;

        member_resume_apart(r, rank, &after_exchange[k], &m);
        for (int step = 0; !sync_voted(m.sync); step++) {
            RANK_CHECK(step < EVERY && !sync_settled(m.sync));
            sync_at_step(m.sync, step, STEPS);
            member_compute(&m, u, step);
            RANK_OK(sync_after_step(m.sync, 1, r->world, &e), &e);
        }
        RANK_CHECK(sync_settled(m.sync));
        r->shared->hash[rank * (int)SNAPSHOTS + (int)k] = ranks_hash(m.config.params, PARAMS * sizeof(float));
        member_close(&m);
    }
}

/* Nobody sees a sample, so all ranks weigh the same. */
static void settle_at_once(struct ranks *r, int rank)
{
    struct err e = {0};

    for (size_t k = 0; k < SNAPSHOTS; k++) {
        struct member m;

        member_resume_apart(r, rank, &after_exchange[k], &m);
        RANK_OK(sync_settle(m.sync, &e), &e);
        RANK_CHECK(sync_settled(m.sync));
        for (size_t i = 0; i < quadratic_tensors[0].count; i++)
            RANK_CHECK(fabs((double)m.config.params[i] - quadratic_start(i) - (r->world - 1) / 2.0) < 1e-5);
        r->shared->hash[rank * (int)SNAPSHOTS + (int)k] = ranks_hash(m.config.params, PARAMS * sizeof(float));
        member_close(&m);
    }
}

/* Another rank has made the exchange in which this one lost the group. */
static void take_an_average(struct ranks *r, int rank)
{
    struct sync_state round = {.steps = EVERY, .uneven = true};
    struct member m;

    member_resume_apart(r, rank, &round, &m);
    round.sent.begun = true;
    round.sent.steps = EVERY;
    sync_take_exchange(m.sync, &round);
    RANK_CHECK(sync_settled(m.sync));
    RANK_CHECK(!memcmp(m.config.params, sync_shared(m.sync), PARAMS * sizeof(float)));
    member_close(&m);
}

static void check_means(int world, ranks_fn fn)
{
    for (int way = 0; way < WAYS; way++) {
        struct quadratic u = mean_setup(way);
        struct ranks r = {.world = world, .arg = &u};

        assert_true(ranks_run(&r, fn));
        for (int k = 0; k < world * (int)SNAPSHOTS; k++)
            assert_true(r.shared->hash[k] == r.shared->hash[k % (int)SNAPSHOTS]);
        ranks_release(&r);
    }
}

static void an_average_makes_uneven_ranks_equal(void **state)
{
    (void)state;
    for (int world = 1; world <= 3; world++)
        check_means(world, train_to_an_exchange);
    check_means(3, settle_at_once);
}

static void a_taken_average_makes_uneven_ranks_equal(void **state)
{
    (void)state;
    check_means(2, take_an_average);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_average_makes_uneven_ranks_equal),
        cmocka_unit_test(a_taken_average_makes_uneven_ranks_equal),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
