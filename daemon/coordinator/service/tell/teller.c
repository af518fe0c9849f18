#include "daemon/coordinator/service/tell/teller.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/net/web_url.h"
#include "daemon/coordinator/service/commit_queue.h"
#include "daemon/coordinator/service/service_state.h"
#include "daemon/coordinator/service/tell/hook.h"
#include "daemon/coordinator/service/tell/tell_http.h"
#include "daemon/coordinator/service/tell/tell_message.h"
#include "daemon/coordinator/service/tell/tell_program.h"
#include "daemon/coordinator/service/tell/tell_queue.h"
#include "store/notices.h"

/* Normal sequence: the core decides which hooks get an event and adds a notice for each, which is committed with the
 * event. After the commit, teller_committed starts the timer. The timer's function begins an attempt for each queue
 * that is due: a request on the thread of tell_http, or a program. When the attempt has succeeded, its notice is
 * deleted a moment later, together with others, and the next notice follows.
 *
 * Failure modes:
 * - An attempt fails: it is repeated, at first after a second, later after five minutes, or when the receiver asks for it.
 *   A notice that is refused again and again is dropped, so that the next notices get their turn.
 * - The coordinator dies: notices are in the database until they are deleted, so they are sent again. A notice that was
 *   delivered but not deleted yet is delivered twice; it has the same id.
 * - A hook fails for a long time: its newest notices are kept, up to a number and an age. The log and an event report
 *   once that notices were dropped, until the hook works again.
 * - The disk is full: delivered notices are deleted later. */

#define DELETE_AFTER_MS 100
#define RETRY_STORE_MS 5000
#define TRIM_EVERY_MS 600000
#define HOOK_KEEPS 10000
#define HOOK_KEEPS_MS (7 * 24 * 3600 * 1000LL)
#define JOB_KEEPS 100
#define JOB_KEEPS_MS (24 * 3600 * 1000LL)
#define JOB_TIMEOUT_MS 10000
#define JOB_ATTEMPTS_MOST 16 /* at once, of all jobs */

struct tell_attempt {
    struct teller *teller;
    struct tell_queue *queue; /* NULL: a test */
    struct tell_program *program;
    tell_done_fn done; /* of a test */
    void *user;
    struct tell_attempt *next;
};

struct teller {
    struct service *service;
    const struct hook_list *hooks;
    struct tell_queue **queues; /* those of the configuration first, in its order */
    size_t count, cap;
    struct tell_queue jobs_sum; /* the counts of queues of jobs that were removed from the list */
    struct tell_attempt *attempts;
    struct tell_http *http; /* opened when it is first needed, because it has a thread */
    uv_timer_t timer, delete_timer, trim_timer;
    int job_attempts;
    bool loaded, stopped;
};

static void teller_pass(uv_timer_t *timer);

static void teller_arm(struct teller *t, int64_t wait)
{
    if (!t->stopped)
        uv_timer_start(&t->timer, teller_pass, wait > 0 ? (uint64_t)wait : 0, 0);
}

static struct tell_queue *queue_add(struct teller *t, const char *hook, const struct hook *config)
{
    struct tell_queue *q = xcalloc(1, sizeof *q);
    q->hook = xstrdup(hook);
    q->config = config;
    t->queues = array_grow(t->queues, t->count, &t->cap, sizeof *t->queues);
    t->queues[t->count++] = q;
    return q;
}

static struct tell_queue *queue_find(struct teller *t, const char *hook)
{
    for (size_t i = 0; i < t->count; i++)
        if (strcmp(t->queues[i]->hook, hook) == 0)
            return t->queues[i];
    return NULL;
}

static int64_t queue_job(const struct tell_queue *q)
{
    return q->config ? 0 : atoll(q->hook + 1);
}

/* ---- deletion and limits */

