/* The table of strategies, the step that they all share, and the rounds of the strategies that have
 * rounds. */
#include "trainer/member/sync/bucket_cut.h"
#include "trainer/member/sync/strategy.h"

#include "base/clock.h"
#include "base/job/job_sync.h"
#include "base/job/sync_choice.h"
#include "base/mem.h"

#include <math.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

static const struct sync_ops *const strategies[] = {
    [SYNC_ALLREDUCE] = &sync_allreduce_ops,
    [SYNC_AVERAGE] = &sync_average_ops,
    [SYNC_DILOCO] = &sync_diloco_ops,
};

static bool array_wanted(const struct sync_ops *ops, const struct sync_spec *spec, size_t i)
{
    return ops->arrays[i].name && (!ops->wants || ops->wants(spec, i));
}

/* Only strategies with rounds measure. */
static enum err_code room_open(struct sync *s, struct err *e)
{
    struct device *d = s->config.device;
    void *room = NULL;

    if (!s->ops->begin || d->host)
        return ERR_OK;
    if (d->ops->alloc(d, sizeof(*s->squares_room), &room, e))
        return e->code;
    s->squares_room = room;
    return ERR_OK;
}

enum err_code sync_open_as(struct sync **out, const struct sync_ops *ops, struct coll_group *group,
                           const struct sync_config *config, struct err *e)
{
    struct sync *s = xcalloc(1, sizeof(*s));

    s->ops = ops;
    s->group = group;
    s->config = *config;
    s->made_told = true;
    for (size_t i = 0, given = 0; i < SYNC_MAX_ARRAYS; i++)
        if (array_wanted(ops, &config->spec, i)) {
            s->arrays[i] = config->arrays[given++];
            BUG_ON(!s->arrays[i]);
        }
    s->local_steps = ops->local_steps;
    BUG_ON(config->tail > SYNC_MAX_TAIL);
    s->carrier = ops->local_steps ? config->params : config->grads;
    if (!s->config.bucket)
        s->config.bucket = BUCKET_FLOATS;
    if (room_open(s, e) || (ops->open && ops->open(s, e))) {
        sync_close(s);
        return e->code;
    }
    *out = s;
    return ERR_OK;
}

enum err_code sync_open(struct sync **out, struct coll_group *group, const struct sync_config *config,
                        struct err *e)
{
    if ((size_t)config->spec.type >= ARRAY_LEN(strategies))
        return err_set(e, ERR_INVALID_ARGUMENT, "unknown sync type %d", (int)config->spec.type);
    return sync_open_as(out, strategies[config->spec.type], group, config, e);
}

void sync_close(struct sync *s)
{
    if (!s)
        return;
    if (s->ops->close)
        s->ops->close(s);
    if (s->squares_room)
        s->config.device->ops->free(s->config.device, s->squares_room);
    free(s);
}

enum err_code sync_tune(struct sync *s, const struct sync_spec *spec, struct err *e)
{
    if (spec->type == SYNC_AUTO) /* what this generation has chosen stays */
        return ERR_OK;
    if (s->under_way.steps)
        return err_set(e, ERR_FAILED_PRECONDITION, "sync: an exchange is under way");
    if (job_sync_check_change(&s->config.spec, spec, e) ||
        (s->ops->check_tune && s->ops->check_tune(s, spec, e)))
        return e->code;
    s->config.spec = *spec;
    if (s->ops->tuned)
        s->ops->tuned(s);
    return ERR_OK;
}

/* ---- a step */

void sync_at_step(struct sync *s, int64_t step, int64_t steps)
{
    s->next_step = step;
    s->steps = steps;
    if (s->ops->at_step)
        s->ops->at_step(s, step);
}

int64_t sync_divisor(const struct sync *s, int64_t local_samples, int64_t global_samples)
{
    int64_t n = s->local_steps ? local_samples : global_samples;

    return n > 0 ? n : 1;
}

void sync_grads_ready(struct sync *s, size_t offset, size_t count)
{
    BUG_ON(offset > s->config.count || count > s->config.count - offset);
    if (s->ops->grads_ready && count)
        s->ops->grads_ready(s, offset, count);
}

enum err_code sync_before_step(struct sync *s, struct err *e)
{
    return s->ops->before_step ? s->ops->before_step(s, e) : ERR_OK;
}

