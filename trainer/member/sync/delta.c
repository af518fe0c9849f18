#include "trainer/member/sync/delta.h"

#include "base/buf.h"
#include "base/clock.h"
#include "base/digest.h"
#include "base/mem.h"
#include "trainer/member/sync/slices.h"
#include "trainer/member/sync/squares.h"
#include "trainer/member/sync/wire.h"

#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#define SLICED_FROM                                                                                          \
    3 /* ranks. With two, a gather sends as little as the exchange of slices, and rounds once */

/* What each rank says before it sends codes. */
struct delta_word {
    uint64_t digest; /* of the shared model */
    int64_t round, samples;
    uint64_t finite;
    double squares; /* sum of squares of what is sent, decoded */
    double progress;
    float tail[SYNC_MAX_TAIL];
};

struct delta {
    struct sync *sync;
    const struct sync_config *config;
    struct coll_group *group;
    struct delta_send send;
    struct delta_word mine, *words; /* by rank */
    float *weights;                 /* by rank */
    size_t lo, hi;                  /* the floats from the first tensor to the last */
    struct slices slices;           /* one slice where codes are not sent, or gathered */
    uint8_t *memory;                /* for all of the following */
    size_t memory_room;
    uint8_t *codes;                  /* this rank's */
    uint8_t *gathered;               /* all ranks', this one's included; NULL: slices are exchanged */
    uint8_t *heard;                  /* all ranks' codes of this rank's slice */
    uint8_t *answers;                /* the codes of all owners' sums */
    size_t code_bytes, answer_bytes; /* of one rank */
    float *own;      /* in this rank's slice: w (x - e) + e; then S; then what the codes of S lose */
    size_t own_room; /* floats */
    float *room[2];  /* windows of device memory; NULL: it is the host's */
    bool answered;   /* the others may have all that they need from this rank */
    bool threaded;
    pthread_t thread;
    struct err error; /* of the thread */
};

struct delta *delta_open(struct sync *s)
{
    struct delta *d = xcalloc(1, sizeof(*d));
    const struct sync_config *config = &s->config;

    d->sync = s;
    d->config = config;
    d->group = s->group;
    d->words = xcalloc((size_t)config->world_size, sizeof(*d->words));
    d->weights = xcalloc((size_t)config->world_size, sizeof(*d->weights));
    for (int i = 0; i < 2 && !config->device->host; i++)
        d->room[i] = xcalloc(SLICES_WINDOW, sizeof(float));
    return d;
}

static void delta_finish_thread(struct delta *d)
{
    if (d->threaded)
        pthread_join(d->thread, NULL);
    d->threaded = false;
}

void delta_close(struct delta *d)
{
    if (!d)
        return;
    delta_finish_thread(d);
    free(d->words);
    free(d->weights);
    free(d->memory);
    free(d->own);
    slices_release(&d->slices);
    free(d->room[0]);
    free(d->room[1]);
    free(d);
}

/* ---- windows, in the host's memory */

static float *window_read(struct delta *d, int room, float *from, size_t count)
{
    struct device *device = d->config->device;

    if (device->host)
        return from;
    device->ops->download(device, d->room[room], from, count * sizeof(float));
    return d->room[room];
}

static void window_write(struct delta *d, float *to, const float *from, size_t count)
{
    struct device *device = d->config->device;

    if (!device->host)
        device->ops->upload(device, to, from, count * sizeof(float));
    else if (to != from)
        memcpy(to, from, count * sizeof(float));
}

/* ---- what this rank sends */

static bool sends_codes(const struct delta *d)
{
    return d->config->spec.wire != WIRE_FP32;
}

bool delta_sliced(const struct sync_spec *spec, int world_size)
{
    return spec->wire != WIRE_FP32 && world_size >= SLICED_FROM;
}

/* If nobody saw a sample, all weigh the same. */
static float sample_weight(const struct delta *d, int64_t samples, int64_t all)
{
    return (float)(all > 0 ? (double)samples / (double)all : 1.0 / d->config->world_size);
}

static bool window_is_owned(const struct delta *d, size_t i)
{
    int rank = d->config->rank;

    return d->slices.owners > 1 && i >= d->slices.first[rank] && i < d->slices.first[rank + 1];
}