static void teller_delete(uv_timer_t *timer)
{
    struct teller *t = timer->data;
    struct notice_mark *marks = xcalloc(t->count + 1, sizeof *marks);
    struct err e = {0};
    size_t count = 0;
    for (size_t i = 0; i < t->count; i++)
        if (t->queues[i]->deleted_id < t->queues[i]->last_id)
            marks[count++] = (struct notice_mark){t->queues[i]->hook, t->queues[i]->last_id};
    /* One transaction for all queues, because the loop waits for the disk in each transaction. */
    const bool done = !count || (!t->service->commit_blocked &&
                                 store_notices_delete_each(t->service->store, marks, count, &e) == ERR_OK);
    free(marks);
    for (size_t i = 0; done && i < t->count; i++)
        t->queues[i]->deleted_id = t->queues[i]->last_id;
    if (!done && !t->stopped)
        uv_timer_start(&t->delete_timer, teller_delete, RETRY_STORE_MS, 0);
}

static void teller_delete_soon(struct teller *t)
{
    if (!uv_is_active((uv_handle_t *)&t->delete_timer))
        uv_timer_start(&t->delete_timer, teller_delete, DELETE_AFTER_MS, 0);
}

/* Reports this once, until the hook works again. */
static void queue_say_dropped(struct teller *t, struct tell_queue *q, int64_t count, const char *why)
{
    CLEANUP(free_text)
    char *text = q->config ? xasprintf("hook %s: %" PRId64 " messages were dropped: %s", q->hook, count, why)
                           : xasprintf("`tell` of job %" PRId64 ": %" PRId64 " messages were dropped: %s",
                                       queue_job(q), count, why);
    if (q->drop_said)
        return;
    q->drop_said = true;
    log_error("hook_dropped", "hook=%s count=%" PRId64 " why=%s", LOG_Q(q->hook), count, LOG_Q(why));
    commit_queue_cluster_event(t->service, "hook_dropped", text);
}

static void queue_trim(struct teller *t, struct tell_queue *q)
{
    struct store *store = t->service->store;
    const int64_t keep = q->config ? HOOK_KEEPS : JOB_KEEPS;
    const struct core_now now = service_now();
    const int64_t age = q->config ? HOOK_KEEPS_MS : JOB_KEEPS_MS;
    const int64_t since = core_holds_ages(t->service->core, now) ? 0 : now.wall_ms - age;
    struct err e = {0};
    int64_t last, deleted, before = q->waiting;
    if (!before || t->service->commit_blocked ||
        store_notices_excess(store, q->hook, keep, since, &last, &e) != ERR_OK || last <= q->last_id)
        return;
    if (store_notices_delete(store, q->hook, last, &deleted, &e) != ERR_OK ||
        store_notices_count(store, q->hook, last, &q->waiting, &e) != ERR_OK)
        return;
    q->last_id = q->deleted_id = last;
    q->refusals = 0;
    q->dropped += (uint64_t)(before - q->waiting);
    queue_say_dropped(t, q, before - q->waiting, "too many or too old, and the hook takes none");
}

static void teller_trim(uv_timer_t *timer)
{
    struct teller *t = timer->data;
    for (size_t i = 0; i < t->count; i++)
        queue_trim(t, t->queues[i]);
    teller_arm(t, 0);
}

/* ---- attempts */

static struct tell_attempt *attempt_open(struct teller *t, struct tell_queue *q)
{
    struct tell_attempt *a = xcalloc(1, sizeof *a);
    a->teller = t;
    a->queue = q;
    a->next = t->attempts;
    t->attempts = a;
    if (q)
        q->attempt = a;
    if (q && !q->config)
        t->job_attempts++;
    return a;
}

static void attempt_close(struct tell_attempt *a)
{
    struct tell_attempt **at = &a->teller->attempts;
    while (*at != a)
        at = &(*at)->next;
    *at = a->next;
    if (a->queue)
        a->queue->attempt = NULL;
    if (a->queue && !a->queue->config)
        a->teller->job_attempts--;
    free(a);
}

