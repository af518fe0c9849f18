/* Which values of a job can change while it runs, and what the new job file says. */
#include "tests/unit/base/check.h"

#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/job/job_tune.h"
#include "base/mem.h"

#define HEAD                                                                                                 \
    "train:\n  model: {type: linear, in: 20, out: 1}\n  data: {type: synthetic}\n  batch: 32\n  epochs: 2\n"
#define ADAMW HEAD "  optimizer: {type: adamw, lr: 1e-3, clip: 1}\n  schedule: {type: cosine, min_lr: 1e-5}\n"
#define DILOCO                                                                                               \
    HEAD "  sync: {type: diloco, every: 100, wire: int4, overlap: 5}\n  snapshot: {dir: /s, every: 1h}\n"

/* The changes as "key from -> to", one a line. */
static char *tuned_changes(const char *text, const char *a, const char *b, struct job_spec *spec)
{
    char *assignments[] = {(char *)(uintptr_t)a, (char *)(uintptr_t)b, NULL};
    CLEANUP(job_tuned_release) struct job_tuned tuned = {0};
    struct buf out = {0};
    struct err e = {0};

    if (job_tune(&tuned, text, assignments, &e))
        fail_msg("%s", e.msg);
    for (size_t i = 0; i < tuned.count; i++)
        buf_printf(&out, "%s%s %s -> %s", i ? "\n" : "", tuned.changes[i].key, tuned.changes[i].from,
                   tuned.changes[i].to);
    assert_ok(job_parse(spec, tuned.text, strlen(tuned.text), "tuned", &e), &e);
    buf_puts(&out, "");
    return buf_steal(&out);
}

static void refuse_assignment(const char *text, const char *assignment, enum err_code code,
                              const char *message)
{
    char *assignments[] = {(char *)(uintptr_t)assignment, NULL};
    CLEANUP(job_tuned_release) struct job_tuned tuned = {0};
    struct err e = {0};

    if (!job_tune(&tuned, text, assignments, &e))
        fail_msg("accepted: %s", assignment);
    assert_string_equal(e.msg, message);
    assert_int_equal(e.code, code);
    assert_null(tuned.text);
}

static void check_changes(const char *text, const char *a, const char *b, const char *want)
{
    CLEANUP(job_release) struct job_spec spec = {0};
    CLEANUP(free_text) char *changes = tuned_changes(text, a, b, &spec);

    assert_string_equal(changes, want);
}

static void values_change_in_the_job_file(void **state)
{
    CLEANUP(job_release) struct job_spec spec = {0};
    CLEANUP(free_text)
    char *changes = tuned_changes(ADAMW, "optimizer.lr=1e-4", "train.optimizer.betas=[0.8, 0.9]", &spec);

    (void)state;
    assert_string_equal(changes, "optimizer.lr 0.001 -> 0.0001\noptimizer.betas [0.9, 0.999] -> [0.8, 0.9]");
    assert_true(spec.train.optimizer.lr == 1e-4 && spec.train.optimizer.betas[0] == 0.8);
    assert_true(spec.train.optimizer.clip == 1 && spec.train.schedule.min_lr == 1e-5 &&
                spec.train.batch == 32);
}

static void a_key_that_the_file_lacks_is_added(void **state)
{
    (void)state;
    check_changes(HEAD, "optimizer.lr=0.5", "log_every=100",
                  "optimizer.lr 0.001 -> 0.5\nlog_every 10 -> 100");
    check_changes(HEAD, "max_restarts=9", "eval.batches=4", "eval.batches all -> 4\nmax_restarts 3 -> 9");
    check_changes(DILOCO, "sync.overlap=7", "sync.mix=0", "sync.overlap 5 -> 7\nsync.mix 0.5 -> 0");
}

static void times_are_shown_as_users_write_them(void **state)
{
    (void)state;
    check_changes(DILOCO, "snapshot.every=90s", "eval.every=2 epochs",
                  "snapshot.every 1h -> 90s\neval.every 1 epoch -> 2 epochs");
    check_changes(HEAD "  sync: {type: diloco, outer_momentum: 0.6}\n", "sync.every=30s", "sync.outer_lr=0.7",
                  "sync.every 50 -> 30s\nsync.outer_lr 0.9 -> 0.7");
    check_changes(DILOCO, "snapshot.every=500", "eval.every=never",
                  "snapshot.every 1h -> 500\neval.every 1 epoch -> never");
}

