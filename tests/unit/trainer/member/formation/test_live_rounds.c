/* Tests generations that go on from memory within rounds of averaging: exchanges that fail at any of their calls, on some ranks
 * only or on all, and ranks that are replaced. The ranks do the coordinator's part themselves. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/job/job_tune.h"
#include "base/mem.h"
#include "tests/unit/trainer/member/formation/meeting.h"
#include "trainer/engine/share.h"
#include "trainer/engine/state.h"
#include "trainer/member/link/watch.h"
#include "trainer/resume.h"
#include "trainer/round/timed_round.h"
#include "trainer/step.h"

enum { WORLD = 3, EVERY = 6, STEPS = 4 * EVERY + 2, FIRST = 11, GENERATIONS = 8 };

struct board {
    struct meeting meeting;
    atomic_int over[GENERATIONS], ready[GENERATIONS];
    int64_t steps[GENERATIONS][WORLD];
    float moments[MEETING_FLOATS];
    int calls; /* that a rank makes in an undisturbed run */
};
_Static_assert(sizeof(struct board) <= sizeof(((struct ranks_shared *)0)->result), "room for the board");

static struct board *board_of(struct ranks *r)
{
    return (struct board *)(void *)r->shared->result;
}

enum how {
    CALL_FAILS,    /* the call is not made, so it fails on all ranks */
    CALL_SUCCEEDS, /* on the others, as if this rank had been lost at the end of the call */
};

#define EIGHTS "8, 8, 8, 8, 8, 8, 8, 8, 8, 8, " /* layers for more than 32 fragments */

static const struct strategy {
    const char *sync;
    int world, first_call; /* first_call: after the first step */
    int stride;            /* of the calls that are tried in the full run; 0: each is */
    const char *sizes;     /* of the model; NULL: as usual */
    const char *tune;      /* the job is tuned so when the group is lost; NULL: it is not */
} strategies[] = {
    {"{type: average, every: 6}", 3, 2},
    {"{type: diloco, every: 6, outer_lr: 1, outer_momentum: 0}", 3, 2},
    {"{type: diloco, every: 6}", 3, 2},
    {"{type: diloco, every: 6, wire: int4}", 2, 2},
    {"{type: diloco, every: 6, wire: int4}", 3, 2},
    {"{type: diloco, every: 6, wire: int4, warm: 10}", 3, 8},
    {"{type: diloco, every: 6, wire: int4, fragments: 2}", 3, 2},
    {"{type: average, every: 1}", 3, 2, 5},
    {"{type: diloco, every: 34, fragments: 34}", 2, 2, 9, "20, " EIGHTS EIGHTS EIGHTS EIGHTS "1"},
};
#define REPLACED 5 /* of these: those whose first rounds are not those of all-reduce, with one fragment */

/* Rounds of a given time; rounds_steps takes the clock's place. */
static const struct strategy timed[] = {
    {"{type: average, every: 30s}", 3, 2},
    {"{type: diloco, every: 30s, wire: int4}", 3, 2},
    {"{type: diloco, every: 30s, wire: int4, warm: 10}", 3, 8},
};
#define TIMED_REPLACED 2
/* Rounds that become longer, shorter, or of another kind when the group is lost within one. */
static const struct strategy tuned[] = {
    {"{type: diloco, every: 6, wire: int4}", 3, 2, .tune = "sync.every=30s"},
    {"{type: average, every: 6}", 3, 2, .tune = "sync.every=30s"},
    {"{type: diloco, every: 6}", 3, 2, .tune = "sync.every=2"},
    {"{type: diloco, every: 6, wire: int4, warm: 10}", 3, 8, .tune = "sync.every=30s"},
    {"{type: diloco, every: 30s, wire: int4}", 3, 2, .tune = "sync.every=7"},
    {"{type: average, every: 30s}", 3, 2, .tune = "sync.every=1"},
};
static const int rounds_steps[WORLD] = {4, 2, 3}; /* as DDP_TEST_ROUND_STEPS has them */

static bool is_timed(const struct strategy *s)
{
    return strstr(s->sync, "30s");
}

