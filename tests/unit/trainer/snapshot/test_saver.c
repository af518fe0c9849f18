/* Tests the saver: steps go on while a snapshot is written, and a snapshot counts only once it is committed. */
#include <limits.h>
#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/resource.h>

#include <cmocka.h>

#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "tests/unit/trainer/snapshot/snapshot_fixture.h"
#include "trainer/snapshot/examine.h"
#include "trainer/snapshot/saver.h"

/* What the saver's owner does in the two callbacks. */
struct gate {
    pthread_mutex_t lock; /* guards the fields below */
    pthread_cond_t moved;
    bool open; /* until then, both callbacks wait */
    enum err_code answer;
    int failures;
    int64_t failed_step; /* of the last failure */
    enum err_code failed_code;
};

static void gate_pass(struct gate *g)
{
    pthread_mutex_lock(&g->lock);
    while (!g->open)
        pthread_cond_wait(&g->moved, &g->lock);
    pthread_mutex_unlock(&g->lock);
}

static enum err_code commit_when_open(void *arg, const struct snapshot_place *place,
                                      const struct snapshot_files *files, struct err *e)
{
    struct gate *g = arg;
    (void)place, (void)files;
    gate_pass(g);
    return g->answer ? err_set(e, g->answer, "another generation is current") : ERR_OK;
}

static void note_failure(void *arg, const struct snapshot_place *place, const struct err *why)
{
    struct gate *g = arg;
    gate_pass(g);
    pthread_mutex_lock(&g->lock);
    g->failures++;
    g->failed_step = place->step;
    g->failed_code = why->code;
    pthread_mutex_unlock(&g->lock);
}

static void gate_open(struct gate *g)
{
    pthread_mutex_lock(&g->lock);
    g->open = true;
    pthread_cond_broadcast(&g->moved);
    pthread_mutex_unlock(&g->lock);
}

static struct saver *gated_saver_open(struct gate *g, enum err_code answer)
{
    struct saver *s = NULL;
    struct err e = {0};
    *g =
        (struct gate){.lock = PTHREAD_MUTEX_INITIALIZER, .moved = PTHREAD_COND_INITIALIZER, .answer = answer};
    struct saver_config config = {.dir = fixture_dir,
                                  .keep = 2,
                                  .writer = true,
                                  .layout = &fixture_layout,
                                  .commit = commit_when_open,
                                  .failed = note_failure,
                                  .arg = g};
    assert_int_equal(saver_open(&s, &config, &e), ERR_OK);
    return s;
}

static void a_snapshot_counts_only_once_it_is_committed(void **state)
{
    struct gate g;
    struct saver *s = gated_saver_open(&g, ERR_OK);
    struct snapshot_place place = fixture_place_at(10, 1), done;
    struct err e = {0};
    (void)state;
    fixture_fill(saver_state(s), 1.0f);
    saver_submit(s, &place, 0);
    assert_true(saver_busy(s));
    assert_false(fixture_file_exists("step-10-g1/COMMITTED.json"));
    assert_false(saver_take_result(s, &done, &e));
    gate_open(&g);
    assert_int_equal(saver_wait(s, &e), ERR_OK);
    assert_true(fixture_file_exists("step-10-g1/COMMITTED.json"));
    assert_true(saver_take_result(s, &done, &e));
    assert_int_equal(done.step, 10);
    assert_int_equal(e.code, ERR_OK);
    assert_false(saver_take_result(s, &done, &e));
    saver_close(s);
    assert_int_equal(g.failures, 0);
}

/* The owner asks for the result only after it has submitted the next snapshot. */
static void a_result_is_that_of_the_snapshot_that_ended(void **state)
{
    struct gate g;
    struct saver *s = gated_saver_open(&g, ERR_OK);
    struct snapshot_place first = fixture_place_at(10, 1), second = fixture_place_at(20, 1), done;
    struct err e = {0};
    (void)state;
    gate_open(&g);
    fixture_fill(saver_state(s), 1.0f);
    saver_submit(s, &first, 0);
    assert_int_equal(saver_wait(s, &e), ERR_OK);
    pthread_mutex_lock(&g.lock);
    g.open = false;
    pthread_mutex_unlock(&g.lock);
    saver_submit(s, &second, 0);
    assert_true(saver_take_result(s, &done, &e));
    assert_int_equal(done.step, 10);
    assert_false(saver_take_result(s, &done, &e));
    gate_open(&g);
    assert_int_equal(saver_wait(s, &e), ERR_OK);
    assert_true(saver_take_result(s, &done, &e));
    assert_int_equal(done.step, 20);
    saver_close(s);
}

