/* Tests a process that outlives its generation: its training continues in the next group, with another rank
 * and another world size, and without a coordinator. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "tests/unit/trainer/member/formation/meeting.h"
#include "trainer/engine/state.h"
#include "trainer/resume.h"
#include "trainer/step.h"
#include "trainer/trainer.h"

enum { VICTIM = 1, BEFORE = 6, AFTER = 5, ROUND = 4, BATCH = 4, FIRST = 11, SECOND = 12 };

struct scene {
    const char *sync;     /* value of `sync` in the job file */
    int64_t lost_at_step; /* the step in whose exchange the victim is missing */
    bool made;            /* that step counts for the survivors nevertheless */
    bool apart;           /* every rank is on its own node */
    size_t difference;    /* which of the differences between survivors */
};

/* The state of a survivor, from which a new process starts. */
struct taken {
    struct snapshot_place place;
    struct sync_state round;
    float state[MEETING_FLOATS];
};

/* Shared memory of all processes. */
struct board {
    struct meeting meeting;
    struct taken taken[2];
};
_Static_assert(sizeof(struct board) <= sizeof(((struct ranks_shared *)0)->result), "room for the board");

static struct board *board_of(struct ranks *r)
{
    return (struct board *)(void *)r->shared->result;
}

static enum err_code form_or_fail(struct ranks *r, struct trainer *t, int64_t generation, int rank, int world,
                                  struct err *e)
{
    const struct scene *scene = r->arg;
    const struct meeting_place at = {.round = generation == FIRST ? 0 : 1,
                                     .generation = generation,
                                     .rank = rank,
                                     .world = world,
                                     .apart = scene->apart};

    return meeting_form(r, &board_of(r)->meeting, t, &at, e);
}

static void generation_form(struct ranks *r, struct trainer *t, int64_t generation, int rank, int world)
{
    struct err e = {0};

    RANK_OK(form_or_fail(r, t, generation, rank, world, &e), &e);
}

static void train_on(struct trainer *t)
{
    struct err e = {0};

    meeting_train(t, AFTER);
    RANK_OK(sync_settle(t->formation.sync, &e), &e);
}

static void member_survive(struct ranks *r, int rank)
{
    const struct scene *scene = r->arg;
    struct board *b = board_of(r);
    int next = rank == 0 ? 1 : 0; /* of two ranks, each gets another rank or another neighbour */
    struct trainer_config config;
    struct trainer t;
    struct step s;
    struct err e = {0};
    uint64_t before = 0;
    bool epoch_ended;

    meeting_open_trainer(&t, &config, scene->sync, "");
    generation_form(r, &t, FIRST, rank, 3);
    RANK_OK(trainer_restore(&t, &e), &e);
    for (;;) {
        before = meeting_hash(&t);
        if (rank == VICTIM && t.engine.step == BEFORE)
            _exit(0);
        if (trainer_step(&t, &s, &epoch_ended, &e))
            break;
    }
    RANK_CHECK(e.code == ERR_ABORTED);
    RANK_CHECK(t.engine.step == scene->lost_at_step - !scene->made);
    RANK_CHECK((meeting_hash(&t) == before) == !scene->made);
    before = meeting_hash(&t);

    RANK_CHECK(trainer_leave(&t));
    RANK_CHECK(meeting_hash(&t) == before);
    generation_form(r, &t, SECOND, next, 2);
    RANK_CHECK(t.formation.rank == next && t.formation.world_size == 2 && t.engine.sampler.world_size == 2);
    RANK_CHECK(meeting_hash(&t) == before);
    sync_save(t.formation.sync, &b->taken[next].round);
    /* The interrupted round continues with the samples of the two survivors. */
    RANK_CHECK(b->taken[next].round.steps == (scene->made ? ROUND : 0));
    RANK_CHECK(b->taken[next].round.global_samples == (scene->made ? 2 * ROUND * BATCH : 0));
    state_place(&t.engine, &b->taken[next].place);
    state_out(&t.engine, b->taken[next].state);
    train_on(&t);
    RANK_CHECK(meeting_hash(&t) != before);
    r->shared->hash[next] = ranks_hash(t.engine.params.data, t.engine.model->count * sizeof(float));
    meeting_close_trainer(&t, &config);
}

/* A new process that starts from a survivor's state must end with the same bits. */
static void begin_anew(struct ranks *r, int rank)
{
    const struct scene *scene = r->arg;
    struct taken *from = &board_of(r)->taken[rank];
    struct trainer_config config;
    struct trainer t;

    meeting_open_trainer(&t, &config, scene->sync, "");
    generation_form(r, &t, SECOND, rank, 2);
    state_in(&t.engine, from->state);
    state_take_place(&t.engine, &from->place);
    sync_load(t.formation.sync, &from->round);
    train_on(&t);
    RANK_CHECK(ranks_hash(t.engine.params.data, t.engine.model->count * sizeof(float)) ==
               r->shared->hash[rank]);
    meeting_close_trainer(&t, &config);
}

