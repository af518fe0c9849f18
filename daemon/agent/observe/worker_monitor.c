#include "daemon/agent/observe/worker_monitor.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <uv.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "daemon/agent/observe/worker_samples.h"
#include "daemon/supervisor/protocol/log_place.h"
#include "proto/rpc_codec.h"

#define LOOK_EVERY_MS 1000
#define LOOK_SHARE 100 /* a look takes at most this part of the time */
#define BUSY_SHARE 50  /* CPU time that is worth mentioning: this part of the time, 2 % */
#define STEADY_MS                                                                                            \
    700              /* less apart, two looks do not tell who is idle: the kernel counts in ticks of 10 ms   \
                      */
#define IDLE_MS 1500 /* without CPU time, until it is said */
#define SILENT_MS 30000 /* without output or report, until it is said; sooner for a short stall_timeout */
#define MOVED_MS 500    /* since when it is quiet: said again when that differs by more */
#define PROBES_MAX 64

struct worker {
    struct monitored_worker who;
    bool seen;
    char stuck;
    int64_t cpu_ms, cpu_at;         /* of the look that idleness is counted from */
    int64_t busy_at;                /* BOOTTIME: the last look that found it busy */
    int64_t output_ms;              /* wall */
    int64_t report_at;              /* BOOTTIME, 0: none */
    int64_t told_idle, told_silent; /* BOOTTIME, since when, as told; 0: not */
    char told_stuck;
};

struct worker_monitor {
    struct worker_monitor_options options;
    struct worker *workers;
    size_t count, cap;
    Ddp__V1__Probe probes[PROBES_MAX];
    size_t probe_count;
    struct worker_samples look;
    bool looking, closing, tell; /* tell: a new session knows nothing */
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

/* ---- what is told unasked */

static int64_t silence_start(const struct worker *k, int64_t now, int64_t wall)
{
    int64_t age = k->output_ms ? wall - k->output_ms : INT64_MAX;

    if (k->report_at && now - k->report_at < age)
        age = now - k->report_at;
    if (age == INT64_MAX || age < 0)
        age = 0;
    return now - age;
}

static int64_t silence_threshold(const struct worker *k)
{
    int64_t half = k->who.stall_timeout_ms / 2;

    return half && half < SILENT_MS ? half : SILENT_MS;
}

static bool time_moved(int64_t a, int64_t b)
{
    return (!a != !b) || llabs((long long)(a - b)) > MOVED_MS;
}

/* Fills what is quiet of it; true: the coordinator must hear of it again. */
static bool activity_settle(struct worker *k, int64_t now, int64_t wall, Ddp__V1__SpawnActivity *out)
{
    int64_t silent = silence_start(k, now, wall), idle = k->busy_at;
    char stuck = k->stuck;
    bool news;

    silent = k->seen && now - silent >= silence_threshold(k) ? silent : 0;
    idle = k->seen && now - idle >= IDLE_MS ? idle : 0;
    stuck = idle ? stuck : 0;
    news = time_moved(silent, k->told_silent) || time_moved(idle, k->told_idle) || stuck != k->told_stuck;
    k->told_silent = silent;
    k->told_idle = idle;
    k->told_stuck = stuck;
    ddp__v1__spawn_activity__init(out);
    out->job = k->who.job;
    out->spawn = k->who.spawn;
    out->idle_ms = idle ? now - idle : -1;
    out->silent_ms = silent ? now - silent : -1;
    out->state = (char *)(stuck == 'T' ? "T" : stuck == 'D' ? "D" : "");
    return news;
}

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
        news = activity_settle(&w->workers[i], now, wall, &items[i]) || news;
        if (items[i].idle_ms >= 0 || items[i].silent_ms >= 0)
            list[activity.n_spawns++] = &items[i];
    }
    activity.spawns = list;
    up.body_case = DDP__V1__AGENT_UP__BODY_ACTIVITY;
    up.activity = &activity;
    if (news)
        w->tell = w->options.send(w->options.ctx, &up, &e) != ERR_OK;
    free(list);
    free(items);
}

/* ---- what is told when asked */

