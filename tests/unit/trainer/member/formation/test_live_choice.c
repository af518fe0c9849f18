/* Tests `sync: auto` in a generation that goes on from memory: which choice of a strategy it goes on with, and what becomes of a
 * round that the choice ends. The ranks do the coordinator's part themselves. */
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
#include "trainer/choose_sync.h"
#include "trainer/engine/state.h"
#include "trainer/member/sync/slices.h"
#include "trainer/resume.h"
#include "trainer/step.h"

enum { WORLD = 3, NEW = 2, AHEAD = 1, FIRST = 11, SECOND = 12 };

struct board {
    struct meeting meeting;
    float params[1 + WORLD]
                [MEETING_FLOATS / 8];        /* at the begin of a round, and of each rank before its end */
    float errors[WORLD][MEETING_FLOATS / 8]; /* error feedback of each rank, at the begin */
};
_Static_assert(sizeof(struct board) <= sizeof(((struct ranks_shared *)0)->result), "room for the board");

static struct board *board_of(struct ranks *r)
{
    return (struct board *)(void *)r->shared->result;
}

static struct meeting *meeting_of(struct ranks *r)
{
    return &board_of(r)->meeting;
}

static size_t copy_params(const struct trainer *t, float out[MEETING_FLOATS / 8])
{
    static float state[MEETING_FLOATS];

    RANK_CHECK(snapshot_floats(&t->engine.layout) <= MEETING_FLOATS);
    RANK_CHECK(t->engine.model->count <= MEETING_FLOATS / 8);
    state_out(&t->engine, state);
    memcpy(out, state, t->engine.model->count * sizeof(float));
    return t->engine.model->count;
}

/* The choice was made in a world of this size, or of another. All ranks must end with the same parameters. */
static void end_alike_in_both_worlds(ranks_fn fn)
{
    static const int worlds[] = {WORLD, WORLD + 1};

    for (size_t i = 0; i < ARRAY_LEN(worlds); i++) {
        struct ranks ranks = {.world = WORLD, .arg = &worlds[i]};

        assert_true(ranks_run(&ranks, fn));
        for (int r = 1; r < WORLD; r++)
            assert_true(ranks.shared->hash[r] == ranks.shared->hash[0]);
        ranks_release(&ranks);
    }
}

/* What rank 0 has chosen in a world of `world`. */
static void choose_all_reduce(struct trainer *t, int world)
{
    struct sync_spec chosen = {.type = SYNC_ALLREDUCE, .every = 1};
    struct err e = {0};

    RANK_OK(trainer_adopt_sync(t, &chosen, &e), &e);
    /* A step that takes so long makes all-reduce the choice on every link. */
    t->facts = (struct sync_facts){.compute_ms = 123456.0, .bytes = 4711.0, .world_size = world};
    t->chosen = (struct live_choice){chosen, t->facts};
}

static void take_the_choice_of_the_source(struct ranks *r, int rank)
{
    const int *world = r->arg;
    const struct meeting_place first = {.generation = FIRST, .rank = rank, .world = WORLD},
                               second = {.round = 1,
                                         .generation = SECOND,
                                         .rank = rank,
                                         .world = WORLD,
                                         .live = true};
    struct trainer_config config;
    struct trainer t;
    struct err e = {0};

    meeting_open_trainer(&t, &config, "auto", "");
    RANK_CHECK(!trainer_stays(&t));
    RANK_OK(meeting_form(r, meeting_of(r), &t, &first, &e), &e);
    RANK_OK(trainer_restore(&t, &e), &e);
    choose_all_reduce(&t, *world);
    meeting_train(&t, 3);
    if (rank == NEW) {
        meeting_close_trainer(&t, &config);
        meeting_open_trainer(&t, &config, "auto", "");
    } else {
        RANK_CHECK(trainer_leave(&t));
    }
    RANK_OK(meeting_form(r, meeting_of(r), &t, &second, &e), &e);
    /* A choice for another world size does not hold: trainer_choose_sync will measure all. */
    RANK_CHECK(t.facts.bytes == (*world == WORLD ? 4711.0 : 0.0));
    RANK_CHECK(t.facts.world_size == (*world == WORLD ? WORLD : 0));
    if (*world == WORLD) {
        RANK_OK(trainer_choose_sync(&t, &e), &e); /* measures the link only */
        RANK_CHECK(t.facts.compute_ms == 123456.0 && t.facts.allreduce_ms > 0);
        RANK_CHECK(t.chosen.facts.allreduce_ms == t.facts.allreduce_ms && t.sync.type == SYNC_ALLREDUCE);
    }
    r->shared->hash[rank] = meeting_hash(&t);
    meeting_train(&t, 3);
    meeting_close_trainer(&t, &config);
}