/* The step from one call that is tried to the next one: in the full run, which DDP_TEST_ALL_CALLS asks for, `full`. Odd numbers,
 * since what happens at a call follows from the last bits of its number. */
static int stride_of(const struct strategy *s, int full)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    const bool slow = true;
#else
    const bool slow = false;
#endif
    const int stride = s->stride ? full * s->stride : full;
    const int usual = slow || getenv("DDP_TEST_DEVICE") ? 15 : 5;
    return getenv("DDP_TEST_ALL_CALLS") ? stride : usual * stride;
}

struct scene {
    const struct strategy *strategy;
    enum how how;
    int fails, at_call; /* the rank and its call in the first generation; 0: none fails */
    bool dies;          /* the rank is replaced by a new process */
    bool early; /* ranks hear within a round that the generation is over; else they come to the exchange */
};

/* ---- the calls, counted: the linker passes them on */

static struct ranks *scene_ranks;
static int own_rank, generation, calls;

enum err_code __real_coll_allgather(struct coll_group *g, const void *mine, size_t size, void *out,
                                    struct err *e);
enum err_code __wrap_coll_allgather(struct coll_group *g, const void *mine, size_t size, void *out,
                                    struct err *e);
enum err_code __real_coll_exchange(struct coll_group *g, const void *mine, const size_t *offsets, void *out,
                                   struct err *e);
enum err_code __wrap_coll_exchange(struct coll_group *g, const void *mine, const size_t *offsets, void *out,
                                   struct err *e);
enum err_code __real_coll_start(struct coll_group *g, float *data, size_t count, struct err *e);
enum err_code __wrap_coll_start(struct coll_group *g, float *data, size_t count, struct err *e);
enum err_code __real_coll_join(struct coll_group *g, struct err *e);
enum err_code __wrap_coll_join(struct coll_group *g, struct err *e);
bool __wrap_link_over(const struct link *r);
bool __wrap_link_stays(const struct link *r);

static bool call_is_lost(enum how how)
{
    const struct scene *scene = scene_ranks ? scene_ranks->arg : NULL;

    if (how == CALL_FAILS) /* asked before each call */
        calls++;
    if (!scene || generation > 0 || own_rank != scene->fails || calls != scene->at_call || how != scene->how)
        return false;
    atomic_store(&board_of(scene_ranks)->over[generation], 1);
    return true;
}

static enum err_code call_lost(struct err *e)
{
    return err_set(e, ERR_ABORTED, "the test has lost the group");
}

#define PASS_ON(call)                                                                                        \
    do {                                                                                                     \
        if (call_is_lost(CALL_FAILS))                                                                        \
            return call_lost(e);                                                                             \
        enum err_code code = call;                                                                           \
        return !code && call_is_lost(CALL_SUCCEEDS) ? call_lost(e) : code;                                   \
    } while (0)

enum err_code __wrap_coll_allgather(struct coll_group *g, const void *mine, size_t size, void *out,
                                    struct err *e)
{
    PASS_ON(__real_coll_allgather(g, mine, size, out, e));
}

enum err_code __wrap_coll_exchange(struct coll_group *g, const void *mine, const size_t *offsets, void *out,
                                   struct err *e)
{
    PASS_ON(__real_coll_exchange(g, mine, offsets, out, e));
}

enum err_code __wrap_coll_start(struct coll_group *g, float *data, size_t count, struct err *e)
{
    PASS_ON(__real_coll_start(g, data, count, e));
}

enum err_code __wrap_coll_join(struct coll_group *g, struct err *e)
{
    PASS_ON(__real_coll_join(g, e));
}

bool __wrap_link_over(const struct link *r)
{
    const struct scene *scene = scene_ranks ? scene_ranks->arg : NULL;

    (void)r;
    return scene && scene->early && atomic_load(&board_of(scene_ranks)->over[generation]);
}

bool __wrap_link_stays(const struct link *r)
{
    (void)r;
    return true;
}

/* ---- a rank's life */

static void rounds_open(struct trainer *t, struct trainer_config *config, const struct scene *scene)
{
    const char *sizes = scene->strategy->sizes;

    meeting_open_sizes(t, config, sizes ? sizes : "20, 24, 1", scene->strategy->sync,
                       "  eval: {every: 5}\n  log_every: 4\n");
    config->job.train.steps = STEPS;
}

