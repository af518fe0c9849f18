#include "daemon/coordinator/service/service.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/notify.h"
#include "base/signals.h"
#include "daemon/coordinator/service/access/auth.h"
#include "daemon/coordinator/service/access/users.h"
#include "daemon/coordinator/service/agent_rpc.h"
#include "daemon/coordinator/service/backups.h"
#include "daemon/coordinator/service/cluster_rpc.h"
#include "daemon/coordinator/service/commit_queue.h"
#include "daemon/coordinator/service/forecasts.h"
#include "daemon/coordinator/service/handles.h"
#include "daemon/coordinator/service/logs/log_tails.h"
#include "daemon/coordinator/service/loop.h"
#include "daemon/coordinator/service/members.h"
#include "daemon/coordinator/service/memory_trim.h"
#include "daemon/coordinator/service/metrics/http.h"
#include "daemon/coordinator/service/metrics/metrics_recorder.h"
#include "daemon/coordinator/service/receive_delay.h"
#include "daemon/coordinator/service/relays.h"
#include "daemon/coordinator/service/rendezvous_rpc.h"
#include "daemon/coordinator/service/service_state.h"
#include "daemon/coordinator/service/tell/teller.h"
#include "daemon/coordinator/web/web_site.h"
#include "proto/ddp.pb-c.h"

/* How the service starts and ends. The turns of its loop are in loop.c. */

#define DRAIN_MS 2000         /* for calls in progress when the service stops */
#define TELL_MS 3000          /* for messages about jobs when a cluster of `ddpctl run` ends */
#define MAX_RECEIVE (4 << 20) /* bytes of a message: the facts of 500 processes with 8 KiB of stderr each */
#define KEEPALIVE_MS 20000    /* longer than the interval of heartbeats, which make pings unnecessary */

struct core_now service_now(void)
{
    return (struct core_now){.boot_ms = clock_boot_ms(), .wall_ms = clock_wall_ms()};
}

uint64_t service_handle(struct service *s)
{
    return ++s->last_handle;
}

/* ---- the end */

static void loop_close_handle(uv_handle_t *handle, void *arg)
{
    (void)arg;
    if (!uv_is_closing(handle))
        uv_close(handle, NULL);
}

static void server_on_drained(void *user)
{
    struct service *s = user;
    uv_stop(&s->loop); /* service_close does the rest, outside of the loop's callbacks */
}

void service_stop(struct service *s, const char *why)
{
    if (s->stopping) { /* the second signal: do not wait for calls */
        rpc_server_drain(s->server, 0, server_on_drained, s);
        return;
    }
    s->stopping = true;
    log_info("stopping", "why=%s", why);
    notify_send("STOPPING=1");
    web_site_close(s->site); /* while the server still answers */
    s->site = NULL;
    rpc_server_drain(s->server, DRAIN_MS, server_on_drained, s);
}

static void service_on_signal(uv_signal_t *signal, int number)
{
    service_stop(signal->data, number == SIGTERM ? "SIGTERM" : "SIGINT");
}

static void lifeline_give_buffer(uv_handle_t *handle, size_t suggested, uv_buf_t *out)
{
    static char sink[64];
    (void)handle;
    (void)suggested;
    *out = uv_buf_init(sink, sizeof sink);
}

static void lifeline_on_read(uv_stream_t *stream, ssize_t count, const uv_buf_t *data)
{
    (void)data;
    if (count >= 0) /* only the end of the pipe means something */
        return;
    uv_read_stop(stream);
    service_stop(stream->data, "lifeline");
}

/* ---- the start */

static void core_random_bytes(void *ctx, void *out, size_t size)
{
    (void)ctx;
    id_random(out, size);
}

enum err_code service_rebuild(struct service *s, struct err *e)
{
    struct core_config config = s->options->core;
    const struct core_env env = {.random = core_random_bytes};
    CLEANUP(records_release) struct records records = {0};
    if (store_load(s->store, &records, e) != ERR_OK)
        return e->code;
    memcpy(config.cluster_id, store_cluster_id(s->store), sizeof config.cluster_id);
    config.epoch = store_epoch(s->store);
    config.no_cards = s->options->lifeline >= 0; /* the cluster ends with this process */
    core_out_clear(&s->out);
    core_free(s->core);
    s->core = core_create(&config, &env);
    return core_load(s->core, &records, service_now(), &s->out, e);
}

