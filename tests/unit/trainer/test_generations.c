/* Tests a whole worker that goes from one generation to the next, against a fake coordinator. It is the only rank. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "tests/unit/trainer/member/link/fake_coordinator.h"
#include "tests/unit/trainer/member/ranks.h"
#include "trainer/engine/memory.h"
#include "trainer/engine/state.h"
#include "trainer/generations.h"
#include "trainer/member/link/watch.h"
#include "trainer/peer_loss.h"
#include "trainer/signals.h"

enum { FIRST = 4, GENERATIONS = 500 };

#define JOB                                                                                                  \
    "name: generations\n"                                                                                    \
    "device: cpu\n"                                                                                          \
    "%s"                                                                                                     \
    "train:\n"                                                                                               \
    "  model: {type: mlp, sizes: [20, 24, 1]}\n"                                                             \
    "  data: {type: synthetic, samples: 512}\n"                                                              \
    "  optimizer: {type: adamw, lr: 0.001}\n"                                                                \
    "  batch: 4\n"                                                                                           \
    "  steps: %d\n"                                                                                          \
    "  eval: {every: %d}\n"                                                                                  \
    "  snapshot: {dir: %s/snapshots, every: %d, keep: 1, keep_best: %d}\n"                                   \
    "  log_every: 100\n"                                                                                     \
    "  threads: 1\n"

struct worker {
    struct trainer_config config;
    struct trainer trainer;
    struct link *link;
    pthread_t thread;
    enum err_code code;
    struct err e;
    _Atomic bool ended;
};

/* best: only the snapshots of the best evaluations are kept. */
static void worker_open(struct worker *w, bool standalone, const char *keys, int steps, bool best)
{
    CLEANUP(free_text)
    char *text = xasprintf(JOB, keys, steps, best ? 2000 : 5000, standalone ? "/nowhere" : fake_directory,
                           best ? 1000000000 : 50, best);
    struct err e = {0};

    *w = (struct worker){.config = {.standalone = standalone, .local_world_size = 1}};
    if (job_parse(&w->config.job, text, strlen(text), "job", &e))
        fail_msg("%s", e.msg);
    if (standalone)
        assert_int_equal(link_open(&w->link, true, &e), ERR_OK);
    else
        w->link = worker_link_open();
    if (trainer_open(&w->trainer, &w->config, w->link, &e))
        fail_msg("%s", e.msg);
}

static void *worker_main(void *arg)
{
    struct worker *w = arg;

    w->code = generations_run(&w->trainer, &w->e);
    atomic_store(&w->ended, true);
    return NULL;
}

static void worker_begin_keeping(struct worker *w, const char *keys, bool best)
{
    setenv("WORLD_SIZE", "1", 1);
    fake.alone = true;
    fake_coordinator_open();
    worker_open(w, false, keys, 1000000000, best);
    assert_int_equal(pthread_create(&w->thread, NULL, worker_main, w), 0);
    WAIT_FOR(fake.watches > 0);
}

static void worker_begin(struct worker *w, const char *keys)
{
    worker_begin_keeping(w, keys, false);
}

static void worker_end(struct worker *w)
{
    pthread_join(w->thread, NULL);
    link_cancel(w->link);
    assert_true(trainer_leave(&w->trainer));
    trainer_close(&w->trainer);
    job_release(&w->config.job);
    fake_coordinator_close();
    trainer_stop_signal = trainer_running = 0;
}

static void watch_says(bool wait, bool next, int generation)
{
    fake.watch_wait = wait;
    fake.watch_next = next;
    fake.watch_generation = generation;
    fake_coordinator_send_watch();
}

/* The generation ends, and the worker joins the next one. */
static void next_generation(int generation, bool first_wait)
{
    const int joins = fake.joins;

    if (first_wait)
        watch_says(true, false, generation - 1);
    fake.generation = generation;
    watch_says(false, true, generation);
    WAIT_FOR(fake.joins > joins && fake.watched_generation == generation);
    fake.watch_next = false;
}

static uint64_t parameters_after(int64_t steps)
{
    struct worker alone;
    struct err e = {0};

    worker_open(&alone, true, "", (int)steps, false);
    free(steal(alone.config.job.train.snapshot.dir));
    free(steal(alone.trainer.snapshot_dir));
    if (generations_run(&alone.trainer, &e))
        fail_msg("%s", e.msg);
    assert_int_equal(alone.trainer.engine.step, steps);
    const uint64_t hash =
        ranks_hash(alone.trainer.engine.params.data, alone.trainer.engine.model->count * sizeof(float));
    assert_true(trainer_leave(&alone.trainer));
    trainer_close(&alone.trainer);
    job_release(&alone.config.job);
    return hash;
}

static int entries_of(const char *directory)
{
    DIR *d = opendir(directory);
    int count = 0;

    assert_non_null(d);
    while (readdir(d))
        count++;
    closedir(d);
    return count;
}