/* This rank's codes of one window. Codes of values that are not finite are not written. */
static bool window_encode(struct delta *d, const struct slices_window *w, const float *x)
{
    enum wire_type wire = d->config->spec.wire;

    if (!wire_encode(wire, x, w->count, d->codes + w->code))
        return false;
    d->mine.squares += wire_squares(wire, d->codes + w->code, w->count);
    return true;
}

/* What this rank adds to the sum of its own slice. */
static bool window_keep(struct delta *d, const struct slices_window *w, const float *x, float *own)
{
    float weight = sample_weight(d, d->send.local_samples, d->send.global_samples);
    const float *e = window_read(d, 1, d->send.error + w->at, w->count);

    d->mine.squares += squares_of_difference(x, e, w->count);
    for (size_t i = 0; i < w->count; i++)
        own[i] = weight * (x[i] - e[i]) + e[i];
    return floats_finite(x, w->count);
}

/* This rank's codes, its part of the sum of its slice, and its word. */
static enum err_code delta_prepare(struct delta *d, struct err *e)
{
    struct device *device = d->config->device;
    float *shared = (float *)(uintptr_t)d->send.shared, *own = d->own; /* shared: read only */
    bool finite = true;

    d->mine = (struct delta_word){
        .round = d->send.round, .samples = d->send.local_samples, .progress = d->send.progress};
    for (size_t i = 0; i < d->slices.count; i++) {
        const struct slices_window *w = &d->slices.windows[i];
        const float *x = window_read(d, 0, d->send.x + w->at, w->count);

        if (!sends_codes(d)) {
            finite &= floats_finite(x, w->count);
            d->mine.squares += squares_sum(x, w->count);
        } else if (window_is_owned(d, i)) {
            finite &= window_keep(d, w, x, own);
            own += w->count;
        } else {
            finite &= window_encode(d, w, x);
        }
        x = window_read(d, 0, shared + w->at, w->count);
        d->mine.digest = digest64(d->mine.digest, x, w->count * sizeof(float));
    }
    memcpy(d->mine.tail, window_read(d, 0, d->send.tail, d->config->tail), d->config->tail * sizeof(float));
    d->mine.finite = finite;
    /* Downloads of a device that failed leave zeros, which must not be sent. */
    return device->ops->wait(device, e);
}

/* ---- what all ranks say */

static bool words_equal(const struct delta_word *a, const struct delta_word *b)
{
    return a->round == b->round && a->digest == b->digest;
}

static int word_holders(const struct delta *d, int rank)
{
    int n = 0;

    for (int r = 0; r < d->config->world_size; r++)
        n += words_equal(&d->words[r], &d->words[rank]);
    return n;
}

/* A rank of the largest group of ranks with equal words. -1: no group is larger than all others. */
static int word_of_most(const struct delta *d)
{
    int most = 0;

    for (int r = 1; r < d->config->world_size; r++)
        if (word_holders(d, r) > word_holders(d, most))
            most = r;
    for (int r = 0; r < d->config->world_size; r++)
        if (!words_equal(&d->words[r], &d->words[most]) && word_holders(d, r) == word_holders(d, most))
            return -1;
    return most;
}

/* The first rank at or behind `from` whose word is equal to that of `rank`, or is not. The world size: none. */
static int word_next(const struct delta *d, int from, int rank, bool equal)
{
    while (from < d->config->world_size && words_equal(&d->words[from], &d->words[rank]) != equal)
        from++;
    return from;
}

/* Appends the groups of ranks with equal words, as "of ranks 0, 2 and of rank 1". */
static void words_list(const struct delta *d, struct buf *out)
{
    const int world = d->config->world_size;

    for (int first = 0; first < world; first++) {
        if (word_next(d, 0, first, true) < first) /* its group is listed already */
            continue;
        buf_printf(out, "%sof rank%s %d", out->len ? " and " : "", word_holders(d, first) > 1 ? "s" : "",
                   first);
        for (int r = first + 1; (r = word_next(d, r, first, true)) < world; r++)
            buf_printf(out, ", %d", r);
    }
}

/* One rank is named if most others agree. Of two ranks, or of two equal groups, either may be the one that is right. */
static enum err_code words_differ(const struct delta *d, struct err *e)
{
    CLEANUP(buf_release) struct buf groups = {0};

    if (word_next(d, 0, 0, false) == d->config->world_size)
        return ERR_OK;
    const int most = word_of_most(d), right = most < 0 ? 0 : most, odd = word_next(d, 0, right, false);
    const struct delta_word *w = &d->words[odd], *other = &d->words[right];

