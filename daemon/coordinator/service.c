#include "daemon/coordinator/service.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "daemon/coordinator/http.h"
#include "daemon/coordinator/notify.h"
#include "daemon/coordinator/recorder.h"
#include "daemon/coordinator/service_impl.h"

/* The loop around the core. In one turn of it everything that arrived is handed to the core; what the core
 * decided is one commit; then replies, acknowledgements and wishes go out. kill -9 at any point leaves either
 * nothing of a turn or all of it, and no peer has been told of what is not on disk.
 *
 * When the disk does not take the commit, nothing is lost and nothing diverges: the list waits, and is tried
 * again twice a second. Meanwhile deadlines rest, changes that users ask for are refused, the newest facts of
 * each agent are kept, and heartbeats are still answered, so that what runs goes on running. A job whose
 * submit was in the waiting list is refused to its client and cancelled when the list has gone through. */

#define RETRY_MS 500
#define PUBLISH_MS 1000
#define DRAIN_MS 2000
#define TRIM_FIRST_MS (60 * 1000)
#define TRIM_EVERY_MS (3600 * 1000)
#define EVENTS_KEPT 10000     /* of each job, and of the cluster */
#define LONGEST_SLEEP_MS 1000 /* libuv counts a clock that stands still while the machine sleeps */

struct core_now service_now(void)
{
    return (struct core_now){.boot_ms = clock_boot_ms(), .wall_ms = clock_wall_ms()};
}

uint64_t service_handle(struct service *s)
{
    return ++s->last_handle;
}

enum err_code service_accepts(const struct service *s, struct err *e)
{
    if (s->stuck)
        return err_set(e, ERR_RESOURCE_EXHAUSTED,
                       "the coordinator's disk is full (%s): free some space and try again",
                       s->options->state);
    return ERR_OK;
}

/* While commits fail: acknowledgements need not wait for them, since a lease is no durable fact. */
static void event_while_stuck(struct service *s, const struct core_event *event)
{
    struct core_out now = {0}, acks = {0};
    core_event(s->core, event, service_now(), &now);
    for (size_t i = 0; i < now.change_count; i++) {
        s->out.changes =
            array_grow(s->out.changes, s->out.change_count, &s->out.change_cap, sizeof *s->out.changes);
        s->out.changes[s->out.change_count++] = now.changes[i];
    }
    for (size_t i = 0; i < now.effect_count; i++) {
        struct core_out *to = now.effects[i].kind == EFFECT_ACK ? &acks : &s->out;
        to->effects = array_grow(to->effects, to->effect_count, &to->effect_cap, sizeof *to->effects);
        to->effects[to->effect_count++] = now.effects[i];
    }
    now.change_count = now.effect_count = 0; /* they moved */
    effects_run(s, &acks);
    core_out_release(&acks);
    core_out_release(&now);
}

void service_event(struct service *s, const struct core_event *event)
{
    if (s->stuck)
        event_while_stuck(s, event);
    else
        core_event(s->core, event, service_now(), &s->out);
}

/* ---- commits */

/* Clients whose jobs are in the list that the disk refuses hear so now. */
static void refuse_waiting_submits(struct service *s)
{
    for (size_t i = 0; i < s->out.effect_count; i++) {
        const struct core_effect *f = &s->out.effects[i];
        struct call *c = f->kind == EFFECT_REPLY ? handles_get(&s->calls, f->call) : NULL;
        if (!c || c->kind != CALL_SUBMIT || f->err.code != ERR_OK || f->existed)
            continue;
        struct err e = {0};
        if (service_accepts(s, &e) != ERR_OK)
            rpc_call_fail(c->rpc, &e);
        call_take(s, f->call);
        s->refused = array_grow(s->refused, s->refused_count, &s->refused_cap, sizeof *s->refused);
        s->refused[s->refused_count++] = f->job;
    }
}

static void on_retry(uv_timer_t *timer)
{
    service_flush(timer->data);
}

