#include "daemon/coordinator/web/web_site.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/web/web_server.h"
#include "client/link.h"
#include "client/text/json_print.h"
#include "client/web/page/web_page.h"
#include "client/web/web_answers.h"
#include "client/web/web_watch.h"
#include "daemon/coordinator/web/web_attempts.h"
#include "daemon/coordinator/web/web_bearer.h"
#include "daemon/coordinator/web/web_listen.h"
#include "proto/ddp.pb-c.h"

#define TICK_MS 1000
#define TOKEN_MOST 1024

/* A link with a token of its own, which the site can end. */
struct site_link {
    struct link link; /* first */
    struct site_link *prev, *next;
};
struct site_account {
    struct web_site *site;
    struct site_link link;
    struct web_watch *watch;
};
struct web_site {
    char key[WEB_KEY_TEXT];
    struct rpc_channel *channel; /* the connection that all links share */
    pthread_mutex_t lock;        /* protects the links and `closing` */
    struct site_link *links;
    bool closing;
    struct web_logins *logins;
    struct web_attempts *attempts;
    struct web_door door;
    struct web_server *server;
    int64_t ticked_ms;
};

/* ---- calls */

static enum err_code site_link_open(struct web_site *s, struct site_link *out, enum web_bearer_kind kind,
                                    const char *address, const char *value, struct err *e)
{
    CLEANUP(free_text) char *bearer = web_bearer_print(s->key, kind, address, value);
    *out = (struct site_link){.link = {.inside = true}};
    if (rpc_channel_share(&out->link.channel, s->channel, bearer, e) != ERR_OK)
        return e->code;
    pthread_mutex_lock(&s->lock);
    out->next = s->links;
    if (out->next)
        out->next->prev = out;
    s->links = out;
    if (s->closing)
        rpc_channel_cancel(out->link.channel);
    pthread_mutex_unlock(&s->lock);
    return ERR_OK;
}

static void site_link_close(struct web_site *s, struct site_link *l)
{
    pthread_mutex_lock(&s->lock);
    *(l->prev ? &l->prev->next : &s->links) = l->next;
    if (l->next)
        l->next->prev = l->prev;
    pthread_mutex_unlock(&s->lock);
    link_close(&l->link);
}

static void site_end_calls(struct web_site *s)
{
    pthread_mutex_lock(&s->lock);
    s->closing = true;
    for (struct site_link *l = s->links; l; l = l->next)
        rpc_channel_cancel(l->link.channel);
    pthread_mutex_unlock(&s->lock);
}

/* ---- accounts: what all logins of a user share */

static void site_close_account(void *site, void *opened)
{
    struct site_account *a = opened;
    (void)site;
    rpc_channel_cancel(a->link.link.channel);
    web_watch_close(a->watch);
    site_link_close(a->site, &a->link);
    free(a);
}

static enum err_code site_open_account(void *site, const char *name, struct web_levels *levels, void **out,
                                       struct err *e)
{
    struct site_account *a = xcalloc(1, sizeof(*a));
    a->site = site;
    if (site_link_open(site, &a->link, BEARER_USER, "", name, e) != ERR_OK) {
        free(a);
        return e->code;
    }
    a->watch = web_watch_open(&a->link.link, levels);
    *out = a;
    return ERR_OK;
}

/* ---- log in and out */

/* Asks the coordinator whether this is a user's token; the caller releases *out with rpc_release. */
static enum err_code login_check_token(struct web_site *s, const char *address, const char *token, void **out,
                                       struct err *e)
{
    Ddp__V1__WhoAmIRequest request = DDP__V1__WHO_AM_IREQUEST__INIT;
    struct site_link link;
    if (!*token || strlen(token) > TOKEN_MOST ||
        site_link_open(s, &link, BEARER_TOKEN, address, token, e) != ERR_OK)
        return err_set(e, ERR_UNAUTHENTICATED, "this is not a token");
    const enum err_code code = link_call(&link.link, "WhoAmI", &request, out, 0, e);
    site_link_close(s, &link);
    return code;
}

static enum err_code login_refuse(struct web_site *s, const char *address, struct err *e)
{
    const int count = web_attempts_add(s->attempts, address, clock_boot_ms());
    if (count == 1 || count == WEB_ATTEMPTS_MOST)
        log_warn("web_login_refused", "address=%s wrong_tokens=%d why=%s", LOG_Q(address), count,
                 LOG_Q(e->msg));
    /* Tokens of agents and workers get the same answer: they are valid, but cannot log in. */
    return err_set(e, ERR_UNAUTHENTICATED,
                   "unknown or revoked token: use the token of ddpctl, which "
                   "`ddp-coordinator user add NAME` prints");
}

static enum err_code login_check_pause(struct web_site *s, const char *address, struct err *e)
{
    const int64_t wait = web_attempts_wait_ms(s->attempts, address, clock_boot_ms());
    if (!wait)
        return ERR_OK;
    return err_set(e, ERR_RESOURCE_EXHAUSTED, "%d wrong tokens came from %s: try again in %lld s",
                   WEB_ATTEMPTS_MOST, address, (long long)(wait + 999) / 1000);
}

static bool login_was_refused(enum err_code code)
{
    return code == ERR_UNAUTHENTICATED || code == ERR_PERMISSION_DENIED;
}