static void scene_play(const struct scene *scene)
{
    struct ranks first = {.world = 3, .node_of = {0, scene->apart, 2 * scene->apart}, .arg = scene};
    struct ranks again = {.world = 2, .node_of = {0, scene->apart}, .arg = scene};

    assert_true(ranks_run(&first, member_survive));
    assert_int_equal(first.shared->hash[0], first.shared->hash[1]);
    ranks_prepare(&again);
    memcpy(again.shared->hash, first.shared->hash, sizeof(first.shared->hash));
    memcpy(board_of(&again)->taken, board_of(&first)->taken, sizeof(board_of(&first)->taken));
    ranks_start(&again, begin_anew);
    assert_true(ranks_finish(&again, -1));
    ranks_release(&first);
    ranks_release(&again);
}

static void a_survivor_of_an_all_reduce_takes_its_parameters_to_the_next_group(void **state)
{
    struct scene scene = {.sync = "{type: allreduce}", .lost_at_step = BEFORE + 1};

    (void)state;
    scene_play(&scene);
    scene.apart = true;
    scene_play(&scene);
}

static void a_survivor_of_a_round_takes_the_round_to_the_next_group(void **state)
{
    /* The second round ends at step 8. The victim dies before. */
    struct scene scene = {.sync = "{type: average, every: 4}", .lost_at_step = 8, .made = true};

    (void)state;
    scene_play(&scene);
    scene.apart = true;
    scene_play(&scene);
}

/* ---- ranks at different speeds */

/* The victim dies within the second round. The others have then made 6 and 2 steps of it, and what they have taken counts. */
static void member_survive_unlike(struct ranks *r, int rank)
{
    struct trainer_config config;
    struct trainer t;
    struct step s;
    struct err e = {0};
    int next = rank == 0 ? 1 : 0, rounds = 0;
    bool epoch_ended;

    meeting_open_trainer(&t, &config, ((const struct scene *)r->arg)->sync, "");
    generation_form(r, &t, FIRST, rank, 3);
    RANK_OK(trainer_restore(&t, &e), &e);
    for (;;) {
        if (rank == VICTIM && t.engine.step > 0)
            _exit(0);
        if (trainer_step(&t, &s, &epoch_ended, &e))
            break;
    }
    /* The first round has at most 4 steps of each rank. */
    int64_t first = (4 + 3 + 2) * BATCH, second = (6 + 2) * BATCH;
    RANK_CHECK(e.code == ERR_ABORTED && t.engine.samples == first);
    RANK_CHECK(t.engine.share.taken == (rank == 0 ? 6 : 2) * BATCH);
    RANK_CHECK(trainer_leave(&t));
    generation_form(r, &t, SECOND, next, 2);
    RANK_CHECK(t.engine.samples == first + second && t.engine.cursor.position == first + second);
    sync_save(t.formation.sync, &board_of(r)->taken[next].round);
    RANK_CHECK(board_of(r)->taken[next].round.global_samples == second);
    /* What the victim was dealt, and the others have not taken, is dealt first. */
    RANK_CHECK(t.engine.deal.count > 1 && t.engine.deal.pieces[0].position < first + second);
    while (rounds < 3) {
        RANK_OK(trainer_step(&t, &s, &epoch_ended, &e), &e);
        RANK_CHECK(isfinite(t.engine.loss));
        rounds += sync_voted(t.formation.sync);
    }
    RANK_CHECK(sync_settled(t.formation.sync));
    r->shared->hash[next] = ranks_hash(t.engine.params.data, t.engine.model->count * sizeof(float));
    RANK_CHECK(t.engine.samples > first + second && t.engine.step > 0);
    meeting_close_trainer(&t, &config);
}

static void survivors_at_unlike_speeds_go_on(void **state)
{
    struct scene scene = {.sync = "{type: average, every: 1h}"};
    struct ranks three = {.world = 3, .arg = &scene};

    (void)state;
    setenv("DDP_TEST_ROUND_STEPS", "6,3,2", 1);
    assert_true(ranks_run(&three, member_survive_unlike));
    unsetenv("DDP_TEST_ROUND_STEPS");
    assert_int_equal(three.shared->hash[0], three.shared->hash[1]);
    ranks_release(&three);
}

/* ---- survivors that hold different things */

