#include "daemon/agent/coordinator_link.h"

#include <inttypes.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "daemon/agent/logs/log_cluster.h"
#include "daemon/agent/wish_apply.h"

#define WISH_RETRY_MS 1000 /* between two tries to write a wish */

/* ---- messages to the coordinator */

static void fill_hello(void *user, Ddp__V1__Hello *hello)
{
    struct agent *a = user;
    const struct settings *s = a->settings;
    const Ddp__V1__Wish *wish = a->wish.wish;

    hello->node = s->node;
    hello->instance = a->instance;
    hello->version = (char *)DDP_VERSION;
    hello->address = a->address;
    hello->cpu_slots = s->slots ? (int32_t)s->slots : a->inventory.cores;
    hello->cores = a->inventory.cores;
    hello->memory_bytes = a->inventory.memory_bytes;
    hello->port_first = s->port_first;
    hello->port_last = s->port_last;
    hello->log_dir = s->log_dir;
    hello->gpus = gpus_messages(a->gpus, &hello->n_gpus);
    hello->slots_per_gpu = (int32_t)s->slots_per_gpu;
    if (a->nccl) {
        hello->nccl_version = a->nccl;
        hello->plugin = a->plugin;
    }
    /* a coordinator that has lost its records continues from the cards */
    hello->keeps_cards = true;
    if (a->relay) {
        hello->relay = s->relay;
        hello->relay_key = (ProtobufCBinaryData){sizeof(a->relay_key), a->relay_key};
    }
    hello->dates_logs = hello->greps_logs = true;
    hello->cards = a->cards.heads;
    hello->n_cards = a->cards.count;
    if (!wish)
        return;
    hello->cluster_id = wish->cluster_id;
    hello->epoch = wish->epoch;
    hello->revision = wish->revision;
}

static void fill_heartbeat(void *user, Ddp__V1__Heartbeat *beat)
{
    struct agent *a = user;
    struct inventory_load load;

    inventory_measure(&a->meter, &load);
    beat->load = load.load;
    beat->memory_free = load.memory_free;
    beat->gpus = gpus_messages(a->gpus, &beat->n_gpus);
    beat->accounts = accounts_messages(a->accounts, &beat->n_accounts);
    beat->log_tails_age_ms = 1 + log_tail_sender_age(a->log_tails, clock_boot_ms());
    if (a->relay) {
        struct relay_traffic traffic;

        relay_server_count(a->relay, &traffic);
        beat->relay_bytes = (int64_t)traffic.bytes;
        beat->relay_links = (int64_t)traffic.links_now;
    }
}
enum err_code coordinator_link_send_log(void *agent, const Ddp__V1__LogChunk *chunk, struct err *e)
{
    struct agent *a = agent;
    Ddp__V1__AgentUp up;

    ddp__v1__agent_up__init(&up);
    up.body_case = DDP__V1__AGENT_UP__BODY_LOG_CHUNK;
    up.log_chunk = (Ddp__V1__LogChunk *)chunk;
    return session_send(a->session, &up, e);
}

enum err_code coordinator_link_send(void *agent, const Ddp__V1__AgentUp *up, struct err *e)
{
    struct agent *a = agent;

    return session_send(a->session, up, e);
}

/* ---- messages from the coordinator */

static enum err_code on_welcome(void *user, const Ddp__V1__Welcome *welcome, struct err *e)
{
    struct agent *a = user;
    const Ddp__V1__Wish *wish = a->wish.wish;

    if (wish && strcmp(wish->cluster_id, welcome->cluster_id))
        return err_set(e, ERR_FAILED_PRECONDITION,
                       "this node belongs to cluster %.8s, but the coordinator to %.8s: to move the node, "
                       "run ddp-agent --rejoin",
                       wish->cluster_id, welcome->cluster_id);
    /* before a job can start: a run's cluster has a log directory of its own */
    if (a->settings->lifeline < 0 &&
        log_cluster_enter(a->settings->log_dir, a->settings->node, welcome->cluster_id, e))
        return e->code;
    log_info("joined", "node=%s cluster=%.8s epoch=%" PRId64, a->settings->node, welcome->cluster_id,
             welcome->epoch);
    a->wish_confirmed = false; /* the kept wish may be old; the current one follows */
    a->facts_due = a->changed = true;
    return ERR_OK;
}

static void on_ack(void *user, int64_t sent)
{
    struct agent *a = user;

    if (sent > a->last_ack)
        a->last_ack = sent;
    wish_renew_leases(a);
    a->changed = true;
}

