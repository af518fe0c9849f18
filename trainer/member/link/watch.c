/* Watch is a level: each connection first hears where the process stands. So a lost stream loses nothing, and
 * the thread redials for ever; a coordinator that is away changes nothing for the worker.
 *
 * Each second it looks whether the coordinator has moved, and takes the others' calls along. It also ends the
 * wait for a coordinator that is away when the worker is to stop: a snapshot that is whole on disk is worth
 * more than one that SIGKILL interrupts. */
#include "trainer/member/link/internal.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "proto/ddp.pb-c.h"

#include <errno.h>
#include <signal.h>

#define LOOK_MS 1000
#define PATIENCE_MS 5000 /* of a worker that is to stop, with a coordinator that is away */

void report_set_stale(struct report *r)
{
    if (atomic_exchange(&r->stale, true))
        return;
    log_info("generation_over", "job=%lld gen=%lld rank=%d", (long long)r->place.job,
             (long long)r->place.generation, r->place.rank);
    if (r->on_stale)
        r->on_stale(r->on_stale_arg, r->place.generation);
}

static void hear(struct report *r, const Ddp__V1__WatchReply *reply)
{
    if (reply->stop && !atomic_exchange(&r->stop_asked, true))
        log_info("stop_asked", "job=%lld gen=%lld rank=%d", (long long)r->place.job,
                 (long long)r->place.generation, r->place.rank);
    if (!reply->member || reply->generation > r->place.generation)
        report_set_stale(r);
}

/* The coordinator is there and says that this process is nobody to it. */
static bool refused(enum err_code code)
{
    switch (code) {
    case ERR_UNAUTHENTICATED:
    case ERR_PERMISSION_DENIED:
    case ERR_FAILED_PRECONDITION:
    case ERR_ABORTED:
    case ERR_NOT_FOUND:
        return true;
    default:
        return false;
    }
}

/* What the Watch thread knows. */
struct watch_state {
    bool away;           /* word from the coordinator is news */
    int64_t waits_since; /* a commit holds a stop up since then; 0: it does not */
};

static bool must_end(const struct report *r)
{
    return atomic_load(&r->stop_asked) || (r->stop_signal && *r->stop_signal);
}

/* Once a second or more often. */
static void look_around(struct report *r, struct watch_state *w)
{
    int64_t now = clock_boot_ms();

    if (!w->away || !must_end(r) || !atomic_load(&r->committing)) {
        w->waits_since = 0;
        return;
    }
    if (!w->waits_since)
        w->waits_since = now;
    if (now - w->waits_since < PATIENCE_MS)
        return;
    atomic_store(&r->given_up, true);
    report_cancel(r);
}

static void note_away(struct report *r, struct watch_state *w, const char *why)
{
    if (!w->away)
        log_info("coordinator_away", "job=%lld rank=%d why=%s", (long long)r->place.job, r->place.rank,
                 LOG_Q(why));
    w->away = true;
}

/* One connection, to its end. */
static enum err_code watch_once(struct report *r, struct report_link *link, struct watch_state *w,
                                struct err *e)
{
    Ddp__V1__WatchRequest q = DDP__V1__WATCH_REQUEST__INIT;
    struct rpc_stream *stream;
    void *message;
    enum err_code rc;

    q.job = r->place.job;
    q.spawn = r->place.spawn;
    q.generation = r->place.generation;
    if (rpc_stream_open(&stream, link->channel, &ddp__v1__rendezvous__descriptor, "Watch", &q, 0,
                        RPC_WAIT_FOR_READY, e))
        return e->code;
    for (bool heard = false;;) {
        rc = rpc_stream_next(stream, LOOK_MS, &message, e);
        if (rc == ERR_DEADLINE_EXCEEDED && !rpc_stream_ended(stream)) {
            if (!heard)
                note_away(r, w, "no answer");
            look_around(r, w);
            if (!report_link_follow(r))
                continue;
            rc = err_set(e, ERR_UNAVAILABLE, "it has moved");
        }
        if (rc || !message)
            break;
        heard = true;
        hear(r, message);
        rpc_free(message);
        if (w->away)
            log_info("coordinator_back", "job=%lld rank=%d", (long long)r->place.job, r->place.rank);
        w->away = false;
    }
    rpc_stream_close(stream);
    if (rc == ERR_CANCELLED && report_link_left(r, link))
        rc = err_set(e, ERR_UNAVAILABLE, "it has moved");
    return rc;
}

static void *watch(void *arg)
{
    struct report *r = arg;
    struct watch_state w = {0};
    int tries = 0;

    while (!atomic_load(&r->cancelled)) {
        struct report_link *link = report_link_take(r);
        bool was_away = w.away;
        struct err e = {0};
        enum err_code rc = watch_once(r, link, &w, &e);

        report_link_put(r, link);
        if (atomic_load(&r->cancelled))
            break;
        if (rc && refused(rc))
            report_set_stale(r);
        if (!was_away)
            tries = 0;
        note_away(r, &w, rc ? e.msg : "it ended the stream");
        look_around(r, &w);
        if (report_link_follow(r))
            tries = 0;
        report_pause(r, &tries);
    }
    return NULL;
}

/* Signals are the owner's. */
enum err_code report_watch_start(struct report *r, report_watch_fn stale, void *arg, struct err *e)
{
    sigset_t all, old;
    int rc;

    if (!r->has_coordinator)
        return ERR_OK;
    BUG_ON(r->watching);
    r->on_stale = stale;
    r->on_stale_arg = arg;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    rc = pthread_create(&r->watch, NULL, watch, r);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (rc)
        return err_sys(e, rc, "watch thread");
    r->watching = true;
    return ERR_OK;
}
