/* DiLoCo (Douillard et al., arXiv 2311.08105): each rank makes H steps of its own optimizer; the ranks' mean change
 * of the parameters is then the gradient of an outer optimizer, SGD with Nesterov momentum (the form of PyTorch):
 *
 *     x = (g - theta) + e           g: the shared model; theta: this rank's parameters; e: error feedback
 *     q, e = what the wire's format makes of x, and x - q
 *     D = sum over ranks of (n_m / n) q_m          n_m: samples of the round; delta.h says how it is made
 *     u = mu u + D;  g = g - eta (D + mu u);  theta = g          (mu changes: see momentum_at)
 *
 * Fragments (Streaming DiLoCo, arXiv 2501.18512): fragment f of F, some tensors in a row, makes its round from step
 * f H / F on. Overlap: D is applied some steps after x was taken, and theta = mix theta + (1 - mix) g then. The
 * first `warm` steps all-reduce gradients instead of making rounds.
 *
 * Failure: g, u, e and theta change only after the exchange has succeeded. Without overlap, a rank that repeats the
 * exchange in another group sends the same codes; with overlap, the round has become longer by the steps in between.
 * If its rank or the world size changed, the slices of e that it owned before and owns now are zeroed first. A run that continues
 * with other fragments drops e. */
#include "trainer/member/sync/average.h"
#include "trainer/member/sync/delta.h"

#include "base/job/job_sync.h"
#include "base/mem.h"

#include <math.h>
#include <stdlib.h>

enum { SHARED = SYNC_SHARED, MOMENTUM, FEEDBACK, SENT };

struct fragment {
    struct sync_tensor *tensors; /* some of diloco's, in a row */
    size_t count;
    int64_t begin, end;       /* steps of a round of all fragments; sent at its end */
    struct sync_samples seen; /* since its last exchange, up to the last exchange of any fragment */
};

struct diloco {
    struct delta *delta;
    struct sync *warm; /* all-reduce; NULL: there are no such steps */
    struct sync_tensor *tensors;
    struct fragment *fragments;
    int64_t turn;      /* the fragment that is sent next */
    int64_t unsettled; /* fragments that diloco_settle has to send; above 0: theta = g, whatever mix says */
};

static bool diloco_wants(const struct sync_spec *c, size_t array)
{
    switch (array) {
    case MOMENTUM:
        return c->outer_momentum > 0.0;
    case FEEDBACK:
        return c->wire != WIRE_FP32;
    case SENT:
        return c->overlap > 0;
    default:
        return true;
    }
}

/* ---- fragments */

/* The tensor whose middle lies behind f/F of all floats begins fragment f, so fragments are of similar size. Returns whether
 * each has a tensor. */
static bool fragments_deal(struct diloco *d, size_t tensor_count, int64_t fragments, size_t all)
{
    size_t next = 0, seen = 0;
    bool filled = true;

    for (int64_t f = 0; f < fragments; f++) {
        struct fragment *at = &d->fragments[f];
        double until = (double)all * (double)(f + 1) / (double)fragments;

        at->tensors = d->tensors + next;
        at->count = 0;
        for (; next < tensor_count; next++, at->count++) {
            double middle = (double)seen + (double)d->tensors[next].count / 2;

            if (f + 1 < fragments && middle > until)
                break;
            seen += d->tensors[next].count;
        }
        filled &= at->count > 0;
    }
    return filled;
}

static void fragments_time(struct diloco *d, const struct sync_spec *c)
{
    for (int64_t f = 0; f < c->fragments; f++) {
        d->fragments[f].begin = c->every * f / c->fragments;
        d->fragments[f].end = c->every * (f + 1) / c->fragments;
    }
}

static enum err_code fragments_open(struct sync *s, struct diloco *d, struct err *e)
{
    const struct sync_config *c = &s->config;
    int64_t fragments = c->spec.fragments;
    size_t count = c->tensors ? c->tensor_count : 1, all = 0;