void sync_test_kill(const struct sync *s, const char *phase)
{
    static atomic_long begun; /* exchanges of this process */
    const char *text = getenv("DDP_TEST_KILL_IN_ROUND");
    long count = *phase == 'b' ? atomic_fetch_add(&begun, 1) + 1 : atomic_load(&begun);
    size_t length = strlen(phase);
    char *rest;

    if (!text || strtol(text, &rest, 10) != s->config.rank || *rest++ != ':')
        return;
    if (!strncmp(rest, phase, length) && rest[length] == ':' && strtol(rest + length + 1, NULL, 10) == count)
        raise(SIGKILL);
}

/* From here on the samples of the round belong to the exchange; later samples belong to the next round. */
enum err_code sync_begin(struct sync *s, struct err *e)
{
    struct coll_stats stats;

    coll_get_stats(s->group, &stats);
    s->made = (struct sync_round){.round = s->rounds + 1,
                                  .steps = s->state.steps,
                                  .samples = s->state.local_samples,
                                  .wait_ns = (uint64_t)s->waited_ns,
                                  .norm = NAN,
                                  .agreement = NAN};
    s->waited_ns = 0;
    s->made_told = true;
    s->bytes_before = stats.bytes;
    sync_test_kill(s, "begin");
    s->failed = s->ops->begin(s, e) != ERR_OK;
    if (s->failed)
        return e->code;
    s->under_way = s->state;
    s->state = (struct sync_state){0};
    return ERR_OK;
}

static float *votes_of(const struct sync *s)
{
    return s->carrier + (s->config.count - s->config.tail);
}

/* An exchange that was joined between two steps has brought votes, over which the next step writes its own. So
 * they are kept for the end of that step. */
static enum err_code votes_keep(struct sync *s, struct err *e)
{
    struct device *d = s->config.device;

    if (!s->config.tail)
        return ERR_OK;
    if (d->host)
        memcpy(s->votes, votes_of(s), s->config.tail * sizeof(float));
    else
        d->ops->download(d, s->votes, votes_of(s), s->config.tail * sizeof(float));
    s->votes_kept = true;
    return d->host ? ERR_OK : d->ops->wait(d, e);
}

static void votes_bring(struct sync *s)
{
    struct device *d = s->config.device;

    if (d->host)
        memcpy(votes_of(s), s->votes, s->config.tail * sizeof(float));
    else
        d->ops->upload(d, votes_of(s), s->votes, s->config.tail * sizeof(float));
    s->voted = true;
    s->votes_kept = false;
}

/* If join fails, the round stays open, the parameters are still this rank's own, and sync_save counts the
 * round's samples. So the next group can continue the same round. */
static enum err_code exchange_join(struct sync *s, struct err *e)
{
    struct coll_stats stats;

    if (!s->under_way.steps)
        return ERR_OK;
    if (s->ops->join(s, e))
        return e->code;
    coll_get_stats(s->group, &stats);
    s->made.bytes = stats.bytes - s->bytes_before;
    s->made_told = false;
    s->rounds++;
    s->under_way = (struct sync_state){0};
    s->voted = true;
    s->votes_kept = false; /* the new ones are in place */
    return ERR_OK;
}

void sync_end_round(struct sync *s, int64_t made, int64_t waited_ns)
{
    s->ending = true;
    s->made_at_end = made;
    s->waited_ns = waited_ns;
}

void sync_add_wait(struct sync *s, int64_t waited_ns)
{
    s->waited_ns += waited_ns;
}

enum err_code sync_gather(struct sync *s, struct err *e)
{
    BUG_ON(s->pieces);
    return s->ops->gather(s, e);
}

bool sync_gathers_beside(const struct sync *s)
{
    return coll_overlaps(s->group) || coll_joined_ns(s->group) >= 0;
}

size_t sync_gather_lanes(const struct sync *s)
{
    const int ends = coll_joined_ns(s->group) >= 0 ? s->config.world_size : coll_nodes(s->group);

    return ends == 2 ? 2 : 1;
}

void sync_gather_pieces(struct sync *s, const struct sync_pieces *pieces)
{
    BUG_ON(s->pieces);
    s->pieces = pieces->count;
    s->ops->gather_pieces(s, pieces);
}

enum err_code sync_await_pieces(struct sync *s, size_t count, struct err *e)
{
    if (!s->pieces)
        return ERR_OK;
    BUG_ON(count > s->pieces);
    if (s->ops->await_pieces(s, count, e))
        return e->code;
    if (count == s->pieces)
        s->pieces = 0;
    return ERR_OK;
}

void sync_hold_round(struct sync *s)
{
    s->held = true;
}

static int64_t round_length(const struct sync *s)
{
    return s->state.least > s->round ? s->state.least : s->round;
}