/* The coordinator makes the first of the ranks with the most steps the source. */
static int find_source(struct ranks *r, const struct trainer *t, int world)
{
    struct board *b = board_of(r);
    int source = 0;

    b->steps[generation][own_rank] = t->engine.whole ? t->engine.step : 0;
    atomic_fetch_add(&b->ready[generation], 1);
    while (atomic_load(&b->ready[generation]) < world)
        usleep(100);
    for (int i = 0; i < world; i++)
        if (b->steps[generation][i] > b->steps[generation][source])
            source = i;
    return source;
}

/* The caller frees. The newest job file, which the coordinator would send. */
static char *newest_job_file(const struct trainer *t, const struct strategy *s)
{
    CLEANUP(job_tuned_release) struct job_tuned out = {0};
    CLEANUP(free_text) char *text = job_print(&t->config->job);
    const char *const assignments[] = {s->tune, NULL};
    struct err e = {0};

    if (!s->tune || generation == 0)
        return NULL;
    RANK_OK(job_tune(&out, text, (char *const *)(uintptr_t)assignments, &e), &e);
    return xstrdup(out.text);
}

static enum err_code form_next(struct ranks *r, struct trainer *t, struct err *e)
{
    const struct scene *scene = r->arg;
    CLEANUP(free_text) char *newest = newest_job_file(t, scene->strategy);
    const struct meeting_place at = {.round = generation,
                                     .generation = FIRST + generation,
                                     .rank = own_rank,
                                     .world = scene->strategy->world,
                                     .live = generation > 0,
                                     .source = find_source(r, t, scene->strategy->world),
                                     .job_file = newest};

    return meeting_form(r, &board_of(r)->meeting, t, &at, e);
}

static uint64_t shared_hash(const struct trainer *t)
{
    static float shared[MEETING_FLOATS];
    const size_t bytes = t->engine.model->count * sizeof(float);

    RANK_CHECK(bytes <= sizeof(shared));
    t->engine.device->ops->download(t->engine.device, shared, sync_shared(t->formation.sync), bytes);
    return ranks_hash(shared, bytes);
}

static uint64_t rank_hash(const struct trainer *t)
{
    struct sync_state round;

    sync_save(t->formation.sync, &round);
    return meeting_hash(t) * 31 + shared_hash(t) * 7 +
           (uint64_t)(t->engine.samples + t->engine.optim->steps * 1000) + (uint64_t)round.rounds * 1000000;
}

/* What all ranks hold the same of. */
static uint64_t common_hash(const struct trainer *t)
{
    const struct deal *d = &t->engine.deal;
    struct sync_state round;
    uint64_t hash = shared_hash(t);

    sync_save(t->formation.sync, &round);
    for (size_t i = 0; i < d->count; i++)
        hash = hash * 31 + ranks_hash(&d->pieces[i], sizeof(d->pieces[i]));
    return hash * 7 + (uint64_t)(t->engine.samples + d->next.position + round.rounds * 1000000);
}

/* Each sample up to the end of the row has been taken, or stands in the row. */
static bool row_is_whole(const struct trainer *t)
{
    const struct engine *n = &t->engine;
    int64_t dealt = n->deal.next.epoch * n->sampler.samples + n->deal.next.position;

    for (size_t i = 0; i < n->deal.count; i++)
        dealt -= n->deal.pieces[i].count;
    return !n->share.given || dealt == n->samples;
}