    d->tensors = xcalloc(count, sizeof(*d->tensors));
    d->tensors[0] = (struct sync_tensor){0, c->count - c->tail};
    for (size_t i = 0; c->tensors && i < count; i++)
        d->tensors[i] = c->tensors[i];
    for (size_t i = 0; i < count; i++)
        all += d->tensors[i].count;
    d->fragments = xcalloc((size_t)fragments, sizeof(*d->fragments));
    if (!fragments_deal(d, count, fragments, all)) {
        int64_t most = fragments - 1;

        while (!fragments_deal(d, count, most, all))
            most--;
        return err_set(
            e, ERR_INVALID_ARGUMENT,
            "sync.fragments is %lld, but the model's %zu tensors can be divided into %lld parts at most: "
            "set sync.fragments to %lld",
            (long long)fragments, count, (long long)most, (long long)most);
    }
    fragments_time(d, &c->spec);
    return ERR_OK;
}

static void turn_set(struct sync *s, struct diloco *d, int64_t turn)
{
    d->turn = turn % s->config.spec.fragments;
    s->round = d->fragments[d->turn].end - d->fragments[d->turn].begin;
}

/* ---- opening */

static enum err_code rounds_check(const struct sync_spec *c, struct err *e)
{
    if (c->every < 1 || c->fragments < 1 || c->fragments > SYNC_FRAGMENTS_MOST ||
        c->overlap >= c->every / c->fragments)
        return err_set(
            e, ERR_INVALID_ARGUMENT,
            "sync: expected every of at least 1, fragments from 1 to %d, and overlap below every / "
            "fragments",
            SYNC_FRAGMENTS_MOST);
    return ERR_OK;
}

/* `wire` is the format of rounds. These steps send floats. */
static enum err_code warm_open(const struct sync *s, struct diloco *d, struct err *e)
{
    struct sync_config config = s->config;

    config.spec.wire = WIRE_FP32;
    return sync_open_as(&d->warm, &sync_allreduce_ops, s->group, &config, e);
}

static enum err_code diloco_open(struct sync *s, struct err *e)
{
    const struct sync_spec *c = &s->config.spec;
    struct diloco *d = s->own = xcalloc(1, sizeof(*d));

    if (rounds_check(c, e))
        return e->code;
    s->shared = job_sync_is_mean(c) && s->config.world_size == 1 ? NULL : s->arrays[SHARED];
    s->overlap = c->overlap;
    if (fragments_open(s, d, e) || (c->warm && warm_open(s, d, e)))
        return e->code;
    turn_set(s, d, 0);
    d->delta = delta_open(s);
    return ERR_OK;
}

static void diloco_close(struct sync *s)
{
    struct diloco *d = s->own;

    if (!d)
        return;
    delta_close(d->delta);
    sync_close(d->warm);
    free(d->fragments);
    free(d->tensors);
    free(d);
}

/* ---- other values during the run */

static enum err_code diloco_check_tune(const struct sync *s, const struct sync_spec *to, struct err *e)
{
    /* After the first round each rank has moments of its own, with which they cannot all-reduce. */
    if (to->warm > s->config.spec.warm && to->warm > s->next_step && s->local_steps)
        return err_set(e, ERR_FAILED_PRECONDITION,
                       "'sync.warm' cannot become %lld: the steps of all-reduce ended at step %lld",
                       (long long)to->warm, (long long)s->config.spec.warm);
    return rounds_check(to, e);
}

static void diloco_tuned(struct sync *s)
{
    struct diloco *d = s->own;

    fragments_time(d, &s->config.spec);
    turn_set(s, d, d->turn);
    s->overlap = s->config.spec.overlap;
}

/* ---- steps that sum gradients */

static void diloco_at_step(struct sync *s, int64_t step)
{
    bool warm = step < s->config.spec.warm, before = !s->local_steps;

    s->local_steps = !warm;
    s->carrier = warm ? s->config.grads : s->config.params;
    s->uneven &= !warm;
    if (before && !warm)
        sync_start(s);
}

static void diloco_grads_ready(struct sync *s, size_t offset, size_t count)
{
    struct diloco *d = s->own;

    if (!s->local_steps)
        sync_grads_ready(d->warm, offset, count);
}

static enum err_code diloco_before_step(struct sync *s, struct err *e)
{
    struct diloco *d = s->own;

    return s->local_steps ? ERR_OK : sync_before_step(d->warm, e);
}

