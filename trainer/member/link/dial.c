/* Where the coordinator is. DDP_COORDINATOR says it at the start; the file that DDP_COORDINATOR_FILE names is
 * the agent's, which writes another address there when the coordinator has moved. TLS files and the token
 * stay. Without that file, or with one that cannot be used, the address stays as it is. */
#include "trainer/member/link/internal.h"

#include "base/buf.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

#define ADDRESS_MOST 1024

static void link_free(struct report_link *link)
{
    rpc_channel_close(link->channel);
    free(link->target);
    free(link);
}

static enum err_code link_to(const struct report *r, const char *target, struct report_link **out,
                             struct err *e)
{
    struct rpc_tls_files tls = {report_env("DDP_TLS_CA"), report_env("DDP_TLS_CERT"),
                                report_env("DDP_TLS_KEY")};
    struct rpc_channel_options options = {.token = r->token, .tls = tls.ca ? &tls : NULL};
    struct rpc_channel *channel;

    if (rpc_channel_open(&channel, target, &options, e))
        return e->code;
    *out = xcalloc(1, sizeof(**out));
    **out = (struct report_link){.channel = channel, .target = xstrdup(target), .users = 1};
    return ERR_OK;
}

/* What the agent says; NULL: nothing. */
static char *read_address(void)
{
    const char *path = report_env("DDP_COORDINATOR_FILE");
    CLEANUP(buf_release) struct buf text = {0};
    struct err e;

    if (!path || file_read(path, ADDRESS_MOST, &text, &e) || !text.data)
        return NULL;
    text.data[strcspn(text.data, "\r\n")] = '\0';
    return text.data[0] ? xstrdup(text.data) : NULL;
}

enum err_code report_link_open(struct report *r, struct err *e)
{
    CLEANUP(free_text) char *now = read_address();

    if ((!now || link_to(r, now, &r->link, e)) && link_to(r, report_env("DDP_COORDINATOR"), &r->link, e))
        return e->code;
    r->has_coordinator = true;
    return ERR_OK;
}

struct report_link *report_link_take(struct report *r)
{
    pthread_mutex_lock(&r->lock);
    struct report_link *link = r->link;
    link->users++;
    pthread_mutex_unlock(&r->lock);
    return link;
}

void report_link_put(struct report *r, struct report_link *link)
{
    bool last;

    if (!link)
        return;
    pthread_mutex_lock(&r->lock);
    last = --link->users == 0;
    pthread_mutex_unlock(&r->lock);
    if (last)
        link_free(link);
}

bool report_link_left(struct report *r, const struct report_link *link)
{
    pthread_mutex_lock(&r->lock);
    bool left = r->link != link && !atomic_load(&r->cancelled);
    pthread_mutex_unlock(&r->lock);
    return left;
}

/* Under the lock. NULL: it stays with what it has. */
static struct report_link *follow_to(struct report *r, const char *target)
{
    struct report_link *next, *former = r->link;
    struct err e;

    if (atomic_load(&r->cancelled) || !strcmp(target, former->target) ||
        (r->refused && !strcmp(target, r->refused)))
        return NULL;
    if (link_to(r, target, &next, &e)) {
        log_warn("coordinator_address_refused", "address=%s why=%s", LOG_Q(target), LOG_Q(e.msg));
        free(r->refused);
        r->refused = xstrdup(target);
        return NULL;
    }
    log_info("coordinator_moved", "job=%lld rank=%d from=%s to=%s", (long long)r->place.job, r->place.rank,
             LOG_Q(former->target), LOG_Q(target));
    r->link = next;
    rpc_channel_cancel(former->channel);
    return former;
}

bool report_link_follow(struct report *r)
{
    CLEANUP(free_text) char *target = read_address();

    if (!target)
        return false;
    pthread_mutex_lock(&r->lock);
    struct report_link *former = follow_to(r, target);
    pthread_mutex_unlock(&r->lock);
    report_link_put(r, former);
    return former != NULL;
}
