#include "daemon/coordinator/service/ask.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "daemon/coordinator/service/agent_rpc.h"
#include "daemon/coordinator/service/handles.h"
#include "daemon/coordinator/service/service_state.h"
#include "proto/ddp.pb-c.h"
#include "proto/rpc_codec.h"

#define LOOK_EVERY_MS 50 /* at deadlines, while there are any */

static void free_part(struct ask_part *part)
{
    handles_take(&part->ask->service->asks, part->handle);
    buf_release(&part->answer);
    free(part->problem);
    free(part->node);
    free(part);
}

static void free_ask(struct ask *ask)
{
    struct service *s = ask->service;
    if (ask->next)
        ask->next->prev = ask->prev;
    if (ask->prev)
        ask->prev->next = ask->next;
    else
        s->ask_list = ask->next;
    for (size_t i = 0; i < ask->count; i++)
        free_part(ask->parts[i]);
    free(ask->parts);
    free(ask);
    if (!s->ask_list)
        uv_timer_stop(&s->ask_timer);
}

/* The call outlives the ask by a moment: its on_end finds nothing. */
static void finish(struct ask *ask)
{
    struct rpc_call *rpc = ask->rpc;
    ask->finish(ask);
    rpc_call_set_user(rpc, NULL);
    free_ask(ask);
}

static void done(struct ask_part *part, const char *problem)
{
    if (part->done)
        return;
    part->done = true;
    part->problem = xstrdup(problem);
    part->ask->waiting--;
}

static void on_timer(uv_timer_t *timer)
{
    struct service *s = timer->data;
    const int64_t now = clock_boot_ms();
    for (struct ask *ask = s->ask_list, *next; ask; ask = next) {
        next = ask->next;
        if (now < ask->deadline)
            continue;
        for (size_t i = 0; i < ask->count; i++)
            done(ask->parts[i], "did not answer in time");
        finish(ask);
    }
}

struct ask *ask_open(struct service *s, struct rpc_call *rpc, int64_t timeout_ms,
                     void (*on_finish)(struct ask *))
{
    struct ask *ask = xcalloc(1, sizeof *ask);
    *ask = (struct ask){.service = s,
                        .rpc = rpc,
                        .deadline = clock_boot_ms() + timeout_ms,
                        .finish = on_finish,
                        .next = s->ask_list};
    if (ask->next)
        ask->next->prev = ask;
    else
        uv_timer_start(&s->ask_timer, on_timer, LOOK_EVERY_MS, LOOK_EVERY_MS);
    s->ask_list = ask;
    rpc_call_set_user(rpc, ask);
    return ask;
}

struct ask_part *ask_add(struct ask *ask, const char *node)
{
    struct ask_part *part = xcalloc(1, sizeof *part);
    *part = (struct ask_part){.ask = ask,
                              .handle = service_handle(ask->service),
                              .node = xstrdup(node),
                              .asked_wall = clock_wall_ms()};
    handles_put(&ask->service->asks, part->handle, part);
    ask->parts = array_grow(ask->parts, ask->count, &ask->cap, sizeof(struct ask_part *));
    ask->parts[ask->count++] = part;
    ask->waiting++;
    return part;
}

void ask_send(struct ask_part *part, const Ddp__V1__AgentDown *down)
{
    struct session *session = session_find(part->ask->service, part->node);
    struct err e = {0};
    if (!session) {
        done(part, "cannot be reached");
        return;
    }
    part->session = session->handle;
    if (session_send(session, down, &e) != ERR_OK)
        done(part, "is too far behind to be asked now");
}

void ask_start(struct ask *ask)
{
    if (!ask->waiting)
        finish(ask);
}

void ask_answered(struct session *session, uint64_t handle, const ProtobufCMessage *answer)
{
    struct ask_part *part = handles_get(&session->service->asks, handle);
    struct err e = {0};
    if (!part || part->session != session->handle || part->done)
        return; /* too late, or not asked of it */
    if (rpc_pack(answer, &part->answer, &e) != ERR_OK) {
        done(part, "gave an answer that is none");
    } else {
        part->answered_wall = clock_wall_ms();
        done(part, NULL);
    }
    if (!part->ask->waiting)
        finish(part->ask);
}

void ask_session_gone(const struct session *session)
{
    for (struct ask *ask = session->service->ask_list, *next; ask; ask = next) {
        next = ask->next;
        for (size_t i = 0; i < ask->count; i++)
            if (ask->parts[i]->session == session->handle)
                done(ask->parts[i], "was lost while it was asked");
        if (!ask->waiting)
            finish(ask);
    }
}

void ask_end(struct rpc_call *rpc, bool cancelled)
{
    struct ask *ask = rpc_call_user(rpc);
    (void)cancelled;
    if (ask)
        free_ask(ask);
}
