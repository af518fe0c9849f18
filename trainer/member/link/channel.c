/* The coordinator's address. At the start it is DDP_COORDINATOR. When the coordinator moves, the agent writes
 * the new address to the file that DDP_COORDINATOR_FILE names. TLS files and the token stay the same. If the
 * file is missing or unusable, the address does not change. */
#include "trainer/member/link/channel.h"

#include "base/buf.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "proto/ddp.pb-c.h"

#include <stdlib.h>
#include <string.h>

#define ADDRESS_MOST 1024

static void channel_free(struct link_channel *channel)
{
    rpc_channel_close(channel->rpc);
    free(channel->target);
    free(channel);
}

static enum err_code channel_to(const struct link *r, const char *target, struct link_channel **out,
                                struct err *e)
{
    struct rpc_tls_files tls = {link_env("DDP_TLS_CA"), link_env("DDP_TLS_CERT"), link_env("DDP_TLS_KEY")};
    struct rpc_channel_options options = {.token = r->token, .tls = tls.ca ? &tls : NULL};
    struct rpc_channel *rpc;

    if (rpc_channel_open(&rpc, target, &options, e))
        return e->code;
    *out = xcalloc(1, sizeof(**out));
    **out = (struct link_channel){.rpc = rpc, .target = xstrdup(target), .users = 1};
    return ERR_OK;
}

/* Reads the address in the agent's file. NULL: there is none. */
static char *read_address(void)
{
    const char *path = link_env("DDP_COORDINATOR_FILE");
    CLEANUP(buf_release) struct buf text = {0};
    struct err e;

    if (!path || file_read(path, ADDRESS_MOST, &text, &e) || !text.data)
        return NULL;
    text.data[strcspn(text.data, "\r\n")] = '\0';
    return text.data[0] ? xstrdup(text.data) : NULL;
}

enum err_code link_channel_open(struct link *r, struct err *e)
{
    CLEANUP(free_text) char *now = read_address();

    if ((!now || channel_to(r, now, &r->channel, e)) &&
        channel_to(r, link_env("DDP_COORDINATOR"), &r->channel, e))
        return e->code;
    r->has_coordinator = true;
    return ERR_OK;
}

struct link_channel *link_channel_take(struct link *r)
{
    pthread_mutex_lock(&r->lock);
    struct link_channel *channel = r->channel;
    channel->users++;
    pthread_mutex_unlock(&r->lock);
    return channel;
}

void link_channel_put(struct link *r, struct link_channel *channel)
{
    bool last;

    if (!channel)
        return;
    pthread_mutex_lock(&r->lock);
    last = --channel->users == 0;
    pthread_mutex_unlock(&r->lock);
    if (last)
        channel_free(channel);
}

bool link_channel_left(struct link *r, const struct link_channel *channel)
{
    pthread_mutex_lock(&r->lock);
    bool left = r->channel != channel && !atomic_load(&r->cancelled);
    pthread_mutex_unlock(&r->lock);
    return left;
}

/* Opens a channel to `target`. The caller holds the lock. NULL: the present channel stays. */
static struct link_channel *follow_to(struct link *r, const char *target)
{
    struct link_channel *next, *former = r->channel;
    struct err e;

    if (atomic_load(&r->cancelled) || !strcmp(target, former->target) ||
        (r->refused && !strcmp(target, r->refused)))
        return NULL;
    if (channel_to(r, target, &next, &e)) {
        log_warn("coordinator_address_refused", "address=%s why=%s", LOG_Q(target), LOG_Q(e.msg));
        free(r->refused);
        r->refused = xstrdup(target);
        return NULL;
    }
    log_info("coordinator_moved", "job=%lld rank=%d from=%s to=%s", (long long)r->place.job, r->rank,
             LOG_Q(former->target), LOG_Q(target));
    r->channel = next;
    rpc_channel_cancel(former->rpc);
    return former;
}

bool link_channel_follow(struct link *r)
{
    CLEANUP(free_text) char *target = read_address();

    if (!target)
        return false;
    pthread_mutex_lock(&r->lock);
    struct link_channel *former = follow_to(r, target);
    pthread_mutex_unlock(&r->lock);
    link_channel_put(r, former);
    return former != NULL;
}

/* ---- calls */

enum err_code link_call(struct link *r, const char *method, const void *request, void **reply,
                        int64_t timeout_ms, struct err *e)
{
    struct link_channel *channel = link_channel_take(r);
    enum err_code rc = rpc_channel_call(channel->rpc, &ddp__v1__rendezvous__descriptor, method, request,
                                        reply, timeout_ms, RPC_IDEMPOTENT | RPC_WAIT_FOR_READY, e);

    if (rc == ERR_CANCELLED && link_channel_left(r, channel))
        rc = err_set(e, ERR_UNAVAILABLE, "the coordinator has moved from %s", channel->target);
    link_channel_put(r, channel);
    return rc;
}

bool link_call_again(struct link *r, const char *what, const struct err *e, int *tries)
{
    if (!link_may_retry(e->code) || atomic_load(&r->cancelled))
        return false;
    if (*tries == 0)
        log_warn("coordinator_away", "rpc=%s why=%s", what, LOG_Q(e->msg));
    if (link_channel_follow(r))
        *tries = 0;
    link_pause(r, tries);
    return !atomic_load(&r->cancelled);
}