static void a_group_of_the_same_size_measures_the_link_only(void **state)
{
    (void)state;
    end_alike_in_both_worlds(take_the_choice_of_the_source);
}

/* Steps of each rank in a round. */
static const int made[WORLD] = {2, [AHEAD] = 5, 0};
enum { ROUND = 50 /* steps, before the first choice */ };

static float *extra_named(const struct trainer *t, const char *name)
{
    for (size_t i = 0; i < t->engine.extra_count; i++)
        if (!strcmp(t->engine.extras[i].name, name))
            return t->engine.extra[i].data;
    RANK_CHECK(false);
    return NULL;
}

/* By float: the rank in whose slice of int4 codes it lies. */
static void list_owners(const struct model *m, int owners[MEETING_FLOATS / 8])
{
    struct sync_tensor *tensors = xcalloc(m->tensor_count, sizeof(*tensors));
    struct slices s = {0};

    for (size_t i = 0; i < m->tensor_count; i++)
        tensors[i] = (struct sync_tensor){m->tensors[i].offset, m->tensors[i].count};
    slices_cut(&s, tensors, m->tensor_count, WIRE_INT4, WORLD);
    for (int r = 0; r < WORLD; r++)
        for (size_t w = s.first[r]; w < s.first[r + 1]; w++)
            for (size_t i = 0; i < s.windows[w].count; i++)
                owners[s.windows[w].at + i] = r;
    slices_release(&s);
    free(tensors);
}

/* All parameters have moved in the direction of the mean of the ranks' changes, weighted by their samples, and of what earlier
 * exchanges have lost. That counts in full where the rank is the owner. The rank without steps sends it, too. How far they have moved
 * depends on the outer optimizer, which test_diloco tests. */
static void check_weighted_mean(const struct board *board, const struct model *m, const float *now,
                                size_t count)
{
    static int owners[MEETING_FLOATS / 8];
    const float *begin = board->params[0];
    double along = 0.0, mean_square = 0.0, apart_square = 0.0, *mean = xcalloc(count, sizeof(double));

    list_owners(m, owners);
    for (size_t i = 0; i < count; i++) {
        for (int r = 0; r < WORLD; r++) {
            const double weight = made[r] / (2.0 + 5.0), sends = made[r] ? weight : 1.0 / WORLD;

            mean[i] += weight * ((double)board->params[1 + r][i] - begin[i]);
            mean[i] -= (owners[i] == r ? 1.0 : sends) * (double)board->errors[r][i];
        }
        along += mean[i] * ((double)now[i] - begin[i]);
        mean_square += mean[i] * mean[i];
    }
    along /= mean_square;
    for (size_t i = 0; i < count; i++)
        apart_square += pow((double)now[i] - begin[i] - along * mean[i], 2);
    RANK_CHECK(along > 0.5 && along < 1.5);
    RANK_CHECK(apart_square < 1e-10 * mean_square);
    free(mean);
}

/* Ranks are cut off within the second round of diloco, each at another step, and one before its first. Then the link is fast enough for
 * all-reduce. */