static void a_worker_goes_through_five_hundred_generations_and_loses_no_step(void **state)
{
    struct worker w;
    int files = 0, threads = 0;
    size_t memory = 0;
    const float *params = NULL, *grads = NULL;

    (void)state;
    worker_begin(&w, "");
    for (int g = FIRST + 1; g <= FIRST + GENERATIONS; g++) {
        const int64_t before = fake.live_step;

        next_generation(g, g % 2);
        assert_true(fake.joined_stays && fake.live_step >= before);
        assert_false(w.ended);
        /* Without this a fast machine may end every generation before its first step. */
        if (g % (GENERATIONS / 5) == 0) {
            const int commits = fake.commits;
            WAIT_FOR(fake.commits > commits);
        }
        if (g == FIRST + GENERATIONS / 5) {
            files = entries_of("/proc/self/fd");
            threads = entries_of("/proc/self/task");
            memory = memory_resident();
            params = w.trainer.engine.params.data;
            grads = w.trainer.engine.grads.data;
        }
    }
    /* A generation may have more files open than the one that was counted, such as those of its saver. */
    assert_true(entries_of("/proc/self/fd") < files + 20);
    assert_true(entries_of("/proc/self/task") < threads + 5);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) /* they use memory of their own */
    assert_true(memory_resident() < memory + ((size_t)4 << 20));
#endif
    (void)memory;
    assert_true(fake.live_step > 0);
    WAIT_FOR(fake.commits > 0);
    fake.watch_stop = 1;
    fake_coordinator_send_watch();
    pthread_join(w.thread, NULL);
    assert_int_equal(w.code, ERR_OK);
    assert_true(w.trainer.stopped && w.trainer.asked);
    assert_int_equal(w.trainer.last_snapshot_step, w.trainer.engine.step);
    /* Nothing was allocated again or moved. */
    assert_ptr_equal(w.trainer.engine.params.data, params);
    assert_ptr_equal(w.trainer.engine.grads.data, grads);
    const uint64_t hash =
        ranks_hash(w.trainer.engine.params.data, w.trainer.engine.model->count * sizeof(float));
    const int64_t steps = w.trainer.engine.step;
    link_cancel(w.link);
    assert_true(trainer_leave(&w.trainer));
    trainer_close(&w.trainer);
    job_release(&w.config.job);
    fake_coordinator_close();
    assert_true(parameters_after(steps) == hash);
}

/* The coordinator does not answer the commit before the generation is over. */
static void the_next_evaluation_takes_the_place_of_a_best_one_whose_snapshot_was_lost(void **state)
{
    struct worker w;

    (void)state;
    fake.pending_commits = 1000000;
    worker_begin_keeping(&w, "", true);
    WAIT_FOR(fake.commits > 0);
    const int64_t lost = fake.committed_step;
    next_generation(FIRST + 1, false);
    const int64_t step = fake.live_step;
    /* On a busy machine the next best evaluation may have been committed, too, before this thread looks. */
    fake.first_committed_step = 0;
    fake.pending_commits = 0;
    WAIT_FOR(fake.first_committed_step > 0);
    const int64_t kept = fake.first_committed_step;
    assert_true(kept == step || kept == step + 1);
    fake.watch_stop = 1;
    fake_coordinator_send_watch();
    WAIT_FOR(w.ended);
    assert_int_equal(w.code, ERR_OK);
    assert_true(lost < kept && w.trainer.engine.best_step >= kept);
    worker_end(&w);
}

static void a_worker_that_is_dismissed_ends(void **state)
{
    struct worker w;

    (void)state;
    worker_begin(&w, "");
    watch_says(true, false, FIRST);
    watch_says(false, false, FIRST + 1);
    WAIT_FOR(w.ended);
    assert_int_equal(w.code, ERR_ABORTED);
    assert_int_equal(fake.joins, 2); /* of the first generation only: the bootstrap id, and the answer */
    worker_end(&w);
}

/* The worker stands between two steps, says so, and has done all that was due. Returns its step. */
static int64_t worker_waits_for(struct worker *w, int number)
{
    struct link_member next;

    fake.watch_handover = number;
    fake_coordinator_send_watch();
    WAIT_FOR(fake.watched_ready == number);
    /* ThreadSanitizer does not see that messages order the two threads, so the link's lock does: the worker takes it before
     * the wait and after it. */
    link_after(w->link, &next);
    const int64_t step = w->trainer.engine.step, served = w->trainer.served_step;
    link_after(w->link, &next);
    assert_int_equal(served, step);
    return step;
}

static void a_worker_waits_between_two_steps_for_a_handover(void **state)
{
    struct worker w;

    (void)state;
    worker_begin(&w, "");
    const int64_t step = worker_waits_for(&w, 7);
    next_generation(FIRST + 1, false);
    fake.watch_handover = 0; /* not before: a Watch in between would say that the hand-over is taken back */
    assert_int_equal(fake.live_step, step);
    fake.watch_stop = 1;
    fake_coordinator_send_watch();
    WAIT_FOR(w.ended);
    assert_int_equal(w.code, ERR_OK);
    assert_true(w.trainer.engine.step > step);
    worker_end(&w);
}

