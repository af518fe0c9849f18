#include "daemon/coordinator/service/relays.h"

#include <stdlib.h>
#include <string.h>

#include "base/crypto/id.h"
#include "base/log.h"
#include "base/mem.h"
#include "daemon/coordinator/service/agent_rpc.h"
#include "daemon/coordinator/service/service_state.h"

enum err_code relays_open(struct service *s, struct err *e)
{
    struct relay_options options = {.address = s->options->relay};
    if (!s->options->relay)
        return ERR_OK;
    id_random(s->relay_key, sizeof s->relay_key);
    memcpy(options.key, s->relay_key, sizeof options.key);
    if (relay_server_open(&s->relay, &options, e) != ERR_OK)
        return e->code;
    log_info("relay_listening", "address=%s", LOG_Q(s->options->relay));
    return ERR_OK;
}

static void relay_offer_release(struct relay_offer *offer)
{
    free(offer->node);
    free(offer->address);
    explicit_bzero(offer, sizeof *offer);
}

void relays_close(struct service *s)
{
    relay_server_close(steal(s->relay));
    for (size_t i = 0; i < s->relays_left_count; i++)
        relay_offer_release(&s->relays_left[i]);
    free(s->relays_left);
    explicit_bzero(s->relay_key, sizeof s->relay_key);
}

void relays_keep_offer(struct agent_session *x, const Ddp__V1__Hello *m)
{
    relay_offer_release(&x->relay);
    if (!m->relay[0] || m->relay_key.len != sizeof x->relay.key)
        return;
    x->relay.address = xstrdup(m->relay);
    memcpy(x->relay.key, m->relay_key.data, sizeof x->relay.key);
}

static struct relay_offer *relays_find_left(struct service *s, const char *node)
{
    for (size_t i = 0; i < s->relays_left_count; i++)
        if (strcmp(s->relays_left[i].node, node) == 0)
            return &s->relays_left[i];
    return NULL;
}

/* A lost node may come back. One that has left or was forgotten has taken its relay with it. */
static bool relays_await_node(const struct service *s, const char *name)
{
    const struct node_record *node = core_node(s->core, name);
    return node && node->state != NODE_LEFT;
}

static void relays_drop_left(struct service *s, const char *node)
{
    struct relay_offer *left = relays_find_left(s, node);
    if (!left)
        return;
    relay_offer_release(left);
    *left = s->relays_left[--s->relays_left_count];
}

void relays_node_changed(struct service *s, const char *node)
{
    if (!relays_await_node(s, node))
        relays_drop_left(s, node);
}

void relays_agent_left(struct agent_session *x)
{
    struct service *s = x->service;
    if (x->welcomed)
        relays_drop_left(s, x->node);
    if (x->welcomed && x->relay.address && relays_await_node(s, x->node)) {
        s->relays_left =
            array_grow(s->relays_left, s->relays_left_count, &s->relays_left_cap, sizeof *s->relays_left);
        struct relay_offer *left = &s->relays_left[s->relays_left_count++];
        *left = x->relay;
        left->node = xstrdup(x->node);
        x->relay = (struct relay_offer){0};
    }
    relay_offer_release(&x->relay);
}

/* All members of a generation need the same relay, so the choice depends on nothing that changes from call to call: of the
 * agents' relays it is the one whose node's name comes first. If its agent disconnects between two answers, the members miss
 * each other, and the next generation has the same relay for all. */
static const struct relay_offer *relays_first_connected(const struct service *s)
{
    const struct agent_session *first = NULL;
    for (const struct agent_session *x = s->session_list; x; x = x->next)
        if (x->relay.address && x->welcomed && !rpc_call_over(x->rpc) &&
            (!first || strcmp(x->node, first->node) < 0))
            first = x;
    return first ? &first->relay : NULL;
}

/* The agent of a relay whose links were lost may not be back yet: ranks dial until it is. */
static const struct relay_offer *relays_first_left(struct service *s)
{
    const struct relay_offer *first = NULL;
    for (size_t i = 0; i < s->relays_left_count; i++) {
        const struct relay_offer *offer = &s->relays_left[i];
        if (offer->address && !agent_session_find(s, offer->node) &&
            (!first || strcmp(offer->node, first->node) < 0))
            first = offer;
    }
    return first;
}

void relays_fill_join(struct service *s, int64_t job, int64_t generation, uint8_t ticket[RELAY_TICKET],
                      Ddp__V1__JoinReply *reply)
{
    const struct relay_offer *of_agent = NULL;
    if (reply->loopback)
        return;
    if (!s->relay) {
        of_agent = relays_first_connected(s);
        if (!of_agent)
            of_agent = relays_first_left(s);
        if (!of_agent)
            return;
    }
    relay_make_ticket(ticket, of_agent ? of_agent->key : s->relay_key, job, generation);
    reply->relay = of_agent ? of_agent->address : (char *)(uintptr_t)s->options->relay;
    reply->relay_ticket = (ProtobufCBinaryData){RELAY_TICKET, ticket};
}

static void relays_count_one(struct stats_relays *out, const char *name, uint64_t bytes, uint64_t links)
{
    if (out->count == ARRAY_LEN(out->relays))
        return;
    struct stats_relay *relay = &out->relays[out->count++];
    snprintf(relay->name, sizeof relay->name, "%s", name);
    relay->bytes = bytes;
    relay->links = links;
}

void relays_count(struct service *s, struct stats_relays *out)
{
    *out = (struct stats_relays){0};
    if (s->relay) {
        struct relay_traffic traffic;
        relay_server_count(s->relay, &traffic);
        relays_count_one(out, "coordinator", traffic.bytes, traffic.links_now);
    }
    for (const struct agent_session *x = s->session_list; x; x = x->next)
        if (x->relay.address && x->welcomed)
            relays_count_one(out, x->node, x->relay.bytes, x->relay.links);
}