static void process_message_fill(const struct sampled_process *from, Ddp__V1__ProcessProbe *out)
{
    static const char states[] = "R\0S\0D\0T\0t\0Z\0I\0X";
    const char *state = "";

    for (size_t i = 0; i < sizeof(states); i += 2)
        if (states[i] == from->p.state)
            state = &states[i];
    ddp__v1__process_probe__init(out);
    out->pid = from->p.pid;
    out->parent = from->p.parent;
    out->name = rpc_utf8_clean((char *)from->p.name);
    out->state = (char *)state;
    out->waits_in = (char *)from->call;
    out->waits_for = rpc_utf8_clean((char *)from->target);
    out->cpu_ms = from->p.cpu_ms;
    out->memory_bytes = from->p.memory_bytes;
    out->threads = from->p.threads;
    out->stack = from->stack;
    out->n_stack = strv_len(from->stack);
}

static Ddp__V1__WorkerProbe *worker_message_make(const struct worker *k, const struct worker_sample *l,
                                                 int64_t now, int64_t wall)
{
    Ddp__V1__WorkerProbe *out = xcalloc(1, sizeof(*out));

    ddp__v1__worker_probe__init(out);
    out->spawn = k->who.spawn;
    out->rank = k->who.rank;
    out->local_rank = k->who.local_rank;
    out->pid = k->who.pid;
    out->probed = l->there;
    out->cpu_ms = l->cpu_ms;
    out->idle_ms = k->seen ? now - k->busy_at : -1;
    out->output_age_ms = l->output_ms ? wall - l->output_ms : -1;
    out->report_age_ms = k->report_at ? now - k->report_at : -1;
    out->processes_left_out = (int32_t)l->left_out;
    out->processes = xcalloc(l->process_count + 1, sizeof(Ddp__V1__ProcessProbe *));
    for (size_t i = 0; i < l->process_count; i++) {
        out->processes[i] = xcalloc(1, sizeof(Ddp__V1__ProcessProbe));
        process_message_fill(&l->processes[i], out->processes[i]);
        out->n_processes++;
    }
    return out;
}

static void worker_message_free(Ddp__V1__WorkerProbe *worker)
{
    for (size_t i = 0; i < worker->n_processes; i++)
        free(worker->processes[i]);
    free(worker->processes);
    free(worker);
}

static void probe_answer_send(struct worker_monitor *w, const Ddp__V1__Probe *probe)
{
    Ddp__V1__ProbeAnswer answer = DDP__V1__PROBE_ANSWER__INIT;
    Ddp__V1__AgentUp up = DDP__V1__AGENT_UP__INIT;
    Ddp__V1__WorkerProbe **list = xcalloc(w->look.count + 1, sizeof(Ddp__V1__WorkerProbe *));
    int64_t now = clock_boot_ms(), wall = clock_wall_ms();
    struct err e;

    for (size_t i = 0; i < w->look.count; i++) {
        const struct worker_sample *l = &w->look.items[i];
        const struct worker *k = worker_find(w, l->job, l->spawn);

        if (k && l->job == probe->job && l->generation == probe->generation)
            list[answer.n_workers++] = worker_message_make(k, l, now, wall);
    }
    answer.probe = probe->probe;
    answer.workers = list;
    up.body_case = DDP__V1__AGENT_UP__BODY_PROBE_ANSWER;
    up.probe_answer = &answer;
    if (w->options.send(w->options.ctx, &up, &e))
        log_warn("probe_not_answered", "job=%" PRId64 " why=%s", probe->job, LOG_Q(e.msg));
    for (size_t i = 0; i < answer.n_workers; i++)
        worker_message_free(list[i]);
    free(list);
}

/* ---- looking */

static void activity_apply(struct worker *k, const struct worker_sample *l, int64_t at)
{
    int64_t used = l->cpu_ms - k->cpu_ms, passed = at - k->cpu_at;

    if (!l->there)
        return;
    if (k->seen && passed < STEADY_MS && used < STEADY_MS / 4) {
        k->stuck = l->stuck;
        k->output_ms = l->output_ms;
        return;
    }
    /* less than before: a child has ended that nobody waited for */
    if (!k->seen || used < 0 || used * BUSY_SHARE >= passed)
        k->busy_at = at;
    k->seen = true;
    k->cpu_ms = l->cpu_ms;
    k->cpu_at = at;
    k->stuck = l->stuck;
    k->output_ms = l->output_ms;
}