static void attempt_done(void *user, const struct tell_result *r)
{
    struct tell_attempt *a = user;
    struct teller *t = a->teller;
    struct tell_queue *q = a->queue;
    if (!q) {
        a->done(a->user, r);
        attempt_close(a);
        return;
    }
    const int before = q->failures;
    const bool dropped = tell_queue_done(q, r, clock_boot_ms(), clock_wall_ms());
    attempt_close(a);
    if (!r->ok && !before)
        log_warn("hook_failed", "hook=%s why=%s todo=\"`ddpctl tell --test` shows more\"", LOG_Q(q->hook),
                 LOG_Q(r->text));
    if (r->ok && before)
        log_info("hook_works_again", "hook=%s failures=%d", LOG_Q(q->hook), before);
    if (dropped)
        queue_say_dropped(t, q, 1, r->text);
    if (q->deleted_id < q->last_id)
        teller_delete_soon(t);
    teller_arm(t, 0);
}

static void attempt_post(struct tell_attempt *a, const struct notice_record *n, const char *url,
                         enum tell_shape shape, bool public_only, int64_t timeout_ms)
{
    struct teller *t = a->teller;
    CLEANUP(buf_release) struct buf body = {0};
    char **headers = tell_headers(n, shape);
    tell_body(n, shape, store_cluster_id(t->service->store), &body);
    struct err e = {0};
    if (!t->http && tell_http_open(&t->http, &t->service->loop, t->hooks->tell_ca, &e) != ERR_OK) {
        struct tell_result r = {0};
        snprintf(r.text, sizeof r.text, "%.255s", e.msg);
        strv_free(headers);
        attempt_done(a, &r);
        return;
    }
    tell_http_post(t->http,
                   &(struct tell_request){.url = url,
                                          .headers = headers,
                                          .body = body.data,
                                          .size = body.len,
                                          .timeout_ms = timeout_ms,
                                          .public_only = public_only},
                   attempt_done, a);
    strv_free(headers);
}

static void attempt_begin(struct tell_attempt *a, const struct notice_record *n, const struct hook *hook)
{
    struct teller *t = a->teller;
    if (hook->post) {
        attempt_post(a, n, hook->post, hook->shape, false, hook->timeout_ms);
        return;
    }
    CLEANUP(buf_release) struct buf json = {0};
    tell_json(n, store_cluster_id(t->service->store), &json);
    a->program =
        tell_program_start(&t->service->loop, hook->run, n, json.data, hook->timeout_ms, attempt_done, a);
}

/* The rules may have changed since the job was submitted. */
static void attempt_begin_tell(struct tell_attempt *a, const struct notice_record *n)
{
    char *const *allow = a->teller->hooks->tell_allow;
    struct err e = {0};
    if (tell_check(n->url, allow, &e) != ERR_OK) {
        struct tell_result r = {.refused = true};
        snprintf(r.text, sizeof r.text, "%.255s", e.msg);
        a->queue->refusals = TELL_REFUSALS_MOST; /* at once */
        attempt_done(a, &r);
        return;
    }
    attempt_post(a, n, n->url, tell_shape_of((enum tell_shape)n->shape, n->url), !allow, JOB_TIMEOUT_MS);
}

static void queue_send(struct teller *t, struct tell_queue *q)
{
    struct notice_record n;
    struct err e = {0};
    if (store_notice_next(t->service->store, q->hook, q->last_id, &n, &e) != ERR_OK) {
        log_warn("notice_not_read", "hook=%s why=%s", LOG_Q(q->hook), LOG_Q(e.msg));
        q->next_at = clock_boot_ms() + RETRY_STORE_MS;
    } else if (!n.id) {
        q->waiting = 0;
    } else {
        struct tell_attempt *a = attempt_open(t, q);
        q->sent_id = n.id;
        if (q->config)
            attempt_begin(a, &n, q->config);
        else
            attempt_begin_tell(a, &n);
    }
    notice_record_release(&n);
}

