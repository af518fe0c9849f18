/* Watch is a level: the coordinator sends the current state at the start of each stream. So a lost stream
 * loses no information; the thread redials forever, and a coordinator that is away changes nothing for the
 * worker.
 *
 * A worker that stays keeps watching the generation that is over. The coordinator says that it is to wait, then that it
 * is a member of a later generation, or that it is dismissed. Only when Join has answered is the later one watched.
 *
 * Each second the thread checks whether the coordinator has moved; if so, calls of other threads move, too.
 * If the worker is asked to stop while the coordinator is away, the thread ends the wait for a commit: a
 * complete snapshot on disk is worth more than one that SIGKILL interrupts. */
#include "trainer/member/link/watch.h"

#include "trainer/member/link/channel.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "proto/ddp.pb-c.h"

#include <errno.h>
#include <signal.h>

#define LOOK_MS 1000
#define PATIENCE_MS 5000 /* how long a worker that was asked to stop waits for a coordinator that is away */

void link_set_over(struct link *r, int64_t generation)
{
    pthread_mutex_lock(&r->watch_lock);
    if (generation > atomic_load(&r->over)) {
        atomic_store(&r->over, generation);
        log_info("generation_over", "job=%lld gen=%lld rank=%d", (long long)r->place.job,
                 (long long)generation, r->rank);
        /* A message about an earlier generation does not end the current one. */
        if (r->on_over && link_over(r))
            r->on_over(r->on_over_arg, generation);
    }
    pthread_mutex_unlock(&r->watch_lock);
}

static void wake_waiter(struct link *r)
{
    pthread_mutex_lock(&r->lock);
    void (*heard)(void) = r->after.heard;
    pthread_mutex_unlock(&r->lock);
    if (heard)
        heard();
}

/* Called before link_set_over, so that whoever that wakes finds the word. */
static void word_set(struct link *r, int64_t generation, enum link_word word, bool late,
                     const struct link_member *next)
{
    pthread_mutex_lock(&r->lock);
    r->after.generation = generation;
    r->after.word = word;
    r->after.late = late;
    r->after.next = *next;
    pthread_mutex_unlock(&r->lock);
    wake_waiter(r);
}

enum link_word link_after(struct link *r, struct link_member *next)
{
    pthread_mutex_lock(&r->lock);
    /* A stream about the generation before may still be open. */
    bool current = r->after.generation == atomic_load(&r->generation);
    enum link_word word = current ? r->after.word : LINK_SILENT;
    *next = r->after.next;
    pthread_mutex_unlock(&r->lock);
    return word;
}

static void watch_hear(struct link *r, int64_t generation, const Ddp__V1__WatchReply *reply)
{
    const struct link_member next = {.generation = reply->generation, .rank = reply->rank};
    bool later = reply->member && reply->generation > generation;

    atomic_store(&r->counts_parts, reply->counts_parts ? 1 : -1);
    if (reply->stop && atomic_exchange(&r->stop_asked, generation) < generation)
        log_info("stop_asked", "job=%lld gen=%lld rank=%d", (long long)r->place.job, (long long)generation,
                 r->rank);
    if (later || !reply->member) {
        word_set(r, generation,
                 later         ? LINK_JOIN
                 : reply->wait ? LINK_WAIT
                               : LINK_DISMISSED,
                 reply->wait && reply->late, &next);
        link_set_over(r, generation);
    } else {
        /* The group is broken, and others have yet to notice it. */
        if (reply->wait || link_after(r, &(struct link_member){0}) == LINK_WAIT)
            word_set(r, generation, reply->wait ? LINK_WAIT : LINK_SILENT, false, &next);
        if (*reply->job_file)
            link_tuning_heard(r, reply->revision,
                              reply->job_file); /* Join brings that of a later generation */
    }
    /* After link_set_over: who sees that the hand-over is no longer asked for also sees that it has taken place. */
    atomic_store(&r->handover, reply->member && !later ? reply->handover : 0);
    atomic_store(&r->hold, reply->member && !later ? reply->hold : 0);
    wake_waiter(r);
}

/* The coordinator is reachable and says that this process is not a member. */
static bool watch_refused(enum err_code code)
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

