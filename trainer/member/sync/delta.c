#include "trainer/member/sync/delta.h"

#include "base/buf.h"
#include "base/clock.h"
#include "base/digest.h"
#include "base/mem.h"
#include "trainer/member/sync/squares.h"
#include "trainer/member/sync/wire.h"

#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#define WINDOW ((size_t)1 << 16) /* floats that are worked on at a time; whole blocks */

/* What each rank says before it sends codes. */
struct delta_word {
    uint64_t digest; /* of the shared model */
    int64_t round, samples;
    uint64_t finite;
    double squares; /* sum of squares of what is sent, decoded */
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
    uint8_t *codes;                 /* all ranks' */
    size_t code_bytes, code_room;   /* of one rank */
    float *room[2];                 /* windows of device memory; NULL: it is the host's */
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
        d->room[i] = xcalloc(WINDOW, sizeof(float));
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
    free(d->codes);
    free(d->room[0]);
    free(d->room[1]);
    free(d);
}

/* ---- windows: pieces of the tensors, in the host's memory */

struct window {
    size_t tensor, done; /* which, and floats of it before this window */
    size_t at, count;    /* in the array */
    size_t code;         /* where its codes are among a rank's */
};

static bool window_next(const struct delta *d, struct window *w)
{
    const struct sync_tensor *t = d->send.tensors;

    w->code += wire_bytes(d->config->spec.wire, w->count);
    w->done += w->count;
    for (; w->tensor < d->send.tensor_count && w->done == t[w->tensor].count; w->tensor++)
        w->done = 0;
    if (w->tensor == d->send.tensor_count)
        return false;
    w->count = t[w->tensor].count - w->done < WINDOW ? t[w->tensor].count - w->done : WINDOW;
    w->at = t[w->tensor].offset + w->done;
    return true;
}

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

static uint8_t *rank_codes(const struct delta *d, int rank)
{
    return d->codes + (size_t)rank * d->code_bytes;
}

static bool sends_codes(const struct delta *d)
{
    return d->config->spec.wire != WIRE_FP32;
}

static bool floats_finite(const float *x, size_t count)
{
    uint32_t most = 0;

    for (size_t i = 0; i < count; i++) {
        uint32_t bits;

        memcpy(&bits, &x[i], sizeof(bits));
        bits &= 0x7fffffff;
        most = bits > most ? bits : most;
    }
    return most < 0x7f800000;
}

/* This rank's codes, and its word. */
static enum err_code delta_prepare(struct delta *d, struct err *e)
{
    struct device *device = d->config->device;
    float *shared = (float *)(uintptr_t)d->send.shared; /* read only */
    bool finite = true;

    d->mine = (struct delta_word){.round = d->send.round, .samples = d->send.local_samples};
    for (struct window w = {0}; window_next(d, &w);) {
        const float *x = window_read(d, 0, d->send.x + w.at, w.count);

        if (sends_codes(d)) {
            uint8_t *codes = rank_codes(d, d->config->rank) + w.code;

            finite &= wire_encode(d->config->spec.wire, x, w.count, codes);
            /* Codes of values that are not finite are not written. */
            d->mine.squares += finite ? wire_squares(d->config->spec.wire, codes, w.count) : 0.0;
        } else {
            finite &= floats_finite(x, w.count);
            d->mine.squares += squares_sum(x, w.count);
        }
        x = window_read(d, 0, shared + w.at, w.count);
        d->mine.digest = digest64(d->mine.digest, x, w.count * sizeof(float));
    }
    memcpy(d->mine.tail, window_read(d, 0, d->send.tail, d->config->tail), d->config->tail * sizeof(float));
    d->mine.finite = finite;
    /* Downloads of a device that failed leave zeros, which must not be sent. */
    return device->ops->wait(device, e);
}

/* ---- what all ranks say */

/* Who differs from most others; -1: nobody. */
static int word_odd(const struct delta *d)
{
    int odd = -1, fewest = d->config->world_size;

    for (int r = 0; r < d->config->world_size; r++) {
        int same = 0;

        for (int k = 0; k < d->config->world_size; k++)
            same += d->words[k].digest == d->words[r].digest && d->words[k].round == d->words[r].round;
        if (same < fewest) {
            fewest = same;
            odd = r;
        }
    }
    return odd;
}