static void a_refused_snapshot_does_not_count(void **state)
{
    struct gate g;
    struct saver *s = gated_saver_open(&g, ERR_ABORTED);
    struct snapshot_place place = fixture_place_at(10, 1);
    struct snapshot_list list = {0};
    struct err e = {0};
    (void)state;
    gate_open(&g);
    saver_submit(s, &place, 0);
    assert_int_equal(saver_wait(s, &e), ERR_ABORTED);
    saver_close(s);
    assert_false(fixture_file_exists("step-10-g1/COMMITTED.json"));
    assert_int_equal(snapshot_scan(fixture_dir, &list, &e), ERR_OK);
    assert_int_equal(list.count, 1);
    assert_false(list.items[0].committed);
    snapshot_list_release(&list);
}

/* ---- parts: this rank is a writer, and writes its part */

static struct saver *parts_saver_open(struct gate *g, enum err_code answer)
{
    struct saver *s = NULL;
    struct err e = {0};
    *g = (struct gate){
        .lock = PTHREAD_MUTEX_INITIALIZER, .moved = PTHREAD_COND_INITIALIZER, .open = true, .answer = answer};
    struct saver_config config = {.dir = fixture_dir,
                                  .keep = 2,
                                  .parts = PARTS,
                                  .part = 0,
                                  .writer = true,
                                  .layout = &fixture_apart,
                                  .commit = commit_when_open,
                                  .arg = g};
    assert_int_equal(saver_open(&s, &config, &e), ERR_OK);
    memset(saver_state(s), 0, FLOATS * sizeof(float));
    memset(saver_model(s), 0, 32 * sizeof(float));
    return s;
}

/* As when another node's disk is full for hours: this node must not keep what can never be committed. */
static void a_refused_snapshot_with_parts_is_removed(void **state)
{
    struct gate g;
    struct saver *s = parts_saver_open(&g, ERR_ABORTED);
    struct snapshot_place place = fixture_place_of_parts(10, 1, false);
    struct err e = {0};
    (void)state;
    fixture_write_part(&place, 1); /* of another rank of this node, which removes it itself */
    saver_submit(s, &place, 0);
    assert_int_equal(saver_wait(s, &e), ERR_ABORTED);
    assert_false(fixture_file_exists("step-10-g1"));
    assert_false(snapshot_part_exists(fixture_dir, &place, 0));
    assert_true(snapshot_part_exists(fixture_dir, &place, 1));
    place.step = 20;
    saver_submit(s, &place, 0);
    assert_int_equal(saver_wait(s, &e), ERR_ABORTED);
    assert_false(fixture_file_exists("parts-step-20-g1-j7"));
    saver_close(s);
}

static void a_snapshot_without_an_answer_is_not_removed(void **state)
{
    struct gate g;
    struct saver *s = parts_saver_open(&g, ERR_CANCELLED);
    struct snapshot_place place = fixture_place_of_parts(10, 1, false);
    struct err e = {0};
    (void)state;
    saver_submit(s, &place, 0);
    assert_int_equal(saver_wait(s, &e), ERR_CANCELLED);
    assert_true(fixture_file_exists("step-10-g1"));
    assert_true(snapshot_part_exists(fixture_dir, &place, 0));
    saver_close(s);
}

/* The part is written, the shared files cannot be: the part is removed. */
static void a_failed_write_leaves_no_part(void **state)
{
    struct gate g;
    struct saver *s = parts_saver_open(&g, ERR_OK);
    struct snapshot_place place = fixture_place_of_parts(10, 1, false);
    struct err e = {0};
    (void)state;
    saver_model(s)[0] = NAN;
    saver_submit(s, &place, 0);
    assert_int_equal(saver_wait(s, &e), ERR_OUT_OF_RANGE);
    assert_false(fixture_file_exists("step-10-g1"));
    assert_false(fixture_file_exists("parts-step-10-g1-j7"));
    saver_close(s);
}

