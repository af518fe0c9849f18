/* Tests strategies against plain references: the parameters of each rank after each step. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/trainer/member/ranks.h"
#include "tests/unit/trainer/member/sync/plain_device.h"
#include "trainer/member/sync/strategy.h"

#define COUNT ((size_t)10007)
#define STEPS 12
#define RATE 0.05f

struct setup {
    enum sync_type type;
    int64_t every;
    int overlap;
    bool pieces;    /* tell the gradients piece by piece */
    int stop_after; /* after this number of steps, saves a snapshot and continues from it */
};

/* Rank k has samples_of(k, step) samples of a quadratic loss whose minimum depends on the rank, so that ranks
 * drift apart. */
static int64_t samples_of(int rank, int step)
{
    return (rank * 5 + step * 3) % 4; /* sometimes none */
}

static int64_t samples_of_all(int world, int step)
{
    int64_t n = 0;

    for (int k = 0; k < world; k++)
        n += samples_of(k, step);
    return n;
}

static double quadratic_gradient(double x, int rank, size_t i)
{
    return x - (double)(rank + 1) * 0.25 - (double)(i % 17) * 0.125;
}

static void member_backward(struct sync *s, const struct setup *u, float *grads, const float *params,
                            int rank, int step, int world)
{
    int64_t local = samples_of(rank, step);
    double divisor = (double)sync_divisor(s, local, samples_of_all(world, step));

    for (size_t end = COUNT; end;) {
        size_t part = end % 1000 ? end % 1000 : 1000;

        end -= part;
        for (size_t i = end; i < end + part; i++)
            grads[i] = (float)((double)local * quadratic_gradient((double)params[i], rank, i) / divisor);
        if (u->pieces)
            sync_grads_ready(s, end, part);
    }
}

static void member_optimize(float *params, const float *grads)
{
    for (size_t i = 0; i < COUNT; i++)
        params[i] -= RATE * grads[i];
}

_Static_assert(sizeof(((struct ranks_shared *)0)->result) >= COUNT * sizeof(float), "room for one rank");

/* The state of one rank in a snapshot. */
struct saved {
    struct sync_state state;
    float params[COUNT];
};

/* Allocates parameters, gradients and the strategy's own arrays, which the group owns. */
static void alloc_arrays(struct coll_group *g, struct sync_config *config, size_t own)
{
    struct err e = {0};

    RANK_OK(coll_alloc(g, config->count, &config->params, &e), &e);
    RANK_OK(coll_alloc(g, config->count, &config->grads, &e), &e);
    for (size_t i = 0; i < own; i++)
        RANK_OK(coll_alloc(g, config->count, &config->arrays[i], &e), &e);
}

static void alloc_all(struct coll_group *g, struct sync_config *config)
{
    struct sync_array own[SYNC_MAX_ARRAYS];

    alloc_arrays(g, config, sync_arrays(&config->spec, own));
}

static void steps_train(struct ranks *r, int rank)
{
    const struct setup *u = r->arg;
    struct coll_group *g = ranks_open(r, rank);
    struct sync_config config = {.spec = {u->type, u->every},
                                 .world_size = r->world,
                                 .count = COUNT,
                                 .bucket = 3000,
                                 .thread = u->overlap};
    config.device = &plain_device;
    struct coll_stats stats;
    struct err e = {0};
    struct sync *s;

    alloc_all(g, &config);
    RANK_OK(sync_open(&s, g, &config, &e), &e);
    for (int step = 0; step < STEPS; step++) {
        member_backward(s, u, config.grads, config.params, rank, step, r->world);
        RANK_OK(sync_before_step(s, &e), &e);
        member_optimize(config.params, config.grads);
        RANK_OK(sync_after_step(s, samples_of(rank, step), samples_of_all(r->world, step), &e), &e);
        RANK_CHECK(sync_settled(s) == (u->type == SYNC_ALLREDUCE || (step + 1) % u->every == 0));
    }
    RANK_OK(sync_settle(s, &e), &e);
    RANK_CHECK(sync_settled(s));
    coll_get_stats(g, &stats);
    r->shared->hash[rank] = ranks_hash(config.params, COUNT * sizeof(float));
    r->shared->code[rank] = (int)stats.bytes;
    if (rank == 0)
        memcpy(r->shared->result, config.params, COUNT * sizeof(float));
    sync_close(s);
    coll_close(g);
}