static const struct difference {
    const char *says;
    const char *sync;
    int64_t steps; /* in the first generation */
} differences[] = {
    {"is at step 3, rank 0 at step 2", "{type: allreduce}", 2},
    {"is in epoch 1, rank 0 in epoch 0", "{type: allreduce}", 2},
    {"is at data position 17, rank 0 at data position 16", "{type: allreduce}", 2},
    {"is at optimizer step 3, rank 0 at optimizer step 2", "{type: allreduce}", 2},
    {"is at round step 2, rank 0 at round step 1", "{type: average, every: 4}", 5},
    {"different parameters", "{type: allreduce}", 2},
    {"different parameters", "{type: average, every: 4}", 4},
};

static void make_different(struct trainer *t, size_t which)
{
    switch (which) {
    case 0:
        t->engine.step++;
        break;
    case 1:
        t->engine.cursor.epoch++;
        break;
    case 2:
        t->engine.cursor.position++;
        break;
    case 3:
        t->engine.optim->steps++;
        break;
    case 4:
        t->round.steps++;
        break;
    default:
        t->engine.params.data[7] += 1.0f;
    }
}

static void form_with_difference(struct ranks *r, int rank)
{
    const struct scene *scene = r->arg;
    struct trainer_config config;
    struct trainer t;
    struct step s;
    struct err e = {0};
    bool epoch_ended;

    meeting_open_trainer(&t, &config, scene->sync, "");
    generation_form(r, &t, FIRST, rank, 2);
    RANK_OK(trainer_restore(&t, &e), &e);
    for (int64_t i = 0; i < differences[scene->difference].steps; i++)
        RANK_OK(trainer_step(&t, &s, &epoch_ended, &e), &e);
    RANK_CHECK(trainer_leave(&t));
    if (rank == 1)
        make_different(&t, scene->difference);
    RANK_CHECK(form_or_fail(r, &t, SECOND, rank, 2, &e) == ERR_FAILED_PRECONDITION);
    RANK_CHECK(strstr(e.msg, "rank 1") && strstr(e.msg, differences[scene->difference].says));
    meeting_close_trainer(&t, &config);
}

static void survivors_that_hold_different_states_do_not_train_together(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(differences) / sizeof(differences[0]); i++) {
        struct scene scene = {.sync = differences[i].sync, .difference = i};
        struct ranks two = {.world = 2, .arg = &scene};

        assert_true(ranks_run(&two, form_with_difference));
        ranks_release(&two);
    }
}

/* ---- ranks that read different data */

static const struct other_copy {
    const char *text; /* what the last rank reads; the others read TEXT */
    const char *says;
} copies[] = {
    /* Fewer bytes, but the same characters: the models have equal shapes. */
    {"abracadabraabracadabraabracadab",
     "(1 of 2 unlike rank 0): rank 1 has 31 bytes, rank 0 has 33: copy the same files to all nodes"},
    /* As many bytes and symbols, but with e in place of b, so c and d have other numbers. */
    {"aeracadaeraaeracadaeraaeracadaera", "rank 1 and rank 0 both have 33 bytes, but their contents differ"},
    /* More symbols: the parameters of the ranks differ in number. */
    {"abracadabraabracadabraabracadabrx", "both have 33 bytes, but their contents differ"},
    {"abracadabraabracadabraabracadabra", NULL},
};
#define TEXT "abracadabraabracadabraabracadabra"
#define TEXT_JOB                                                                                             \
    "name: copies\n"                                                                                         \
    "device: cpu\n"                                                                                          \
    "train:\n"                                                                                               \
    "  model: {type: gpt, layers: 1, heads: 1, width: 8, context: 4}\n"                                      \
    "  data: {type: text, path: %s/rank%d.txt, split: 0.5}\n"                                                \
    "  optimizer: {type: sgd, lr: 0.01}\n"                                                                   \
    "  batch: 2\n"                                                                                           \
    "  steps: 100\n"                                                                                         \
    "  threads: 1\n"

static void open_copy(struct ranks *r, int rank, const char *copy, struct trainer *t,
                      struct trainer_config *config)
{
    CLEANUP(free_text) char *path = xasprintf("%s/rank%d.txt", r->directory, rank);
    CLEANUP(free_text) char *text = xasprintf(TEXT_JOB, r->directory, rank);
    struct err e = {0};

    RANK_OK(file_write_atomic(path, copy, strlen(copy), 0600, &e), &e);
    meeting_open_job(t, config, text);
}

static void form_with_a_copy(struct ranks *r, int rank)
{
    const struct other_copy *other = r->arg;
    const struct meeting_place at = {.generation = FIRST, .rank = rank, .world = 2};
    struct trainer_config config;
    struct trainer t;
    struct err e = {0};

    open_copy(r, rank, rank ? other->text : TEXT, &t, &config);
    enum err_code code = meeting_form(r, &board_of(r)->meeting, &t, &at, &e);
    RANK_CHECK(code == (other->says ? ERR_FAILED_PRECONDITION : ERR_OK));
    if (code && !strstr(e.msg, other->says))
        fprintf(stderr, "'%s' is not in '%s'\n", other->says, e.msg);
    RANK_CHECK(!code || strstr(e.msg, other->says));
    meeting_close_trainer(&t, &config);
}

