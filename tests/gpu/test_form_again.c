/* Tests that processes with GPUs go on in one generation after another (lives.h), with all-reduce.
 *
 * With shard: optimizer the moments of a lost rank are gone. So here members only leave in order, or are lost while a group forms.
 * Each generation has another size, so each rank has another part of the moments. */
#include "tests/gpu/lives.h"

#include "trainer/moments.h"
#include "trainer/step.h"

enum { ERAS_FEW = 10 };

static void era_draw(uint64_t *seed, const struct era *before, struct era *era, bool one_sum, bool divided)
{
    const int world = size_of(era->members);

    do
        era->end = (enum end)draw(seed, ENDS);
    while ((era->end == FORMING &&
            (!before || before->ahead)) || /* the only newest state could be lost with that member */
           (divided && era->end != IN_ORDER && era->end != FORMING));
    era->steps = era->end == FORMING ? 0 : (int)draw(seed, 3);
    era->steps += !before; /* without a step there is no state yet */
    if (era->end != IN_ORDER || (world > 2 && draw(seed, 2)))
        era->lost = pick_one(seed, era->members);
    if (era->end == BEFORE_SUM && world > 3 && draw(seed, 2))
        era->lost |= pick_one(seed, era->members);
    era->ahead = era->end == AFTER_SENDING && one_sum &&
                 (world > 2 || rank_of(era->members, lowest_of(era->lost)) == 0);
    era->late_abort = draw(seed, 2);
    era->unnoticed = era->end == BEFORE_SUM && draw(seed, 8) == 0;
    era->newest = era->end == FORMING ? before->newest : era->members;
    era->newest &= ~era->lost;
    if (era->ahead)
        era->newest &=
            ~(1u << lowest_of(era->members)); /* rank 0, if it is not the lost one, is a step behind */
}

/* one_sum: a step has one sum, so a rank that has it finishes the step. */
static void plan_draw(struct plan *plan, int count, uint64_t seed, bool one_sum, bool divided)
{
    unsigned members = 0x7; /* three ranks */

    *plan = (struct plan){.count = count};
    for (int g = 0; g < count; g++) {
        struct era *era = &plan->eras[g];

        era->members = members;
        era_draw(&seed, g ? &plan->eras[g - 1] : NULL, era, one_sum, divided);
        members &= ~era->lost;
        for (int wanted = 2 + (int)draw(&seed, SLOTS - 1); size_of(members) < wanted;)
            members |= pick_one(&seed, ~members & ((1u << SLOTS) - 1));
    }
}

/* The step in which a member is lost. */
static void step_lost(struct trainer *t, const struct era *era, int slot)
{
    const int64_t before = t->engine.step;
    struct step s;
    struct err e = {0};
    bool epoch_ended;

    faults_set(era, slot);
    enum err_code code = trainer_step(t, &s, &epoch_ended, &e);
    RANK_CHECK(!has_slot(era->lost, slot)); /* it is dead */
    if (era->ahead && t->formation.rank > 0) {
        RANK_OK(code, &e);
    } else {
        RANK_CHECK(code == ERR_ABORTED);
        RANK_CHECK(t->engine.step == before);
    }
    RANK_CHECK(t->engine.whole);
}

/* Makes the steps of the era. In an era that is disturbed, survivors come out of it without a group. */
static void era_train(const struct scene *scene, struct trainer *t, const struct era *era, int slot)
{
    meeting_train(t, era->steps);
    if (scene->disturbed && era->lost && era->end != IN_ORDER)
        step_lost(t, era, slot);
    else
        meeting_train(t, era->ahead);
    t->served_step = t->engine.step;
}

/* And what ranks do before a hand-over. */
static void era_train_and_hold(const struct scene *scene, struct trainer *t, const struct era *era, int slot)
{
    struct err e = {0};

    era_train(scene, t, era, slot);
    RANK_OK(moments_hold(t, &e), &e);
    RANK_CHECK(moments_held(t));
}

static void lives_are_played(uint64_t seed, const char *sync, bool one_sum, bool divided)
{
    static struct plan plan;

    plan_draw(&plan, eras_wanted(ERAS_FEW), seed, one_sum, divided);
    both_give_the_same_bits(
        &(struct scene){.plan = &plan, .sync = sync, .work = divided ? era_train_and_hold : era_train});
}

static void members_are_lost_and_come_and_the_bits_stay(void **state)
{
    (void)state;
    lives_are_played(7, "{type: allreduce}", true, false);
}

/* Each group has memory on the device for these sums. Loss and votes are a sum of their own, as floats. */
static void the_same_with_gradients_as_bf16(void **state)
{
    (void)state;
    lives_are_played(8, "{type: allreduce, wire: bf16}", false, false);
}

static void the_same_with_an_optimizer_in_parts(void **state)
{
    (void)state;
    lives_are_played(9, "{type: allreduce}\n  shard: optimizer", true, true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(members_are_lost_and_come_and_the_bits_stay),
        cmocka_unit_test(the_same_with_gradients_as_bf16),
        cmocka_unit_test(the_same_with_an_optimizer_in_parts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
