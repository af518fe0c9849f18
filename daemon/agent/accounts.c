#include "daemon/agent/accounts.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <uv.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"

#define REFUSED_MOST 64 /* users in the list; one more replaces the last */
#define LOOK_EVERY_MS 5000
#define WAIT_MOST_MS 30000 /* the coordinator gives a worker 60 s to start */

enum lookup_kind { LOOKUP_START, LOOKUP_REFUSED, LOOKUPS };

struct user_entry {
    char *name;
    struct account account; /* without a name: none was found */
    struct err failure;     /* of the last look-up; without a code: it found the account */
    bool looked;            /* it was looked up, at looked_ms (BOOTTIME) */
    int64_t looked_ms;
    bool needed;      /* a start waits for it */
    int64_t asked_ms; /* BOOTTIME: since when starts have had no answer; 0: they have had one */
    char *why;        /* jobs of this user were refused; NULL: none was */
};

struct lookup {
    struct accounts *all;
    uv_work_t work;
    char *name; /* NULL: no thread works on it */
    struct account account;
    struct err failure;
};

struct accounts {
    struct accounts_options options;
    uv_loop_t *loop;
    struct user_entry *entries;
    size_t count, cap;
    struct lookup lookups[LOOKUPS];
    bool closing;
    Ddp__V1__AccountProblem problems[REFUSED_MOST], *list[REFUSED_MOST];
};

static void lookups_start(struct accounts *a);

static struct user_entry *user_entry_find(struct accounts *a, const char *name)
{
    for (size_t i = 0; i < a->count; i++)
        if (!strcmp(a->entries[i].name, name))
            return &a->entries[i];
    return NULL;
}

static bool entry_is_fresh(const struct user_entry *u)
{
    return u->looked && clock_boot_ms() < u->looked_ms + LOOK_EVERY_MS;
}

static void user_entry_release(struct user_entry *u)
{
    free(u->name);
    free(u->why);
    account_release(&u->account);
}

/* Forgets users of whom nothing is needed any more. */
static void entries_thin(struct accounts *a)
{
    for (size_t i = 0; i < a->count;) {
        struct user_entry *u = &a->entries[i];

        if (u->needed || u->why || entry_is_fresh(u)) {
            i++;
            continue;
        }
        user_entry_release(u);
        *u = a->entries[--a->count];
    }
}

static struct user_entry *user_entry_get(struct accounts *a, const char *name)
{
    struct user_entry *u = user_entry_find(a, name);

    if (u)
        return u;
    entries_thin(a);
    a->entries = array_grow(a->entries, a->count, &a->cap, sizeof(*a->entries));
    u = &a->entries[a->count++];
    *u = (struct user_entry){.name = xstrdup(name)};
    return u;
}

/* ---- looking up */

static void on_lookup_work(uv_work_t *work)
{
    struct lookup *l = work->data;

    l->failure.code = ERR_OK;
    (void)!account_look_up(l->name, &l->account, &l->failure);
}

static void accounts_maybe_free(struct accounts *a)
{
    for (size_t i = 0; i < LOOKUPS; i++)
        if (a->lookups[i].name)
            return;
    for (size_t i = 0; i < a->count; i++)
        user_entry_release(&a->entries[i]);
    free(a->entries);
    free(a);
}

static void user_entry_take(struct accounts *a, struct user_entry *u, struct lookup *l)
{
    struct err e;

    account_release(&u->account);
    u->account = l->account;
    l->account = (struct account){0};
    u->failure = l->failure;
    u->looked = true;
    u->looked_ms = clock_boot_ms();
    u->needed = false;
    if (u->failure.code != ERR_UNAVAILABLE)
        u->asked_ms = 0;
    if (!u->why || u->failure.code || account_check_submitter(&u->account, u->name, a->options.node, &e))
        return;
    log_info("account_found", "user=%s", LOG_Q(u->name));
    free(steal(u->why));
}