/* The state of the Watch thread. */
struct watch_state {
    int64_t generation;  /* generation that this stream is about */
    int64_t revision;    /* of the job file: the stream has told the coordinator that it is in use */
    bool stays;          /* as the stream has told the coordinator */
    int64_t ready;       /* the same */
    int64_t gathered;    /* the same */
    int64_t broken;      /* the same */
    int64_t arrived;     /* the same */
    int64_t waits_since; /* since when a stop has been waiting for a commit; 0: no stop is waiting */
};

static bool must_end(const struct link *r)
{
    return link_stop_asked(r) || (r->stop_signal && *r->stop_signal);
}

/* Checks what may have changed; called once a second or more often. */
static void look_around(struct link *r, struct watch_state *w)
{
    int64_t now = clock_boot_ms();

    if (!atomic_load(&r->away) || !must_end(r) || !atomic_load(&r->committing)) {
        w->waits_since = 0;
        return;
    }
    if (!w->waits_since)
        w->waits_since = now;
    if (now - w->waits_since < PATIENCE_MS)
        return;
    atomic_store(&r->given_up, true);
    link_cancel(r);
}

static void note_away(struct link *r, const char *why)
{
    if (!atomic_exchange(&r->away, true))
        log_info("coordinator_away", "job=%lld rank=%d why=%s", (long long)r->place.job, r->rank, LOG_Q(why));
}

bool link_away(const struct link *r)
{
    return atomic_load(&r->away);
}

/* Whether another stream is wanted: this process has joined a later generation, uses another revision of the job file, or
 * has come to another strategy, which the next stream says; or the coordinator is to show that it still answers. */
static bool watch_outdated(const struct link *r, const struct watch_state *w)
{
    return w->generation != atomic_load(&r->generation) || w->revision != atomic_load(&r->tuning.used) ||
           w->stays != atomic_load(&r->stays) || w->ready != atomic_load(&r->ready) ||
           w->gathered != atomic_load(&r->gathered) || w->broken != atomic_load(&r->broken) ||
           w->arrived != atomic_load(&r->arrived) || atomic_load(&r->asked);
}

static void stream_publish(struct link *r, struct rpc_stream *stream)
{
    pthread_mutex_lock(&r->lock);
    r->stream = stream;
    pthread_mutex_unlock(&r->lock);
}

void link_watch_again(struct link *r)
{
    pthread_mutex_lock(&r->lock);
    if (r->stream)
        rpc_stream_cancel(r->stream);
    pthread_mutex_unlock(&r->lock);
}

void link_ask(struct link *r)
{
    atomic_store(&r->asked, true);
    link_watch_again(r);
}

/* Runs one stream until it ends. */
static enum err_code watch_once(struct link *r, struct link_channel *channel, struct watch_state *w,
                                struct err *e)
{
    Ddp__V1__WatchRequest q = DDP__V1__WATCH_REQUEST__INIT;
    struct rpc_stream *stream;
    void *message;
    enum err_code rc;

    q.job = r->place.job;
    q.spawn = r->place.spawn;
    q.generation = w->generation;
    if (atomic_load(&r->failed_generation) == w->generation)
        q.failed_step = atomic_load(&r->failed_step);
    q.revision = w->revision = link_tuning_used(r, &q.revision_step);
    q.stays = w->stays = atomic_load(&r->stays);
    atomic_store(&r->asked, false);
    q.ready = w->ready = atomic_load(&r->ready);
    q.gathered = w->gathered = atomic_load(&r->gathered);
    w->broken = atomic_load(&r->broken);
    q.group_broken = w->broken == w->generation;
    w->arrived = atomic_load(&r->arrived);
    q.arrived = w->arrived / 2;
    q.holds = w->arrived % 2;
    if (rpc_stream_open(&stream, channel->rpc, &ddp__v1__rendezvous__descriptor, "Watch", &q, 0,
                        RPC_WAIT_FOR_READY, e))
        return e->code;
    stream_publish(r, stream);
    for (bool heard = false;;) {
        rc = rpc_stream_next(stream, LOOK_MS, &message, e);
        if (rc == ERR_DEADLINE_EXCEEDED && !rpc_stream_ended(stream)) {
            if (!heard)
                note_away(r, "no answer");
            look_around(r, w);
            if (watch_outdated(r, w)) {
                rc = ERR_OK;
                break;
            }
            if (!link_channel_follow(r))
                continue;
            rc = err_set(e, ERR_UNAVAILABLE, "the coordinator has moved");
        }
        if (rc || !message)
            break;
        if (!heard)
            link_tuning_told(r, w->revision);
        heard = true;
        watch_hear(r, w->generation, message);
        rpc_free(message);
        if (atomic_exchange(&r->away, false))
            log_info("coordinator_back", "job=%lld rank=%d", (long long)r->place.job, r->rank);
    }
    stream_publish(r, NULL);
    rpc_stream_close(stream);
    if (rc == ERR_CANCELLED && link_channel_left(r, channel))
        rc = err_set(e, ERR_UNAVAILABLE, "the coordinator has moved");
    return rc;
}

