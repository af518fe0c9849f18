#include "trainer/rebalance.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/job/balance.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/worker/metric.h"
#include "trainer/parameters.h"
#include "trainer/rank_number.h"

#define FIRST_STEPS 4      /* of a generation, before the first decision */
#define BETWEEN_STEPS 10   /* from one decision to the next, at least */
#define TIMED_STEPS 8      /* before a decision, on a device that computes asynchronously */
#define LEAST_NS 500000000 /* of computing, of the rank that computed longest: fewer would measure noise */
#define NEEDED_MOST 64
#define NEEDED_FIRST 2 /* in a row, before portions that stand are changed */

/* A step of fewer samples than ranks, or of very many, is divided alike. */
static bool rebalance_is_on(const struct trainer *t)
{
    const struct sampler *s = &t->engine.sampler;
    return t->spec->balance == BALANCE_SPEED && s->world_size > 1 && s->global >= s->world_size &&
           s->global <= BALANCE_SAMPLES_MOST;
}

/* ---- measuring */

enum err_code rebalance_step_begin(struct trainer *t, struct err *e)
{
    struct rebalance *b = &t->rebalance;
    const int64_t step = t->engine.step;
    /* The first step of a generation touches memory for the first time. */
    b->timed = rebalance_is_on(t) && step > b->began_step &&
               (t->engine.device->host || b->check_step - step <= TIMED_STEPS);
    b->holds = b->timed && !t->engine.device->host;
    /* Parameters that still arrive would be counted as computing: such a device waits for them within its own work. */
    if (b->holds && (parameters_await(t, e) || t->engine.device->ops->wait(t->engine.device, e)))
        return e->code;
    b->began_ns = clock_mono_ns();
    b->exposed_ns = t->interval.exposed_ns;
    return ERR_OK;
}

/* How long this rank has computed in the step, without the time in which it waited for others. */
static int64_t computed_ns(const struct trainer *t)
{
    const struct rebalance *b = &t->rebalance;
    return clock_mono_ns() - b->began_ns - (t->interval.exposed_ns - b->exposed_ns);
}

void rebalance_waited(struct trainer *t, int64_t ns)
{
    t->rebalance.began_ns += ns;
}

bool rebalance_hold_piece(struct trainer *t, size_t offset, size_t count)
{
    struct rebalance *b = &t->rebalance;
    if (!b->holds)
        return false;
    if (b->held_count == b->held_room) {
        b->held_room = b->held_room ? 2 * b->held_room : 64;
        b->held = xrealloc(b->held, b->held_room * sizeof(*b->held));
    }
    b->held[b->held_count++] = (struct rebalance_piece){offset, count};
    return true;
}

enum err_code rebalance_gradients_done(struct trainer *t, struct err *e)
{
    struct rebalance *b = &t->rebalance;
    if (b->holds && t->engine.device->ops->wait(t->engine.device, e))
        return e->code;
    b->gradients_ns = computed_ns(t);
    for (size_t i = 0; i < b->held_count; i++)
        sync_grads_ready(t->formation.sync, b->held[i].offset, b->held[i].count);
    b->held_count = 0;
    return ERR_OK;
}

void rebalance_step_end(struct trainer *t, int64_t local_samples)
{
    struct rebalance *b = &t->rebalance;
    if (!b->timed)
        return;
    b->work.steps++;
    b->work.samples += local_samples;
    b->work.samples_ns += b->gradients_ns;
    if (!b->holds) /* else the update is still to be computed */
        b->work.updates_ns += computed_ns(t) - b->gradients_ns;
}

/* ---- deciding */

/* For tests: DDP_TEST_SAMPLE_NS="1000,3000" says how long a sample takes on each rank, whatever the clock says. */
static int64_t fixed_ns(int rank)
{
    return rank_number("DDP_TEST_SAMPLE_NS", rank);
}

static int64_t mean_ns(int64_t sum_ns, int64_t count, int64_t least)
{
    const int64_t mean = count > 0 ? sum_ns / count : 0;
    return mean < least ? least : mean > BALANCE_NS_MOST ? BALANCE_NS_MOST : mean;
}

/* Fills in the speeds. all: by rank. Returns false if too little was measured. */
static bool speeds_take(struct rebalance *b, const struct rebalance_work *all, int world)
{
    int64_t longest = 0;
    for (int r = 0; r < world; r++) {
        if (all[r].samples < 1) /* short steps may leave a rank without samples */
            return false;
        longest = all[r].samples_ns > longest ? all[r].samples_ns : longest;
    }
    if (longest < LEAST_NS && !fixed_ns(0))
        return false;
    if (!b->speeds)
        b->speeds = xcalloc((size_t)world, sizeof(*b->speeds));
    for (int r = 0; r < world; r++) {
        b->speeds[r].sample_ns = mean_ns(all[r].samples_ns, all[r].samples, 1);
        b->speeds[r].update_ns = mean_ns(all[r].updates_ns, all[r].steps, 0);
        if (fixed_ns(r))
            b->speeds[r] = (struct balance_speed){.sample_ns = fixed_ns(r)};
    }
    return true;
}