static enum err_code server_listen_all(struct service *s, struct err *e)
{
    const struct rpc_tls_files *tls = s->options->tls.ca ? &s->options->tls : NULL;
    CLEANUP(free_text) char *path = xasprintf("%s/coordinator.sock", s->options->state);
    for (size_t i = 0; s->options->listen && s->options->listen[i]; i++) {
        int port = 0;
        if (rpc_server_listen_tcp(s->server, s->options->listen[i], tls, &port, e) != ERR_OK)
            return e->code;
        log_info("listening", "address=%s port=%d tls=%s", LOG_Q(s->options->listen[i]), port,
                 tls ? "yes" : "no");
    }
    /* The socket comes last: `ddpctl run` waits for it and then uses the ports. */
    if (rpc_server_listen_unix(s->server, path, e) != ERR_OK)
        return e->code;
    log_info("listening", "address=unix:%s", LOG_Q(path));
    return ERR_OK;
}

static enum err_code server_open(struct service *s, struct err *e)
{
    const struct rpc_server_options options = {
        .loop = &s->loop,
        .auth = auth_check,
        .auth_user = s,
        .max_receive = MAX_RECEIVE,
        .keepalive_ms = KEEPALIVE_MS,
        .limits = s->options->limits,
        .private_dir = s->options->state,
    };
    if (rpc_server_create(&s->server, &options, e) != ERR_OK)
        return e->code;
    s->services[0] = (struct rpc_service){&ddp__v1__cluster__descriptor, cluster_methods, s};
    s->services[1] = (struct rpc_service){&ddp__v1__agent__descriptor, agent_methods, s};
    s->services[2] = (struct rpc_service){&ddp__v1__rendezvous__descriptor, rendezvous_methods, s};
    for (size_t i = 0; i < ARRAY_LEN(s->services); i++) {
        for (const struct rpc_method *m = s->services[i].methods; m->name; m++)
            BUG_ON(!access_find(s->services[i].descriptor->name, m->name)); /* no row in access/roles.c */
        rpc_server_add_service(s->server, &s->services[i]);
    }
    return server_listen_all(s, e);
}

static enum err_code lifeline_open(struct service *s, struct err *e)
{
    uv_pipe_init(&s->loop, &s->lifeline, 0);
    s->lifeline.data = s;
    if (s->options->lifeline < 0)
        return ERR_OK;
    const int rc = uv_pipe_open(&s->lifeline, s->options->lifeline);
    if (rc != 0 || uv_read_start((uv_stream_t *)&s->lifeline, lifeline_give_buffer, lifeline_on_read) != 0)
        return err_set(e, ERR_INVALID_ARGUMENT, "--lifeline %d: not a pipe", s->options->lifeline);
    return ERR_OK;
}

static void service_start(struct service *s)
{
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN); /* a file size limit is treated like a full disk */
    if (s->options->lifeline >= 0) {
        /* Ctrl-C reaches the whole process group, but ddpctl decides when this process ends. */
        signals_leave_to_parent();
    } else {
        uv_signal_start(&s->term, service_on_signal, SIGTERM);
        uv_signal_start(&s->interrupt, service_on_signal, SIGINT);
    }
    loop_start(s);
    rpc_server_start(s->server);
    receive_delay_start(s);
    memory_trim_start(s);
    commit_queue_flush(s); /* the changes that core_load made, such as the new epoch */
    loop_publish_stats(s);
    notify_send("READY=1");
    if (store_epoch(s->store) == 1 && s->options->lifeline < 0) /* under `ddpctl run` each cluster is new */
        log_info("new_cluster", "state=%s meaning=\"the directory had no database: this cluster is empty\"",
                 LOG_Q(s->options->state));
    log_info("ready", "state=%s cluster=%s epoch=%lld", LOG_Q(s->options->state), store_cluster_id(s->store),
             (long long)store_epoch(s->store));
}

static enum err_code state_open_store(struct service *s, struct err *e)
{
    const char *dir = s->options->state;
    if (s->options->lifeline >= 0) /* the cluster ends with this process: commits need not be synced */
        return store_open_temporary(&s->store, dir, e);
    return (s->options->accept_loss ? store_open_accepting : store_open)(&s->store, dir, e);
}

static void backups_on_failure(void *user, const char *why)
{
    CLEANUP(free_text) char *text = xasprintf("the backup of the database failed: %s", why);
    commit_queue_cluster_event(user, "backup_failed", text);
}

