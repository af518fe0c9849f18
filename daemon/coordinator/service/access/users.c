#include "daemon/coordinator/service/access/users.h"

#include <stdlib.h>
#include <string.h>

#include "base/crypto/id.h"
#include "base/log.h"
#include "base/mem.h"
#include "daemon/coordinator/service/access/audit.h"
#include "daemon/coordinator/service/access/auth.h"
#include "daemon/coordinator/service/commit_queue.h"
#include "daemon/coordinator/service/pool.h"
#include "daemon/coordinator/service/service_state.h"
#include "daemon/coordinator/token.h"
#include "daemon/coordinator/web/web_site.h"
#include "proto/ddp.pb-c.h"

/* The users are few, so all of them are kept in memory, too, and a change writes through to the database. A
 * token is shown once, in the reply that makes it; only its hash is kept. A removed or renewed token stops
 * working before the reply is sent. The streams that were opened with it are ended, since a stream is
 * checked only when it opens, and so are the logins to the web page. */

/* A name decides who owns a job, and a login to the web page is known by its name. So a user with the name of callers with
 * the cluster token would have the rights of these callers. users_add refuses such a name, but an edit of coordinator.yaml
 * can make one of an existing user. The program that removes users needs a running coordinator, so the message names the
 * edit first. */
static enum err_code users_check_shared(const struct service *s, struct err *e)
{
    const char *name = s->options->shared_user;
    if (!users_by_name(s, name))
        return ERR_OK;
    return err_set(
        e, ERR_FAILED_PRECONDITION,
        "shared_user: there is a user '%s', who would get the rights of the cluster token: choose another name "
        "in coordinator.yaml and start again; `ddp-coordinator user remove %s` then frees this one",
        name, name);
}

enum err_code users_open(struct service *s, struct err *e)
{
    if (store_users(s->store, &s->users, &s->user_count, e) != ERR_OK)
        return e->code;
    return users_check_shared(s, e);
}

void users_close(struct service *s)
{
    store_users_free(s->users, s->user_count);
}

const struct user_record *users_by_token(const struct service *s, const char *token, size_t len)
{
    uint8_t hash[DIGEST_BYTES];
    digest_sha256(hash, token, len);
    for (size_t i = 0; i < s->user_count; i++)
        if (secret_equal(s->users[i].token_hash, hash, sizeof hash))
            return &s->users[i];
    return NULL;
}

static struct user_record *users_find_name(const struct service *s, const char *name)
{
    for (size_t i = 0; i < s->user_count; i++)
        if (strcmp(s->users[i].name, name) == 0)
            return &s->users[i];
    return NULL;
}

const struct user_record *users_by_name(const struct service *s, const char *name)
{
    return users_find_name(s, name);
}

/* ---- who asks */

void users_who(struct rpc_call *rpc, const void *message, void *user)
{
    const struct identity *who = caller_identity(rpc);
    Ddp__V1__WhoAmIReply reply = DDP__V1__WHO_AM_IREPLY__INIT;
    (void)message;
    (void)user;
    reply.name = (char *)(uintptr_t)who->name;
    reply.role = (char *)(uintptr_t)role_name(who->role);
    reply.known = (char *)(uintptr_t)who->known;
    reply.origin = (char *)(uintptr_t)who->origin;
    rpc_call_reply(rpc, &reply);
}

static void user_fill(const struct user_record *from, Ddp__V1__User *to)
{
    ddp__v1__user__init(to);
    to->name = from->name;
    to->role = from->role;
    to->created_ms = from->created_ms;
    to->token_ms = from->token_ms;
}

void users_list(struct rpc_call *rpc, const void *message, void *user)
{
    struct service *s = user;
    Ddp__V1__ListUsersReply reply = DDP__V1__LIST_USERS_REPLY__INIT;
    CLEANUP(pool_release) struct pool pool = {0};
    (void)message;
    commit_queue_flush(s);
    reply.n_users = s->user_count;
    reply.users = pool_alloc(&pool, s->user_count * sizeof *reply.users);
    for (size_t i = 0; i < s->user_count; i++) {
        reply.users[i] = pool_alloc(&pool, sizeof *reply.users[i]);
        user_fill(&s->users[i], reply.users[i]);
    }
    rpc_call_reply(rpc, &reply);
}

/* ---- changes */

static void user_put_change(struct service *s, const struct user_record *user)
{
    struct user_record *copy = xmalloc(sizeof *copy);
    user_record_copy(copy, user);
    commit_queue_change(s, CHANGE_USER_PUT)->user = copy;
}

/* A token must not be shown before its hash is durable, so the reply waits for this commit. Returns false and
 * fails the call if the commit fails. The change then stays in the queue and takes effect later, but the new
 * token is lost, so the message says how to make another one. */
static bool user_commit_now(struct service *s, struct rpc_call *rpc)
{
    commit_queue_flush(s);
    if (s->commit_blocked)
        rpc_call_fail_with(rpc, ERR_RESOURCE_EXHAUSTED,
                           "%s: the change takes effect when the database can be written again;"
                           " then run `ddp-coordinator user token NAME` to get a usable token",
                           s->obstacle_text);
    return !s->commit_blocked;
}

/* Whose streams are ended, and the call that does it, which must still be answered. */
struct stream_end {
    const char *name;
    struct rpc_call *but;
};

static void user_end_stream(struct rpc_call *call, void *user)
{
    const struct stream_end *end = user;
    const struct identity *who = rpc_call_identity(call);
    if (call != end->but && who && who->has_record && strcmp(who->name, end->name) == 0)
        rpc_call_fail_with(call, ERR_UNAUTHENTICATED, "the token was revoked");
}

