/* Join and the bootstrap id. All calls are idempotent, so a call is repeated whatever happened to its reply;
 * only errors that exclude this process from the generation end it. */
#include "trainer/member/link/join.h"

#include "trainer/member/link/channel.h"

#include "base/clock.h"
#include "base/crypto/id.h"
#include "base/log.h"
#include "base/mem.h"
#include "proto/ddp.pb-c.h"
#include "proto/rpc_address.h"
#include "proto/rpc_codec.h"
#include "proto/rpc_resolve.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#define JOIN_MS 30000 /* longer than 20 s, after which the coordinator ends a waiting Join */
#define CALL_MS 10000
#define RESOLVE_MS 12000 /* longer than the time after which the resolver gives up a silent server */
#define BOOTSTRAP_MOST 4096
#define BOOTSTRAP_PLAIN 128

/* ---- the request */

struct request {
    Ddp__V1__JoinRequest join;
    Ddp__V1__StateOffer *offers, **list;
    char **texts, *computes;
};

static void request_init(struct request *q, const struct link *r, const struct link_member *as,
                         const struct link_join *join)
{
    ddp__v1__join_request__init(&q->join);
    q->join.job = r->place.job;
    q->join.generation = as->generation;
    q->join.rank = as->rank;
    q->join.spawn = r->place.spawn;
    q->join.address.data = (uint8_t *)(uintptr_t)join->address;
    q->join.address.len = join->address_size;
    q->join.live_step = join->live_step;
    q->join.version = (char *)(uintptr_t)DDP_VERSION;
    q->computes = xstrdup(join->computes ? join->computes : "");
    rpc_utf8_clean(q->computes);
    q->join.computes = q->computes;
    q->join.stays = atomic_load(&r->stays);
    q->offers = xcalloc(join->offer_count, sizeof(*q->offers));
    q->list = xcalloc(join->offer_count, sizeof(Ddp__V1__StateOffer *));
    for (size_t i = 0; i < join->offer_count; i++) {
        const struct link_offer *o = &join->offers[i];

        ddp__v1__state_offer__init(&q->offers[i]);
        q->offers[i].job = o->job;
        q->offers[i].generation = o->generation;
        q->offers[i].step = o->step;
        q->offers[i].digest = (char *)(uintptr_t)(o->digest ? o->digest : "");
        q->offers[i].path = (char *)(uintptr_t)(o->path ? o->path : "");
        q->offers[i].committed = o->committed;
        q->offers[i].parts = o->parts;
        q->offers[i].elsewhere = (char **)(uintptr_t)o->elsewhere;
        q->offers[i].n_elsewhere = strv_len(o->elsewhere);
        q->offers[i].needs_all = o->needs_all;
        q->list[i] = &q->offers[i];
    }
    q->texts = join->unusable ? strv_dup(join->unusable) : NULL;
    for (size_t i = 0; q->texts && q->texts[i]; i++)
        rpc_utf8_clean(q->texts[i]); /* paths may hold any bytes */
    q->join.offers = q->list;
    q->join.n_offers = join->offer_count;
    q->join.unusable = q->texts;
    q->join.n_unusable = strv_len(q->texts);
}

static void request_release(struct request *q)
{
    free(q->offers);
    free(q->list);
    strv_free(q->texts);
    free(q->computes);
}

/* ---- the bootstrap id */

struct bootstrap {
    uint8_t data[BOOTSTRAP_MOST];
    size_t size; /* 0: the id is not made yet */
};

/* A rank that is alone needs no id of a device: making one starts a thread, which would wait for other ranks for ever. */
static enum err_code make_bootstrap(struct bootstrap *b, const struct link_join *join, int world_size,
                                    struct err *e)
{
    if (b->size)
        return ERR_OK;
    if (!join->make_bootstrap || world_size == 1) {
        id_random(b->data, BOOTSTRAP_PLAIN);
        b->size = BOOTSTRAP_PLAIN;
        return ERR_OK;
    }
    if (join->make_bootstrap(join->bootstrap_arg, world_size, b->data, sizeof(b->data), &b->size, e))
        return err_wrap(e, "bootstrap id");
    BUG_ON(b->size == 0 || b->size > sizeof(b->data));
    return ERR_OK;
}

static enum err_code put_bootstrap(struct link *r, const struct link_member *as, const struct bootstrap *b,
                                   struct err *e)
{
    Ddp__V1__PutBootstrapRequest put = DDP__V1__PUT_BOOTSTRAP_REQUEST__INIT;
    void *reply = NULL;

