#include "daemon/coordinator/web/web_logins.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/crypto/id.h"
#include "base/mem.h"

#define ACCOUNTS_MOST 64 /* each has a thread */
#define LOGINS_MOST 32   /* of one user */
/* After this time without a request or an open stream, a login may end to make room for another user. */
#define IDLE_MS 60000

struct account {
    char user[WEB_USER_TEXT];
    struct web_levels *levels;
    void *opened;
    size_t holders; /* its logins, until they are freed, and functions that wake its viewers now */
    /* The user's token was revoked. Later logins get a new account: the user's role may have changed, and these levels
     * hold what the user could see before. */
    bool stale;
    struct account *next;
};
struct login {
    struct web_login base; /* first */
    uint64_t number;
    uint8_t hash[DIGEST_BYTES]; /* of the secret */
    int64_t ends_ms;
    int64_t used_ms; /* when it was found last, or seen in use */
    struct account *account;
    size_t owners; /* the list, and callers that have found it */
    struct login *next;
};
struct web_logins {
    struct web_logins_hooks hooks;
    pthread_mutex_t lock;
    /* also accounts that no login uses any more, until the next account is opened */
    struct account *accounts;
    struct login *list; /* the newest first */
    uint64_t last_number;
};

struct web_logins *web_logins_create(const struct web_logins_hooks *hooks)
{
    struct web_logins *l = xcalloc(1, sizeof(*l));
    l->hooks = *hooks;
    pthread_mutex_init(&l->lock, NULL);
    return l;
}

/* ---- accounts */

static void account_close(struct web_logins *l, struct account *a)
{
    l->hooks.close(l->hooks.user, a->opened);
    web_levels_free(a->levels);
    free(a);
}

static void accounts_close(struct web_logins *l, struct account *list)
{
    for (struct account *next; list; list = next) {
        next = list->next;
        account_close(l, list);
    }
}

static struct account *account_find(struct web_logins *l, const char *user)
{
    for (struct account *a = l->accounts; a; a = a->next)
        if (!a->stale && strcmp(a->user, user) == 0)
            return a;
    return NULL;
}

/* Takes the accounts that no login uses out of the list; returns them. */
static struct account *accounts_take_unused(struct web_logins *l, size_t *left)
{
    struct account *unused = NULL, **at = &l->accounts;
    *left = 0;
    while (*at) {
        struct account *a = *at;
        if (a->holders) {
            at = &a->next;
            ++*left;
            continue;
        }
        *at = a->next;
        a->next = unused;
        unused = a;
    }
    return unused;
}

static enum err_code account_open(struct web_logins *l, const char *user, struct account **out, struct err *e)
{
    struct account *a = xcalloc(1, sizeof(*a));
    snprintf(a->user, sizeof(a->user), "%s", user);
    a->levels = web_levels_create();
    if (l->hooks.open(l->hooks.user, user, a->levels, &a->opened, e) != ERR_OK) {
        web_levels_free(a->levels);
        free(a);
        return e->code;
    }
    *out = a;
    return ERR_OK;
}

/* ---- logins */

static void login_unref(struct login *login)
{
    if (--login->owners)
        return;
    login->account->holders--;
    free(login);
}

/* Takes a login out of the list, and adds its account to `woken`, the accounts whose viewers must be woken. */
static void login_end(struct web_logins *l, struct login *login, struct account **woken, size_t *count)
{
    struct login **at = &l->list;
    while (*at != login)
        at = &(*at)->next;
    *at = login->next;
    __atomic_store_n(&login->base.ended, true, __ATOMIC_RELEASE);
    login->account->holders++;
    woken[(*count)++] = login->account;
    login_unref(login);
}

/* Viewers are woken without the lock: they take locks of their own. */
static void accounts_wake(struct web_logins *l, struct account **woken, size_t count)
{
    for (size_t i = 0; i < count; i++)
        web_levels_tick(woken[i]->levels);
    pthread_mutex_lock(&l->lock);
    for (size_t i = 0; i < count; i++)
        woken[i]->holders--;
    pthread_mutex_unlock(&l->lock);
}

static bool login_is_used(const struct login *login)
{
    return login->owners > 1; /* a request or a stream has it, too */
}

/* The account whose logins have been unused for the longest time. NULL: all have been used within the last minute. */
static struct account *account_idlest(const struct web_logins *l, int64_t now_ms)
{
    struct account *idlest = NULL;
    int64_t since = now_ms - IDLE_MS + 1;
    for (struct account *a = l->accounts; a; a = a->next) {
        int64_t used_ms = INT64_MIN;
        for (const struct login *login = l->list; login; login = login->next)
            if (login->account == a && (login_is_used(login) || login->used_ms > used_ms))
                used_ms = login_is_used(login) ? now_ms : login->used_ms;
        if (used_ms == INT64_MIN || used_ms >= since) /* without a login it is held by a stream that ends */
            continue;
        idlest = a;
        since = used_ms;
    }
    return idlest;
}

