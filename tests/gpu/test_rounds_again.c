/* Tests that processes with GPUs continue through many generations (lives.h) within rounds of averaging. Members are lost between two
 * steps of a round, when ranks are at different steps, or in an exchange that no rank or only some ranks have applied. The linker
 * replaces functions of the link, so that ranks hear of a loss when the test decides. */
#include "tests/gpu/lives.h"

#include <signal.h>
#include <stdlib.h>
#include <time.h>

#include "base/mem.h"
#include "trainer/member/link/watch.h"
#include "trainer/step.h"

enum { EVERY = 4, OVERLAP = 2, ERAS_FEW = 12, RANKS_MOST = 4 };

static const struct strategy {
    const char *sync;
    bool codes, overlaps; /* codes: the host exchanges them, without NCCL */
    uint64_t seed;
} strategies[] = {
    {"{type: average, every: 4}", .seed = 11},
    {"{type: diloco, every: 4}", .seed = 12},
    {"{type: diloco, every: 4, wire: int4}", .codes = true, .seed = 13},
    {"{type: diloco, every: 4, overlap: 2}", .overlaps = true, .seed = 14},
};

static const struct strategy *strategy;
static bool over,
    sum_fails; /* this process hears that its generation is over; its next sum fails when it is waited for */
static int begun; /* exchanges of this process */

bool __wrap_link_over(const struct link *r);
bool __wrap_link_stays(const struct link *r);
enum err_code __real_coll_join(struct coll_group *g, struct err *e);
enum err_code __wrap_coll_join(struct coll_group *g, struct err *e);

bool __wrap_link_over(const struct link *r)
{
    (void)r;
    return over;
}

bool __wrap_link_stays(const struct link *r)
{
    (void)r;
    return true;
}

enum err_code __wrap_coll_join(struct coll_group *g, struct err *e)
{
    return sum_fails ? err_set(e, ERR_ABORTED, "the test has lost the sum") : __real_coll_join(g, e);
}

/* ---- the plan */

static void era_draw(uint64_t *seed, const struct era *before, struct era *era)
{
    static const enum end with_sums[] = {WITHIN,        WITHIN,        BEFORE_SUM, BEFORE_SUM,
                                         AFTER_SENDING, AFTER_SENDING, FORMING,    IN_ORDER};
    static const enum end others[] = {WITHIN,     WITHIN, BEFORE_SUM, BEFORE_SUM,
                                      BEFORE_SUM, WITHIN, FORMING,    IN_ORDER};
    const bool sums = !strategy->codes && !strategy->overlaps;
    const int world = size_of(era->members);

    /* After an era of ahead, the only newest state could be lost with a member that is killed while the group forms. */
    do
        era->end = (sums ? with_sums : others)[draw(seed, 8)];
    while (era->end == FORMING && (!before || before->ahead));
    era->steps = era->end == FORMING ? 0 : (int)draw(seed, 2);
    if (!before || (strategy->overlaps && era->end == BEFORE_SUM)) /* NCCL connects at the first sum */
        era->steps = 1;
    era->more = (int)draw(seed, EVERY);
    if (era->end != IN_ORDER || (world > 2 && draw(seed, 2)))
        era->lost = pick_one(seed, era->members);
    era->ahead = era->end == AFTER_SENDING && (world > 2 || rank_of(era->members, lowest_of(era->lost)) == 0);
    era->late_abort = draw(seed, 2);
    era->unnoticed = era->end == BEFORE_SUM && draw(seed, 8) == 0;
    era->newest = era->members & ~era->lost;
    if (era->ahead) /* rank 0, if it is not the lost one, is an exchange behind */
        era->newest &= ~(1u << lowest_of(era->members));
}

static void plan_draw(struct plan *plan, int count, uint64_t seed)
{
    unsigned members = 0x7; /* three ranks */

    *plan = (struct plan){.count = count};
    for (int g = 0; g < count; g++) {
        struct era *era = &plan->eras[g];

        era->members = members;
        era_draw(&seed, g ? &plan->eras[g - 1] : NULL, era);
        members &= ~era->lost;
        /* Here a new rank would get the moments of another rank than without the loss. */
        if (era->ahead && era->newest != members)
            continue;
        for (int wanted = 2 + (int)draw(&seed, RANKS_MOST - 1); size_of(members) < wanted;)
            members |= pick_one(&seed, ~members & ((1u << SLOTS) - 1));
    }
}

/* ---- steps */

static int64_t steps_to_exchange(const struct trainer *t)
{
    return sync_steps_after_next(t->formation.sync) + 1;
}

static void round_finish(struct trainer *t)
{
    begun++;
    meeting_train(t, steps_to_exchange(t));
}

/* The exchange that the generation before did not make. */
static void round_catch_up(struct trainer *t)
{
    struct step s;
    struct err e = {0};

    if (!sync_round_due(t->formation.sync))
        return;
    begun++;
    RANK_OK(trainer_exchange_again(t, &s, &e), &e);
    t->served_step = t->engine.step;
}