/* ---- rounds */

static void feedback_drop(struct sync *s)
{
    struct device *device = s->config.device;

    device->ops->zero(device, s->arrays[FEEDBACK], s->config.count * sizeof(float));
}

static void diloco_start(struct sync *s)
{
    struct diloco *d = s->own;

    if (s->arrays[FEEDBACK])
        feedback_drop(s);
    for (int64_t f = 0; f < s->config.spec.fragments; f++)
        d->fragments[f].seen = (struct sync_samples){0};
    d->unsettled = 0;
    turn_set(s, d, 0);
}

/* Where x is made. Gradients are needed again before a later join. */
static float *delta_array(const struct sync *s)
{
    return s->config.spec.overlap ? s->arrays[SENT] : s->config.grads;
}

static void fragment_range(const struct fragment *f, size_t *at, size_t *count)
{
    const struct sync_tensor *last = &f->tensors[f->count - 1];

    *at = f->tensors[0].offset;
    *count = last->offset + last->count - *at;
}

static enum err_code diloco_begin(struct sync *s, struct err *e)
{
    struct device *device = s->config.device;
    const struct device_ops *ops = device->ops;
    struct diloco *d = s->own;
    const struct fragment *f = &d->fragments[d->turn];
    float *x = delta_array(s);
    size_t at, count;

    if (job_sync_is_mean(&s->config.spec))
        return average_begin(s, e);
    fragment_range(f, &at, &count);
    /* x = (g - theta) + e */
    ops->copy(device, x + at, s->config.params + at, count * sizeof(float));
    ops->scale(device, x + at, count, -1.0f);
    ops->add(device, x + at, s->shared + at, count);
    if (s->arrays[FEEDBACK])
        ops->add(device, x + at, s->arrays[FEEDBACK] + at, count);
    struct delta_send send = {
        .x = x,
        .error = s->arrays[FEEDBACK],
        .shared = s->shared,
        .tail = s->config.params + (s->config.count - s->config.tail),
        .tensors = f->tensors,
        .tensor_count = f->count,
        .round = s->rounds,
        .local_samples = f->seen.local + s->state.local_samples,
        .global_samples = f->seen.global + s->state.global_samples,
        .progress = s->next_step < s->steps ? (double)s->next_step / (double)s->steps : 1.0,
    };
    return delta_start(d->delta, &send, e);
}

/* theta from g; room: floats that are lost. */
static void theta_take(struct sync *s, const struct fragment *f, float *room)
{
    struct device *device = s->config.device;
    const struct device_ops *ops = device->ops;
    const struct sync_spec *c = &s->config.spec;
    const struct diloco *d = s->own;
    size_t at, count;

    fragment_range(f, &at, &count);
    const float *g = s->shared + at;
    float *theta = s->config.params + at;
    size_t bytes = count * sizeof(float);

    /* Steps that were made since x was taken are kept by the part `mix`, except at the run's end. */
    if (!c->overlap || d->unsettled) {
        ops->copy(device, theta, g, bytes);
        return;
    }
    ops->scale(device, theta, count, (float)c->mix);
    ops->copy(device, room, g, bytes);
    ops->scale(device, room, count, (float)(1.0 - c->mix));
    ops->add(device, theta, room, count);
}

/* mu of an exchange. With a constant mu, a steady D adds up to 1 / (1 - mu) times itself: the momentum's gain. A high gain early
 * in the run adds up changes of a model that is no longer there, and one at the end carries g past where it would settle. So the gain
 * rises from 1 to its full value in the first quarter of the run, keeps it in the second, and falls back to 1 in the second half. */
static double momentum_at(const struct sync_spec *c, double progress)
{
    double height = fmin(fmin(4.0 * progress, 2.0 * (1.0 - progress)), 1.0);

    if (c->outer_schedule == OUTER_CONSTANT)
        return c->outer_momentum;
    return 1.0 - 1.0 / (1.0 + height * (1.0 / (1.0 - c->outer_momentum) - 1.0));
}