/* Ends the logins of the user who has used none of them for longest, so that somebody else can log in. */
static void account_make_room(struct web_logins *l, int64_t now_ms)
{
    struct account *woken[LOGINS_MOST];
    size_t count = 0;
    pthread_mutex_lock(&l->lock);
    const struct account *idlest = account_idlest(l, now_ms);
    for (struct login *login = l->list, *next; login; login = next) {
        next = login->next;
        if (login->account == idlest)
            login_end(l, login, woken, &count);
    }
    pthread_mutex_unlock(&l->lock);
    accounts_wake(l, woken, count);
}

/* Returns the user's account, with one more holder. Opens and closes accounts without the lock, because that may
 * block. */
static enum err_code account_get(struct web_logins *l, const char *user, int64_t now_ms, struct account **out,
                                 struct err *e)
{
    struct account *fresh = NULL, *a = NULL;
    size_t left = ACCOUNTS_MOST;
    for (int turn = 0; turn < 2 && left >= ACCOUNTS_MOST; turn++) {
        struct account *unused = NULL;
        if (turn)
            account_make_room(l, now_ms);
        pthread_mutex_lock(&l->lock);
        a = account_find(l, user);
        if (!a)
            unused = accounts_take_unused(l, &left);
        else
            a->holders++;
        pthread_mutex_unlock(&l->lock);
        accounts_close(l, unused);
        *out = a;
        if (a)
            return ERR_OK;
    }
    if (left >= ACCOUNTS_MOST)
        return err_set(e, ERR_RESOURCE_EXHAUSTED, "%d users use the page now: try again in a minute",
                       ACCOUNTS_MOST);
    if (account_open(l, user, &fresh, e) != ERR_OK)
        return e->code;
    pthread_mutex_lock(&l->lock);
    a = account_find(l, user); /* the same user may have logged in meanwhile */
    if (!a) {
        a = fresh;
        a->next = l->accounts;
        l->accounts = a;
        fresh = NULL;
    }
    a->holders++;
    pthread_mutex_unlock(&l->lock);
    if (fresh)
        account_close(l, fresh);
    *out = a;
    return ERR_OK;
}

/* Ends the logins for which the function is true. */
static void logins_end_those(struct web_logins *l, bool (*those)(const struct login *login, const void *what),
                             const void *what)
{
    struct account *woken[ACCOUNTS_MOST];
    size_t count;
    do { /* as many in each turn as `woken` holds */
        count = 0;
        pthread_mutex_lock(&l->lock);
        for (struct login *login = l->list, *next; login && count < ARRAY_LEN(woken); login = next) {
            next = login->next;
            if (those(login, what))
                login_end(l, login, woken, &count);
        }
        pthread_mutex_unlock(&l->lock);
        accounts_wake(l, woken, count);
    } while (count == ARRAY_LEN(woken));
}

/* The login that makes room for another one of its user: the one that has not been used for longest, or if all are in use, the
 * oldest. NULL: there is room. */
static struct login *login_spare(const struct web_logins *l, const struct account *a)
{
    struct login *oldest = NULL, *idlest = NULL;
    size_t count = 0;
    for (struct login *login = l->list; login; login = login->next) {
        if (login->account != a)
            continue;
        oldest = login;
        if (!login_is_used(login) && (!idlest || login->used_ms <= idlest->used_ms))
            idlest = login;
        count++;
    }
    return count < LOGINS_MOST ? NULL : idlest ? idlest : oldest;
}

/* Administrators choose the names, so two of them do not share these 63 bits of a hash. */
static uint64_t user_owner(const char *user)
{
    uint8_t hash[DIGEST_BYTES];
    uint64_t owner;
    digest_sha256(hash, user, strlen(user));
    memcpy(&owner, hash, sizeof(owner));
    return owner | 1;
}

