#include "trainer/member/link/link.h"

#include "trainer/member/link/channel.h"

#include "base/conf/conf.h"
#include "base/crypto/id.h"
#include "base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define TOKEN_MOST 256
#define PAUSE_LEAST_MS 50
#define PAUSE_MOST_MS 2000

/* ---- from the environment */

const char *link_env(const char *name)
{
    const char *text = getenv(name);

    return text && text[0] ? text : NULL;
}

static enum err_code env_number(const char *name, int64_t fallback, int64_t *out, struct err *e)
{
    const char *text = link_env(name);
    char *end;
    long long value;

    *out = fallback;
    if (!text)
        return ERR_OK;
    errno = 0;
    value = strtoll(text, &end, 10);
    if (errno || *end || value < 0)
        return err_set(e, ERR_INVALID_ARGUMENT, "invalid %s='%s' in the environment: expected a number", name,
                       text);
    *out = value;
    return ERR_OK;
}

static enum err_code link_env_int(const char *name, int fallback, int *out, struct err *e)
{
    int64_t value;

    if (env_number(name, fallback, &value, e))
        return e->code;
    if (value > INT_MAX)
        return err_set(e, ERR_INVALID_ARGUMENT, "%s=%lld in the environment is too large", name,
                       (long long)value);
    *out = (int)value;
    return ERR_OK;
}

static enum err_code read_place(struct link *r, struct err *e)
{
    struct link_place *p = &r->place;
    struct link_member *m = &r->first;

    r->address = xstrdup(link_env("DDP_NODE_ADDRESS") ? link_env("DDP_NODE_ADDRESS") : "127.0.0.1");
    r->directory = xstrdup(link_env("DDP_RUN_DIR"));
    r->cluster = xstrdup(link_env("DDP_CLUSTER_ID") ? link_env("DDP_CLUSTER_ID") : "");
    p->address = r->address;
    p->directory = r->directory;
    p->cluster = r->cluster;
    if (env_number("DDP_JOB_ID", 0, &p->job, e) || env_number("DDP_GENERATION", 1, &m->generation, e) ||
        env_number("DDP_SPAWN", 0, &p->spawn, e) || link_env_int("RANK", 0, &m->rank, e) ||
        link_env_int("WORLD_SIZE", 1, &m->world_size, e) ||
        link_env_int("LOCAL_RANK", 0, &p->local_rank, e) || link_env_int("GROUP_RANK", 0, &p->node_rank, e))
        return e->code;
    if (m->world_size < 1 || m->rank >= m->world_size)
        return err_set(e, ERR_INVALID_ARGUMENT, "RANK=%d is not within WORLD_SIZE=%d", m->rank,
                       m->world_size);
    return ERR_OK;
}

/* Sets *out to the descriptor whose number is in the environment, or to -1. */
static enum err_code env_fd(const char *name, int *out, struct err *e)
{
    int64_t value;

    *out = -1;
    if (!link_env(name))
        return ERR_OK;
    if (env_number(name, 0, &value, e))
        return e->code;
    if (value > INT_MAX || fcntl((int)value, F_GETFD) < 0)
        return err_set(e, ERR_INVALID_ARGUMENT, "%s=%lld in the environment is not an open descriptor", name,
                       (long long)value);
    *out = (int)value;
    return fcntl(*out, F_SETFD, FD_CLOEXEC) ? err_sys(e, errno, "%s", name) : ERR_OK;
}

/* A standalone worker writes its lines to stdout, and waits if the reader is slow. */
static enum err_code open_lines(struct link *r, bool standalone, struct err *e)
{
    int flags;

    if (env_fd("DDP_REPORT_FD", &r->fd, e))
        return e->code;
    if (r->fd < 0) {
        r->fd = standalone ? STDOUT_FILENO : -1;
        return ERR_OK;
    }
    flags = fcntl(r->fd, F_GETFL);
    if (flags < 0 || fcntl(r->fd, F_SETFL, flags | O_NONBLOCK))
        return err_sys(e, errno, "DDP_REPORT_FD");
    return ERR_OK;
}

/* Reads the token's bytes and sets *out to their hex form, in which they are sent; NULL: there is no token.
 * The descriptor is closed, so its number is removed from the environment. */
static enum err_code link_read_token(char **out, struct err *e)
{
    CLEANUP(close_fd) int fd = -1;
    uint8_t token[TOKEN_MOST + 1];
    size_t got = 0;
    ssize_t n;

    if (env_fd("DDP_TOKEN_FD", &fd, e) || fd < 0)
        return e->code;
    while ((n = read(fd, token + got, sizeof(token) - got)) != 0) {
        if (n < 0 && errno != EINTR)
            return err_sys(e, errno, "DDP_TOKEN_FD");
        got += n > 0 ? (size_t)n : 0;
        if (got > TOKEN_MOST)
            return err_set(e, ERR_INVALID_ARGUMENT, "DDP_TOKEN_FD holds more than %d bytes", TOKEN_MOST);
    }
    /* The descriptor is closed when this function returns, and its number may be reused. */
    unsetenv("DDP_TOKEN_FD");
    *out = xmalloc(2 * got + 1);
    hex_encode(*out, token, got);
    explicit_bzero(token, sizeof(token));
    return ERR_OK;
}