static void user_end_streams(struct service *s, struct rpc_call *rpc, const char *name)
{
    struct stream_end end = {name, rpc};
    rpc_server_each_call(s->server, user_end_stream, &end);
    if (s->site)
        web_logins_end_user(web_site_logins(s->site), name);
}

static void user_reply(struct rpc_call *rpc, const struct user_record *user, const char *token)
{
    Ddp__V1__UserReply reply = DDP__V1__USER_REPLY__INIT;
    Ddp__V1__User shown;
    user_fill(user, &shown);
    reply.user = &shown;
    if (token)
        reply.token = (char *)(uintptr_t)token;
    rpc_call_reply(rpc, &reply);
}

static void user_new_token(struct user_record *user, char token[TOKEN_TEXT])
{
    token_make(token, TOKEN_USER);
    digest_sha256(user->token_hash, token, strlen(token));
    user->token_ms = service_now().wall_ms;
}

/* Names must not be confused with others in logs: with the name of callers without a certificate, or with
 * root, whom the unix socket identifies. A leading digit could be taken for a uid. */
static enum err_code user_check_name(struct service *s, const char *name, struct err *e)
{
    const char *root = account_names_find(&s->account_names, 0, service_now().boot_ms);
    if (!id_node_name(name) || strchr("0123456789-.", name[0]))
        return err_set(
            e, ERR_INVALID_ARGUMENT,
            "user name: expected up to 63 letters, digits, '-', '_' and '.', first a letter or '_'");
    if (strcmp(name, s->options->shared_user) == 0)
        return err_set(e, ERR_INVALID_ARGUMENT,
                       "%s is reserved for callers that show the cluster token (shared_user)", name);
    if (strcmp(name, root ? root : "root") == 0)
        return err_set(e, ERR_INVALID_ARGUMENT, "%s needs no token: it uses the unix socket", name);
    return ERR_OK;
}

static int user_compare_names(const void *a, const void *b)
{
    return strcmp(((const struct user_record *)a)->name, ((const struct user_record *)b)->name);
}

void users_add(struct rpc_call *rpc, const void *message, void *user)
{
    struct service *s = user;
    const Ddp__V1__UserRequest *request = message;
    const enum role role = request->role[0] ? role_of(request->role) : ROLE_SUBMIT; /* the usual one */
    struct user_record record = {.created_ms = service_now().wall_ms};
    char token[TOKEN_TEXT];
    struct err e = {0};
    if (commit_queue_accepts(s, &e) == ERR_OK && user_check_name(s, request->name, &e) == ERR_OK) {
        if (role == ROLE_NONE)
            err_set(&e, ERR_INVALID_ARGUMENT, "role '%.40s': expected view, submit or operate",
                    request->role);
        else if (users_find_name(s, request->name))
            err_set(
                &e, ERR_ALREADY_EXISTS,
                "user %s exists: `ddp-coordinator user token %s` makes a new token; to change the role, remove"
                " the user first",
                request->name, request->name);
    }
    if (e.code != ERR_OK) {
        rpc_call_fail(rpc, &e);
        return;
    }
    record.name = xstrdup(request->name);
    record.role = xstrdup(role_name(role));
    user_new_token(&record, token);
    /* One commit holds the user and the audit line, so neither exists without the other. */
    user_put_change(s, &record);
    audit_add(s, caller_identity(rpc), "user_add", 0, "add user %s with the role %s", record.name,
              record.role);
    s->users = xrealloc(s->users, (s->user_count + 1) * sizeof *s->users);
    s->users[s->user_count++] = record; /* the list owns the record's texts now */
    qsort(s->users, s->user_count, sizeof *s->users, user_compare_names);
    if (user_commit_now(s, rpc))
        user_reply(rpc, users_find_name(s, request->name), token);
}

/* The user that a request names. Returns NULL and fails the call if there is none, or while the disk is
 * full. */
static struct user_record *user_require(struct service *s, struct rpc_call *rpc, const char *name)
{
    struct user_record *record = users_find_name(s, name);
    struct err e = {0};
    if (commit_queue_accepts(s, &e) == ERR_OK && !record)
        err_set(&e, ERR_NOT_FOUND, "there is no user %.80s: `ddp-coordinator user list` lists all users",
                name);
    if (e.code == ERR_OK)
        return record;
    rpc_call_fail(rpc, &e);
    return NULL;
}

void users_remove(struct rpc_call *rpc, const void *message, void *user)
{
    struct service *s = user;
    const Ddp__V1__UserRequest *request = message;
    struct user_record *record = user_require(s, rpc, request->name);
    if (!record)
        return;
    struct user_record gone = *record;
    /* The token stops working here, before the commit: a token that was revoked too early does no harm. */
    *record = s->users[--s->user_count];
    if (s->user_count)
        qsort(s->users, s->user_count, sizeof *s->users, user_compare_names);
    commit_queue_change(s, CHANGE_USER_DELETE)->name = xstrdup(gone.name);
    audit_add(s, caller_identity(rpc), "user_remove", 0, "remove user %s", gone.name);
    user_end_streams(s, rpc, gone.name);
    if (user_commit_now(s, rpc))
        user_reply(rpc, &gone, NULL);
    user_record_release(&gone);
}

void users_renew(struct rpc_call *rpc, const void *message, void *user)
{
    struct service *s = user;
    const Ddp__V1__UserRequest *request = message;
    struct user_record *record = user_require(s, rpc, request->name);
    char token[TOKEN_TEXT];
    if (!record)
        return;
    user_new_token(record, token);
    user_put_change(s, record);
    audit_add(s, caller_identity(rpc), "user_token", 0, "make a new token for user %s", record->name);
    user_end_streams(s, rpc, record->name);
    if (user_commit_now(s, rpc))
        user_reply(rpc, record, token);
}