/* Divided moments: this rank has three floats of them, and is no writer. */
static void a_rank_stages_and_writes_its_own_moments_only(void **state)
{
    struct gate g = {.lock = PTHREAD_MUTEX_INITIALIZER, .moved = PTHREAD_COND_INITIALIZER, .open = true};
    struct snapshot_range range = {.moment = 1, .first = 2, .count = 3};
    struct snapshot_ranges ranges = {.list = &range, .count = 1, .floats = 3};
    struct snapshot_place place = fixture_place_of_parts(10, 1, false);
    struct saver_config config = {.dir = fixture_dir,
                                  .keep = 2,
                                  .parts = PARTS,
                                  .part = 1,
                                  .ranges = &ranges,
                                  .layout = &fixture_layout,
                                  .commit = commit_when_open,
                                  .arg = &g};
    struct divided_file file;
    struct saver *s = NULL;
    struct err e = {0};
    (void)state;
    place.divided = true;
    assert_int_equal(saver_open(&s, &config, &e), ERR_OK);
    assert_int_equal(saver_bytes(s), 3 * sizeof(float));
    assert_null(saver_model(s));
    for (int i = 0; i < 3; i++)
        saver_state(s)[i] = (float)i;
    saver_submit(s, &place, 0);
    assert_int_equal(saver_wait(s, &e), ERR_OK);
    assert_false(fixture_file_exists("step-10-g1"));
    CLEANUP(free_text) char *path = snapshot_part_path(fixture_dir, &place, 1);
    assert_int_equal(divided_open(&file, path, &fixture_layout, &e), ERR_OK);
    assert_int_equal(file.ranges.count, 1);
    assert_int_equal(file.ranges.list[0].moment, 1);
    assert_int_equal(file.ranges.list[0].first, 2);
    divided_close(&file);
    saver_close(s);
}

/* The snapshots fail before their commit, so that only the report of the failure waits for the gate. */
static void the_next_snapshot_does_not_wait_for_the_report_of_a_failure(void **state)
{
    struct gate g;
    struct saver *s = gated_saver_open(&g, ERR_OK);
    struct snapshot_place place = fixture_place_at(10, 1);
    struct err e = {0};
    (void)state;
    saver_state(s)[0] = NAN;
    saver_submit(s, &place, 0);
    assert_int_equal(saver_wait(s, &e), ERR_OUT_OF_RANGE);
    place.step = 20;
    saver_submit(s, &place, 0);
    gate_open(&g);
    assert_int_equal(saver_wait(s, &e), ERR_OUT_OF_RANGE);
    saver_close(s);
    assert_int_equal(g.failures, 2);
    assert_int_equal(g.failed_step, 20);
    assert_int_equal(g.failed_code, ERR_OUT_OF_RANGE);
}

static void a_directory_that_cannot_be_written_is_an_error(void **state)
{
    struct gate g;
    struct err e = {0};
    struct saver *s;
    struct snapshot_place place = fixture_place_at(10, 1);
    char whole[64];
    (void)state;
    strcpy(whole, fixture_dir);
    strcat(fixture_dir, "/file");
    assert_int_equal(file_write_atomic(fixture_dir, "", 0, 0600, &e), ERR_OK);
    s = gated_saver_open(&g, ERR_OK);
    gate_open(&g);
    saver_set_last(s, 0);
    saver_submit(s, &place, 0);
    assert_int_not_equal(saver_wait(s, &e), ERR_OK);
    assert_non_null(strstr(e.msg, fixture_dir));
    saver_close(s);
    strcpy(fixture_dir, whole);
}

/* ---- a snapshot that cannot be committed any more */

struct over {
    struct gate gate; /* first, because the commit gets this one */
    int asked, over_from;
};

static bool over_after_some_asks(void *arg, const struct snapshot_place *place)
{
    struct over *o = arg;
    assert_int_equal(place->step, 10);
    return o->asked++ >= o->over_from;
}

