/* Watch is a level: each connection first hears where the process stands. So a lost stream loses nothing, and
 * the thread redials for ever; a coordinator that is away changes nothing for the worker. */
#include "trainer/report/internal.h"

#include "base/log.h"
#include "base/mem.h"
#include "proto/ddp.pb-c.h"

#include <errno.h>
#include <signal.h>

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

/* One connection, to its end. *away: whether word from the coordinator is news. */
static enum err_code watch_once(struct report *r, bool *away, struct err *e)
{
    Ddp__V1__WatchRequest q = DDP__V1__WATCH_REQUEST__INIT;
    struct rpc_stream *stream;
    void *message;
    enum err_code rc;

    q.job = r->place.job;
    q.spawn = r->place.spawn;
    q.generation = r->place.generation;
    if (rpc_stream_open(&stream, r->channel, &ddp__v1__rendezvous__descriptor, "Watch", &q, 0,
                        RPC_WAIT_FOR_READY, e))
        return e->code;
    while ((rc = rpc_stream_next(stream, -1, &message, e)) == ERR_OK && message) {
        hear(r, message);
        rpc_free(message);
        if (*away)
            log_info("coordinator_back", "job=%lld rank=%d", (long long)r->place.job, r->place.rank);
        *away = false;
    }
    rpc_stream_close(stream);
    return rc;
}

static void *watch(void *arg)
{
    struct report *r = arg;
    int tries = 0;
    bool away = false;

    while (!atomic_load(&r->cancelled)) {
        struct err e = {0};
        enum err_code rc = watch_once(r, &away, &e);

        if (atomic_load(&r->cancelled))
            break;
        if (rc && refused(rc))
            report_set_stale(r);
        if (!away) {
            log_info("coordinator_away", "job=%lld rank=%d why=%s", (long long)r->place.job, r->place.rank,
                     LOG_Q(rc ? e.msg : "it ended the stream"));
            tries = 0;
        }
        away = true;
        report_pause(r, &tries);
    }
    return NULL;
}

/* Signals are the owner's. */
enum err_code report_watch_start(struct report *r, report_watch_fn stale, void *arg, struct err *e)
{
    sigset_t all, old;
    int rc;

    if (!r->channel)
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
