/* The strategies of averaging in a job file. */
#include "tests/unit/base/job/job_texts.h"

#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"

static void diloco_keys(void **state)
{
    CLEANUP(job_release) struct job_spec s;
    CLEANUP(job_release) struct job_spec all;

    (void)state;
    accept_job(&s, TRAIN "  sync: {type: diloco}\n");
    assert_int_equal(s.train.sync.type, SYNC_DILOCO);
    assert_int_equal(s.train.sync.every, 50);
    assert_true(s.train.sync.outer_lr == 0.9 && s.train.sync.outer_momentum == 0.8);
    assert_int_equal(s.train.sync.outer_schedule, OUTER_TRAPEZOID);
    assert_int_equal(s.train.sync.wire, WIRE_FP32);
    assert_true(s.train.sync.warm == 0 && s.train.sync.fragments == 1 && s.train.sync.overlap == 0);
    assert_true(s.train.sync.mix == 0.5);
    accept_job(&all,
               TRAIN "  sync: {type: diloco, every: 200, outer_lr: 0.7, outer_momentum: 0.9, wire: int4,"
                     " warm: 300, fragments: 4, overlap: 49, mix: 0}\n");
    assert_int_equal(all.train.sync.wire, WIRE_INT4);
    assert_true(all.train.sync.warm == 300 && all.train.sync.fragments == 4 && all.train.sync.overlap == 49);

    refuse_job(TRAIN "  sync: {type: diloco, outer_lr: 0}\n",
               "job.yaml:6:34: invalid value for 'outer_lr': expected a number above 0, got '0'");
    refuse_job(
        TRAIN "  sync: {type: diloco, outer_momentum: 1}\n",
        "job.yaml:6:40: invalid value for 'outer_momentum': expected a number of at least 0 and below 1, got '1'");
    refuse_job(TRAIN "  sync: {type: diloco, wire: fp8}\n",
               "job.yaml:6:30: invalid value for 'wire': expected fp32, bf16, int8 or int4, got 'fp8'");
    refuse_job(TRAIN "  sync: {type: diloco, mix: 2}\n",
               "job.yaml:6:29: invalid value for 'mix': expected a number from 0 to 1, got '2'");
    refuse_job(TRAIN "  sync: {type: diloco, every: 3, fragments: 4}\n",
               "job.yaml:6:45: 'fragments' must not be above 'every', which is 3");
    refuse_job(TRAIN "  sync: {type: diloco, every: 50, fragments: 4, overlap: 12}\n",
               "job.yaml:6:58: 'overlap' must be below 12, the number of steps between two exchanges");
    refuse_job(TRAIN "  sync: {type: average, every: 5, wire: int4}\n",
               "job.yaml:6:41: 'wire' is a key of sync type allreduce and diloco; average has type, every");
    refuse_job(TRAIN "  sync: {type: diloco}\n  reproducible: world\n",
               "job.yaml:7:17: 'reproducible: world' needs 'sync' of type allreduce");
}

static void few_rounds_have_a_constant_outer_momentum(void **state)
{
    static const struct {
        const char *keys;
        enum outer_schedule schedule;
        double momentum;
    } cases[] = {
        {"every: 12", OUTER_TRAPEZOID, 0.8}, /* 41 rounds */
        {"every: 13", OUTER_CONSTANT, 0.6},  /* 38 */
        {"every: 12, warm: 100", OUTER_CONSTANT, 0.6},
        {"every: 13, outer_lr: 0.9", OUTER_TRAPEZOID, 0.8},
        {"every: 13, outer_schedule: trapezoid", OUTER_TRAPEZOID, 0.8},
        {"every: 13, outer_momentum: 0.7", OUTER_TRAPEZOID, 0.7},
        {"every: 1s", OUTER_TRAPEZOID, 0.8},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        CLEANUP(job_release) struct job_spec s;
        CLEANUP(free_text)
        char *text = xasprintf(
            TRAIN_HEAD "  data: {type: synthetic}\n  batch: 32\n  steps: 500\n  sync: {type: diloco, %s}\n",
            cases[i].keys);
        accept_job(&s, text);
        assert_int_equal(s.train.sync.outer_schedule, cases[i].schedule);
        assert_true(s.train.sync.outer_momentum == cases[i].momentum && s.train.sync.outer_lr == 0.9);
    }
}

