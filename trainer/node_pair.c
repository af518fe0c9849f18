#include "trainer/node_pair.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/crypto/id.h"
#include "base/log.h"
#include "base/mem.h"
#include "trainer/measure.h"

#define WINDOWS 5
/* The arrays are the same on all fast connections, because small arrays are slower. */
#define PROBE_FLOATS ((size_t)1 << 10)
#define HOST_FLOATS ((size_t)256 << 10)
#define AWAY_FLOATS ((size_t)8 << 20)
#define GROWTH 8 /* of the array, from probe to probe */
#define PROBE_CALLS 3

/* ---- the guard */

struct pair_guard {
    pthread_t thread;
    struct coll_listener *listener;
    int64_t generation, until_ms;
    int over, done; /* to poll */
    atomic_bool late;
};

static void *pair_guard_run(void *arg)
{
    struct pair_guard *g = arg;
    struct pollfd fds[2] = {{.fd = g->over, .events = POLLIN}, {.fd = g->done, .events = POLLIN}};
    int64_t left;
    while ((left = g->until_ms - clock_boot_ms()) > 0)
        if (poll(fds, 2, left < INT32_MAX ? (int)left : INT32_MAX) > 0)
            break;
    if (fds[1].revents)
        return NULL;
    atomic_store(&g->late, left <= 0);
    coll_listener_abort(g->listener, g->generation);
    return NULL;
}

static enum err_code pair_guard_start(struct pair_guard *g, const struct node_pair_config *c, struct err *e)
{
    *g = (struct pair_guard){
        .listener = c->listener,
        .generation = c->group.generation,
        .until_ms = clock_boot_ms() + c->limit_ms,
        .over = c->generation ? coll_stop_fd(c->generation) : -1,
        .done = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK),
    };
    if (g->done < 0)
        return err_sys(e, errno, "eventfd");
    const int failed = pthread_create(&g->thread, NULL, pair_guard_run, g);
    if (!failed)
        return ERR_OK;
    close_fd(&g->done);
    return err_sys(e, failed, "thread");
}

static bool pair_guard_stop(struct pair_guard *g)
{
    const uint64_t one = 1;
    BUG_ON(write(g->done, &one, sizeof(one)) < 0);
    pthread_join(g->thread, NULL);
    close_fd(&g->done);
    return atomic_load(&g->late);
}

/* ---- the pair */

struct node_pair {
    const struct node_pair_config *config;
    struct coll_group *group;
    float *data; /* zeros: they stay zero however often they are added up */
    size_t floats;
};

void node_pair_make_key(uint8_t out[32], const uint8_t key[32], int round, int first, int second)
{
    char text[64];
    const int size = snprintf(text, sizeof(text), "pair %d %d %d", round, first, second);
    digest_hmac(out, key, 32, text, (size_t)size);
}

enum err_code node_pair_check_calls(int64_t calls, int64_t least, struct err *e)
{
    if (calls < least || calls > NODE_PAIR_CALLS_MOST)
        return err_set(e, ERR_INTERNAL, "the other rank asks for %lld all-reduces", (long long)calls);
    return ERR_OK;
}

static enum err_code node_pair_decide(struct node_pair *p, int64_t least, int64_t *calls, struct err *e)
{
    if (coll_broadcast(p->group, calls, sizeof(*calls), 0, e))
        return e->code;
    return node_pair_check_calls(*calls, least, e);
}

/* Makes `calls` all-reduces, and measures the time until both ranks have made them. */
static enum err_code node_pair_time(struct node_pair *p, int64_t calls, int64_t *took, struct err *e)
{
    struct device *device = p->config->group.device;
    if (coll_barrier(p->group, e))
        return e->code;
    const int64_t from = clock_mono_ns();
    for (int64_t i = 0; i < calls; i++)
        if (coll_allreduce(p->group, p->data, p->floats, e))
            return e->code;
    if (device && device->ops->wait(device, e))
        return e->code;
    measure_idle(from, p->config->slower);
    if (coll_barrier(p->group, e))
        return e->code;
    *took = clock_mono_ns() - from;
    return ERR_OK;
}

/* Chooses the size of the arrays (p->floats), and how many all-reduces fit into a window (*calls). */
static enum err_code node_pair_probe(struct node_pair *p, size_t most, int64_t *calls, struct err *e)
{
    const int64_t window = p->config->time_ns / WINDOWS;
    for (p->floats = PROBE_FLOATS;; p->floats = p->floats * GROWTH < most ? p->floats * GROWTH : most) {
        int64_t took = INT64_MAX, again;
        /* The first call also opens channels, and another program may delay one call. */
        for (int i = 0; i < PROBE_CALLS; i++) {
            if (node_pair_time(p, 1, &again, e))
                return e->code;
            took = again < took ? again : took;
        }
        const int64_t fit = window / (took > 0 ? took : 1);
        *calls = p->floats < most && fit >= GROWTH ? 0 /* try a larger array */
                 : fit < 1                         ? 1
                 : fit > NODE_PAIR_CALLS_MOST      ? NODE_PAIR_CALLS_MOST
                                                   : fit;
        if (node_pair_decide(p, p->floats == most, calls, e))
            return e->code;
        if (*calls)
            return ERR_OK;
    }
}

static int pair_compare_rates(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static enum err_code node_pair_run(struct node_pair *p, size_t most, struct pair_rate *out, struct err *e)
{
    double rates[WINDOWS];
    int64_t took, calls;
    int count = 0;
    if (node_pair_probe(p, most, &calls, e))
        return e->code;
    const int64_t until = clock_mono_ns() + p->config->time_ns;
    while (count < WINDOWS) {
        /* On a very slow connection the first window may take all the time. */
        int64_t next = count && clock_mono_ns() >= until ? 0 : calls;
        if (node_pair_decide(p, !count, &next, e))
            return e->code;
        if (!next)
            break;
        if (node_pair_time(p, next, &took, e))
            return e->code;
        rates[count++] =
            (double)next * (double)(p->floats * sizeof(float)) / ((double)(took > 0 ? took : 1) * 1e-9);
    }
    qsort(rates, (size_t)count, sizeof(double), pair_compare_rates);
    out->median = rates[count / 2];
    out->best = rates[count - 1];
    return ERR_OK;
}

/* The process must not touch the device again if its collectives did not end. */
static void node_pair_close(struct node_pair *p)
{
    struct err e;
    if (p->group && coll_end(p->group, &e)) {
        log_error("device_stuck", "why=%s", LOG_Q(e.msg));
        fflush(NULL);
        _exit(EXIT_FAILURE);
    }
    coll_close(p->group);
}

enum err_code node_pair_measure(const struct node_pair_config *config, struct pair_rate *out, struct err *e)
{
    const struct device *device = config->group.device;
    const size_t most = device && !device->host ? AWAY_FLOATS : HOST_FLOATS;
    struct node_pair pair = {.config = config};
    struct pair_guard guard;
    if (pair_guard_start(&guard, config, e))
        return e->code;
    enum err_code code = coll_open(&pair.group, config->listener, &config->group, e);
    if (!code)
        code = coll_alloc(pair.group, most, &pair.data, e);
    if (!code)
        code = node_pair_run(&pair, most, out, e);
    node_pair_close(&pair);
    if (pair_guard_stop(&guard) && code)
        code =
            err_set(e, ERR_DEADLINE_EXCEEDED, "not done after %lld s", (long long)(config->limit_ms / 1000));
    return code;
}
