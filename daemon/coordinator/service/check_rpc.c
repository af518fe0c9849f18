#include "daemon/coordinator/service/check_rpc.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "daemon/coordinator/service/access/auth.h"
#include "daemon/coordinator/service/node_query.h"
#include "daemon/coordinator/service/pool.h"
#include "daemon/coordinator/service/service_state.h"
#include "proto/ddp.pb-c.h"
#include "proto/rpc_codec.h"

/* CheckNodes passes each question to its node and the answers back to the user. The coordinator adds one
 * value that only it can know: the difference between the node's clock and its own. */

#define DEFAULT_MS 10000
#define MOST_MS 60000
#define MOST_ASKS 1024

/* The node read its clock between our question and its answer, most likely soon after the question. */
static void check_fill_clock(const struct node_query_part *part, Ddp__V1__CheckAnswer *answer)
{
    const int64_t trip = part->answered_wall - part->asked_wall;
    answer->trip_ms = trip > 0 ? trip : 0;
    answer->skew_ms = answer->wall_ms - part->asked_wall;
    if (answer->skew_ms > 0 && answer->skew_ms <= answer->trip_ms)
        answer->skew_ms = 0; /* the message's own travel time explains the difference */
}

static Ddp__V1__CheckAnswer *check_build_answer(struct pool *pool, const struct node_query_part *part,
                                                void **unpacked)
{
    Ddp__V1__CheckAnswer *answer;
    const char *problem = part->problem;
    struct err e = {0};
    if (!problem && rpc_unpack(&ddp__v1__check_answer__descriptor, part->answer.data, part->answer.len,
                               unpacked, &e) != ERR_OK)
        problem = "sent an invalid answer";
    answer = pool_alloc(pool, sizeof *answer);
    ddp__v1__check_answer__init(answer);
    if (problem) {
        answer->error = pool_printf(pool, "%s", problem);
    } else {
        *answer = *(Ddp__V1__CheckAnswer *)*unpacked; /* borrows its texts */
        check_fill_clock(part, answer);
    }
    answer->ask = 0;
    answer->node = part->node;
    return answer;
}

static void check_reply(struct node_query *query)
{
    CLEANUP(pool_release) struct pool pool = {0};
    Ddp__V1__CheckNodesReply message = DDP__V1__CHECK_NODES_REPLY__INIT;
    void **unpacked = xcalloc(query->count + 1, sizeof *unpacked);
    message.answers = pool_alloc(&pool, (query->count + 1) * sizeof *message.answers);
    message.n_answers = query->count;
    for (size_t i = 0; i < query->count; i++)
        message.answers[i] = check_build_answer(&pool, query->parts[i], &unpacked[i]);
    rpc_call_reply(query->rpc, &message);
    for (size_t i = 0; i < query->count; i++)
        rpc_free(unpacked[i]);
    free(unpacked);
}

void check_nodes(struct rpc_call *rpc, const void *message, void *user)
{
    struct service *s = user;
    const Ddp__V1__CheckNodesRequest *request = message;
    const int64_t wanted = request->timeout_ms > 0 ? request->timeout_ms : DEFAULT_MS;
    if (request->n_asks > MOST_ASKS) {
        rpc_call_fail_with(rpc, ERR_INVALID_ARGUMENT, "%zu questions in one call: at most %d are allowed",
                           request->n_asks, MOST_ASKS);
        return;
    }
    struct node_query *query = node_query_open(s, rpc, wanted < MOST_MS ? wanted : MOST_MS, check_reply);
    for (size_t i = 0; i < request->n_asks; i++) {
        Ddp__V1__CheckAsk question = *request->asks[i];
        Ddp__V1__AgentDown down = DDP__V1__AGENT_DOWN__INIT;
        struct node_query_part *part = node_query_add(query, question.node);
        question.ask = (int64_t)part->handle;
        /* The user in the request is replaced: nodes look at files with the rights of the real caller. */
        question.user = (char *)(uintptr_t)caller_identity(rpc)->name;
        down.body_case = DDP__V1__AGENT_DOWN__BODY_CHECK;
        down.check = &question;
        node_query_send(part, &down);
    }
    node_query_start(query);
}
