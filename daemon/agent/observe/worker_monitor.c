#include "daemon/agent/observe/worker_monitor.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <uv.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "daemon/agent/observe/probe_message.h"
#include "daemon/agent/observe/worker_activity.h"
#include "daemon/agent/observe/worker_samples.h"
#include "daemon/agent/observe/worker_usage.h"
#include "daemon/supervisor/protocol/log_place.h"
#include "proto/rpc_usage.h"

#define SAMPLE_EVERY_MS 1000
#define SAMPLE_SHARE 100 /* readings take at most this fraction (1 / 100) of the time */
#define USAGE_EVERY_MS 5000
/* A sample that comes this much too early is measured all the same, because the next one would be late. */
#define USAGE_SLACK_MS 500
#define USAGE_MOST 1024 /* workers of one message */
#define PROBES_MAX 64

struct worker {
    struct monitored_worker who;
    struct worker_activity activity;
    struct worker_usage usage;
};

struct worker_monitor {
    struct worker_monitor_options options;
    struct worker *workers;
    size_t count, cap;
    Ddp__V1__Probe probes[PROBES_MAX];
    size_t probe_count;
    struct worker_samples samples;
    bool sampling; /* a pool thread is reading */
    bool closing;
    int64_t measure_at; /* when workers are to be measured again */
    bool tell;          /* the activity must be sent although it has not changed */
    uv_work_t work;
    uv_timer_t *timer;
    uv_loop_t *loop;
};

static void sampling_start(struct worker_monitor *w);

static struct worker *worker_find(struct worker_monitor *w, int64_t job, int64_t spawn)
{
    for (size_t i = 0; i < w->count; i++)
        if (w->workers[i].who.job == job && w->workers[i].who.spawn == spawn)
            return &w->workers[i];
    return NULL;
}

/* ---- activity: sent when it changes */

static void activity_send(struct worker_monitor *w)
{
    Ddp__V1__Activity activity = DDP__V1__ACTIVITY__INIT;
    Ddp__V1__AgentUp up = DDP__V1__AGENT_UP__INIT;
    Ddp__V1__SpawnActivity *items = xcalloc(w->count + 1, sizeof(*items));
    Ddp__V1__SpawnActivity **list = xcalloc(w->count + 1, sizeof(Ddp__V1__SpawnActivity *));
    int64_t now = clock_boot_ms(), wall = clock_wall_ms();
    bool news = w->tell;
    struct err e;

    for (size_t i = 0; i < w->count; i++) {
        struct worker *k = &w->workers[i];

        news = worker_activity_tell(&k->activity, k->who.stall_timeout_ms, now, wall, &items[i]) || news;
        items[i].job = k->who.job;
        items[i].spawn = k->who.spawn;
        /* the message names only quiet workers: absence means that a worker gets on */
        if (items[i].idle_ms >= 0 || items[i].silent_ms >= 0)
            list[activity.n_spawns++] = &items[i];
    }
    activity.spawns = list;
    up.body_case = DDP__V1__AGENT_UP__BODY_ACTIVITY;
    up.activity = &activity;
    if (news)
        w->tell = w->options.send(w->options.ctx, &up, &e) != ERR_OK;
    for (size_t i = 0; news && !w->tell && i < w->count; i++)
        worker_activity_sent(&w->workers[i].activity, &items[i], now);
    free(list);
    free(items);
}

/* ---- usage: sent once, when it was measured; the next message replaces it */

static void usage_send_message(struct worker_monitor *w, Ddp__V1__SpawnUsage **list, size_t count)
{
    Ddp__V1__UsageReport report = DDP__V1__USAGE_REPORT__INIT;
    Ddp__V1__AgentUp up = DDP__V1__AGENT_UP__INIT;
    struct err e;

    report.spawns = list;
    report.n_spawns = count;
    up.body_case = DDP__V1__AGENT_UP__BODY_USAGE;
    up.usage = &report;
    if (w->options.send(w->options.ctx, &up, &e))
        log_debug("usage_not_sent", "why=%s", LOG_Q(e.msg));
}