static void on_log_tail_rate(void *user, int64_t bytes_per_second)
{
    struct agent *a = user;

    log_tail_sender_set_rate(a->log_tails, bytes_per_second);
}

static enum err_code wish_take(struct agent *a, const Ddp__V1__Wish *wish)
{
    struct err e;
    enum err_code code = wish_accept(&a->wish, &a->cards, wish, &e);

    if (code == ERR_FAILED_PRECONDITION) {
        log_warn("wish_refused", "why=%s", LOG_Q(e.msg));
        return code;
    }
    a->changed = true;
    if (code) { /* a full disk, for example */
        a->wish_retry_at = clock_boot_ms() + WISH_RETRY_MS;
        if (a->wish_trouble.code != code) /* once for each cause, whichever file could not be written */
            log_error("wish_not_saved", "why=%s until_saved=\"workers are stopped, none is started\"",
                      LOG_Q(e.msg));
        a->wish_trouble = e;
        return code;
    }
    if (a->wish_trouble.code)
        log_info("wish_saved", "node=%s", a->settings->node);
    a->wish_trouble.code = ERR_OK;
    log_debug("wish", "epoch=%" PRId64 " rev=%" PRId64 " jobs=%zu", a->wish.wish->epoch,
              a->wish.wish->revision, a->wish.wish->n_groups);
    a->facts_due = true;
    wish_renew_leases(a);
    return ERR_OK;
}

static void on_wish(void *user, const Ddp__V1__Wish *wish)
{
    struct agent *a = user;

    /* Saved or not, it is the current one. A later attempt to save it says nothing about that: the session may have changed. */
    if (wish_take(a, wish) != ERR_FAILED_PRECONDITION)
        a->wish_confirmed = a->facts_due = true;
}

int64_t coordinator_link_save_wish(struct agent *a, int64_t now)
{
    if (a->wish.unsaved && now >= a->wish_retry_at)
        (void)wish_take(a, a->wish.unsaved);
    return a->wish.unsaved ? a->wish_retry_at : INT64_MAX;
}

static Ddp__V1__JobCard *on_card_wanted(void *user, int64_t job)
{
    const struct agent *a = user;

    return cards_read(&a->cards, job);
}

static void on_log_read(void *user, const Ddp__V1__LogRead *read)
{
    struct agent *a = user;

    log_readers_request(a->log_readers, read);
    a->changed = true;
}

static void on_probe(void *user, const Ddp__V1__Probe *probe)
{
    struct agent *a = user;

    worker_monitor_probe(a->monitor, probe);
}

static void on_check(void *user, const Ddp__V1__CheckAsk *ask)
{
    struct agent *a = user;

    check_server_ask(a->check_server, ask);
}

static void on_logs_deleted(void *user, int64_t job)
{
    struct agent *a = user;

    log_expiry_timer_delete(a->log_expiry, job);
}

static void on_gpus_cleared(void *user)
{
    struct agent *a = user;

    gpus_clear_faults(a->gpus);
}

static void on_session_sendable(void *user)
{
    struct agent *a = user;

    a->changed = true;
}

static void on_session_lost(void *user)
{
    struct agent *a = user;

    log_readers_drop_all(a->log_readers);
    log_tail_sender_new_session(a->log_tails);
    worker_monitor_new_session(a->monitor);
}

void coordinator_link_dial(struct agent *a)
{
    struct session_events events = {.fill_hello = fill_hello,
                                    .fill_heartbeat = fill_heartbeat,
                                    .on_welcome = on_welcome,
                                    .on_ack = on_ack,
                                    .on_log_tail_rate = on_log_tail_rate,
                                    .on_wish = on_wish,
                                    .on_card_wanted = on_card_wanted,
                                    .on_log_read = on_log_read,
                                    .on_probe = on_probe,
                                    .on_check = on_check,
                                    .on_logs_deleted = on_logs_deleted,
                                    .on_gpus_cleared = on_gpus_cleared,
                                    .on_sendable = on_session_sendable,
                                    .on_lost = on_session_lost,
                                    .user = a};

    /* on a node with GPUs, the hello should name the libraries that the trainer uses */
    if (a->session || a->leaving || (a->plugin_query && clock_boot_ms() < a->dial_by))
        return;
    if (session_open(&a->session, &a->loop, a->settings, &events, &a->failure))
        uv_stop(&a->loop);
}