    if (w->round != other->round)
        return err_set(e, ERR_FAILED_PRECONDITION, "rank %d is at exchange %lld, rank %d at exchange %lld",
                       odd, (long long)w->round, right, (long long)other->round);
    if (most >= 0)
        return err_set(e, ERR_FAILED_PRECONDITION,
                       "rank %d: its shared model differs from that of the other ranks before exchange %lld",
                       odd, (long long)w->round);
    words_list(d, &groups);
    return err_set(e, ERR_FAILED_PRECONDITION,
                   "the shared models %.150s differ from each other before exchange %lld", groups.data,
                   (long long)w->round);
}

static enum err_code words_compare(const struct delta *d, struct err *e)
{
    if (words_differ(d, e))
        return e->code;
    if (!d->mine.finite)
        return sync_not_finite(d->sync, d->config->rank, e);
    for (int r = 0; r < d->config->world_size; r++)
        if (!d->words[r].finite)
            return sync_not_finite(d->sync, r, e);
    return ERR_OK;
}

static void weights_take(struct delta *d)
{
    int64_t all = 0;

    for (int r = 0; r < d->config->world_size; r++)
        all += d->words[r].samples;
    for (int r = 0; r < d->config->world_size; r++)
        d->weights[r] = sample_weight(d, d->words[r].samples, all);
}

/* ---- the exchange */

static enum err_code words_exchange(struct delta *d, struct err *e)
{
    if (coll_allgather(d->group, &d->mine, sizeof(d->mine), d->words, e) || words_compare(d, e))
        return e->code;
    weights_take(d);
    return ERR_OK;
}

/* S, its codes, and what they lose. An answer begins with a byte that says whether its codes are valid. */
static void slice_sum(struct delta *d, uint8_t *answer)
{
    const struct slices *s = &d->slices;
    enum wire_type wire = d->config->spec.wire;
    int rank = d->config->rank;
    size_t begin = s->codes[rank], bytes = s->codes[rank + 1] - begin;
    float *own = d->own;

    answer[0] = 1;
    for (size_t i = s->first[rank]; i < s->first[rank + 1]; own += s->windows[i++].count) {
        size_t count = s->windows[i].count, at = s->windows[i].code - begin;

        for (int r = 0; r < d->config->world_size; r++)
            if (r != rank)
                wire_add(wire, d->heard + (size_t)r * bytes + at, count, d->weights[r], own);
        if (wire_encode(wire, own, count, answer + 1 + at))
            wire_subtract(wire, answer + 1 + at, count, own);
        else
            answer[0] = 0;
    }
}

static enum err_code slices_exchange(struct delta *d, struct err *e)
{
    int rank = d->config->rank;
    uint8_t *answer = d->answers + (size_t)rank * d->answer_bytes;

    if (coll_exchange(d->group, d->codes, d->slices.codes, d->heard, e))
        return e->code;
    slice_sum(d, answer);
    d->answered = true;
    if (coll_allgather(d->group, answer, d->answer_bytes, d->answers, e))
        return e->code;
    for (int r = 0; r < d->config->world_size; r++)
        if (!d->answers[(size_t)r * d->answer_bytes])
            return err_set(
                e, r == rank ? ERR_OUT_OF_RANGE : ERR_ABORTED,
                "changes of the parameters are too large to be sent in exchange %lld on rank %d, lower "
                "the learning rate or set clip",
                (long long)d->send.round, r);
    return ERR_OK;
}

static enum err_code delta_exchange(struct delta *d, struct err *e)
{
    if (words_exchange(d, e))
        return e->code;
    sync_test_kill(d->sync, "sum");
    if (!sends_codes(d))
        return coll_start(d->group, d->send.x + d->lo, d->hi - d->lo, e);
    if (d->slices.owners > 1)
        return slices_exchange(d, e);
    d->answered = true;
    return coll_allgather(d->group, d->codes, d->code_bytes, d->gathered, e);
}

static void *delta_serve(void *arg)
{
    struct delta *d = arg;

    (void)!delta_exchange(d, &d->error); /* delta_wait returns it */
    return NULL;
}

/* Signals are the owner's. */
static bool delta_start_thread(struct delta *d)
{
    sigset_t all, old;
    int rc;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    rc = pthread_create(&d->thread, NULL, delta_serve, d);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return rc == 0;
}