    put.job = r->place.job;
    put.generation = as->generation;
    put.rank = as->rank;
    put.bootstrap.data = (uint8_t *)(uintptr_t)b->data;
    put.bootstrap.len = b->size;
    if (link_call(r, "PutBootstrap", &put, &reply, CALL_MS, e))
        return e->code;
    rpc_free(reply);
    return ERR_OK;
}

/* ---- the answer */

static void read_peers(struct link_group *g, const Ddp__V1__JoinReply *reply)
{
    g->peers = xcalloc(reply->n_peers, sizeof(*g->peers));
    for (size_t i = 0; i < reply->n_peers; i++) {
        const Ddp__V1__Peer *p = reply->peers[i];

        g->peers[i] = (struct link_peer){
            .rank = p->rank,
            .node_rank = p->node_rank,
            .local_rank = p->local_rank,
            .node = xstrdup(p->node),
            .address = xmemdup(p->address.data, p->address.len),
            .address_size = p->address.len,
        };
    }
}

static void read_source(struct link_group *g, const Ddp__V1__JoinReply *reply)
{
    const Ddp__V1__StateOffer *s = reply->source;

    g->source_rank = reply->source_rank;
    g->live = reply->live;
    if (!s)
        return;
    g->source = (struct link_offer){
        .job = s->job,
        .generation = s->generation,
        .step = s->step,
        .digest = xstrdup(s->digest),
        .path = xstrdup(s->path),
        .committed = s->committed,
    };
}

static void read_committed(struct link_group *g, const Ddp__V1__JoinReply *reply)
{
    g->committed = xcalloc(reply->n_committed, sizeof(*g->committed));
    g->committed_count = reply->n_committed;
    for (size_t i = 0; i < reply->n_committed; i++) {
        const Ddp__V1__StateOffer *o = reply->committed[i];

        g->committed[i] = (struct link_committed){o->generation, o->step, xstrdup(o->digest)};
    }
}

/* A relay whose address cannot be used is left out: members may reach each other without it. */
static void read_relay(struct link_group *g, const Ddp__V1__JoinReply *reply)
{
    struct rpc_address at;
    struct err e = {0};

    if (!*reply->relay)
        return;
    if (reply->relay_ticket.len != sizeof(g->relay_ticket) || rpc_address_parse(reply->relay, &at, &e) ||
        at.path) {
        log_warn("relay_not_used", "relay=%s why=%s", LOG_Q(reply->relay),
                 LOG_Q(e.code ? e.msg : "expected HOST:PORT and a ticket"));
        return;
    }
    g->relay_host = xstrdup(at.host);
    g->relay_port = (uint16_t)at.port;
    memcpy(g->relay_ticket, reply->relay_ticket.data, sizeof(g->relay_ticket));
}

static enum err_code read_group(const struct link_member *as, const Ddp__V1__JoinReply *reply,
                                struct link_group *out, struct err *e)
{
    struct link_group g = {.generation = as->generation,
                           .rank = as->rank,
                           .world_size = reply->world_size,
                           .loopback = reply->loopback,
                           .revision = reply->revision,
                           .scratch_generation = reply->scratch_generation};

    if (reply->world_size < 1 || reply->n_peers != (size_t)reply->world_size || g.rank >= g.world_size ||
        reply->generation_key.len != sizeof(g.key) || reply->source_rank >= reply->world_size ||
        (reply->live && reply->source_rank < 0))
        return err_set(e, ERR_INTERNAL,
                       "invalid answer of the coordinator to Join: world size %d, %zu peers, source rank %d",
                       reply->world_size, reply->n_peers, reply->source_rank);
    memcpy(g.key, reply->generation_key.data, sizeof(g.key));
    g.bootstrap = xmemdup(reply->bootstrap.data, reply->bootstrap.len);
    g.bootstrap_size = reply->bootstrap.len;
    read_peers(&g, reply);
    read_source(&g, reply);
    read_committed(&g, reply);
    if (*reply->job_file)
        g.job_file = xstrdup(reply->job_file);
    read_relay(&g, reply);
    *out = g;
    return ERR_OK;
}

void link_group_release(struct link_group *g)
{
    for (int i = 0; g->peers && i < g->world_size; i++) {
        free(g->peers[i].node);
        free(g->peers[i].address);
    }
    for (size_t i = 0; i < g->committed_count; i++)
        free(g->committed[i].digest);
    free(g->committed);
    free(g->peers);
    free(g->job_file);
    free(g->relay_host);
    free(g->bootstrap);
    free((char *)(uintptr_t)g->source.digest);
    free((char *)(uintptr_t)g->source.path);
    explicit_bzero(g, sizeof(*g));
}

