/* The outer optimizer of a run whose job file has none: it stays as it was when the run began until a user sets
 * another one. Other changes by `ddpctl tune`, and replaced ranks, do not change it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "base/job/job_tune.h"
#include "base/mem.h"
#include "tests/unit/trainer/member/formation/meeting.h"
#include "trainer/resume.h"
#include "trainer/round/outer.h"
#include "trainer/tune.h"

enum { WORLD = 3, NEW = 2, FIRST = 11 };

/* 450 rounds after a long warm start imply 0.7 and 0.9; with `every: 30`, 30 rounds imply 0.9 and 0.6. */
#define SYNC "{type: diloco, every: 2, warm: 100}"

struct scene {
    double lr, momentum; /* of the snapshot from which the run goes on; 0: it begins */
};

/* ---- the newest job file, which the coordinator would send */

static char *newest; /* rank 0's; NULL: the job was not tuned */

char *__wrap_link_take_tuning(struct link *r, int64_t *revision);

char *__wrap_link_take_tuning(struct link *r, int64_t *revision)
{
    (void)r;
    ++*revision;
    return xstrdup(newest);
}

static const char *const longer_rounds[] = {"sync.every=30", NULL};
static const char *const another_optimizer[] = {"sync.outer_lr=0.5", "sync.outer_momentum=0.8", NULL};

static void change_job_file(const struct trainer *t, const char *const *assignments)
{
    CLEANUP(job_tuned_release) struct job_tuned tuned = {0};
    struct err e = {0};

    if (t->formation.rank > 0)
        return;
    CLEANUP(free_text) char *text = newest ? xstrdup(newest) : job_print(&t->config->job);
    RANK_OK(job_tune(&tuned, text, (char *const *)(uintptr_t)assignments, &e), &e);
    free(newest);
    newest = steal(tuned.text);
}

static void tune(struct trainer *t, const char *const *assignments)
{
    struct err e = {0};

    change_job_file(t, assignments);
    RANK_OK(tune_take(t, &e), &e);
}

/* ---- a run of several generations */

static void form(struct ranks *r, struct trainer *t, int rank, int generation)
{
    const struct meeting_place at = {.round = generation,
                                     .generation = FIRST + generation,
                                     .rank = rank,
                                     .world = WORLD,
                                     .live = generation > 0,
                                     .job_file = newest};
    struct err e = {0};

    RANK_OK(meeting_form(r, (struct meeting *)(void *)r->shared->result, t, &at, &e), &e);
}

/* In place of the last rank a process comes that was started with the first job file. */
static void replace_last(struct ranks *r, struct trainer *t, struct trainer_config *config, int rank,
                         int generation)
{
    if (rank == NEW) {
        meeting_close_trainer(t, config);
        meeting_open_trainer(t, config, SYNC, "");
    } else {
        RANK_CHECK(trainer_leave(t));
    }
    form(r, t, rank, generation);
}

static void expect_outer(const struct trainer *t, int64_t every, double lr, double momentum)
{
    RANK_CHECK(t->sync.every == every);
    if (t->sync.outer_lr != lr || t->sync.outer_momentum != momentum)
        fprintf(stderr, "rank %d: %g %g instead of %g %g\n", t->formation.rank, t->sync.outer_lr,
                t->sync.outer_momentum, lr, momentum);
    RANK_CHECK(t->sync.outer_lr == lr && t->sync.outer_momentum == momentum);
}

static void begin(struct ranks *r, struct trainer *t, struct trainer_config *config, int rank)
{
    const struct scene *scene = r->arg;
    const struct snapshot_place place = {.outer_lr = scene->lr, .outer_momentum = scene->momentum};
    struct err e = {0};

    meeting_open_trainer(t, config, SYNC, "");
    form(r, t, rank, 0);
    RANK_OK(outer_take(t, &place, &e), &e);
    RANK_OK(trainer_restore(t, &e), &e);
    meeting_train(t, 3);
}

static void tune_and_replace(struct ranks *r, int rank)
{
    const struct scene *scene = r->arg;
    const double lr = scene->lr > 0 ? scene->lr : 0.7, momentum = scene->lr > 0 ? scene->momentum : 0.9;
    struct trainer_config config;
    struct trainer t;

    begin(r, &t, &config, rank);
    expect_outer(&t, 2, lr, momentum);
    tune(&t, longer_rounds);
    expect_outer(&t, 30, lr, momentum);
    meeting_train(&t, 2);
    replace_last(r, &t, &config, rank, 1);
    expect_outer(&t, 30, lr, momentum);
    meeting_train(&t, 2);
    tune(&t, another_optimizer);
    expect_outer(&t, 30, 0.5, 0.8);
    meeting_train(&t, 2);
    replace_last(r, &t, &config, rank, 2);
    expect_outer(&t, 30, 0.5, 0.8);
    free(newest);
    meeting_close_trainer(&t, &config);
}

static void a_run_keeps_its_outer_optimizer_until_both_keys_are_set(void **state)
{
    /* The last one is what the job file implies after the first change. */
    static const struct scene scenes[] = {{0, 0}, {0.4, 0.3}, {0.9, 0.6}};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(scenes); i++) {
        struct ranks r = {.world = WORLD, .arg = &scenes[i]};

        assert_true(ranks_run(&r, tune_and_replace));
        ranks_release(&r);
    }
}

/* The job was tuned while its ranks formed the next group, so none of them has taken the values over in the last one. */
static void tune_between(struct ranks *r, int rank)
{
    struct trainer_config config;
    struct trainer t;

    begin(r, &t, &config, rank);
    change_job_file(&t, longer_rounds);
    replace_last(r, &t, &config, rank, 1);
    expect_outer(&t, 30, 0.7, 0.9);
    free(newest);
    meeting_close_trainer(&t, &config);
}

static void a_job_that_is_tuned_between_two_groups_keeps_its_outer_optimizer(void **state)
{
    static const struct scene scene = {0};
    struct ranks r = {.world = WORLD, .arg = &scene};

    (void)state;
    assert_true(ranks_run(&r, tune_between));
    ranks_release(&r);
}

/* A rank was replaced while the job file had an outer optimizer. Then a coordinator with an older database brings back the job file
 * that had none: all ranks must use the same. */
static void lose_the_change(struct ranks *r, int rank)
{
    struct trainer_config config;
    struct trainer t;
    struct err e = {0};

    begin(r, &t, &config, rank);
    CLEANUP(free_text) char *first = job_print(&config.job);
    tune(&t, another_optimizer);
    replace_last(r, &t, &config, rank, 1);
    if (rank == 0) {
        free(newest);
        newest = steal(first);
    }
    RANK_OK(tune_take(&t, &e), &e);
    RANK_CHECK(t.spec->sync.outer_auto);
    expect_outer(&t, 2, 0.5, 0.8);
    free(newest);
    meeting_close_trainer(&t, &config);
}

static void ranks_agree_after_a_change_was_lost(void **state)
{
    static const struct scene scene = {0.4, 0.3};
    struct ranks r = {.world = WORLD, .arg = &scene};

    (void)state;
    assert_true(ranks_run(&r, lose_the_change));
    ranks_release(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_run_keeps_its_outer_optimizer_until_both_keys_are_set),
        cmocka_unit_test(a_job_that_is_tuned_between_two_groups_keeps_its_outer_optimizer),
        cmocka_unit_test(ranks_agree_after_a_change_was_lost),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