static void a_worker_goes_on_if_the_handover_is_taken_back(void **state)
{
    struct worker w;

    (void)state;
    worker_begin(&w, "");
    const int64_t step = worker_waits_for(&w, 7);
    assert_true(worker_waits_for(&w, 8) > step); /* another number: it has made a step */
    fake.watch_handover = 0;
    fake_coordinator_send_watch();
    WAIT_FOR(fake.watched_ready == 0);
    assert_int_equal(fake.joins, 2); /* of the first generation only */
    fake.watch_stop = 1;
    fake_coordinator_send_watch();
    WAIT_FOR(w.ended);
    assert_int_equal(w.code, ERR_OK);
    worker_end(&w);
}

static void a_worker_that_is_not_needed_any_more_succeeds(void **state)
{
    struct worker w;

    (void)state;
    worker_begin(&w, "");
    worker_waits_for(&w, 7);
    watch_says(false, false, FIRST + 1);
    WAIT_FOR(w.ended);
    assert_int_equal(w.code, ERR_OK);
    assert_true(w.trainer.stopped && w.trainer.asked);
    worker_end(&w);
}

/* As an older coordinator says it: that a later generation is there, and that the worker is not a member. */
static void a_worker_whose_job_wants_no_replacements_does_not_stay(void **state)
{
    struct worker w;

    (void)state;
    worker_begin(&w, "max_replacements: 0\n");
    assert_false(fake.joined_stays || fake.watched_stays);
    watch_says(false, false, FIRST + 1);
    WAIT_FOR(w.ended);
    assert_int_equal(w.code, ERR_ABORTED);
    worker_end(&w);
}

/* As the handler of ddp-trainer does. */
static void worker_signalled(int number)
{
    trainer_stop_signal = number;
    peer_loss_wake();
}

static void a_signal_ends_the_wait_for_the_next_generation(void **state)
{
    struct sigaction term = {.sa_handler = worker_signalled}, old;
    struct worker w;

    (void)state;
    assert_int_equal(sigaction(SIGTERM, &term, &old), 0);
    worker_begin(&w, "");
    watch_says(true, false, FIRST);
    WAIT_FOR(link_over(w.link));
    assert_int_equal(pthread_kill(w.thread, SIGTERM), 0);
    WAIT_FOR(w.ended);
    assert_int_equal(sigaction(SIGTERM, &old, NULL), 0);
    assert_int_equal(w.code, ERR_ABORTED);
    worker_end(&w);
}

static void a_refused_join_leads_back_to_the_coordinators_word(void **state)
{
    static const enum err_code codes[] = {ERR_ABORTED, ERR_PERMISSION_DENIED, ERR_FAILED_PRECONDITION};
    struct worker w;

    (void)state;
    worker_begin(&w, "");
    for (int i = 0; i < (int)ARRAY_LEN(codes); i++) {
        const int joins = fake.joins;

        fake.refuse = (int)codes[i];
        fake.generation = FIRST + 1 + 2 * i;
        watch_says(false, true, FIRST + 1 + 2 * i);
        WAIT_FOR(fake.joins > joins);
        fake.refuse = 0;
        next_generation(FIRST + 2 + 2 * i, true);
        assert_false(w.ended);
    }
    watch_says(false, false, FIRST + 7);
    WAIT_FOR(w.ended);
    worker_end(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(a_worker_goes_through_five_hundred_generations_and_loses_no_step,
                               fake_coordinator_reset),
        cmocka_unit_test_setup(the_next_evaluation_takes_the_place_of_a_best_one_whose_snapshot_was_lost,
                               fake_coordinator_reset),
        cmocka_unit_test_setup(a_worker_that_is_dismissed_ends, fake_coordinator_reset),
        cmocka_unit_test_setup(a_worker_waits_between_two_steps_for_a_handover, fake_coordinator_reset),
        cmocka_unit_test_setup(a_worker_goes_on_if_the_handover_is_taken_back, fake_coordinator_reset),
        cmocka_unit_test_setup(a_worker_that_is_not_needed_any_more_succeeds, fake_coordinator_reset),
        cmocka_unit_test_setup(a_worker_whose_job_wants_no_replacements_does_not_stay,
                               fake_coordinator_reset),
        cmocka_unit_test_setup(a_signal_ends_the_wait_for_the_next_generation, fake_coordinator_reset),
        cmocka_unit_test_setup(a_refused_join_leads_back_to_the_coordinators_word, fake_coordinator_reset),
    };

    return cmocka_run_group_tests(tests, fake_coordinator_make_directory, fake_coordinator_remove_directory);
}