static enum err_code commit_never_over(void *arg, const struct snapshot_place *place,
                                       const struct snapshot_files *files, struct err *e)
{
    struct over *o = arg;
    (void)place, (void)files, (void)e;
    assert_true(o->asked <= o->over_from);
    return ERR_OK;
}

/* Saves a snapshot whose generation ends when the saver asks for the `over_from`th time, and returns the result. Checks that the
 * directory is then empty, or has the whole snapshot. */
static enum err_code save_until(int over_from, bool parts)
{
    struct over over = {.over_from = over_from};
    struct saver *s = NULL;
    struct snapshot_place place = parts ? fixture_place_of_parts(10, 1, false) : fixture_place_at(10, 1);
    struct err e = {0};
    char **names = NULL;
    struct saver_config config = {.dir = fixture_dir,
                                  .keep = 2,
                                  .parts = parts ? PARTS : 0,
                                  .writer = true,
                                  .layout = parts ? &fixture_apart : &fixture_layout,
                                  .commit = commit_never_over,
                                  .over = over_after_some_asks,
                                  .arg = &over};
    assert_int_equal(saver_open(&s, &config, &e), ERR_OK);
    fixture_fill(saver_state(s), 1.0f);
    saver_submit(s, &place, 0);
    const enum err_code code = saver_wait(s, &e);
    saver_close(s);
    assert_int_equal(snapshot_list_names(fixture_dir, NULL, NULL, &names, &e), ERR_OK);
    assert_int_equal(strv_len(names), code ? 2 : parts ? 4 : 3); /* with . and .. */
    strv_free(names);
    return code;
}

static void a_snapshot_whose_generation_is_over_ends_at_the_next_tensor(void **state)
{
    (void)state;
    for (int parts = 0; parts < 2; parts++) {
        int asks = 0;
        enum err_code code;
        while ((code = save_until(asks, parts)) == ERR_CANCELLED)
            asks++;
        assert_int_equal(code, ERR_OK);
        /* At least before each tensor of each file, and before the files are read again. */
        assert_true(asks >= 12);
        struct err e;
        assert_int_equal(file_remove_tree(fixture_dir, &e), ERR_OK);
        assert_int_equal(file_mkdirs(fixture_dir, 0755, &e), ERR_OK);
    }
}

/* ---- the last snapshot waits for space. A limit of open files stands for a full disk: both lack a resource. */

struct space {
    struct gate gate; /* first, because the other callbacks get this one */
    struct rlimit usual;
    int pauses, pauses_until; /* there is space again after so many pauses, or the wait is over */
    bool stop;                /* the wait is over */
};

static void set_files_limit(rlim_t files)
{
    struct rlimit limit;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    limit.rlim_cur = files;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
}

static bool pause_until_space(void *arg, const struct snapshot_place *place, const struct err *why,
                              int64_t left_ms, int tries)
{
    struct space *space = arg;
    assert_int_equal(place->step, 10);
    assert_int_equal(why->code, ERR_RESOURCE_EXHAUSTED);
    assert_int_equal(tries, space->pauses++);
    assert_true(left_ms > 0 && left_ms <= 60000);
    if (space->pauses < space->pauses_until)
        return true;
    if (!space->stop)
        set_files_limit(space->usual.rlim_cur);
    return !space->stop;
}

/* Returns a saver that has state, and whose next snapshot is the last one. From now on no file can be opened. */
static struct saver *full_saver_open(struct space *space, int64_t patience_ms)
{
    struct saver *s = NULL;
    struct err e = {0};
    space->gate =
        (struct gate){.lock = PTHREAD_MUTEX_INITIALIZER, .moved = PTHREAD_COND_INITIALIZER, .open = true};
    struct saver_config config = {.dir = fixture_dir,
                                  .keep = 2,
                                  .writer = true,
                                  .layout = &fixture_layout,
                                  .commit = commit_when_open,
                                  .failed = note_failure,
                                  .pause = pause_until_space,
                                  .arg = space};
    assert_int_equal(saver_open(&s, &config, &e), ERR_OK);
    fixture_fill(saver_state(s), 1.0f);
    saver_set_last(s, patience_ms);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &space->usual), 0);
    set_files_limit(0);
    return s;
}