static void equal_values_are_no_change(void **state)
{
    (void)state;
    check_changes(ADAMW, "optimizer.lr=0.001", "optimizer.clip=1.0", "");
    check_changes(ADAMW, "optimizer.lr=0.1", "optimizer.lr=0.001", ""); /* the last one counts */
}

static void tuning_back_gives_the_same_job(void **state)
{
    static const char *const there[] = {"sync.every=200", "snapshot.every=7", NULL};
    static const char *const back[] = {"sync.every=100", "snapshot.every=1h", NULL};
    CLEANUP(job_tuned_release) struct job_tuned first = {0}, second = {0}, same = {0};
    struct err e = {0};

    (void)state;
    assert_ok(job_tune(&same, DILOCO, (char *const *)(uintptr_t)back, &e), &e);
    assert_ok(job_tune(&first, DILOCO, (char *const *)(uintptr_t)there, &e), &e);
    assert_ok(job_tune(&second, first.text, (char *const *)(uintptr_t)back, &e), &e);
    assert_string_not_equal(first.text, same.text);
    assert_string_equal(second.text, same.text);
    assert_true(first.train && second.train && same.count == 0 && !same.train);
}

static void other_keys_and_values_are_refused(void **state)
{
    (void)state;
    refuse_assignment(ADAMW, "optimizer.lr", ERR_INVALID_ARGUMENT,
                      "expected KEY=VALUE, such as optimizer.lr=1e-4, got 'optimizer.lr'");
    refuse_assignment(ADAMW, "optimzer.lr=1", ERR_INVALID_ARGUMENT,
                      "unknown key 'optimzer.lr', did you mean 'optimizer.lr'?");
    refuse_assignment(ADAMW, "colour=1", ERR_INVALID_ARGUMENT,
                      "unknown key 'colour'; `ddpctl tune JOB` lists the keys that can change");
    refuse_assignment(ADAMW, "batch=16", ERR_FAILED_PRECONDITION,
                      "'batch' cannot change while the job runs; `ddpctl tune JOB` lists the keys that can");
    refuse_assignment(ADAMW, "nodes=2", ERR_FAILED_PRECONDITION,
                      "'nodes' cannot change while the job runs; `ddpctl tune JOB` lists the keys that can");
    refuse_assignment(
        DILOCO, "train.sync.warm=5", ERR_FAILED_PRECONDITION,
        "'sync.warm' cannot change while the job runs; `ddpctl tune JOB` lists the keys that can");
    refuse_assignment(ADAMW, "optimizer.lr=fast", ERR_INVALID_ARGUMENT,
                      "optimizer.lr: invalid value for 'lr': expected a number, got 'fast'");
    refuse_assignment(ADAMW, "optimizer.lr=1e-6", ERR_INVALID_ARGUMENT,
                      "job file:7:13: 'min_lr' must not be above the learning rate 'optimizer.lr'");
    refuse_assignment(ADAMW, "sync.every=5", ERR_INVALID_ARGUMENT,
                      "this job has no key 'sync.every'; `ddpctl tune JOB` lists the keys that it has");
    refuse_assignment(HEAD "  sync: auto\n", "sync.every=5", ERR_INVALID_ARGUMENT,
                      "this job has no key 'sync.every'; `ddpctl tune JOB` lists the keys that it has");
    refuse_assignment(DILOCO, "sync.every=5", ERR_INVALID_ARGUMENT,
                      "job file:6:57: 'overlap' must be below 5, the number of steps between two exchanges");
    refuse_assignment("command: [ls]\n", "max_restarts=1", ERR_FAILED_PRECONDITION,
                      "only train jobs can be tuned, not commands");
}