static void metrics_on_damage(void *user, const char *why)
{
    CLEANUP(free_text)
    char *text =
        xasprintf("metrics.db was damaged and is now metrics.db.bad; the curves start anew: %s", why);
    commit_queue_cluster_event(user, "metrics_damaged", text);
}

static void backups_start(struct service *s)
{
    if (s->options->lifeline < 0) /* under `ddpctl run` nobody would restore them */
        backups_open(&s->backups, &s->loop,
                     &(struct backups_options){.state = s->options->state,
                                               .dir = s->options->backup_dir,
                                               .every_ms = s->options->backup_every_ms,
                                               .keep = s->options->backup_keep,
                                               .failed = backups_on_failure,
                                               .user = s});
}

/* The page's server makes calls on the unix socket, so it comes after that. */
static enum err_code site_open(struct service *s, struct err *e)
{
    const struct rpc_tls_files *files = &s->options->tls;
    const struct web_tls_files tls = {files->cert, files->key};
    CLEANUP(free_text) char *socket = xasprintf("unix:%s/coordinator.sock", s->options->state);
    const struct web_site_options options = {
        .address = s->options->web, .socket = socket, .tls = files->ca ? &tls : NULL};
    return s->options->web ? web_site_open(&s->site, &options, e) : ERR_OK;
}

static enum err_code service_open(struct service *s, struct err *e)
{
    if (state_open_store(s, e) != ERR_OK || service_rebuild(s, e) != ERR_OK || users_open(s, e) != ERR_OK ||
        metrics_recorder_open(&s->recorder, &s->loop, s->options->state, e) != ERR_OK ||
        relays_open(s, e) != ERR_OK || server_open(s, e) != ERR_OK || lifeline_open(s, e) != ERR_OK)
        return e->code;
    if ((s->options->metrics && http_open(&s->http, s->options->metrics, e) != ERR_OK) ||
        site_open(s, e) != ERR_OK)
        return e->code;
    metrics_recorder_on_damage(s->recorder, metrics_on_damage, s);
    backups_start(s);
    s->teller = teller_open(s);
    return ERR_OK;
}

static void service_close(struct service *s)
{
    uv_prepare_stop(&s->prepare);
    uv_check_stop(&s->check);
    uv_timer_stop(&s->tick);
    web_site_close(s->site);
    /* First the modules that run the loop to finish their work; the walk closes the remaining handles. */
    metrics_recorder_close(s->recorder);
    teller_stop(s->teller);
    log_tails_free(s->log_tails);
    backups_close(s->backups);
    rpc_server_free(s->server);
    uv_walk(&s->loop, loop_close_handle, NULL);
    uv_run(&s->loop, UV_RUN_DEFAULT);
    BUG_ON(uv_loop_close(&s->loop) != 0);
    /* No callback can run any more. The server's calls are gone, so nothing points into the core. */
    forecasts_close(s->forecasts);
    http_close(s->http);
    teller_free(s->teller);
    relays_close(s);
    core_free(s->core);
    users_close(s);
    core_out_release(&s->out);
    core_out_release(&s->spare);
    store_close(s->store);
    members_free(s->run);
    handles_release(&s->calls);
    handles_release(&s->sessions);
    handles_release(&s->named_sessions);
    handles_release(&s->reads);
    handles_release(&s->query_parts);
    free(s);
}

enum err_code service_run(const struct service_options *options, struct err *e)
{
    struct service *s = xcalloc(1, sizeof *s);
    s->log_tails = log_tails_create();
    s->options = options;
    account_names_open(&s->account_names, service_now().boot_ms);
    loop_open(s);
    s->forecasts = forecasts_open(s);
    enum err_code code = service_open(s, e);
    if (code == ERR_OK) {
        service_start(s);
        uv_run(&s->loop, UV_RUN_DEFAULT);
        if (s->damage.code == ERR_OK) {
            if (!s->commit_blocked) /* the progress since it was last saved */
                core_save(s->core, service_now(), &s->out);
            commit_queue_try(s); /* includes events of the last calls' ends */
            if (s->options->lifeline >= 0)
                teller_finish(s->teller, TELL_MS);
        }
    }
    if (code == ERR_OK && s->damage.code != ERR_OK) {
        *e = s->damage;
        code = e->code;
    }
    service_close(s);
    return code;
}