static void become_stuck(struct service *s, const struct err *e)
{
    s->stats.commit_failures++;
    s->stats.pending_changes = s->out.change_count;
    if (s->stuck)
        return;
    if (e->code != ERR_RESOURCE_EXHAUSTED && e->code != ERR_UNAVAILABLE) {
        log_error("commit_failed", "why=%s", LOG_Q(e->msg));
        abort(); /* memory and database disagree: the next start builds memory anew */
    }
    log_error("disk_full",
              "pending=%zu why=%s todo=\"free space in the state directory; new jobs are refused meanwhile\"",
              s->out.change_count, LOG_Q(e->msg));
    s->stuck = true;
    refuse_waiting_submits(s);
    uv_timer_start(&s->retry, on_retry, RETRY_MS, RETRY_MS);
}

static void become_free(struct service *s)
{
    log_info("disk_free_again", "committed=%zu", s->stats.pending_changes);
    s->stuck = false;
    s->stats.pending_changes = 0;
    uv_timer_stop(&s->retry);
    for (size_t i = 0; i < s->refused_count; i++)
        service_event(s, &(struct core_event){.kind = CORE_CANCEL,
                                              .call = service_handle(s),
                                              .cancel = {.job = s->refused[i], .kill = true}});
    s->refused_count = 0;
    sessions_release_held(s);
}

static enum err_code commit(struct service *s, struct err *e)
{
    const int64_t start = clock_mono_ns();
    if (store_commit(s->store, s->out.changes, s->out.change_count, e) != ERR_OK)
        return e->code;
    stats_commit(&s->stats, clock_mono_ns() - start, s->out.change_count);
    for (size_t i = 0; i < s->out.change_count; i++)
        if (s->out.changes[i].kind == CHANGE_JOB_FORGET)
            recorder_forget(s->recorder, s->out.changes[i].id);
    return ERR_OK;
}

static void carry_out(struct service *s)
{
    struct core_out done = s->out;
    s->out = s->spare;
    effects_run(s, &done);
    core_out_clear(&done);
    s->spare = done;
}

void service_flush(struct service *s)
{
    struct err e = {0};
    if (s->out.change_count && commit(s, &e) != ERR_OK) {
        become_stuck(s, &e);
        return;
    }
    if (s->out.change_count || s->out.effect_count)
        carry_out(s);
    if (s->stuck)
        become_free(s);
}

/* ---- the loop's turns */

static void arm_tick(struct service *s);

static void on_tick(uv_timer_t *timer)
{
    struct service *s = timer->data;
    const struct core_now now = service_now();
    if (!s->stuck && core_next_deadline(s->core) <= now.boot_ms)
        core_tick(s->core, now, &s->out);
}

static void arm_tick(struct service *s)
{
    const int64_t deadline = core_next_deadline(s->core);
    int64_t wait = deadline == INT64_MAX ? LONGEST_SLEEP_MS : deadline - clock_boot_ms();
    if (wait > LONGEST_SLEEP_MS || s->stuck)
        wait = LONGEST_SLEEP_MS;
    uv_timer_start(&s->tick, on_tick, wait > 0 ? (uint64_t)wait : 0, 0);
}

static void on_trim(uv_timer_t *timer)
{
    struct service *s = timer->data;
    struct err e = {0};
    if (!s->stuck && store_trim_events(s->store, EVENTS_KEPT, &e) != ERR_OK)
        log_warn("events_not_trimmed", "why=%s", LOG_Q(e.msg));
}

static double oldest_queued(struct service *s, int64_t now)
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

static void publish(struct service *s)
{
    const int64_t now = clock_boot_ms();
    struct core_totals totals;
    struct buf text = {0};
    if (!s->http || now - s->flushed_ms < PUBLISH_MS)
        return;
    s->flushed_ms = now;
    core_totals(s->core, &totals);
    s->stats.oldest_queued_s = oldest_queued(s, clock_wall_ms());
    s->stats.room_bytes = store_room(s->store);
    s->stats.points_dropped = recorder_dropped(s->recorder);
    stats_print(&s->stats, &totals, store_epoch(s->store), &text);
    http_publish(s->http, &text);
}

