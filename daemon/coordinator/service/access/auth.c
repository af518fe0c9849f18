#include "daemon/coordinator/service/access/auth.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/crypto/id.h"
#include "base/mem.h"
#include "base/net/web_url.h"
#include "daemon/coordinator/service/access/audit.h"
#include "daemon/coordinator/service/access/users.h"
#include "daemon/coordinator/service/metrics/stats.h"
#include "daemon/coordinator/service/service_state.h"
#include "daemon/coordinator/web/web_bearer.h"
#include "daemon/coordinator/web/web_site.h"
#include "proto/rpc_codec.h"

/* Happy path: identity_establish finds out who calls, access_allow compares the method's row (roles.c) with
 * the identity, and handlers compare the job's owner (caller_owns).
 *
 * - On the unix socket, the kernel tells the peer's account; only our own account and root can open the
 *   socket. They may do everything.
 * - The server of the web page, which is a part of this process, also comes over that socket. It shows a key
 *   that only it knows, and for whom it asks: somebody who logs in with a token, or a user who has logged in.
 * - A TCP peer must show a token. A certificate of our CA gives the user of the cluster token a name, but
 *   grants nothing.
 * - A worker's token allows only the calls of its own spawn.
 *
 * A missing or unknown token is UNAUTHENTICATED. A valid token of the wrong kind or role is
 * PERMISSION_DENIED. The messages tell nothing that the caller does not know, and refused calls are written
 * to the audit log. */

#define TOKEN_BYTES 32
#define WORKER_UNKNOWN_YET "this worker's node has not reconnected yet: try again"
#define WORKER_ONLY "only workers may make this call, with their own token"

static bool token_matches(const struct rpc_auth *auth, const char *token)
{
    const size_t len = strlen(token);
    return auth->token && auth->token_len == len && secret_equal(auth->token, token, len);
}

/* ---- who it is */

/* Names come from certificates and accounts, are shown in terminals and are stored, so control characters and
 * invalid UTF-8 are replaced. */
static void identity_set_name(struct identity *who, const char *name)
{
    snprintf(who->name, sizeof who->name, "%s", name);
    rpc_utf8_clean(who->name);
    for (char *p = who->name; *p; p++)
        if (iscntrl((unsigned char)*p))
            *p = '?';
}

static void identity_set_origin(struct identity *who, const struct rpc_peer *peer)
{
    if (peer->kind == RPC_PEER_UNIX) {
        snprintf(who->origin, sizeof who->origin, "unix uid %u pid %d", (unsigned)peer->uid, (int)peer->pid);
        return;
    }
    snprintf(who->origin, sizeof who->origin, "%s", peer->address);
    char *port = strrchr(who->origin, ':'); /* the port means nothing after the connection has closed */
    if (port)
        *port = '\0';
}

static void identity_from_socket(struct service *s, struct identity *who, const struct rpc_peer *peer)
{
    const char *name = account_names_find(&s->account_names, peer->uid, service_now().boot_ms);
    char number[16];
    snprintf(number, sizeof number, "%u", (unsigned)peer->uid);
    identity_set_name(who, name ? name : number);
    who->role = ROLE_OPERATE;
    who->may_serve = true;
    who->known = "the unix socket";
}

/* The cluster token allows everything. Many people may hold it, so only a certificate tells who uses it. */
static void identity_from_cluster_token(struct identity *who, const struct service *s,
                                        const struct rpc_peer *peer, const char *known)
{
    /* The name decides who owns a job, so only a verified certificate may set it. */
    const bool named = peer->kind == RPC_PEER_TLS && peer->name[0];
    identity_set_name(who, named ? peer->name : s->options->shared_user);
    who->role = ROLE_OPERATE;
    who->may_serve = true;
    who->known = named ? "the certificate, with the cluster token" : known;
}

static bool identity_from_user_token(struct identity *who, const struct service *s,
                                     const struct rpc_auth *auth)
{
    const struct user_record *user = auth->token ? users_by_token(s, auth->token, auth->token_len) : NULL;
    if (!user)
        return false;
    identity_set_name(who, user->name);
    who->role = role_of(user->role);
    who->has_record = true;
    who->known = "the user's token";
    return true;
}