/* Computes the expected result in double precision, with all ranks in one process. */
static void reference_steps(double *out, int world, const struct setup *u)
{
    double *x = calloc((size_t)world * COUNT, sizeof(*x)), seen[8] = {0}, all = 0;

    for (int step = 0; step < STEPS; step++) {
        double n = (double)samples_of_all(world, step);

        for (size_t i = 0; i < COUNT; i++) {
            double sum = 0;

            for (int k = 0; k < world; k++)
                sum += (double)samples_of(k, step) * quadratic_gradient(x[(size_t)k * COUNT + i], k, i);
            for (int k = 0; k < world; k++) {
                double *at = &x[(size_t)k * COUNT + i],
                       local = samples_of(k, step) ? quadratic_gradient(*at, k, i) : 0;

                *at -= (double)RATE * (u->type == SYNC_ALLREDUCE ? (n > 0 ? sum / n : 0) : local);
            }
        }
        for (int k = 0; k < world; k++)
            seen[k] += (double)samples_of(k, step);
        all += n;
        if (u->type == SYNC_ALLREDUCE || ((step + 1) % u->every && step + 1 < STEPS))
            continue;
        for (size_t i = 0; i < COUNT; i++) {
            double mean = 0;

            for (int k = 0; k < world; k++)
                mean += x[(size_t)k * COUNT + i] * seen[k] / all;
            for (int k = 0; k < world; k++)
                x[(size_t)k * COUNT + i] = mean;
        }
        memset(seen, 0, sizeof(seen));
        all = 0;
    }
    memcpy(out, x, COUNT * sizeof(*out));
    free(x);
}

static const struct ranks layouts[] = {
    {.world = 1},
    {.world = 2},
    {.world = 3},
    {.world = 3, .node_of = {0, 1, 2}},
    {.world = 4, .node_of = {0, 0, 1, 1}},
};
#define LAYOUTS (sizeof(layouts) / sizeof(layouts[0]))

static void steps_check(const struct ranks *layout, const struct setup *u, uint64_t *hash, int *bytes)
{
    struct ranks r = *layout;
    double want[COUNT];
    float got[COUNT];

    r.arg = u;
    assert_true(ranks_run(&r, steps_train));
    reference_steps(want, r.world, u);
    memcpy(got, r.shared->result, sizeof(got));
    for (size_t i = 0; i < COUNT; i++)
        if (fabs((double)got[i] - want[i]) > 1e-5 * (1 + fabs(want[i])))
            fail_msg("world %d, element %zu: %g, not %g", r.world, i, (double)got[i], want[i]);
    for (int k = 1; k < r.world; k++)
        assert_int_equal(r.shared->hash[k], r.shared->hash[0]);
    *hash = r.shared->hash[0];
    *bytes = r.shared->code[0];
    ranks_release(&r);
}

static void allreduce_is_one_process_on_the_whole_batch(void **state)
{
    (void)state;
    for (size_t l = 0; l < LAYOUTS; l++) {
        uint64_t hash[4];
        int bytes;

        for (int way = 0; way < 4; way++) {
            struct setup u = {.type = SYNC_ALLREDUCE, .overlap = way & 1, .pieces = way & 2};

            steps_check(&layouts[l], &u, &hash[way], &bytes);
        }
        assert_int_equal(hash[0], hash[1]); /* the thread must not change any bit */
        assert_int_equal(hash[2], hash[3]);
    }
}

static void averaging_is_local_sgd(void **state)
{
    static const int64_t rounds[] = {1, 3, 5, 12, 100};

    (void)state;
    for (size_t l = 0; l < LAYOUTS; l++)
        for (size_t k = 0; k < sizeof(rounds) / sizeof(rounds[0]); k++) {
            struct setup u = {.type = SYNC_AVERAGE, .every = rounds[k], .pieces = true};
            uint64_t hash;
            int bytes;

            steps_check(&layouts[l], &u, &hash, &bytes);
        }
}

static void averaging_sends_less(void **state)
{
    struct setup each = {.type = SYNC_ALLREDUCE}, seldom = {.type = SYNC_AVERAGE, .every = 6};
    uint64_t hash;
    int much, little;

    (void)state;
    for (size_t l = 1; l < LAYOUTS; l++) {
        steps_check(&layouts[l], &each, &hash, &much);
        steps_check(&layouts[l], &seldom, &hash, &little);
        /* A small last bucket goes through mailboxes, which takes more bytes. */
        assert_in_range(much, little * 5, little * 8);
    }
}