/* Without a coordinator the process is alone in its world, and loads its first offer. */
static enum err_code join_alone(const struct link_member *as, const struct link_join *join,
                                struct link_group *out, struct err *e)
{
    struct bootstrap b = {.size = 0};

    if (as->world_size != 1)
        return err_set(e, ERR_FAILED_PRECONDITION, "WORLD_SIZE is %d, but DDP_COORDINATOR is not set",
                       as->world_size);
    if (make_bootstrap(&b, join, as->world_size, e))
        return e->code;
    *out = (struct link_group){
        .generation = as->generation, .world_size = 1, .loopback = true, .source_rank = -1};
    out->peers = xcalloc(1, sizeof(*out->peers));
    out->peers[0].node = xstrdup("localhost");
    out->peers[0].address = xmemdup(join->address, join->address_size);
    out->peers[0].address_size = join->address_size;
    out->bootstrap = xmemdup(b.data, b.size);
    out->bootstrap_size = b.size;
    id_random(out->key, sizeof(out->key));
    /* Offers come newest first. */
    if (join->offer_count) {
        out->source_rank = 0;
        out->source = join->offers[0];
        out->source.digest = xstrdup(join->offers[0].digest);
        out->source.path = xstrdup(join->offers[0].path);
        out->source.elsewhere = NULL; /* borrowed, and of no use here */
    }
    return ERR_OK;
}

/* Makes one try. Sets *ready if the group is complete, and fills it in. */
static enum err_code join_once(struct link *r, const struct link_member *as, const struct link_join *join,
                               const struct request *q, struct bootstrap *b, struct link_group *out,
                               bool *ready, struct err *e)
{
    CLEANUP(rpc_release) Ddp__V1__JoinReply *reply = NULL;

    if (link_call(r, "Join", &q->join, (void **)&reply, JOIN_MS, e))
        return e->code;
    switch (reply->state) {
    case DDP__V1__JOIN_STATE__JOIN_READY:
        *ready = true;
        return read_group(as, reply, out, e);
    case DDP__V1__JOIN_STATE__JOIN_BOOTSTRAP:
        return make_bootstrap(b, join, reply->world_size, e) ? e->code : put_bootstrap(r, as, b, e);
    default:
        return ERR_OK;
    }
}

enum err_code link_find_coordinator(struct link *r, struct err *e)
{
    int64_t end = clock_boot_ms() + RESOLVE_MS;
    struct timespec pause = {.tv_sec = 1};

    while (r->has_coordinator && rpc_resolve(r->channel->target, end - clock_boot_ms(), e)) {
        if (clock_boot_ms() + 1000 >= end)
            return e->code;
        nanosleep(&pause, NULL);
        (void)link_channel_follow(r); /* no other thread uses the link yet */
    }
    return ERR_OK;
}

/* Only after READY: until then the coordinator may refuse to let this process watch the new generation, and
 * the Watch thread would take that for the new generation's end. */
static void enter_generation(struct link *r, const struct link_member *as)
{
    bool later = as->generation != atomic_load(&r->generation);

    if (later)
        link_tuning_forget(r);
    atomic_store(&r->rank, as->rank);
    atomic_store(&r->generation, as->generation);
    if (later)
        link_watch_again(r);
}

enum err_code link_join(struct link *r, const struct link_member *as, const struct link_join *join,
                        struct link_group *out, struct err *e)
{
    struct bootstrap b = {.size = 0};
    struct request q;
    bool ready = false;
    int tries = 0;
    enum err_code rc;

    if (!r->has_coordinator) {
        if (join_alone(as, join, out, e))
            return e->code;
        enter_generation(r, as);
        return ERR_OK;
    }
    request_init(&q, r, as, join);
    do {
        rc = join_once(r, as, join, &q, &b, out, &ready, e);
        /* An answer shows that the coordinator is there, so pauses start from the shortest again. */
        if (!rc)
            tries = 0;
    } while (!ready && (!rc || link_call_again(r, "Join", e, &tries)));
    request_release(&q);
    if (rc && atomic_load(&r->cancelled))
        return link_cancelled(e);
    if (rc)
        return err_wrap(e, "join generation %lld", (long long)as->generation);
    enter_generation(r, as);
    return ERR_OK;
}