static void choose_again_within_a_round(struct ranks *r, int rank)
{
    const struct meeting_place first = {.generation = FIRST, .rank = rank, .world = WORLD},
                               second = {.round = 1,
                                         .generation = SECOND,
                                         .rank = rank,
                                         .world = WORLD,
                                         .live = true};
    struct trainer_config config;
    static float now[MEETING_FLOATS / 8];
    struct board *board = board_of(r);
    struct trainer t;
    struct err e = {0};

    meeting_open_trainer(&t, &config, "auto", "");
    RANK_OK(meeting_form(r, meeting_of(r), &t, &first, &e), &e);
    RANK_OK(trainer_restore(&t, &e), &e);
    RANK_CHECK(t.sync.every == ROUND && t.sync.wire == WIRE_INT4);
    meeting_train(&t, ROUND);
    if (rank == 0)
        copy_params(&t, board->params[0]);
    const size_t bytes = t.engine.model->count * sizeof(float);
    memcpy(board->errors[rank], extra_named(&t, "feedback"), bytes);
    memset(extra_named(&t, "outer_momentum"), 0, bytes); /* which would turn the direction */
    t.facts = (struct sync_facts){.compute_ms = 123456.0, .world_size = WORLD};
    t.chosen = (struct live_choice){t.sync, t.facts};
    meeting_train(&t, made[rank]);
    copy_params(&t, board->params[1 + rank]);
    RANK_CHECK(trainer_leave(&t));
    RANK_OK(meeting_form(r, meeting_of(r), &t, &second, &e), &e);
    t.owed = rank == AHEAD; /* such as an evaluation at its step */
    RANK_CHECK(t.behind == 5 - made[rank]);
    RANK_CHECK(t.sync.type == SYNC_DILOCO);
    RANK_OK(trainer_choose_sync(&t, &e), &e);
    RANK_CHECK(t.sync.type == SYNC_ALLREDUCE && t.behind == 0 && t.owed);
    const size_t count = copy_params(&t, now);
    check_weighted_mean(board, t.engine.model, now, count);
    for (size_t i = 0; i < count; i++)
        RANK_CHECK(extra_named(&t, "feedback")[i] == 0.0f);
    RANK_CHECK(t.engine.step == ROUND + 5 && t.engine.optim->steps == ROUND + 5);
    RANK_CHECK(t.engine.samples == 512 + (ROUND + 5 - 43) * WORLD * 4); /* an epoch has 43 steps */
    meeting_train(&t, 3);
    RANK_CHECK(t.engine.step == ROUND + 8);
    r->shared->hash[rank] = meeting_hash(&t);
    meeting_close_trainer(&t, &config);
}

static void ranks_at_different_steps_of_a_round_end_it_for_all_reduce(void **state)
{
    struct ranks ranks = {.world = WORLD};

    (void)state;
    assert_true(ranks_run(&ranks, choose_again_within_a_round));
    for (int r = 1; r < WORLD; r++)
        assert_true(ranks.shared->hash[r] == ranks.shared->hash[0]);
    ranks_release(&ranks);
}

struct run_end {
    int64_t steps, epochs; /* of the job file; one of the two is 0 */
    int64_t last;          /* step */
};

/* The newest rank has made the run's last step. So nothing is left to choose, and the others make the steps that they lack. */
static void finish_within_a_round(struct ranks *r, int rank)
{
    const struct run_end *end = r->arg;
    const struct meeting_place first = {.generation = FIRST, .rank = rank, .world = WORLD},
                               second = {.round = 1,
                                         .generation = SECOND,
                                         .rank = rank,
                                         .world = WORLD,
                                         .live = true};
    const int64_t lacks = made[AHEAD] - made[rank];
    struct trainer_config config;
    struct trainer t;
    struct err e = {0};

    meeting_open_trainer(&t, &config, "auto", "");
    config.job.train.steps = end->steps;
    config.job.train.epochs = end->epochs;
    RANK_OK(meeting_form(r, meeting_of(r), &t, &first, &e), &e);
    RANK_OK(trainer_restore(&t, &e), &e);
    t.facts = (struct sync_facts){.compute_ms = 123456.0, .world_size = WORLD};
    t.chosen = (struct live_choice){t.sync, t.facts};
    meeting_train(&t, end->last - lacks);
    RANK_CHECK(trainer_leave(&t));
    RANK_OK(meeting_form(r, meeting_of(r), &t, &second, &e), &e);
    RANK_CHECK(t.engine.step == end->last - lacks && t.behind == lacks);
    RANK_OK(trainer_choose_sync(&t, &e), &e);
    RANK_CHECK(t.sync.type == SYNC_DILOCO);
    RANK_OK(trainer_run(&t, &e), &e);
    RANK_CHECK(t.engine.step == end->last);
    meeting_close_trainer(&t, &config);
}

