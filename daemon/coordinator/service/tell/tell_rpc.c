#include "daemon/coordinator/service/tell/tell_rpc.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/net/web_url.h"
#include "daemon/coordinator/service/access/audit.h"
#include "daemon/coordinator/service/access/auth.h"
#include "daemon/coordinator/service/commit_queue.h"
#include "daemon/coordinator/service/pool.h"
#include "daemon/coordinator/service/service_state.h"
#include "daemon/coordinator/service/tell/hook.h"
#include "daemon/coordinator/service/tell/teller.h"
#include "proto/ddp.pb-c.h"
#include "proto/rpc_codec.h"

static char *tell_target(struct pool *pool, const struct teller_state *state)
{
    if (state->url) {
        CLEANUP(free_text) char *shown = web_url_shown(state->url);
        return pool_text(pool, shown);
    }
    return pool_text(pool, state->program ? state->program : "the `tell` of jobs");
}

static Ddp__V1__Hook *tell_convert(struct pool *pool, const struct teller_state *state)
{
    Ddp__V1__Hook *hook = pool_alloc(pool, sizeof *hook);
    ddp__v1__hook__init(hook);
    hook->name = pool_text(pool, state->name);
    hook->target = tell_target(pool, state);
    hook->waiting = state->waiting;
    hook->delivered = (int64_t)state->delivered;
    hook->failed = (int64_t)state->failed;
    hook->dropped = (int64_t)state->dropped;
    hook->ok_ms = state->ok_ms;
    hook->error_ms = state->error_ms;
    hook->error = rpc_utf8_clean(pool_text(pool, state->error ? state->error : ""));
    return hook;
}

static void tell_fill_events(struct pool *pool, unsigned on, Ddp__V1__Hook *hook)
{
    hook->on = pool_alloc(pool, 32 * sizeof *hook->on);
    for (int i = 0; notice_names[i]; i++)
        if (on & 1u << i)
            hook->on[hook->n_on++] = pool_text(pool, notice_names[i]);
}

void tell_list(struct rpc_call *rpc, const void *message, void *user)
{
    struct service *s = user;
    Ddp__V1__ListHooksReply reply = DDP__V1__LIST_HOOKS_REPLY__INIT;
    CLEANUP(pool_release) struct pool pool = {0};
    const size_t count = teller_count(s->teller);
    (void)message;
    commit_queue_flush(s);
    reply.n_hooks = count + 1;
    reply.hooks = pool_alloc(&pool, reply.n_hooks * sizeof *reply.hooks);
    for (size_t i = 0; i <= count; i++) {
        struct teller_state state;
        teller_describe(s->teller, i, &state);
        reply.hooks[i] = tell_convert(&pool, &state);
        if (i < count)
            tell_fill_events(&pool, s->options->hooks->rules[i].on, reply.hooks[i]);
    }
    rpc_call_reply(rpc, &reply);
}

/* ---- a test */

struct tell_part {
    struct tell_call *call;
    size_t hook;
    int64_t began_ns, took_ms;
    struct tell_result result;
};

/* One TestHook. It lives until the call has ended and all its parts are done. */
struct tell_call {
    struct service *service;
    struct rpc_call *rpc; /* NULL: it has ended */
    size_t count, left;
    struct tell_part *parts;
};

static void tell_call_free(struct tell_call *c)
{
    free(c->parts);
    free(c);
}

static void tell_reply(struct tell_call *c)
{
    Ddp__V1__TestHookReply reply = DDP__V1__TEST_HOOK_REPLY__INIT;
    CLEANUP(pool_release) struct pool pool = {0};
    reply.n_results = c->count;
    reply.results = pool_alloc(&pool, c->count * sizeof *reply.results);
    for (size_t i = 0; i < c->count; i++) {
        Ddp__V1__HookResult *r = reply.results[i] = pool_alloc(&pool, sizeof *r);
        ddp__v1__hook_result__init(r);
        r->name = c->service->options->hooks->rules[c->parts[i].hook].name;
        r->ok = c->parts[i].result.ok;
        r->text = rpc_utf8_clean(c->parts[i].result.text);
        r->took_ms = c->parts[i].took_ms;
    }
    rpc_call_reply(c->rpc, &reply);
}

static void tell_call_settle(struct tell_call *c)
{
    if (--c->left)
        return;
    if (c->rpc)
        tell_reply(c); /* tell_test_end frees the call */
    else
        tell_call_free(c);
}

static void tell_part_done(void *user, const struct tell_result *result)
{
    struct tell_part *part = user;
    part->result = *result;
    part->took_ms = (clock_mono_ns() - part->began_ns) / 1000000;
    tell_call_settle(part->call);
}

void tell_test(struct rpc_call *rpc, const void *message, void *user)
{
    struct service *s = user;
    const Ddp__V1__TestHookRequest *request = message;
    const size_t all = teller_count(s->teller);
    struct tell_call *c = xcalloc(1, sizeof *c);
    c->parts = xcalloc(all + 1, sizeof *c->parts);
    for (size_t i = 0; i < all; i++)
        if (!*request->name || strcmp(s->options->hooks->rules[i].name, request->name) == 0)
            c->parts[c->count++] = (struct tell_part){.call = c, .hook = i, .began_ns = clock_mono_ns()};
    if (!c->count) {
        if (*request->name)
            rpc_call_fail_with(rpc, ERR_NOT_FOUND, "there is no hook '%.64s': `ddpctl tell` lists the hooks",
                               request->name);
        else
            rpc_call_fail_with(rpc, ERR_FAILED_PRECONDITION, "coordinator.yaml has no hooks");
        tell_call_free(c);
        return;
    }
    audit_add(s, caller_identity(rpc), "hook_test", 0, "test %.64s",
              *request->name ? request->name : "all hooks");
    c->service = s;
    c->rpc = rpc;
    c->left = c->count + 1; /* one more, because a part may be done before the next one begins */
    rpc_call_set_user(rpc, c);
    for (size_t i = 0; i < c->count; i++)
        teller_test(s->teller, c->parts[i].hook, tell_part_done, &c->parts[i]);
    tell_call_settle(c);
}

void tell_test_end(struct rpc_call *rpc, bool cancelled)
{
    struct tell_call *c = rpc_call_user(rpc);
    (void)cancelled;
    if (!c)
        return;
    c->rpc = NULL;
    if (!c->left)
        tell_call_free(c);
}

void tell_count(struct service *s, struct stats_hooks *out)
{
    out->count = 0;
    for (size_t i = 0; i <= teller_count(s->teller) && out->count < ARRAY_LEN(out->hooks); i++) {
        struct teller_state state;
        struct stats_hook *hook = &out->hooks[out->count++];
        teller_describe(s->teller, i, &state);
        snprintf(hook->name, sizeof hook->name, "%s", state.name);
        hook->waiting = state.waiting;
        hook->delivered = state.delivered;
        hook->failed = state.failed;
        hook->dropped = state.dropped;
    }
}