/* ---- a round that is interrupted */

static void train_in_two_parts(struct ranks *r, int rank)
{
    const struct setup *u = r->arg;
    struct coll_group *g = ranks_open(r, rank);
    struct sync_config config = {
        .spec = {u->type, u->every}, .world_size = r->world, .count = COUNT, .thread = -1};
    config.device = &plain_device;
    struct saved *snapshot = malloc(sizeof(*snapshot));
    struct err e = {0};
    struct sync *s;

    alloc_all(g, &config);
    RANK_OK(sync_open(&s, g, &config, &e), &e);
    for (int step = 0; step < STEPS; step++) {
        if (step == u->stop_after) {
            sync_save(s, &snapshot->state);
            memcpy(snapshot->params, config.params, sizeof(snapshot->params));
            sync_close(s);
            memset(config.params, 0, COUNT * sizeof(float));
            RANK_OK(sync_open(&s, g, &config, &e), &e);
            sync_load(s, &snapshot->state);
            memcpy(config.params, snapshot->params, sizeof(snapshot->params));
        }
        member_backward(s, u, config.grads, config.params, rank, step, r->world);
        RANK_OK(sync_before_step(s, &e), &e);
        member_optimize(config.params, config.grads);
        RANK_OK(sync_after_step(s, samples_of(rank, step), samples_of_all(r->world, step), &e), &e);
    }
    r->shared->hash[rank] = ranks_hash(config.params, COUNT * sizeof(float));
    free(snapshot);
    sync_close(s);
    coll_close(g);
}

static void a_round_goes_on_where_it_was_saved(void **state)
{
    struct setup u = {.type = SYNC_AVERAGE, .every = 5};
    uint64_t hash[2][3];

    (void)state;
    for (int run = 0; run < 2; run++) {
        struct ranks r = {.world = 3, .arg = &u};

        u.stop_after = run ? 7 : 100; /* two steps into the second round */
        assert_true(ranks_run(&r, train_in_two_parts));
        memcpy(hash[run], r.shared->hash, sizeof(hash[run]));
        ranks_release(&r);
    }
    assert_memory_equal(hash[0], hash[1], sizeof(hash[0]));
}

/* ---- an exchange that the next steps hide */

enum { ROUND = 4, HIDDEN_BY = 2, LATE_SUM = 0, LATE_BEGUN = 1 };

/* A strategy whose exchange sums element 0 over the ranks. The sum arrives two steps after the round, and
 * join adds it to element 1. */
static enum err_code late_open(struct sync *s, struct err *e)
{
    (void)e;
    s->round = ROUND;
    s->overlap = HIDDEN_BY;
    return ERR_OK;
}

static enum err_code late_begin(struct sync *s, struct err *e)
{
    s->arrays[LATE_SUM][0] = s->config.params[0];
    s->arrays[LATE_BEGUN][0] += 1;
    return coll_start(s->group, s->arrays[LATE_SUM], 1, e);
}

static enum err_code late_join(struct sync *s, struct err *e)
{
    if (coll_join(s->group, e))
        return e->code;
    s->config.params[1] += s->arrays[LATE_SUM][0];
    return ERR_OK;
}

static const struct sync_ops late_ops = {
    .name = "late",
    .local_steps = true,
    .arrays = {[LATE_SUM] = {"sum", .kept = false}, [LATE_BEGUN] = {"begun", .kept = true}},
    .open = late_open,
    .begin = late_begin,
    .join = late_join,
};

static void join_late(struct ranks *r, int rank)
{
    struct coll_group *g = ranks_open(r, rank);
    struct sync_config config = {.world_size = r->world, .count = 16, .device = &plain_device};
    struct sync_state state;
    struct err e = {0};
    struct sync *s;

    alloc_arrays(g, &config, 2);
    RANK_OK(sync_open_as(&s, &late_ops, g, &config, &e), &e);
    RANK_CHECK(sync_ranks_differ(s) && sync_carrier(s) == config.params && !sync_votes_each_step(s));
    for (int step = 1; step <= ROUND + HIDDEN_BY; step++) {
        config.params[0] = (float)step;
        RANK_OK(sync_before_step(s, &e), &e);
        RANK_OK(sync_after_step(s, 1, r->world, &e), &e);
        RANK_CHECK(sync_voted(s) == (step == ROUND + HIDDEN_BY));
        RANK_CHECK(config.params[1] == (sync_voted(s) ? (float)(r->world * ROUND) : 0.0f));
    }
    RANK_CHECK(!sync_settled(s)); /* the steps during the exchange belong to the next round */
    sync_save(s, &state);
    RANK_CHECK(state.steps == HIDDEN_BY && state.global_samples == HIDDEN_BY * r->world);
    RANK_CHECK(config.arrays[LATE_BEGUN][0] == 1);
    RANK_OK(sync_settle(s, &e), &e);
    RANK_CHECK(sync_settled(s) && config.arrays[LATE_BEGUN][0] == 2);
    sync_close(s);
    coll_close(g);
}

