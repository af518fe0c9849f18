#include "client/diagnose/preflight_survey.h"

#include <stdlib.h>
#include <string.h>

#include "base/crypto/id.h"
#include "base/mem.h"
#include "client/cmd/output.h"

#define KEY_BYTES 16
#define HOLD_MS 20000
#define LINKS_MS 20000
#define CHEAP_MS 2000
#define WARNINGS 8
#define SPARE_MS 2000 /* added to the nodes' time limit, for the calls themselves */

static enum err_code survey_ask(struct link *link, Ddp__V1__CheckAsk *asks, size_t count, int64_t limit_ms,
                                Ddp__V1__CheckNodesReply **reply, struct err *e)
{
    Ddp__V1__CheckNodesRequest request = DDP__V1__CHECK_NODES_REQUEST__INIT;
    Ddp__V1__CheckAsk **list = xcalloc(count + 1, sizeof(Ddp__V1__CheckAsk *));
    void *message = NULL;
    for (size_t i = 0; i < count; i++)
        list[i] = &asks[i];
    request.asks = list;
    request.n_asks = count;
    request.timeout_ms = limit_ms;
    enum err_code code = link_call_within(link, "CheckNodes", &request, &message, limit_ms + SPARE_MS, e);
    free(list);
    if (code == ERR_OK && ((Ddp__V1__CheckNodesReply *)message)->n_answers != count) {
        rpc_free(message);
        return err_set(e, ERR_INTERNAL, "the coordinator's answer is not for the nodes that were asked");
    }
    if (code == ERR_OK)
        *reply = message;
    return code;
}

static Ddp__V1__CheckAsk *survey_asks(const struct preflight_survey *s)
{
    Ddp__V1__CheckAsk *asks = xcalloc(s->preflight.count + 1, sizeof(*asks));
    for (size_t i = 0; i < s->preflight.count; i++) {
        ddp__v1__check_ask__init(&asks[i]);
        asks[i].node = s->preflight.nodes[i]->name;
    }
    return asks;
}

static const Ddp__V1__CheckAnswer **survey_answers(const Ddp__V1__CheckNodesReply *reply)
{
    const Ddp__V1__CheckAnswer **list = xcalloc(reply->n_answers + 1, sizeof(const Ddp__V1__CheckAnswer *));
    for (size_t i = 0; i < reply->n_answers; i++)
        list[i] = reply->answers[i];
    return list;
}

static bool survey_wants_node(const char *name, char *const *names, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(names[i], name) == 0)
            return true;
    return count == 0;
}

enum err_code preflight_survey_nodes(struct preflight_survey *s, struct link *link, char *const *names,
                                     size_t count, struct findings *found, struct err *e)
{
    Ddp__V1__ListNodesRequest request = DDP__V1__LIST_NODES_REQUEST__INIT;
    void *reply;
    if (link_call(link, "ListNodes", &request, &reply, 0, e) != ERR_OK)
        return e->code;
    s->nodes = reply;
    s->preflight.nodes = xcalloc(s->nodes->n_nodes + 1, sizeof(const Ddp__V1__NodeStatus *));
    for (size_t i = 0; i < s->nodes->n_nodes; i++) {
        const Ddp__V1__NodeStatus *node = s->nodes->nodes[i];
        if (!survey_wants_node(node->name, names, count))
            continue;
        if (strcmp(node->state, "alive") == 0)
            s->preflight.nodes[s->preflight.count++] = node;
        else if (strcmp(node->state, "lost") == 0 || strcmp(node->state, "suspect") == 0)
            findings_add(found, node->name, xasprintf("it is %s: its agent is silent", node->state),
                         xasprintf("start ddp-agent there, or use `ddpctl forget %s`", node->name));
    }
    return ERR_OK;
}

enum err_code preflight_survey_places(struct preflight_survey *s, struct link *link,
                                      Ddp__V1__CheckPlace *place, int64_t limit_ms, struct err *e)
{
    Ddp__V1__CheckAsk *asks = survey_asks(s);
    for (size_t i = 0; i < s->preflight.count; i++)
        asks[i].place = place;
    enum err_code code = survey_ask(link, asks, s->preflight.count, limit_ms, &s->places, e);
    free(asks);
    if (code == ERR_OK)
        s->preflight.places = survey_answers(s->places);
    return code;
}

/* ---- links */

static enum err_code survey_open_listeners(struct preflight_survey *s, struct link *link,
                                           Ddp__V1__CheckListen *listen, struct err *e)
{
    Ddp__V1__CheckAsk *asks = survey_asks(s);
    for (size_t i = 0; i < s->preflight.count; i++)
        asks[i].listen = listen;
    enum err_code code = survey_ask(link, asks, s->preflight.count, LINKS_MS, &s->listens, e);
    free(asks);
    if (code == ERR_OK)
        s->preflight.listens = survey_answers(s->listens);
    return code;
}