static enum err_code words_compare(const struct delta *d, struct err *e)
{
    int odd = word_odd(d);
    const struct delta_word *w = odd < 0 ? NULL : &d->words[odd], *other = &d->words[odd == 0 ? 1 : 0];

    if (w && w->round != other->round)
        return err_set(e, ERR_FAILED_PRECONDITION, "rank %d is at exchange %lld, rank %d at exchange %lld",
                       odd, (long long)w->round, odd == 0 ? 1 : 0, (long long)other->round);
    if (w)
        return err_set(e, ERR_FAILED_PRECONDITION,
                       "rank %d: its shared model differs from that of the other ranks before exchange %lld",
                       odd, (long long)w->round);
    if (!d->mine.finite)
        return err_set(
            e, ERR_OUT_OF_RANGE,
            "parameters are not finite before exchange %lld on rank %d: lower the learning rate or set "
            "clip",
            (long long)d->send.round, d->config->rank);
    for (int r = 0; r < d->config->world_size; r++)
        if (!d->words[r].finite)
            return err_set(e, ERR_ABORTED, "parameters are not finite before exchange %lld on rank %d",
                           (long long)d->send.round, r);
    return ERR_OK;
}

/* If nobody saw a sample, all weigh the same. */
static float sample_weight(const struct delta *d, int64_t samples, int64_t all)
{
    return (float)(all > 0 ? (double)samples / (double)all : 1.0 / d->config->world_size);
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

static enum err_code delta_exchange(struct delta *d, struct err *e)
{
    if (words_exchange(d, e))
        return e->code;
    if (sends_codes(d))
        return coll_allgather(d->group, rank_codes(d, d->config->rank), d->code_bytes, d->codes, e);
    return coll_start(d->group, d->send.x + d->lo, d->hi - d->lo, e);
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

static void delta_measure(struct delta *d)
{
    const struct sync_tensor *t = d->send.tensors, *last = t + d->send.tensor_count - 1;

    d->lo = t->offset;
    d->hi = last->offset + last->count;
    d->code_bytes = 0;
    for (; sends_codes(d) && t <= last; t++)
        d->code_bytes += wire_bytes(d->config->spec.wire, t->count);
    if (d->code_bytes > d->code_room) {
        free(d->codes);
        d->codes = xmalloc(d->code_bytes * (size_t)d->config->world_size);
        d->code_room = d->code_bytes;
    }
}

enum err_code delta_start(struct delta *d, const struct delta_send *send, struct err *e)
{
    struct device *device = d->config->device;

    d->send = *send;
    d->error = (struct err){0};
    delta_measure(d);
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

/* squares: the sum of squares of D */
static void round_measure(const struct delta *d, double squares)
{
    double lengths = 0.0;

    for (int r = 0; r < d->config->world_size; r++)
        lengths += (double)d->weights[r] * sqrt(d->words[r].squares);
    sync_measure(d->sync, squares, lengths);
}

void delta_sum(struct delta *d, float *error)
{
    struct device *device = d->config->device;
    enum wire_type wire = d->config->spec.wire;
    float tail[SYNC_MAX_TAIL] = {0};
    double squares = 0.0;

    /* Votes are weighted as the deltas are. */
    for (int r = 0; r < d->config->world_size; r++)
        for (size_t i = 0; i < d->config->tail; i++)
            tail[i] += d->weights[r] * d->words[r].tail[i];
    window_write(d, d->send.tail, tail, d->config->tail);
    if (!sends_codes(d)) {
        round_measure(d, squares_on_device(device, d->send.x + d->lo, d->hi - d->lo, d->sync->squares_room));
        return;
    }
    for (struct window w = {0}; window_next(d, &w);) {
        float *x = window_read(d, 0, d->send.x + w.at, w.count);
        /* All ranks, the codes' owner too, add decoded values in rank order, so they get the same bits. */
        float *rest = device->host ? error + w.at : d->room[1];

        memcpy(rest, x, w.count * sizeof(float));
        wire_subtract(wire, rank_codes(d, d->config->rank) + w.code, w.count, rest);
        memset(x, 0, w.count * sizeof(float));
        for (int r = 0; r < d->config->world_size; r++)
            wire_add(wire, rank_codes(d, r) + w.code, w.count, d->weights[r], x);
        squares += squares_sum(x, w.count);
        window_write(d, error + w.at, rest, w.count);
        window_write(d, d->send.x + w.at, x, w.count);
    }
    round_measure(d, squares);
}