bool sync_catches_up(const struct sync *s)
{
    return s->state.steps < s->state.least;
}

static bool round_is_over(const struct sync *s)
{
    return s->config.spec.every_ms ? s->ending : s->state.steps >= round_length(s);
}

int64_t sync_steps_after_next(const struct sync *s)
{
    const int64_t left = round_length(s) - s->state.steps - 1;

    return left > 0 ? left : 0;
}

int64_t sync_rounds(const struct sync *s)
{
    return s->rounds;
}

bool sync_round_ends(const struct sync *s)
{
    struct sync after = {.config = s->config, .round = s->round, .ending = s->ending, .state = s->state};

    after.state.steps++;
    return s->local_steps && s->ops->begin && !s->under_way.steps && round_is_over(&after);
}

bool sync_round_due(const struct sync *s)
{
    return s->local_steps && s->ops->begin && !s->under_way.steps && s->state.steps > 0 && round_is_over(s);
}

enum err_code sync_exchange(struct sync *s, struct err *e)
{
    s->ending = false;
    if (sync_begin(s, e))
        return e->code;
    return s->overlap ? ERR_OK : exchange_join(s, e);
}

enum err_code sync_after_step(struct sync *s, int64_t local_samples, int64_t global_samples, struct err *e)
{
    const bool held = s->held;

    s->held = false;
    s->next_step = s->ending ? s->made_at_end : s->next_step + 1;
    s->voted = !s->local_steps; /* the sums of gradients include the votes */
    if (!s->local_steps)
        return ERR_OK;
    s->state.steps++;
    s->state.local_samples += local_samples;
    s->state.global_samples += global_samples;
    if (s->votes_kept)
        votes_bring(s);
    if (s->under_way.steps) /* the exchange may go on for `overlap` steps */
        return s->state.steps >= s->overlap ? exchange_join(s, e) : ERR_OK;
    return s->ops->begin && !held && round_is_over(s) ? sync_exchange(s, e) : ERR_OK;
}

enum err_code sync_join(struct sync *s, struct err *e)
{
    if (sync_await_pieces(s, s->pieces, e))
        return e->code;
    if (!s->under_way.steps)
        return ERR_OK;
    return exchange_join(s, e) ? e->code : votes_keep(s, e);
}

enum err_code sync_settle_once(struct sync *s, struct err *e)
{
    s->idle = s->state.steps == 0;
    s->state.steps += s->idle;
    if (sync_begin(s, e) || sync_join(s, e))
        return e->code;
    s->idle = false;
    return ERR_OK;
}

enum err_code sync_settle(struct sync *s, struct err *e)
{
    if (sync_join(s, e))
        return e->code;
    if (sync_settled(s) || !s->ops->begin)
        return ERR_OK;
    return s->ops->settle ? s->ops->settle(s, e) : sync_settle_once(s, e);
}

enum err_code sync_take_feedback(struct sync *s, const struct sync_state *round, struct err *e)
{
    return s->ops->take_feedback ? s->ops->take_feedback(s, round, e) : ERR_OK;
}

bool sync_settled(const struct sync *s)
{
    return s->state.steps == 0 && s->under_way.steps == 0 && !s->uneven;
}

/* On a GPU, coll_join only puts the sum before what the device is told next, and the sum may still fail. */
enum err_code sync_await_sum(struct sync *s, struct err *e)
{
    struct device *d = s->config.device;
    int64_t began = clock_mono_ns();
    enum err_code rc = coll_join(s->group, e) ? e->code : d->host ? ERR_OK : d->ops->wait(d, e);

    s->made.wait_ns += (uint64_t)(clock_mono_ns() - began);
    return rc;
}

enum err_code sync_not_finite(const struct sync *s, int rank, struct err *e)
{
    if (rank == s->config.rank)
        return err_set(
            e, ERR_OUT_OF_RANGE,
            "parameters are not finite before exchange %lld on rank %d: lower the learning rate or set "
            "clip",
            (long long)s->rounds, rank);
    return err_set(e, ERR_ABORTED, "parameters are not finite before exchange %lld on rank %d",
                   (long long)s->rounds, rank);
}

/* ---- what a round was like */

void sync_put_float(struct sync *s, float *to, float x)
{
    struct device *d = s->config.device;

    if (d->host)
        *to = x;
    else
        d->ops->upload(d, to, &x, sizeof(x));
}

float sync_get_float(struct sync *s, const float *from)
{
    struct device *d = s->config.device;
    float x = 0.0f;

    if (d->host)
        return *from;
    d->ops->download(d, &x, from, sizeof(x));
    return x;
}