/* Some steps, but not those of an exchange. */
static void round_go_on(struct trainer *t, int64_t steps)
{
    const int64_t most = steps_to_exchange(t) - 1;
    struct err e = {0};

    RANK_OK(sync_join(t->formation.sync, &e), &e);
    meeting_train(t, steps < most ? steps : most);
}

static void step_fails(struct trainer *t)
{
    const int64_t before = t->engine.step;
    struct step s;
    struct err e = {0};
    bool epoch_ended;

    RANK_CHECK(trainer_step(t, &s, &epoch_ended, &e) == ERR_ABORTED);
    RANK_CHECK(t->engine.step == before + !over &&
               t->engine.whole); /* the step was made on this rank's own parameters */
}

static void hear_of_it(struct trainer *t)
{
    over = true;
    step_fails(t);
    over = false;
}

static void step_held(struct trainer *t)
{
    sync_hold_round(t->formation.sync);
    meeting_train(t, 1);
    RANK_CHECK(sync_round_due(t->formation.sync));
}

/* ---- losses */

/* In the next exchange that this process begins. */
static void die_among_codes(const struct trainer *t, const struct era *era)
{
    CLEANUP(free_text)
    char *at = xasprintf("%d:%s:%d", t->formation.rank, era->more % 2 ? "begin" : "sum", begun);

    setenv("DDP_TEST_KILL_IN_ROUND", at, 1);
}

static void exchange_lost(struct trainer *t, const struct era *era, int slot)
{
    begun++;
    faults_set(era, slot);
    if (strategy->codes && has_slot(era->lost, slot))
        die_among_codes(t, era);
    if (era->ahead && t->formation.rank > 0)
        meeting_train(t, 1);
    else
        step_fails(t);
    RANK_CHECK(!has_slot(era->lost, slot)); /* it is dead */
}

static void wait_for_death(void)
{
    for (;;)
        nanosleep(&(struct timespec){.tv_sec = 1}, NULL);
}

/* The exchange begins, and ranks make steps beside it. */
static void exchange_lost_beside_steps(const struct scene *scene, struct trainer *t, const struct era *era,
                                       int slot)
{
    begun++;
    if (scene->disturbed)
        faults_set(era, slot);
    meeting_train(t, OVERLAP);
    if (scene->disturbed && has_slot(era->lost, slot)) {
        struct err e = {0};

        (void)!sync_join(t->formation.sync, &e);
        wait_for_death();
    }
    sum_fails = !scene->disturbed;
    step_fails(t);
    sum_fails = false;
}

static void work(const struct scene *scene, struct trainer *t, const struct era *era, int slot)
{
    const bool disturbed = scene->disturbed && era->lost;

    round_catch_up(t);
    for (int i = 0; i < era->steps; i++)
        round_finish(t);
    if (era->end == IN_ORDER || era->end == WITHIN)
        round_go_on(t, era->end == WITHIN ? (era->more + slot) % EVERY : era->more);
    else
        round_go_on(t, EVERY);
    if (era->end == WITHIN && disturbed && has_slot(era->lost, slot))
        raise(SIGKILL);
    if (era->end == WITHIN && disturbed)
        hear_of_it(t);
    if (era->end != BEFORE_SUM && era->end != AFTER_SENDING)
        return;
    if (strategy->overlaps)
        exchange_lost_beside_steps(scene, t, era, slot);
    else if (disturbed)
        exchange_lost(t, era, slot);
    else if (era->ahead)
        round_finish(t);
    else
        step_held(t);
    t->served_step = t->engine.step;
}

/* ---- */

static void rounds_are_played(const struct strategy *s)
{
    static struct plan plan;

    strategy = s;
    plan_draw(&plan, eras_wanted(ERAS_FEW), s->seed);
    both_give_the_same_bits(
        &(struct scene){.plan = &plan, .sync = s->sync, .own_losses = true, .work = work});
}

static void members_are_lost_in_rounds_of_averaging(void **state)
{
    (void)state;
    rounds_are_played(&strategies[0]);
}

static void members_are_lost_in_rounds_of_diloco(void **state)
{
    (void)state;
    rounds_are_played(&strategies[1]);
}

static void members_are_lost_in_rounds_with_codes(void **state)
{
    (void)state;
    rounds_are_played(&strategies[2]);
}

static void members_are_lost_beside_steps_that_overlap_the_exchange(void **state)
{
    (void)state;
    rounds_are_played(&strategies[3]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(members_are_lost_in_rounds_of_averaging),
        cmocka_unit_test(members_are_lost_in_rounds_of_diloco),
        cmocka_unit_test(members_are_lost_in_rounds_with_codes),
        cmocka_unit_test(members_are_lost_beside_steps_that_overlap_the_exchange),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