static void end_of_turn(struct service *s)
{
    if (!s->stuck)
        service_flush(s);
    if (!s->stuck && s->out.change_count == 0 && s->out.effect_count == 0) {
        if (s->wishes_due)
            sessions_push(s);
        if (s->watches_due)
            calls_push(s);
    }
    if (s->logs_due)
        logs_push(s);
    publish(s);
    arm_tick(s);
}

static void on_prepare(uv_prepare_t *prepare)
{
    end_of_turn(prepare->data);
}

static void on_check(uv_check_t *check)
{
    end_of_turn(check->data);
}

/* ---- the end */

static void close_any(uv_handle_t *handle, void *arg)
{
    (void)arg;
    if (!uv_is_closing(handle))
        uv_close(handle, NULL);
}

static void on_drained(void *user)
{
    struct service *s = user;
    service_flush(s);
    rpc_server_free(s->server);
    s->server = NULL;
    recorder_close(s->recorder);
    s->recorder = NULL;
    uv_close((uv_handle_t *)&s->prepare, NULL);
    uv_close((uv_handle_t *)&s->check, NULL);
    uv_close((uv_handle_t *)&s->tick, NULL);
    uv_close((uv_handle_t *)&s->retry, NULL);
    uv_close((uv_handle_t *)&s->trim, NULL);
    uv_close((uv_handle_t *)&s->term, NULL);
    uv_close((uv_handle_t *)&s->interrupt, NULL);
    if (!uv_is_closing((uv_handle_t *)&s->lifeline))
        uv_close((uv_handle_t *)&s->lifeline, NULL);
}

static void stop(struct service *s, const char *why)
{
    if (s->stopping) {
        rpc_server_drain(s->server, 0, on_drained, s);
        return;
    }
    s->stopping = true;
    log_info("stopping", "why=%s", why);
    notify_send("STOPPING=1");
    rpc_server_drain(s->server, DRAIN_MS, on_drained, s);
}

static void on_signal(uv_signal_t *signal, int number)
{
    stop(signal->data, number == SIGTERM ? "SIGTERM" : "SIGINT");
}

static void give_buffer(uv_handle_t *handle, size_t suggested, uv_buf_t *out)
{
    static char sink[64];
    (void)handle;
    (void)suggested;
    *out = uv_buf_init(sink, sizeof sink);
}

static void on_lifeline(uv_stream_t *stream, ssize_t count, const uv_buf_t *data)
{
    (void)data;
    if (count >= 0)
        return;
    uv_read_stop(stream);
    stop(stream->data, "lifeline");
}

/* ---- the start */

static void random_bytes(void *ctx, void *out, size_t size)
{
    (void)ctx;
    id_random(out, size);
}

static enum err_code open_core(struct service *s, struct err *e)
{
    struct core_config config = s->options->core;
    const struct core_env env = {.random = random_bytes};
    CLEANUP(records_release) struct records records = {0};
    if (store_load(s->store, &records, e) != ERR_OK)
        return e->code;
    memcpy(config.cluster_id, store_cluster_id(s->store), sizeof config.cluster_id);
    config.epoch = store_epoch(s->store);
    s->core = core_create(&config, &env);
    return core_load(s->core, &records, service_now(), &s->out, e);
}

static enum err_code listen_all(struct service *s, struct err *e)
{
    const struct rpc_tls_files *tls = s->options->tls.ca ? &s->options->tls : NULL;
    CLEANUP(free_text) char *path = xasprintf("%s/coordinator.sock", s->options->state);
    if (rpc_server_listen_unix(s->server, path, e) != ERR_OK)
        return e->code;
    log_info("listening", "address=unix:%s", LOG_Q(path));
    for (size_t i = 0; s->options->listen && s->options->listen[i]; i++) {
        int port = 0;
        if (rpc_server_listen_tcp(s->server, s->options->listen[i], tls, &port, e) != ERR_OK)
            return e->code;
        log_info("listening", "address=%s port=%d tls=%s", LOG_Q(s->options->listen[i]), port,
                 tls ? "yes" : "no");
    }
    return ERR_OK;
}