/* g and u from D, which is lost; theta from g. */
static void outer_step(struct sync *s, const struct fragment *f)
{
    struct device *device = s->config.device;
    const struct device_ops *ops = device->ops;
    const struct sync_spec *c = &s->config.spec;
    size_t at, count;

    fragment_range(f, &at, &count);
    float *sum = delta_array(s) + at, *g = s->shared + at;
    size_t bytes = count * sizeof(float);

    if (s->arrays[MOMENTUM]) {
        const struct diloco *d = s->own;
        const double mu = momentum_at(c, delta_progress(d->delta));
        float *u = s->arrays[MOMENTUM] + at;

        /* u = mu u + D; g -= eta D here, and eta mu u below */
        ops->scale(device, u, count, (float)mu);
        ops->add(device, u, sum, count);
        ops->scale(device, sum, count, (float)-c->outer_lr);
        ops->add(device, g, sum, count);
        ops->copy(device, sum, u, bytes);
        ops->scale(device, sum, count, (float)(-c->outer_lr * mu));
    } else {
        ops->scale(device, sum, count, (float)-c->outer_lr);
    }
    ops->add(device, g, sum, count);
    theta_take(s, f, sum);
}

/* The fragment's samples are spent, those of the others wait for their turn. */
static void turn_end(struct sync *s, struct diloco *d)
{
    for (int64_t f = 0; f < s->config.spec.fragments; f++) {
        d->fragments[f].seen.local += s->under_way.local_samples;
        d->fragments[f].seen.global += s->under_way.global_samples;
    }
    d->fragments[d->turn].seen = (struct sync_samples){0};
    turn_set(s, d, d->turn + 1);
    s->uneven = s->config.spec.fragments > 1 || s->config.spec.overlap;
    if (d->unsettled)
        s->uneven = --d->unsettled > 0;
}

static enum err_code diloco_join(struct sync *s, struct err *e)
{
    struct diloco *d = s->own;
    const struct fragment *f = &d->fragments[d->turn];

    if (job_sync_is_mean(&s->config.spec)) {
        d->unsettled = 0;
        return average_join(s, e);
    }
    if (delta_wait(d->delta, e) || sync_await_sum(s, e))
        return e->code;
    sync_test_kill(s, "commit");
    delta_sum(d->delta);
    outer_step(s, f);
    turn_end(s, d);
    return ERR_OK;
}

/* e of fragments, if the rank owns other slices than in the group where it got e. */
static void slices_leave(struct sync *s, const struct sync_state *in, const struct fragment *fragments,
                         int64_t count)
{
    const struct sync_config *c = &s->config;
    const struct diloco *d = s->own;
    bool moved = in->world_size && (in->world_size != c->world_size || in->rank != c->rank);

    for (int64_t f = 0; moved && s->arrays[FEEDBACK] && f < count; f++)
        delta_drop_slices(d->delta, s->arrays[FEEDBACK], fragments[f].tensors, fragments[f].count, in->rank,
                          in->world_size);
}

/* Each fragment is cut into slices. So with other fragments nearly all floats change their owner, and e its meaning. */
static bool fragments_differ(const struct sync *s, const struct sync_state *in)
{
    return in->fragments && in->fragments != s->config.spec.fragments &&
           delta_sliced(&s->config.spec, in->world_size);
}

/* The exchange counts on other ranks: their g and u are here, and x became e when the group ended. */
static void diloco_take(struct sync *s, const struct sync_state *in)
{
    struct device *device = s->config.device;
    struct diloco *d = s->own;
    const struct fragment *f = &d->fragments[d->turn];
    float *kept = delta_array(s);
    size_t at, count;

    if (job_sync_is_mean(&s->config.spec)) {
        d->unsettled = 0;
        average_take(s, in);
        return;
    }
    fragment_range(f, &at, &count);
    if (s->arrays[FEEDBACK] && in->sent.kept)
        device->ops->copy(device, s->arrays[FEEDBACK] + at, kept + at, count * sizeof(float));
    else if (s->arrays[FEEDBACK])
        device->ops->zero(device, s->arrays[FEEDBACK] + at, count * sizeof(float));
    slices_leave(s, in, f, 1);
    theta_take(s, f, kept + at);
    turn_end(s, d);
}