static void the_last_snapshot_waits_for_space(void **state)
{
    struct space space = {.pauses_until = 3};
    struct saver *s = full_saver_open(&space, 60000);
    struct snapshot_place place = fixture_place_at(10, 1);
    struct err e = {0};
    (void)state;
    saver_submit(s, &place, 0);
    assert_int_equal(saver_wait(s, &e), ERR_OK);
    assert_int_equal(space.pauses, 3);
    assert_int_equal(space.gate.failures, 0);
    assert_true(fixture_file_exists("step-10-g1/COMMITTED.json"));
    saver_close(s);
}

static void a_stop_ends_the_wait_for_space(void **state)
{
    struct space space = {.pauses_until = 2, .stop = true};
    struct saver *s = full_saver_open(&space, 60000);
    struct snapshot_place place = fixture_place_at(10, 1);
    struct err e = {0};
    (void)state;
    saver_submit(s, &place, 0);
    assert_int_equal(saver_wait(s, &e), ERR_RESOURCE_EXHAUSTED);
    set_files_limit(space.usual.rlim_cur);
    assert_int_equal(space.pauses, 2);
    assert_int_equal(space.gate.failures, 1); /* told before the saver was idle */
    saver_close(s);
}

static void the_wait_for_space_is_bounded(void **state)
{
    struct space space = {.pauses_until = INT_MAX};
    struct saver *s = full_saver_open(&space, 20);
    struct snapshot_place place = fixture_place_at(10, 1);
    struct err e = {0};
    (void)state;
    saver_submit(s, &place, 0);
    assert_int_equal(saver_wait(s, &e), ERR_FAILED_PRECONDITION);
    set_files_limit(space.usual.rlim_cur);
    /* The resource that is exhausted is not the disk, so only the system's reason names it. */
    CLEANUP(free_text)
    char *said = xasprintf("cannot write the snapshot of step 10 to %s after trying for ", fixture_dir);
    assert_non_null(strstr(e.msg, said));
    assert_non_null(strstr(e.msg, "Too many open files"));
    assert_null(strstr(e.msg, "disk full"));
    assert_int_equal(space.gate.failed_code, ERR_FAILED_PRECONDITION);
    saver_close(s);
}

/* ---- a state that the saver copies itself */

struct copy_gate {
    struct gate gate; /* first, because the other callbacks get this one */
    enum err_code answer;
};

static enum err_code copy_when_open(void *arg, float *state, struct err *e)
{
    struct copy_gate *g = arg;
    gate_pass(&g->gate);
    if (g->answer)
        return err_set(e, g->answer, "the device has failed");
    fixture_fill(state, 3.0f);
    return ERR_OK;
}

static struct saver *copying_saver_open(struct copy_gate *g, enum err_code answer)
{
    struct saver *s = NULL;
    struct err e = {0};
    *g = (struct copy_gate){{.lock = PTHREAD_MUTEX_INITIALIZER, .moved = PTHREAD_COND_INITIALIZER}, answer};
    struct saver_config config = {.dir = fixture_dir,
                                  .keep = 2,
                                  .writer = true,
                                  .layout = &fixture_layout,
                                  .copy = copy_when_open,
                                  .commit = commit_when_open,
                                  .failed = note_failure,
                                  .arg = g};
    assert_int_equal(saver_open(&s, &config, &e), ERR_OK);
    return s;
}

static void the_owner_goes_on_while_the_state_is_copied(void **state)
{
    struct copy_gate g;
    struct saver *s = copying_saver_open(&g, ERR_OK);
    struct snapshot_place place = fixture_place_at(10, 1);
    struct err e = {0};
    (void)state;
    fixture_fill(saver_state(s), 1.0f);
    saver_submit_copy(s, &place);
    assert_true(saver_copies(s) && saver_busy(s));
    gate_open(&g.gate);
    saver_await_copy(s);
    assert_false(saver_copies(s));
    assert_int_equal(saver_wait(s, &e), ERR_OK);
    assert_true(saver_state(s)[0] == 3.0f);
    assert_true(fixture_file_exists("step-10-g1/COMMITTED.json"));
    place.step = 20;
    saver_submit(s, &place, 0); /* staged by the owner: nothing is copied */
    assert_false(saver_copies(s));
    assert_int_equal(saver_wait(s, &e), ERR_OK);
    saver_close(s);
}