static bool identity_from_worker_token(struct identity *who, const struct service *s,
                                       const struct rpc_auth *auth)
{
    uint8_t token[TOKEN_BYTES];
    char text[2 * TOKEN_BYTES + 1] = "";
    if (!auth->token || auth->token_len != 2 * TOKEN_BYTES)
        return false;
    memcpy(text, auth->token, 2 * TOKEN_BYTES);
    const struct spawn_record *spawn =
        hex_decode(token, sizeof token, text) ? core_find_token(s->core, token, sizeof token) : NULL;
    if (!spawn)
        return false;
    who->kind = IDENTITY_WORKER;
    who->job = spawn->job;
    who->spawn = spawn->spawn;
    snprintf(who->name, sizeof who->name, "a worker of job %lld", (long long)spawn->job);
    who->known = "the worker's token";
    return true;
}

static bool identity_from_agent_token(struct identity *who, const struct service *s,
                                      const struct rpc_auth *auth)
{
    if (!token_matches(auth, s->options->agent_token))
        return false;
    who->kind = IDENTITY_AGENT;
    who->may_serve = true;
    identity_set_name(who, "agent");
    who->known = "the agent token";
    return true;
}

/* ---- users of the web page */

static enum err_code identity_of_user(const struct service *s, const char *name, struct identity *who,
                                      struct err *e)
{
    const struct user_record *user = users_by_name(s, name);
    if (strcmp(name, s->options->shared_user) == 0) { /* no user has this name: users_open checks it */
        who->role = ROLE_OPERATE;
        who->known = "a login with the cluster token";
    } else if (user) {
        who->role = role_of(user->role);
        who->has_record = true;
        who->known = "a login with the user's token";
    } else {
        return err_set(e, ERR_UNAUTHENTICATED, "the token was revoked: log in again");
    }
    identity_set_name(who, name);
    return ERR_OK;
}

static enum err_code identity_of_login(const struct service *s, const struct web_bearer *bearer,
                                       struct identity *who, struct err *e)
{
    struct web_logins *logins = web_site_logins(s->site);
    CLEANUP(free_text) char *value = xasprintf("%.*s", (int)bearer->len, bearer->value);
    char name[WEB_USER_TEXT], *end;
    const uint64_t number = strtoull(value, &end, 10);
    if (bearer->kind == BEARER_USER && web_logins_has_user(logins, value))
        return identity_of_user(s, value, who, e);
    if (bearer->kind == BEARER_LOGIN && !*end && web_logins_user(logins, number, name))
        return identity_of_user(s, name, who, e);
    return err_set(e, ERR_UNAUTHENTICATED, "the login has ended: log in again");
}

/* Like a caller over TCP who shows this token, but --insecure lets nobody log in without one. */
static enum err_code identity_of_token(const struct service *s, const struct rpc_auth *auth,
                                       const struct web_bearer *bearer, struct identity *who, struct err *e)
{
    struct rpc_auth shown = *auth;
    shown.token = bearer->value;
    shown.token_len = bearer->len;
    if (token_matches(&shown, s->options->token))
        return identity_of_user(s, s->options->shared_user, who, e);
    if (identity_from_user_token(who, s, &shown) || identity_from_agent_token(who, s, &shown) ||
        identity_from_worker_token(who, s, &shown))
        return ERR_OK;
    return err_set(e, ERR_UNAUTHENTICATED, "unknown or revoked token");
}

static enum err_code identity_on_page(const struct service *s, const struct rpc_auth *auth,
                                      const struct web_bearer *bearer, struct identity *who, struct err *e)
{
    snprintf(who->origin, sizeof who->origin, "%s%sweb page", bearer->address, *bearer->address ? ", " : "");
    snprintf(who->name, sizeof who->name, "unknown");
    const enum err_code code = bearer->kind == BEARER_TOKEN ? identity_of_token(s, auth, bearer, who, e)
                                                            : identity_of_login(s, bearer, who, e);
    who->on_page = true;
    who->may_serve = false; /* whatever the token allows elsewhere */
    return code;
}

/* After an older database was restored, a running worker's token is unknown until its node has reconnected
 * with the job's card. UNAVAILABLE makes the worker retry; UNAUTHENTICATED would end it. Only calls that
 * workers make are treated so, and only for some time after the start. */
static bool worker_may_reappear(const struct service *s, const struct rpc_auth *auth)
{
    return auth->token && auth->token_len == 2 * TOKEN_BYTES &&
           strcmp(auth->service, "ddp.v1.Rendezvous") == 0 && core_may_learn(s->core, service_now());
}

/* The order matters only for the unix socket, which needs no token: a worker or the web page that uses it must not get the
 * rights of its account. */