void sync_measure(struct sync *s, double squares, double lengths)
{
    s->made.norm = sqrt(squares);
    /* Rounding may make D a little longer than the sum of equal deltas. */
    if (s->config.world_size > 1 && lengths > 0.0)
        s->made.agreement = fmin(s->made.norm / lengths, 1.0);
}

bool sync_take_round(struct sync *s, struct sync_round *out)
{
    if (s->made_told)
        return false;
    *out = s->made;
    s->made_told = true;
    return true;
}

bool sync_agreement_stays_low(int *low, double agreement)
{
    if (*low < 0 || isnan(agreement))
        return false;
    *low = agreement < SYNC_LOW_AGREEMENT ? *low + 1 : 0;
    if (*low < SYNC_LOW_ROUNDS)
        return false;
    *low = -1;
    return true;
}

/* ---- the shared model */

const float *sync_shared(const struct sync *s)
{
    return s->shared && s->local_steps ? s->shared : s->config.params;
}

float *sync_shared_array(struct sync *s)
{
    return s->shared;
}

void sync_start(struct sync *s)
{
    struct device *d = s->config.device;

    s->uneven = false;
    if (s->shared)
        d->ops->copy(d, s->shared, s->config.params, s->config.count * sizeof(float));
    if (s->ops->start)
        s->ops->start(s);
}

/* ---- loss and votes */

float *sync_carrier(const struct sync *s)
{
    return s->carrier;
}

bool sync_voted(const struct sync *s)
{
    return s->voted;
}

bool sync_votes_each_step(const struct sync *s)
{
    return !s->local_steps;
}

/* ---- snapshots */

bool sync_ranks_differ(const struct sync *s)
{
    return s->ops->local_steps && (s->config.world_size > 1 || s->shared);
}

void sync_save(const struct sync *s, struct sync_state *out)
{
    *out = (struct sync_state){
        .steps = s->state.steps + s->under_way.steps,
        .local_samples = s->state.local_samples + s->under_way.local_samples,
        .global_samples = s->state.global_samples + s->under_way.global_samples,
        .rounds = s->rounds,
        .uneven = s->uneven,
        .apart = s->local_steps,
        .shared = s->shared,
        .least = s->state.least,
        .rank = s->config.rank,
        .world_size = s->config.world_size,
    };
    if (s->ops->save)
        s->ops->save(s, out);
}

void sync_load(struct sync *s, const struct sync_state *in)
{
    s->state = *in;
    s->under_way = (struct sync_state){0};
    s->uneven = in->uneven;
    s->rounds = in->rounds;
    if (s->ops->load)
        s->ops->load(s, in);
}

void sync_leave(struct sync *s, struct sync_state *out)
{
    const struct sync_state *sent = s->failed ? &s->state : &s->under_way;

    sync_save(s, out);
    if (!sent->steps)
        return;
    out->sent.begun = true;
    out->sent.steps = sent->steps;
    out->sent.local_samples = sent->local_samples;
    out->sent.global_samples = sent->global_samples;
    if (s->ops->leave)
        s->ops->leave(s, out);
    if (!s->idle)
        return;
    out->sent.steps = 0;
    out->steps--;
    out->turn_steps -= out->turn > 0;
}

void sync_take_exchange(struct sync *s, const struct sync_state *in)
{
    sync_load(s, in);
    s->state.steps -= in->sent.steps;
    s->state.local_samples -= in->sent.local_samples;
    s->state.global_samples -= in->sent.global_samples;
    s->state.least = 0;
    s->under_way = (struct sync_state){.steps = in->sent.steps,
                                       .local_samples = in->sent.local_samples,
                                       .global_samples = in->sent.global_samples};
    s->ops->take(s, in);
    s->under_way = (struct sync_state){0};
    s->rounds++;
}

size_t sync_arrays(const struct sync_spec *spec, struct sync_array out[SYNC_MAX_ARRAYS])
{
    struct sync_spec base;
    size_t count = 0;

    if (spec->type == SYNC_AUTO) {
        sync_choice_base(&base);
        return sync_arrays(&base, out);
    }
    const struct sync_ops *ops = strategies[spec->type];

    for (size_t i = 0; i < SYNC_MAX_ARRAYS; i++)
        if (array_wanted(ops, spec, i))
            out[count++] = ops->arrays[i];
    return count;
}

bool sync_wants_pairs(const struct sync_spec *spec, int world_size)
{
    const struct sync_ops *ops = strategies[spec->type];

    return ops->wants_pairs && ops->wants_pairs(spec, world_size);
}