static void no_rank_chooses_when_one_has_made_the_last_step(void **state)
{
    static const struct run_end ends[] = {{.steps = 20, .last = 20},
                                          {.epochs = 1, .last = (512 + WORLD * 4 - 1) / (WORLD * 4)}};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(ends); i++) {
        struct ranks ranks = {.world = WORLD, .arg = &ends[i]};

        assert_true(ranks_run(&ranks, finish_within_a_round));
        ranks_release(&ranks);
    }
}

static bool shared_is_own(const struct engine *n)
{
    for (size_t i = 0; i < n->extra_count; i++)
        if (!strcmp(n->extras[i].name, "shared"))
            return !memcmp(n->extra[i].data, n->params.data, n->params.count * sizeof(float));
    return false;
}

/* A generation fails when its group has formed and the choice has not been shared yet. */
static void fail_to_form(struct ranks *r, struct trainer *t, int rank)
{
    const struct meeting_place at = {
        .round = 1, .generation = SECOND, .rank = rank, .world = WORLD, .live = true, .source = NEW};
    struct err e = {0};

    RANK_CHECK(meeting_form(r, meeting_of(r), t, &at, &e) == ERR_INTERNAL); /* the source has no state */
}

static void choose_and_fail_to_form(struct ranks *r, int rank)
{
    const int *world = r->arg;
    const struct meeting_place first = {.generation = FIRST, .rank = rank, .world = WORLD},
                               third = {.round = 2,
                                        .generation = SECOND + 1,
                                        .rank = rank,
                                        .world = WORLD,
                                        .live = true};
    struct trainer_config config;
    struct trainer t;
    struct err e = {0};

    meeting_open_trainer(&t, &config, "auto", "");
    RANK_OK(meeting_form(r, meeting_of(r), &t, &first, &e), &e);
    RANK_OK(trainer_restore(&t, &e), &e);
    choose_all_reduce(&t, *world);
    meeting_train(&t, 3);
    for (int lost = 0; lost < 2; lost++) { /* the replacement is lost, too */
        if (rank == NEW) {
            meeting_close_trainer(&t, &config);
            meeting_open_trainer(&t, &config, "auto", "");
        } else {
            RANK_CHECK(trainer_leave(&t));
        }
        if (!lost)
            fail_to_form(r, &t, rank);
    }
    RANK_OK(meeting_form(r, meeting_of(r), &t, &third, &e), &e);
    RANK_CHECK(t.engine.whole && t.engine.step == 3);
    RANK_CHECK(t.chosen.facts.bytes == 4711.0 && t.chosen.sync.type == SYNC_ALLREDUCE);
    RANK_CHECK(t.facts.world_size == (*world == WORLD ? WORLD : 0));
    RANK_CHECK(*world == WORLD || shared_is_own(&t.engine));
    r->shared->hash[rank] = meeting_hash(&t);
    meeting_close_trainer(&t, &config);
}

/* In a world of another size the group opens with an array for the shared model. Nothing but the ranks' parameters is
 * right there. */
static void a_choice_of_sync_auto_outlives_a_generation_that_fails_to_form(void **state)
{
    (void)state;
    end_alike_in_both_worlds(choose_and_fail_to_form);
}
int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_group_of_the_same_size_measures_the_link_only),
        cmocka_unit_test(ranks_at_different_steps_of_a_round_end_it_for_all_reduce),
        cmocka_unit_test(no_rank_chooses_when_one_has_made_the_last_step),
        cmocka_unit_test(a_choice_of_sync_auto_outlives_a_generation_that_fails_to_form),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