/* Removes the empty queues of jobs. */
static void teller_forget_idle(struct teller *t)
{
    for (size_t i = t->hooks->count; i < t->count;) {
        struct tell_queue *q = t->queues[i];
        if (q->waiting || q->sent_id || q->deleted_id < q->last_id) {
            i++;
            continue;
        }
        t->jobs_sum.delivered += q->delivered;
        t->jobs_sum.failed += q->failed;
        t->jobs_sum.dropped += q->dropped;
        if (q->ok_ms > t->jobs_sum.ok_ms)
            t->jobs_sum.ok_ms = q->ok_ms;
        if (q->error_ms > t->jobs_sum.error_ms) {
            t->jobs_sum.error_ms = q->error_ms;
            free(t->jobs_sum.error);
            t->jobs_sum.error = steal(q->error);
        }
        tell_queue_release(q);
        free(q);
        t->queues[i] = t->queues[--t->count];
    }
}

/* ---- the timer's function */

/* The notices of a hook that is no longer in the configuration are dropped. */
static void teller_drop_unknown(struct teller *t, const struct notice_queue *found)
{
    struct err e = {0};
    int64_t deleted;
    if (store_notices_delete(t->service->store, found->hook, INT64_MAX, &deleted, &e) == ERR_OK)
        log_warn("hook_gone", "hook=%s dropped=%" PRId64 " why=\"it is no longer in coordinator.yaml\"",
                 LOG_Q(found->hook), deleted);
}

static bool teller_load(struct teller *t)
{
    struct notice_queue *list;
    size_t count;
    struct err e = {0};
    if (store_notice_queues(t->service->store, &list, &count, &e) != ERR_OK) {
        /* On a full disk the database may still have an older schema. */
        log_warn("notices_not_read", "why=%s", LOG_Q(e.msg));
        return false;
    }
    for (size_t i = 0; i < count; i++) {
        struct tell_queue *q = queue_find(t, list[i].hook);
        if (!q && list[i].hook[0] != '#')
            teller_drop_unknown(t, &list[i]);
        else
            (q ? q : queue_add(t, list[i].hook, NULL))->waiting = list[i].waiting;
    }
    store_notice_queues_free(list, count);
    return t->loaded = true;
}

static void teller_pass(uv_timer_t *timer)
{
    struct teller *t = timer->data;
    const int64_t now = clock_boot_ms();
    int64_t next = INT64_MAX;
    if (!t->loaded && !teller_load(t)) {
        teller_arm(t, RETRY_STORE_MS);
        return;
    }
    const size_t hooks = t->hooks->count;
    for (size_t i = 0; i < hooks; i++)
        if (tell_queue_due(t->queues[i], now))
            queue_send(t, t->queues[i]);
    struct tell_queue *first;
    while (t->count > hooks && t->job_attempts < JOB_ATTEMPTS_MOST &&
           (first = tell_queue_first(t->queues + hooks, t->count - hooks, now)))
        queue_send(t, first);
    /* If the jobs have no free attempt, the end of one of their attempts starts the next pass. */
    for (size_t i = 0; i < (t->job_attempts < JOB_ATTEMPTS_MOST ? t->count : hooks); i++) {
        const struct tell_queue *q = t->queues[i];
        if (q->waiting && !q->sent_id && q->next_at < next)
            next = q->next_at;
    }
    teller_forget_idle(t);
    if (next != INT64_MAX)
        teller_arm(t, next - now);
}

void teller_committed(struct teller *t, const struct change *changes, size_t count)
{
    bool any = false;
    if (!t || t->stopped)
        return;
    for (size_t i = 0; i < count; i++) {
        if (changes[i].kind != CHANGE_NOTICE)
            continue;
        any = true;
        if (!t->loaded) /* teller_load will find it in the database */
            continue;
        struct tell_queue *q = queue_find(t, changes[i].notice->hook);
        if (!q)
            q = queue_add(t, changes[i].notice->hook, NULL);
        q->waiting++;
    }
    if (!any)
        return;
    /* After all are counted: the database has them all, and a trim counts there. */
    for (size_t i = 0; i < t->count; i++) {
        const int64_t keep = t->queues[i]->config ? HOOK_KEEPS : JOB_KEEPS;
        if (t->queues[i]->waiting > keep + keep / 10)
            queue_trim(t, t->queues[i]);
    }
    teller_arm(t, 0);
}

/* ---- the start and the end */