static void an_exchange_is_joined_after_the_steps_that_hide_it(void **state)
{
    struct ranks near = {.world = 3}, far = {.world = 3, .node_of = {0, 1, 2}};

    (void)state;
    assert_true(ranks_run(&near, join_late));
    ranks_release(&near);
    assert_true(ranks_run(&far, join_late));
    ranks_release(&far);
}

/* ---- the end of the group */

/* A rank whose peer dies during the exchange keeps its parameters, and the samples of the round. */
static void lose_a_peer_in_a_round(struct ranks *r, int rank)
{
    struct coll_group *g = ranks_open(r, rank);
    struct sync_config config = {
        .spec = {SYNC_AVERAGE, 2}, .world_size = r->world, .count = COUNT, .device = &plain_device};
    struct sync_state state;
    struct err e = {0};
    struct sync *s;

    alloc_all(g, &config);
    RANK_OK(sync_open(&s, g, &config, &e), &e);
    for (size_t i = 0; i < COUNT; i++)
        config.params[i] = (float)(rank + 1);
    RANK_OK(sync_after_step(s, 3, 9, &e), &e);
    if (rank == 1)
        _exit(0);
    RANK_CHECK(sync_after_step(s, 3, 9, &e) == ERR_ABORTED);
    for (size_t i = 0; i < COUNT; i++)
        RANK_CHECK(config.params[i] == (float)(rank + 1));
    sync_save(s, &state);
    RANK_CHECK(state.steps == 2 && state.local_samples == 6 && state.global_samples == 18);
    sync_close(s);
    coll_close(g);
}

static void a_death_in_a_round_leaves_the_survivors_parameters(void **state)
{
    struct ranks near = {.world = 3}, far = {.world = 3, .node_of = {0, 1, 2}};

    (void)state;
    assert_true(ranks_run(&near, lose_a_peer_in_a_round));
    ranks_release(&near);
    assert_true(ranks_run(&far, lose_a_peer_in_a_round));
    ranks_release(&far);
}

static void lose_a_peer(struct ranks *r, int rank)
{
    struct coll_group *g = ranks_open(r, rank);
    struct sync_config config = {.spec = {.type = SYNC_ALLREDUCE},
                                 .world_size = r->world,
                                 .count = COUNT,
                                 .bucket = 1000,
                                 .thread = 1};
    struct err e = {0};
    struct sync *s;

    alloc_all(g, &config);
    if (rank == 1)
        _exit(0);
    RANK_OK(sync_open(&s, g, &config, &e), &e);
    sync_grads_ready(s, 0, COUNT);
    RANK_CHECK(sync_before_step(s, &e) == ERR_ABORTED);
    sync_close(s);
    coll_close(g);
}

static void a_death_under_a_bucket_shows_before_the_step(void **state)
{
    struct ranks near = {.world = 3}, far = {.world = 3, .node_of = {0, 1, 2}};

    (void)state;
    assert_true(ranks_run(&near, lose_a_peer));
    ranks_release(&near);
    assert_true(ranks_run(&far, lose_a_peer));
    ranks_release(&far);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(allreduce_is_one_process_on_the_whole_batch),
        cmocka_unit_test(averaging_is_local_sgd),
        cmocka_unit_test(averaging_sends_less),
        cmocka_unit_test(a_round_goes_on_where_it_was_saved),
        cmocka_unit_test(an_exchange_is_joined_after_the_steps_that_hide_it),
        cmocka_unit_test(a_death_in_a_round_leaves_the_survivors_parameters),
        cmocka_unit_test(a_death_under_a_bucket_shows_before_the_step),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