static void train_through(struct ranks *r, int rank)
{
    const struct scene *scene = r->arg;
    struct trainer_config config;
    struct trainer t;
    struct err e = {0};

    scene_ranks = r;
    own_rank = rank;
    rounds_open(&t, &config, scene);
    for (generation = 0; generation < GENERATIONS; generation++) {
        e = (struct err){0};
        calls = -1000000; /* calls of forming do not count */
        if (form_next(r, &t, &e) == ERR_OK && trainer_restore(&t, &e) == ERR_OK) {
            calls = 0;
            if (trainer_run(&t, &e) == ERR_OK)
                break;
        }
        if (e.code != ERR_ABORTED || !t.engine.whole)
            fprintf(stderr, "rank %d at step %lld: %s\n", rank, (long long)t.engine.step, e.msg);
        RANK_CHECK(e.code == ERR_ABORTED);
        if (scene->dies && generation == 0 && rank == scene->fails) {
            meeting_close_trainer(&t, &config);
            rounds_open(&t, &config, scene);
        } else {
            RANK_CHECK(t.engine.whole && trainer_leave(&t));
        }
    }
    RANK_CHECK(generation == (scene->at_call > 0) && t.engine.step == STEPS);
    r->shared->hash[rank] = rank_hash(&t);
    r->shared->hash[rank + WORLD] = common_hash(&t);
    RANK_CHECK(row_is_whole(&t));
    if (rank == 0)
        board_of(r)->calls = calls;
    meeting_close_trainer(&t, &config);
}

static struct ranks scene_play(const struct scene *scene)
{
    struct ranks r = {.world = scene->strategy->world, .arg = scene};

    if (!ranks_run(&r, train_through))
        fail_msg("%s, rank %d, call %d, how %d, early %d", scene->strategy->sync, scene->fails,
                 scene->at_call, (int)scene->how, scene->early);
    return r;
}

/* Nobody is lost for good: so the run must end with the bits of an undisturbed one, whichever call fails, wherever the other
 * ranks are, and whether they have applied the exchange. */
static void a_group_that_fails_at_any_call_changes_no_bit(void **state)
{
    (void)state;
    for (size_t k = 0; k < ARRAY_LEN(strategies); k++) {
        struct scene scene = {.strategy = &strategies[k]};
        struct ranks whole = scene_play(&scene);

        /* After the last three calls, other ranks may be done. */
        for (scene.at_call = strategies[k].first_call; scene.at_call <= board_of(&whole)->calls - 3;
             scene.at_call += stride_of(&strategies[k], 1)) {
            scene.how = scene.at_call % 2 ? CALL_SUCCEEDS : CALL_FAILS;
            scene.fails = scene.at_call / 2 % strategies[k].world;
            scene.early = scene.at_call / 4 % 2;
            struct ranks cut = scene_play(&scene);

            for (int r = 0; r < strategies[k].world; r++)
                if (cut.shared->hash[r] != whole.shared->hash[r])
                    fail_msg("%s: rank %d at call %d (%d): other bits on rank %d", strategies[k].sync,
                             scene.fails, scene.at_call, (int)scene.how, r);
            ranks_release(&cut);
        }
        ranks_release(&whole);
    }
}

static void lose_at_call(struct scene *scene)
{
    scene->how = scene->at_call % 2 ? CALL_SUCCEEDS : CALL_FAILS;
    scene->fails = scene->at_call % scene->strategy->world;
    scene->early = scene->at_call / 2 % 2;
    struct ranks lost = scene_play(scene);

    for (int r = 1; r < scene->strategy->world; r++)
        if (lost.shared->hash[WORLD + r] != lost.shared->hash[WORLD])
            fail_msg("%s: rank %d at call %d (%d): rank %d differs from rank 0", scene->strategy->sync,
                     scene->fails, scene->at_call, (int)scene->how, r);
    ranks_release(&lost);
}

/* The survivors' shared parameters are equal, and the run ends at its last step. */
static void a_rank_that_is_lost_at_any_call_is_replaced(void **state)
{
    (void)state;
    for (size_t k = 0; k < ARRAY_LEN(strategies); k++) {
        struct scene scene = {.strategy = &strategies[k]};
        struct ranks whole = scene_play(&scene);

        scene.dies = true;
        for (scene.at_call = strategies[k].first_call; scene.at_call <= board_of(&whole)->calls - 3;
             scene.at_call += stride_of(&strategies[k], 3))
            lose_at_call(&scene);
        ranks_release(&whole);
    }
}

/* The clock decides how long rounds are, so an interrupted run has other bits. But all ranks agree on the shared model, the
 * number of exchanges and the samples that were taken, whether the rank goes on or is replaced, and the run ends at its last
 * step. */