enum err_code link_open(struct link **out, bool standalone, struct err *e)
{
    struct link *r = xcalloc(1, sizeof(*r));
    pthread_condattr_t attr;
    enum err_code rc = ERR_OK;

    e->code = ERR_OK;
    r->fd = -1;
    pthread_mutex_init(&r->lock, NULL);
    pthread_mutex_init(&r->watch_lock, NULL);
    pthread_mutex_init(&r->tuning.lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&r->changed, &attr);
    pthread_condattr_destroy(&attr);
    /* Without this, writing a progress line would end this worker if its supervisor is gone. */
    signal(SIGPIPE, SIG_IGN);
    r->first = (struct link_member){.generation = 1, .world_size = 1};
    r->place = (struct link_place){.address = "127.0.0.1", .cluster = ""};
    if (!standalone)
        rc = read_place(r, e);
    r->generation = r->first.generation;
    r->rank = r->first.rank;
    r->over = r->stop_asked = INT64_MIN;
    if (!rc)
        rc = open_lines(r, standalone, e);
    if (!rc && !standalone && link_env("DDP_COORDINATOR"))
        rc = link_read_token(&r->token, e) ? e->code : link_channel_open(r, e);
    if (rc) {
        link_close(r);
        return rc;
    }
    *out = r;
    return ERR_OK;
}

void link_close(struct link *r)
{
    if (!r)
        return;
    link_cancel(r);
    if (r->watching)
        pthread_join(r->watch, NULL);
    link_channel_put(r, r->channel);
    if (r->token)
        explicit_bzero(r->token, strlen(r->token));
    free(r->token);
    free(r->refused);
    pthread_mutex_destroy(&r->lock);
    pthread_mutex_destroy(&r->watch_lock);
    pthread_mutex_destroy(&r->tuning.lock);
    free(r->tuning.text);
    pthread_cond_destroy(&r->changed);
    free(r->address);
    free(r->directory);
    free(r->cluster);
    free(r);
}

const struct link_place *link_place(const struct link *r)
{
    return &r->place;
}

const struct link_member *link_first_member(const struct link *r)
{
    return &r->first;
}

bool link_has_coordinator(const struct link *r)
{
    return r->has_coordinator;
}

/* ---- waiting */

void link_cancel(struct link *r)
{
    pthread_mutex_lock(&r->lock);
    atomic_store(&r->cancelled, true);
    pthread_cond_broadcast(&r->changed);
    if (r->channel)
        rpc_channel_cancel(r->channel->rpc);
    pthread_mutex_unlock(&r->lock);
}

enum err_code link_cancelled(struct err *e)
{
    return err_set(e, ERR_CANCELLED, "this worker is ending");
}

bool link_may_retry(enum err_code code)
{
    return code == ERR_UNAVAILABLE || code == ERR_DEADLINE_EXCEEDED || code == ERR_RESOURCE_EXHAUSTED;
}

void link_pause(struct link *r, int *tries)
{
    int64_t ms = *tries < 6 ? PAUSE_LEAST_MS << *tries : PAUSE_MOST_MS;
    struct timespec until;
    uint32_t jitter;

    (*tries)++;
    id_random(&jitter, sizeof(jitter));
    /* Between half and one and a half times the pause, so that the ranks of a job do not retry at the same
     * moment. */
    ms = ms / 2 + (int64_t)(jitter % (uint32_t)ms);
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += ms / 1000;
    until.tv_nsec += ms % 1000 * 1000000;
    if (until.tv_nsec >= 1000000000) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000;
    }
    pthread_mutex_lock(&r->lock);
    while (!atomic_load(&r->cancelled) && pthread_cond_timedwait(&r->changed, &r->lock, &until) != ETIMEDOUT)
        ;
    pthread_mutex_unlock(&r->lock);
}

void link_heed_signal(struct link *r, const atomic_int *number)
{
    BUG_ON(r->watching); /* the Watch thread reads it without a lock */
    r->stop_signal = number;
}

bool link_given_up(const struct link *r)
{
    return atomic_load(&r->given_up);
}

bool link_stop_asked(const struct link *r)
{
    return atomic_load(&r->stop_asked) >= atomic_load(&r->generation);
}

bool link_over(const struct link *r)
{
    return atomic_load(&r->over) >= atomic_load(&r->generation);
}

/* ---- progress */

/* Writes of at most PIPE_BUF bytes to a pipe are atomic. */
void link_progress(struct link *r, const struct metric_line *metrics)
{
    CLEANUP(buf_release) struct buf line = {0};

    if (r->fd < 0)
        return;
    metric_line_encode(metrics, &line);
    buf_putc(&line, '\n');
    if (line.len > PIPE_BUF || write(r->fd, line.data, line.len) != (ssize_t)line.len)
        atomic_fetch_add(&r->dropped, 1);
}

uint64_t link_dropped(const struct link *r)
{
    return atomic_load(&r->dropped);
}