/* Only the owner's thread works on a device's arrays, and only codes are the host's. */
static bool wants_thread(const struct delta *d)
{
    int thread = d->config->thread;

    if (!d->config->spec.overlap || (!d->config->device->host && !sends_codes(d)))
        return false;
    return thread < 0 ? coll_overlaps(d->group) : thread > 0;
}

static void memory_take(struct delta *d, size_t bytes)
{
    if (bytes <= d->memory_room)
        return;
    free(d->memory);
    d->memory = xcalloc(1, bytes);
    d->memory_room = bytes;
}

/* Cuts the slices, and makes room for what is sent and received. */
static void delta_cut(struct delta *d)
{
    const struct sync_tensor *t = d->send.tensors, *last = t + d->send.tensor_count - 1;
    int world = d->config->world_size, rank = d->config->rank;
    size_t ranks = (size_t)world;

    d->lo = t->offset;
    d->hi = last->offset + last->count;
    slices_cut(&d->slices, t, d->send.tensor_count, d->config->spec.wire,
               delta_sliced(&d->config->spec, world) ? world : 1);
    if (!sends_codes(d))
        return;
    if (d->slices.owners == 1) {
        d->code_bytes = d->slices.codes[1];
        memory_take(d, ranks * d->code_bytes);
        d->gathered = d->memory;
        d->codes = d->gathered + (size_t)rank * d->code_bytes;
        return;
    }
    size_t heard = d->slices.codes[rank + 1] - d->slices.codes[rank], own = slices_floats(&d->slices, rank);

    d->code_bytes = d->slices.codes[world];
    d->answer_bytes = 1 + slices_most(&d->slices);
    memory_take(d, d->code_bytes + ranks * (heard + d->answer_bytes));
    d->codes = d->memory;
    d->heard = d->codes + d->code_bytes;
    d->answers = d->heard + ranks * heard;
    if (own > d->own_room) {
        free(d->own);
        d->own = xcalloc(own, sizeof(*d->own));
        d->own_room = own;
    }
}

enum err_code delta_start(struct delta *d, const struct delta_send *send, struct err *e)
{
    struct device *device = d->config->device;

    d->send = *send;
    d->error = (struct err){0};
    d->answered = false;
    delta_cut(d);
    if (delta_prepare(d, e))
        return e->code;
    if (!sends_codes(d))
        device->ops->scale(device, d->send.x + d->lo, d->hi - d->lo,
                           sample_weight(d, send->local_samples, send->global_samples));
    d->threaded = wants_thread(d) && delta_start_thread(d);
    if (d->threaded)
        return ERR_OK;
    int64_t began = clock_mono_ns();
    enum err_code rc = delta_exchange(d, e);

    d->sync->made.wait_ns += (uint64_t)(clock_mono_ns() - began);
    return rc;
}

enum err_code delta_wait(struct delta *d, struct err *e)
{
    int64_t began = clock_mono_ns();

    delta_finish_thread(d);
    d->sync->made.wait_ns += (uint64_t)(clock_mono_ns() - began);
    if (d->error.code)
        *e = d->error;
    return d->error.code;
}

double delta_progress(const struct delta *d)
{
    double most = 0.0;

    for (int r = 0; r < d->config->world_size; r++)
        most = fmax(most, d->words[r].progress);
    return most;
}

/* squares: the sum of squares of D */
static void round_measure(const struct delta *d, double squares)
{
    double lengths = 0.0;

    for (int r = 0; r < d->config->world_size; r++)
        lengths += (double)d->weights[r] * sqrt(d->words[r].squares);
    sync_measure(d->sync, squares, lengths);
}

/* The loss is weighted as the deltas are, and the votes behind it are not: one counts also if its rank saw no samples. */
static void votes_sum(struct delta *d)
{
    float tail[SYNC_MAX_TAIL] = {0};

    for (int r = 0; r < d->config->world_size; r++)
        for (size_t i = 0; i < d->config->tail; i++)
            tail[i] += (i ? 1.0f : d->weights[r]) * d->words[r].tail[i];
    window_write(d, d->send.tail, tail, d->config->tail);
}