static void on_monitor_timer(uv_timer_t *timer)
{
    sampling_start(timer->data);
}

static bool samples_are_detailed(const struct worker_monitor *w)
{
    for (size_t i = 0; i < w->look.count; i++)
        if (w->look.items[i].detail)
            return true;
    return false;
}

/* Probes that came while an earlier look was under way are served by the next one. */
static void probes_answer(struct worker_monitor *w)
{
    size_t kept = 0;

    for (size_t i = 0; i < w->probe_count; i++) {
        bool served = false;

        for (size_t k = 0; k < w->look.count && !served; k++)
            served = w->look.items[k].detail && w->look.items[k].job == w->probes[i].job;
        if (served || !w->count)
            probe_answer_send(w, &w->probes[i]);
        else
            w->probes[kept++] = w->probes[i];
    }
    w->probe_count = kept;
}

static void monitor_free(struct worker_monitor *w)
{
    worker_samples_release(&w->look);
    free(w->workers);
    free(w);
}

static void on_samples_taken(uv_work_t *work, int status)
{
    struct worker_monitor *w = work->data;
    int64_t pause = w->look.took_ms * LOOK_SHARE;

    (void)status;
    w->looking = false;
    if (w->closing) {
        monitor_free(w);
        return;
    }
    for (size_t i = 0; i < w->look.count; i++) {
        struct worker *k = worker_find(w, w->look.items[i].job, w->look.items[i].spawn);

        if (k)
            activity_apply(k, &w->look.items[i], w->look.done_ms);
    }
    activity_send(w);
    if (samples_are_detailed(w) || !w->count)
        probes_answer(w);
    worker_samples_release(&w->look);
    if (w->probe_count)
        sampling_start(w);
    else if (w->count)
        BUG_ON(uv_timer_start(w->timer, on_monitor_timer,
                              (uint64_t)(pause > LOOK_EVERY_MS ? pause : LOOK_EVERY_MS), 0));
}

static void on_sample_work(uv_work_t *work)
{
    struct worker_monitor *w = work->data;

    worker_samples_take(&w->look);
}

static bool worker_is_probed(const struct worker_monitor *w, const struct monitored_worker *who)
{
    for (size_t i = 0; i < w->probe_count; i++)
        if (w->probes[i].job == who->job && w->probes[i].generation == who->generation)
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
    bool wanted = false;

    if (w->looking || w->closing)
        return;
    for (size_t i = 0; i < w->count; i++)
        wanted = wanted || worker_is_probed(w, &w->workers[i].who);
    if (!wanted)
        probes_answer_empty(w);
    if (!w->count)
        return;
    w->look = (struct worker_samples){.items = xcalloc(w->count, sizeof(*w->look.items)), .count = w->count};
    for (size_t i = 0; i < w->count; i++) {
        const struct monitored_worker *who = &w->workers[i].who;

        w->look.items[i] = (struct worker_sample){.job = who->job,
                                                  .spawn = who->spawn,
                                                  .generation = who->generation,
                                                  .pid = who->pid,
                                                  .rank = who->rank,
                                                  .local_rank = who->local_rank,
                                                  .detail = worker_is_probed(w, who)};
        w->look.items[i].log_dir =
            log_place_path(w->options.log_dir, who->job, who->generation, w->options.node, who->local_rank);
    }
    w->looking = true;
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
    }
    free(w->workers);
    w->workers = fresh;
    w->count = w->cap = count;
    if (first)
        sampling_start(w);
}

void worker_monitor_reported(struct worker_monitor *w, int64_t job, int64_t spawn)
{
    struct worker *k = worker_find(w, job, spawn);

    if (k)
        k->report_at = clock_boot_ms();
}

void worker_monitor_probe(struct worker_monitor *w, const Ddp__V1__Probe *probe)
{
    if (w->probe_count == PROBES_MAX)
        return; /* whoever asked tires of waiting */
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
    if (!w->looking)
        monitor_free(w);
}