static void rounds_of_a_given_time_go_on(void **state)
{
    (void)state;
    for (size_t k = 0; k < ARRAY_LEN(timed); k++) {
        struct scene scene = {.strategy = &timed[k]};
        struct ranks whole = scene_play(&scene);

        for (scene.at_call = timed[k].first_call; scene.at_call <= board_of(&whole)->calls - 3;
             scene.at_call += stride_of(&timed[k], 1)) {
            scene.dies = scene.at_call / 4 % 2;
            lose_at_call(&scene);
        }
        ranks_release(&whole);
    }
}

/* A round of another kind than the job now has cannot go on: it ends at once, and all agree on it. */
static void a_job_that_is_tuned_within_a_round_goes_on(void **state)
{
    (void)state;
    for (size_t k = 0; k < ARRAY_LEN(tuned); k++) {
        struct scene scene = {.strategy = &tuned[k]};
        struct ranks whole = scene_play(&scene);

        for (scene.at_call = tuned[k].first_call; scene.at_call <= board_of(&whole)->calls - 3;
             scene.at_call += stride_of(&tuned[k], 1)) {
            scene.dies = scene.at_call / 4 % 2;
            lose_at_call(&scene);
        }
        ranks_release(&whole);
    }
}

/* ---- a rank that is replaced within a round */

enum { LOST = 1, LOST_AT = EVERY + 3, ROOM_BYTES = (4 << 20) + sizeof(double) };

static const struct device_ops *plain_ops;
static size_t bytes_moved, bytes_allocated;

static enum err_code counted_alloc(struct device *d, size_t bytes, void **out, struct err *e)
{
    bytes_allocated += bytes;
    return plain_ops->alloc(d, bytes, out, e);
}

static void counted_upload(struct device *d, void *to, const void *from, size_t bytes)
{
    bytes_moved += bytes;
    plain_ops->upload(d, to, from, bytes);
}

static void counted_copy(struct device *d, void *to, const void *from, size_t bytes)
{
    bytes_moved += bytes;
    plain_ops->copy(d, to, from, bytes);
}

static struct device_array *extra_of(struct engine *n, const char *name)
{
    for (size_t i = 0; i < n->extra_count; i++)
        if (!strcmp(n->extras[i].name, name))
            return &n->extra[i];
    return NULL;
}

/* The samples of the others count, and a round of the rest begins. */
static void cut_round_off(struct trainer *t, struct sync_state *round)
{
    struct share_range mine = share_range(&t->engine), all[WORLD];
    struct err e = {0};

    RANK_CHECK(mine.taken == round->local_samples && mine.taken > 0);
    if (own_rank == LOST) {
        mine.taken = 0;
        t->engine.optim->steps = t->engine.fewest_updates;
    }
    RANK_OK(coll_allgather(t->formation.group, &mine, sizeof(mine), all, &e), &e);
    round->global_samples = 0;
    for (int r = 0; r < WORLD; r++)
        round->global_samples += all[r].taken;
    share_cut_off(&t->engine, all, WORLD);
    timed_round_release(t);
}

/* Within one group: makes of the rank what a new process gets. */
static void replace_by_hand(struct ranks *r, struct trainer *t)
{
    const struct scene *scene = r->arg;
    struct board *b = board_of(r);
    struct engine *n = &t->engine;
    const struct device_ops *ops = n->device->ops;
    struct device_array *lost = extra_of(n, "feedback");
    struct sync_state round;
    struct err e = {0};

    RANK_CHECK(n->optim->floats <= MEETING_FLOATS);
    if (own_rank == 0)
        ops->download(n->device, b->moments, n->optim->state, n->optim->floats * sizeof(float));
    RANK_OK(coll_barrier(t->formation.group, &e), &e);
    sync_save(t->formation.sync, &round);
    if (is_timed(scene->strategy)) {
        cut_round_off(t, &round);
    } else {
        RANK_CHECK(round.steps == LOST_AT - EVERY && round.global_samples == WORLD * round.local_samples);
        round.global_samples -= round.local_samples;
    }
    if (own_rank == LOST) {
        round.local_samples = 0;
        ops->copy(n->device, n->params.data, sync_shared(t->formation.sync), n->model->count * sizeof(float));
        ops->upload(n->device, n->optim->state, b->moments, n->optim->floats * sizeof(float));
        if (lost)
            ops->zero(n->device, lost->data, lost->count * sizeof(float));
    }
    sync_load(t->formation.sync, &round);
}