static void a_copy_that_fails_is_no_snapshot(void **state)
{
    struct copy_gate g;
    struct saver *s = copying_saver_open(&g, ERR_INTERNAL);
    struct snapshot_place place = fixture_place_at(10, 1);
    struct err e = {0};
    (void)state;
    saver_submit_copy(s, &place);
    gate_open(&g.gate);
    saver_await_copy(s);
    assert_int_equal(saver_wait(s, &e), ERR_INTERNAL);
    assert_false(fixture_file_exists("step-10-g1"));
    saver_close(s);
    assert_int_equal(g.gate.failures, 1);
    assert_int_equal(g.gate.failed_step, 10);
}

static enum err_code copy_at_once(void *arg, float *state, struct err *e)
{
    (void)arg;
    (void)e;
    fixture_fill(state, 3.0f);
    return ERR_OK;
}

/* As above, but the next state is copied by the saver, whose thread still reports the failure. */
static void the_next_copy_does_not_wait_for_the_report_of_a_failure(void **state)
{
    struct gate g = {.lock = PTHREAD_MUTEX_INITIALIZER, .moved = PTHREAD_COND_INITIALIZER};
    struct saver_config config = {.dir = fixture_dir,
                                  .keep = 2,
                                  .writer = true,
                                  .layout = &fixture_layout,
                                  .copy = copy_at_once,
                                  .commit = commit_when_open,
                                  .failed = note_failure,
                                  .arg = &g};
    struct snapshot_place place = fixture_place_at(10, 1);
    struct saver *s = NULL;
    struct err e = {0};
    (void)state;
    assert_int_equal(saver_open(&s, &config, &e), ERR_OK);
    saver_state(s)[0] = NAN;
    saver_submit(s, &place, 0);
    assert_int_equal(saver_wait(s, &e), ERR_OUT_OF_RANGE);
    place.step = 20;
    saver_submit_copy(s, &place);
    saver_await_copy(s);
    assert_true(saver_state(s)[0] == 3.0f);
    gate_open(&g);
    assert_int_equal(saver_wait(s, &e), ERR_OK);
    assert_true(fixture_file_exists("step-20-g1/COMMITTED.json"));
    saver_close(s);
    assert_int_equal(g.failures, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SNAPSHOT_TEST(a_snapshot_counts_only_once_it_is_committed),
        SNAPSHOT_TEST(a_result_is_that_of_the_snapshot_that_ended),
        SNAPSHOT_TEST(a_refused_snapshot_does_not_count),
        SNAPSHOT_TEST(a_refused_snapshot_with_parts_is_removed),
        SNAPSHOT_TEST(a_snapshot_without_an_answer_is_not_removed),
        SNAPSHOT_TEST(a_failed_write_leaves_no_part),
        SNAPSHOT_TEST(a_rank_stages_and_writes_its_own_moments_only),
        SNAPSHOT_TEST(the_next_snapshot_does_not_wait_for_the_report_of_a_failure),
        SNAPSHOT_TEST(a_snapshot_whose_generation_is_over_ends_at_the_next_tensor),
        SNAPSHOT_TEST(the_last_snapshot_waits_for_space),
        SNAPSHOT_TEST(a_stop_ends_the_wait_for_space),
        SNAPSHOT_TEST(the_wait_for_space_is_bounded),
        SNAPSHOT_TEST(the_owner_goes_on_while_the_state_is_copied),
        SNAPSHOT_TEST(a_copy_that_fails_is_no_snapshot),
        SNAPSHOT_TEST(the_next_copy_does_not_wait_for_the_report_of_a_failure),
        SNAPSHOT_TEST(a_directory_that_cannot_be_written_is_an_error),
    };
    log_init("test_saver", LOG_ERROR);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