static void diloco_leave(struct sync *s, struct sync_state *out)
{
    struct diloco *d = s->own;

    if (!job_sync_is_mean(&s->config.spec) && s->arrays[FEEDBACK])
        out->sent.kept = delta_keep(d->delta);
}

/* Each fragment in turn; all that the ranks' own parameters have beyond the shared model is taken in. A group that is lost
 * meanwhile leaves the other fragments to the next one. */
static enum err_code diloco_settle(struct sync *s, struct err *e)
{
    struct diloco *d = s->own;

    if (!d->unsettled)
        d->unsettled = s->config.spec.fragments;
    while (d->unsettled)
        if (sync_settle_once(s, e))
            return e->code;
    return ERR_OK;
}

/* theta -= E on all ranks, so D grows by E: the sum of what each rank would have sent of its e. */
static enum err_code diloco_take_feedback(struct sync *s, const struct sync_state *round, struct err *e)
{
    struct device *device = s->config.device;
    const struct device_ops *ops = device->ops;
    const struct diloco *d = s->own;
    const size_t count = s->config.count - s->config.tail;
    float *lost = s->arrays[FEEDBACK];

    if (!lost)
        return ERR_OK;
    for (int64_t f = 0; f < s->config.spec.fragments; f++)
        delta_weigh_error(d->delta, lost, d->fragments[f].tensors, d->fragments[f].count,
                          round->seen[f].local + round->local_samples,
                          round->seen[f].global + round->global_samples);
    if (coll_allreduce(s->group, lost, count, e))
        return e->code;
    ops->scale(device, lost, count, -1.0f);
    ops->add(device, s->config.params, lost, count);
    ops->zero(device, lost, count * sizeof(float));
    return ERR_OK;
}

/* ---- the position in a round: steps since the first fragment's round began */

static void diloco_save(const struct sync *s, struct sync_state *out)
{
    const struct diloco *d = s->own;

    out->turn = d->turn + 1;
    out->turn_steps = out->steps;
    out->steps += d->fragments[d->turn].begin;
    out->unsettled = d->unsettled;
    out->fragments = s->config.spec.fragments;
    for (int64_t f = 0; f < s->config.spec.fragments; f++)
        out->seen[f] = d->fragments[f].seen;
}

static void diloco_load(struct sync *s, const struct sync_state *in)
{
    struct diloco *d = s->own;
    int64_t turn = in->turn ? in->turn - 1 : 0;

    while (!in->turn && turn + 1 < s->config.spec.fragments && d->fragments[turn].end <= in->steps)
        turn++;
    turn_set(s, d, turn);
    d->unsettled = in->unsettled;
    for (int64_t f = 0; f < s->config.spec.fragments; f++)
        d->fragments[f].seen = in->seen[f];
    /* `every` may be another one than that which in->steps was counted by. */
    s->state.steps = in->turn ? in->turn_steps : in->steps - d->fragments[d->turn].begin;
    if (s->arrays[FEEDBACK] && fragments_differ(s, in))
        feedback_drop(s);
    else
        slices_leave(s, in, d->fragments, s->config.spec.fragments);
    /* Snapshots of earlier versions do not record `uneven`, so it is derived here. */
    if (!in->turn)
        s->uneven |= s->config.spec.fragments > 1 || s->config.spec.overlap;
}

const struct sync_ops sync_diloco_ops = {
    .name = "diloco",
    .local_steps = true,
    .arrays =
        {
            [SHARED] = {"shared"},
            [MOMENTUM] = {"outer_momentum", .kept = true},
            [FEEDBACK] = {"feedback", .kept = true, .own = true},
            [SENT] = {"sent"},
        },
    .wants = diloco_wants,
    .wants_pairs = delta_sliced,
    .open = diloco_open,
    .close = diloco_close,
    .check_tune = diloco_check_tune,
    .tuned = diloco_tuned,
    .at_step = diloco_at_step,
    .grads_ready = diloco_grads_ready,
    .before_step = diloco_before_step,
    .start = diloco_start,
    .begin = diloco_begin,
    .join = diloco_join,
    .settle = diloco_settle,
    .take_feedback = diloco_take_feedback,
    .leave = diloco_leave,
    .take = diloco_take,
    .save = diloco_save,
    .load = diloco_load,
};