static void ranks_with_different_copies_of_a_text_do_not_train_together(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(copies); i++) {
        struct ranks two = {.world = 2, .arg = &copies[i]};

        assert_true(ranks_run(&two, form_with_a_copy));
        ranks_release(&two);
    }
}

/* Rank 2 joins two ranks that have trained. Rank 2 ends with an error before it takes their state. The two only leave the group. */
static void join_with_a_copy(struct ranks *r, int rank)
{
    struct meeting_place at = {.generation = FIRST, .rank = rank, .world = 2};
    struct trainer_config config;
    struct trainer t;
    struct err e = {0};

    open_copy(r, rank, rank < 2 ? TEXT : copies[0].text, &t, &config);
    if (rank < 2) {
        RANK_OK(meeting_form(r, &board_of(r)->meeting, &t, &at, &e), &e);
        RANK_OK(trainer_restore(&t, &e), &e);
        meeting_train(&t, 2);
        RANK_CHECK(trainer_leave(&t));
    }
    at = (struct meeting_place){.round = 1, .generation = SECOND, .rank = rank, .world = 3, .live = true};
    RANK_CHECK(meeting_form(r, &board_of(r)->meeting, &t, &at, &e) ==
               (rank < 2 ? ERR_ABORTED : ERR_FAILED_PRECONDITION));
    RANK_CHECK(strstr(e.msg, "(1 of 3 unlike rank 0): rank 2 has 31 bytes, rank 0 has 33"));
    RANK_CHECK(t.engine.step == (rank < 2 ? 2 : 0));
    meeting_close_trainer(&t, &config);
}

static void a_rank_with_another_copy_does_not_join_later(void **state)
{
    struct ranks three = {.world = 3};

    (void)state;
    assert_true(ranks_run(&three, join_with_a_copy));
    ranks_release(&three);
}

/* ---- a smaller world */

/* With pad, three ranks take 12 positions of 10 samples, two take 10: at position 10 the epoch of two ranks is
 * over. */
static void an_epoch_that_a_smaller_world_has_passed_gives_way_to_the_next(void **state)
{
    static const char text[] = "name: share\n"
                               "train:\n"
                               "  model: {type: mlp, sizes: [4, 3, 1]}\n"
                               "  data: {type: synthetic, samples: 10, pad: true}\n"
                               "  optimizer: {type: sgd, lr: 0.01}\n"
                               "  global_batch: 5\n"
                               "  epochs: 2\n"
                               "  threads: 1\n";
    struct job_spec job;
    struct engine n;
    struct err e = {0};

    (void)state;
    assert_int_equal(job_parse(&job, text, strlen(text), "job", &e), ERR_OK);
    struct engine_config config = {.spec = &job.train, .local_ranks = 1};
    assert_int_equal(engine_open(&n, &config, &e), ERR_OK);
    assert_int_equal(engine_take_share(&n, 0, 3, &e), ERR_OK);
    n.cursor.position = 10;
    assert_int_equal(engine_take_share(&n, 0, 3, &e), ERR_OK);
    assert_int_equal(n.cursor.position, 10);
    assert_int_equal(engine_take_share(&n, 0, 2, &e), ERR_OK);
    assert_int_equal(n.cursor.epoch, 1);
    assert_int_equal(n.cursor.position, 0);
    engine_close(&n);
    job_release(&job);
}

/* Each rank connects with every other one, 32 at a time, and by a relay one connection takes two seconds. */
static void many_ranks_have_time_to_connect(void **state)
{
    (void)state;
    for (int ranks = 2; ranks <= 4096; ranks *= 2)
        assert_true(formation_connect_ms(ranks, true) >= 30000 + ranks / 32 * 2000);
    assert_in_range(formation_connect_ms(2, false), 60000, 61000);
    assert_in_range(formation_connect_ms(1000, false), 120000, 180000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(many_ranks_have_time_to_connect),
        cmocka_unit_test(a_survivor_of_an_all_reduce_takes_its_parameters_to_the_next_group),
        cmocka_unit_test(a_survivor_of_a_round_takes_the_round_to_the_next_group),
        cmocka_unit_test(survivors_at_unlike_speeds_go_on),
        cmocka_unit_test(survivors_that_hold_different_states_do_not_train_together),
        cmocka_unit_test(ranks_with_different_copies_of_a_text_do_not_train_together),
        cmocka_unit_test(a_rank_with_another_copy_does_not_join_later),
        cmocka_unit_test(an_epoch_that_a_smaller_world_has_passed_gives_way_to_the_next),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