/* What e becomes in a window; x and rest may be the same. *own moves past the windows of this rank's slice. */
static void window_rest(struct delta *d, size_t i, const float *x, const float **own, float *rest)
{
    const struct slices_window *w = &d->slices.windows[i];

    if (window_is_owned(d, i)) {
        memcpy(rest, *own, w->count * sizeof(*rest));
        *own += w->count;
        return;
    }
    /* The codes of a rank without samples count for nothing in D, so it has sent nothing of e. */
    if (d->weights[d->config->rank] <= 0.0f) {
        const float *e = window_read(d, 1, d->send.error + w->at, w->count);

        if (rest != e)
            memcpy(rest, e, w->count * sizeof(*rest));
        return;
    }
    if (rest != x)
        memcpy(rest, x, w->count * sizeof(*rest));
    wire_subtract(d->config->spec.wire, d->codes + w->code, w->count, rest);
}

/* D of a window, from what all ranks have received: so all ranks get the same bits. */
static void window_sum(const struct delta *d, int owner, const struct slices_window *w, float *sum)
{
    enum wire_type wire = d->config->spec.wire;

    memset(sum, 0, w->count * sizeof(*sum));
    if (d->slices.owners > 1) {
        const uint8_t *codes = d->answers + (size_t)owner * d->answer_bytes + 1;

        wire_add(wire, codes + (w->code - d->slices.codes[owner]), w->count, 1.0f, sum);
        return;
    }
    for (int r = 0; r < d->config->world_size; r++)
        wire_add(wire, d->gathered + (size_t)r * d->code_bytes + w->code, w->count, d->weights[r], sum);
}

void delta_sum(struct delta *d)
{
    struct device *device = d->config->device;
    const float *own = d->own;
    double squares = 0.0;
    int owner = 0;

    votes_sum(d);
    if (!sends_codes(d)) {
        round_measure(d, squares_on_device(device, d->send.x + d->lo, d->hi - d->lo, d->sync->squares_room));
        return;
    }
    for (size_t i = 0; i < d->slices.count; i++) {
        const struct slices_window *w = &d->slices.windows[i];
        float *x = window_read(d, 0, d->send.x + w->at, w->count);
        float *rest = device->host ? d->send.error + w->at : d->room[1];

        while (i >= d->slices.first[owner + 1])
            owner++;
        window_rest(d, i, x, &own, rest);
        window_sum(d, owner, w, x);
        squares += squares_sum(x, w->count);
        window_write(d, d->send.error + w->at, rest, w->count);
        window_write(d, d->send.x + w->at, x, w->count);
    }
    round_measure(d, squares);
}

bool delta_keep(struct delta *d)
{
    const float *own = d->own;

    delta_finish_thread(d);
    for (size_t i = 0; d->answered && i < d->slices.count; i++) {
        const struct slices_window *w = &d->slices.windows[i];
        float *x = window_read(d, 0, d->send.x + w->at, w->count);

        window_rest(d, i, x, &own, x);
        window_write(d, d->send.x + w->at, x, w->count);
    }
    return d->answered;
}

/* ---- outside of exchanges */

void delta_weigh_error(struct delta *d, float *error, const struct sync_tensor *tensors, size_t count,
                       int64_t local_samples, int64_t global_samples)
{
    struct device *device = d->config->device;
    const int world = d->config->world_size;
    const float weight = sample_weight(d, local_samples, local_samples ? global_samples : 0);

    slices_cut(&d->slices, tensors, count, d->config->spec.wire,
               delta_sliced(&d->config->spec, world) ? world : 1);
    for (size_t i = 0; i < d->slices.count; i++)
        if (!window_is_owned(d, i))
            device->ops->scale(device, error + d->slices.windows[i].at, d->slices.windows[i].count, weight);
}

/* ---- ranks that change */

static void slice_zero(struct delta *d, float *error, int rank, int world_size)
{
    struct device *device = d->config->device;

    if (!delta_sliced(&d->config->spec, world_size))
        return;
    slices_cut(&d->slices, d->send.tensors, d->send.tensor_count, d->config->spec.wire, world_size);
    for (size_t i = d->slices.first[rank]; i < d->slices.first[rank + 1]; i++)
        device->ops->zero(device, error + d->slices.windows[i].at,
                          d->slices.windows[i].count * sizeof(*error));
}

void delta_drop_slices(struct delta *d, float *error, const struct sync_tensor *tensors, size_t count,
                       int old_rank, int old_world_size)
{
    d->send = (struct delta_send){.tensors = tensors, .tensor_count = count};
    slice_zero(d, error, old_rank, old_world_size);
    slice_zero(d, error, d->config->rank, d->config->world_size);
}