static void a_printed_job_has_the_outer_optimizer_of_its_file(void **state)
{
    static const char *const keys[] = {"", ", outer_lr: 0.7",
                                       ", outer_momentum: 0.6, outer_schedule: constant"};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
        CLEANUP(job_release) struct job_spec s, again;
        CLEANUP(free_text) char *text = xasprintf(TRAIN "  sync: {type: diloco%s}\n", keys[i]);
        accept_job(&s, text);
        CLEANUP(free_text) char *printed = job_print(&s);
        accept_job(&again, printed);
        assert_true(s.train.sync.outer_lr == (i == 1 ? 0.7 : 0.9));
        assert_true(s.train.sync.outer_momentum == (i == 2 ? 0.6 : 0.8));
        assert_int_equal(s.train.sync.outer_schedule, i == 2 ? OUTER_CONSTANT : OUTER_TRAPEZOID);
        assert_true(again.train.sync.outer_lr == s.train.sync.outer_lr &&
                    again.train.sync.outer_momentum == s.train.sync.outer_momentum &&
                    again.train.sync.outer_schedule == s.train.sync.outer_schedule);
    }
}

static void allreduce_keys(void **state)
{
    CLEANUP(job_release) struct job_spec s;
    CLEANUP(job_release) struct job_spec half;

    (void)state;
    accept_job(&s, TRAIN "  sync: {type: allreduce}\n");
    assert_int_equal(s.train.sync.wire, WIRE_FP32);
    accept_job(&half, TRAIN "  sync: {type: allreduce, wire: bf16}\n");
    assert_int_equal(half.train.sync.wire, WIRE_BF16);
    refuse_job(TRAIN "  sync: {type: allreduce, wire: int8}\n",
               "job.yaml:6:33: invalid value for 'wire': expected fp32 or bf16, got 'int8'");
    refuse_job(
        TRAIN "  sync: {type: allreduce, wire: bf16}\n  reproducible: world\n",
        "job.yaml:7:17: 'reproducible: world' needs 'sync.wire: fp32': how often a sum is rounded to bf16 "
        "depends on the number of ranks");
}

/* `none` promises no bits, so the clock may decide. */
static void any_bits_allow_the_clock(void **state)
{
    static const char *const syncs[] = {"auto", "{type: average, every: 30s}", "{type: diloco}"};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(syncs); i++) {
        CLEANUP(job_release) struct job_spec s;
        CLEANUP(free_text) char *text = xasprintf(TRAIN "  sync: %s\n  reproducible: none\n", syncs[i]);
        accept_job(&s, text);
        assert_int_equal(s.train.reproducible, REPRODUCIBLE_NONE);
    }
    refuse_job(TRAIN "  reproducible: none\n  shards: 4\n",
               "job.yaml:7:11: 'shards' applies to 'reproducible: world' only");
}

#define THREE "nodes: 3\n"

static void a_strategy_without_its_map_is_refused_with_the_map(void **state)
{
    (void)state;
    refuse_job(TRAIN "  sync: diloco\n",
               "job.yaml:6:9: invalid value for 'sync': expected a map such as {type: diloco}, got 'diloco'");
    refuse_job(
        TRAIN "  sync: averge\n",
        "job.yaml:6:9: invalid value for 'sync': expected a map such as {type: allreduce}, got 'averge'");
}

static void quorum_of_a_round(void **state)
{
    CLEANUP(job_release) struct job_spec all;
    CLEANUP(job_release) struct job_spec two;
    CLEANUP(job_release) struct job_spec fixed;

    (void)state;
    accept_job(&all, TRAIN "  sync: {type: diloco}\n");
    assert_int_equal(all.train.sync.quorum, 0);
    accept_job(&two, THREE TRAIN "  sync: {type: diloco, quorum: 2, grace: auto}\n");
    assert_true(two.train.sync.quorum == 2 && two.train.sync.grace_ms == 0);
    accept_job(&fixed, THREE TRAIN "  sync: {type: diloco, quorum: 3, grace: 10s}\n");
    assert_int_equal(fixed.train.sync.grace_ms, 10000);

    refuse_job(THREE TRAIN "  sync: {type: diloco, quorum: 4}\n",
               "job.yaml:7:32: 'sync.quorum' is 4, but the job has at most 3 ranks");
    refuse_job(THREE TRAIN "  sync: {type: diloco, quorum: 1}\n",
               "job.yaml:7:32: invalid value for 'quorum': expected a number from 2 to 1048576, got '1'");
    refuse_job(THREE TRAIN "  sync: {type: allreduce, quorum: 2}\n",
               "job.yaml:7:35: 'quorum' is a key of sync type diloco; allreduce has type, wire");
    refuse_job(THREE TRAIN "  sync: {type: diloco, grace: 10s}\n",
               "job.yaml:7:31: 'grace' needs 'quorum': without it a round waits for all ranks");
    refuse_job(
        THREE TRAIN "  sync: {type: diloco, quorum: 2, grace: soon}\n",
        "job.yaml:7:42: invalid value for 'grace': expected auto or a time with its unit, such as 10s, got 'soon'");
    refuse_job(
        THREE TRAIN "  sync: {type: diloco, quorum: 2, grace: 1}\n",
        "job.yaml:7:42: invalid value for 'grace': expected auto or a time with its unit, such as 10s, got '1'");
    refuse_job(
        THREE TRAIN "  sync: {type: diloco, quorum: 2, every: 30s}\n",
        "job.yaml:7:42: 'quorum' needs 'every' as a number of steps: rounds of a given time do not wait for slow ranks");
    refuse_job(THREE TRAIN "  sync: {type: diloco, quorum: 2, fragments: 2}\n",
               "job.yaml:7:46: 'quorum' and 'fragments' exclude each other: remove one of them");
    refuse_job(THREE TRAIN "  sync: {type: diloco, quorum: 2, overlap: 1}\n",
               "job.yaml:7:44: 'quorum' and 'overlap' exclude each other: remove one of them");
    refuse_job(THREE "procs_per_node: auto\n" TRAIN "  sync: {type: diloco, quorum: 2}\n",
               "job.yaml:8:32: 'sync.quorum' needs 'procs_per_node' as a number");
    refuse_job(
        THREE "max_replacements: 0\n" TRAIN "  sync: {type: diloco, quorum: 2}\n",
        "job.yaml:8:32: 'sync.quorum' and 'max_replacements: 0' exclude each other: a rank that was late goes on "
        "from its memory");
}

