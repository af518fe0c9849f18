#include "daemon/coordinator/service/cards.h"

#include <stdlib.h>
#include <string.h>

#include "base/crypto/seal.h"
#include "base/log.h"
#include "base/mem.h"
#include "daemon/coordinator/service/agent_rpc.h"
#include "daemon/coordinator/service/pool.h"
#include "daemon/coordinator/service/service_state.h"
#include "proto/ddp.pb-c.h"
#include "proto/rpc_codec.h"
#include "store/pack.h"

/* Down: cards are sealed with the cluster's key and sent with wishes, so a node can neither read nor change
 * them.
 *
 * Up: when a node's hello names cards that are newer than our records (an older database was restored), the
 * node is asked for them. The hello waits until all of them have arrived, so that the core gets the node and
 * its cards in one event and never judges the node's processes without their jobs.
 *
 * Failure modes: a card that the node has lost meanwhile is left out. If a card cannot be opened (it was
 * sealed by another cluster, or damaged), the session is refused, since the coordinator would not know what
 * runs on the node; the message tells how to end the job. */

struct held_hello {
    uint8_t *packed;
    size_t size;
    size_t left; /* cards that have not arrived yet */
    struct records *cards;
    size_t count;
};

void cards_drop(struct agent_session *x)
{
    struct held_hello *held = x->held;
    if (!held)
        return;
    for (size_t i = 0; i < held->count; i++)
        records_release(&held->cards[i]);
    free(held->cards);
    free(held->packed);
    free(held);
    x->held = NULL;
}

/* ---- down */

static Ddp__V1__JobCard *card_seal(struct pool *pool, const struct service *s,
                                   const struct core_wish_card *from)
{
    CLEANUP(records_release) struct records records = {0};
    CLEANUP(buf_release) struct buf packed = {0}, sealed = {0};
    Ddp__V1__JobCard *card = pool_alloc(pool, sizeof *card);
    ddp__v1__job_card__init(card);
    card->job = from->job;
    card->progress = from->progress;
    card->ended = from->ended;
    /* A card without data tells the node to delete its copy. */
    if (from->drop || !core_card(s->core, from->job, &records))
        return card;
    pack_records(&packed, &records);
    seal_close(&sealed, store_card_key(s->store), store_cluster_id(s->store), packed.data, packed.len);
    card->data.data = pool_alloc(pool, sealed.len);
    card->data.len = sealed.len;
    memcpy(card->data.data, sealed.data, sealed.len);
    return card;
}

void cards_fill(struct pool *pool, const struct service *s, const struct core_wish *wish, Ddp__V1__Wish *out)
{
    out->n_cards = wish->card_count;
    out->cards = pool_alloc(pool, wish->card_count * sizeof *out->cards);
    for (size_t i = 0; i < wish->card_count; i++)
        out->cards[i] = card_seal(pool, s, &wish->cards[i]);
}

/* ---- up */

struct core_card_head *cards_heads(struct pool *pool, const Ddp__V1__Hello *m)
{
    struct core_card_head *heads = pool_alloc(pool, m->n_cards * sizeof *heads);
    for (size_t i = 0; i < m->n_cards; i++)
        heads[i] = (struct core_card_head){m->cards[i]->job, m->cards[i]->progress};
    return heads;
}

bool cards_request(struct agent_session *x, const Ddp__V1__Hello *m)
{
    struct err e = {0};
    CLEANUP(pool_release) struct pool pool = {0};
    CLEANUP(buf_release) struct buf packed = {0};
    Ddp__V1__CardsRequested wanted = DDP__V1__CARDS_REQUESTED__INIT;
    Ddp__V1__AgentDown down = DDP__V1__AGENT_DOWN__INIT;
    const struct core_card_head *heads = cards_heads(&pool, m);
    wanted.jobs = pool_alloc(&pool, m->n_cards * sizeof *wanted.jobs);
    for (size_t i = 0; i < m->n_cards; i++)
        if (core_wants_card(x->service->core, m->node, &heads[i]))
            wanted.jobs[wanted.n_jobs++] = heads[i].job;
    if (!wanted.n_jobs)
        return false;
    log_info("cards_requested", "node=%s count=%zu", LOG_Q(m->node), wanted.n_jobs);
    down.body_case = DDP__V1__AGENT_DOWN__BODY_CARDS_REQUESTED;
    down.cards_requested = &wanted;
    if (agent_session_send(x, &down, &e) != ERR_OK) {
        rpc_call_fail_with(x->rpc, ERR_UNAVAILABLE, "%s", e.msg); /* the node says hello again */
        return true;
    }
    /* The message is freed after this call, so the hello is kept packed. */
    BUG_ON(rpc_pack(m, &packed, &e) != ERR_OK);
    x->held = xcalloc(1, sizeof *x->held);
    x->held->size = packed.len;
    x->held->packed = (uint8_t *)buf_steal(&packed);
    x->held->left = wanted.n_jobs;
    x->held->cards = xcalloc(wanted.n_jobs, sizeof *x->held->cards);
    return true;
}

static enum err_code card_open(const struct service *s, const Ddp__V1__JobCard *m, struct records *out,
                               struct err *e)
{
    CLEANUP(buf_release) struct buf packed = {0};
    if (seal_open(&packed, store_card_key(s->store), store_cluster_id(s->store), m->data.data, m->data.len,
                  e) != ERR_OK ||
        pack_read(out, packed.data, packed.len, e) != ERR_OK)
        return e->code;
    if (out->job_count != 1 || out->jobs[0].id != m->job)
        return err_set(e, ERR_DATA_LOSS, "the card is for another job");
    return ERR_OK;
}

void cards_received(struct agent_session *x, const Ddp__V1__JobCard *m)
{
    struct held_hello *held = x->held;
    struct err e = {0};
    if (!held)
        return;
    if (m->data.len) { /* empty: the node has lost the card since its hello */
        if (card_open(x->service, m, &held->cards[held->count++], &e) != ERR_OK) {
            rpc_call_fail_with(
                x->rpc, ERR_FAILED_PRECONDITION,
                "node %s runs job %lld, which the coordinator's records lack, and the job's card cannot be read "
                "(%s): run ddp-agent --rejoin on the node to end the job",
                x->node, (long long)m->job, e.msg);
            cards_drop(x);
            return;
        }
    }
    if (--held->left > 0)
        return;
    /* The last card: now the core gets the hello, as if it had just arrived. */
    CLEANUP(rpc_release) Ddp__V1__Hello *hello = NULL;
    BUG_ON(rpc_unpack(&ddp__v1__hello__descriptor, held->packed, held->size, (void **)&hello, &e) != ERR_OK);
    agent_session_hello(x, hello, held->cards, held->count);
    cards_drop(x);
}