enum err_code web_logins_add(struct web_logins *l, const char *user, int64_t now_ms,
                             char secret[WEB_KEY_TEXT], struct err *e)
{
    struct account *account, *woken[1];
    size_t count = 0;
    if (account_get(l, user, now_ms, &account, e) != ERR_OK)
        return e->code;
    struct login *login = xcalloc(1, sizeof(*login));
    web_access_new_key(secret);
    digest_sha256(login->hash, secret, strlen(secret));
    login->base.levels = account->levels;
    login->base.owner = user_owner(user);
    login->account = account; /* account_get has counted this holder */
    login->owners = 1;
    login->ends_ms = now_ms + WEB_LOGIN_S * 1000LL;
    login->used_ms = now_ms;
    pthread_mutex_lock(&l->lock);
    struct login *spare = login_spare(l, account);
    if (spare)
        login_end(l, spare, woken, &count);
    login->number = ++l->last_number;
    login->next = l->list;
    l->list = login;
    pthread_mutex_unlock(&l->lock);
    accounts_wake(l, woken, count);
    return ERR_OK;
}

struct web_login *web_logins_find(struct web_logins *l, const char *secret, int64_t now_ms)
{
    struct login *found = NULL;
    uint8_t hash[DIGEST_BYTES];
    digest_sha256(hash, secret, strlen(secret));
    pthread_mutex_lock(&l->lock);
    for (struct login *login = l->list; login; login = login->next)
        if (secret_equal(login->hash, hash, sizeof(hash)) && now_ms < login->ends_ms)
            found = login;
    if (found) {
        found->owners++;
        found->used_ms = now_ms;
    }
    pthread_mutex_unlock(&l->lock);
    return found ? &found->base : NULL;
}

struct web_login *web_logins_hold(struct web_logins *l, struct web_login *login)
{
    pthread_mutex_lock(&l->lock);
    ((struct login *)login)->owners++;
    pthread_mutex_unlock(&l->lock);
    return login;
}

void web_logins_give_back(struct web_logins *l, struct web_login *login)
{
    pthread_mutex_lock(&l->lock);
    login_unref((struct login *)login);
    pthread_mutex_unlock(&l->lock);
}

/* ---- the end of logins */

static bool login_is(const struct login *login, const void *what)
{
    return login == what;
}

void web_logins_end(struct web_logins *l, struct web_login *login)
{
    logins_end_those(l, login_is, login);
}

static bool login_is_of(const struct login *login, const void *what)
{
    return strcmp(login->account->user, what) == 0;
}

void web_logins_end_user(struct web_logins *l, const char *user)
{
    pthread_mutex_lock(&l->lock);
    for (struct account *a = l->accounts; a; a = a->next)
        a->stale = a->stale || strcmp(a->user, user) == 0;
    pthread_mutex_unlock(&l->lock);
    logins_end_those(l, login_is_of, user);
}

static bool login_is_over(const struct login *login, const void *what)
{
    return *(const int64_t *)what >= login->ends_ms;
}

void web_logins_expire(struct web_logins *l, int64_t now_ms)
{
    pthread_mutex_lock(&l->lock);
    for (struct login *login = l->list; login; login = login->next)
        if (login_is_used(login))
            login->used_ms = now_ms;
    pthread_mutex_unlock(&l->lock);
    logins_end_those(l, login_is_over, &now_ms);
}

void web_logins_wake(struct web_logins *l)
{
    pthread_mutex_lock(&l->lock);
    for (struct account *a = l->accounts; a; a = a->next)
        a->holders++; /* so that none of them is closed meanwhile */
    struct account *first = l->accounts;
    pthread_mutex_unlock(&l->lock);
    for (struct account *a = first; a; a = a->next)
        web_levels_tick(a->levels);
    pthread_mutex_lock(&l->lock);
    for (struct account *a = first; a; a = a->next)
        a->holders--;
    pthread_mutex_unlock(&l->lock);
}

/* ---- who it is */

uint64_t web_login_number(const struct web_login *login)
{
    return ((const struct login *)login)->number;
}

bool web_logins_user(struct web_logins *l, uint64_t number, char user[WEB_USER_TEXT])
{
    bool found = false;
    pthread_mutex_lock(&l->lock);
    for (const struct login *login = l->list; login && !found; login = login->next)
        if ((found = login->number == number))
            snprintf(user, WEB_USER_TEXT, "%s", login->account->user);
    pthread_mutex_unlock(&l->lock);
    return found;
}

bool web_logins_has_user(struct web_logins *l, const char *user)
{
    bool found = false;
    pthread_mutex_lock(&l->lock);
    for (const struct login *login = l->list; login && !found; login = login->next)
        found = strcmp(login->account->user, user) == 0;
    pthread_mutex_unlock(&l->lock);
    return found;
}

void web_logins_free(struct web_logins *l)
{
    if (!l)
        return;
    for (struct login *login = l->list, *next; login; login = next) {
        next = login->next;
        login_unref(login);
    }
    accounts_close(l, l->accounts);
    pthread_mutex_destroy(&l->lock);
    free(l);
}