static void values_that_need_other_memory_are_refused(void **state)
{
    (void)state;
    refuse_assignment(
        HEAD, "optimizer.momentum=0.9", ERR_FAILED_PRECONDITION,
        "'optimizer.momentum' cannot change while the job runs from or to 0: only a momentum above 0 has memory of "
        "its own");
    refuse_assignment(
        DILOCO, "sync.outer_momentum=0", ERR_FAILED_PRECONDITION,
        "'sync.outer_momentum' cannot change while the job runs from or to 0: only a momentum above 0 has memory of "
        "its own");
    refuse_assignment(
        DILOCO, "sync.overlap=0", ERR_FAILED_PRECONDITION,
        "'sync.overlap' cannot change while the job runs from or to 0: only an overlap above 0 has memory for the "
        "data that is being sent");
    refuse_assignment(
        HEAD "  sync: {type: diloco, outer_momentum: 0}\n", "sync.outer_lr=1", ERR_FAILED_PRECONDITION,
        "'sync.outer_lr' cannot change while the job runs from or to 1 if 'sync.outer_momentum' is 0: only with 1, "
        "rounds are plain averaging");
}

static void rounds_of_fragments_can_change(void **state)
{
    static const char text[] = HEAD "  sync: {type: diloco, every: 100, fragments: 2}\n";
    CLEANUP(job_release) struct job_spec spec = {0};

    (void)state;
    CLEANUP(free_text) char *changes = tuned_changes(text, "sync.every=50", NULL, &spec);
    assert_string_equal(changes, "sync.every 100 -> 50");
    assert_int_equal(spec.train.sync.fragments, 2);
}

static void the_keys_of_a_job_are_listed(void **state)
{
    CLEANUP(job_release) struct job_spec spec = {0};
    struct buf out = {0};
    struct err e = {0};
    size_t count;

    (void)state;
    assert_ok(job_parse(&spec, DILOCO, strlen(DILOCO), "job.yaml", &e), &e);
    struct job_change *all = job_tunable(&spec, &count);
    for (size_t i = 0; i < count; i++)
        buf_printf(&out, "%s=%s ", all[i].key, all[i].from);
    assert_string_equal(
        out.data, "optimizer.lr=0.001 optimizer.weight_decay=0 optimizer.clip=0 optimizer.momentum=0 "
                  "schedule.warmup=0 sync.every=100 sync.outer_lr=0.9 "
                  "sync.outer_momentum=0.8 sync.overlap=5 sync.mix=0.5 snapshot.every=1h eval.every=1 epoch "
                  "eval.batches=all log_every=10 max_restarts=3 ");
    job_changes_free(all, count);
    buf_release(&out);
}

#define STEPS                                                                                                \
    "train:\n  model: {type: linear, in: 20, out: 1}\n  data: {type: synthetic}\n  batch: 32\n  steps: 4000\n"

/* Without keys of the outer optimizer the number of rounds chooses it. A change of another key must not choose again: ranks that run
 * and ranks that start from the new file must have the same values. */
