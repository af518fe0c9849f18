#include "proto/rpc_resolve.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/mem.h"
#include "proto/rpc_address.h"

#define SERVERS_MAX 3 /* the resolver asks at most three */

/* getaddrinfo cannot be interrupted, so it has a thread of its own. The last of thread and caller frees the
 * lookup. */
struct lookup {
    char host[256];
    pthread_mutex_t lock;
    pthread_cond_t ended;
    int rc;
    bool done, left; /* left: the caller has stopped waiting */
};

static void lookup_free(struct lookup *l)
{
    pthread_mutex_destroy(&l->lock);
    pthread_cond_destroy(&l->ended);
    free(l);
}

static void *lookup_run(void *user)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    struct addrinfo *found = NULL;
    struct lookup *l = user;
    int rc = getaddrinfo(l->host, NULL, &hints, &found);
    bool left;

    if (!rc)
        freeaddrinfo(found);
    pthread_mutex_lock(&l->lock);
    l->rc = rc;
    l->done = true;
    left = l->left;
    pthread_cond_signal(&l->ended);
    pthread_mutex_unlock(&l->lock);
    if (left)
        lookup_free(l);
    return NULL;
}

static int lookup_start(struct lookup *l)
{
    pthread_condattr_t clock;
    pthread_attr_t detached;
    sigset_t all, old;
    pthread_t thread;
    int failed;

    pthread_mutex_init(&l->lock, NULL);
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_cond_init(&l->ended, &clock);
    pthread_condattr_destroy(&clock);
    pthread_attr_init(&detached);
    pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
    sigfillset(&all); /* signals are for the caller */
    pthread_sigmask(SIG_SETMASK, &all, &old);
    failed = pthread_create(&thread, &detached, lookup_run, l);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    pthread_attr_destroy(&detached);
    return failed;
}

/* The result of getaddrinfo; EAI_AGAIN if it did not return in time. */
static int lookup_wait(struct lookup *l, int64_t limit_ms)
{
    struct timespec until;
    int rc;

    if (limit_ms < 0) /* the caller was stopped for a while */
        limit_ms = 0;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += limit_ms / 1000;
    until.tv_nsec += limit_ms % 1000 * 1000000;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    pthread_mutex_lock(&l->lock);
    while (!l->done && pthread_cond_timedwait(&l->ended, &l->lock, &until) == 0)
        continue;
    l->left = !l->done;
    rc = l->done ? l->rc : EAI_AGAIN;
    if (l->left) {
        pthread_mutex_unlock(&l->lock); /* the thread frees it */
        return rc;
    }
    pthread_mutex_unlock(&l->lock);
    lookup_free(l);
    return rc;
}

/* "10.0.0.1, 10.0.0.2", from /etc/resolv.conf. Without any the resolver asks this machine. */
static void resolve_servers(char *out, size_t size)
{
    char line[256], server[64];
    size_t used = 0;
    FILE *f = fopen("/etc/resolv.conf", "re");

    out[0] = '\0';
    for (int i = 0; f && i < SERVERS_MAX && fgets(line, sizeof(line), f);) {
        if (sscanf(line, " nameserver %63s", server) != 1)
            continue;
        used += (size_t)snprintf(out + used, used < size ? size - used : 0, "%s%s", i++ ? ", " : "", server);
    }
    if (f)
        fclose(f);
    if (!out[0])
        snprintf(out, size, "127.0.0.1");
}

static void resolve_say(int rc, const char *host, char *out, size_t size)
{
    char servers[SERVERS_MAX * 66];

    resolve_servers(servers, sizeof(servers));
    if (rc == EAI_AGAIN)
        snprintf(out, size, "name server does not answer: %s was asked for '%.200s'", servers, host);
    else
        snprintf(out, size, "no address found for '%.200s': %s", host, gai_strerror(rc));
}

enum err_code rpc_resolve(const char *address, int64_t limit_ms, struct err *e)
{
    struct rpc_address parsed;
    struct in6_addr literal;
    struct lookup *l;
    char text[480];
    int rc;

    if (rpc_address_parse(address, &parsed, e))
        return e->code;
    if (parsed.path || strchr(parsed.host, ':') || inet_pton(AF_INET, parsed.host, &literal) == 1)
        return ERR_OK;
    l = xcalloc(1, sizeof(*l));
    memcpy(l->host, parsed.host, sizeof(l->host));
    rc = lookup_start(l);
    if (rc) {
        lookup_free(l);
        return err_sys(e, rc, "a thread to resolve '%.200s'", parsed.host);
    }
    rc = lookup_wait(l, limit_ms);
    if (!rc)
        return ERR_OK;
    resolve_say(rc, parsed.host, text, sizeof(text));
    return err_set(e, rc == EAI_AGAIN ? ERR_UNAVAILABLE : ERR_NOT_FOUND, "%s", text);
}

/* "DNS resolution failed for head:29600: ... <gai_strerror> ..." */
void rpc_resolve_explain(char *msg, size_t size)
{
    static const char mark[] = "DNS resolution failed for ";
    const char *host = strstr(msg, mark);
    char name[256];
    int rc;

    if (!host)
        return;
    host += sizeof(mark) - 1;
    if (strncmp(host, "dns:///", 7) == 0)
        host += 7;
    snprintf(name, sizeof(name), "%.*s", (int)strcspn(host, ": "), host);
    if (strstr(host, gai_strerror(EAI_AGAIN)))
        rc = EAI_AGAIN;
    else if (strstr(host, gai_strerror(EAI_NONAME)))
        rc = EAI_NONAME;
    else
        return;
    resolve_say(rc, name, msg, size);
}