static void *watch_serve(void *arg)
{
    struct link *r = arg;
    struct watch_state w = {0};
    int tries = 0;

    while (!atomic_load(&r->cancelled)) {
        struct link_channel *channel = link_channel_take(r);
        bool was_away = atomic_load(&r->away);
        struct err e = {0};
        w.generation = atomic_load(&r->generation);
        enum err_code rc = watch_once(r, channel, &w, &e);

        link_channel_put(r, channel);
        if (atomic_load(&r->cancelled))
            break;
        if (watch_outdated(r, &w))
            continue;
        if (rc && watch_refused(rc)) {
            word_set(r, w.generation, LINK_DISMISSED, false, &(struct link_member){0});
            link_set_over(r, w.generation);
        }
        /* Pauses grow only while the coordinator stays away. */
        if (!was_away)
            tries = 0;
        note_away(r, rc ? e.msg : "the coordinator ended the stream");
        look_around(r, &w);
        if (link_channel_follow(r))
            tries = 0;
        link_pause(r, &tries);
    }
    return NULL;
}

/* Blocks signals in the Watch thread, because the owner's thread handles them. */
static enum err_code watch_start(struct link *r, struct err *e)
{
    sigset_t all, old;
    int rc;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    rc = pthread_create(&r->watch, NULL, watch_serve, r);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (rc)
        return err_sys(e, rc, "cannot start the Watch thread");
    r->watching = true;
    return ERR_OK;
}

enum err_code link_watch(struct link *r, link_over_fn over, void *arg, struct err *e)
{
    pthread_mutex_lock(&r->watch_lock);
    BUG_ON(r->on_over);
    r->on_over = over;
    r->on_over_arg = arg;
    if (link_over(r)) /* the generation ended between Join and now */
        over(arg, r->generation);
    pthread_mutex_unlock(&r->watch_lock);
    return r->watching || !r->has_coordinator ? ERR_OK : watch_start(r, e);
}

void link_set_stays(struct link *r, bool stays, void (*heard)(void))
{
    pthread_mutex_lock(&r->lock);
    r->after.heard = heard;
    pthread_mutex_unlock(&r->lock);
    if (atomic_exchange(&r->stays, stays) != stays)
        link_watch_again(r);
}

int64_t link_handover(const struct link *r)
{
    return atomic_load(&r->handover);
}

void link_set_ready(struct link *r, int64_t number)
{
    atomic_store(&r->gathered, 0);
    if (atomic_exchange(&r->ready, number) != number)
        link_watch_again(r);
}

void link_set_gathered(struct link *r, int64_t bytes)
{
    if (atomic_exchange(&r->gathered, bytes) != bytes)
        link_watch_again(r);
}

void link_set_broken(struct link *r)
{
    const int64_t generation = atomic_load(&r->generation);
    if (atomic_exchange(&r->broken, generation) != generation)
        link_watch_again(r);
}

void link_set_arrived(struct link *r, int64_t exchange, bool holds)
{
    const int64_t arrived = exchange * 2 + holds;

    if (atomic_exchange(&r->arrived, arrived) != arrived)
        link_watch_again(r);
}

int64_t link_hold(const struct link *r)
{
    return atomic_load(&r->hold);
}

bool link_late(struct link *r)
{
    pthread_mutex_lock(&r->lock);
    const bool current = r->after.generation == atomic_load(&r->generation);
    const bool late = current && r->after.word == LINK_WAIT && r->after.late;
    pthread_mutex_unlock(&r->lock);
    return late;
}

bool link_stays(const struct link *r)
{
    return atomic_load(&r->stays);
}

void link_unwatch(struct link *r)
{
    pthread_mutex_lock(&r->watch_lock);
    r->on_over = NULL;
    pthread_mutex_unlock(&r->watch_lock);
}