static void other_values_of_the_outer_optimizer_stay(void **state)
{
    static const struct {
        const char *sync, *assignment, *changes;
        int64_t every;
        double lr, momentum;
        enum outer_schedule schedule;
    } cases[] = {
        /* 80 rounds become 20 */
        {"every: 50", "sync.every=200", "sync.every 50 -> 200", 200, 0.9, 0.8, OUTER_TRAPEZOID},
        /* 20 rounds become 80 */
        {"every: 200", "sync.every=50", "sync.every 200 -> 50", 50, 0.9, 0.6, OUTER_CONSTANT},
        {"every: 200", "sync.every=30s", "sync.every 200 -> 30s", 4, 0.9, 0.6, OUTER_CONSTANT},
        {"every: 200", "sync.outer_lr=0.7", "sync.outer_lr 0.9 -> 0.7", 200, 0.7, 0.6, OUTER_CONSTANT},
        {"every: 200", "sync.outer_momentum=0.5", "sync.outer_momentum 0.6 -> 0.5", 200, 0.9, 0.5,
         OUTER_CONSTANT},
        {"every: 50", "sync.outer_lr=0.7", "sync.outer_lr 0.9 -> 0.7", 50, 0.7, 0.8, OUTER_TRAPEZOID},
        {"every: 200, outer_momentum: 0.7", "sync.every=50", "sync.every 200 -> 50", 50, 0.9, 0.7,
         OUTER_TRAPEZOID},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        CLEANUP(job_release) struct job_spec mine = {0}, tuned = {0};
        CLEANUP(free_text) char *text = xasprintf(STEPS "  sync: {type: diloco, %s}\n", cases[i].sync);
        CLEANUP(free_text) char *changes = tuned_changes(text, cases[i].assignment, NULL, &tuned);
        const struct sync_spec *file = &tuned.train.sync, *rank = &mine.train.sync;
        struct err e = {0};

        assert_string_equal(changes, cases[i].changes);
        assert_true(file->every == cases[i].every && file->outer_lr == cases[i].lr);
        assert_true(file->outer_momentum == cases[i].momentum);
        assert_int_equal(file->outer_schedule, cases[i].schedule);
        assert_ok(job_parse(&mine, text, strlen(text), "job.yaml", &e), &e);
        assert_true(job_tune_copy(&mine, &tuned));
        assert_true(rank->every == file->every && rank->outer_lr == file->outer_lr &&
                    rank->outer_momentum == file->outer_momentum);
        assert_int_equal(rank->outer_schedule, file->outer_schedule);
    }
}

/* A file that a coordinator of an earlier version has tuned may have another schedule. */
static void a_worker_takes_over_the_schedule_of_the_file(void **state)
{
    CLEANUP(job_release) struct job_spec mine = {0}, file = {0};
    static const char few[] = STEPS "  sync: {type: diloco, every: 200, outer_momentum: 0.8}\n",
                      more[] = STEPS
                      "  sync: {type: diloco, every: 200, outer_momentum: 0.8, outer_schedule: constant}\n";
    struct err e = {0};

    (void)state;
    assert_ok(job_parse(&mine, few, strlen(few), "job.yaml", &e), &e);
    assert_ok(job_parse(&file, more, strlen(more), "job.yaml", &e), &e);
    assert_true(job_tune_copy(&mine, &file));
    assert_int_equal(mine.train.sync.outer_schedule, OUTER_CONSTANT);
    assert_false(job_tune_copy(&mine, &file));
}

static void a_worker_takes_over_the_values(void **state)
{
    CLEANUP(job_release) struct job_spec mine = {0}, spec = {0};
    CLEANUP(free_text) char *first = tuned_changes(DILOCO, "sync.every=200", "optimizer.lr=0.5", &spec);
    struct err e = {0};

    (void)state;
    assert_non_null(first);
    assert_ok(job_parse(&mine, DILOCO, strlen(DILOCO), "job.yaml", &e), &e);
    spec.train.batch = 99; /* not one of these keys */
    assert_true(job_tune_copy(&mine, &spec));
    assert_true(mine.train.sync.every == 200 && mine.train.optimizer.lr == 0.5 && mine.train.batch == 32);
    spec.train.snapshot.every = (struct job_every){7, EVERY_STEPS};
    assert_false(job_tune_copy(&mine, &spec));
    assert_true(mine.train.snapshot.every.count == 7 && mine.train.snapshot.every.unit == EVERY_STEPS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_change_in_the_job_file),
        cmocka_unit_test(a_key_that_the_file_lacks_is_added),
        cmocka_unit_test(times_are_shown_as_users_write_them),
        cmocka_unit_test(equal_values_are_no_change),
        cmocka_unit_test(tuning_back_gives_the_same_job),
        cmocka_unit_test(other_keys_and_values_are_refused),
        cmocka_unit_test(values_that_need_other_memory_are_refused),
        cmocka_unit_test(rounds_of_fragments_can_change),
        cmocka_unit_test(the_keys_of_a_job_are_listed),
        cmocka_unit_test(other_values_of_the_outer_optimizer_stay),
        cmocka_unit_test(a_worker_takes_over_the_schedule_of_the_file),
        cmocka_unit_test(a_worker_takes_over_the_values),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