/* Rank 0 says how the samples are divided. */
static void portions_log(const struct trainer *t)
{
    const struct formation *f = &t->formation;
    CLEANUP(buf_release) struct buf text = {0};
    struct balance_rank *ranks;
    if (f->rank != 0)
        return;
    ranks = xcalloc((size_t)f->world_size, sizeof(*ranks));
    for (int r = 0; r < f->world_size; r++) {
        const char *node = f->info.peers[r].node;
        ranks[r] =
            (struct balance_rank){r, node ? node : "", engine_portion(&t->engine, r, false),
                                  t->rebalance.speeds ? (double)t->rebalance.speeds[r].sample_ns / 1e6 : 0.0};
    }
    balance_print(&text, ranks, (size_t)f->world_size);
    log_info("balanced", "step=%lld what=%s", (long long)t->engine.step, LOG_Q(text.data));
    free(ranks);
}

static bool portions_equal(const struct engine *n, const int64_t *portions)
{
    for (int r = 0; r < n->sampler.world_size; r++)
        if (portions[r] != engine_portion(n, r, true))
            return false;
    return true;
}

static void portions_take(struct trainer *t, const int64_t *portions)
{
    struct engine *n = &t->engine;
    /* Without portions, positions are dealt as they are without this key, so the bits are the same as well. */
    engine_take_portions(n, portions_equal(n, portions) ? NULL : portions);
    t->rebalance.uneven = 0;
    portions_log(t);
}

/* Whether the last change has made the slowest rank slower. A container with a limit of CPU time computes a few samples at
 * full speed and stands still in many, so what is measured for few says nothing about many. */
static bool change_was_wrong(struct rebalance *b, int64_t now_ns)
{
    return b->before && now_ns > b->before_ns;
}

static void portions_decide(struct trainer *t)
{
    struct engine *n = &t->engine;
    struct rebalance *b = &t->rebalance;
    const int world = n->sampler.world_size;
    int64_t *now = xcalloc((size_t)world, sizeof(*now)), *best = xcalloc((size_t)world, sizeof(*best));
    for (int r = 0; r < world; r++)
        now[r] = engine_portion(n, r, false);
    const int64_t now_ns = balance_slowest_ns(b->speeds, world, now);
    const bool wrong = change_was_wrong(b, now_ns);
    if (wrong) {
        portions_take(t, b->before);
        if (b->needed < NEEDED_MOST)
            b->needed *= 2;
    }
    free(b->before);
    b->before = NULL;
    balance_divide(b->speeds, world, n->sampler.global, best);
    b->uneven = !wrong && balance_is_faster(b->speeds, world, now, best) ? b->uneven + 1 : 0;
    if (b->uneven >= (b->stand ? b->needed : 1)) {
        portions_take(t, best);
        b->before = steal(now);
        b->before_ns = now_ns;
    }
    b->stand = true;
    free(now);
    free(best);
}

/* The next step after which ranks gather their times, which is the same on all of them. Until something is decided, the
 * distance doubles, since nobody knows how long steps take. */
static void check_plan(struct trainer *t)
{
    struct rebalance *b = &t->rebalance;
    const int64_t step = t->engine.step, every = t->spec->log_every;
    if (b->speeds) {
        b->check_step = (step + BETWEEN_STEPS + every - 1) / every * every;
        return;
    }
    int64_t passed = step - b->began_step;
    b->check_step = step + (passed > FIRST_STEPS ? passed : FIRST_STEPS);
}

enum err_code rebalance_deal(struct trainer *t, struct err *e)
{
    struct rebalance *b = &t->rebalance;
    const int world = t->formation.world_size;
    if (!rebalance_is_on(t) || t->engine.step < b->check_step)
        return ERR_OK;
    if (parameters_await(t, e))
        return e->code;
    struct rebalance_work *all = xcalloc((size_t)world, sizeof(*all));
    enum err_code code = coll_allgather(t->formation.group, &b->work, sizeof(b->work), all, e);
    if (!code && speeds_take(b, all, world)) {
        portions_decide(t);
        b->work = (struct rebalance_work){0};
    }
    free(all);
    check_plan(t);
    return code;
}

/* ---- the generation's begin and end */

void rebalance_begin(struct trainer *t)
{
    rebalance_end(t);
    t->rebalance = (struct rebalance){
        .began_step = t->engine.step,
        .check_step = t->engine.step + FIRST_STEPS,
        .stand = t->engine.sampler.bounds != NULL,
        .needed = NEEDED_FIRST,
    };
    if (t->rebalance.stand)
        portions_log(t);
}

void rebalance_end(struct trainer *t)
{
    free(t->rebalance.speeds);
    free(t->rebalance.before);
    free(t->rebalance.held);
    t->rebalance = (struct rebalance){0};
}

void rebalance_report(const struct trainer *t, struct metric_line *l)
{
    const struct rebalance *b = &t->rebalance;
    const bool is_on = rebalance_is_on(t);
    if (t->spec->balance != BALANCE_SPEED)
        return;
    /* A rank that goes on alone takes back what it said of its group: a report may arrive after the group has ended. */
    metric_line_add(l, "balance_samples",
                    is_on ? (double)engine_portion(&t->engine, t->formation.rank, false) : 0);
    if (b->speeds || !is_on)
        metric_line_add(l, "balance_ms", is_on ? (double)b->speeds[t->formation.rank].sample_ns / 1e6 : 0);
}