static void usage_send(struct worker_monitor *w)
{
    size_t count = 0, most = w->samples.count;
    Ddp__V1__SpawnUsage *items = xcalloc(most + 1, sizeof(*items));
    Ddp__V1__Usage *usages = xcalloc(most + 1, sizeof(*usages));
    Ddp__V1__SpawnUsage **list = xcalloc(most + 1, sizeof(Ddp__V1__SpawnUsage *));

    for (size_t i = 0; i < most; i++) {
        const struct worker_sample *l = &w->samples.items[i];
        struct worker *k = l->measure ? worker_find(w, l->job, l->spawn) : NULL;
        struct usage usage;

        if (!k || !worker_usage_update(&k->usage, l, w->samples.done_ms, &usage))
            continue;
        if (w->options.add_gpus)
            w->options.add_gpus(w->options.ctx, l->job, l->spawn, &usage);
        rpc_usage_pack(&usage, &usages[count]);
        ddp__v1__spawn_usage__init(&items[count]);
        items[count].job = l->job;
        items[count].spawn = l->spawn;
        items[count].usage = &usages[count];
        list[count] = &items[count];
        count++;
    }
    for (size_t i = 0; i < count; i += USAGE_MOST)
        usage_send_message(w, list + i, count - i < USAGE_MOST ? count - i : USAGE_MOST);
    free(list);
    free(usages);
    free(items);
}

/* ---- probes: answered when asked */

static void probe_answer_send(struct worker_monitor *w, const Ddp__V1__Probe *probe)
{
    Ddp__V1__ProbeAnswer answer = DDP__V1__PROBE_ANSWER__INIT;
    Ddp__V1__AgentUp up = DDP__V1__AGENT_UP__INIT;
    Ddp__V1__WorkerProbe **list = xcalloc(w->samples.count + 1, sizeof(Ddp__V1__WorkerProbe *));
    int64_t now = clock_boot_ms(), wall = clock_wall_ms();
    struct err e;

    for (size_t i = 0; i < w->samples.count; i++) {
        const struct worker_sample *l = &w->samples.items[i];
        const struct worker *k = worker_find(w, l->job, l->spawn);

        if (k && l->job == probe->job)
            list[answer.n_workers++] = probe_message_make(l, &k->activity, now, wall);
    }
    answer.probe = probe->probe;
    answer.workers = list;
    up.body_case = DDP__V1__AGENT_UP__BODY_PROBE_ANSWER;
    up.probe_answer = &answer;
    if (w->options.send(w->options.ctx, &up, &e))
        log_warn("probe_not_answered", "job=%" PRId64 " why=%s", probe->job, LOG_Q(e.msg));
    for (size_t i = 0; i < answer.n_workers; i++)
        probe_message_free(list[i]);
    free(list);
}

/* ---- sampling */

static void on_monitor_timer(uv_timer_t *timer)
{
    sampling_start(timer->data);
}

static bool samples_are_detailed(const struct worker_monitor *w)
{
    for (size_t i = 0; i < w->samples.count; i++)
        if (w->samples.items[i].detail)
            return true;
    return false;
}

/* A probe that came while a reading was under way is answered by the next one, which has the details. */
static void probes_answer(struct worker_monitor *w)
{
    size_t kept = 0;

    for (size_t i = 0; i < w->probe_count; i++) {
        bool served = false;

        for (size_t k = 0; k < w->samples.count && !served; k++)
            served = w->samples.items[k].detail && w->samples.items[k].job == w->probes[i].job;
        if (served || !w->count) /* without workers the answer is empty */
            probe_answer_send(w, &w->probes[i]);
        else
            w->probes[kept++] = w->probes[i];
    }
    w->probe_count = kept;
}

static void workers_free(struct worker_monitor *w)
{
    for (size_t i = 0; i < w->count; i++)
        free(w->workers[i].who.cgroup);
    free(w->workers);
}

static void monitor_free(struct worker_monitor *w)
{
    worker_samples_release(&w->samples);
    workers_free(w);
    free(w);
}

static void on_samples_taken(uv_work_t *work, int status)
{
    struct worker_monitor *w = work->data;
    int64_t pause = w->samples.took_ms * SAMPLE_SHARE;

    (void)status;
    w->sampling = false;
    if (w->closing) {
        monitor_free(w);
        return;
    }
    /* workers may have come and gone meanwhile */
    for (size_t i = 0; i < w->samples.count; i++) {
        struct worker *k = worker_find(w, w->samples.items[i].job, w->samples.items[i].spawn);

        if (k)
            worker_activity_update(&k->activity, &w->samples.items[i], w->samples.done_ms);
    }
    activity_send(w);
    usage_send(w);
    if (samples_are_detailed(w) || !w->count)
        probes_answer(w);
    worker_samples_release(&w->samples);
    if (w->probe_count)
        sampling_start(w);
    else if (w->count)
        BUG_ON(uv_timer_start(w->timer, on_monitor_timer,
                              (uint64_t)(pause > SAMPLE_EVERY_MS ? pause : SAMPLE_EVERY_MS), 0));
}

