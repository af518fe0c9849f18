/* `sync: auto` in a group of two: measuring changes nothing, and the state is sound when the strategy changes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/mem.h"
#include "tests/unit/trainer/member/ranks.h"
#include "trainer/choose_sync.h"
#include "trainer/engine/state.h"
#include "trainer/resume.h"
#include "trainer/step.h"

enum { WORLD = 2, STATE = 16384 };

#define JOB                                                                                                  \
    "name: choice\n"                                                                                         \
    "device: cpu\n"                                                                                          \
    "train:\n"                                                                                               \
    "  model: {type: mlp, sizes: [20, 24, 1]}\n"                                                             \
    "  data: {type: synthetic, samples: 512}\n"                                                              \
    "  optimizer: {type: adamw, lr: 0.01}\n"                                                                 \
    "  batch: 4\n"                                                                                           \
    "  steps: 1000\n"                                                                                        \
    "  threads: 1\n"                                                                                         \
    "  sync: %s\n"

static const struct sync_spec allreduce = {.type = SYNC_ALLREDUCE};

/* The addresses of the ranks, which the coordinator would pass on. */
struct board {
    uint8_t address[WORLD][512];
    size_t size[WORLD];
};

static void group_form(struct ranks *r, int rank, int64_t generation, struct trainer *t)
{
    CLEANUP(free_text) char *node = xasprintf("%s/%d", r->directory, rank);
    struct board *b = &((struct board *)(void *)r->shared->result)[generation];
    struct link_group info = {.generation = generation, .rank = rank, .world_size = WORLD, .source_rank = -1};
    struct err e = {0};

    RANK_OK(formation_listen(&t->formation, NULL, node, &e), &e);
    b->size[rank] = coll_listener_address(t->formation.listener, b->address[rank], sizeof(b->address[rank]));
    atomic_fetch_add(&r->shared->counter, 1);
    for (int64_t end = clock_boot_ms() + 20000;
         atomic_load(&r->shared->counter) < WORLD * (generation + 1);) {
        RANK_CHECK(clock_boot_ms() < end);
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    info.peers = xcalloc(WORLD, sizeof(*info.peers));
    for (int i = 0; i < WORLD; i++)
        info.peers[i] = (struct link_peer){.rank = i,
                                           .node_rank = i,
                                           .address = xmemdup(b->address[i], b->size[i]),
                                           .address_size = b->size[i]};
    formation_be_told(&t->formation, &info);
    RANK_OK(trainer_form(t, false, &e), &e);
}

static void trainer_begin(struct ranks *r, int rank, const char *sync, struct trainer *t,
                          struct trainer_config *config)
{
    CLEANUP(free_text) char *text = xasprintf(JOB, sync);
    struct link *link;
    struct err e = {0};

    *config = (struct trainer_config){.standalone = true, .local_world_size = 1};
    RANK_OK(job_parse(&config->job, text, strlen(text), "job", &e), &e);
    RANK_OK(link_open(&link, true, &e), &e);
    RANK_OK(trainer_open(t, config, link, &e), &e);
    group_form(r, rank, 0, t);
    RANK_OK(trainer_restore(t, &e), &e);
}

static void trainer_end(struct trainer *t, struct trainer_config *config)
{
    RANK_CHECK(trainer_leave(t));
    trainer_close(t);
    job_release(&config->job);
}

static void make_steps(struct trainer *t, int count)
{
    struct step s;
    struct err e = {0};
    bool epoch_ended;

    while (count--)
        RANK_OK(trainer_step(t, &s, &epoch_ended, &e), &e);
}

/* Parameters, moments and the strategy's kept arrays. */
static uint64_t state_hash(const struct trainer *t)
{
    static float state[STATE];

    RANK_CHECK(state_bytes(&t->engine) <= sizeof(state));
    state_out(&t->engine, state);
    return ranks_hash(state, state_bytes(&t->engine));
}

static uint64_t params_hash(const struct trainer *t)
{
    return ranks_hash(t->engine.params.data, t->engine.model->count * sizeof(float));
}

static bool all_ranks_have(struct trainer *t, uint64_t mine)
{
    uint64_t all[WORLD];
    struct err e = {0};

    RANK_OK(coll_allgather(t->formation.group, &mine, sizeof(mine), all, &e), &e);
    return all[0] == all[1];
}

static bool array_is_zero(const struct trainer *t, const char *name)
{
    for (size_t i = 0; i < t->engine.extra_count; i++)
        for (size_t k = 0; !strcmp(t->engine.extras[i].name, name) && k < t->engine.model->count; k++)
            if (t->engine.extra[i].data[k] != 0.0f)
                return false;
    return true;
}

static void adopt_strategy(struct trainer *t, const struct sync_spec *spec)
{
    struct err e = {0};

    RANK_OK(trainer_adopt_sync(t, spec, &e), &e);
    RANK_CHECK(!memcmp(&t->sync, spec, sizeof(*spec)));
}

/* ---- all-reduce by choice is all-reduce */

static void reduce_by_key(struct ranks *r, int rank)
{
    struct trainer_config config;
    struct trainer t;

    trainer_begin(r, rank, r->arg, &t, &config);
    if (config.job.train.sync.type == SYNC_AUTO)
        adopt_strategy(&t, &allreduce);
    RANK_CHECK(sync_votes_each_step(t.formation.sync) && !sync_ranks_differ(t.formation.sync));
    make_steps(&t, 5);
    r->shared->hash[rank] = params_hash(&t);
    trainer_end(&t, &config);
}

static void chosen_all_reduce_gives_the_bits_of_all_reduce(void **state)
{
    uint64_t hash[2];

    (void)state;
    for (int i = 0; i < 2; i++) {
        struct ranks r = {.world = WORLD, .node_of = {0, 1}, .arg = i ? "auto" : "{type: allreduce}"};

        assert_true(ranks_run(&r, reduce_by_key));
        assert_int_equal(r.shared->hash[0], r.shared->hash[1]);
        hash[i] = r.shared->hash[0];
        ranks_release(&r);
    }
    assert_int_equal(hash[0], hash[1]);
}

/* ---- measuring */

static void choose_once(struct ranks *r, int rank)
{
    struct trainer_config config;
    struct trainer t;
    struct err e = {0};

    trainer_begin(r, rank, "auto", &t, &config);
    uint64_t before = state_hash(&t);
    RANK_OK(trainer_choose_sync(&t, &e), &e);
    RANK_CHECK(state_hash(&t) == before && t.engine.step == 0 && t.engine.cursor.position == 0);
    RANK_CHECK(t.facts.allreduce_ms > 0 && t.facts.compute_ms > 0 && t.facts.nodes == WORLD);
    RANK_CHECK(all_ranks_have(&t, ranks_hash(&t.sync, sizeof(t.sync))));
    RANK_CHECK(t.sync.type == SYNC_ALLREDUCE || t.sync.type == SYNC_DILOCO);
    make_steps(&t, 9);
    RANK_OK(sync_settle(t.formation.sync, &e), &e);
    RANK_CHECK(all_ranks_have(&t, params_hash(&t)));
    trainer_end(&t, &config);
}

static void measuring_changes_no_state(void **state)
{
    struct ranks r = {.world = WORLD, .node_of = {0, 1}};

    (void)state;
    assert_true(ranks_run(&r, choose_once));
    ranks_release(&r);
}

/* ---- from one strategy to another */

static void change_and_change_back(struct ranks *r, int rank)
{
    struct sync_spec coarse, fine;
    struct trainer_config config;
    struct trainer t;
    struct sync_state round;
    struct err e = {0};

    sync_choice_base(&coarse);
    coarse.every = 4;
    fine = coarse;
    fine.wire = WIRE_FP32;
    fine.every = 3;
    trainer_begin(r, rank, "auto", &t, &config);
    adopt_strategy(&t, &allreduce);
    make_steps(&t, 3);
    RANK_CHECK(all_ranks_have(&t, state_hash(&t)));

    adopt_strategy(&t, &coarse); /* begins at equal parameters */
    RANK_CHECK(sync_settled(t.formation.sync));
    RANK_CHECK(
        !memcmp(sync_shared(t.formation.sync), t.engine.params.data, t.engine.model->count * sizeof(float)));
    make_steps(&t, 6);
    RANK_CHECK(!all_ranks_have(&t, params_hash(&t)));
    RANK_CHECK(!array_is_zero(&t, "outer_momentum") && !array_is_zero(&t, "feedback"));

    adopt_strategy(&t, &fine); /* the round goes on */
    sync_save(t.formation.sync, &round);
    RANK_CHECK(round.steps == 2 && array_is_zero(&t, "feedback") && !array_is_zero(&t, "outer_momentum"));
    RANK_OK(sync_tune(t.formation.sync, &config.job.train.sync, &e), &e); /* auto: the choice stays */
    make_steps(&t, 1);
    RANK_CHECK(sync_settled(t.formation.sync) && all_ranks_have(&t, params_hash(&t)));
    make_steps(&t, 1);
    RANK_CHECK(!sync_settled(t.formation.sync));

    adopt_strategy(&t, &allreduce); /* ends the round; moments become equal, too */
    RANK_CHECK(all_ranks_have(&t, state_hash(&t)));
    RANK_CHECK(array_is_zero(&t, "outer_momentum") && array_is_zero(&t, "feedback"));
    make_steps(&t, 3);
    RANK_CHECK(all_ranks_have(&t, state_hash(&t)) && t.engine.step == 14);
    trainer_end(&t, &config);
}

static void state_is_sound_when_the_strategy_changes(void **state)
{
    struct ranks r = {.world = WORLD, .node_of = {0, 1}};

    (void)state;
    assert_true(ranks_run(&r, change_and_change_back));
    ranks_release(&r);
}

/* ---- a process that outlives its generation */

/* The next generation begins with rounds until it has chosen: at the survivors' parameters after all-reduce, else with the
 * round that was open. */
static void choose_in_the_next_generation(struct ranks *r, int rank)
{
    const struct sync_spec *before = r->arg;
    bool rounds = before->type != SYNC_ALLREDUCE;
    struct trainer_config config;
    struct trainer t;
    struct sync_state round;

    trainer_begin(r, rank, "auto", &t, &config);
    adopt_strategy(&t, before);
    make_steps(&t, 6);
    uint64_t state = state_hash(&t);
    RANK_CHECK(trainer_leave(&t));
    group_form(r, rank, 1, &t);
    RANK_CHECK(state_hash(&t) == state && t.sync.type == SYNC_DILOCO);
    sync_save(t.formation.sync, &round);
    RANK_CHECK(round.steps == (rounds ? 2 : 0));
    bool same =
        !memcmp(sync_shared(t.formation.sync), t.engine.params.data, t.engine.model->count * sizeof(float));
    RANK_CHECK(same == !rounds);
    adopt_strategy(&t, &allreduce);
    RANK_CHECK(all_ranks_have(&t, state_hash(&t)));
    trainer_end(&t, &config);
}

static void survivors_choose_again(void **state)
{
    struct sync_spec rounds;

    (void)state;
    sync_choice_base(&rounds);
    rounds.every = 4;
    for (int i = 0; i < 2; i++) {
        struct ranks r = {.world = WORLD, .node_of = {0, 1}, .arg = i ? &rounds : &allreduce};

        assert_true(ranks_run(&r, choose_in_the_next_generation));
        ranks_release(&r);
    }
}

/* ---- the end of the last round */

struct ending {
    enum wire_type wire;
    bool again; /* the round was left open by a generation before */
};

/* Ends a round of two steps as a change to all-reduce does, or as the end of the run does. */
static void end_round(struct ranks *r, int rank, const struct ending *how, bool change)
{
    struct sync_spec rounds;
    struct trainer_config config;
    struct trainer t;
    struct err e = {0};

    sync_choice_base(&rounds);
    rounds.every = 4;
    rounds.wire = how->wire;
    trainer_begin(r, rank, "auto", &t, &config);
    adopt_strategy(&t, &rounds);
    make_steps(&t, 6);
    if (change && how->again) {
        RANK_CHECK(trainer_leave(&t));
        group_form(r, rank, 1, &t);
    }
    if (change)
        adopt_strategy(&t, &allreduce);
    else
        RANK_OK(sync_settle(t.formation.sync, &e), &e);
    RANK_CHECK(all_ranks_have(&t, params_hash(&t)));
    r->shared->hash[rank] = params_hash(&t);
    trainer_end(&t, &config);
}

static void end_by_change(struct ranks *r, int rank)
{
    end_round(r, rank, r->arg, true);
}

static void end_by_settling(struct ranks *r, int rank)
{
    end_round(r, rank, r->arg, false);
}

static uint64_t ending_hash(const struct ending *how, void (*end)(struct ranks *, int))
{
    struct ranks r = {.world = WORLD, .node_of = {0, 1}, .arg = (void *)how};

    assert_true(ranks_run(&r, end));
    uint64_t hash = r.shared->hash[0];
    ranks_release(&r);
    return hash;
}

static void the_last_round_ends_without_rounding(void **state)
{
    const struct ending fp32 = {WIRE_FP32, false}, fp32_again = {WIRE_FP32, true}, int4 = {WIRE_INT4, false};
    uint64_t want = ending_hash(&fp32, end_by_settling);

    (void)state;
    assert_true(ending_hash(&fp32, end_by_change) == want);
    assert_true(ending_hash(&fp32_again, end_by_change) == want);
    assert_true(ending_hash(&int4, end_by_change) != ending_hash(&int4, end_by_settling));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chosen_all_reduce_gives_the_bits_of_all_reduce),
        cmocka_unit_test(measuring_changes_no_state),
        cmocka_unit_test(state_is_sound_when_the_strategy_changes),
        cmocka_unit_test(survivors_choose_again),
        cmocka_unit_test(the_last_round_ends_without_rounding),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