/* Describes node number `to` as a target. Its ports go to `ports`, which the target borrows. */
static void survey_fill_target(const struct preflight_survey *s, size_t to, bool measure, int32_t ports[2],
                               Ddp__V1__CheckTarget *out)
{
    const Ddp__V1__CheckListenResult *listen = s->preflight.listens[to]->listen;
    ddp__v1__check_target__init(out);
    out->node = s->preflight.nodes[to]->name;
    out->address = s->preflight.nodes[to]->address;
    out->measure = measure;
    out->ports = ports;
    if (listen && listen->master_port)
        ports[out->n_ports++] = listen->master_port;
    if (listen && listen->other_port)
        ports[out->n_ports++] = listen->other_port;
}

/* Every node connects to every other one. Measuring is limited to the next node in a ring, so that each link
 * is busy with one measurement only. */
static enum err_code survey_connect_all(struct preflight_survey *s, struct link *link,
                                        const ProtobufCBinaryData *key, struct err *e)
{
    const size_t n = s->preflight.count;
    Ddp__V1__CheckAsk *asks = survey_asks(s);
    Ddp__V1__CheckConnect *connects = xcalloc(n, sizeof(*connects));
    Ddp__V1__CheckTarget *targets = xcalloc(n * n, sizeof(*targets)),
                         **list = xcalloc(n * n, sizeof(Ddp__V1__CheckTarget *));
    int32_t(*ports)[2] = xcalloc(n * n, sizeof(*ports));
    /* the targets of node i are at i * n, with the one for itself left out */
    for (size_t i = 0; i < n; i++) {
        ddp__v1__check_connect__init(&connects[i]);
        connects[i].key = *key;
        connects[i].targets = &list[i * n];
        for (size_t k = 0; k < n; k++) {
            size_t at = i * n + k;
            if (k == i)
                continue;
            survey_fill_target(s, k, k == (i + 1) % n, ports[at], &targets[at]);
            connects[i].targets[connects[i].n_targets++] = &targets[at];
        }
        asks[i].connect = &connects[i];
    }
    enum err_code code = survey_ask(link, asks, n, LINKS_MS, &s->links, e);
    if (code == ERR_OK)
        s->preflight.links = survey_answers(s->links);
    free(asks);
    free(connects);
    free(targets);
    free(list);
    free(ports);
    return code;
}

enum err_code preflight_survey_links(struct preflight_survey *s, struct link *link, struct err *e)
{
    Ddp__V1__CheckListen listen = DDP__V1__CHECK_LISTEN__INIT;
    uint8_t key[KEY_BYTES];
    if (s->preflight.count < 2)
        return ERR_OK;
    id_random(key, sizeof(key));
    listen.key = (ProtobufCBinaryData){sizeof(key), key};
    listen.hold_ms = HOLD_MS;
    /* each other node connects to both ports, and one of them once more to measure */
    listen.calls = (int32_t)(2 * (s->preflight.count - 1) + 1);
    if (survey_open_listeners(s, link, &listen, e) != ERR_OK)
        return e->code;
    return survey_connect_all(s, link, &listen.key, e);
}

void preflight_survey_release(struct preflight_survey *s)
{
    rpc_free(s->nodes);
    rpc_free(s->places);
    rpc_free(s->listens);
    rpc_free(s->links);
    free(s->preflight.nodes);
    free(s->preflight.places);
    free(s->preflight.listens);
    free(s->preflight.links);
    *s = (struct preflight_survey){0};
}

/* ---- after a submit */

/* Only operators may ask nodes. A refused call would be an entry of the audit log. */
static bool survey_is_allowed(struct link *link)
{
    Ddp__V1__WhoAmIRequest request = DDP__V1__WHO_AM_IREQUEST__INIT;
    CLEANUP(rpc_release) void *reply = NULL;
    struct err e;
    return link_call_within(link, "WhoAmI", &request, &reply, CHEAP_MS, &e) == ERR_OK &&
           strcmp(((const Ddp__V1__WhoAmIReply *)reply)->role, "operate") == 0;
}

void preflight_survey_warn(struct link *link, const char *job_file, char *const *env)
{
    CLEANUP(preflight_survey_release) struct preflight_survey s = {0};
    CLEANUP(findings_release) struct findings ignored = {0}, found = {0};
    CLEANUP(job_release) struct job_spec spec = {0};
    CLEANUP(buf_release) struct buf talk = {0};
    Ddp__V1__CheckPlace place;
    struct err e;
    if (job_parse(&spec, job_file, strlen(job_file), "job file", &e) != ERR_OK || !survey_is_allowed(link) ||
        preflight_survey_nodes(&s, link, NULL, 0, &ignored, &e) != ERR_OK || !s.preflight.count)
        return;
    /* only the contents of small scripts: reading data takes too long here */
    preflight_place_init(&spec, env, false, &place);
    enum err_code code = preflight_survey_places(&s, link, &place, CHEAP_MS, &e);
    preflight_place_release(&place);
    if (code != ERR_OK)
        return;
    preflight_check_places(&s.preflight, &found);
    for (size_t i = 0; i < found.count && i < WARNINGS; i++) {
        buf_printf(&talk, "ddpctl: warning: %s: ", found.items[i].node);
        term_puts_safe(&talk, found.items[i].what);
        buf_putc(&talk, '\n');
    }
    if (found.count > WARNINGS)
        buf_printf(&talk, "ddpctl: warning: %zu more problems: run `ddpctl check`\n", found.count - WARNINGS);
    stderr_put(&talk);
}