/* Survivors neither allocate nor move memory of the device. On a GPU they have no memory of the host: there they allocate a place for
 * a sum, and room for what passes through in a broadcast. */
static void replace_by_process(struct ranks *r, struct trainer *t, struct trainer_config *config)
{
    const struct scene *scene = r->arg;
    struct device_ops counted = *t->engine.device->ops;
    const float *params = t->engine.params.data;
    struct err e = {0};

    plain_ops = t->engine.device->ops;
    counted.alloc = counted_alloc;
    counted.upload = counted_upload;
    counted.copy = counted_copy;
    generation = 1;
    if (own_rank == LOST) {
        meeting_close_trainer(t, config);
        rounds_open(t, config, r->arg);
        RANK_OK(form_next(r, t, &e), &e);
        return;
    }
    t->engine.device->ops = &counted;
    RANK_CHECK(trainer_leave(t));
    RANK_OK(form_next(r, t, &e), &e);
    RANK_CHECK(bytes_allocated <= (t->engine.device->host ? 0 : ROOM_BYTES));
    RANK_CHECK(bytes_moved == 0 && t->engine.params.data == params);
    RANK_CHECK(t->samples_lost == (is_timed(scene->strategy) ? 0 : (LOST_AT - EVERY) * 4));
    t->engine.device->ops = plain_ops;
}

static void replace_in_a_round(struct ranks *r, int rank)
{
    const struct scene *scene = r->arg;
    struct trainer_config config;
    struct trainer t;
    struct err e = {0};

    own_rank = rank;
    rounds_open(&t, &config, scene);
    RANK_OK(form_next(r, &t, &e), &e);
    RANK_OK(trainer_restore(&t, &e), &e);
    /* Of rounds of a given time, two: one is cut off after unlike numbers of steps. */
    const int round = rounds_steps[rank], cut = round / 2;
    const bool by_time = is_timed(scene->strategy);
    meeting_train(&t, by_time ? round + cut : LOST_AT);
    if (scene->dies)
        replace_by_process(r, &t, &config);
    else
        replace_by_hand(r, &t);
    meeting_train(&t, by_time ? 2 * round : STEPS - LOST_AT);
    RANK_OK(sync_settle(t.formation.sync, &e), &e);
    r->shared->hash[rank] = rank_hash(&t);
    meeting_close_trainer(&t, &config);
}

static void a_replaced_rank_has_the_bits_of_one_that_was_told_so(void **state)
{
    (void)state;
    for (size_t k = 0; k < REPLACED + TIMED_REPLACED; k++) {
        const struct strategy *s = k < REPLACED ? &strategies[k] : &timed[k - REPLACED];
        struct scene told = {.strategy = s}, lost = {.strategy = s, .dies = true};
        struct ranks by_hand = {.world = WORLD, .arg = &told}, by_process = {.world = WORLD, .arg = &lost};

        if (s->world != WORLD)
            continue;
        assert_true(ranks_run(&by_hand, replace_in_a_round));
        assert_true(ranks_run(&by_process, replace_in_a_round));
        for (int r = 0; r < WORLD; r++)
            assert_true(by_hand.shared->hash[r] == by_process.shared->hash[r]);
        ranks_release(&by_hand);
        ranks_release(&by_process);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_group_that_fails_at_any_call_changes_no_bit),
        cmocka_unit_test(a_rank_that_is_lost_at_any_call_is_replaced),
        cmocka_unit_test(rounds_of_a_given_time_go_on),
        cmocka_unit_test(a_job_that_is_tuned_within_a_round_goes_on),
        cmocka_unit_test(a_replaced_rank_has_the_bits_of_one_that_was_told_so),
    };
    setenv("DDP_TEST_ROUND_STEPS", "4,2,3", 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
