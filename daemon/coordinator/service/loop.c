#include "daemon/coordinator/service/loop.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "daemon/coordinator/service/access/audit.h"
#include "daemon/coordinator/service/agent_rpc.h"
#include "daemon/coordinator/service/backups.h"
#include "daemon/coordinator/service/calls.h"
#include "daemon/coordinator/service/commit_queue.h"
#include "daemon/coordinator/service/logs/log_tails.h"
#include "daemon/coordinator/service/logs/logs.h"
#include "daemon/coordinator/service/members.h"
#include "daemon/coordinator/service/metrics/http.h"
#include "daemon/coordinator/service/metrics/metrics_recorder.h"
#include "daemon/coordinator/service/metrics/stats.h"
#include "daemon/coordinator/service/receive_delay.h"
#include "daemon/coordinator/service/relays.h"
#include "daemon/coordinator/service/service_state.h"
#include "daemon/coordinator/service/tell/tell_rpc.h"
#include "daemon/coordinator/web/web_site.h"

/* libuv runs timers, then `prepare`, then waits for and handles I/O, then `check`. loop_end_turn runs in both
 * hooks, so what timers or I/O handed to the core is committed and sent before the loop waits again. */

#define PUBLISH_MS 1000 /* the age at which the page of metrics is renewed */
#define TRIM_FIRST_MS (60 * 1000)
#define TRIM_EVERY_MS (3600 * 1000)
#define TRIM_NEXT_MS 100  /* between the parts of one trim */
#define EVENTS_KEPT 10000 /* for each job, and for the cluster */
/* libuv's clock stops while the machine is suspended, but deadlines are in boot time, so the loop looks at
 * least this often. */
#define LONGEST_SLEEP_MS 1000

static void loop_on_tick(uv_timer_t *timer)
{
    struct service *s = timer->data;
    receive_delay_report(s); /* before the core looks for silent nodes */
    const struct core_now now = service_now();
    if (!s->commit_blocked && core_next_deadline(s->core) <= now.boot_ms)
        core_tick(s->core, now, &s->out);
}

static void loop_arm_tick(struct service *s)
{
    const int64_t deadline = core_next_deadline(s->core);
    int64_t wait = deadline == INT64_MAX ? LONGEST_SLEEP_MS : deadline - clock_boot_ms();
    if (wait > LONGEST_SLEEP_MS || s->commit_blocked)
        wait = LONGEST_SLEEP_MS;
    uv_timer_start(&s->tick, loop_on_tick, wait > 0 ? (uint64_t)wait : 0, 0);
    receive_delay_next_turn(s, wait > 0 ? wait : 0);
}

static void loop_on_trim(uv_timer_t *timer)
{
    struct service *s = timer->data;
    struct err e = {0};
    bool more = false;
    if (s->commit_blocked)
        return;
    if (store_trim_events(s->store, EVENTS_KEPT, &more, &e) != ERR_OK)
        log_warn("events_not_trimmed", "why=%s", LOG_Q(e.msg));
    if (more) /* after other work of the loop */
        uv_timer_start(&s->trim, loop_on_trim, TRIM_NEXT_MS, TRIM_EVERY_MS);
    else
        audit_trim(s);
}

static double oldest_queued_age(struct service *s, int64_t now)
{
    size_t count;
    double oldest = 0;
    int64_t *ids = core_job_ids(s->core, 0, &count);
    for (size_t i = 0; i < count; i++) {
        const struct job_record *job = core_job(s->core, ids[i]);
        const double age = (double)(now - job->created_ms) / 1e3;
        if (job->state == JOB_QUEUED && age > oldest)
            oldest = age;
    }
    free(ids);
    return oldest;
}

void loop_publish_stats(struct service *s)
{
    const int64_t now = clock_boot_ms();
    struct core_totals totals;
    CLEANUP(stats_jobs_release) struct stats_jobs jobs = {0};
    struct buf text = {0};
    if (!s->http || now - s->published_ms < PUBLISH_MS)
        return;
    s->published_ms = now;
    core_totals(s->core, &totals);
    s->stats.oldest_queued_s = oldest_queued_age(s, clock_wall_ms());
    s->stats.room_bytes = store_room(s->store);
    s->stats.points_dropped = metrics_recorder_dropped(s->recorder);
    s->stats.backup_age_s = s->backups ? (double)backups_age_ms(s->backups) / 1e3 : -1;
    s->stats.backup_failures = s->backups ? backups_failures(s->backups) : 0;
    relays_count(s, &s->stats.relays);
    tell_count(s, &s->stats.hooks);
    s->stats.log_copy_bytes = log_tails_bytes(s->log_tails);
    stats_jobs_collect(s->core, clock_wall_ms(), &jobs);
    stats_print(&s->stats, &totals, &jobs, store_epoch(s->store), &text);
    http_publish(s->http, &text);
}

static void loop_end_turn(struct service *s)
{
    receive_delay_turn_ended(s);
    if (!s->commit_blocked) /* else its own timer tries the commit again */
        commit_queue_flush(s);
    /* Wishes and statuses are built from memory, so they wait until everything in memory is durable. */
    if (!s->commit_blocked && s->out.change_count == 0 && s->out.effect_count == 0) {
        if (s->wishes_due)
            agent_sessions_push(s);
        if (s->watches_due)
            calls_push(s);
        if (s->run_due)
            members_push(s);
    }
    if (s->logs_due)
        logs_push(s);
    loop_publish_stats(s);
    if (s->site)
        web_site_tick(s->site, clock_boot_ms());
    loop_arm_tick(s);
}

static void loop_on_prepare(uv_prepare_t *prepare)
{
    loop_end_turn(prepare->data);
}

static void loop_on_check(uv_check_t *check)
{
    loop_end_turn(check->data);
}

void loop_open(struct service *s)
{
    uv_loop_init(&s->loop);
    uv_loop_configure(&s->loop, UV_METRICS_IDLE_TIME);
    uv_prepare_init(&s->loop, &s->prepare);
    uv_check_init(&s->loop, &s->check);
    uv_timer_init(&s->loop, &s->tick);
    uv_timer_init(&s->loop, &s->retry);
    uv_timer_init(&s->loop, &s->trim);
    uv_timer_init(&s->loop, &s->memory_timer);
    s->memory_timer.data = s;
    uv_timer_init(&s->loop, &s->query_timer);
    uv_timer_init(&s->loop, &s->refusal_timer);
    uv_timer_init(&s->loop, &s->logs_timer);
    uv_signal_init(&s->loop, &s->term);
    uv_signal_init(&s->loop, &s->interrupt);
    s->prepare.data = s->check.data = s->tick.data = s->retry.data = s->trim.data = s->query_timer.data =
        s->term.data = s->interrupt.data = s;
}

void loop_start(struct service *s)
{
    uv_prepare_start(&s->prepare, loop_on_prepare);
    uv_check_start(&s->check, loop_on_check);
    uv_timer_start(&s->trim, loop_on_trim, TRIM_FIRST_MS, TRIM_EVERY_MS);
}