static enum err_code open_server(struct service *s, struct err *e)
{
    const struct rpc_server_options options = {.loop = &s->loop, .auth = auth_check, .auth_user = s};
    if (rpc_server_create(&s->server, &options, e) != ERR_OK)
        return e->code;
    s->services[0] = (struct rpc_service){&ddp__v1__cluster__descriptor, cluster_methods, s};
    s->services[1] = (struct rpc_service){&ddp__v1__agent__descriptor, agent_methods, s};
    s->services[2] = (struct rpc_service){&ddp__v1__rendezvous__descriptor, rendezvous_methods, s};
    for (size_t i = 0; i < ARRAY_LEN(s->services); i++)
        rpc_server_add_service(s->server, &s->services[i]);
    return listen_all(s, e);
}

static enum err_code open_lifeline(struct service *s, struct err *e)
{
    uv_pipe_init(&s->loop, &s->lifeline, 0);
    s->lifeline.data = s;
    if (s->options->lifeline < 0)
        return ERR_OK;
    const int rc = uv_pipe_open(&s->lifeline, s->options->lifeline);
    if (rc != 0 || uv_read_start((uv_stream_t *)&s->lifeline, give_buffer, on_lifeline) != 0)
        return err_set(e, ERR_INVALID_ARGUMENT, "--lifeline %d: not a pipe", s->options->lifeline);
    return ERR_OK;
}

static void open_loop(struct service *s)
{
    uv_loop_init(&s->loop);
    uv_prepare_init(&s->loop, &s->prepare);
    uv_check_init(&s->loop, &s->check);
    uv_timer_init(&s->loop, &s->tick);
    uv_timer_init(&s->loop, &s->retry);
    uv_timer_init(&s->loop, &s->trim);
    uv_signal_init(&s->loop, &s->term);
    uv_signal_init(&s->loop, &s->interrupt);
    s->prepare.data = s->check.data = s->tick.data = s->retry.data = s->trim.data = s->term.data =
        s->interrupt.data = s;
}

static void start_loop(struct service *s)
{
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN); /* a file size limit is a full disk, not our end */
    uv_signal_start(&s->term, on_signal, SIGTERM);
    uv_signal_start(&s->interrupt, on_signal, SIGINT);
    uv_prepare_start(&s->prepare, on_prepare);
    uv_check_start(&s->check, on_check);
    uv_timer_start(&s->trim, on_trim, TRIM_FIRST_MS, TRIM_EVERY_MS);
    rpc_server_start(s->server);
    service_flush(s); /* what core_load decided */
    publish(s);
    notify_send("READY=1");
    log_info("ready", "state=%s cluster=%s epoch=%lld", LOG_Q(s->options->state), store_cluster_id(s->store),
             (long long)store_epoch(s->store));
}

static enum err_code open_all(struct service *s, struct err *e)
{
    if (store_open(&s->store, s->options->state, e) != ERR_OK || open_core(s, e) != ERR_OK ||
        recorder_open(&s->recorder, &s->loop, s->options->state, e) != ERR_OK ||
        open_server(s, e) != ERR_OK || open_lifeline(s, e) != ERR_OK)
        return e->code;
    if (s->options->metrics && http_open(&s->http, s->options->metrics, e) != ERR_OK)
        return e->code;
    return ERR_OK;
}

static void close_all(struct service *s)
{
    recorder_close(s->recorder);
    rpc_server_free(s->server);
    uv_walk(&s->loop, close_any, NULL);
    uv_run(&s->loop, UV_RUN_DEFAULT);
    uv_loop_close(&s->loop);
    http_close(s->http);
    core_free(s->core);
    core_out_release(&s->out);
    core_out_release(&s->spare);
    store_close(s->store);
    handles_release(&s->calls);
    handles_release(&s->sessions);
    handles_release(&s->reads);
    free(s->refused);
    free(s);
}

enum err_code service_run(const struct service_options *options, struct err *e)
{
    struct service *s = xcalloc(1, sizeof *s);
    s->options = options;
    open_loop(s);
    const enum err_code code = open_all(s, e);
    if (code == ERR_OK) {
        start_loop(s);
        uv_run(&s->loop, UV_RUN_DEFAULT);
    }
    close_all(s);
    return code;
}