static enum err_code identity_establish(struct service *s, const struct rpc_auth *auth, struct identity *who,
                                        struct err *e)
{
    struct web_bearer bearer;
    identity_set_origin(who, auth->peer);
    if (auth->peer->kind == RPC_PEER_UNIX && s->site && auth->token &&
        web_bearer_parse(web_site_key(s->site), auth->token, auth->token_len, &bearer))
        return identity_on_page(s, auth, &bearer, who, e);
    if (auth->peer->kind == RPC_PEER_UNIX) {
        if (!identity_from_worker_token(who, s, auth))
            identity_from_socket(s, who, auth->peer);
    } else if (token_matches(auth, s->options->token)) {
        identity_from_cluster_token(who, s, auth->peer, "the cluster token");
    } else if (identity_from_user_token(who, s, auth) || identity_from_agent_token(who, s, auth) ||
               identity_from_worker_token(who, s, auth)) {
        return ERR_OK;
    } else if (s->options->insecure) { /* after the tokens, which tell more about the caller */
        identity_from_cluster_token(who, s, auth->peer, "nothing: the coordinator runs with --insecure");
    } else {
        snprintf(who->name, sizeof who->name, "unknown");
        if (worker_may_reappear(s, auth))
            return err_set(e, ERR_UNAVAILABLE, WORKER_UNKNOWN_YET);
        /* A node needs the agent token, not a user's. */
        const struct access_row *row = access_find(auth->service, auth->method);
        if (row && row->access == ACCESS_AGENT)
            return err_set(
                e, ERR_UNAUTHENTICATED,
                "%s: `ddp-coordinator token --agent` on the coordinator's machine prints the agent "
                "token; pipe it into `ddp-agent join HOST:PORT --token -` on this node",
                auth->token ? "unknown or revoked token" : "calls over TCP need a token");
        return err_set(e, ERR_UNAUTHENTICATED,
                       "%s: on the coordinator's machine, `ddp-coordinator token` prints the cluster token,"
                       " `ddp-coordinator user add NAME` makes a user token",
                       auth->token ? "unknown or revoked token" : "calls over TCP need a token");
    }
    return ERR_OK;
}

/* ---- what it may do */

static enum err_code access_allow_worker(const struct service *s, const struct identity *who,
                                         const struct rpc_auth *auth, struct err *e)
{
    if (who->kind == IDENTITY_WORKER)
        return ERR_OK;
    /* A known caller of another kind will never be a worker, so it should not retry. */
    if (who->kind == IDENTITY_AGENT || who->has_record || token_matches(auth, s->options->token))
        return err_set(e, ERR_PERMISSION_DENIED, WORKER_ONLY);
    if (worker_may_reappear(s, auth))
        return err_set(e, ERR_UNAVAILABLE, WORKER_UNKNOWN_YET);
    return err_set(e, ERR_UNAUTHENTICATED, "not a worker token");
}

static enum err_code access_allow_role(const struct access_row *row, const struct identity *who,
                                       struct err *e)
{
    const enum role need = access_role(row->access);
    if (who->kind == IDENTITY_WORKER)
        return err_set(e, ERR_PERMISSION_DENIED, "a worker token does not allow this call");
    if (who->kind == IDENTITY_AGENT)
        return err_set(e, ERR_PERMISSION_DENIED, "the agent token is for nodes only: to %s, use a user token",
                       row->to);
    /* ROLE_NONE as a need stands for a row that no role covers: refuse rather than allow by accident. */
    if (need == ROLE_NONE || who->role < need)
        return err_set(e, ERR_PERMISSION_DENIED, "to %s, the role %s is needed; %s has the role %s", row->to,
                       role_name(need), who->name, role_name(who->role));
    return ERR_OK;
}

static enum err_code access_allow(const struct service *s, const struct identity *who,
                                  const struct rpc_auth *auth, struct err *e)
{
    const struct access_row *row = access_find(auth->service, auth->method);
    if (!row)
        return err_set(e, ERR_UNIMPLEMENTED, "unknown method /%s/%s", auth->service, auth->method);
    switch (row->access) {
    case ACCESS_WORKER:
        return access_allow_worker(s, who, auth, e);
    case ACCESS_AGENT:
        if (who->may_serve)
            return ERR_OK;
        return err_set(e, ERR_PERMISSION_DENIED,
                       "this token is not for nodes: `ddp-coordinator token --agent` prints the"
                       " agent token");
    case ACCESS_SOCKET:
        /* A worker that shows its token on the unix socket is IDENTITY_WORKER and is refused. */
        if (auth->peer->kind == RPC_PEER_UNIX && who->kind == IDENTITY_USER && !who->on_page)
            return ERR_OK;
        return err_set(e, ERR_PERMISSION_DENIED,
                       "to %s, use ddp-coordinator on the coordinator's machine, as its account or as root",
                       row->to);
    case ACCESS_VIEW:
    case ACCESS_SUBMIT:
    case ACCESS_OPERATE:
        break;
    }
    return access_allow_role(row, who, e);
}