static void rounds_of_a_given_time(void **state)
{
    CLEANUP(job_release) struct job_spec average;
    CLEANUP(job_release) struct job_spec diloco;

    (void)state;
    accept_job(&average, TRAIN "  sync: {type: average, every: 30s}\n");
    assert_int_equal(average.train.sync.every_ms, 30000);
    assert_in_range(average.train.sync.every, 1, 10); /* the first round */
    accept_job(&diloco, TRAIN "  sync: {type: diloco, every: \"2m\", wire: int4}\n");
    assert_int_equal(diloco.train.sync.every_ms, 120000);

    refuse_job(
        TRAIN "  sync: {type: diloco, every: 10 epochs}\n",
        "job.yaml:6:31: invalid value for 'every': expected steps or a time, such as 50 or \"30s\", got '10 epochs'");
    refuse_job(
        TRAIN "  sync: {type: diloco, every: 0s}\n",
        "job.yaml:6:31: invalid value for 'every': expected steps or a time, such as 50 or \"30s\", got '0s'");
    refuse_job(
        TRAIN "  sync: {type: diloco, every: \"50\"}\n",
        "job.yaml:6:31: invalid value for 'every': expected steps or a time, such as 50 or \"30s\", got the text \"50\"");
    refuse_job(
        TRAIN "  sync: {type: average, every: 0}\n",
        "job.yaml:6:32: invalid value for 'every': expected a number from 1 to 1000000000000, got '0'");
    refuse_job(
        TRAIN "  sync: {type: diloco, every: 30s, fragments: 2}\n",
        "job.yaml:6:31: 'fragments' needs 'every' as a number of steps, because it divides the round by steps");
    refuse_job(
        TRAIN "  sync: {type: diloco, every: 30s, overlap: 1}\n",
        "job.yaml:6:31: 'overlap' needs 'every' as a number of steps, because it divides the round by steps");
    refuse_job(
        TRAIN "  sync: {type: average, every: 30s}\n  reproducible: layout\n",
        "job.yaml:7:17: 'reproducible' needs 'sync.every' as a number of steps: with a time, the clock decides at "
        "which steps rounds end");
}

static void strategy_by_measurement(void **state)
{
    CLEANUP(job_release) struct job_spec one;
    CLEANUP(job_release) struct job_spec two;

    (void)state;
    accept_job(&one, TRAIN "  sync: auto\n");
    assert_int_equal(one.train.sync.type, SYNC_AUTO);
    accept_job(&two, TRAIN "  sync: {type: auto}\n");
    assert_int_equal(two.train.sync.type, SYNC_AUTO);
    refuse_job(TRAIN "  sync: {type: auto, every: 5}\n",
               "job.yaml:6:29: 'every' is a key of sync type average and diloco; auto has type");
    refuse_job(
        TRAIN "  sync: auto\n  reproducible: layout\n",
        "job.yaml:7:17: 'reproducible' and 'sync: auto' exclude each other: the measured speed of the link "
        "chooses the strategy, so two runs may differ");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(diloco_keys),
        cmocka_unit_test(few_rounds_have_a_constant_outer_momentum),
        cmocka_unit_test(a_printed_job_has_the_outer_optimizer_of_its_file),
        cmocka_unit_test(allreduce_keys),
        cmocka_unit_test(any_bits_allow_the_clock),
        cmocka_unit_test(a_strategy_without_its_map_is_refused_with_the_map),
        cmocka_unit_test(quorum_of_a_round),
        cmocka_unit_test(rounds_of_a_given_time),
        cmocka_unit_test(strategy_by_measurement),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