struct teller *teller_open(struct service *s)
{
    struct teller *t = xcalloc(1, sizeof *t);
    t->service = s;
    t->hooks = s->options->hooks;
    for (size_t i = 0; i < t->hooks->count; i++)
        queue_add(t, t->hooks->rules[i].name, &t->hooks->hooks[i]);
    uv_timer_init(&s->loop, &t->timer);
    uv_timer_init(&s->loop, &t->delete_timer);
    uv_timer_init(&s->loop, &t->trim_timer);
    t->timer.data = t->delete_timer.data = t->trim_timer.data = t;
    uv_timer_start(&t->trim_timer, teller_trim, TRIM_EVERY_MS, TRIM_EVERY_MS);
    teller_arm(t, 0);
    return t;
}

static bool teller_has_due(const struct teller *t)
{
    for (size_t i = 0; i < t->count; i++)
        if (t->queues[i]->sent_id || (t->queues[i]->waiting && !t->queues[i]->failures))
            return true;
    return false;
}

void teller_finish(struct teller *t, int64_t ms)
{
    const int64_t end = clock_boot_ms() + ms;
    while (teller_has_due(t) && clock_boot_ms() < end)
        uv_run(&t->service->loop, UV_RUN_ONCE); /* this returns at least once a second: loop.c */
}

void teller_stop(struct teller *t)
{
    if (!t)
        return;
    t->stopped = true;
    tell_http_stop(t->http);
    for (struct tell_attempt *a = t->attempts; a; a = a->next)
        if (a->program)
            tell_program_abandon(a->program);
    uv_timer_stop(&t->timer);
    uv_timer_stop(&t->trim_timer);
    uv_timer_stop(&t->delete_timer);
    teller_delete(&t->delete_timer);
}

void teller_free(struct teller *t)
{
    if (!t)
        return;
    tell_http_free(t->http);
    while (t->attempts) {
        if (!t->attempts->queue)
            t->attempts->done(t->attempts->user, &(struct tell_result){.text = "the coordinator ends"});
        attempt_close(t->attempts);
    }
    for (size_t i = 0; i < t->count; i++) {
        tell_queue_release(t->queues[i]);
        free(t->queues[i]);
    }
    free(t->queues);
    tell_queue_release(&t->jobs_sum);
    free(t);
}

/* ---- for users */

size_t teller_count(const struct teller *t)
{
    return t->hooks->count;
}

static void state_add(struct teller_state *to, const struct tell_queue *q)
{
    to->waiting += q->waiting;
    to->delivered += q->delivered;
    to->failed += q->failed;
    to->dropped += q->dropped;
    if (q->ok_ms > to->ok_ms)
        to->ok_ms = q->ok_ms;
    if (q->error_ms > to->error_ms) {
        to->error_ms = q->error_ms;
        to->error = q->error;
    }
}

void teller_describe(const struct teller *t, size_t i, struct teller_state *out)
{
    *out = (struct teller_state){.name = HOOK_OF_JOBS};
    if (i == t->hooks->count) {
        state_add(out, &t->jobs_sum);
        for (size_t k = i; k < t->count; k++)
            state_add(out, t->queues[k]);
        return;
    }
    const struct hook *hook = &t->hooks->hooks[i];
    out->name = t->hooks->rules[i].name;
    out->url = hook->post;
    out->program = hook->post ? NULL : hook->run[0];
    state_add(out, t->queues[i]);
}

void teller_test(struct teller *t, size_t i, tell_done_fn done, void *user)
{
    const struct notice_record n = {.time_ms = clock_wall_ms(),
                                    .what = (char *)(uintptr_t) "test",
                                    .text = (char *)(uintptr_t) "a test message of ddpctl tell --test",
                                    .name = (char *)(uintptr_t) "",
                                    .user = (char *)(uintptr_t) "",
                                    .node = (char *)(uintptr_t) ""};
    struct tell_attempt *a = attempt_open(t, NULL);
    a->done = done;
    a->user = user;
    attempt_begin(a, &n, &t->hooks->hooks[i]);
}