static enum err_code login_add(struct web_site *s, const struct web_asker *asker, const char *token,
                               struct web_reply *reply, struct err *e)
{
    CLEANUP(rpc_release) void *message = NULL, *again = NULL;
    char secret[WEB_KEY_TEXT];
    enum err_code code = login_check_token(s, asker->address, token, &message, e);
    if (code != ERR_OK)
        return login_was_refused(code) ? login_refuse(s, asker->address, e) : code;
    const Ddp__V1__WhoAmIReply *who = message;
    if (web_logins_add(s->logins, who->name, clock_boot_ms(), secret, e) != ERR_OK)
        return e->code;
    /* If the token was revoked after the first check, only the logins that existed then were ended. So it is checked
     * again, now that this login exists. */
    code = login_check_token(s, asker->address, token, &again, e);
    if (code != ERR_OK) {
        struct web_login *login = web_logins_find(s->logins, secret, clock_boot_ms());
        if (login) {
            web_logins_end(s->logins, login);
            web_logins_give_back(s->logins, login);
        }
        return login_was_refused(code) ? login_refuse(s, asker->address, e) : code;
    }
    log_info("web_login", "user=%s role=%s address=%s", LOG_Q(who->name), who->role, LOG_Q(asker->address));
    json_print(message, &reply->body);
    reply->secret = xstrdup(secret);
    return ERR_OK;
}

static enum err_code site_log_in(struct web_site *s, const struct web_asker *asker,
                                 const struct web_request *request, struct web_reply *reply, struct err *e)
{
    CLEANUP(json_release) json_t *body = NULL;
    if (login_check_pause(s, asker->address, e) != ERR_OK ||
        web_request_json(request, "token", &body, e) != ERR_OK)
        return e->code;
    const char *token = json_string_value(json_object_get(body, "token"));
    if (!token)
        return err_set(e, ERR_INVALID_ARGUMENT, "body: expected {\"token\": \"...\"}");
    return login_add(s, asker, token, reply, e);
}

static void site_log_out(struct web_site *s, const struct web_asker *asker, struct web_reply *reply)
{
    web_logins_end(s->logins, asker->login);
    buf_puts(&reply->body, "{}\n");
    reply->secret = xstrdup("");
}

/* ---- callbacks of the server */

static enum err_code site_answer_request(struct web_site *s, const struct web_asker *asker,
                                         const struct web_request *request, struct web_reply *reply,
                                         struct err *e)
{
    char number[24];
    struct site_link link;
    snprintf(number, sizeof(number), "%llu", (unsigned long long)web_login_number(asker->login));
    if (site_link_open(s, &link, BEARER_LOGIN, asker->address, number, e) != ERR_OK)
        return e->code;
    web_answer(&link.link, request, reply);
    site_link_close(s, &link);
    return ERR_OK;
}

static void site_answer(void *site, const struct web_asker *asker, const struct web_request *request,
                        struct web_reply *reply)
{
    struct web_site *s = site;
    struct err e = {0};
    if (request->route == WEB_LOGOUT)
        site_log_out(s, asker, reply);
    else if ((request->route == WEB_LOGIN ? site_log_in : site_answer_request)(s, asker, request, reply,
                                                                               &e) != ERR_OK)
        web_reply_fail(reply, &e);
}

static struct web_login *site_find_login(void *site, const char *secret)
{
    return web_logins_find(((struct web_site *)site)->logins, secret, clock_boot_ms());
}

static struct web_login *site_hold_login(void *site, struct web_login *login)
{
    return web_logins_hold(((struct web_site *)site)->logins, login);
}

static void site_give_login_back(void *site, struct web_login *login)
{
    web_logins_give_back(((struct web_site *)site)->logins, login);
}

static void site_wake_viewers(void *site)
{
    web_logins_wake(((struct web_site *)site)->logins);
}

/* ---- the whole */

static enum err_code site_open_server(struct web_site *s, const struct web_site_options *o, struct err *e)
{
    s->door = (struct web_door){s, site_find_login, site_hold_login, site_give_login_back, site_wake_viewers};
    struct web_options options = {
        .page = (const char *)web_page_html,
        .page_size = web_page_size,
        .answer = site_answer,
        .user = s,
        .door = &s->door,
        .tls = o->tls,
    };
    if (web_listen(&options.listener, o->address, o->tls, e) != ERR_OK)
        return e->code;
    return web_server_open(&s->server, &options, e);
}

enum err_code web_site_open(struct web_site **out, const struct web_site_options *o, struct err *e)
{
    struct web_site *s = xcalloc(1, sizeof(*s));
    pthread_mutex_init(&s->lock, NULL);
    web_access_new_key(s->key);
    s->attempts = web_attempts_create();
    s->logins = web_logins_create(&(struct web_logins_hooks){s, site_open_account, site_close_account});
    if (rpc_channel_open(&s->channel, o->socket, NULL, e) != ERR_OK || site_open_server(s, o, e) != ERR_OK) {
        web_site_close(s);
        return e->code;
    }
    log_info("listening", "address=%s port=%u for=web tls=%s", LOG_Q(o->address),
             (unsigned)web_server_port(s->server), o->tls ? "yes" : "no");
    *out = s;
    return ERR_OK;
}

const char *web_site_key(const struct web_site *s)
{
    return s->key;
}

struct web_logins *web_site_logins(struct web_site *s)
{
    return s->logins;
}

void web_site_tick(struct web_site *s, int64_t now_ms)
{
    if (now_ms - s->ticked_ms < TICK_MS)
        return;
    s->ticked_ms = now_ms;
    web_logins_expire(s->logins, now_ms);
    web_server_tick(s->server, now_ms);
}

void web_site_close(struct web_site *s)
{
    if (!s)
        return;
    site_end_calls(s); /* nobody needs their answers any more */
    web_server_close(s->server);
    web_logins_free(s->logins);
    web_attempts_free(s->attempts);
    rpc_channel_close(s->channel);
    pthread_mutex_destroy(&s->lock);
    explicit_bzero(s->key, sizeof(s->key));
    free(s);
}
