#include "daemon/coordinator/service/check_rpc.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "daemon/coordinator/service/access/auth.h"
#include "daemon/coordinator/service/ask.h"
#include "daemon/coordinator/service/pool.h"
#include "daemon/coordinator/service/service_state.h"
#include "proto/ddp.pb-c.h"
#include "proto/rpc_codec.h"

/* CheckNodes: each question goes to its node and its answer back to the user, with what only the coordinator
 * can know of it: how far that node's clock is from its own. */

#define DEFAULT_MS 10000
#define MOST_MS 60000
#define MOST_ASKS 1024

/* Its clock was read between our asking and its answer, most likely soon after the asking. */
static void fill_clock(const struct ask_part *part, Ddp__V1__CheckAnswer *answer)
{
    const int64_t trip = part->answered_wall - part->asked_wall;
    answer->trip_ms = trip > 0 ? trip : 0;
    answer->skew_ms = answer->wall_ms - part->asked_wall;
    if (answer->skew_ms > 0 && answer->skew_ms <= answer->trip_ms)
        answer->skew_ms = 0; /* it may as well have been on the way for so long */
}

static Ddp__V1__CheckAnswer *take(struct pool *pool, const struct ask_part *part, void **unpacked)
{
    Ddp__V1__CheckAnswer *answer;
    const char *problem = part->problem;
    struct err e = {0};
    if (!problem && rpc_unpack(&ddp__v1__check_answer__descriptor, part->answer.data, part->answer.len,
                               unpacked, &e) != ERR_OK)
        problem = "gave an answer that is none";
    answer = pool_alloc(pool, sizeof *answer);
    ddp__v1__check_answer__init(answer);
    if (problem) {
        answer->error = pool_printf(pool, "%s", problem);
    } else {
        *answer = *(Ddp__V1__CheckAnswer *)*unpacked; /* borrows from it */
        fill_clock(part, answer);
    }
    answer->ask = 0;
    answer->node = part->node;
    return answer;
}

static void reply(struct ask *ask)
{
    CLEANUP(pool_release) struct pool pool = {0};
    Ddp__V1__CheckNodesReply message = DDP__V1__CHECK_NODES_REPLY__INIT;
    void **unpacked = xcalloc(ask->count + 1, sizeof *unpacked);
    message.answers = pool_alloc(&pool, (ask->count + 1) * sizeof *message.answers);
    message.n_answers = ask->count;
    for (size_t i = 0; i < ask->count; i++)
        message.answers[i] = take(&pool, ask->parts[i], &unpacked[i]);
    rpc_call_reply(ask->rpc, &message);
    for (size_t i = 0; i < ask->count; i++)
        rpc_free(unpacked[i]);
    free(unpacked);
}

void check_nodes(struct rpc_call *rpc, const void *message, void *user)
{
    struct service *s = user;
    const Ddp__V1__CheckNodesRequest *request = message;
    const int64_t wanted = request->timeout_ms > 0 ? request->timeout_ms : DEFAULT_MS;
    if (request->n_asks > MOST_ASKS) {
        rpc_call_fail_with(rpc, ERR_INVALID_ARGUMENT, "%zu questions at once, at most %d", request->n_asks,
                           MOST_ASKS);
        return;
    }
    struct ask *ask = ask_open(s, rpc, wanted < MOST_MS ? wanted : MOST_MS, reply);
    for (size_t i = 0; i < request->n_asks; i++) {
        Ddp__V1__CheckAsk question = *request->asks[i];
        Ddp__V1__AgentDown down = DDP__V1__AGENT_DOWN__INIT;
        struct ask_part *part = ask_add(ask, question.node);
        question.ask = (int64_t)part->handle;
        question.user = (char *)(uintptr_t)caller(rpc)->name;
        down.body_case = DDP__V1__AGENT_DOWN__BODY_CHECK;
        down.check = &question;
        ask_send(part, &down);
    }
    ask_start(ask);
}