static void on_lookup_done(uv_work_t *work, int status)
{
    struct lookup *l = work->data;
    struct accounts *a = l->all;
    CLEANUP(free_text) char *name = steal(l->name);
    struct user_entry *u = user_entry_find(a, name);

    (void)status;
    if (u && !a->closing)
        user_entry_take(a, u, l);
    account_release(&l->account);
    if (a->closing) {
        accounts_maybe_free(a);
        return;
    }
    lookups_start(a);
    a->options.on_change(a->options.ctx);
}

/* A start's account, or the refused user whose last look-up is the oldest. */
static const struct user_entry *lookup_choose(const struct accounts *a, enum lookup_kind kind)
{
    const struct user_entry *best = NULL;

    for (size_t i = 0; i < a->count; i++) {
        const struct user_entry *u = &a->entries[i];
        bool due = kind == LOOKUP_START ? u->needed : u->why && !entry_is_fresh(u);

        if (due && (!best || u->looked_ms < best->looked_ms))
            best = u;
    }
    return best;
}

static void lookups_start(struct accounts *a)
{
    for (enum lookup_kind kind = 0; kind < LOOKUPS; kind++) {
        struct lookup *l = &a->lookups[kind];
        const struct user_entry *u = l->name ? NULL : lookup_choose(a, kind);

        if (!u)
            continue;
        l->all = a;
        l->work.data = l;
        l->name = xstrdup(u->name);
        BUG_ON(uv_queue_work(a->loop, &l->work, on_lookup_work, on_lookup_done));
    }
}

/* ---- the owner's calls */

struct accounts *accounts_create(struct uv_loop_s *loop, const struct accounts_options *options)
{
    struct accounts *a = xcalloc(1, sizeof(*a));

    a->options = *options;
    a->loop = loop;
    return a;
}

void accounts_close(struct accounts *a)
{
    if (!a)
        return;
    a->closing = true;
    accounts_maybe_free(a);
}

enum err_code accounts_find(struct accounts *a, const char *name, const struct account **out, struct err *e)
{
    struct user_entry *u = user_entry_get(a, name);
    const int64_t now = clock_boot_ms();
    bool fresh = entry_is_fresh(u);

    if (fresh && !u->failure.code) {
        *out = &u->account;
        return ERR_OK;
    }
    if (fresh)
        *e = u->failure;
    if (fresh && e->code != ERR_UNAVAILABLE)
        return e->code;
    /* the second case: no start has asked for it lately */
    if (!u->asked_ms || (!fresh && !u->needed && now - u->looked_ms > WAIT_MOST_MS))
        u->asked_ms = now;
    if (!fresh) {
        u->needed = true;
        lookups_start(a);
        err_set(e, ERR_UNAVAILABLE, "account %s is being looked up", name);
    }
    if (now - u->asked_ms < WAIT_MOST_MS)
        return e->code;
    e->code = ERR_RESOURCE_EXHAUSTED;
    return err_wrap(e, "the account database has not answered for %lld s",
                    (long long)((now - u->asked_ms) / 1000));
}

static size_t refused_count(const struct accounts *a)
{
    size_t count = 0;

    for (size_t i = 0; i < a->count; i++)
        count += a->entries[i].why != NULL;
    return count;
}

void accounts_refused(struct accounts *a, const char *user, const char *why)
{
    struct user_entry *u = user_entry_get(a, user);

    if (u->why)
        return;
    for (size_t i = a->count; refused_count(a) == REFUSED_MOST; i--)
        free(steal(a->entries[i - 1].why));
    u->why = xstrdup(why);
}

Ddp__V1__AccountProblem **accounts_messages(struct accounts *a, size_t *count)
{
    lookups_start(a);
    *count = 0;
    for (size_t i = 0; i < a->count; i++) {
        const struct user_entry *u = &a->entries[i];

        if (!u->why)
            continue;
        ddp__v1__account_problem__init(&a->problems[*count]);
        a->problems[*count].user = u->name;
        a->problems[*count].why = u->why;
        a->list[*count] = &a->problems[*count];
        (*count)++;
    }
    return a->list;
}