enum err_code auth_check(struct rpc_call *call, const struct rpc_auth *auth, void *service, struct err *e)
{
    struct service *s = service;
    struct identity who = {.kind = IDENTITY_USER};
    if (identity_establish(s, auth, &who, e) == ERR_OK && access_allow(s, &who, auth, e) == ERR_OK) {
        stats_call(&s->stats, auth->service, auth->method);
        rpc_call_set_identity(call, xmemdup(&who, sizeof who), free);
        return ERR_OK;
    }
    s->stats.refused_calls++;
    if (e->code != ERR_UNIMPLEMENTED) /* a newer client, not an attempt to get access */
        audit_refused(s, who.name, who.origin, auth->method, e->msg);
    return e->code;
}

/* ---- whose job it is */

const struct identity *caller_identity(const struct rpc_call *call)
{
    return rpc_call_identity(call);
}

static bool identity_owns(const struct identity *who, const struct job_record *job)
{
    return who->role >= ROLE_OPERATE || (job->user && strcmp(job->user, who->name) == 0);
}

bool caller_owns(struct service *s, struct rpc_call *call, int64_t job, const char *action)
{
    const struct job_record *record = core_job(s->core, job);
    const struct identity *who = caller_identity(call);
    struct err e = {0};
    if (!record || identity_owns(who, record))
        return true;
    err_set(
        &e, ERR_PERMISSION_DENIED,
        "job %lld '%.100s' belongs to %.80s: only its owner or the role operate may %s; %s has the role %s",
        (long long)job, record->name, record->user && *record->user ? record->user : "an unknown user",
        action, who->name, role_name(who->role));
    s->stats.refused_calls++;
    audit_refused(s, who->name, who->origin, rpc_call_method(call)->name, e.msg);
    rpc_call_fail(call, &e);
    return false;
}

bool caller_is_owner(struct service *s, const struct rpc_call *call, int64_t job)
{
    const struct job_record *record = core_job(s->core, job);
    return record && identity_owns(caller_identity(call), record);
}

bool caller_reads_logs(struct service *s, const struct rpc_call *call, int64_t job)
{
    const struct job_record *record = core_job(s->core, job);
    const struct job_spec *spec = core_job_spec(s->core, job);
    return !record || !spec || spec->logs != JOB_LOGS_PRIVATE || identity_owns(caller_identity(call), record);
}

bool caller_may_read(struct service *s, struct rpc_call *call, int64_t job)
{
    return caller_reads_logs(s, call, job) || caller_owns(s, call, job, "read its private logs");
}

static char *text_replaced(const char *text, const char *secret, const char *shown)
{
    struct buf out = {0};
    for (const char *at; (at = strstr(text, secret)); text = at + strlen(secret)) {
        buf_append(&out, text, (size_t)(at - text));
        buf_puts(&out, shown);
    }
    buf_puts(&out, text);
    return out.data;
}

/* The job file may write the URL with YAML's escapes, where no search finds it. */
static bool job_file_tells(const char *text, const char *url)
{
    CLEANUP(job_release) struct job_spec spec = {0};
    struct err e;
    return job_parse(&spec, text, strlen(text), "job file", &e) != ERR_OK ||
           (spec.tell && strcmp(spec.tell, url) == 0);
}

void caller_hide_tell(struct service *s, const struct rpc_call *call, struct pool *pool,
                      Ddp__V1__JobStatus *status)
{
    const struct job_record *record = core_job(s->core, status->job);
    const struct job_spec *spec = core_job_spec(s->core, status->job);
    if (!record || !spec || !spec->tell || identity_owns(caller_identity(call), record))
        return;
    CLEANUP(free_text) char *shown = web_url_shown(spec->tell);
    CLEANUP(free_text) char *text = text_replaced(status->job_file, spec->tell, shown);
    if (job_file_tells(text, spec->tell) && strcmp(shown, spec->tell) != 0) {
        struct job_spec hidden = *spec;
        hidden.tell = shown;
        CLEANUP(free_text) char *printed = job_print(&hidden);
        free(text);
        text = text_replaced(printed, spec->tell, shown);
    }
    status->job_file = pool_text(pool, text);
}

void caller_hide_logs(struct service *s, const struct rpc_call *call, Ddp__V1__JobStatus *status)
{
    if (status->failure && !caller_reads_logs(s, call, status->job))
        status->failure->n_stderr_tail = 0;
}