static void on_sample_work(uv_work_t *work)
{
    struct worker_monitor *w = work->data;

    worker_samples_take(&w->samples);
}

static bool worker_is_probed(const struct worker_monitor *w, const struct monitored_worker *who)
{
    for (size_t i = 0; i < w->probe_count; i++)
        if (w->probes[i].job == who->job)
            return true;
    return false;
}

static void probes_answer_empty(struct worker_monitor *w)
{
    for (size_t i = 0; i < w->probe_count; i++)
        probe_answer_send(w, &w->probes[i]);
    w->probe_count = 0;
}

static void sampling_start(struct worker_monitor *w)
{
    bool wanted = false, measure = clock_boot_ms() + USAGE_SLACK_MS >= w->measure_at;

    if (w->sampling || w->closing)
        return;
    for (size_t i = 0; i < w->count; i++)
        wanted = wanted || worker_is_probed(w, &w->workers[i].who);
    if (!wanted) /* the probes are about workers that are not here any more */
        probes_answer_empty(w);
    if (!w->count)
        return;
    if (measure)
        w->measure_at = clock_boot_ms() + (w->options.usage_ms ? w->options.usage_ms : USAGE_EVERY_MS);
    w->samples =
        (struct worker_samples){.items = xcalloc(w->count, sizeof(*w->samples.items)), .count = w->count};
    for (size_t i = 0; i < w->count; i++) {
        const struct monitored_worker *who = &w->workers[i].who;

        w->samples.items[i] =
            (struct worker_sample){.job = who->job,
                                   .spawn = who->spawn,
                                   .pid = who->pid,
                                   .detail = worker_is_probed(w, who),
                                   .measure = measure,
                                   .cgroup = measure ? xstrdup(who->cgroup) : NULL,
                                   .wait = worker_activity_dozes(&w->workers[i].activity, clock_boot_ms())};
        w->samples.items[i].log_dir = log_place_path(w->options.log_dir, who->job, who->first_generation,
                                                     w->options.node, who->first_local_rank);
    }
    w->sampling = true;
    w->work.data = w;
    BUG_ON(uv_queue_work(w->loop, &w->work, on_sample_work, on_samples_taken));
}

/* ---- the owner's calls */

struct worker_monitor *worker_monitor_create(struct uv_loop_s *loop,
                                             const struct worker_monitor_options *options)
{
    struct worker_monitor *w = xcalloc(1, sizeof(*w));

    w->options = *options;
    w->loop = loop;
    w->timer = xcalloc(1, sizeof(*w->timer));
    BUG_ON(uv_timer_init(loop, w->timer));
    w->timer->data = w;
    return w;
}

void worker_monitor_set(struct worker_monitor *w, const struct monitored_worker *list, size_t count)
{
    struct worker *fresh = xcalloc(count + 1, sizeof(*fresh));
    bool first = !w->count && count;

    for (size_t i = 0; i < count; i++) {
        struct worker *old = worker_find(w, list[i].job, list[i].spawn);

        if (old && old->who.pid == list[i].pid)
            fresh[i] = *old;
        fresh[i].who = list[i];
        fresh[i].who.cgroup = xstrdup(list[i].cgroup);
    }
    workers_free(w);
    w->workers = fresh;
    w->count = w->cap = count;
    if (first)
        sampling_start(w);
}

void worker_monitor_reported(struct worker_monitor *w, int64_t job, int64_t spawn)
{
    struct worker *k = worker_find(w, job, spawn);

    if (k)
        k->activity.report_at = clock_boot_ms();
}

void worker_monitor_probe(struct worker_monitor *w, const Ddp__V1__Probe *probe)
{
    if (w->probe_count == PROBES_MAX)
        return; /* the asker stops waiting for the answer by itself */
    w->probes[w->probe_count++] = *probe;
    sampling_start(w);
}

void worker_monitor_new_session(struct worker_monitor *w)
{
    w->probe_count = 0;
    w->tell = true;
}

static void on_monitor_timer_closed(uv_handle_t *handle)
{
    free(handle);
}

void worker_monitor_close(struct worker_monitor *w)
{
    if (!w)
        return;
    w->closing = true;
    uv_close((uv_handle_t *)w->timer, on_monitor_timer_closed);
    if (!w->sampling)
        monitor_free(w);
}
